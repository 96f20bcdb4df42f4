//! The hidden activations of a batch: what the output layer sees of examples.

use super::view::{RowData, RowsView};

/// A row an example, each of `dim` numbers padded with zeroes to `stride`.
/// Embeddings are always single precision, however parameters are stored.
#[derive(Clone, Copy, Debug)]
pub struct Embeddings<'a> {
    rows: &'a [f32],
    dim: usize,
    stride: usize,
}

impl<'a> Embeddings<'a> {
    /// Rows that lie `stride` apart.
    ///
    /// # Panics
    /// If `rows` is no whole number of rows, or rows are shorter than `dim`.
    pub fn new(rows: &'a [f32], dim: usize, stride: usize) -> Self {
        assert!(stride >= dim && (rows.is_empty() || rows.len().is_multiple_of(stride)), "whole rows");
        Self { rows, dim, stride }
    }

    /// Rows padded as the kernels want them.
    ///
    /// # Panics
    /// If `rows` is no whole number of rows.
    pub fn padded(rows: &'a [f32], dim: usize) -> Self {
        Self::new(rows, dim, lookalike_kernels::padded(dim))
    }

    /// All numbers, row after row.
    pub fn rows(&self) -> &'a [f32] {
        self.rows
    }

    /// Numbers in a row that count.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Distance between rows.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The number of examples.
    pub fn len(&self) -> usize {
        self.rows.len().checked_div(self.stride).unwrap_or(0)
    }

    /// Whether there is no example.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// An example's embedding, padding included.
    pub fn row(&self, example: usize) -> &'a [f32] {
        &self.rows[example * self.stride..][..self.stride]
    }

    /// The same as rows like any others, to be hashed.
    pub fn view(&self) -> RowsView<'a> {
        RowsView { data: RowData::F32(self.rows), dim: self.dim, stride: self.stride }
    }
}
