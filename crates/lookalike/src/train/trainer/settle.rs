//! What a model gets besides its training, for whoever looks at it or keeps it: how much
//! its parts count, what scores mean, a search index. None of it changes what is trained
//! next, and a step makes it worthless.

use std::time::Instant;

use super::Trainer;
use crate::predict::{self, INDEXED_CLASSES_MIN, Predictor};
use crate::train::calibrate::calibrate;

/// Examples that judge a search index at most.
const JUDGES_MAX: usize = 500;

impl Trainer<'_> {
    /// Makes the model complete as it is now, for whoever looks at it or keeps it before
    /// training is done: held-out examples choose how much its other parts count, the
    /// nearest examples among them, and say what scores mean. What is trained next does not
    /// change by it.
    pub fn settle(&mut self) {
        if !self.is_settled {
            self.choose(true);
        }
        self.calibrate();
    }

    pub(super) fn choose(&mut self, with_nearest: bool) {
        if let (Some(sparse), Some(held_out)) = (&self.sparse, &self.state.held_out) {
            let choosing = (&self.order[..], &held_out[..]);
            sparse.choose(self.cpu, &mut self.model, &self.examples, choosing, with_nearest);
        }
        self.is_settled = with_nearest;
    }

    /// Lets held-out examples say how the model's scores, as they are now, become
    /// probabilities; the next step makes them worthless.
    fn calibrate(&mut self) {
        let start = Instant::now();
        let held_out = self.state.held_out.as_deref().unwrap_or_default();
        if self.model.calibration.is_none() && !held_out.is_empty() {
            let predictor = Predictor::in_training(&self.shard, &self.model, self.cpu);
            let calibration = calibrate(&predictor, &self.examples, held_out);
            self.model.calibration = calibration;
            self.state.progress.train_seconds += start.elapsed().as_secs_f64();
        }
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
