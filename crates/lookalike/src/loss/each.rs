//! A softmax for each true label by itself, against the negatives alone:
//! `1/|y| Σ_y ln(1 + Σ_n exp(s_n - s_y))`.
//!
//! In the softmax over all candidates the labels of an example share one probability,
//! so a label that is nearly certain takes from the others, and one that most examples
//! have can never be as certain as it is. Here labels do not compete, and a score
//! compares a class with what is wrong alone. With one label an example both are the
//! same.
//!
//! 1. the largest score of each example, while scores are computed,
//! 2. `exp(score - max)` of negatives in place, and its sum `Z` by example,
//! 3. `e_y = exp(s_y - max)` of each true label, and with `t = 1/|y|` the gradients
//!    `-t · Z / (Z + e_y)`, and `exp(s_n - max) · Σ_y t / (Z + e_y)` for a negative.

use std::ops::Range;

use lookalike_kernels::{Cpu, gather_scale, scatter_exp};

use super::{CandidateLoss, ExampleTerms, PartTerms, Parts, Softmax, TruthScore, example_of};
use crate::collective::{Ranges, Reducer};
use crate::scratch::make_room;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct SoftmaxEach;

/// Of so low a score nothing is left beside any other.
const NOTHING: f32 = -1e30;
/// Exponents stay above this, so that a sum of exponentials is never zero.
const EXPONENT_MIN: f32 = -80.0;

/// `exp` of what is not above 0.
fn exponential(exponent: f32) -> f32 {
    exponent.max(EXPONENT_MIN).exp()
}

impl CandidateLoss for SoftmaxEach {
    fn observe(&self, cpu: Cpu, scores: &[f32], entries: &[u32], part: &mut PartTerms) {
        Softmax.observe(cpu, scores, entries, part);
    }

    fn join_observed(&self, parts: Parts<'_>, examples: &mut ExampleTerms, reducer: &mut dyn Reducer) {
        Softmax.join_observed(parts, examples, reducer);
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
        make_room(&mut part.truth_scores, examples.num_truths);
        for &at in &part.truths {
            let example = example_of(entries[at as usize]);
            let score = std::mem::replace(&mut scores[at as usize], NOTHING);
            let below_max = score - examples.max[example];
            part.truth_scores.push(TruthScore { example, range: part.range, below_max });
        }
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
        let scale = examples.scale();
        let ExampleTerms { target, factor, negatives, truth_scores, num_truths, sums, loss, .. } = examples;
        make_room(truth_scores, *num_truths);
        sums.start(ranges.len(), target.len());
        for part in parts {
            truth_scores.extend_from_slice(&part.truth_scores);
            sums.add(part.range, &part.sum);
        }
        negatives.copy_from_slice(sums.whole(reducer));
        loss.start(ranges);
        sums.start(ranges.len(), target.len());
        for &TruthScore { example, range, below_max } in truth_scores.iter() {
            let sum = negatives[example] + exponential(below_max);
            loss.add(range, f64::from(target[example] * (sum.ln() - below_max)));
            sums.of(range)[example] += target[example] * scale / sum;
        }
        let total = loss.whole(reducer);
        factor.copy_from_slice(sums.whole(reducer));
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
        let (truths, scale) = (part.truths_among(pairs), examples.scale());
        for (&at, truth) in part.truths[truths.clone()].iter().zip(&part.truth_scores[truths]) {
            let (negatives, target) = (examples.negatives[truth.example], examples.target[truth.example]);
            let wrong = negatives / (negatives + exponential(truth.below_max));
            scores[at as usize] = -target * scale * wrong;
        }
    }
}

/// The gradients of one example whose scores lie side by side, the `truths` true labels
/// first, in place. Without a true label there are none.
pub(crate) fn each_gradient(scores: &mut [f32], truths: usize, weight: f32) {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|x| *x = exponential(*x - max));
    let (truths, negatives) = scores.split_at_mut(truths);
    let (sum, target) = (negatives.iter().sum::<f32>(), weight / truths.len().max(1) as f32);
    let mut factor = 0.0;
    for truth in truths {
        let all = sum + *truth;
        factor += target / all;
        *truth = -target * sum / all;
    }
    negatives.iter_mut().for_each(|negative| *negative *= factor);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_compete() {
        // exp is 2, 1 and 1, 3: against negatives of 4 the labels have 2/6 and 1/5.
        let mut scores = [2f32, 1.0, 1.0, 3.0].map(f32::ln);
        each_gradient(&mut scores, 2, 1.0);
        let factor = 0.5 / 6.0 + 0.5 / 5.0;
        let expected = [-0.5 * 4.0 / 6.0, -0.5 * 4.0 / 5.0, factor, 3.0 * factor];
        assert!(scores.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{scores:?} {expected:?}");
    }

    #[test]
    fn scores_far_apart_stay_numbers() {
        let mut scores = [1e4f32, -1e4, 0.0];
        each_gradient(&mut scores, 2, 2.0);
        // The lower label is below everything, with nothing left to tell by how much.
        assert!(scores.iter().all(|x| x.is_finite()) && scores[0].abs() < 1e-6, "{scores:?}");
        let mut scores = [0f32, 1e4];
        each_gradient(&mut scores, 1, 1.0);
        assert_eq!(scores, [-1.0, 1.0]);
        let mut scores = [1f32, 2.0];
        each_gradient(&mut scores, 0, 1.0);
        assert_eq!(scores, [0.0, 0.0]);
    }
}
