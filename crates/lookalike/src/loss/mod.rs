//! Losses over candidates, walked class by class.
//!
//! Scores lie in the order of classes (see [`crate::train`]), so a softmax over
//! an example's candidates is taken in passes over all pairs with a small table
//! of maxima and sums by example, never by gathering an example's scores:
//!
//! 1. the largest score of each example, while scores are computed,
//! 2. `exp(score - max)` in place, and its sum by example,
//! 3. the gradient `p - t`, with `t = 1/|y|` on true labels, just before it is used.
//!
//! Examples without a label have no loss and no gradient.
//!
//! **Softmax** is the cross-entropy of the softmax over the candidates with
//! targets `1/|y|`. With log-q correction scores become `s - ln q` first, where
//! q is the expected number of times the sampler proposes the class, so that
//! the sum over candidates estimates the sum over all classes.
//!
//! **Noise-contrastive estimation** is a logistic loss on each candidate with
//! corrected scores: `-1/|y| Σ_y ln σ(s_y) - Σ_n ln σ(-s_n)`; see [`logistic`].

mod running_sum;

pub(crate) use running_sum::RunningSum;

use lookalike_kernels::FLAG_BITS;
use serde::{Deserialize, Serialize};

/// Flag of an entry whose class is a true label of its example.
pub const TRUTH: u32 = 1;
/// Flag of an entry whose class was drawn at random.
pub const DRAWN: u32 = 2;

/// What is minimised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Cross-entropy of the softmax over the candidates.
    #[default]
    Softmax,
    /// Noise-contrastive estimation: each candidate is told from noise.
    Nce,
}

/// An entry of a class's list: the example's place in the batch and flags.
pub fn entry(example: usize, flags: u32) -> u32 {
    (example as u32) << FLAG_BITS | flags
}

/// The example's place in the batch.
pub fn example_of(entry: u32) -> usize {
    (entry >> FLAG_BITS) as usize
}

/// Per example: what the passes over pairs need to know.
#[derive(Debug, Default)]
pub struct ExampleTerms {
    /// Target of each true label: `1/|y|`, or 0 without labels.
    pub target: Vec<f32>,
    /// `ln q` of classes drawn at random.
    pub drawn_log_q: Vec<f32>,
    /// Largest score.
    pub max: Vec<f32>,
    /// After the passes: the factor that turns `exp(score - max)` into a gradient.
    pub factor: Vec<f32>,
}

/// Adds to each pair's score what does not come from its class vector: the
/// correction of drawn classes.
pub fn correct_drawn(scores: &mut [f32], entries: &[u32], drawn_log_q: &[f32]) {
    for (score, &entry) in scores.iter_mut().zip(entries) {
        if entry & DRAWN != 0 {
            *score -= drawn_log_q[example_of(entry)];
        }
    }
}

/// `-Σ t · (score - max)` over the pairs of true labels, which stand at `truths`.
pub fn truth_loss(scores: &[f32], entries: &[u32], truths: &[u32], terms: &ExampleTerms) -> f64 {
    let loss_at = |&at: &u32| {
        let example = example_of(entries[at as usize]);
        f64::from(terms.target[example] * (scores[at as usize] - terms.max[example]))
    };
    -truths.iter().map(loss_at).sum::<f64>()
}

/// Turns probabilities into gradients: `p - t` on true labels, scaled.
pub fn subtract_targets(gradients: &mut [f32], entries: &[u32], truths: &[u32], target: &[f32], scale: f32) {
    for &at in truths {
        gradients[at as usize] -= target[example_of(entries[at as usize])] * scale;
    }
}

/// The logistic loss of noise-contrastive estimation: turns scores into
/// gradients in place and gives the loss. True labels weigh `1/|y|` each, so
/// that an example counts once however many labels it has; noise weighs 1.
pub fn logistic(scores: &mut [f32], entries: &[u32], target: &[f32], scale: f32) -> f64 {
    let mut loss = 0.0;
    for (score, &entry) in scores.iter_mut().zip(entries) {
        let target = target[example_of(entry)];
        let (sign, weight) = match (entry & TRUTH != 0, target > 0.0) {
            (true, _) => (1.0, target),
            (false, true) => (-1.0, 1.0),
            // No label, no loss.
            (false, false) => (-1.0, 0.0),
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
