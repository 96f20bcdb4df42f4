//! A model in training: the data, the order it is read in, and one step at a time.

mod folds;
mod refresh;
mod settle;
mod start;
#[cfg(test)]
mod tests;

use std::time::Instant;

use lookalike_kernels::Cpu;

use self::folds::Folds;
use self::start::proposer;
use super::changed::ChangedClasses;
use super::config::ConfigError;
use super::context::StepContext;
use super::error::TrainError;
use super::finite::{first_bad_parameter, first_bad_tensor};
use super::order::shuffle_epoch;
use super::sparse::SparseTraining;
use super::stages::{Stage, StageClock, StageTimes};
use super::state::{Progress, TrainingState};
use super::step::{Proposer, Step};
use super::unseen::Unseen;
use crate::collective::Shard;
use crate::data::Examples;
use crate::hashing::RefreshSchedule;
use crate::model::Model;
use crate::optim::Adam;
use crate::sampling::{SamplerKind, SamplerStats};

/// What a step did.
#[derive(Clone, Copy, Debug)]
pub struct StepReport {
    /// Where training stands after it.
    pub progress: Progress,
    /// Mean loss of the batch.
    pub loss: f64,
    /// Learning rate.
    pub rate: f32,
    /// Examples in the batch.
    pub batch: usize,
    /// Whether the hash tables were refreshed before it.
    pub refreshed: bool,
    /// Bytes that it sent to other ranks.
    pub bytes_sent: u64,
}

/// A model in training.
pub struct Trainer<'a> {
    /// The model as it is now.
    pub model: Model,
    /// All that training needs besides.
    pub state: TrainingState,
    cpu: Cpu,
    /// Which classes are here.
    pub(super) shard: Shard,
    examples: Examples<'a>,
    proposer: Proposer,
    schedule: RefreshSchedule,
    step: Step,
    sparse: Option<SparseTraining>,
    times: StageTimes,
    /// Examples that are trained on, in this epoch's order.
    order: Vec<u32>,
    order_epoch: Option<usize>,
    /// Those kept apart, as new ones look; they judge.
    unseen: Unseen,
    /// Who judges instead of examples that nobody trains on.
    folds: Folds<'a>,
    /// False for a new sampler, unless its tables were kept: at the start and where sparse
    /// weights were dropped.
    has_tables: bool,
    /// Steps done when the sparse part was found to have diverged.
    sparse_diverged_at: Option<u64>,
    /// Whether how much parts of the model count has been chosen since the last step.
    is_settled: bool,
    /// Classes moved since the last refresh, where the tables want to know.
    changed: ChangedClasses,
}

impl<'a> Trainer<'a> {
    /// Trains on one batch.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        let start = Instant::now();
        let mut report = self.train_batch()?;
        self.train_folds();
        if report.progress.position == 0 {
            self.end_epoch()?;
        }
        self.state.progress.train_seconds += start.elapsed().as_secs_f64();
        report.progress = self.state.progress;
        Ok(report)
    }

    /// A step of this model alone.
    fn train_batch(&mut self) -> Result<StepReport, TrainError> {
        self.model.calibration = None;
        self.model.search = None;
        let sent_before = self.shard.collective().bytes_sent();
        let progress = self.state.progress;
        let starts_epoch = progress.position == 0;
        if self.order_epoch != Some(progress.epoch) {
            self.shuffle(progress.epoch);
        }
        let refreshed = !self.has_tables || self.schedule.is_due(progress.iteration, starts_epoch);
        let mut clock = StageClock::start();
        if refreshed {
            self.refresh();
            clock.end(Stage::Refresh);
        }
        let config = &self.state.config;
        let rate = config.rate_at(progress.iteration, self.planned_steps());
        let end = self.order.len().min(progress.position + config.batch);
        let (loss, sparse_is_finite) = self.train_on(progress.position..end, rate, &mut clock);
        self.times = clock.times();
        if !loss.is_finite() {
            let (iteration, epoch) = (progress.iteration, progress.epoch + 1);
            return Err(TrainError::Diverged { loss, iteration, epoch, rate });
        }
        if !sparse_is_finite {
            self.sparse_diverged_at = Some(progress.iteration + 1);
            self.drop_sparse_part()?;
        }
        self.changed.add(self.step.touched_classes());
        self.is_settled = false;
        self.advance(end);
        let batch = end - progress.position;
        let bytes_sent = self.shard.collective().bytes_sent() - sent_before;
        Ok(StepReport { progress: self.state.progress, loss, rate, batch, refreshed, bytes_sent })
    }

    /// Moves all parts of the model by a batch; gives the network's loss, and whether sparse
    /// weights are still numbers.
    fn train_on(&mut self, places: std::ops::Range<usize>, rate: f32, clock: &mut StageClock) -> (f64, bool) {
        let steps_per_epoch = self.steps_per_epoch();
        let TrainingState { config, progress, moments, .. } = &mut self.state;
        let context = StepContext {
            cpu: self.cpu,
            adam: Adam::at(config.adam, progress.iteration + 1, rate),
            seed: config.seed,
            iteration: progress.iteration,
            loss: config.loss(),
            labels_counted: config.labels_counted,
            members: config.members(),
            corrects_log_q: config.corrects_log_q(),
            candidates: config.retrieve_for(self.model.num_classes()),
            keep: config.keep_for(self.model.num_classes()),
            clip: config.clip,
            frozen_features: config.frozen_features,
        };
        let (model, batch) = (&mut self.model, (&self.examples, &self.order[places]));
        let (cpu, normalise) = (self.cpu, model.network.config.normalise);
        let find_near = self.sparse.as_mut().map(|sparse| sparse.search(cpu, normalise, batch));
        let network = (&mut model.network, moments);
        let loss = self.step.run(&context, network, &mut self.proposer, find_near, batch.0, batch.1);
        clock.end_measured(self.step.stage_times());
        let mut is_finite = true;
        if let Some(sparse) = &mut self.sparse {
            let start = model.sparse.as_ref().map_or(1.0, |part| part.start().rate());
            let rate = config.sparse_rate_at(progress.iteration, steps_per_epoch) * start;
            if rate > 0.0 {
                is_finite = sparse.run(self.cpu, model, batch, rate);
                clock.end(Stage::Sparse);
            }
        }
        (loss, is_finite)
    }

    fn advance(&mut self, end: usize) {
        let progress = &mut self.state.progress;
        progress.iteration += 1;
        progress.position = end;
        if end >= self.order.len() {
            progress.position = 0;
            progress.epoch += 1;
        }
    }

    fn shuffle(&mut self, epoch: usize) {
        let config = &self.state.config;
        let come_back = self.state.progress.position == 0 && config.held_out_max() == 0;
        if let Some(held_out) = self.state.held_out.take_if(|_| come_back) {
            self.order.extend(held_out);
            self.unseen = Unseen::default();
        }
        if let Some(rehearsal) = &self.state.rehearsal {
            rehearsal.leave_epoch(&mut self.order, &self.examples, config.seed, epoch);
        }
        shuffle_epoch(&mut self.order, config.shuffle_window, config.seed, epoch);
        self.order_epoch = Some(epoch);
    }

    /// A sparse part that does not help is dropped at the end of an epoch: searching near
    /// classes with it costs time.
    fn end_epoch(&mut self) -> Result<(), ConfigError> {
        let is_judged = self.choose(self.is_done());
        if is_judged && self.model.sparse.as_ref().is_some_and(|sparse| sparse.blend() == 0.0) {
            self.drop_sparse_part()?;
        }
        Ok(())
    }

    /// Where nothing is calibrated, nothing is left to judge: examples kept apart are
    /// trained on like the others from the next epoch on. The sampler has to find all
    /// negatives itself.
    fn drop_sparse_part(&mut self) -> Result<(), ConfigError> {
        (self.model.sparse, self.model.neighbours) = (None, None);
        self.sparse = None;
        self.state.config.sparse = None;
        if self.state.config.held_out_max() == 0 {
            self.folds = Folds::default();
        }
        self.proposer = proposer(&self.state.config, &self.model, &self.shard)?;
        self.has_tables = false;
        Ok(())
    }

    /// Looks at every number of the model, which is about to be kept: none that is not
    /// finite leaves the trainer.
    pub fn check_finite(&self) -> Result<(), TrainError> {
        first_bad_parameter(&self.model).map_or(Ok(()), |tensor| Err(self.not_finite(tensor)))
    }

    /// Looks also at what the optimizer remembers, and names the first bad tensor.
    pub fn detect_anomaly(&self) -> Result<(), TrainError> {
        first_bad_tensor(&self.model, &self.state).map_or(Ok(()), |tensor| Err(self.not_finite(tensor)))
    }

    fn not_finite(&self, tensor: String) -> TrainError {
        let Progress { iteration, epoch, .. } = self.state.progress;
        TrainError::NotFinite { tensor, iteration, epoch: epoch + 1 }
    }

    /// After how many steps the sparse part diverged and was dropped, if it did.
    pub fn sparse_diverged_at(&self) -> Option<u64> {
        self.sparse_diverged_at
    }

    /// Steps in an epoch.
    pub fn steps_per_epoch(&self) -> u64 {
        self.order.len().div_ceil(self.state.config.batch) as u64
    }

    /// Steps in the planned run.
    pub fn planned_steps(&self) -> u64 {
        self.steps_per_epoch() * self.state.config.epochs as u64
    }

    /// Whether the planned epochs are done.
    pub fn is_done(&self) -> bool {
        self.state.progress.epoch >= self.state.config.epochs
    }

    /// Epochs done, with the part of the current one.
    pub fn epochs_done(&self) -> f64 {
        let Progress { epoch, position, .. } = self.state.progress;
        epoch as f64 + position as f64 / self.order.len().max(1) as f64
    }

    /// The instructions in use.
    pub fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// How many examples judge how much parts of the model count and what scores mean, and
    /// how many further models do it that have not seen them; with none they are kept apart
    /// from this one.
    pub fn judges(&self) -> (usize, usize) {
        let apart = self.state.held_out.as_ref().map_or(0, Vec::len);
        let in_folds: usize = self.folds.held_out().iter().map(Vec::len).sum();
        (apart + in_folds, self.folds.held_out().len())
    }

    /// Examples that are trained on.
    pub fn num_examples(&self) -> usize {
        self.order.len()
    }

    /// What the sampler has to say about its work.
    pub fn sampler_stats(&self) -> Option<SamplerStats> {
        match &self.proposer {
            Proposer::All => None,
            Proposer::Sampler(sampler) => Some(sampler.stats()),
        }
    }

    /// Who proposes negatives and how, in a sentence for the user.
    pub fn describe_sampler(&self) -> String {
        let (config, dim) = (&self.state.config, self.model.network.output.dim);
        let classes = self.model.num_classes();
        let (budget, retrieve) = (config.budget_for(classes), config.retrieve_for(classes));
        match config.sampler {
            SamplerKind::Full => "full softmax: every class is scored".into(),
            kind if kind.uses_tables() => match config.lsh.choose(retrieve, classes, dim) {
                Ok(choice) if retrieve > budget => {
                    format!("{kind}, the best {budget} of up to {retrieve} negatives an example: {choice}")
                }
                Ok(choice) => format!("{kind}, up to {budget} negatives an example: {choice}"),
                Err(error) => error.to_string(),
            },
            kind => format!("{kind}, {budget} negatives an example"),
        }
    }

    /// Buffers of the last step.
    pub fn last_step(&self) -> &Step {
        &self.step
    }

    /// Where the time of the last step went, a refresh before it included.
    pub fn stage_times(&self) -> StageTimes {
        self.times
    }
}
