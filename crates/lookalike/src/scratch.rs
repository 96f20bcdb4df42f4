//! Working memory that is kept between calls, so that steady work allocates
//! nothing: buffers that settle at a size, and one value for each thread of the pool.

use std::sync::{Mutex, PoisonError};

use lookalike_kernels::AlignedVec;

/// Makes room for `len` elements and some to spare: batches differ a little in size,
/// and a buffer that has settled must not move again. It is empty afterwards.
pub(crate) fn make_room<T>(buffer: &mut Vec<T>, len: usize) {
    buffer.clear();
    if buffer.capacity() < len {
        buffer.reserve_exact(len + len / 4 + 64);
    }
}

/// Resizes, with some room to spare; see [`make_room`].
pub(crate) fn grow<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) {
    if buffer.capacity() < len {
        make_room(buffer, len);
    }
    buffer.resize(len, T::default());
}

/// As [`grow`], and keeps what is there.
pub(crate) fn extend<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) {
    if buffer.capacity() < len {
        buffer.reserve_exact(len + len / 4 - buffer.len());
    }
    buffer.resize(len, T::default());
}

/// At least `len` numbers that begin on a cache line; what they are is left open.
pub(crate) fn grow_aligned(buffer: &mut AlignedVec<f32>, len: usize) {
    if buffer.len() < len {
        *buffer = AlignedVec::zeroed(len);
    }
}

/// Scratch values by thread number. Contents must never change a result: which
/// thread gets which piece of work is chance.
#[derive(Debug, Default)]
pub(crate) struct PerThread<T>(Vec<Mutex<T>>);

impl<T: Default> PerThread<T> {
    /// Makes sure that each thread of the current pool has a value.
    pub(crate) fn prepare(&mut self) {
        let threads = rayon::current_num_threads().max(1);
        if self.0.len() < threads {
            self.0.resize_with(threads, Mutex::default);
        }
    }

    /// The values of all threads.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|value| value.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs `work` with this thread's value. `work` must not start parallel
    /// work itself, or it could meet its own lock.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let thread = rayon::current_thread_index().unwrap_or(0) % self.0.len();
        // A panic elsewhere leaves scratch in an unknown state; it is passed on
        // by the pool anyway, so nobody will use results made from it.
        work(&mut self.0[thread].lock().unwrap_or_else(PoisonError::into_inner))
    }
}
