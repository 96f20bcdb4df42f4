//! What a model gets besides its training, for whoever looks at it or keeps it: how much
//! its parts count, what scores mean, a search index. None of it changes what is trained
//! next, and a step makes it worthless.

use std::time::Instant;

use super::Trainer;
use crate::model::Model;
use crate::predict::{self, INDEXED_CLASSES_MIN, Predictor};
use crate::train::calibrate::calibrate;
use crate::train::sparse::{self, Judge};
use crate::train::unseen::Unseen;

/// Examples that judge a search index at most.
const JUDGES_MAX: usize = 500;

impl Trainer<'_> {
    /// Makes the model complete as it is now, for whoever looks at it or keeps it before
    /// training is done: examples that it, or each of its folds, has not seen choose how much
    /// its other parts count, the nearest examples among them, and say what scores mean. What
    /// is trained next does not change by it.
    pub fn settle(&mut self) {
        let start = Instant::now();
        // They have to come so far first where training goes on.
        self.train_folds();
        self.state.progress.train_seconds += start.elapsed().as_secs_f64();
        if !self.is_settled {
            self.choose(true);
        }
        self.calibrate();
    }

    /// Lets judges choose; false if there are none.
    pub(super) fn choose(&mut self, with_nearest: bool) -> bool {
        self.is_settled = with_nearest;
        let Some(config) = self.state.config.sparse.filter(|_| self.sparse.is_some()) else { return false };
        // Searching them takes a while, but once there they are to fit.
        let with_nearest = with_nearest || self.model.neighbours.is_some();
        let (cpu, shard, examples) = (self.cpu, self.shard.clone(), self.examples);
        let has_folds = !self.folds.is_empty();
        let mut judges: Vec<Judge<'_>> = match has_folds {
            true => self.folds.trainers_mut().iter_mut().map(Trainer::as_judge).collect(),
            false => vec![self.as_judge()],
        };
        let Some(choice) = sparse::choose(cpu, &config, &shard, &examples, &mut judges, with_nearest) else {
            return false;
        };
        if has_folds {
            choice.apply(&shard, &examples, &mut self.as_judge(), None);
        }
        true
    }

    /// This trainer's model as one of those that choose.
    fn as_judge(&mut self) -> Judge<'_> {
        Judge { model: &mut self.model, trained_on: &self.order, unseen: &self.unseen }
    }

    /// Lets judges say how the model's scores, as they are now, become probabilities; the
    /// next step makes them worthless.
    fn calibrate(&mut self) {
        let start = Instant::now();
        if self.model.calibration.is_some() {
            return;
        }
        let alone = std::slice::from_ref(&*self);
        let judges = if self.folds.is_empty() { alone } else { self.folds.trainers() };
        let judges: Vec<_> = judges.iter().filter_map(Trainer::predictor).collect();
        let calibration = calibrate(&judges);
        self.model.calibration = calibration;
        self.state.progress.train_seconds += start.elapsed().as_secs_f64();
    }

    /// The model as it is now, and what it has not seen, if there is any.
    fn predictor(&self) -> Option<(Predictor<&Model>, &Unseen)> {
        let predictor = || Predictor::in_training(&self.shard, &self.model, self.cpu);
        (!self.unseen.is_empty()).then(|| (predictor(), &self.unseen))
    }

    /// Gives the model, as it is now, a search index; the next step makes it worthless.
    /// Held-out examples judge it, or else some that are trained on. A shard of the
    /// classes gets none.
    pub fn index(&mut self) {
        if !self.lacks_index() {
            return;
        }
        let start = Instant::now();
        let held_out = self.state.held_out.as_ref().filter(|held_out| !held_out.is_empty());
        let mut judges = held_out.unwrap_or(&self.order).clone();
        judges.sort_unstable();
        let count = judges.len().min(JUDGES_MAX);
        let judges: Vec<u32> = (0..count).map(|i| judges[i * judges.len() / count]).collect();
        predict::index(self.cpu, &mut self.model, &self.examples, &judges);
        self.state.progress.train_seconds += start.elapsed().as_secs_f64();
    }

    /// Whether [`index`](Self::index) has something to do: after a step, or where ranks have
    /// trained the model and one process has it now.
    pub fn lacks_index(&self) -> bool {
        let is_large = self.model.num_classes() >= INDEXED_CLASSES_MIN;
        is_large && self.model.search.is_none() && self.shard.is_whole()
    }
}
