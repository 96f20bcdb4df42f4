//! A logistic loss on each candidate by itself, `-1/|y| Σ_y ln σ(s_y) - Σ_n ln σ(-s_n)`.
//! True labels weigh `1/|y|` each, negatives 1, and all of it is multiplied by the
//! example's weight.
//!
//! Over noise of a known distribution, all scores corrected by its `ln q`, this is
//! noise-contrastive estimation ([`NCE`]). Over any candidates ([`LOGISTIC`]) it is one
//! against all, as far as the sampler shows all: what hash tables found counts as it
//! is, and what `mixed` drew is corrected by `ln q`, since `σ(s - ln q)` is about `σ(s)/q`
//! for a class that is unlikely, so that a drawn class stands for those not drawn.

use std::ops::Range;

use lookalike_kernels::Cpu;

use super::{CandidateLoss, ExampleTerms, PartTerms, Parts, TRUTH, example_of};
use crate::collective::{Ranges, Reducer};

/// Noise-contrastive estimation: each candidate is told from noise.
pub const NCE: Logistic = Logistic { needs_known_noise: true };
/// Each candidate is a question of its own, whoever proposed it.
pub const LOGISTIC: Logistic = Logistic { needs_known_noise: false };

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct Logistic {
    needs_known_noise: bool,
}

impl CandidateLoss for Logistic {
    /// Scores are logarithms of chances without a sum to normalise them; from 0 they
    /// would first all have to sink to `-ln N`.
    fn starting_bias(&self, num_classes: usize) -> f32 {
        -(num_classes as f32).ln()
    }

    fn needs_known_noise(&self) -> bool {
        self.needs_known_noise
    }

    fn observe(&self, _: Cpu, _: &[f32], _: &[u32], _: &mut PartTerms) {}

    fn join_observed(&self, _: Parts<'_>, _: &mut ExampleTerms, _: &mut dyn Reducer) {}

    fn weigh(
        &self,
        _: Cpu,
        scores: &mut [f32],
        entries: &[u32],
        examples: &ExampleTerms,
        part: &mut PartTerms,
    ) {
        part.loss = logistic(scores, entries, examples);
    }

    fn join_weighed(
        &self,
        parts: Parts<'_>,
        examples: &mut ExampleTerms,
        (ranges, reducer): (Ranges, &mut dyn Reducer),
    ) -> f64 {
        let loss = &mut examples.loss;
        loss.start(ranges);
        parts.for_each(|part| loss.add(part.range, part.loss));
        loss.whole(reducer)
    }

    fn gradients(&self, _: Cpu, _: &mut [f32], _: &[u32], _: Range<usize>, _: &ExampleTerms, _: &PartTerms) {}
}

/// Turns scores into gradients in place and gives the loss.
fn logistic(scores: &mut [f32], entries: &[u32], examples: &ExampleTerms) -> f64 {
    let (mut loss, scale) = (0.0, examples.scale());
    for (score, &entry) in scores.iter_mut().zip(entries) {
        let example = example_of(entry);
        let (sign, weight) = match entry & TRUTH != 0 {
            true => (1.0, examples.target[example]),
            false => (-1.0, examples.weight[example]),
        };
        let margin = sign * *score;
        // ln(1 + exp(-margin)) without overflow.
        let tail = (-margin.abs()).exp();
        loss += f64::from(weight * ((-margin).max(0.0) + tail.ln_1p()));
        let wrong = if margin >= 0.0 { tail / (1.0 + tail) } else { 1.0 / (1.0 + tail) };
        *score = -sign * weight * wrong * scale;
    }
    loss
}
