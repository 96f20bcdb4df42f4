//! The order in which is summed over all classes, and over all features.
//!
//! A floating-point sum depends on its order. So that ranks get the bits of one process,
//! keys (classes or features) are cut into [`RANGES`] ranges, whoever holds them: within a
//! range numbers are added up one after the other, and ranges are joined pairwise,
//! neighbours first: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). Where the number of ranks
//! divides that of ranges, a rank has neighbouring ranges that are a whole branch of this
//! tree. It sends their sum alone, and ranks join what they have in the same way
//! (`ordered`). Other numbers of ranks have a tree of their own.

use std::ops::{AddAssign, Range};

use super::Reducer;

/// Ranges of one process, and so the largest number of ranks with its bits.
pub const RANGES: usize = 8;

/// Keys are sorted in blocks ([`crate::train`]), of which there are so many, about: ranges
/// begin where blocks do.
const BLOCKS: usize = 1024;

/// The ranges of keys that are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges {
    count: usize,
    /// Of all ranks.
    ranges: usize,
    /// The first one here, and how many are here.
    first: usize,
    len: usize,
    block_bits: u32,
}

impl Ranges {
    /// Of so many keys, those of one rank of so many.
    pub fn of_rank(count: usize, rank: usize, ranks: usize) -> Self {
        let len = match RANGES.is_multiple_of(ranks) {
            true => RANGES / ranks,
            false => RANGES.div_ceil(ranks).next_power_of_two(),
        };
        // Every rank has a block at least, if there are keys enough.
        let blocks = BLOCKS.max(4 * len * ranks);
        let block_bits = count.div_ceil(blocks).next_power_of_two().trailing_zeros();
        Self { count, ranges: len * ranks, first: rank * len, len, block_bits }
    }

    /// All of so many keys.
    pub fn whole(count: usize) -> Self {
        Self::of_rank(count, 0, 1)
    }

    /// The keys that are here.
    pub fn keys(&self) -> Range<usize> {
        self.start(self.first)..self.start(self.first + self.len)
    }

    /// Whether all keys are here.
    pub fn is_whole(&self) -> bool {
        self.len == self.ranges
    }

    /// The number of ranges that are here.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no range is here, which does not happen.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The ranges that are here, counted from the first key that is.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Range<usize>> + Clone + use<> {
        let (this, first) = (*self, self.keys().start);
        (self.first..self.first + self.len)
            .map(move |range| this.start(range) - first..this.start(range + 1) - first)
    }

    /// Blocks of keys have two to the power of this many, or of fewer: all ranges begin
    /// with a block, counted from the first key that is here.
    pub fn block_bits(&self) -> u32 {
        self.block_bits
    }

    fn start(&self, range: usize) -> usize {
        let start = (self.count as u128 * range as u128 / self.ranges as u128) as usize;
        if range == self.ranges { start } else { start >> self.block_bits << self.block_bits }
    }
}

/// Joins neighbouring blocks of `len` numbers pairwise, until the first has what all had.
pub fn join_in_tree<T: Copy>(blocks: &mut [T], len: usize, join: impl Fn(T, T) -> T) {
    let mut distance = len.max(1);
    while distance < blocks.len() {
        for pair in blocks.chunks_mut(2 * distance).filter(|pair| pair.len() > distance) {
            let (left, right) = pair.split_at_mut(distance);
            left[..len].iter_mut().zip(&right[..len]).for_each(|(all, &one)| *all = join(*all, one));
        }
        distance *= 2;
    }
}

/// Sums of so many numbers side by side, range by range.
#[derive(Debug, Default)]
pub struct RangeSums<T> {
    sums: Vec<T>,
    len: usize,
}

impl<T: Copy + Default + AddAssign + std::ops::Add<Output = T>> RangeSums<T> {
    /// Zeroes.
    pub fn start(&mut self, ranges: usize, len: usize) {
        self.len = len;
        self.sums.clear();
        self.sums.resize(ranges * len, T::default());
    }

    /// Those of a range.
    pub fn of(&mut self, range: usize) -> &mut [T] {
        &mut self.sums[range * self.len..][..self.len]
    }

    /// Adds to those of a range.
    pub fn add(&mut self, range: usize, numbers: &[T]) {
        self.of(range).iter_mut().zip(numbers).for_each(|(sum, &number)| *sum += number);
    }

    /// Those of all ranges together.
    pub fn join(&mut self) -> &mut [T] {
        join_in_tree(&mut self.sums, self.len, |a, b| a + b);
        let len = self.len.min(self.sums.len());
        &mut self.sums[..len]
    }
}

impl RangeSums<f32> {
    /// Those of all ranges of all shards together.
    pub fn whole(&mut self, reducer: &mut dyn Reducer) -> &[f32] {
        let sums = self.join();
        reducer.sums(sums);
        sums
    }
}

impl RangeSums<f64> {
    /// Those of all ranges of all shards together.
    pub fn whole(&mut self, reducer: &mut dyn Reducer) -> &[f64] {
        let sums = self.join();
        reducer.sums_f64(sums);
        sums
    }
}
