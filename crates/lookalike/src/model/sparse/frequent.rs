//! Sparse weights of frequent features in bytes: a number for every class.
//!
//! A few features that a good part of all classes weigh are most of the additions of a query.
//! As a row of whole numbers, one for each class, weight or none, such a feature costs a
//! twentieth of an addition a class, and half a step of the row in exactness: for whoever
//! wants to know which classes are worth a look. Memory: a byte a class for each of them.

use lookalike_kernels::{COLUMN_BLOCK, Cpu, add_coded_rows};
use lookalike_mapped::Buffer;

use super::Postings;

/// The largest number of a row.
const CODE_MAX: f32 = 127.0;
/// This feature has no row.
const NO_ROW: u32 = u32::MAX;
/// Rows that are read side by side.
const ROWS_TOGETHER: usize = 8;

/// A row for each frequent feature.
#[derive(Clone, Debug)]
pub struct FrequentRows {
    /// By feature: which row is its own, or [`NO_ROW`].
    rows: Vec<u32>,
    codes: Buffer<i8>,
    /// Distance between rows.
    stride: usize,
    /// What each row's numbers are multiplied with.
    scales: Vec<f32>,
}

/// A row, and what its numbers are multiplied with for an example.
pub type WeightedRow = (u32, f32);

impl FrequentRows {
    /// It starts no parallel work, so that it may be made on first use.
    pub(super) fn new(postings: &Postings, num_features: usize, num_classes: usize) -> Self {
        let stride = num_classes.next_multiple_of(COLUMN_BLOCK);
        let mut rows = vec![NO_ROW; num_features];
        let frequent: Vec<u32> = (0..num_features as u32).filter(|&id| postings.is_frequent(id)).collect();
        let mut codes = Buffer::zeroed(frequent.len() * stride);
        let mut scales = Vec::with_capacity(frequent.len());
        for ((number, &feature), row) in (0..).zip(&frequent).zip(codes.chunks_exact_mut(stride.max(1))) {
            rows[feature as usize] = number;
            let (classes, weights) = postings.of(feature);
            let largest = weights.iter().fold(0.0, |most: f32, weight| most.max(weight.abs()));
            let inverse = if largest > 0.0 { CODE_MAX / largest } else { 0.0 };
            for (&class, weight) in classes.iter().zip(weights) {
                row[class as usize] = (weight * inverse).round() as i8;
            }
            scales.push(largest / CODE_MAX);
        }
        Self { rows, codes, stride, scales }
    }

    /// A feature's row for an example that has `factor` of it, and half a step of it: by how
    /// much what it adds may be wrong, but for rounding. None where a feature has no row.
    pub fn of(&self, feature: u32, factor: f32) -> Option<(WeightedRow, f32)> {
        let row = self.rows[feature as usize];
        let step = factor * self.scales.get(row as usize)?;
        Some(((row, step), 0.5 * step.abs()))
    }

    /// Whether a feature has a row.
    pub fn has(&self, feature: u32) -> bool {
        self.rows[feature as usize] != NO_ROW
    }

    /// Adds rows to scores of consecutive classes, of which there are whole blocks of
    /// [`COLUMN_BLOCK`], beyond the last class too.
    pub fn add(&self, cpu: Cpu, rows: &[WeightedRow], first: usize, scores: &mut [f32]) {
        for rows in rows.chunks(ROWS_TOGETHER) {
            let mut together = [(&self.codes[..0], 0.0); ROWS_TOGETHER];
            for (place, &(row, step)) in together.iter_mut().zip(rows) {
                *place = (&self.codes[row as usize * self.stride + first..][..scores.len()], step);
            }
            add_coded_rows(cpu, &together[..rows.len()], scores);
        }
    }
}
