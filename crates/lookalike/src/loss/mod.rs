//! Losses over candidates, walked class by class.
//!
//! Scores lie in the order of classes (see [`crate::train`]), so what a loss
//! needs of an example's scores is taken in passes over all pairs with a small
//! table by example, never by gathering an example's scores. A loss is a type
//! that says what happens in each pass ([`CandidateLoss`]):
//!
//! | loss | over an example's candidates |
//! |---|---|
//! | [`Softmax`] | cross-entropy of the softmax with targets `1/|y|` |
//! | [`SoftmaxEach`] | the same for each true label by itself, against the negatives alone |
//! | [`LOGISTIC`] | logistic loss on each candidate by itself |
//! | [`NCE`] | the same over noise of a known distribution: noise-contrastive estimation |
//!
//! An example's loss and gradient are multiplied by its weight. Examples without a
//! label have none.
//!
//! With log-q correction scores become `s - ln q` first, where q is the expected
//! number of times the sampler proposes the class, so that the sum over
//! candidates estimates the sum over all classes.

mod each;
mod logistic;
mod running_sum;
mod softmax;

pub use each::SoftmaxEach;
pub(crate) use each::each_gradient;
pub use logistic::{LOGISTIC, Logistic, NCE};
pub(crate) use running_sum::RunningSum;
pub use softmax::Softmax;

use std::ops::Range;

use lookalike_kernels::{Cpu, FLAG_BITS, indices_flagged};
use serde::{Deserialize, Serialize};

use crate::collective::{RangeSums, Ranges, Reducer};
use crate::scratch::grow;

/// Flag of an entry whose class is a true label of its example.
pub const TRUTH: u32 = 1;
/// Flag of an entry whose class was drawn at random.
pub const DRAWN: u32 = 2;
/// Both flags: of an entry whose class was found, and stays as a drawn one if it is not
/// among the best. Settled before a loss sees it.
pub(crate) const SPARED: u32 = TRUTH | DRAWN;

/// The losses by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Cross-entropy of the softmax over the candidates.
    #[default]
    Softmax,
    /// The same for each true label by itself, against the negatives alone.
    SoftmaxEach,
    /// Each candidate is a question of its own.
    Logistic,
    /// Noise-contrastive estimation: each candidate is told from noise.
    Nce,
}

impl Loss {
    /// The name used in options and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Softmax => "softmax",
            Self::SoftmaxEach => "softmax-each",
            Self::Logistic => "logistic",
            Self::Nce => "nce",
        }
    }

    /// What it does.
    pub fn over_candidates(self) -> &'static dyn CandidateLoss {
        match self {
            Self::Softmax => &Softmax,
            Self::SoftmaxEach => &SoftmaxEach,
            Self::Logistic => &LOGISTIC,
            Self::Nce => &NCE,
        }
    }
}

/// A loss over the candidates of each example of a batch.
///
/// Law. For each batch the methods are called in the order they stand in here.
/// `observe`, `weigh` and `gradients` run for all parts in parallel and see only
/// their own part's pairs; the two `join`s see all parts, in their order, and
/// make sums whole over all shards. Entries name examples ([`example_of`]) and
/// carry flags; scores stand beside them and become gradients in place.
pub trait CandidateLoss: Sync {
    /// What the bias of a class starts from.
    fn starting_bias(&self, _num_classes: usize) -> f32 {
        0.0
    }

    /// Whether it is only right where the sampler knows how likely each of its
    /// negatives was. Such a loss is always corrected by log-q.
    fn needs_known_noise(&self) -> bool {
        false
    }

    /// Whether it can be taken over all classes, a tile at a time.
    fn can_score_every_class(&self) -> bool {
        false
    }

    /// Right after some of a part's scores were computed, while they are in L1.
    fn observe(&self, cpu: Cpu, scores: &[f32], entries: &[u32], part: &mut PartTerms);

    /// When all scores are known.
    fn join_observed(&self, parts: Parts<'_>, examples: &mut ExampleTerms, reducer: &mut dyn Reducer);

    /// Once for each part: what loss and gradients need of its scores.
    fn weigh(
        &self,
        cpu: Cpu,
        scores: &mut [f32],
        entries: &[u32],
        examples: &ExampleTerms,
        part: &mut PartTerms,
    );

    /// When all parts are weighed; gives the summed loss of the batch.
    fn join_weighed(
        &self,
        parts: Parts<'_>,
        examples: &mut ExampleTerms,
        shard: (Ranges, &mut dyn Reducer),
    ) -> f64;

    /// The gradients of some pairs, just before they are used.
    fn gradients(
        &self,
        cpu: Cpu,
        scores: &mut [f32],
        entries: &[u32],
        pairs: Range<usize>,
        examples: &ExampleTerms,
        part: &PartTerms,
    );
}

/// An entry of a class's list: the example's place in the batch and flags.
pub fn entry(example: usize, flags: u32) -> u32 {
    (example as u32) << FLAG_BITS | flags
}

/// The example's place in the batch.
pub fn example_of(entry: u32) -> usize {
    (entry >> FLAG_BITS) as usize
}

/// What the passes need to know by example.
#[derive(Debug, Default)]
pub struct ExampleTerms {
    /// How much each example counts; 0 without labels.
    pub weight: Vec<f32>,
    /// Target of each true label: `weight/|y|`, or 0 without labels.
    pub target: Vec<f32>,
    /// `ln q` of classes drawn at random.
    pub drawn_log_q: Vec<f32>,
    /// True labels of all examples.
    pub num_truths: usize,
    /// Largest score.
    pub(crate) max: Vec<f32>,
    /// The factor that turns `exp(score - max)` into a gradient.
    pub(crate) factor: Vec<f32>,
    /// Sum of `exp(score - max)` over negatives, where a loss tells them apart.
    negatives: Vec<f32>,
    /// Those of true labels, then.
    truth_scores: Vec<TruthScore>,
    /// By example: what is summed over ranges of classes, until it is whole.
    sums: RangeSums<f32>,
    loss: BatchLoss,
}

/// The loss of a batch: summed in ranges of classes, then over these and all shards.
#[derive(Debug, Default)]
struct BatchLoss(RangeSums<f64>);

impl BatchLoss {
    /// Nothing.
    fn start(&mut self, ranges: Ranges) {
        self.0.start(ranges.len(), 1);
    }

    /// Adds to that of a range.
    fn add(&mut self, range: usize, loss: f64) {
        self.0.add(range, &[loss]);
    }

    /// That of all ranges of all shards.
    fn whole(&mut self, reducer: &mut dyn Reducer) -> f64 {
        self.0.whole(reducer)[0]
    }
}

impl ExampleTerms {
    /// Makes room for a batch.
    pub(crate) fn resize(&mut self, batch: usize) {
        let Self { weight, target, drawn_log_q, max, factor, negatives, .. } = self;
        for terms in [weight, target, drawn_log_q, max, factor, negatives] {
            grow(terms, batch);
        }
    }

    /// What is known before there are scores, as other terms of the same batch have it.
    pub(crate) fn set_from(&mut self, other: &Self) {
        self.weight.copy_from_slice(&other.weight);
        self.target.copy_from_slice(&other.target);
        self.drawn_log_q.copy_from_slice(&other.drawn_log_q);
        self.num_truths = other.num_truths;
    }

    /// The number of examples.
    pub(crate) fn len(&self) -> usize {
        self.target.len()
    }

    /// What each example's gradient is multiplied with: the batch's loss is a mean.
    fn scale(&self) -> f32 {
        1.0 / self.len() as f32
    }
}

/// The score of a true label.
#[derive(Clone, Copy, Debug)]
struct TruthScore {
    example: usize,
    /// Which of the ranges of classes it is in.
    range: usize,
    /// Its score without the largest of the example, so at most 0.
    below_max: f32,
}

/// All parts of the classes, in their order.
pub type Parts<'a> = &'a mut dyn Iterator<Item = &'a PartTerms>;

/// What one part of the classes contributes to the passes.
#[derive(Debug, Default)]
pub struct PartTerms {
    /// Where the entries of true labels are.
    truths: Vec<u32>,
    /// Their scores, where a loss needs them beside those of negatives.
    truth_scores: Vec<TruthScore>,
    /// By example: largest score.
    max: Vec<f32>,
    /// By example: sum of exponentials.
    sum: Vec<f32>,
    loss: f64,
    /// Which of the ranges of classes it is in.
    range: usize,
}

impl PartTerms {
    /// Before the first scores of a batch.
    pub(crate) fn start(&mut self, batch: usize, range: usize) {
        self.range = range;
        self.max.clear();
        self.max.resize(batch, f32::NEG_INFINITY);
        self.loss = 0.0;
    }

    /// Finds the entries of true labels.
    fn find_truths(&mut self, cpu: Cpu, entries: &[u32], examples: &ExampleTerms) {
        // A part may get all of them, sooner or later.
        grow(&mut self.truths, examples.num_truths);
        self.truths.clear();
        indices_flagged(cpu, entries, TRUTH, &mut self.truths);
    }

    /// Which of them stand among these pairs.
    fn truths_among(&self, pairs: Range<usize>) -> Range<usize> {
        let place = |pair: usize| self.truths.partition_point(|&truth| (truth as usize) < pair);
        place(pairs.start)..place(pairs.end)
    }
}

/// Takes the correction of drawn classes off their scores.
pub fn correct_drawn(scores: &mut [f32], entries: &[u32], drawn_log_q: &[f32]) {
    for (score, &entry) in scores.iter_mut().zip(entries) {
        if entry & DRAWN != 0 {
            *score -= drawn_log_q[example_of(entry)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages, files and options call a loss the same.
    #[test]
    fn a_loss_has_one_name() {
        for loss in [Loss::Softmax, Loss::SoftmaxEach, Loss::Logistic, Loss::Nce] {
            assert_eq!(serde_json::to_value(loss).unwrap(), loss.name());
        }
    }
}
