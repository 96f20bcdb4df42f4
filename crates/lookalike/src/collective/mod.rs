//! What several processes that share a model need of each other.
//!
//! Each process, a *rank*, holds a range of classes ([`Shard`]) and sees every
//! batch. What sums or compares over all classes of an example is then partial,
//! and a [`Collective`] makes it whole. On one process everything is whole already,
//! and [`Alone`] does nothing. [`Threads`] are ranks in one process, for tests;
//! `crates/mpi` has ranks that are processes, on one machine or many.
//!
//! A collective only moves bytes. How contributions are joined is written once, here
//! (`ordered`), as a tree of ranks, whatever the timing and whatever moves the bytes. It is
//! the top of the tree by which one process sums over all classes and features (`ranges`):
//! a run on 1, 2, 4 or 8 ranks has the same bits, and one on any other number of ranks its
//! own.

mod agree;
mod ordered;
mod ranges;
mod shard;
mod threads;

pub use agree::{Agreement, Disagreement};
pub use ranges::{RANGES, RangeSums, Ranges, join_in_tree};
pub use shard::Shard;
pub use threads::Threads;

/// Moves bytes between ranks.
///
/// Law. All ranks call the same methods in the same order with slices of the same
/// lengths, never of none; a call returns when this rank has what it is to get. Nothing is lost and
/// nothing is joined or reordered. What a rank that is no longer there makes of the
/// others is not returned as an error: they end, in bounded time, with a message.
pub trait Collective: Send + Sync + std::fmt::Debug {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// Everybody gets everybody's bytes, in the order of ranks: `all` is as long as
    /// `mine` times the number of ranks.
    fn gather_bytes(&self, mine: &[u8], all: &mut [u8]);

    /// `mine` has a block for each rank, and so has `theirs`: the block that this rank
    /// has for rank i goes there, and what rank i has for this one comes in its place.
    fn exchange_bytes(&self, mine: &[u8], theirs: &mut [u8]);

    /// Everybody gets the bytes of rank `root`.
    fn broadcast_bytes(&self, root: usize, bytes: &mut [u8]);

    /// Waits for everybody.
    fn barrier(&self);

    /// Bytes that this rank has sent so far to others.
    fn bytes_sent(&self) -> u64;

    /// Seconds spent in all this so far, most of them in waiting for others.
    fn seconds_waited(&self) -> f64 {
        0.0
    }
}

/// What a method sends: `blocks` of `bytes` each, one of which stays here.
pub fn sent_bytes(size: usize, bytes: usize) -> u64 {
    (size.saturating_sub(1) * bytes) as u64
}

/// Makes partial results of all shards whole: what the output layer asks of a
/// [`Collective`].
///
/// Law. All shards call the same methods with slices of the same lengths in the
/// same order; afterwards all hold the same bits, whatever the timing, because
/// contributions are joined as a tree of shards ([`join_in_tree`]).
pub trait Reducer: Send {
    /// Element by element, the largest value of all shards.
    fn maxima(&mut self, values: &mut [f32]);

    /// Element by element, the sum over all shards.
    fn sums(&mut self, values: &mut [f32]);

    /// The same in double precision.
    fn sums_f64(&mut self, values: &mut [f64]);

    /// The values of all shards, in their order.
    fn gather(&mut self, values: &[f32]) -> Vec<f32>;

    /// Whether there are no others, so that nothing is partial.
    fn is_alone(&self) -> bool;
}

impl Reducer for &dyn Collective {
    fn maxima(&mut self, values: &mut [f32]) {
        self.max_f32(values);
    }
    fn sums(&mut self, values: &mut [f32]) {
        self.sum_f32(values);
    }
    fn sums_f64(&mut self, values: &mut [f64]) {
        self.sum_f64(values);
    }
    fn gather(&mut self, values: &[f32]) -> Vec<f32> {
        <dyn Collective>::gather(*self, values)
    }
    fn is_alone(&self) -> bool {
        self.size() == 1
    }
}

/// A single process: everything is whole already.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Collective for Alone {
    fn rank(&self) -> usize {
        0
    }
    fn size(&self) -> usize {
        1
    }
    fn gather_bytes(&self, mine: &[u8], all: &mut [u8]) {
        all.copy_from_slice(mine);
    }
    fn exchange_bytes(&self, mine: &[u8], theirs: &mut [u8]) {
        theirs.copy_from_slice(mine);
    }
    fn broadcast_bytes(&self, _: usize, _: &mut [u8]) {}
    fn barrier(&self) {}
    fn bytes_sent(&self) -> u64 {
        0
    }
}

impl Reducer for Alone {
    fn maxima(&mut self, _: &mut [f32]) {}
    fn sums(&mut self, _: &mut [f32]) {}
    fn sums_f64(&mut self, _: &mut [f64]) {}
    fn gather(&mut self, values: &[f32]) -> Vec<f32> {
        values.to_vec()
    }
    fn is_alone(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
