//! The output layer's part of a step: embeddings in, their gradient out, class
//! vectors moved.
//!
//! A layer may be one shard of several: it then holds a range of classes and sees
//! every batch. Everything that sums or compares over all classes of an example
//! is partial until a [`Reducer`] has made it whole, and there are five such
//! places: the number of true labels, the largest score, the sum of exponentials, the
//! loss, and the embeddings' gradient. One process sums as several do, by the tree of
//! [`Ranges`]: classes are cut into parts within ranges, and parts of a range are summed
//! before ranges are joined. [`sampled`] scores candidates, [`full`] every class.
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

use crate::collective::{RangeSums, Ranges, Reducer};
use crate::model::Rows;
use crate::optim::RowMoments;
use crate::random::{Stream, mix};
use crate::scratch::PerThread;

use super::by_key::Part;
use super::context::StepContext;

/// The output layer, or one shard of it, while a step moves it.
pub(super) struct OutputLayer<'a> {
    /// Class vectors and biases.
    pub rows: &'a mut Rows,
    /// What Adam remembers of them.
    pub moments: &'a mut RowMoments,
    /// The ranges of classes that are here, over which is summed.
    pub ranges: Ranges,
    /// Makes whole what is partial.
    pub reducer: &'a mut dyn Reducer,
}

/// The noise that rounds a class's row, whichever shard it is in.
fn rounding_noise(context: &StepContext, class: usize) -> u64 {
    mix(context.seed, Stream::Round, context.iteration, class as u64)
}

/// Adds the parts' shares of the embeddings' gradient: those of a range in their order,
/// ranges as a tree.
fn sum_shares<'a, W: Sync>(
    (parts, work): (&'a [Part], &'a [W]),
    share: impl Fn(&'a W) -> &'a [f32] + Sync,
    (ranges, stride): (Ranges, usize),
    sums: &mut PerThread<RangeSums<f32>>,
    out: &mut [f32],
) {
    /// Examples whose sums fit the nearest cache: more than one, so that memory is read in
    /// longer runs.
    const EXAMPLES_AT_ONCE: usize = 4;
    sums.prepare();
    let at_once = EXAMPLES_AT_ONCE * stride;
    out.par_chunks_mut(at_once).enumerate().for_each(|(i, out)| {
        sums.with(|sums| {
            sums.start(ranges.len(), out.len());
            for (part, work) in parts.iter().zip(work) {
                sums.add(part.range, &share(work)[i * at_once..][..out.len()]);
            }
            out.copy_from_slice(sums.join());
        });
    });
}

#[cfg(test)]
mod tests;
