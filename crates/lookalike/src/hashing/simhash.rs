//! SimHash: the signs of K random projections a table.
//!
//! Projections are Gaussian, so the chance that one function agrees on two
//! vectors is exactly `1 - angle / π`. A bit is 1 where the projection is above
//! zero; the zero vector has code 0. Cost: a product of a `K·L × d` matrix with
//! each block of sixteen vectors, about d/8 times that of winner-take-all.

use std::f32::consts::TAU;
use std::ops::Range;

use lookalike_kernels::{Cpu, LANES, Strided, gemm};

use super::{Block, FamilyShape, HashError, HashFamily, HashScratch};
use crate::random::{self, Stream};
use rand_xoshiro::rand_core::Rng as _;

/// Signs of Gaussian projections; see the module's description.
#[derive(Clone, Debug)]
pub struct SimHash {
    shape: FamilyShape,
    /// One row of `dim` numbers a function, table after table.
    projections: Vec<f32>,
}

impl SimHash {
    /// Draws the projections.
    pub fn draw(shape: &FamilyShape, seed: u64) -> Result<Self, HashError> {
        shape.buckets()?;
        let FamilyShape { dim, k, l, .. } = *shape;
        let mut projections = vec![0.0; k * l * dim];
        for (function, row) in projections.chunks_exact_mut(dim).enumerate() {
            fill_gaussian(row, &mut random::rng(seed, Stream::Hash, function as u64, 1));
        }
        Ok(Self { shape: *shape, projections })
    }

    /// Puts the signs of each table's K projections together, `lanes` vectors
    /// side by side.
    fn collect_signs(&self, projected: &[f32], lanes: usize, codes: &mut [u32]) {
        let tables = projected.chunks_exact(self.shape.k * lanes).zip(codes.chunks_exact_mut(lanes));
        for (projected, codes) in tables {
            codes.fill(0);
            for (function, projected) in projected.chunks_exact(lanes).enumerate() {
                for (code, &x) in codes.iter_mut().zip(projected) {
                    *code |= u32::from(x > 0.0) << function;
                }
            }
        }
    }
}

/// Independent standard normal numbers by Box and Muller.
fn fill_gaussian(out: &mut [f32], rng: &mut random::Rng) {
    for pair in out.chunks_mut(2) {
        let bits = rng.next_u64();
        // 24 bits each, as many as an f32 holds; the first never zero.
        let radius = (-2.0 * (((bits >> 40) as f32 + 1.0) / 16_777_216.0).ln()).sqrt();
        let angle = TAU * ((bits & 0xFF_FFFF) as f32 / 16_777_216.0);
        pair[0] = radius * angle.cos();
        if let Some(second) = pair.get_mut(1) {
            *second = radius * angle.sin();
        }
    }
}

impl HashFamily for SimHash {
    fn shape(&self) -> &FamilyShape {
        &self.shape
    }

    fn buckets(&self) -> usize {
        1 << self.shape.k
    }

    fn hash_block(
        &self,
        cpu: Cpu,
        block: &Block,
        tables: Range<usize>,
        scratch: &mut HashScratch,
        codes: &mut [u32],
    ) {
        let functions = tables.len() * self.shape.k;
        let rows =
            &self.projections[tables.start * self.shape.k * self.shape.dim..][..functions * self.shape.dim];
        let projections = Strided { data: rows, row_stride: self.shape.dim, column_stride: 1 };
        let vectors = Strided { data: block.values(), row_stride: LANES, column_stride: 1 };
        scratch.projected.clear();
        scratch.projected.resize(functions * LANES, 0.0);
        let projected = &mut scratch.projected;
        gemm(cpu, functions, LANES, self.shape.dim, projections, vectors, projected, LANES);
        self.collect_signs(&scratch.projected, LANES, &mut codes[..tables.len() * LANES]);
    }

    fn hash_sparse(&self, ids: &[u32], values: &[f32], codes: &mut [u32]) {
        let project = |row: &[f32]| -> f32 {
            ids.iter().zip(values).map(|(&id, value)| row[id as usize] * value).sum()
        };
        let projected: Vec<f32> = self.projections.chunks_exact(self.shape.dim).map(project).collect();
        self.collect_signs(&projected, 1, &mut codes[..self.shape.l]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashing::{Codes, Family};
    use crate::model::RowsView;

    fn family(dim: usize, k: usize, l: usize) -> SimHash {
        let shape = FamilyShape { family: Family::Simhash, dim, k, l, bin: 8, codes: Codes::Clean };
        SimHash::draw(&shape, 3).unwrap()
    }

    #[test]
    fn dense_and_sparse_vectors_have_the_same_codes() {
        let family = family(20, 3, 5);
        let mut row = vec![0.0; 32];
        (row[2], row[11], row[19]) = (1.5, -2.0, 0.25);
        let (mut dense, mut sparse, mut some) = ([9; 5], [9; 5], [9; 2]);
        for cpu in Cpu::available() {
            let rows = RowsView::f32(&row, 20);
            family.hash_rows(cpu, rows, &[0], 0..5, &mut dense);
            family.hash_rows(cpu, rows, &[0], 2..4, &mut some);
            family.hash_sparse(&[2, 11, 19], &[1.5, -2.0, 0.25], &mut sparse);
            assert_eq!(dense, sparse);
            assert_eq!(dense[2..4], some);
            assert!(dense.iter().all(|&code| code < 8));
        }
    }

    #[test]
    fn the_zero_vector_has_code_zero() {
        let mut codes = [9; 5];
        family(20, 3, 5).hash_rows(Cpu::portable(), RowsView::f32(&[0.0; 32], 20), &[0], 0..5, &mut codes);
        assert_eq!(codes, [0; 5]);
    }

    #[test]
    fn gaussian_numbers_have_mean_zero_and_variance_one() {
        let mut numbers = vec![0.0; 100_001];
        fill_gaussian(&mut numbers, &mut random::rng(0, Stream::Hash, 0, 0));
        let mean = numbers.iter().sum::<f32>() / 1e5;
        let variance = numbers.iter().map(|x| x * x).sum::<f32>() / 1e5;
        // Standard deviations 0.0032 and 0.0045: five of them.
        assert!(mean.abs() < 0.016 && (variance - 1.0).abs() < 0.023, "{mean} {variance}");
    }
}
