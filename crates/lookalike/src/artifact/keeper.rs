//! Keeps the best model of a run in a directory.

use std::path::{Path, PathBuf};

use super::ModelError;
use super::writing::{Unfinished, all_or_none};
use crate::train::{KeepError, Keeper, Trainer};

/// Saves every model that is the best so far; the directory then holds the best.
#[derive(Debug)]
pub struct DirectoryKeeper {
    directory: PathBuf,
    with_training_state: bool,
    has_best: bool,
    found_better: bool,
}

impl DirectoryKeeper {
    /// For a directory; models may be saved with what training needs to go on.
    pub fn new(directory: &Path, with_training_state: bool) -> Self {
        Self { directory: directory.into(), with_training_state, has_best: false, found_better: false }
    }

    /// Takes notice that the directory holds the best model so far.
    pub fn holds_best(&mut self) {
        self.has_best = true;
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the directory holds the best model of the run, or of the one it goes
    /// on with.
    pub fn has_best(&self) -> bool {
        self.has_best
    }

    /// Whether a better model than any before was saved.
    pub fn found_better(&self) -> bool {
        self.found_better
    }

    /// Saves the model as it is now; all ranks together, and it is there for all.
    pub fn save(&mut self, trainer: &Trainer<'_>) -> Result<(), ModelError> {
        let unfinished = Unfinished::of_trainer(&self.directory, trainer, self.with_training_state)?;
        all_or_none(trainer.shard().collective(), unfinished.map_or(Ok(()), Unfinished::finish))
    }
}

impl Keeper for DirectoryKeeper {
    fn keep_best(&mut self, trainer: &Trainer<'_>) -> Result<(), KeepError> {
        self.save(trainer)?;
        (self.has_best, self.found_better) = (true, true);
        Ok(())
    }
}
