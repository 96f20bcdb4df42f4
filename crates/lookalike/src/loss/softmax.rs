//! Cross-entropy of the softmax over the candidates, with targets `1/|y|`.
//!
//! 1. the largest score of each example, while scores are computed,
//! 2. `exp(score - max)` in place, and its sum by example,
//! 3. the gradient `p - t`, with `t = 1/|y|` on true labels, just before it is used.

use std::ops::Range;

use lookalike_kernels::{Cpu, gather_scale, scatter_exp, scatter_max};

use super::{CandidateLoss, ExampleTerms, PartTerms, Parts, example_of};
use crate::collective::{Ranges, Reducer};

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct Softmax;

impl CandidateLoss for Softmax {
    fn can_score_every_class(&self) -> bool {
        true
    }

    fn observe(&self, cpu: Cpu, scores: &[f32], entries: &[u32], part: &mut PartTerms) {
        scatter_max(cpu, scores, entries, &mut part.max);
    }

    fn join_observed(&self, parts: Parts<'_>, examples: &mut ExampleTerms, reducer: &mut dyn Reducer) {
        examples.max.fill(f32::NEG_INFINITY);
        for part in parts {
            examples.max.iter_mut().zip(&part.max).for_each(|(max, &other)| *max = max.max(other));
        }
        reducer.maxima(&mut examples.max);
    }

    fn weigh(
        &self,
        cpu: Cpu,
        scores: &mut [f32],
        entries: &[u32],
        examples: &ExampleTerms,
        part: &mut PartTerms,
    ) {
        part.find_truths(cpu, entries, examples);
        part.loss = truth_loss(scores, entries, &part.truths, examples);
        part.sum.clear();
        part.sum.resize(examples.len(), 0.0);
        scatter_exp(cpu, scores, entries, &examples.max, &mut part.sum);
    }

    fn join_weighed(
        &self,
        parts: Parts<'_>,
        examples: &mut ExampleTerms,
        (ranges, reducer): (Ranges, &mut dyn Reducer),
    ) -> f64 {
        let ExampleTerms { target, factor, sums, loss, .. } = &mut *examples;
        sums.start(ranges.len(), target.len());
        loss.start(ranges);
        for part in parts {
            sums.add(part.range, &part.sum);
            loss.add(part.range, part.loss);
        }
        let mut total = loss.whole(reducer);
        factor.copy_from_slice(sums.whole(reducer));
        let scale = examples.scale();
        for (sum, &weight) in examples.factor.iter_mut().zip(&examples.weight) {
            let counts = weight > 0.0;
            total += if counts { f64::from(weight) * f64::from(*sum).ln() } else { 0.0 };
            *sum = if counts { weight * scale / *sum } else { 0.0 };
        }
        total
    }

    fn gradients(
        &self,
        cpu: Cpu,
        scores: &mut [f32],
        entries: &[u32],
        pairs: Range<usize>,
        examples: &ExampleTerms,
        part: &PartTerms,
    ) {
        gather_scale(cpu, &mut scores[pairs.clone()], &entries[pairs.clone()], &examples.factor);
        let scale = examples.scale();
        for &at in &part.truths[part.truths_among(pairs)] {
            scores[at as usize] -= examples.target[example_of(entries[at as usize])] * scale;
        }
    }
}

/// `-Σ t · (score - max)` over the pairs of true labels, which stand at `truths`.
fn truth_loss(scores: &[f32], entries: &[u32], truths: &[u32], examples: &ExampleTerms) -> f64 {
    let loss_at = |&at: &u32| {
        let example = example_of(entries[at as usize]);
        f64::from(examples.target[example] * (scores[at as usize] - examples.max[example]))
    };
    -truths.iter().map(loss_at).sum::<f64>()
}
