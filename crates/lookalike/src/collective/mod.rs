//! What several processes that share a model need of each other.
//!
//! The output layer can be one shard of several: each holds a range of classes
//! and sees every batch. Maxima and sums over the classes of an example are then
//! partial, and a [`Reducer`] makes them whole. On one process they are whole
//! already, and [`Alone`] does nothing.

/// Makes partial results of all shards whole.
///
/// Law. All shards call the same methods with slices of the same lengths in the
/// same order; afterwards all hold the same bits, whatever the timing, because
/// contributions are joined in the order of shards.
pub trait Reducer: Send {
    /// Element by element, the largest value of all shards.
    fn maxima(&mut self, values: &mut [f32]);

    /// Element by element, the sum over all shards.
    fn sums(&mut self, values: &mut [f32]);

    /// The same in double precision.
    fn sums_f64(&mut self, values: &mut [f64]);
}

/// A single process: everything is whole already.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Reducer for Alone {
    fn maxima(&mut self, _: &mut [f32]) {}
    fn sums(&mut self, _: &mut [f32]) {}
    fn sums_f64(&mut self, _: &mut [f64]) {}
}
