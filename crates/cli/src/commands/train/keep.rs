//! What of a run outlives it: the best or last model, and checkpoints.

use std::time::Instant;

use lookalike::artifact::{Checkpoints, DirectoryKeeper};
use lookalike::train::{KeepError, Keeper, Trainer};

/// Both ways to keep a run, each if it was asked for.
pub(super) struct Kept {
    pub(super) model: Option<DirectoryKeeper>,
    /// Whether the model that is saved is the best one.
    pub(super) keeps_best: bool,
    pub(super) checkpoints: Option<Checkpoints>,
    /// What keeping has taken so far.
    pub(super) seconds: f64,
}

impl Keeper for Kept {
    fn keep_best(&mut self, trainer: &Trainer<'_>) -> Result<(), KeepError> {
        let start = Instant::now();
        let kept = match &mut self.model {
            Some(model) if self.keeps_best => model.keep_best(trainer),
            _ => Ok(()),
        };
        self.seconds += start.elapsed().as_secs_f64();
        kept
    }

    fn keep_last(&mut self, trainer: &Trainer<'_>) -> Result<(), KeepError> {
        let start = Instant::now();
        let kept = self.checkpoints.as_mut().map_or(Ok(()), |checkpoints| checkpoints.keep_last(trainer));
        self.seconds += start.elapsed().as_secs_f64();
        kept
    }
}
