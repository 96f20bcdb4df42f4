//! The end of a walk over several ranks: a random run of the last bucket.
//!
//! One process takes the new classes of its last bucket from a random place on, wrapping
//! round, until its set is full. Its bucket is ordered by code (a wide one has several)
//! and then by class, which is by code, rank and the rank's own order: *segments*.
//! Ranks tell each other how many classes and new classes each segment has; the rank in
//! whose segment a run begins tells how many new ones stand behind that place. Then each
//! knows what the run takes of its own segments.

use std::ops::Range;

use super::lsh::{Cut, ExampleWalk};
use crate::collective::Collective;
use crate::hashing::HashTables;

/// The own part of a bucket that a walk ends in.
struct Bucket {
    cut: Cut,
    /// Where each code's classes are.
    spans: Vec<Range<usize>>,
    /// The new classes of each code.
    fresh: Vec<Vec<u32>>,
}

impl Bucket {
    /// Takes the new classes of the last bucket out of the set.
    fn of(walk: &mut ExampleWalk, tables: &HashTables) -> Self {
        let cut = walk.cut.expect("only walks that end within a bucket come here");
        let (table, code) = walk.table_of(cut.step);
        let spans: Vec<Range<usize>> =
            tables.wide_codes(code, cut.spared).map(|code| tables.span(table, code)).collect();
        let own = walk.own_of(cut.step);
        let mut left = walk.own[own.clone()].iter().copied().peekable();
        let fresh = spans.iter().map(|span| {
            let bucket = &tables.ids()[span.clone()];
            bucket.iter().filter_map(|class| left.next_if_eq(class)).collect()
        });
        let fresh = fresh.collect();
        walk.own.truncate(own.start);
        Self { cut, spans, fresh }
    }

    fn counts(&self) -> impl Iterator<Item = [u32; 2]> + '_ {
        self.spans.iter().zip(&self.fresh).map(|(span, fresh)| [span.len() as u32, fresh.len() as u32])
    }
}

/// Gives each of the walks, which all end within a bucket, its own part of the run.
pub(super) fn take(collective: &dyn Collective, tables: &HashTables, walks: &mut [&mut ExampleWalk]) {
    let buckets: Vec<Bucket> = walks.iter_mut().map(|walk| Bucket::of(walk, tables)).collect();
    let own: Vec<[u32; 2]> = buckets.iter().flat_map(Bucket::counts).collect();
    if own.is_empty() {
        return;
    }
    let all = collective.gather(&own);
    let (rank, size) = (collective.rank(), collective.size());
    let (mut first_code, of_rank) = (0, own.len());
    let mut runs: Vec<Run> = Vec::with_capacity(buckets.len());
    for bucket in &buckets {
        let codes = first_code..first_code + bucket.spans.len();
        first_code = codes.end;
        let of_ranks = |code: usize| (0..size).map(move |rank| rank * of_rank + code);
        let segments = codes.flat_map(of_ranks).map(|place| all[place]).collect();
        runs.push(Run::begin(segments, bucket.cut));
    }
    let mut behind: Vec<u32> = buckets
        .iter()
        .zip(&runs)
        .map(|(bucket, run)| match run.first % size == rank {
            true => {
                let code = run.first / size;
                let class = tables.ids()[bucket.spans[code].start + run.place];
                let fresh = &bucket.fresh[code];
                (fresh.len() - fresh.partition_point(|&other| other < class)) as u32
            }
            false => 0,
        })
        .collect();
    collective.sum_u32(&mut behind);
    for (((walk, bucket), run), behind) in walks.iter_mut().zip(&buckets).zip(&runs).zip(behind) {
        run.take((rank, size), behind as usize, &bucket.fresh, &mut walk.own);
    }
}

/// A run through segments, a rank's share of a code each: the classes of code c and rank r
/// are segment `c · ranks + r`.
struct Run {
    /// Classes and new classes of each.
    segments: Vec<[u32; 2]>,
    /// Where it begins, and how far into that segment.
    first: usize,
    place: usize,
    /// How many new classes it takes.
    room: usize,
}

impl Run {
    fn begin(segments: Vec<[u32; 2]>, cut: Cut) -> Self {
        let (mut first, mut place) = (0, cut.place);
        while place >= segments[first][0] as usize {
            place -= segments[first][0] as usize;
            first += 1;
        }
        Self { segments, first, place, room: cut.room }
    }

    /// Adds the own classes of the run; `behind` new ones of its first segment stand
    /// behind its beginning.
    fn take(&self, (rank, size): (usize, usize), behind: usize, fresh: &[Vec<u32>], own: &mut Vec<u32>) {
        let mut room = self.room;
        let mut add = |segment: usize, new: Range<usize>| {
            let count = new.len().min(room);
            room -= count;
            if segment % size == rank {
                own.extend(&fresh[segment / size][new.start..new.start + count]);
            }
        };
        let fresh_of = |segment: usize| self.segments[segment][1] as usize;
        let of_first = fresh_of(self.first);
        add(self.first, of_first - behind..of_first);
        for segment in (self.first + 1..self.segments.len()).chain(0..self.first) {
            add(segment, 0..fresh_of(segment));
        }
        add(self.first, 0..of_first - behind);
    }
}
