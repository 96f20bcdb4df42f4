//! What can go wrong while training.

use super::config::ConfigError;
use super::run::KeepError;
use crate::collective::Disagreement;

/// Training went wrong.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The settings do not fit.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The loss is no longer a number.
    #[error(
        "the loss became {loss} at iteration {iteration} (epoch {epoch}) with learning rate {rate:e}: training has \
         diverged; try a learning rate ten times smaller, --warmup 1000, or look for extreme feature values with \
         `lookalike data stats`"
    )]
    Diverged {
        /// The loss.
        loss: f64,
        /// The step.
        iteration: u64,
        /// The epoch, from 1.
        epoch: usize,
        /// The learning rate.
        rate: f32,
    },
    /// A parameter is no longer a number.
    #[error(
        "{tensor} is no longer finite after iteration {iteration} (epoch {epoch}): training has diverged; try a \
         learning rate ten times smaller, --clip 1, or look for extreme feature values with `lookalike data stats`"
    )]
    NotFinite {
        /// The first tensor, in the order of a forward pass.
        tensor: String,
        /// Steps done.
        iteration: u64,
        /// The epoch, from 1.
        epoch: usize,
    },
    /// The data does not fit a resumed model.
    #[error("the model has {model} {what}, the training data {data}: resume with the data it was trained on")]
    OtherData {
        /// Features, classes or examples.
        what: &'static str,
        /// The model's number.
        model: usize,
        /// The data's number.
        data: usize,
    },
    /// What can't be shared among ranks.
    #[error("{0}")]
    NotSharded(&'static str),
    /// Ranks that would not do the same.
    #[error(transparent)]
    Disagreement(#[from] Disagreement),
    /// The best model so far can't be kept.
    #[error("cannot save the best model so far")]
    NotKept(#[source] KeepError),
    /// A checkpoint can't be written.
    #[error("cannot write a checkpoint; those before it are as they were")]
    CheckpointNotKept(#[source] KeepError),
    /// The data has the right size and is not the same.
    #[error(
        "the training data is not what the model was trained on: sizes are equal, contents differ (checksum \
         {found:08x} instead of {expected:08x}); resume with the same file"
    )]
    ChangedData {
        /// Checksum of the data it was trained on.
        expected: u32,
        /// Checksum of this data.
        found: u32,
    },
}
