//! Scores of a tile: some hundred classes against some hundred examples.
//!
//! The scores of an example must lie side by side to be searched, so the class
//! vectors are the right-hand operand of the product and are laid out
//! `dim × classes` first. That costs one move for each element of a row, where
//! the product does one multiplication an example.

use std::ops::Range;

use lookalike_kernels::{
    Cpu, Element, FLAG_BITS, LANES, Strided, gather_dot, gemm, padded, transpose_rows,
};

use crate::model::{RowData, RowsView};

/// Classes in a tile. Their transposed vectors (128 KiB at 128 dimensions) and
/// the embeddings of a block of examples stay in the second-level cache.
pub(super) const TILE_CLASSES: usize = 256;

/// Examples multiplied at a time, few enough that their scores (64 KiB) are
/// still near when they are searched.
pub(super) const TILE_EXAMPLES: usize = 64;

/// Distance between rows of the tile's matrices. A power of two would put all
/// rows in the same few sets of the first-level cache; one line more spreads
/// them.
const TILE_STRIDE: usize = TILE_CLASSES + LANES;

/// Below this many examples, turning the class vectors around costs more than
/// plain dot products with them.
const FEW_EXAMPLES: usize = 8;

/// Class vectors of a tile, ready to be multiplied, and the last scores.
#[derive(Debug, Default)]
pub(super) struct Tile {
    classes: Range<usize>,
    /// `dim × classes`.
    transposed: Vec<f32>,
    /// Sixteen rows on their way into `transposed`.
    panel: Vec<f32>,
    bias: Vec<f32>,
    /// `examples × classes`.
    scores: Vec<f32>,
}

impl Tile {
    /// Takes up a range of at most [`TILE_CLASSES`] classes, to be multiplied
    /// with `examples` examples in all.
    pub(super) fn load(
        &mut self,
        cpu: Cpu,
        class_vectors: RowsView<'_>,
        bias: &[f32],
        classes: Range<usize>,
        examples: usize,
    ) {
        self.bias.clear();
        self.bias.extend_from_slice(&bias[classes.clone()]);
        self.bias.resize(padded(classes.len()), 0.0);
        self.scores.resize(TILE_EXAMPLES * TILE_STRIDE, 0.0);
        self.classes = classes;
        if examples >= FEW_EXAMPLES {
            match class_vectors.data {
                RowData::F32(data) => self.transpose(cpu, data, &class_vectors),
                RowData::Bf16(data) => self.transpose(cpu, data, &class_vectors),
            }
        } else {
            self.transposed.clear();
        }
    }

    fn transpose<T: Element>(&mut self, cpu: Cpu, data: &[T], view: &RowsView<'_>) {
        self.transposed.resize(view.dim * TILE_STRIDE, 0.0);
        self.panel.resize(view.dim * LANES, 0.0);
        let last = self.classes.end - 1;
        for (panel, first) in self.classes.clone().step_by(LANES).enumerate() {
            // Past the end the last class stands in: those scores are not read.
            let rows: [&[T]; LANES] = std::array::from_fn(|r| {
                &data[(first + r).min(last) * view.stride..][..view.stride]
            });
            transpose_rows(cpu, &rows, view.dim, &mut self.panel);
            let columns = self.transposed.chunks_exact_mut(TILE_STRIDE);
            for (to, from) in columns.zip(self.panel.chunks_exact(LANES)) {
                to[panel * LANES..][..LANES].copy_from_slice(from);
            }
        }
    }

    /// Scores at most [`TILE_EXAMPLES`] embeddings; read them with [`Tile::scores`].
    pub(super) fn score(&mut self, cpu: Cpu, class_vectors: RowsView<'_>, embeddings: &[f32]) {
        if !self.transposed.is_empty() {
            self.multiply(cpu, class_vectors, embeddings);
        } else {
            match class_vectors.data {
                RowData::F32(data) => self.dot(cpu, data, class_vectors.stride, embeddings),
                RowData::Bf16(data) => self.dot(cpu, data, class_vectors.stride, embeddings),
            }
        }
    }

    fn multiply(&mut self, cpu: Cpu, class_vectors: RowsView<'_>, embeddings: &[f32]) {
        let RowsView { dim, stride, .. } = class_vectors;
        let (examples, classes) = (embeddings.len() / stride, self.bias.len());
        for row in self.scores.chunks_exact_mut(TILE_STRIDE).take(examples) {
            row[..classes].copy_from_slice(&self.bias);
        }
        let a = Strided { data: embeddings, row_stride: stride, column_stride: 1 };
        let b = Strided { data: &self.transposed, row_stride: TILE_STRIDE, column_stride: 1 };
        gemm(cpu, examples, classes, dim, a, b, &mut self.scores, TILE_STRIDE);
    }

    fn dot<T: Element>(&mut self, cpu: Cpu, data: &[T], stride: usize, embeddings: &[f32]) {
        let examples = embeddings.len() / stride;
        let entries: [u32; FEW_EXAMPLES] = std::array::from_fn(|e| (e as u32) << FLAG_BITS);
        let mut products = [0.0; FEW_EXAMPLES];
        for (column, class) in self.classes.clone().enumerate() {
            let row = &data[class * stride..][..stride];
            gather_dot(cpu, row, embeddings, &entries[..examples], &mut products[..examples]);
            for (example, product) in products[..examples].iter().enumerate() {
                self.scores[example * TILE_STRIDE + column] = self.bias[column] + product;
            }
        }
    }

    /// The last scores of an example, one for each class of the tile.
    pub(super) fn scores(&mut self, example: usize) -> &mut [f32] {
        &mut self.scores[example * TILE_STRIDE..][..self.classes.len()]
    }
}
