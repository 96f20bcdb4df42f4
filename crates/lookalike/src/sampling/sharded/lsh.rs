//! Hash tables over several ranks: the walk of algorithm 3, each rank in the tables of
//! its own classes.
//!
//! A bucket of one process is the ranks' buckets, one after the other, and a class
//! is new to a set or not whatever the other ranks found. So each rank walks its own
//! tables without regard to the budget and counts, table by table, how many classes
//! its buckets hold and how many of them are new. With the sums of these counts every
//! rank knows where the budget of one process ends. In the last bucket that process
//! would take a random run of classes; ranks tell each other their counts of
//! that bucket, and each knows which of its own are in the run.
//!
//! Cost: a walk through all tables instead of through as many as the budget needs;
//! eight bytes an example and table on the wire, whatever the number of classes.

use std::time::{Duration, Instant};

use lookalike_kernels::{Cpu, LANES};
use rand_xoshiro::rand_core::Rng as _;
use rayon::prelude::*;

use super::super::gather::{Gather, Marks};
use super::super::lsh::{Plan, Query, Rest, asking_label, first_table};
use super::super::{Candidates, Counts, Request, Sampler, SamplerStats};
use super::draws;
use crate::collective::{Collective, Shard};
use crate::hashing::{Block, HashScratch, HashTables};
use crate::model::RowsView;
use crate::random::{Rng, Stream, below, rng};
use crate::scratch::PerThread;

/// Asks a shard's hash tables for negatives; see the module's description.
#[derive(Debug)]
pub(super) struct ShardedLsh {
    tables: HashTables,
    plan: Plan,
    shard: Shard,
    /// By example of the batch.
    walks: Vec<Walk>,
    /// By example and table: classes in the bucket, and new ones among them.
    counts: Vec<[u32; 2]>,
    /// The vectors that labels ask with, a row an example.
    label_rows: Vec<f32>,
    workers: PerThread<Worker>,
    stats: SamplerStats,
}

/// What one thread needs.
#[derive(Debug, Default)]
struct Worker {
    block: Block,
    scratch: HashScratch,
    codes: Vec<u32>,
    set: SetRoom,
    spent: Duration,
    spent_hashing: Duration,
}

/// Room for a set of own classes while it grows.
#[derive(Debug, Default)]
pub(super) struct SetRoom {
    slot: Vec<u32>,
    marks: Marks,
}

impl SetRoom {
    /// A set that has `members` and may get `more`.
    pub(super) fn start<'a>(
        &'a mut self,
        classes: usize,
        members: [&[u32]; 2],
        more: usize,
    ) -> (Gather<'a>, usize) {
        let room = members[0].len() + members[1].len() + more;
        self.marks.make_room(classes, room);
        if self.slot.len() < room {
            self.slot.resize(room, 0);
        }
        let mut set = Gather::start(&mut self.slot, self.marks.of(&mut []), members[0]);
        set.take(members[1], room);
        (set, room)
    }
}

/// One example's set while ranks find it together.
#[derive(Debug)]
pub(super) struct Walk {
    pub rng: Rng,
    /// Own true labels, and how many all ranks have.
    pub truths: Vec<u32>,
    pub truths_of_all: usize,
    /// Own negatives, found and then drawn.
    pub own: Vec<u32>,
    /// Negatives that all ranks have found.
    pub found_by_all: usize,
    /// Own found ones, when all are found.
    pub own_found: usize,
    /// Negatives that all ranks have drawn.
    pub drawn_by_all: usize,
    /// Of this walk: where the classes of each table end in `own`.
    ends: Vec<u32>,
    /// Of this walk: where the bucket of each table is.
    buckets: Vec<std::ops::Range<usize>>,
    cut: Option<Cut>,
}

/// The last bucket of a walk, of which only a run is taken.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// The table, counted from the walk's first.
    step: usize,
    /// Where in the bucket of all ranks the run begins.
    place: usize,
    /// How many new classes it takes.
    room: usize,
}

impl Default for Walk {
    fn default() -> Self {
        Self {
            rng: rng(0, Stream::Sample, 0, 0),
            truths: Vec::new(),
            truths_of_all: 0,
            own: Vec::new(),
            found_by_all: 0,
            own_found: 0,
            drawn_by_all: 0,
            ends: Vec::new(),
            buckets: Vec::new(),
            cut: None,
        }
    }
}

impl Walk {
    /// Own classes before the table of a step, and behind it.
    fn own_of(&self, step: usize) -> std::ops::Range<usize> {
        self.ends[step] as usize..self.ends[step + 1] as usize
    }
}

impl ShardedLsh {
    pub(super) fn new(tables: HashTables, plan: Plan, shard: Shard) -> Self {
        Self {
            tables,
            plan,
            shard,
            walks: Vec::new(),
            counts: Vec::new(),
            label_rows: Vec::new(),
            workers: PerThread::default(),
            stats: SamplerStats::default(),
        }
    }

    /// An empty set for each example.
    fn start(&mut self, request: &Request<'_>) {
        self.walks.resize_with(request.batch.len(), Walk::default);
        for (walk, &example) in self.walks.iter_mut().zip(request.batch) {
            let truths = request.examples.labels(example as usize);
            walk.rng = rng(request.seed, Stream::Sample, request.iteration, u64::from(example));
            walk.truths.clear();
            walk.truths.extend(self.shard.own(truths));
            walk.own.clear();
            (walk.truths_of_all, walk.found_by_all, walk.drawn_by_all) = (truths.len(), 0, 0);
        }
        if self.plan.queries.contains(&Query::Label) {
            self.bring_label_rows(request);
        }
    }

    /// Each label's vector comes from the rank that has it. An example without labels
    /// asks with its embedding.
    fn bring_label_rows(&mut self, request: &Request<'_>) {
        let (vectors, classes) = (request.class_vectors, self.shard.classes());
        self.label_rows.clear();
        self.label_rows.resize(request.batch.len() * vectors.stride, 0.0);
        let label = |position| asking_label(request, position).map(|label| label as usize);
        for (position, row) in self.label_rows.chunks_exact_mut(vectors.stride).enumerate() {
            if let Some(own) = label(position).filter(|label| classes.contains(label)) {
                vectors.copy_row(own - classes.start, row);
            }
        }
        self.shard.collective().sum_f32(&mut self.label_rows);
        for (position, row) in self.label_rows.chunks_exact_mut(vectors.stride).enumerate() {
            if label(position).is_none() {
                request.embeddings.view().copy_row(position, row);
            }
        }
    }

    /// Walks the own tables with one query, until `limit` negatives in all are certain.
    fn walk(&mut self, request: &Request<'_>, query: Query, limit: usize) {
        let Self { tables, walks, counts, label_rows, workers, .. } = self;
        let num_tables = tables.family().tables();
        counts.clear();
        counts.resize(walks.len() * num_tables, [0; 2]);
        let rows = match query {
            Query::Embedding => request.embeddings.view(),
            Query::Label => RowsView::f32(label_rows, request.class_vectors.dim),
        };
        workers.prepare();
        let blocks = walks.par_chunks_mut(LANES).zip(counts.par_chunks_mut(LANES * num_tables));
        blocks.enumerate().for_each(|(block, (walks, counts))| {
            workers.with(|worker| {
                let start = Instant::now();
                let ids: [u32; LANES] = std::array::from_fn(|lane| (block * LANES + lane) as u32);
                worker.codes.resize(num_tables * LANES, 0);
                worker.block.load(request.cpu, rows, &ids[..walks.len()]);
                let Worker { block, scratch, codes, set, .. } = worker;
                tables.family().hash_block(request.cpu, block, 0..num_tables, scratch, codes);
                worker.spent_hashing += start.elapsed();
                let examples = walks.iter_mut().zip(counts.chunks_exact_mut(num_tables));
                for (lane, (walk, counts)) in examples.enumerate() {
                    walk_tables(tables, walk, &codes[lane..], limit, set, counts);
                }
                worker.spent += start.elapsed();
            });
        });
    }

    /// Of what all ranks counted: how far the walk of one process goes.
    fn join(&mut self, limit: usize) {
        let collective = self.shard.collective();
        let num_tables = self.tables.family().tables();
        collective.sum_u32(bytemuck::cast_slice_mut(&mut self.counts));
        for (walk, counts) in self.walks.iter_mut().zip(self.counts.chunks_exact(num_tables)) {
            walk.end(counts, limit);
        }
        take_runs(collective, &self.tables, &mut self.walks);
    }

    fn write(&mut self, out: &mut Candidates) {
        let room = self.walks.iter().map(|walk| walk.truths.len() + walk.own.len()).max().unwrap_or(0);
        out.reset(self.walks.len(), room);
        let (walks, rest, num_classes) = (&self.walks, self.plan.rest, self.shard.num_classes());
        out.par_blocks_mut(LANES).for_each(|mut block| {
            for (walk, slot) in walks[block.positions()].iter().zip(block.slots()) {
                let all = walk.truths.iter().chain(&walk.own);
                slot.classes.iter_mut().zip(all).for_each(|(place, &class)| *place = class);
                let others = num_classes - walk.truths_of_all - walk.found_by_all;
                let drawn_log_q = match rest {
                    Rest::Estimate if walk.drawn_by_all > 0 => {
                        (walk.drawn_by_all as f64 / others as f64).ln() as f32
                    }
                    _ => 0.0,
                };
                *slot.counts = Counts {
                    truths: walk.truths.len() as u32,
                    found: walk.own_found as u32,
                    drawn: (walk.own.len() - walk.own_found) as u32,
                    drawn_log_q,
                };
            }
        });
    }

    /// What all ranks together were asked for and gave.
    fn count(&mut self) {
        let budget = self.plan.budget.max(self.plan.found);
        for walk in &self.walks {
            self.stats.queries += 1;
            self.stats.wanted += budget.min(self.shard.num_classes() - walk.truths_of_all) as u64;
            self.stats.given += (walk.found_by_all + walk.drawn_by_all) as u64;
        }
        let spent = |(all, hashing): (Duration, Duration), worker: &mut Worker| {
            (all + std::mem::take(&mut worker.spent), hashing + std::mem::take(&mut worker.spent_hashing))
        };
        let (all, hashing) = self.workers.values_mut().fold(Default::default(), spent);
        self.stats.hashing_share = hashing.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE);
    }
}

/// One example's walk in the own tables; `codes` holds a code for every table,
/// [`LANES`] apart.
fn walk_tables(
    tables: &HashTables,
    walk: &mut Walk,
    codes: &[u32],
    limit: usize,
    set: &mut SetRoom,
    counts: &mut [[u32; 2]],
) {
    let num_tables = counts.len();
    let start = first_table(num_tables, &mut walk.rng);
    walk.buckets.clear();
    walk.buckets.extend((0..num_tables).map(|step| {
        let table = (start + step) % num_tables;
        tables.span(table, codes[table * LANES])
    }));
    let (truths, before) = (walk.truths.len(), walk.own.len());
    let more = walk.buckets.iter().map(ExactSizeIterator::len).sum();
    let (mut set, room) = set.start(tables.classes(), [&walk.truths, &walk.own], more);
    walk.ends.clear();
    walk.ends.push(before as u32);
    for (bucket, count) in walk.buckets.iter().zip(counts) {
        let len = set.len();
        // Own ones alone are enough: what comes later is in nobody's set.
        if walk.found_by_all + len - truths - before >= limit {
            break;
        }
        set.take(&tables.ids()[bucket.clone()], room);
        *count = [bucket.len() as u32, (set.len() - len) as u32];
        walk.ends.push((set.len() - truths) as u32);
    }
    walk.own.clear();
    walk.own.extend_from_slice(set.classes().split_at(truths).1);
    set.finish();
}

impl Walk {
    /// Replays the walk with the counts of all ranks: up to which table it takes
    /// everything, and where it ends within a bucket.
    fn end(&mut self, counts: &[[u32; 2]], limit: usize) {
        let mut room = limit - self.found_by_all;
        let mut steps = 0;
        self.cut = None;
        for (step, &[size, fresh]) in counts.iter().enumerate() {
            if room == 0 {
                break;
            }
            // As one process does: of a bucket that may be too full, from a random place on.
            let is_long = size as usize > room;
            let place = if is_long { below(self.rng.next_u64(), size) as usize } else { 0 };
            if fresh as usize > room {
                self.cut = Some(Cut { step, place, room });
                break;
            }
            room -= fresh as usize;
            steps = step + 1;
        }
        self.found_by_all = limit - if self.cut.is_some() { 0 } else { room };
        if self.cut.is_none() {
            self.own.truncate(self.ends[steps.min(self.ends.len() - 1)] as usize);
            self.own_found = self.own.len();
        }
    }

    /// What the run takes of the own bucket: `counts` are each rank's, [`Cut`]'s bucket.
    fn take_run(&mut self, cut: Cut, rank: usize, counts: &[[u32; 2]], first: usize, after: usize) {
        let range = self.own_of(cut.step);
        let fresh: Vec<u32> = self.own[range.clone()].to_vec();
        self.own.truncate(range.start);
        let of_others = |ranks: std::ops::Range<usize>| -> usize {
            ranks.filter(|&rank| rank != first).map(|rank| counts[rank][1] as usize).sum()
        };
        let left = cut.room - after.min(cut.room);
        if rank == first {
            let all_others = of_others(0..counts.len());
            let (before_place, behind_place) = fresh.split_at(fresh.len() - after);
            self.own.extend(&behind_place[..after.min(cut.room)]);
            self.own.extend(&before_place[..(left - all_others.min(left)).min(before_place.len())]);
        } else {
            let earlier = match rank > first {
                true => of_others(first..rank),
                false => of_others(first..counts.len()) + of_others(0..rank),
            };
            self.own.extend(&fresh[..(left - earlier.min(left)).min(fresh.len())]);
        }
        self.own_found = self.own.len();
    }
}

/// Where walks end within a bucket, all ranks agree on who takes which part of it.
fn take_runs(collective: &dyn Collective, tables: &HashTables, walks: &mut [Walk]) {
    let cuts: Vec<Option<Cut>> = walks.iter().map(|walk| walk.cut).collect();
    if cuts.iter().all(Option::is_none) {
        return;
    }
    let own_counts: Vec<[u32; 2]> = walks
        .iter()
        .zip(&cuts)
        .map(|(walk, cut)| {
            cut.map_or([0; 2], |cut| {
                [walk.buckets[cut.step].len() as u32, walk.own_of(cut.step).len() as u32]
            })
        })
        .collect();
    let all = collective.gather(&own_counts);
    let of_example =
        |example: usize| -> Vec<[u32; 2]> { all.iter().skip(example).step_by(cuts.len()).copied().collect() };
    // Which rank has the place where a run begins, and how far into its bucket.
    let begin = |example: usize, cut: &Cut| {
        let mut place = cut.place;
        for (rank, count) in of_example(example).iter().enumerate() {
            if place < count[0] as usize {
                return (rank, place);
            }
            place -= count[0] as usize;
        }
        unreachable!("a run begins within its bucket")
    };
    let rank = collective.rank();
    let mut after = vec![0u32; walks.len()];
    for (example, (walk, cut)) in walks.iter().zip(&cuts).enumerate() {
        if let Some(cut) = cut
            && let (first, place) = begin(example, cut)
            && first == rank
        {
            let class = tables.ids()[walk.buckets[cut.step].start + place];
            let fresh = &walk.own[walk.own_of(cut.step)];
            after[example] = (fresh.len() - fresh.partition_point(|&other| other < class)) as u32;
        }
    }
    collective.sum_u32(&mut after);
    for (example, (walk, cut)) in walks.iter_mut().zip(&cuts).enumerate() {
        if let Some(cut) = *cut {
            let (first, _) = begin(example, &cut);
            walk.take_run(cut, rank, &of_example(example), first, after[example] as usize);
        }
    }
}

impl Sampler for ShardedLsh {
    fn propose(&mut self, request: &Request<'_>, out: &mut Candidates) {
        debug_assert!(request.near.is_none(), "classes known before are not sharded");
        self.start(request);
        let queries = self.plan.queries.clone();
        for (turn, &query) in queries.iter().enumerate() {
            // Two queries share the budget; the second may use what the first left.
            let limit = self.plan.found * (turn + 1) / queries.len();
            self.walk(request, query, limit);
            self.join(limit);
        }
        if self.plan.rest != Rest::Leave {
            draws::draw(&self.shard, self.plan.budget, &mut self.walks, &mut SetRoom::default());
        }
        self.write(out);
        self.count();
    }

    fn refresh(&mut self, cpu: Cpu, class_vectors: RowsView<'_>, changed: Option<&[u32]>) {
        self.tables.refresh(cpu, class_vectors, changed);
    }

    fn stats(&self) -> SamplerStats {
        self.stats
    }
}
