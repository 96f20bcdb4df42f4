//! Score many, train few: of the classes that hash tables gave an example, only
//! those with the highest scores are trained on.
//!
//! Tables bring the right classes among many indifferent ones, and what moves an
//! indifferent class hardly matters. Their scores are there anyway, class by class;
//! so each example gets a limit, and pairs at or below it are left out as soon as
//! they are scored, before loss and update see them. True labels and classes drawn
//! at random stay.
//!
//! The limit comes from a sample, which is scored first: the pairs of one class in n,
//! n chosen such that about [`SAMPLED_RANK`] of an example's best are in it,
//! all where few are kept. How many an example keeps therefore varies, by a quarter
//! or so where n is above 1, and depends on nothing but the batch. Whether a class is
//! sampled depends on its number alone: several shards sample as one does, and tell each
//! other the highest of what they sampled.
//!
//! Cost: a comparison a pair while its score is in L1; two passes over the sample,
//! and O(sample) to find the limits. Memory: 8 bytes a sampled pair.

use lookalike_kernels::{Cpu, Element, LANES, indices_above_limits};
use rayon::prelude::*;

use super::super::by_key::{KeyGroup, Part};
use super::sampled::PartScores;
use super::score::{ROWS_AHEAD, Scorer};
use crate::collective::Reducer;
use crate::loss::{DRAWN, SPARED, example_of};
use crate::scratch::{PerThread, grow, make_room};

/// The place of the limit among an example's sampled scores, at least, if there are
/// so many.
const SAMPLED_RANK: usize = 16;
/// Examples whose limits one thread finds at a time.
const EXAMPLES_AT_ONCE: usize = 16;

/// Who stays, kept between batches.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// By example: scores must be above.
    limits: Vec<f32>,
    /// Whether there are spared classes in the batch.
    pub(super) spares: bool,
    /// The sampled scores of one example.
    of_example: PerThread<Vec<f32>>,
}

/// What the scores of found classes must be above to stay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits<'a> {
    of_example: &'a [f32],
    /// Whether there are spared classes in the batch.
    spares: bool,
}

impl Limits<'_> {
    /// Decides what spared classes are: found ones if they are above their example's limit,
    /// drawn ones otherwise.
    pub(super) fn settle(&self, scores: &[f32], entries: &mut [u32]) {
        if !self.spares {
            return;
        }
        for (entry, score) in entries.iter_mut().zip(scores).filter(|(entry, _)| **entry & SPARED == SPARED) {
            let flags = if *score > self.of_example[example_of(*entry)] { 0 } else { DRAWN };
            *entry = *entry & !SPARED | flags;
        }
    }
}

/// The sampled pairs of a part.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// Which classes are in it.
    classes: SampledClasses,
    /// Their groups.
    groups: Vec<u32>,
    /// The scores of these groups' pairs, in their order.
    scores: Vec<f32>,
    /// The scores of those pairs whose class was found, example by example.
    by_example: Vec<f32>,
    /// Where each example's begin, and one more.
    starts: Vec<u32>,
}

/// One class in so many.
#[derive(Clone, Copy, Debug, Default)]
struct SampledClasses {
    /// A hashed class is below.
    limit: u32,
    /// The first class of the shard.
    first: usize,
}

impl SampledClasses {
    fn new(every: usize, first: usize) -> Self {
        Self { limit: (u32::MAX as usize / every) as u32, first }
    }

    fn has(self, part: &Part, group: &KeyGroup) -> bool {
        let class = (self.first + part.first_key) as u32 + group.local_key;
        // Fibonacci hashing spreads neighbours evenly.
        class.wrapping_mul(0x9E37_79B1) <= self.limit
    }
}

impl Selection {
    /// What the scores of found classes must be above to stay.
    pub(super) fn limits(&self) -> Limits<'_> {
        Limits { of_example: &self.limits, spares: self.spares }
    }

    /// Finds the limits that leave about the best `keep` of each example's found classes.
    /// `found` says how many each example has, of the shard that begins with `first_class`.
    pub(super) fn find_limits<T: Element>(
        &mut self,
        scorer: &Scorer<'_, T>,
        (parts, work): (&[Part], &mut [PartScores]),
        found: &[u32],
        keep: usize,
        (first_class, reducer): (usize, &mut dyn Reducer),
    ) {
        let classes = SampledClasses::new((keep / SAMPLED_RANK).max(1), first_class);
        parts.par_iter().zip(&mut *work).for_each(|(part, work)| {
            work.sample.take(scorer, part, classes);
            work.sample.deal(part, found.len());
        });
        grow(&mut self.limits, found.len());
        if !reducer.is_alone() {
            return self.find_limits_of_all(work, found, keep, reducer);
        }
        self.of_example.prepare();
        let of_example = &self.of_example;
        let examples = self.limits.par_iter_mut().zip(found).enumerate().with_min_len(EXAMPLES_AT_ONCE);
        examples.for_each(|(example, (limit, &found))| {
            *limit = of_example.with(|sampled| {
                sampled.clear();
                work.iter().for_each(|work| sampled.extend_from_slice(work.sample.of(example)));
                limit_of(sampled, found as usize, keep)
            });
        });
    }
}

impl Selection {
    /// The same over several shards: each tells the others so many of its highest sampled
    /// scores as could be above the limit.
    fn find_limits_of_all(
        &mut self,
        work: &[PartScores],
        found: &[u32],
        keep: usize,
        reducer: &mut dyn Reducer,
    ) {
        let batch = found.len();
        let mut own: Vec<Vec<f32>> = (0..batch)
            .map(|example| work.iter().flat_map(|work| work.sample.of(example)).copied().collect())
            .collect();
        // Whole numbers, as far as they go here, are exact in single precision.
        let sampled = own.iter().map(|own| own.len() as f32);
        let mut counts: Vec<f32> = sampled.chain(found.iter().map(|&found| found as f32)).collect();
        reducer.sums(&mut counts);
        let (sampled, found) = counts.split_at(batch);
        let rank = |example: usize| rank_of_limit(sampled[example] as usize, found[example] as usize, keep);
        let ranks: Vec<Option<usize>> = (0..batch).map(rank).collect();
        let most = ranks.iter().flatten().copied().max().unwrap_or(0);
        let mut highest = vec![f32::NEG_INFINITY; batch * most];
        for (example, own) in own.iter_mut().enumerate() {
            let Some(rank) = ranks[example] else { continue };
            own.sort_unstable_by(|a, b| b.total_cmp(a));
            let places = &mut highest[example * most..][..rank];
            places.iter_mut().zip(&*own).for_each(|(place, &score)| *place = score);
        }
        let all = reducer.gather(&highest);
        for (example, (limit, rank)) in self.limits.iter_mut().zip(ranks).enumerate() {
            *limit = rank.map_or(f32::NEG_INFINITY, |rank| {
                let rows = all.chunks_exact(batch * most).flat_map(|rows| &rows[example * most..][..most]);
                limit_at(&mut rows.copied().collect::<Vec<f32>>(), rank)
            });
        }
    }
}

/// The score at or below which an example's classes are left out: as many of the
/// sample are above it, in proportion, as are to be kept of all.
fn limit_of(sample: &mut [f32], found: usize, keep: usize) -> f32 {
    rank_of_limit(sample.len(), found, keep).map_or(f32::NEG_INFINITY, |rank| limit_at(sample, rank))
}

/// The place of the limit among so many sampled scores, from 1; none where all stay.
fn rank_of_limit(sampled: usize, found: usize, keep: usize) -> Option<usize> {
    (found > keep && sampled > 0).then(|| (keep * sampled).div_ceil(found).clamp(1, sampled))
}

/// The limit that leaves so many of these scores.
fn limit_at(sample: &mut [f32], rank: usize) -> f32 {
    let (_, lowest, _) = sample.select_nth_unstable_by(rank - 1, |a, b| b.total_cmp(a));
    // An infinite score is a sign of divergence, which true labels tell of, if they stay.
    lowest.next_down().min(f32::MAX)
}

impl Sample {
    /// Scores some classes.
    fn take<T: Element>(&mut self, scorer: &Scorer<'_, T>, part: &Part, classes: SampledClasses) {
        self.classes = classes;
        make_room(&mut self.groups, part.groups.len());
        let groups = (0u32..).zip(&part.groups);
        self.groups.extend(groups.filter(|(_, group)| classes.has(part, group)).map(|(place, _)| place));
        grow(&mut self.scores, self.groups.iter().map(|&group| part.range(group as usize).len()).sum());
        let mut left = &mut self.scores[..];
        for (i, &group) in self.groups.iter().enumerate() {
            let group = group as usize;
            let scores = left.split_off_mut(..part.range(group).len()).expect("room was made");
            let later = self.groups.get(i + ROWS_AHEAD).map_or(usize::MAX, |&later| later as usize);
            scorer.score(part, group, later, scores);
        }
    }

    /// Sorts the scores of found classes by example.
    fn deal(&mut self, part: &Part, batch: usize) {
        let sampled = || self.groups.iter().flat_map(|&group| &part.entries[part.range(group as usize)]);
        self.starts.clear();
        grow(&mut self.starts, batch + 1);
        for &entry in sampled().filter(|&&entry| is_found(entry)) {
            self.starts[example_of(entry)] += 1;
        }
        let mut sum = 0;
        for start in &mut self.starts {
            sum += std::mem::replace(start, sum);
        }
        grow(&mut self.by_example, sum as usize);
        for (&entry, &score) in sampled().zip(&self.scores).filter(|(entry, _)| is_found(**entry)) {
            let at = &mut self.starts[example_of(entry)];
            self.by_example[*at as usize] = score;
            *at += 1;
        }
        // Each start has moved to its example's end, which is the next one's start.
        self.starts.rotate_right(1);
        self.starts[0] = 0;
    }

    /// Whether a group's scores are in the sample.
    pub(super) fn has(&self, part: &Part, group: usize) -> bool {
        part.groups.get(group).is_some_and(|group| self.classes.has(part, group))
    }

    /// The scores of all sampled groups, in their order.
    pub(super) fn scores(&self) -> &[f32] {
        &self.scores
    }

    fn of(&self, example: usize) -> &[f32] {
        &self.by_example[self.starts[example] as usize..self.starts[example + 1] as usize]
    }
}

/// What stays of a part while it is scored, front to back.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Pairs that stay, moved together at the front.
    pub pairs: usize,
    /// Classes that have some, likewise.
    groups: usize,
}

impl Kept {
    /// Takes in some more groups of pairs, whose scores stand behind the kept ones':
    /// those stay that are above their example's limit or were not found.
    pub(super) fn add(
        &mut self,
        cpu: Cpu,
        limits: Limits<'_>,
        part: &mut Part,
        groups: std::ops::Range<usize>,
        scores: &mut [f32],
        indices: &mut Vec<u32>,
    ) {
        let pairs = part.range(groups.start).start..part.range(groups.end - 1).end;
        let fresh = &scores[self.pairs..][..pairs.len()];
        grow(indices, pairs.len() + LANES);
        let count =
            indices_above_limits(cpu, fresh, &part.entries[pairs.clone()], limits.of_example, indices);
        let (mut group, mut end) = (groups.start, pairs.start);
        for (place, &index) in (self.pairs..).zip(&indices[..count]) {
            let at = pairs.start + index as usize;
            if at >= end {
                // The first of its class.
                while part.range(group).end <= at {
                    group += 1;
                }
                end = part.range(group).end;
                let local_key = part.groups[group].local_key;
                part.groups[self.groups] = KeyGroup { local_key, start: place as u32 };
                self.groups += 1;
            }
            scores[place] = scores[self.pairs + index as usize];
            part.entries[place] = part.entries[at];
        }
        self.pairs += count;
    }

    /// Nothing more comes: what did not stay is forgotten.
    pub(super) fn finish(self, part: &mut Part) {
        part.groups.truncate(self.groups);
        part.entries.truncate(self.pairs);
    }
}

/// Whether an entry's class was looked up: neither true nor drawn alone.
fn is_found(entry: u32) -> bool {
    matches!(entry & SPARED, 0 | SPARED)
}

#[cfg(test)]
mod tests {
    use lookalike_kernels::padded;

    use super::*;
    use crate::collective::Alone;
    use crate::loss::{ExampleTerms, Softmax, TRUTH, entry};
    use crate::random::{Stream, mix};

    const CLASSES: u32 = 900;
    const EXAMPLES: usize = 20;
    /// So few that all classes are in the sample.
    const KEEP: usize = 2 * SAMPLED_RANK - 1;

    fn score(class: u32, example: usize) -> f32 {
        (mix(7, Stream::Data, u64::from(class), example as u64) % 100_000) as f32
    }

    /// Example 0 has a few classes, the others two thirds of all; one class in fifty is
    /// true, one in seventy drawn. Pairs with their flags.
    fn pairs() -> Vec<(u32, usize, u32)> {
        let mut pairs = Vec::new();
        for class in 0..CLASSES {
            for example in 0..EXAMPLES {
                let random = mix(8, Stream::Data, u64::from(class), example as u64);
                if random % 3 < 2 && (example > 0 || class < 12) {
                    let flags =
                        if random % 50 < 1 { TRUTH } else { 0 } | if random % 70 == 3 { DRAWN } else { 0 };
                    pairs.push((class, example, flags));
                }
            }
        }
        pairs
    }

    /// Selects `keep` of the pairs cut into two parts; gives those that stay.
    fn selected(keep: usize) -> Vec<(u32, usize, u32)> {
        // With an embedding of its own dimension for each example, a class vector lists
        // the class's scores.
        let stride = padded(EXAMPLES);
        let (mut rows, mut embeddings) = (Vec::new(), vec![0.0; EXAMPLES * stride]);
        for class in 0..CLASSES {
            rows.extend((0..stride).map(|i| if i < EXAMPLES { score(class, i) } else { 0.0 }));
        }
        (0..EXAMPLES).for_each(|example| embeddings[example * stride + example] = 1.0);
        let scorer = Scorer {
            cpu: Cpu::detect(),
            rows: &rows,
            bias: &[0.0; CLASSES as usize],
            class_log_q: None,
            embeddings: &embeddings,
            stride,
        };
        let all = pairs();
        let mut parts: Vec<Part> = [0..400u32, 400..CLASSES].map(|classes| part_of(&all, classes)).into();
        let mut work = vec![PartScores::default(), PartScores::default()];
        let mut found = vec![0; EXAMPLES];
        all.iter().filter(|pair| pair.2 == 0).for_each(|pair| found[pair.1] += 1);
        let (mut selection, mut terms) = (Selection::default(), ExampleTerms::default());
        terms.resize(EXAMPLES);
        selection.find_limits(&scorer, (&parts, &mut work), &found, keep, (0, &mut Alone));
        let mut left = Vec::new();
        for (part, work) in parts.iter_mut().zip(&mut work) {
            work.score(&scorer, part, &Softmax, Some(selection.limits()), &terms);
            for (local, range) in part.groups() {
                assert!(!range.is_empty());
                let class = (part.first_key + local) as u32;
                for (&entry, &value) in part.entries[range.clone()].iter().zip(&work.scores[range]) {
                    assert_eq!(value, score(class, example_of(entry)));
                    left.push((class, example_of(entry), entry & (TRUTH | DRAWN)));
                }
            }
        }
        left
    }

    fn part_of(all: &[(u32, usize, u32)], classes: std::ops::Range<u32>) -> Part {
        let mut part = Part::default();
        part.first_key = classes.start as usize;
        for &(class, example, flags) in all.iter().filter(|pair| classes.contains(&pair.0)) {
            let local_key = class - classes.start;
            if part.groups.last().is_none_or(|group| group.local_key != local_key) {
                part.groups.push(KeyGroup { local_key, start: part.entries.len() as u32 });
            }
            part.entries.push(entry(example, flags));
        }
        part
    }

    fn found_of(pairs: &[(u32, usize, u32)], example: usize) -> Vec<u32> {
        pairs.iter().filter(|pair| pair.1 == example && pair.2 == 0).map(|pair| pair.0).collect()
    }

    #[test]
    fn the_best_stay_and_with_them_all_that_were_not_found() {
        let (all, left) = (pairs(), selected(KEEP));
        let flagged = |pairs: &[(u32, usize, u32)]| pairs.iter().filter(|pair| pair.2 != 0).count();
        assert_eq!(flagged(&left), flagged(&all));
        assert_eq!(found_of(&left, 0), found_of(&all, 0), "fewer stay as they are");
        for example in 1..EXAMPLES {
            let mut best = found_of(&all, example);
            best.sort_by(|&a, &b| score(b, example).total_cmp(&score(a, example)));
            best.truncate(KEEP);
            best.sort_unstable();
            assert_eq!(found_of(&left, example), best, "example {example}");
        }
    }

    /// Where the threshold comes from a sample, about as many stay, and the best ones.
    #[test]
    fn a_sample_finds_about_as_many() {
        let (all, left) = (pairs(), selected(150));
        let mut total = 0;
        for example in 1..EXAMPLES {
            let (kept, all) = (found_of(&left, example), found_of(&all, example));
            total += kept.len();
            let lowest = kept.iter().map(|&class| score(class, example)).fold(f32::INFINITY, f32::min);
            let above = all.iter().filter(|&&class| score(class, example) >= lowest).count();
            assert_eq!(kept.len(), above, "example {example}");
            assert!((75..300).contains(&kept.len()), "{} stay", kept.len());
        }
        let mean = total as f64 / (EXAMPLES - 1) as f64;
        assert!((125.0..175.0).contains(&mean), "{mean} stay on average");
    }
}
