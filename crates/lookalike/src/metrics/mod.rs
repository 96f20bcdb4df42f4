//! How good predictions are, in percent.
//!
//! With `y` an example's true labels and `hits` those of them among its `k`
//! best predictions, each averaged over the examples that have a label:
//!
//! | name | an example's value |
//! |---|---|
//! | `P@k` | `hits / k` |
//! | `capped-P@k` | `hits / min(k, |y|)`, what the paper prints as P@k |
//! | `nDCG@k` | `Σ 1/log2(rank + 1)` over hits (first rank: 1) `/` the same of a perfect answer |
//! | `recall@k` | `hits / |y|` |
//! | `tail-recall@k` | recall with only tail labels in `y`; averaged over examples that have one |
//!
//! Two are ratios of sums over all examples, not averages:
//!
//! | name | value |
//! |---|---|
//! | `PSP@k` | `Σ 1/p` over hits `/ Σ 1/p` of the best possible answers: the propensity-scored precision of the Extreme Classification Repository (see [`Propensity`]) |
//! | `tail-precision@k` | hits among the tail classes predicted `/` tail classes predicted |
//!
//! The *tail* is the classes with at most [`MetricOptions::tail_examples_max`]
//! training examples. Metrics that need training frequencies are left out if
//! there are none. Labels that the model does not know count in `|y|` and as
//! classes never seen in training: an honest evaluation cannot forget them.
//! Examples without labels are skipped and counted ([`Totals::skipped`]).
//! What probabilities are worth, [`Reliability`] says.

mod propensity;
mod reliability;
mod totals;
mod values;

pub use propensity::Propensity;
pub use reliability::{BINS, Bin, Reliability};
pub use totals::Totals;
pub use values::MetricValues;

use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricOptions {
    /// The numbers of predictions looked at.
    pub k: Vec<usize>,
    /// `A` of the propensity model.
    pub propensity_a: f64,
    /// `B` of the propensity model.
    pub propensity_b: f64,
    /// A class with at most so many training examples belongs to the tail.
    pub tail_examples_max: u32,
}

impl Default for MetricOptions {
    fn default() -> Self {
        Self { k: vec![1, 3, 5], propensity_a: 0.55, propensity_b: 1.5, tail_examples_max: 5 }
    }
}

/// Options that mean nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MetricsError {
    /// No number of predictions.
    #[error("no k to measure at: give at least one, for example 1,3,5")]
    NoK,
    /// Zero predictions.
    #[error("k is 0, but a metric looks at 1 or more predictions: give for example 1,3,5")]
    ZeroK,
    /// Unusable `A` or `B`.
    #[error(
        "propensity A = {a}, B = {b}: A must be finite and at least 0, B finite and above 0 \
         (0.55 and 1.5 fit most data sets)"
    )]
    Propensity {
        /// The `A` given.
        a: f64,
        /// The `B` given.
        b: f64,
    },
}

/// How often each class occurs in the training data.
#[derive(Clone, Copy, Debug)]
pub struct TrainingFrequencies<'a> {
    /// Training examples that have the class as a label, for each class.
    pub examples_of_class: &'a [u32],
    /// Training examples in all.
    pub num_examples: usize,
}

/// What to measure, ready to measure it: shared by all threads of an evaluation.
#[derive(Clone, Debug)]
pub struct Metrics<'a> {
    /// Ascending, distinct.
    k: Vec<usize>,
    frequencies: Option<TrainingFrequencies<'a>>,
    propensity: Propensity,
    tail_examples_max: u32,
}

impl<'a> Metrics<'a> {
    /// Without `frequencies`, `PSP` and the tail metrics are left out.
    pub fn new(
        options: &MetricOptions,
        frequencies: Option<TrainingFrequencies<'a>>,
    ) -> Result<Self, MetricsError> {
        let (a, b) = (options.propensity_a, options.propensity_b);
        let mut k = options.k.clone();
        k.sort_unstable();
        k.dedup();
        match k.first() {
            None => return Err(MetricsError::NoK),
            Some(0) => return Err(MetricsError::ZeroK),
            Some(_) => {}
        }
        if !(a.is_finite() && a >= 0.0 && b.is_finite() && b > 0.0) {
            return Err(MetricsError::Propensity { a, b });
        }
        Ok(Self {
            k,
            frequencies,
            propensity: Propensity::new(a, b, frequencies.map_or(0, |f| f.num_examples)),
            tail_examples_max: options.tail_examples_max,
        })
    }

    /// The predictions an example needs: the largest `k`.
    pub fn k_max(&self) -> usize {
        *self.k.last().expect("there is a k")
    }

    /// Training examples of a class; none if it is not known.
    fn examples_of(&self, class: u32) -> u32 {
        let counts = self.frequencies.map_or(&[][..], |f| f.examples_of_class);
        counts.get(class as usize).copied().unwrap_or(0)
    }

    fn is_tail(&self, class: u32) -> bool {
        self.examples_of(class) <= self.tail_examples_max
    }
}

#[cfg(test)]
mod tests;
