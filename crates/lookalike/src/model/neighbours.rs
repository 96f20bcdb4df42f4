//! The training examples themselves: a class also scores by those of its
//! examples that are nearest.
//!
//! A class vector and a sparse row describe a class as a whole. Where a class
//! has several sides (an author of papers on several subjects) or labels come in
//! groups (the authors of one paper), single examples say more. So a model can
//! keep its training examples, and a class with the examples `e` scores
//!
//! `weight · ln(1 + Σ_e (exp(SHARPNESS · cos(x, e)) - 1))`
//!
//! more: a soft maximum of the cosines, in which examples that have nothing in
//! common with `x` do not count. `weight` is chosen on examples held out from
//! training, relative to the other parts of the score.
//!
//! Only the examples that are nearest of all count, those that
//! [`nearest`](super::nearest) finds: the others of a class add next to nothing. So a
//! class that has none of them gets nothing, and which classes get something is known
//! without looking at any other. Memory: 6 bytes a kept feature and at most as much for
//! the index, 8 bytes a label.

use std::ops::Range;
use std::sync::OnceLock;

mod change;

use half::bf16;
use lookalike_kernels::prefetch;

use super::Normalise;
use super::examples_of_class::ExamplesOfClass;
use super::lists::{lengths, offsets};
use super::nearest::NearestIndex;
use crate::data::Examples;

/// How fast an example counts less with its distance: between 15 and 30 hardly
/// matters, 10 counts strangers, the plain maximum forgets how many are near.
const SHARPNESS: f32 = 30.0;
/// Features kept of an example, those with the largest values; 32 lose nothing
/// that can be seen.
const FEATURES_MAX: usize = 64;
/// Examples of a class that count.
const EXAMPLES_MAX: usize = 1000;

/// Training examples and the classes they belong to.
#[derive(Clone, Debug)]
pub struct Neighbours {
    num_features: usize,
    weight: f32,
    /// Where each example's features start, and one more.
    offsets: Vec<u64>,
    features: Vec<u32>,
    /// Of vectors of length 1.
    values: Vec<bf16>,
    /// Where each class's examples start, and one more.
    class_offsets: Vec<u64>,
    members: Vec<u32>,
    /// Made on first use.
    index: OnceLock<NearestIndex>,
}

impl Neighbours {
    /// Keeps the examples `chosen`, which count nothing yet.
    pub fn new(examples: &Examples<'_>, chosen: &[u32]) -> Self {
        let mut kept: Vec<u32> = chosen.to_vec();
        kept.sort_unstable();
        let mut lengths = Vec::with_capacity(kept.len());
        let (mut features, mut values) = (Vec::new(), Vec::new());
        let mut row: Vec<(u32, f32)> = Vec::new();
        for &example in &kept {
            let (ids, of_ids) = examples.features(example as usize);
            let factor = Normalise::L2.factor(of_ids);
            row.clear();
            row.extend(ids.iter().zip(of_ids).map(|(&id, &value)| (id, value * factor)));
            if row.len() > FEATURES_MAX {
                row.sort_unstable_by(|a, b| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0)));
                row.truncate(FEATURES_MAX);
                row.sort_unstable_by_key(|&(id, _)| id);
            }
            lengths.push(row.len() as u32);
            features.extend(row.iter().map(|&(id, _)| id));
            values.extend(row.iter().map(|&(_, value)| bf16::from_f32(value)));
        }
        let by_class = ExamplesOfClass::new(examples, &kept);
        let (mut class_lengths, mut members) = (Vec::with_capacity(examples.num_classes), Vec::new());
        for class in 0..examples.num_classes {
            let all = by_class.of(class);
            let count = all.len().min(EXAMPLES_MAX);
            class_lengths.push(count as u32);
            // Of a class with more, some from everywhere.
            let spread = (0..count).map(|i| all[i * all.len() / count]);
            // Every one of them is kept, so it has a place.
            members.extend(spread.map(|example| kept.partition_point(|&other| other < example) as u32));
        }
        Self::from_parts(examples.num_features, &lengths, features, values, &class_lengths, members, 0.0)
    }

    /// From the number of features of each example and the features, example
    /// after example, and the number of examples of each class and the examples.
    /// Whoever calls it guarantees that lengths add up, and that features and
    /// examples exist.
    pub fn from_parts(
        num_features: usize,
        lengths: &[u32],
        features: Vec<u32>,
        values: Vec<bf16>,
        class_lengths: &[u32],
        members: Vec<u32>,
        weight: f32,
    ) -> Self {
        let (offsets, class_offsets) = (offsets(lengths), offsets(class_lengths));
        let index = OnceLock::new();
        Self { num_features, weight, offsets, features, values, class_offsets, members, index }
    }

    /// The number of features.
    pub(super) fn num_features(&self) -> usize {
        self.num_features
    }

    /// The number of classes.
    pub(super) fn num_classes(&self) -> usize {
        self.class_offsets.len() - 1
    }

    /// Makes what finds the nearest, see [`Model::prepare`](super::Model::prepare).
    pub fn prepare(&self) {
        self.index();
    }

    /// What finds the nearest.
    pub(super) fn index(&self) -> &NearestIndex {
        self.index.get_or_init(|| {
            let rows = (&self.offsets[..], &self.features[..], &self.values[..]);
            NearestIndex::new(self.num_features, rows, (&self.class_offsets, &self.members))
        })
    }

    /// The number of examples.
    pub fn num_examples(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Kept features of all examples, and their values.
    pub fn entries(&self) -> (&[u32], &[bf16]) {
        (&self.features, &self.values)
    }

    /// The examples of all classes, class after class.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// The number of kept features of each example.
    pub fn lengths(&self) -> Vec<u32> {
        lengths(&self.offsets)
    }

    /// The number of kept examples of each class.
    pub fn class_lengths(&self) -> Vec<u32> {
        lengths(&self.class_offsets)
    }

    /// How much the soft maximum counts.
    pub fn weight(&self) -> f32 {
        self.weight
    }

    /// The same with another [`weight`](Self::weight).
    pub fn weighted(self, weight: f32) -> Self {
        Self { weight, ..self }
    }

    /// The same with the examples of some classes only, which are numbered from the first of
    /// them. All examples stay: which are nearest does not depend on who asks.
    pub fn of_shard(self, classes: Range<usize>) -> Self {
        let class_lengths = lengths(&self.class_offsets[classes.start..=classes.end]);
        let members = self.class_offsets[classes.start] as usize..self.class_offsets[classes.end] as usize;
        let (class_offsets, members) = (offsets(&class_lengths), self.members[members].to_vec());
        Self { class_offsets, members, index: OnceLock::new(), ..self }
    }

    /// Prefetches where an example's row is.
    pub(super) fn prefetch_offsets(&self, example: usize) {
        prefetch(&self.offsets, example);
    }

    /// Prefetches an example's row.
    pub(super) fn prefetch_row(&self, example: usize) {
        let start = self.offsets[example] as usize;
        prefetch(&self.features, start);
        prefetch(&self.values, start);
    }

    /// `exp(SHARPNESS · cos) - 1`, or 0 for a cosine that is negative or no number.
    pub(super) fn term(&self, example: usize, query: &[f32]) -> f32 {
        let range = self.offsets[example] as usize..self.offsets[example + 1] as usize;
        let entries = self.features[range.clone()].iter().zip(&self.values[range]);
        let cosine: f32 = entries.map(|(&id, value)| query[id as usize] * value.to_f32()).sum();
        // Most examples have nothing in common with a query, and exponentials are slow.
        if cosine > 0.0 { (SHARPNESS * cosine.min(1.0)).exp_m1() } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::model::NeighbourScratch;

    /// Example 3 is not kept. Class 2 has no example.
    fn neighbours() -> Neighbours {
        let mut data = Dataset::empty(5, 3);
        data.push([(0, 3.0), (2, 4.0)], &[0, 1]);
        data.push([(0, 1.0)], &[0]);
        data.push([(3, 2.0)], &[1]);
        data.push([(4, 1.0)], &[1]);
        Neighbours::new(&data.view(), &[2, 0, 1])
    }

    fn soft_maximum(cosines: &[f32]) -> f32 {
        (1.0 + cosines.iter().map(|cosine| (SHARPNESS * cosine).exp() - 1.0).sum::<f32>()).ln()
    }

    fn shares(part: &Neighbours, query: (&[u32], &[f32]), scratch: &mut NeighbourScratch) -> [f32; 3] {
        let near = part.near(query, scratch);
        [0, 1, 2].map(|class| near.share(class))
    }

    #[test]
    fn a_class_scores_by_the_cosines_with_its_examples() {
        let part = neighbours().weighted(0.5);
        let mut scratch = NeighbourScratch::default();
        // Twice: nothing of a query is left for the next.
        for _ in 0..2 {
            let found = shares(&part, (&[0, 3], &[0.5, 0.5]), &mut scratch);
            let half = 0.5f32.sqrt();
            let expected = [soft_maximum(&[0.6 * half, half]), soft_maximum(&[0.6 * half, half]), 0.0];
            for (found, expected) in found.iter().zip(expected) {
                // Values are rounded to eight bits.
                assert!((found - 0.5 * expected).abs() < 0.025, "{found} {expected}");
            }
            assert_eq!(part.near((&[3], &[1.0]), &mut scratch).classes(), [1]);
            assert_eq!(shares(&part, (&[4], &[1.0]), &mut scratch), [0.0; 3]);
        }
    }

    /// Whatever comes in, a score never turns into something that is no number.
    #[test]
    fn strange_values_add_nothing_strange() {
        let part = neighbours().weighted(1.0);
        let mut scratch = NeighbourScratch::default();
        for value in [f32::NAN, f32::INFINITY, -1.0, f32::MAX, 0.0] {
            let shares = shares(&part, (&[0, 2], &[value, 1.0]), &mut scratch);
            assert!(shares.iter().all(|x| x.is_finite() && *x >= 0.0), "{value}: {shares:?}");
        }
    }

    #[test]
    fn long_examples_and_frequent_classes_are_cut() {
        let mut data = Dataset::empty(100, 2);
        data.push((0..100).map(|id| (id, 1.0 + id as f32)), &[0]);
        (0..2 * EXAMPLES_MAX as u32).for_each(|i| data.push([(i % 100, 1.0)], &[1]));
        let all: Vec<u32> = (0..data.view().len() as u32).collect();
        let part = Neighbours::new(&data.view(), &all);
        assert_eq!(part.lengths()[..2], [FEATURES_MAX as u32, 1]);
        assert_eq!(part.entries().0[..FEATURES_MAX], (100 - FEATURES_MAX as u32..100).collect::<Vec<_>>());
        assert_eq!(part.class_lengths(), [1, EXAMPLES_MAX as u32]);
        assert_eq!(part.members()[1..3], [1, 3]);
    }
}
