//! Scores of a tile: some hundred classes against some hundred examples.
//!
//! The scores of an example lie side by side, so that they can be searched 16 at
//! a time; in the matrix product the class vectors are therefore the right-hand
//! operand, read along its columns.

use std::ops::Range;

use lookalike_kernels::{Cpu, Element, FLAG_BITS, LANES, Strided, gather_dot, gemm};

use crate::model::{RowData, RowsView};

/// Classes in a tile. Their vectors (128 KiB at 128 dimensions), the embeddings
/// of the examples and the scores stay in the second-level cache together.
pub(super) const TILE_CLASSES: usize = 256;

/// Examples in a tile: as many share the packing of the class vectors.
pub(super) const TILE_EXAMPLES: usize = 256;

/// Distance between the scores of two examples. A power of two would put them
/// in the same few sets of the first-level cache; one line more spreads them.
const TILE_STRIDE: usize = TILE_CLASSES + LANES;

/// Up to this many examples, preparing a matrix product costs more than it
/// saves against plain dot products.
const FEW_EXAMPLES: usize = 8;

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
        let RowsView { dim, stride, data } = class_vectors;
        let range = classes.start * stride..classes.end * stride;
        let bias = &bias[classes];
        self.num_classes = bias.len();
        self.scores.resize(TILE_EXAMPLES * TILE_STRIDE, 0.0);
        let examples = embeddings.len() / stride;
        for row in self.scores.chunks_exact_mut(TILE_STRIDE).take(examples) {
            row[..bias.len()].copy_from_slice(bias);
        }
        match data {
            RowData::F32(data) => self.add_products(cpu, &data[range], dim, stride, embeddings),
            RowData::Bf16(data) => self.add_products(cpu, &data[range], dim, stride, embeddings),
        }
    }

    fn add_products<T: Element>(
        &mut self,
        cpu: Cpu,
        rows: &[T],
        dim: usize,
        stride: usize,
        embeddings: &[f32],
    ) {
        let examples = embeddings.len() / stride;
        if examples <= FEW_EXAMPLES {
            self.add_dot_products(cpu, rows, stride, embeddings);
            return;
        }
        let a = Strided { data: embeddings, row_stride: stride, column_stride: 1 };
        let b = Strided { data: rows, row_stride: 1, column_stride: stride };
        gemm(cpu, examples, self.num_classes, dim, a, b, &mut self.scores, TILE_STRIDE);
    }

    fn add_dot_products<T: Element>(&mut self, cpu: Cpu, rows: &[T], stride: usize, embeddings: &[f32]) {
        let examples = embeddings.len() / stride;
        let entries: [u32; FEW_EXAMPLES] = std::array::from_fn(|e| (e as u32) << FLAG_BITS);
        let mut products = [0.0; FEW_EXAMPLES];
        for (column, row) in rows.chunks_exact(stride).enumerate() {
            gather_dot(cpu, row, embeddings, &entries[..examples], &mut products[..examples]);
            for (example, product) in products[..examples].iter().enumerate() {
                self.scores[example * TILE_STRIDE + column] += product;
            }
        }
    }

    /// The scores of an example, one for each class of the tile.
    pub(super) fn scores(&mut self, example: usize) -> &mut [f32] {
        &mut self.scores[example * TILE_STRIDE..][..self.num_classes]
    }
}
