//! The output layer's part of a step: embeddings in, their gradient out, class
//! vectors moved.
//!
//! A layer may be one shard of several: it then holds a range of classes and sees
//! every batch. Everything that sums or compares over all classes of an example
//! is partial until a [`Reducer`] has made it whole, and there are five such
//! places: the number of true labels, the largest score, the sum of exponentials, the
//! loss, and the embeddings' gradient. [`sampled`] scores candidates, [`full`] every class.
//!
//! Architecture invariant: candidates are numbered from the shard's first class.
//! Only what must not depend on sharding (the noise of rounding) knows where the
//! shard begins.

mod coded;
mod full;
mod sampled;
mod score;
mod select;

pub(super) use full::FullStep;
pub(super) use sampled::{Proposed, SampledStep};

use rayon::prelude::*;

use crate::collective::Reducer;
use crate::model::Rows;
use crate::optim::RowMoments;
use crate::random::{Stream, mix};

use super::context::StepContext;

/// The output layer, or one shard of it, while a step moves it.
pub(super) struct OutputLayer<'a> {
    /// Class vectors and biases.
    pub rows: &'a mut Rows,
    /// What Adam remembers of them.
    pub moments: &'a mut RowMoments,
    /// The first class of the shard.
    pub first_class: usize,
    /// Makes whole what is partial.
    pub reducer: &'a mut dyn Reducer,
}

/// The noise that rounds a class's row, whichever shard it is in.
fn rounding_noise(context: &StepContext, class: usize) -> u64 {
    mix(context.seed, Stream::Round, context.iteration, class as u64)
}

/// Adds the parts' shares of the embeddings' gradient, in the order of parts.
fn sum_shares<'a, W: Sync>(
    work: &'a [W],
    share: impl Fn(&'a W) -> &'a [f32] + Sync,
    stride: usize,
    out: &mut [f32],
) {
    out.par_chunks_mut(stride).enumerate().for_each(|(example, out)| {
        out.fill(0.0);
        for work in work {
            let share = &share(work)[example * stride..][..stride];
            out.iter_mut().zip(share).for_each(|(sum, x)| *sum += x);
        }
    });
}

#[cfg(test)]
mod tests;
