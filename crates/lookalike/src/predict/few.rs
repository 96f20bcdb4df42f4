//! Exact scores of a few classes for one example.
//!
//! The sums are those of [`super::tile`], in the same order: product and bias, then the
//! blended sparse weights in the order of the example's features. Here the weights come
//! from the classes' own rows, so that nothing is read of any other class.
//! `O(classes · (dim + weights of a class / 16 + features of the example))`.

use lookalike_kernels::{Common, Cpu, SortedIds, common_ids, prefetch};

use super::approximate::score_chosen;
use crate::data::Examples;
use crate::model::{Embeddings, Model};

/// An example that classes are scored for.
#[derive(Clone, Copy)]
pub(super) struct ScoredExample<'a> {
    /// Its features and their values.
    pub(super) features: (&'a [u32], &'a [f32]),
    pub(super) embedding: &'a [f32],
}

impl<'a> ScoredExample<'a> {
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
    /// The example's values, blended.
    query: Vec<f32>,
    /// Every 16th id of a class's row.
    room: Vec<u32>,
    common: Vec<Common>,
}

impl FewClasses<'_> {
    /// One score for each of some classes.
    pub(super) fn score(
        &self,
        query: ScoredExample<'_>,
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
        query: ScoredExample<'_>,
        classes: &[u32],
        scratch: &mut FewScratch,
        scores: &mut [f32],
    ) {
        let Some(sparse) = self.model.sparse.as_ref().filter(|sparse| sparse.blend() != 0.0) else { return };
        let (ids, values) = query.features;
        let factor = sparse.blend() * self.model.network.config.normalise.factor(values);
        let FewScratch { query, room, common, .. } = scratch;
        query.clear();
        query.extend(values.iter().map(|value| factor * value));
        common.resize(ids.len().max(common.len()), Common::default());
        for (i, score) in scores.iter_mut().enumerate() {
            if let Some(&next) = classes.get(i + 1) {
                prefetch(&sparse.features, sparse.range(next as usize).start);
            }
            let (features, weights) = sparse.row(classes[i] as usize);
            let count = common_ids(self.cpu, SortedIds::new(features, room), ids, common);
            for found in &common[..count] {
                *score += query[found.in_list as usize] * weights[found.in_row as usize];
            }
        }
    }
}
