//! The sparse part of the output layer: weights of a class on the features of
//! its own examples, and on what speaks against it.
//!
//! A class vector of a hundred numbers cannot remember which rare words a class
//! stands for; a weight a word can. A class's sparse row has a weight for every
//! feature that one of its training examples has, starts from the mean of those
//! examples (so it is useful before the first step), and is trained by itself
//! (see `train/sparse/step.rs`). Features that are strong in examples which come near the
//! class without having it have weights too, which start from zero. What a class with `n_c` examples scores is
//!
//! `score(x, c) = w_c · E_x + b_c + blend · (u_c · x + prior · ln n_c)`
//!
//! with `blend` chosen on examples held out from training. What the frequency of a
//! class adds ([`SparsePart::priors`]) belongs to the sparse part: the network's own
//! bias knows nothing of it.
//!
//! Memory: 8 bytes an entry, and as much again for [`Postings`], the same
//! weights by feature, which ranking all classes needs.

mod change;
mod frequent;
mod postings;

pub use frequent::{FrequentRows, WeightedRow};
pub use postings::Postings;

use std::ops::Range;
use std::sync::OnceLock;

use lookalike_kernels::{Common, Cpu, SortedIds, common_ids};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::Normalise;
use super::examples_of_class::ExamplesOfClass;
use super::lists::{lengths, offsets};
use crate::data::Examples;
use crate::scratch::PerThread;

/// A sparse row of weights for each class.
#[derive(Clone, Debug, Default)]
pub struct SparsePart {
    /// Where each class's entries start, and one more.
    pub offsets: Vec<u64>,
    /// Feature of each entry, ascending within a class.
    pub features: Vec<u32>,
    weights: Vec<f32>,
    /// By class: what its frequency adds to its score.
    priors: Vec<f32>,
    blend: f32,
    start: SparseStart,
    postings: OnceLock<Postings>,
}

/// What sparse rows start from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SparseStart {
    /// The direction of the mean of a class's examples: a class scores by the
    /// cosine. For long lists of words.
    #[default]
    Centroid,
    /// The logarithm of that mean, as in naive Bayes: features count as
    /// independent evidence. For few features an example, as in the words around a word.
    LogMean,
}

impl SparseStart {
    /// What a sparse score counts `ln n` of a class with `n` examples.
    pub fn prior(self) -> f32 {
        match self {
            Self::Centroid => 0.15,
            Self::LogMean => 1.0,
        }
    }

    /// What the frequency of classes with so many examples adds to their sparse scores.
    pub fn priors(self, class_counts: &[u32]) -> Vec<f32> {
        let prior = |&count: &u32| self.prior() * (count.max(1) as f32).ln();
        class_counts.iter().map(prior).collect()
    }

    /// By how much the learning rate is multiplied.
    pub fn rate(self) -> f32 {
        match self {
            Self::Centroid => 1.0,
            Self::LogMean => 0.02,
        }
    }
}

/// A logarithmic row is `LOG_GAIN · ln(1 + LOG_SHARPNESS · mean)`.
const LOG_GAIN: f32 = 1.7;
const LOG_SHARPNESS: f32 = 30_000.0;

/// A row takes in as many features that speak against its class as it has of its own, or
/// so many: a class of one short example meets more than that.
const FEATURES_AGAINST_MIN: usize = 50;

/// How rows are made from the means of the examples.
#[derive(Clone, Copy, Debug)]
pub struct MeanRows {
    /// What rows start from.
    pub start: SparseStart,
    /// Length of a row that starts from the centroid: a class scores this times
    /// the cosine.
    pub length: f32,
    /// Entries a class at most; the largest stay.
    pub entries_max: usize,
}

impl SparsePart {
    /// From the number of entries of each class, and the entries, class after
    /// class, with how many training examples each class had. Whoever calls it
    /// guarantees that the lengths add up to the entries, and that features ascend
    /// within a class.
    pub fn from_parts(
        lengths: &[u32],
        features: Vec<u32>,
        weights: Vec<f32>,
        (blend, start): (f32, SparseStart),
        class_counts: &[u32],
    ) -> Self {
        let offsets = offsets(lengths);
        let priors = Vec::new();
        let mut part = Self { offsets, features, weights, priors, blend, start, postings: OnceLock::new() };
        part.set_class_counts(class_counts);
        part
    }

    /// Each class at the weighted mean of those of its examples that are in `chosen`;
    /// and for each class, what such an example of weight 1 adds to the class's score for
    /// itself.
    ///
    /// Cost: O(labels · features) time; a row of all features a thread.
    pub fn from_means(
        examples: &Examples<'_>,
        chosen: &[u32],
        normalise: Normalise,
        start: MeanRows,
        class_counts: &[u32],
    ) -> (Self, Vec<f32>) {
        let classes = 0..examples.num_classes;
        Self::from_means_of(classes, examples, chosen, normalise, start, class_counts)
    }

    /// As [`from_means`](Self::from_means), of some classes: the first row is that of the
    /// first of them. The counts are those of all classes.
    pub fn from_means_of(
        classes: Range<usize>,
        examples: &Examples<'_>,
        chosen: &[u32],
        normalise: Normalise,
        start: MeanRows,
        class_counts: &[u32],
    ) -> (Self, Vec<f32>) {
        let by_class = ExamplesOfClass::new(examples, chosen);
        let mut workers = PerThread::<MeanWorker>::default();
        workers.prepare();
        let class_counts = &class_counts[classes.clone()];
        let rows: Vec<(Vec<(u32, f32)>, f32)> = classes
            .into_par_iter()
            .map(|class| workers.with(|worker| worker.row(examples, by_class.of(class), normalise, start)))
            .collect();
        let lengths: Vec<u32> = rows.iter().map(|(row, _)| row.len() as u32).collect();
        let own = rows.iter().map(|&(_, own)| own).collect();
        let entries = rows.iter().map(|(row, _)| row.len()).sum();
        let (mut features, mut weights) = (Vec::with_capacity(entries), Vec::with_capacity(entries));
        for (feature, weight) in rows.into_iter().flat_map(|(row, _)| row) {
            features.push(feature);
            weights.push(weight);
        }
        (Self::from_parts(&lengths, features, weights, (1.0, start.start), class_counts), own)
    }

    /// Gives each row the features that are strongest in the examples `against` its class,
    /// with weights of zero to be trained: what speaks against a class is often on none of
    /// its own examples. The first row is that of class `first`.
    pub(crate) fn with_features_against(
        self,
        examples: &Examples<'_>,
        against: &ExamplesOfClass,
        first: usize,
        normalise: Normalise,
    ) -> Self {
        let mut workers = PerThread::<MeanWorker>::default();
        workers.prepare();
        let widen = |class: usize| {
            workers.with(|worker| {
                let (own, weights) = self.row(class);
                let room = own.len().max(FEATURES_AGAINST_MIN);
                let mut met = worker.sums(examples, against.of(first + class), normalise).0;
                met.retain(|(feature, _)| own.binary_search(feature).is_err());
                leave_largest(&mut met, room);
                let mut row: Vec<(u32, f32)> = own.iter().copied().zip(weights.iter().copied()).collect();
                row.extend(met.into_iter().map(|(feature, _)| (feature, 0.0)));
                row.sort_unstable_by_key(|&(feature, _)| feature);
                row
            })
        };
        let rows: Vec<Vec<(u32, f32)>> = (0..self.num_classes()).into_par_iter().map(widen).collect();
        let lengths: Vec<u32> = rows.iter().map(|row| row.len() as u32).collect();
        let (features, weights) = rows.into_iter().flatten().unzip();
        let offsets = offsets(&lengths);
        Self { offsets, features, weights, postings: OnceLock::new(), ..self }
    }

    /// The number of weights.
    pub fn num_entries(&self) -> usize {
        self.weights.len()
    }

    /// The number of classes.
    pub fn num_classes(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// The number of weights of each class.
    pub fn lengths(&self) -> Vec<u32> {
        lengths(&self.offsets)
    }

    /// Where a class's entries are.
    pub fn range(&self, class: usize) -> Range<usize> {
        self.offsets[class] as usize..self.offsets[class + 1] as usize
    }

    /// Features and weights of a class.
    pub fn row(&self, class: usize) -> (&[u32], &[f32]) {
        let range = self.range(class);
        (&self.features[range.clone()], &self.weights[range])
    }

    /// All weights, class after class.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// All weights to be changed, with where rows start and their features.
    pub fn parts_mut(&mut self) -> (&[u64], &[u32], &mut [f32]) {
        self.postings = OnceLock::new();
        (&self.offsets, &self.features, &mut self.weights)
    }

    /// How much a sparse score counts beside a dense one.
    pub fn blend(&self) -> f32 {
        self.blend
    }

    /// Sets [`blend`](Self::blend).
    pub fn set_blend(&mut self, blend: f32) {
        self.blend = blend;
    }

    /// What the rows started from.
    pub fn start(&self) -> SparseStart {
        self.start
    }

    /// What the frequency of each class adds to its sparse score.
    pub fn priors(&self) -> &[f32] {
        &self.priors
    }

    /// Says how many training examples each class has had by now.
    pub fn set_class_counts(&mut self, class_counts: &[u32]) {
        self.priors = self.start.priors(class_counts);
    }

    /// What the weights of a class score an example whose values are multiplied by
    /// `factor`, before blending and without the prior.
    pub fn score(&self, cpu: Cpu, (ids, values): (&[u32], &[f32]), factor: f32, class: u32) -> f32 {
        let (features, weights) = self.row(class as usize);
        let (mut room, mut common) = (Vec::new(), vec![Common::default(); ids.len()]);
        let row = SortedIds::new(features, &mut room);
        // What is found is the same with all instructions.
        let count = common_ids(cpu, row, ids, &mut common);
        let weighted = |found: &Common| values[found.in_list as usize] * weights[found.in_row as usize];
        factor * common[..count].iter().map(weighted).sum::<f32>()
    }

    /// The weights by feature; made on first use after a change.
    pub fn postings(&self, num_features: usize) -> &Postings {
        self.postings.get_or_init(|| Postings::new(self, num_features))
    }
}

/// A thread's sums by feature, zero between classes.
#[derive(Debug, Default)]
struct MeanWorker {
    sums: Vec<f32>,
    seen: Vec<u32>,
}

impl MeanWorker {
    /// The weighted sum of the examples, and of their weights.
    fn sums(
        &mut self,
        examples: &Examples<'_>,
        members: &[u32],
        normalise: Normalise,
    ) -> (Vec<(u32, f32)>, f32) {
        self.sums.resize(examples.num_features, 0.0);
        let mut total = 0.0;
        for &example in members {
            let (ids, values) = examples.features(example as usize);
            let weight = examples.weight(example as usize);
            let factor = weight * normalise.factor(values);
            total += weight;
            for (&id, &value) in ids.iter().zip(values) {
                let sum = &mut self.sums[id as usize];
                // Again where a sum has come back to 0: once is left below.
                if *sum == 0.0 {
                    self.seen.push(id);
                }
                *sum += value * factor;
            }
        }
        self.seen.sort_unstable();
        self.seen.dedup();
        let row: Vec<(u32, f32)> = self.seen.drain(..).map(|id| (id, self.sums[id as usize])).collect();
        row.iter().for_each(|&(id, _)| self.sums[id as usize] = 0.0);
        (row, total)
    }

    fn row(
        &mut self,
        examples: &Examples<'_>,
        members: &[u32],
        normalise: Normalise,
        start: MeanRows,
    ) -> (Vec<(u32, f32)>, f32) {
        let (mut row, total) = self.sums(examples, members, normalise);
        leave_largest(&mut row, start.entries_max);
        match start.start {
            SparseStart::Centroid => {
                let norm = row.iter().map(|(_, x)| x * x).sum::<f32>().sqrt();
                let scale = if norm > 0.0 { start.length / norm } else { 0.0 };
                row.iter_mut().for_each(|(_, x)| *x *= scale);
                // An example x of length 1 is in the sum once: scale · (x · x).
                (row, if normalise == Normalise::L2 { scale } else { 0.0 })
            }
            SparseStart::LogMean => {
                let sharpness = if total > 0.0 { LOG_SHARPNESS / total } else { 0.0 };
                row.iter_mut().for_each(|(_, x)| *x = LOG_GAIN * (sharpness * x.max(0.0)).ln_1p());
                // A class of many examples hardly misses one; with one example
                // all would be its own, but such classes are few here.
                (row, 0.0)
            }
        }
    }
}

/// Leaves the entries of largest size, in the order of features.
fn leave_largest(row: &mut Vec<(u32, f32)>, most: usize) {
    if row.len() > most {
        row.select_nth_unstable_by(most, |a, b| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0)));
        row.truncate(most);
        row.sort_unstable_by_key(|&(id, _)| id);
    }
}

#[cfg(test)]
mod tests {
    use lookalike_kernels::COLUMN_BLOCK;

    use super::*;
    use crate::data::Dataset;

    fn data() -> Dataset {
        let mut data = Dataset::empty(4, 3);
        data.push([(0, 3.0), (2, 4.0)], &[0, 2]);
        data.push([(0, 1.0)], &[0]);
        data.push([(3, 2.0)], &[0]);
        data
    }

    #[test]
    fn a_class_starts_at_the_mean_of_its_chosen_examples() {
        let data = data();
        let start = MeanRows { start: SparseStart::Centroid, length: 10.0, entries_max: 100 };
        let (sparse, own) = SparsePart::from_means(&data.view(), &[0, 1], Normalise::L2, start, &[3, 0, 1]);
        // Class 0: (0.6, 0.8 at 2) + (1, 0) = (1.6, 0.8), scaled to length 10.
        let (features, weights) = sparse.row(0);
        assert_eq!(features, [0, 2]);
        let norm = (1.6f32 * 1.6 + 0.8 * 0.8).sqrt();
        assert!((weights[0] - 16.0 / norm).abs() < 1e-5 && (weights[1] - 8.0 / norm).abs() < 1e-5);
        assert_eq!(sparse.row(1), (&[][..], &[][..]));
        assert_eq!(sparse.row(2).0, [0, 2]);
        // Without the example (0.6, 0.8) class 0 would score it so much less.
        assert!((own[0] - 10.0 / norm).abs() < 1e-5);
        assert_eq!(own[1..], [0.0, 10.0]);
    }

    #[test]
    fn logarithms_grow_with_the_mean_of_a_class() {
        let data = data();
        let start = MeanRows { start: SparseStart::LogMean, length: 10.0, entries_max: 100 };
        let (sparse, own) =
            SparsePart::from_means(&data.view(), &[0, 1, 2], Normalise::L2, start, &[1, 0, 3]);
        // Class 0: mean (1.6, 0.8, 1) / 3 at features 0, 2 and 3.
        let expected = [1.6f32, 0.8, 1.0].map(|sum| LOG_GAIN * (LOG_SHARPNESS * sum / 3.0).ln_1p());
        let (features, weights) = sparse.row(0);
        assert_eq!(features, [0, 2, 3]);
        assert!(weights.iter().zip(expected).all(|(w, e)| (w - e).abs() < 1e-4), "{weights:?} {expected:?}");
        assert_eq!(own, [0.0; 3]);
        assert_eq!(sparse.start(), SparseStart::LogMean);
        assert_eq!(sparse.priors(), [0.0, 0.0, 3f32.ln()]);
    }

    #[test]
    fn rows_take_in_the_features_they_meet_most_in_examples_against_them() {
        let mut data = Dataset::empty(200, 2);
        data.push([(0, 1.0)], &[0]);
        data.push([(0, 1.0), (3, 1.0)], &[1]);
        data.push([(0, 1.0), (1, 1.0), (3, 2.0)], &[1]);
        data.push((10..100).map(|i| (i, i as f32)), &[1]);
        let start = MeanRows { start: SparseStart::Centroid, length: 1.0, entries_max: 1000 };
        let (part, _) = SparsePart::from_means(&data.view(), &[0, 1], Normalise::L2, start, &[1, 1]);
        let widened = |chosen: &[u32]| {
            let against = ExamplesOfClass::of_lists(2, chosen, |_| &[0]);
            part.clone().with_features_against(&data.view(), &against, 0, Normalise::L2)
        };
        let met = widened(&[1, 2]);
        assert_eq!(met.row(0), (&[0, 1, 3][..], &[1.0, 0.0, 0.0][..]));
        assert_eq!((met.row(1), met.priors(), met.blend()), (part.row(1), part.priors(), part.blend()));
        // No more than there is room for, and the largest then.
        let expected: Vec<u32> = std::iter::once(0).chain(100 - FEATURES_AGAINST_MIN as u32..100).collect();
        assert_eq!(widened(&[3]).row(0).0, expected);
    }

    #[test]
    fn the_largest_entries_stay() {
        let data = data();
        let start = MeanRows { start: SparseStart::Centroid, length: 1.0, entries_max: 1 };
        let (sparse, _) = SparsePart::from_means(&data.view(), &[0, 1, 2], Normalise::L2, start, &[1, 0, 3]);
        assert_eq!(sparse.row(0), (&[0][..], &[1.0][..]));
    }

    #[test]
    fn postings_are_the_transpose_and_follow_changes() {
        let data = data();
        let start = MeanRows { start: SparseStart::Centroid, length: 1.0, entries_max: 100 };
        let (mut sparse, _) =
            SparsePart::from_means(&data.view(), &[0, 1, 2], Normalise::L2, start, &[1, 0, 3]);
        let check = |sparse: &SparsePart| {
            let mut entries = 0;
            for feature in 0..4u32 {
                let (classes, weights) = sparse.postings(4).of(feature);
                let mut sums = [0.5; 3];
                sparse.postings(4).add_to_all(Cpu::detect(), (feature, 2.0), &mut sums);
                // All features are frequent among so few classes, but one that none has.
                let frequent = sparse.postings(4).frequent();
                assert_eq!(frequent.has(feature), !classes.is_empty());
                if let Some((row, error)) = frequent.of(feature, 2.0) {
                    let mut about = [0.5; COLUMN_BLOCK];
                    frequent.add(Cpu::detect(), &[row], 0, &mut about);
                    let is_near = |(sum, about): (&f32, &f32)| (sum - about).abs() <= 1.001 * error;
                    assert!(sums.iter().zip(&about).all(is_near), "{sums:?} {about:?}");
                }
                for (&class, weight) in classes.iter().zip(weights) {
                    sums[class as usize] -= 2.0 * weight;
                }
                assert!(sums.iter().all(|sum| (sum - 0.5).abs() < 1e-6), "{sums:?}");
                assert!(classes.is_sorted_by(|a, b| a < b));
                entries += classes.len();
                for (&class, weight) in classes.iter().zip(weights) {
                    let (features, values) = sparse.row(class as usize);
                    let place = features.iter().position(|&f| f == feature).unwrap();
                    assert_eq!(*weight, values[place]);
                }
            }
            assert_eq!(entries, sparse.num_entries());
        };
        check(&sparse);
        sparse.parts_mut().2[1] = 7.0;
        check(&sparse);
    }
}
