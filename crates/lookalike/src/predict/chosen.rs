//! Scores of chosen classes, or of all: what a ranking ranks by, as a matrix.
//!
//! They are summed in the order of a ranking: product and bias, the blended sparse
//! weights in the order of the example's features, what the nearest examples add.
//! `O(examples · chosen · dim)`, and with sparse weights those of the chosen classes, or the
//! postings of every feature and one score of every class a thread.

use lookalike_kernels::Cpu;
use rayon::prelude::*;

use super::approximate::score_chosen;
use super::few::{FewClasses, FewScratch, ScoredExample};
use super::sparse_queries::SparseQueries;
use super::tile::TILE_CLASSES;
use crate::data::Examples;
use crate::model::{Embeddings, Model, NeighbourScratch};
use crate::scratch::PerThread;

/// Examples that one thread scores at a time: as many share the way of the class
/// vectors from memory.
const BLOCK_EXAMPLES: usize = 32;

/// Up to so many classes, their own sparse rows are read instead of the postings of all.
const FEW_MAX: usize = 256;

/// Working memory of [`ChosenClasses::score`], reused between calls.
#[derive(Debug, Default)]
pub(super) struct ChosenScratch {
    workers: PerThread<ChosenWorker>,
}

#[derive(Debug, Default)]
struct ChosenWorker {
    entries: Vec<u32>,
    /// A place for every class; those of classes that are not chosen hold anything.
    all_scores: Vec<f32>,
    neighbours: NeighbourScratch,
    few: FewScratch,
}

/// Classes of a model to be scored.
#[derive(Clone, Copy)]
pub(super) struct ChosenClasses<'a> {
    pub(super) cpu: Cpu,
    pub(super) model: &'a Model,
    /// What each class of the model scores whatever the example.
    pub(super) bias: &'a [f32],
    /// Some may stand there twice.
    pub(super) classes: &'a [u32],
}

impl ChosenClasses<'_> {
    /// The scores of the examples in `batch`, whose embeddings are given; a row an
    /// example.
    pub(super) fn score(
        &self,
        examples: &Examples<'_>,
        batch: &[u32],
        embeddings: Embeddings<'_>,
        scratch: &mut ChosenScratch,
    ) -> Vec<f32> {
        let chosen = self.classes.len();
        let mut scores = vec![0.0; batch.len() * chosen];
        if chosen == 0 {
            return scores;
        }
        let sparse = SparseQueries::of(self.model, examples, batch);
        let few = FewClasses { cpu: self.cpu, model: self.model, bias: self.bias };
        scratch.workers.prepare();
        let workers = &scratch.workers;
        scores.par_chunks_mut(BLOCK_EXAMPLES * chosen).enumerate().for_each(|(block, scores)| {
            workers.with(|worker| {
                let first = block * BLOCK_EXAMPLES;
                self.multiply(first, embeddings, &mut worker.entries, scores);
                for (position, scores) in (first..).zip(scores.chunks_exact_mut(chosen)) {
                    if chosen <= FEW_MAX {
                        let query = ScoredExample::new(examples, batch, embeddings, position);
                        few.add_sparse(query, self.classes, &mut worker.few, scores);
                    } else if let Some(sparse) = &sparse {
                        self.add_sparse(sparse, position, &mut worker.all_scores, scores);
                    }
                    if let Some(neighbours) = &self.model.neighbours {
                        let query = examples.features(batch[position] as usize);
                        let near = neighbours.near(query, &mut worker.neighbours);
                        let with_share = |(score, &class): (&mut f32, &u32)| *score += near.share(class);
                        scores.iter_mut().zip(self.classes).for_each(with_share);
                    }
                }
            });
        });
        scores
    }

    /// Products and biases for a block of examples, tile after tile of classes.
    fn multiply(&self, first: usize, embeddings: Embeddings<'_>, entries: &mut Vec<u32>, scores: &mut [f32]) {
        let class_vectors = self.model.network.output.view();
        for (tile, classes) in self.classes.chunks(TILE_CLASSES).enumerate() {
            let rows = scores.chunks_exact_mut(self.classes.len());
            for (position, scores) in (first..).zip(rows) {
                let scores = &mut scores[tile * TILE_CLASSES..][..classes.len()];
                let embedding = embeddings.row(position);
                score_chosen(self.cpu, class_vectors, self.bias, embedding, classes, entries, scores);
            }
        }
    }

    /// Postings come by feature and not by class: chosen scores are put among those of
    /// all classes and taken out again.
    fn add_sparse(
        &self,
        sparse: &SparseQueries<'_>,
        position: usize,
        all_scores: &mut Vec<f32>,
        scores: &mut [f32],
    ) {
        all_scores.resize(self.model.num_classes(), 0.0);
        for (&class, &score) in self.classes.iter().zip(&*scores) {
            all_scores[class as usize] = score;
        }
        sparse.add_to_all(self.cpu, position, all_scores);
        for (&class, score) in self.classes.iter().zip(scores) {
            *score = all_scores[class as usize];
        }
    }
}
