//! What a step needs to know besides the parameters.

use lookalike_kernels::Cpu;

use crate::loss::Loss;
use crate::optim::Adam;

/// How many rows ahead a row is prefetched with its moments: 24 lines each.
pub(super) const PREFETCH_AHEAD: usize = 2;

/// What all parts of a step need to know.
#[derive(Clone, Copy, Debug)]
pub struct StepContext {
    /// Instructions to use.
    pub cpu: Cpu,
    /// The optimizer at this step.
    pub adam: Adam,
    /// The run's seed.
    pub seed: u64,
    /// The step's number.
    pub iteration: u64,
    /// What is minimised.
    pub loss: Loss,
    /// An example counts once for each of its labels, but for so many at most.
    pub labels_counted: usize,
    /// Among how many members the width of the output layer is divided.
    pub members: usize,
    /// Whether scores are corrected by `ln q` of the sampler.
    pub corrects_log_q: bool,
    /// Negatives that an example is to be compared with, before the best are selected.
    pub candidates: usize,
    /// Of the classes that an example's tables gave, those with the highest scores, so
    /// many, are trained on; all if not said.
    pub keep: Option<usize>,
    /// The length to which an example's gradient is cut before it goes below the output
    /// layer.
    pub clip: Option<f32>,
    /// Rows of features before this one stay as they are; if there is one, so do all
    /// biases and layers below the output.
    pub frozen_features: usize,
}
