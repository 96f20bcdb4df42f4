//! The outcome of an evaluation.

use super::effort::Recall;
use crate::metrics::{MetricValues, Reliability};

/// Metrics of a model on examples; see [`Predictor::evaluate`](super::Predictor::evaluate).
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// In percent, by name.
    pub values: MetricValues,
    /// Examples that count.
    pub examples: u64,
    /// Examples without labels, which do not.
    pub skipped: u64,
    /// What the probabilities of first answers are worth, if they are calibrated.
    pub reliability: Option<Reliability>,
    /// How many of the classes of some exact rankings were found, where not every class was
    /// scored.
    pub recall: Option<Recall>,
}

impl Evaluation {
    /// The first metric, which decides where one value must.
    pub fn first(&self) -> Option<f64> {
        self.values.iter().next().and_then(|(_, value)| value)
    }
}
