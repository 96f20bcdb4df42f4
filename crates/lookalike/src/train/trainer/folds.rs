//! Folds: further models, each trained without some of the examples, which judge these.
//!
//! They have the trainer's settings, in batches as much smaller as they have fewer
//! examples, and follow it step by step, so that at any moment they
//! have come as far as it has; what they choose is applied to its model, which is trained
//! on all examples. They are a function of settings, data, seed and moment: nothing of them
//! is saved, and where training goes on they are trained again up to there. With other
//! settings they are others: they start anew.
//!
//! Cost: of data small enough for them, as many times the training as there are folds.

use super::Trainer;
use super::start::new_checkpoint;
use crate::model::SparsePart;
use crate::train::config::TrainConfig;
use crate::train::error::TrainError;
use crate::train::state::Progress;

/// The folds of a trainer; none of data that is not small.
#[derive(Default)]
pub(super) struct Folds<'a> {
    /// By fold, the examples that it is not trained on.
    held_out: Vec<Vec<u32>>,
    /// What the trainers were made with, once they were.
    config: Option<TrainConfig>,
    trainers: Vec<Trainer<'a>>,
}

impl<'a> Folds<'a> {
    /// Without these examples each.
    pub(super) fn new(held_out: Vec<Vec<u32>>) -> Self {
        Self { held_out, config: None, trainers: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held_out.is_empty()
    }

    /// By fold, the examples that it is not trained on.
    pub(super) fn held_out(&self) -> &[Vec<u32>] {
        &self.held_out
    }

    pub(super) fn trainers(&self) -> &[Trainer<'a>] {
        &self.trainers
    }

    pub(super) fn trainers_mut(&mut self) -> &mut [Trainer<'a>] {
        &mut self.trainers
    }
}

impl<'a> Trainer<'a> {
    /// Trains the folds as far as this trainer has come. One that fails, as its numbers
    /// are no longer finite, has no say any more.
    pub(super) fn train_folds(&mut self) {
        if self.folds.is_empty() {
            return;
        }
        if self.folds.config.as_ref() != Some(&self.state.config) {
            let made = self.folds.held_out.iter().filter_map(|held_out| self.fold(held_out).ok()).collect();
            self.folds.trainers = made;
            self.folds.config = Some(self.state.config.clone());
        }
        let Progress { epoch, position, .. } = self.state.progress;
        let (step, steps) = ((position / self.state.config.batch) as u64, self.steps_per_epoch());
        self.folds.trainers.retain_mut(|fold| {
            let of_fold = fold.steps_per_epoch();
            fold.train_up_to(epoch as u64 * of_fold + step * of_fold / steps).is_ok()
        });
    }

    /// A new model that is not trained on some examples, with a sparse part that starts as
    /// this one's did.
    fn fold(&self, held_out: &[u32]) -> Result<Self, TrainError> {
        let mut checkpoint = new_checkpoint(self.state.config.clone(), &self.shard, &self.examples);
        checkpoint.state.held_out = Some(held_out.to_vec());
        // With as many steps: a model of fewer is less sure of itself, and would say so of
        // this one.
        let trained_on = self.order.len() - held_out.len();
        checkpoint.state.config.batch = trained_on.div_ceil(self.steps_per_epoch() as usize);
        let sparse_start = self.model.sparse.as_ref().map(SparsePart::start);
        let mut fold = Self::start(checkpoint, self.shard.clone(), self.examples, self.cpu, sparse_start)?;
        fold.start_classes();
        Ok(fold)
    }

    fn train_up_to(&mut self, iteration: u64) -> Result<(), TrainError> {
        while self.state.progress.iteration < iteration {
            self.train_batch()?;
        }
        Ok(())
    }
}
