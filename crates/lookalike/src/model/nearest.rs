//! Which kept examples are nearest to a query: an inverted index.
//!
//! Each feature lists the examples that have most of it, at most [`LIST_MAX`]. A query
//! walks the lists of its strongest features and adds up, example by example, what the
//! two have in common. The [`NEAREST`] examples with the largest sums are compared with
//! the query in full, on their own rows.
//!
//! Cost: at most `ASKED_MAX · LIST_MAX` additions and `NEAREST` rows a query, however
//! many examples and classes there are. Memory: at most 6 bytes a kept feature, less
//! where features are frequent.

use half::bf16;
use lookalike_kernels::prefetch;
use rayon::prelude::*;

use super::neighbours::Neighbours;
use crate::best::Best;

/// Examples that count, those with the largest cosines.
const NEAREST: usize = 200;
/// Examples in a feature's list at most.
const LIST_MAX: usize = 1000;
/// Features of a query that are asked at most, the strongest.
const ASKED_MAX: usize = 24;
/// Sums and rows of examples lie all over memory: how many places ahead they are asked for.
const SUMS_AHEAD: usize = 16;
const ROWS_AHEAD: usize = 8;

/// For each feature the examples that have most of it, for each example its classes.
#[derive(Clone, Debug)]
pub(super) struct NearestIndex {
    /// Where each feature's examples start, and one more; most of it first.
    offsets: Vec<u64>,
    examples: Vec<u32>,
    values: Vec<bf16>,
    /// Where each example's classes start, and one more.
    label_offsets: Vec<u64>,
    labels: Vec<u32>,
}

impl NearestIndex {
    /// From rows of examples (where they start, features, values), and from where each
    /// class's examples start and the examples.
    pub(super) fn new(
        num_features: usize,
        (offsets, features, values): (&[u64], &[u32], &[bf16]),
        (class_offsets, members): (&[u64], &[u32]),
    ) -> Self {
        let mut starts = vec![0usize; num_features + 1];
        features.iter().for_each(|&feature| starts[feature as usize + 1] += 1);
        (0..num_features).for_each(|i| starts[i + 1] += starts[i]);
        let mut next = starts.clone();
        let mut all = vec![(0u32, bf16::ZERO); features.len()];
        for (example, range) in offsets.windows(2).enumerate() {
            let range = range[0] as usize..range[1] as usize;
            for (&feature, &value) in features[range.clone()].iter().zip(&values[range]) {
                all[next[feature as usize]] = (example as u32, value);
                next[feature as usize] += 1;
            }
        }
        let mut lists: Vec<&mut [(u32, bf16)]> = Vec::with_capacity(num_features);
        let mut rest = &mut all[..];
        for pair in starts.windows(2) {
            let (list, others) = rest.split_at_mut(pair[1] - pair[0]);
            lists.push(list);
            rest = others;
        }
        let most = |a: &(u32, bf16), b: &(u32, bf16)| {
            b.1.to_f32().abs().total_cmp(&a.1.to_f32().abs()).then(a.0.cmp(&b.0))
        };
        lists.par_iter_mut().for_each(|list| {
            if list.len() > LIST_MAX {
                list.select_nth_unstable_by(LIST_MAX - 1, most);
            }
            let kept = list.len().min(LIST_MAX);
            list[..kept].sort_unstable_by(most);
        });
        let (label_offsets, labels) = turned_around(class_offsets, members, offsets.len() - 1);
        let kept = || lists.iter().flat_map(|list| list.iter().take(LIST_MAX));
        let lengths: Vec<u32> = lists.iter().map(|list| list.len().min(LIST_MAX) as u32).collect();
        Self {
            offsets: super::lists::offsets(&lengths),
            examples: kept().map(|&(example, _)| example).collect(),
            values: kept().map(|&(_, value)| value).collect(),
            label_offsets,
            labels,
        }
    }

    fn classes_of(&self, example: u32) -> &[u32] {
        let example = example as usize;
        &self.labels[self.label_offsets[example] as usize..self.label_offsets[example + 1] as usize]
    }

    fn of(&self, feature: u32) -> (&[u32], &[bf16]) {
        let range = self.offsets[feature as usize] as usize..self.offsets[feature as usize + 1] as usize;
        (&self.examples[range.clone()], &self.values[range])
    }
}

/// Working memory of [`Neighbours::near`] and its last answer, reused between calls.
#[derive(Debug, Default)]
pub struct NeighbourScratch {
    /// The query, a place a feature; zero between calls.
    query: Vec<f32>,
    strongest: Vec<(u32, f32)>,
    /// A sum an example; zero between calls.
    common: Vec<f32>,
    met: Vec<u32>,
    best: Best,
    /// The nearest examples, in order.
    nearest: Vec<u32>,
    /// A sum a class; zero but for `classes`.
    sums: Vec<f32>,
    classes: Vec<u32>,
}

/// The classes of the examples nearest to a query.
#[derive(Clone, Copy, Debug)]
pub struct Near<'s> {
    weight: f32,
    sums: &'s [f32],
    classes: &'s [u32],
}

impl<'s> Near<'s> {
    /// No examples.
    pub const NONE: Near<'static> = Near { weight: 0.0, sums: &[], classes: &[] };

    /// Whether the nearest examples add something to the score of a class.
    pub fn contains(&self, class: u32) -> bool {
        self.sums.get(class as usize).is_some_and(|&sum| sum > 0.0)
    }

    /// Classes to whose score the nearest examples add something, in no order.
    pub fn classes(&self) -> &'s [u32] {
        self.classes
    }

    /// What they add to the score of a class; never less than 0.
    pub fn share(&self, class: u32) -> f32 {
        self.weight * self.soft_maximum(class)
    }

    /// The same before it is weighted.
    pub fn soft_maximum(&self, class: u32) -> f32 {
        match self.sums.get(class as usize) {
            Some(&sum) if sum > 0.0 => sum.ln_1p(),
            _ => 0.0,
        }
    }
}

impl Neighbours {
    /// Finds the examples nearest to a query, and what they add to their classes.
    pub fn near<'s>(&self, query: (&[u32], &[f32]), scratch: &'s mut NeighbourScratch) -> Near<'s> {
        scratch.start(self, query);
        scratch.meet(self.index());
        scratch.score_classes(self);
        query.0.iter().for_each(|&id| scratch.query[id as usize] = 0.0);
        Near { weight: self.weight(), sums: &scratch.sums, classes: &scratch.classes }
    }
}

impl NeighbourScratch {
    fn start(&mut self, neighbours: &Neighbours, (ids, values): (&[u32], &[f32])) {
        self.query.resize(neighbours.num_features(), 0.0);
        self.common.resize(neighbours.num_examples(), 0.0);
        self.classes.drain(..).for_each(|class| self.sums[class as usize] = 0.0);
        self.sums.resize(neighbours.num_classes(), 0.0);
        let factor = super::Normalise::L2.factor(values);
        self.strongest.clear();
        for (&id, &value) in ids.iter().zip(values) {
            self.query[id as usize] = value * factor;
            self.strongest.push((id, value * factor));
        }
        if self.strongest.len() > ASKED_MAX {
            let strength =
                |a: &(u32, f32), b: &(u32, f32)| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0));
            self.strongest.select_nth_unstable_by(ASKED_MAX - 1, strength);
            self.strongest.truncate(ASKED_MAX);
            // Whatever order selection left them in, sums are taken in one order.
            self.strongest.sort_unstable_by_key(|&(id, _)| id);
        }
    }

    /// Adds up what the query and the listed examples have in common, and leaves those that
    /// have most. Whether an example is
    /// met for the first time is as good as random, so it decides no branch.
    fn meet(&mut self, index: &NearestIndex) {
        let all: usize = self.strongest.iter().map(|&(id, _)| index.of(id).0.len()).sum();
        self.met.resize(all, 0);
        let mut count = 0;
        for &(id, strength) in &self.strongest {
            let (examples, values) = index.of(id);
            for (i, (&example, value)) in examples.iter().zip(values).enumerate() {
                if let Some(&ahead) = examples.get(i + SUMS_AHEAD) {
                    prefetch(&self.common, ahead as usize);
                }
                let common = &mut self.common[example as usize];
                self.met[count] = example;
                count += usize::from(*common == 0.0);
                *common += strength * value.to_f32();
            }
        }
        self.met.truncate(count);
        self.best.reset(NEAREST);
        for (i, &example) in self.met.iter().enumerate() {
            if let Some(&ahead) = self.met.get(i + SUMS_AHEAD) {
                prefetch(&self.common, ahead as usize);
            }
            // A sum may have passed zero and been met twice; the second time it is 0.
            let common = std::mem::take(&mut self.common[example as usize]);
            if common > 0.0 {
                self.best.offer(common, example);
            }
        }
        self.nearest.clear();
        self.nearest.extend(self.best.ranked().map(|(_, example)| example));
        // In the order of examples each class's terms are added up in one order.
        self.nearest.sort_unstable();
    }

    fn score_classes(&mut self, neighbours: &Neighbours) {
        for (i, &example) in self.nearest.iter().enumerate() {
            if let Some(&ahead) = self.nearest.get(i + 2 * ROWS_AHEAD) {
                neighbours.prefetch_offsets(ahead as usize);
                prefetch(&neighbours.index().label_offsets, ahead as usize);
            }
            if let Some(&ahead) = self.nearest.get(i + ROWS_AHEAD) {
                neighbours.prefetch_row(ahead as usize);
                prefetch(
                    &neighbours.index().labels,
                    neighbours.index().label_offsets[ahead as usize] as usize,
                );
            }
            let term = neighbours.term(example as usize, &self.query);
            for &class in neighbours.index().classes_of(example) {
                let sum = &mut self.sums[class as usize];
                if *sum == 0.0 && term > 0.0 {
                    self.classes.push(class);
                }
                *sum += term;
            }
        }
    }
}

/// From the examples of each class to the classes of each example.
fn turned_around(offsets: &[u64], members: &[u32], examples: usize) -> (Vec<u64>, Vec<u32>) {
    let mut starts = vec![0u64; examples + 1];
    members.iter().for_each(|&example| starts[example as usize + 1] += 1);
    (0..examples).for_each(|i| starts[i + 1] += starts[i]);
    let mut next = starts.clone();
    let mut labels = vec![0; members.len()];
    for (class, range) in (0u32..).zip(offsets.windows(2)) {
        for &example in &members[range[0] as usize..range[1] as usize] {
            labels[next[example as usize] as usize] = class;
            next[example as usize] += 1;
        }
    }
    (starts, labels)
}
