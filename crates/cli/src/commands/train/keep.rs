//! What of a run outlives it: the best or last model, and checkpoints.

use lookalike::artifact::{Checkpoints, DirectoryKeeper};
use lookalike::train::{KeepError, Keeper, Trainer};

/// Both ways to keep a run, each if it was asked for.
pub(super) struct Kept {
    pub(super) model: Option<DirectoryKeeper>,
    /// Whether the model that is saved is the best one.
    pub(super) keeps_best: bool,
    pub(super) checkpoints: Option<Checkpoints>,
}

impl Keeper for Kept {
    fn keep_best(&mut self, trainer: &Trainer<'_>) -> Result<(), KeepError> {
        match &mut self.model {
            Some(model) if self.keeps_best => model.keep_best(trainer),
            _ => Ok(()),
        }
    }

    fn keep_last(&mut self, trainer: &Trainer<'_>) -> Result<(), KeepError> {
        self.checkpoints.as_mut().map_or(Ok(()), |checkpoints| checkpoints.keep_last(trainer))
    }
}
