//! Exact scores of a few classes for one example.
//!
//! The sums are those of [`super::tile`], in the same order: product and bias, then the
//! blended sparse weights in the order of the example's features. Here the weights come
//! from the classes' own rows, so that nothing is read of any other class.
//! `O(classes · (dim + weights of a class))`.

use lookalike_kernels::{Cpu, prefetch};

use super::approximate::score_chosen;
use crate::data::Examples;
use crate::model::{Embeddings, Model, SparsePart};

/// An example that classes are scored for.
#[derive(Clone, Copy)]
pub(super) struct Query<'a> {
    /// Its features and their values.
    pub(super) features: (&'a [u32], &'a [f32]),
    pub(super) embedding: &'a [f32],
}

impl<'a> Query<'a> {
    /// An example of a batch, by its position.
    pub(super) fn new(
        examples: &Examples<'a>,
        batch: &[u32],
        embeddings: Embeddings<'a>,
        position: usize,
    ) -> Self {
        Self { features: examples.features(batch[position] as usize), embedding: embeddings.row(position) }
    }
}

/// Scores classes of a model by all but the nearest examples.
#[derive(Clone, Copy)]
pub(super) struct FewClasses<'a> {
    pub(super) cpu: Cpu,
    pub(super) model: &'a Model,
    /// What each class of the model scores whatever the example.
    pub(super) bias: &'a [f32],
}

/// Working memory of [`FewClasses`], reused between calls.
#[derive(Debug, Default)]
pub(super) struct FewScratch {
    entries: Vec<u32>,
    /// The example's values, blended; a place a feature, zero between calls.
    query: Vec<f32>,
}

impl FewClasses<'_> {
    /// One score for each of some classes.
    pub(super) fn score(
        &self,
        query: Query<'_>,
        classes: &[u32],
        scratch: &mut FewScratch,
        scores: &mut Vec<f32>,
    ) {
        scores.clear();
        scores.resize(classes.len(), 0.0);
        let vectors = self.model.network.output.view();
        score_chosen(self.cpu, vectors, self.bias, query.embedding, classes, &mut scratch.entries, scores);
        self.add_sparse(query, classes, scratch, scores);
    }

    /// Adds what the sparse part gives.
    pub(super) fn add_sparse(
        &self,
        query: Query<'_>,
        classes: &[u32],
        scratch: &mut FewScratch,
        scores: &mut [f32],
    ) {
        let Some(sparse) = self.model.sparse.as_ref().filter(|sparse| sparse.blend() != 0.0) else { return };
        let (ids, values) = query.features;
        let factor = sparse.blend() * self.model.network.config.normalise.factor(values);
        scratch.query.resize(self.model.num_features(), 0.0);
        for (&id, &value) in ids.iter().zip(values) {
            scratch.query[id as usize] = factor * value;
        }
        for (i, score) in scores.iter_mut().enumerate() {
            if let Some(&next) = classes.get(i + 1) {
                prefetch(&sparse.features, sparse.range(next as usize).start);
            }
            add_row(sparse, classes[i], ids, &scratch.query, score);
        }
        ids.iter().for_each(|&id| scratch.query[id as usize] = 0.0);
    }
}

/// How many times as long a class's row must be to be searched for an example's features
/// instead of walked.
const SEARCH_TIMES: usize = 16;

fn add_row(sparse: &SparsePart, class: u32, ids: &[u32], query: &[f32], score: &mut f32) {
    let (features, weights) = sparse.row(class as usize);
    if features.len() / SEARCH_TIMES > ids.len() {
        for &id in ids {
            if let Ok(place) = features.binary_search(&id) {
                *score += query[id as usize] * weights[place];
            }
        }
    } else {
        for (&feature, weight) in features.iter().zip(weights) {
            let value = query[feature as usize];
            if value != 0.0 {
                *score += value * weight;
            }
        }
    }
}
