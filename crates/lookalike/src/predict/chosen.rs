//! Scores of chosen classes, or of all: what [`Ranker`](super::Ranker) ranks by, as
//! a matrix.
//!
//! The vectors of the chosen classes are copied side by side, a tile at a time, and
//! scored as in a ranking. `O(examples · chosen · dim)`, and with sparse weights the
//! postings of every feature; memory is a tile and one score of every class a thread.

use lookalike_kernels::{AlignedVec, Cpu, dot_rows};
use rayon::prelude::*;

use super::exact::SparseQueries;
use super::tile::TILE_CLASSES;
use crate::data::Examples;
use crate::hashing::PerThread;
use crate::model::{Activations, NeighbourScratch, Network, RowData};

/// Examples that are scored by one thread at a time: as many share the copies of
/// class vectors.
const BLOCK_EXAMPLES: usize = 32;

/// Scores chosen classes; buffers are kept between batches.
#[derive(Debug, Default)]
pub struct ClassScorer {
    activations: Activations,
    workers: PerThread<Worker>,
}

#[derive(Debug, Default)]
struct Worker {
    vectors: AlignedVec<f32>,
    bias: Vec<f32>,
    all_scores: Vec<f32>,
    neighbours: NeighbourScratch,
}

impl ClassScorer {
    /// The scores of `classes` for each example of a batch, a row an example. Each
    /// has the bits that a ranking of any other batch gives the same class.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn score(
        &mut self,
        cpu: Cpu,
        network: &Network,
        examples: &Examples<'_>,
        batch: &[u32],
        classes: &[u32],
    ) -> Vec<f32> {
        let mut scores = vec![0.0; batch.len() * classes.len()];
        if classes.is_empty() {
            return scores;
        }
        network.embed(cpu, examples, batch, &mut self.activations);
        let RowData::F32(embeddings) = self.activations.embeddings().data else {
            unreachable!("embeddings are always f32")
        };
        let num_classes = network.config.num_classes;
        let block_floats = BLOCK_EXAMPLES * network.output.stride;
        self.workers.prepare();
        let workers = &self.workers;
        let sparse = SparseQueries::of(network, examples, batch);
        scores
            .par_chunks_mut(BLOCK_EXAMPLES * classes.len())
            .zip(embeddings.par_chunks(block_floats))
            .enumerate()
            .for_each(|(block, (scores, embeddings))| {
                workers.with(|worker| {
                    worker.multiply(cpu, network, embeddings, classes, scores);
                    let positions = block * BLOCK_EXAMPLES..;
                    for (position, scores) in positions.zip(scores.chunks_exact_mut(classes.len())) {
                        if let Some(sparse) = &sparse {
                            worker.add_sparse(sparse, position, num_classes, classes, scores);
                        }
                        if let Some(neighbours) = &network.neighbours {
                            let query = examples.features(batch[position] as usize);
                            neighbours.add_scores(query, classes, scores, &mut worker.neighbours);
                        }
                    }
                });
            });
        scores
    }
}

impl Worker {
    fn multiply(
        &mut self,
        cpu: Cpu,
        network: &Network,
        embeddings: &[f32],
        classes: &[u32],
        scores: &mut [f32],
    ) {
        let (output, stride) = (&network.output, network.output.stride);
        if self.vectors.len() != TILE_CLASSES * stride {
            self.vectors = AlignedVec::zeroed(TILE_CLASSES * stride);
        }
        for (tile, chosen) in classes.chunks(TILE_CLASSES).enumerate() {
            let vectors = &mut self.vectors[..chosen.len() * stride];
            self.bias.clear();
            for (&class, vector) in chosen.iter().zip(vectors.chunks_exact_mut(stride)) {
                output.view().copy_row(class as usize, vector);
                self.bias.push(output.bias.w[class as usize]);
            }
            let out = &mut scores[tile * TILE_CLASSES..];
            dot_rows(cpu, stride, embeddings, vectors, &self.bias, out, classes.len());
        }
    }

    fn add_sparse(
        &mut self,
        sparse: &SparseQueries<'_>,
        position: usize,
        num_classes: usize,
        classes: &[u32],
        scores: &mut [f32],
    ) {
        self.all_scores.clear();
        self.all_scores.resize(num_classes, 0.0);
        for (&class, &score) in classes.iter().zip(&*scores) {
            self.all_scores[class as usize] = score;
        }
        sparse.add_to_all(position, &mut self.all_scores);
        for (&class, score) in classes.iter().zip(scores) {
            *score = self.all_scores[class as usize];
        }
    }
}
