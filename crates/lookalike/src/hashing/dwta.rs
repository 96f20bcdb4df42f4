//! Densified winner-take-all hashing (paper, appendix A).
//!
//! A permutation of the dimensions is cut into bins; a hash is the position of
//! the largest value in its bin, zeroes included, the first one if there are
//! several. `ceil(K·L / floor(d / bin))` permutations supply the K·L bins:
//! whole bins only, so the last `d mod bin` dimensions of a permutation go
//! unused. Bins of one permutation share no dimension and are therefore not
//! quite independent; bins of different permutations are.
//!
//! **Densification.** In a bin whose values are all exactly zero no position
//! wins. Such a bin takes the hash of the nearest bin that is not empty, counted
//! round the circle of all K·L bins: one after, one before, two after, two
//! before, and so on. If all bins are empty every hash is 0.
//!
//! **Cost.** Sixteen vectors at a time: `bin - 1` compares and blends a function
//! for all sixteen. The kernel gives an empty bin position 0, that is a
//! contribution of nothing to the code, so densification only has to *add* what
//! was borrowed. Blocks without a single zero, as class vectors are, pay one
//! pass over their values for it; ReLU embeddings pay about as much again as
//! for the hashing.

use std::ops::Range;

use lookalike_kernels::{Cpu, LANES, dwta_codes};

use super::{Block, FamilyShape, HashError, HashFamily, HashScratch};
use crate::random::{self, Stream, below};
use rand_xoshiro::rand_core::Rng as _;

/// Densified winner-take-all; see the module's description.
#[derive(Clone, Debug)]
pub struct Dwta {
    shape: FamilyShape,
    bin: usize,
    shift: u32,
    buckets: usize,
    /// The dimensions of every bin, one bin after the other.
    dims: Vec<u32>,
}

impl Dwta {
    /// Draws the permutations.
    pub fn draw(shape: &FamilyShape, seed: u64) -> Result<Self, HashError> {
        let buckets = shape.buckets()?;
        let bin = shape.values_per_function();
        let used = shape.dim / bin * bin;
        let len = shape.k * shape.l * bin;
        let mut dims = Vec::with_capacity(len.next_multiple_of(used));
        while dims.len() < len {
            let permutation = (dims.len() / used) as u64;
            dims.extend_from_slice(&shuffled(shape.dim, seed, permutation)[..used]);
        }
        dims.truncate(len);
        Ok(Self { shape: *shape, bin, shift: shape.shift(), buckets, dims })
    }

    fn bins(&self) -> usize {
        self.shape.k * self.shape.l
    }

    fn dims_of(&self, bin: usize) -> &[u32] {
        &self.dims[bin * self.bin..(bin + 1) * self.bin]
    }

    /// The winner of one bin of one vector among `lanes` side by side.
    fn winner(&self, values: &[f32], lanes: usize, lane: usize, bin: usize) -> u32 {
        let value = |position: usize| values[self.dims_of(bin)[position] as usize * lanes + lane];
        let mut best = 0;
        for position in 1..self.bin {
            if value(position) > value(best) {
                best = position;
            }
        }
        best as u32
    }

    /// Adds to the codes what empty bins borrow. `filled` has, for every bin of
    /// every table, a bit for each lane in which it is not empty.
    fn densify(&self, values: &[f32], lanes: usize, filled: &[u16], tables: Range<usize>, codes: &mut [u32]) {
        let anywhere = filled.iter().fold(0, |all, &lanes| all | lanes);
        for (table, codes) in tables.zip(codes.chunks_exact_mut(lanes)) {
            for function in 0..self.shape.k {
                let bin = table * self.shape.k + function;
                let mut empty = anywhere & !filled[bin];
                while empty != 0 {
                    let lane = empty.trailing_zeros() as usize;
                    empty &= empty - 1;
                    let donor = nearest_filled(filled, bin, 1 << lane);
                    let borrowed = self.winner(values, lanes, lane, donor);
                    codes[lane] += borrowed << (self.shift * function as u32);
                }
            }
        }
    }
}

/// The nearest bin with the lane's bit set; some bin must have it.
fn nearest_filled(filled: &[u16], bin: usize, lane: u16) -> usize {
    let bins = filled.len();
    let wrap = |at: usize| if at < bins { at } else { at - bins };
    (1..bins)
        .flat_map(|distance| [wrap(bin + distance), wrap(bin + bins - distance)])
        .find(|&other| filled[other] & lane != 0)
        .unwrap_or(bin)
}

/// A permutation of `0..len` by Fisher and Yates.
fn shuffled(len: usize, seed: u64, permutation: u64) -> Vec<u32> {
    let mut rng = random::rng(seed, Stream::Hash, permutation, 0);
    let mut order: Vec<u32> = (0..len as u32).collect();
    for last in (1..len).rev() {
        order.swap(last, below(rng.next_u64(), last as u32 + 1) as usize);
    }
    order
}

impl HashFamily for Dwta {
    fn shape(&self) -> &FamilyShape {
        &self.shape
    }

    fn buckets(&self) -> usize {
        self.buckets
    }

    fn hash_block(
        &self,
        cpu: Cpu,
        block: &Block,
        tables: Range<usize>,
        scratch: &mut HashScratch,
        codes: &mut [u32],
    ) {
        let values = &block.values()[..self.shape.dim * LANES];
        let codes = &mut codes[..tables.len() * LANES];
        let per_table = self.shape.k * self.bin;
        let dims = &self.dims[tables.start * per_table..tables.end * per_table];
        dwta_codes(cpu, values, dims, self.bin, self.shape.k, self.shift, codes);

        // Counting does not stop early and so runs in vector registers.
        let zeroes: usize = values.iter().map(|&x| usize::from(x == 0.0)).sum();
        if zeroes < self.bin {
            return; // too few to empty a bin
        }
        scratch.masks.clear();
        scratch.masks.extend(values.chunks_exact(LANES).map(|lanes| {
            let bit = |(lane, &x): (usize, &f32)| u16::from(x != 0.0) << lane;
            lanes.iter().enumerate().map(bit).fold(0, |mask, bit| mask | bit)
        }));
        for bin in 0..self.bins() {
            let filled = self.dims_of(bin).iter().fold(0, |mask, &dim| mask | scratch.masks[dim as usize]);
            scratch.masks.push(filled);
        }
        self.densify(values, LANES, &scratch.masks[self.shape.dim..], tables, codes);
    }

    fn hash_sparse(&self, ids: &[u32], values: &[f32], codes: &mut [u32]) {
        let mut dense = vec![0.0; self.shape.dim];
        for (&id, &value) in ids.iter().zip(values) {
            dense[id as usize] = value;
        }
        let is_filled = |bin| self.dims_of(bin).iter().any(|&dim| dense[dim as usize] != 0.0);
        let filled: Vec<u16> = (0..self.bins()).map(|bin| u16::from(is_filled(bin))).collect();
        for (table, code) in codes.iter_mut().enumerate() {
            *code = (0..self.shape.k)
                .map(|k| self.winner(&dense, 1, 0, table * self.shape.k + k) << (self.shift * k as u32))
                .sum();
        }
        self.densify(&dense, 1, &filled, 0..self.shape.l, codes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hashing::{Codes, Family};
    use crate::model::RowsView;

    fn shape(dim: usize, k: usize, l: usize) -> FamilyShape {
        FamilyShape { family: Family::Dwta, dim, k, l, bin: 8, codes: Codes::Clean }
    }

    /// The definition, word by word: no blocks, no masks.
    fn naive(family: &Dwta, vector: &[f32]) -> Vec<u32> {
        let bins = family.bins() as isize;
        let bin_values = |bin: isize| -> Vec<f32> {
            let dims = family.dims_of(bin.rem_euclid(bins) as usize);
            dims.iter().map(|&dim| vector[dim as usize]).collect()
        };
        let hash = |bin: isize| -> u32 {
            let order = (0..bins).flat_map(|distance| [bin + distance, bin - distance]);
            for other in order {
                let values = bin_values(other);
                if values.iter().any(|&x| x != 0.0) {
                    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    return values.iter().position(|&x| x == largest).unwrap() as u32;
                }
            }
            0
        };
        let code = |table: usize| {
            (0..family.shape.k)
                .map(|k| hash((table * family.shape.k + k) as isize) << (family.shift as usize * k))
                .sum()
        };
        (0..family.shape.l).map(code).collect()
    }

    fn rows_of(vectors: &[Vec<f32>], dim: usize) -> Vec<f32> {
        let stride = lookalike_kernels::padded(dim);
        let mut data = vec![0.0; vectors.len() * stride];
        for (row, vector) in data.chunks_mut(stride).zip(vectors) {
            row[..dim].copy_from_slice(vector);
        }
        data
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn dense_sparse_and_definition_agree(
            dim in 1usize..40,
            k in 1usize..5,
            l in 1usize..7,
            overlapped in any::<bool>(),
            seed in any::<u64>(),
            // Mostly zeroes, some equal, some negative: ties and empty bins abound.
            raw in prop::collection::vec(prop_oneof![4 => Just(0i8), 3 => -3i8..4], 21 * 40),
        ) {
            let codes = if overlapped { Codes::Overlapped } else { Codes::Clean };
            let family = Dwta::draw(&FamilyShape { codes, ..shape(dim, k, l) }, seed).unwrap();
            let vectors: Vec<Vec<f32>> =
                raw.chunks(40).map(|v| v[..dim].iter().map(|&x| f32::from(x)).collect()).collect();
            let data = rows_of(&vectors, dim);
            let ids: Vec<u32> = (0..21).rev().collect();
            let mut dense = vec![u32::MAX; 21 * l];
            for cpu in Cpu::available() {
                family.hash_rows(cpu, RowsView::f32(&data, dim), &ids, 0..l, &mut dense);
                for (codes, &id) in dense.chunks(l).zip(&ids) {
                    let vector = &vectors[id as usize];
                    prop_assert_eq!(codes, naive(&family, vector));
                    prop_assert!(codes.iter().all(|&c| (c as usize) < family.buckets()));
                    let (ids, values): (Vec<u32>, Vec<f32>) =
                        (0u32..).zip(vector.iter().copied()).filter(|&(_, x)| x != 0.0).unzip();
                    let mut sparse = vec![0; l];
                    family.hash_sparse(&ids, &values, &mut sparse);
                    prop_assert_eq!(codes, sparse);
                }
            }
        }
    }

    #[test]
    fn a_range_of_tables_gives_the_same_codes_as_all() {
        let family = Dwta::draw(&shape(20, 2, 6), 1).unwrap();
        let mut vector = vec![0.0; 32];
        vector[3] = 1.0;
        let rows = RowsView::f32(&vector, 20);
        let (mut all, mut some) = ([0; 6], [0; 2]);
        family.hash_rows(Cpu::portable(), rows, &[0], 0..6, &mut all);
        family.hash_rows(Cpu::portable(), rows, &[0], 3..5, &mut some);
        assert_eq!(all[3..5], some);
        let fewer = Dwta::draw(&shape(20, 2, 4), 1).unwrap();
        assert_eq!(family.dims[..fewer.dims.len()], fewer.dims, "tables do not depend on L");
    }

    #[test]
    fn the_zero_vector_has_code_zero() {
        let family = Dwta::draw(&shape(20, 3, 5), 9).unwrap();
        let mut codes = [7; 5];
        family.hash_rows(Cpu::portable(), RowsView::f32(&[0.0; 32], 20), &[0], 0..5, &mut codes);
        assert_eq!(codes, [0; 5]);
        codes = [7; 5];
        family.hash_sparse(&[], &[], &mut codes);
        assert_eq!(codes, [0; 5]);
    }

    #[test]
    fn every_permutation_uses_a_dimension_at_most_once() {
        let family = Dwta::draw(&shape(20, 3, 5), 9).unwrap();
        for permutation in family.dims.chunks(16) {
            let mut sorted = permutation.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), permutation.len());
        }
    }
}
