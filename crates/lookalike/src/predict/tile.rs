//! Scores of a tile: some hundred classes against some hundred examples.
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

/// Classes in a tile. Their vectors (128 KiB at 128 dimensions), the embeddings
/// of the examples and the scores stay in the second-level cache together.
pub(super) const TILE_CLASSES: usize = 256;

/// Examples in a tile: as many share the way of the class vectors from memory.
pub(super) const TILE_EXAMPLES: usize = 256;

/// Distance between the scores of two examples. A power of two would put them
/// in the same few sets of the first-level cache; one line more spreads them.
const TILE_STRIDE: usize = TILE_CLASSES + LANES;

/// The scores of examples (rows) for consecutive classes (columns).
#[derive(Debug, Default)]
pub(super) struct Tile {
    num_classes: usize,
    scores: Vec<f32>,
}

impl Tile {
    /// Scores at most [`TILE_EXAMPLES`] embeddings for at most [`TILE_CLASSES`]
    /// classes.
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
        self.scores.resize(TILE_EXAMPLES * TILE_STRIDE, 0.0);
        let scores = &mut self.scores;
        match data {
            RowData::F32(data) => dot_rows(cpu, stride, embeddings, &data[range], bias, scores, TILE_STRIDE),
            RowData::Bf16(data) => dot_rows(cpu, stride, embeddings, &data[range], bias, scores, TILE_STRIDE),
        }
    }

    /// The scores of an example, one for each class of the tile.
    pub(super) fn scores(&mut self, example: usize) -> &mut [f32] {
        &mut self.scores[example * TILE_STRIDE..][..self.num_classes]
    }
}
