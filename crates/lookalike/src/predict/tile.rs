//! Scores of a tile: a thousand classes and more against some dozen examples.
//!
//! The scores of an example lie side by side, so that they can be searched 16 at
//! a time.
//!
//! **The score of a class for an example has the same bits whatever else is asked
//! for.** It is summed in one order everywhere: the product of class vector and
//! embedding ([`dot_rows`]), the bias, the blended sparse weights in the order of the
//! example's features, what the nearest examples add.

use std::ops::Range;

use lookalike_kernels::{Cpu, LANES, dot_rows};

use crate::model::{RowData, RowsView};

/// Classes whose scores are searched and added up together: a tile has a multiple of them.
pub(super) const TILE_CLASSES: usize = 256;

/// Examples in a tile: as many share the way of the class vectors from memory.
pub(super) const TILE_EXAMPLES: usize = 64;

/// Scores of a tile: they stay in the second-level cache.
const TILE_SCORES: usize = 64 * 1024;
/// Classes in a tile at most: their scores for one example stay near the first-level cache.
const TILE_CLASSES_MAX: usize = 16 * 1024;

/// How many classes a tile of so many examples has. Finding where a feature's sparse
/// weights go on costs the same for each tile, so wide ones are better than tall ones.
pub(super) fn tile_classes(examples: usize) -> usize {
    let most = TILE_SCORES / examples.max(1) / TILE_CLASSES * TILE_CLASSES;
    most.clamp(TILE_CLASSES, TILE_CLASSES_MAX)
}

/// The scores of examples (rows) for consecutive classes (columns).
#[derive(Debug, Default)]
pub(super) struct Tile {
    num_classes: usize,
    /// Distance between the scores of two examples.
    stride: usize,
    scores: Vec<f32>,
}

impl Tile {
    /// Scores embeddings for classes, at most [`tile_classes`] of them.
    pub(super) fn score(
        &mut self,
        cpu: Cpu,
        class_vectors: RowsView<'_>,
        bias: &[f32],
        classes: Range<usize>,
        embeddings: &[f32],
    ) {
        let RowsView { stride, data, .. } = class_vectors;
        let range = classes.start * stride..classes.end * stride;
        let bias = &bias[classes];
        self.num_classes = bias.len();
        // A power of two would put the scores of a class in the same few sets of the
        // first-level cache; one line more spreads them.
        self.stride = bias.len().next_multiple_of(LANES) + LANES;
        let (scores, width) = (&mut self.scores, self.stride);
        scores.resize(scores.len().max(embeddings.len() / stride * width), 0.0);
        match data {
            RowData::F32(data) => dot_rows(cpu, stride, embeddings, &data[range], bias, scores, width),
            RowData::Bf16(data) => dot_rows(cpu, stride, embeddings, &data[range], bias, scores, width),
        }
    }

    /// The scores of an example, one for each class of the tile.
    pub(super) fn scores(&mut self, example: usize) -> &mut [f32] {
        &mut self.scores[example * self.stride..][..self.num_classes]
    }
}
