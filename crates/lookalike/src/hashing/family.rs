//! What a hash family is: the law, its shape, and how one is made.

use std::ops::Range;

use lookalike_kernels::{Cpu, LANES};
use serde::{Deserialize, Serialize};

use super::{Block, Dwta, SimHash};
use crate::model::RowsView;

/// K·L random functions over vectors of one dimension. Table `t` concatenates
/// its K functions into one bucket code.
///
/// Law. A family is a value: the same shape and seed give the same codes, on
/// any thread and in any company (a vector's code does not depend on the other
/// vectors of its block nor on which other tables are asked for). Every code is
/// below [`buckets`](Self::buckets). Table `t`'s functions do not depend on how
/// many tables there are. A vector given densely or sparsely has the same codes
/// (up to rounding where a family sums). The all-zero vector has code 0 in
/// every table. For every two vectors, the chance over seeds that one function
/// agrees rises with their similarity.
pub trait HashFamily: Send + Sync + std::fmt::Debug {
    /// What it was drawn with.
    fn shape(&self) -> &FamilyShape;

    /// Numbers in a vector.
    fn dim(&self) -> usize {
        self.shape().dim
    }

    /// K, the functions of one table.
    fn functions(&self) -> usize {
        self.shape().k
    }

    /// L, the number of tables.
    fn tables(&self) -> usize {
        self.shape().l
    }

    /// The number of possible codes of a table.
    fn buckets(&self) -> usize;

    /// Codes of the vectors of a block: `codes[(t - tables.start) * LANES + lane]`.
    fn hash_block(
        &self,
        cpu: Cpu,
        block: &Block,
        tables: Range<usize>,
        scratch: &mut HashScratch,
        codes: &mut [u32],
    );

    /// Codes in all tables of a vector given by its non-zero values; ids are
    /// ascending, distinct and below [`dim`](Self::dim).
    fn hash_sparse(&self, ids: &[u32], values: &[f32], codes: &mut [u32]);

    /// Codes of the rows `ids` of `rows` in `tables`, row after row:
    /// `codes[i * tables.len() + (t - tables.start)]` for the i-th id.
    fn hash_rows(&self, cpu: Cpu, rows: RowsView<'_>, ids: &[u32], tables: Range<usize>, codes: &mut [u32]) {
        let mut block = Block::default();
        let mut scratch = HashScratch::default();
        let mut lanes = vec![0; tables.len() * LANES];
        for (ids, codes) in ids.chunks(LANES).zip(codes.chunks_mut(tables.len().max(1) * LANES)) {
            block.load(cpu, rows, ids);
            self.hash_block(cpu, &block, tables.clone(), &mut scratch, &mut lanes);
            for (lane, codes) in codes.chunks_mut(tables.len()).enumerate() {
                for (t, code) in codes.iter_mut().enumerate() {
                    *code = lanes[t * LANES + lane];
                }
            }
        }
    }
}

/// Buffers a family needs while hashing; one a thread, used again and again.
#[derive(Clone, Debug, Default)]
pub struct HashScratch {
    /// One bit a lane: which values, then which bins, are not zero.
    pub(super) masks: Vec<u16>,
    /// Projections of a block.
    pub(super) projected: Vec<f32>,
}

/// The families by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Densified winner-take-all (paper, appendix A).
    #[default]
    Dwta,
    /// Signs of random projections.
    Simhash,
}

/// How the K positions of a winner-take-all table become one code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Codes {
    /// Side by side: `ceil(log2 bin)` bits each, so different positions always
    /// give different codes.
    #[default]
    Clean,
    /// As the paper's public code does: shifted by `floor(ln bin)` bits and
    /// added, so codes overlap. K = 6 with bins of 8 reaches 9,556 buckets
    /// instead of 2^18; needed only to reproduce the paper's K and L.
    Overlapped,
}

/// Everything but the seed that makes a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FamilyShape {
    /// Which family.
    pub family: Family,
    /// Numbers in a vector.
    pub dim: usize,
    /// K, functions a table.
    pub k: usize,
    /// L, tables.
    pub l: usize,
    /// Dimensions in a bin (winner-take-all only).
    pub bin: usize,
    /// How codes are put together (winner-take-all only).
    pub codes: Codes,
}

/// A shape no family can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// Nothing to hash, nothing to hash with, or far too much of it.
    #[error(
        "a hash family needs at least 1 dimension, 1 to {} functions a table and 1 to {} tables, \
         but got dimension {dim}, K = {k}, L = {l}",
        FamilyShape::FUNCTIONS_MAX,
        FamilyShape::TABLES_MAX
    )]
    Size {
        /// Numbers in a vector.
        dim: usize,
        /// Functions a table.
        k: usize,
        /// Tables.
        l: usize,
    },
    /// A bin of fewer than two dimensions has no winner.
    #[error("a bin must have from 2 to 256 dimensions, but got {bin}; the usual size is 8")]
    Bin {
        /// Dimensions in a bin.
        bin: usize,
    },
    /// The offsets of one table would not fit in memory.
    #[error(
        "K = {k} functions of {per_function} values each give more than {} buckets a table; use a smaller K",
        FamilyShape::BUCKETS_MAX
    )]
    Buckets {
        /// Functions a table.
        k: usize,
        /// Values one function can take.
        per_function: usize,
    },
}

impl FamilyShape {
    /// The most functions a table may have.
    pub const FUNCTIONS_MAX: usize = 24;

    /// The most tables.
    pub const TABLES_MAX: usize = 1 << 16;

    /// The most buckets a table may have: 64 MB of offsets.
    pub const BUCKETS_MAX: usize = 1 << 24;

    /// Values one function can take.
    pub fn values_per_function(&self) -> usize {
        match self.family {
            Family::Dwta => self.bin.min(self.dim),
            Family::Simhash => 2,
        }
    }

    /// Bits by which each further function of a table is shifted in the code.
    pub fn shift(&self) -> u32 {
        let values = self.values_per_function();
        match (self.family, self.codes) {
            (Family::Dwta, Codes::Overlapped) => (values as f64).ln().floor() as u32,
            _ => values.next_power_of_two().trailing_zeros(),
        }
    }

    /// The number of possible codes of a table: one more than the largest.
    pub fn buckets(&self) -> Result<usize, HashError> {
        self.check()?;
        let per_function = self.values_per_function();
        // At most 24 functions shifted by at most 8 bits each, values below 256.
        let largest: u128 = (0..self.k as u32)
            .map(|function| (per_function as u128 - 1) << (self.shift() * function).min(100))
            .sum();
        if largest >= Self::BUCKETS_MAX as u128 {
            return Err(HashError::Buckets { k: self.k, per_function });
        }
        Ok(largest as usize + 1)
    }

    fn check(&self) -> Result<(), HashError> {
        let Self { dim, k, l, bin, .. } = *self;
        if dim == 0 || !(1..=Self::FUNCTIONS_MAX).contains(&k) || !(1..=Self::TABLES_MAX).contains(&l) {
            return Err(HashError::Size { dim, k, l });
        }
        if self.family == Family::Dwta && !(2..=256).contains(&bin) {
            return Err(HashError::Bin { bin });
        }
        Ok(())
    }

    /// Draws a family of this shape.
    pub fn draw(&self, seed: u64) -> Result<Box<dyn HashFamily>, HashError> {
        Ok(match self.family {
            Family::Dwta => Box::new(Dwta::draw(self, seed)?),
            Family::Simhash => Box::new(SimHash::draw(self, seed)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(k: usize, codes: Codes) -> FamilyShape {
        FamilyShape { family: Family::Dwta, dim: 128, k, l: 1, bin: 8, codes }
    }

    #[test]
    fn the_papers_public_code_reaches_9556_buckets() {
        assert_eq!(shape(6, Codes::Overlapped).buckets(), Ok(9_556));
        assert_eq!(shape(6, Codes::Clean).buckets(), Ok(1 << 18));
    }

    #[test]
    fn impossible_shapes_are_refused_with_a_reason() {
        let bad = |change: fn(&mut FamilyShape)| {
            let mut shape = shape(4, Codes::Clean);
            change(&mut shape);
            shape.buckets().unwrap_err()
        };
        assert_eq!(bad(|s| s.k = 0), HashError::Size { dim: 128, k: 0, l: 1 });
        assert_eq!(bad(|s| s.bin = 1), HashError::Bin { bin: 1 });
        assert_eq!(bad(|s| s.k = 9), HashError::Buckets { k: 9, per_function: 8 });
        assert_eq!(bad(|s| s.k = 24), HashError::Buckets { k: 24, per_function: 8 });
        assert_eq!(bad(|s| s.l = 1 << 40), HashError::Size { dim: 128, k: 4, l: 1 << 40 });
        assert!(bad(|s| s.k = 9).to_string().contains("smaller K"));
    }
}
