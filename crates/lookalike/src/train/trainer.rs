//! A model in training: the data, the order it is read in, and one step at a time.

use std::sync::Arc;
use std::time::Instant;

use lookalike_kernels::Cpu;
use rand::Rng as _;

use super::calibrate::calibrate;
use super::changed::ChangedClasses;
use super::class_start::start_classes;
use super::config::{ClassStart, ConfigError, TrainConfig};
use super::context::StepContext;
use super::finite::{first_bad_parameter, first_bad_tensor};
use super::sharded;
use super::sparse::{SparseTraining, hold_out};
use super::stages::{Stage, StageClock, StageTimes};
use super::state::{BestScore, Checkpoint, LastRefresh, Progress, SavedTables, TrainingState};
use super::step::{Proposer, Step};
use crate::collective::{Collective, Disagreement, Shard};
use crate::data::{DataFingerprint, Examples};
use crate::hashing::{HashTables, Incremental, RefreshSchedule};
use crate::model::{ClassFrequencies, Model, Network};
use crate::optim::{Adam, NetworkMoments};
use crate::predict::{self, Predictor};
use crate::random::{Rng, Stream, rng};
use crate::sampling::{self, SamplerKind, SamplerStats};

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
    NotKept(#[source] super::run::KeepError),
    /// A checkpoint can't be written.
    #[error("cannot write a checkpoint; those before it are as they were")]
    CheckpointNotKept(#[source] super::run::KeepError),
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

/// Examples that judge a search index at most.
const JUDGES_MAX: usize = 500;

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
    /// False for a new sampler, unless its tables were kept: at the start and where sparse
    /// weights were dropped.
    has_tables: bool,
    /// Steps done when the sparse part was found to have diverged.
    sparse_diverged_at: Option<u64>,
    /// Whether held-out examples have chosen since the last step.
    is_settled: bool,
    /// Classes moved since the last refresh, where the tables want to know.
    changed: ChangedClasses,
}

impl<'a> Trainer<'a> {
    /// A new model for these examples.
    pub fn new(config: TrainConfig, examples: Examples<'a>, cpu: Cpu) -> Result<Self, TrainError> {
        Self::new_on(sharded::alone(), config, examples, cpu)
    }

    /// A new model on several ranks, each with its own trainer: they all call the same
    /// methods in the same order.
    pub fn new_on(
        collective: Arc<dyn Collective>,
        config: TrainConfig,
        examples: Examples<'a>,
        cpu: Cpu,
    ) -> Result<Self, TrainError> {
        let start = Instant::now();
        config.check(&examples)?;
        config.check_memory(examples.num_features, examples.num_classes)?;
        let shape = config.network(examples.num_features, examples.num_classes);
        let shard = Shard::new(collective, examples.num_classes);
        let mut network = Network::random_shard(shape, config.init, config.seed, shard.classes());
        let frequencies = ClassFrequencies::of(&examples);
        network.output.bias.fill(config.loss().over_candidates().starting_bias(examples.num_classes));
        let state = TrainingState {
            config,
            progress: Progress::default(),
            moments: NetworkMoments::of(&network),
            data: Some(DataFingerprint::of(&examples)),
            held_out: None,
            rehearsal: None,
            best: BestScore::default(),
            refresh: None,
        };
        let model = Model::new(network, frequencies);
        let mut trainer = Self::start(Checkpoint { model, state }, shard, examples, cpu)?;
        if trainer.state.config.class_start == ClassStart::Examples {
            let (network, classes) = (&mut trainer.model.network, trainer.shard.classes());
            start_classes(cpu, network, &trainer.examples, &trainer.order, classes);
        }
        trainer.state.progress.train_seconds = start.elapsed().as_secs_f64();
        Ok(trainer)
    }

    /// Goes on with the data that the model was trained on; settings that do not
    /// belong to the model may have been changed in between.
    pub fn resume(checkpoint: Checkpoint, examples: Examples<'a>, cpu: Cpu) -> Result<Self, TrainError> {
        Self::resume_on(sharded::alone(), checkpoint, examples, cpu)
    }

    /// As [`resume`](Self::resume), on several ranks: the checkpoint is what this one holds
    /// ([`load_checkpoint_on`](crate::artifact::load_checkpoint_on)).
    pub fn resume_on(
        collective: Arc<dyn Collective>,
        checkpoint: Checkpoint,
        examples: Examples<'a>,
        cpu: Cpu,
    ) -> Result<Self, TrainError> {
        let Checkpoint { model, state } = &checkpoint;
        state.config.check(&examples)?;
        check_sizes(model, &examples)?;
        state.config.check_model(model)?;
        let found = DataFingerprint::of(&examples);
        if let Some(expected) = &state.data {
            if expected.examples != found.examples {
                let (model, data) = (expected.examples, found.examples);
                return Err(TrainError::OtherData { what: "training examples", model, data });
            }
            if *expected != found {
                let (expected, found) = (expected.crc32, found.crc32);
                return Err(TrainError::ChangedData { expected, found });
            }
        }
        let shard = Shard::new(collective, examples.num_classes);
        let (here, wanted) = (model.network.output.len, shard.classes().len());
        if here != wanted {
            return Err(TrainError::OtherData { what: "classes on this rank", model: here, data: wanted });
        }
        Self::start(checkpoint, shard, examples, cpu)
    }

    pub(super) fn start(
        checkpoint: Checkpoint,
        shard: Shard,
        examples: Examples<'a>,
        cpu: Cpu,
    ) -> Result<Self, TrainError> {
        let Checkpoint { mut model, mut state } = checkpoint;
        sharded::check(&state.config, &shard)?;
        sharded::agree(&state, cpu, &shard)?;
        let config = &state.config;
        let output = &model.network.output;
        let mut proposer = proposer(config, &model, &shard)?;
        let tracks_changes = config.sampler.uses_tables() && config.lsh.incremental != Incremental::Never;
        let changed = ChangedClasses::new(if tracks_changes { output.len } else { 0 });
        // Examples without a label or a weight teach nothing here and are left out.
        let teaches = |&i: &u32| examples.teaches(i as usize);
        let mut order: Vec<u32> = (0..examples.len() as u32).filter(teaches).collect();
        let held_out_max = config.held_out_max();
        // Those of a part that was dropped come back with the next epoch.
        let are_out = held_out_max > 0 || state.progress.position > 0;
        let held_out = match state.held_out.take().filter(|_| are_out) {
            Some(held_out) => {
                order.retain(|i| held_out.binary_search(i).is_err());
                held_out
            }
            None => hold_out(&mut order, held_out_max, config.seed),
        };
        let mut sparse = config.sparse.map(|sparse| {
            if model.sparse.is_none() {
                SparseTraining::start(sparse, &shard, &mut model, &examples, &order, &held_out)
            } else {
                let epoch_steps = order.len().div_ceil(config.batch) as u64;
                let is_trained = config.sparse_rate_at(state.progress.iteration, epoch_steps) == 0.0;
                SparseTraining::resume(sparse, &shard, &model, is_trained, &examples, &order)
            }
        });
        state.held_out = (held_out_max > 0 || !held_out.is_empty()).then_some(held_out);
        if let Some(rehearsal) = &state.rehearsal {
            rehearsal.leave_epoch(&mut order, &examples, config.seed, state.progress.epoch);
        }
        // A file may say anything.
        let position = state.progress.position;
        if position > 0 && position >= order.len() {
            let (what, model, data) = ("examples done in this epoch", position, order.len());
            return Err(TrainError::OtherData { what, model, data });
        }
        let refresh = state.refresh.take().filter(|_| position > 0);
        let is_restored = refresh.is_some_and(|refresh| {
            restore(&refresh, state.config.seed, &mut proposer)
                && restore_near(&refresh, sparse.as_mut(), &model)
        });
        // Ranks refresh together or not at all.
        let has_tables = !shard.collective().any(!is_restored);
        Ok(Self {
            schedule: state.config.lsh.schedule(),
            model,
            state,
            cpu,
            examples,
            proposer,
            step: Step::of(&shard),
            shard,
            sparse,
            times: StageTimes::default(),
            order,
            order_epoch: None,
            has_tables,
            sparse_diverged_at: None,
            is_settled: false,
            changed,
        })
    }

    /// The model and all that training needs besides, as they are now.
    pub fn into_checkpoint(mut self) -> Checkpoint {
        self.state.refresh = self.last_refresh();
        Checkpoint { model: self.model, state: self.state }
    }

    /// What the last refresh left, if the next step needs it.
    pub fn last_refresh(&self) -> Option<LastRefresh> {
        if self.state.progress.position == 0 || !self.has_tables {
            return None;
        }
        let tables = match &self.proposer {
            Proposer::Sampler(sampler) => sampler.tables(),
            Proposer::All => None,
        };
        let seed = self.state.config.seed;
        let saved = |tables: &HashTables| {
            let (shape, codes, mean) = (*tables.family().shape(), tables.codes(), tables.mean().to_vec());
            SavedTables { seed, shape, codes, mean }
        };
        let near = self.sparse.as_ref().map(SparseTraining::lists);
        Some(LastRefresh { tables: tables.map(saved), near })
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

    /// Lets held-out examples say how the model's scores, as they are now, become
    /// probabilities; the next step makes them worthless.
    fn calibrate(&mut self) {
        let start = Instant::now();
        let held_out = self.state.held_out.as_deref().unwrap_or_default();
        if self.model.calibration.is_none() && !held_out.is_empty() {
            let predictor = Predictor::on(&self.shard, &self.model, self.cpu);
            let calibration = calibrate(&predictor, &self.examples, held_out);
            self.model.calibration = calibration;
            self.state.progress.train_seconds += start.elapsed().as_secs_f64();
        }
    }

    /// Gives the model, as it is now, a search index; the next step makes it worthless.
    /// Held-out examples judge it, or else some that are trained on. A shard of the
    /// classes gets none.
    pub fn index(&mut self) {
        if self.model.search.is_some() || !self.shard.is_whole() {
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

    /// Trains on one batch.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        let start = Instant::now();
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
        if end == self.order.len() {
            self.end_epoch()?;
        }
        self.advance(end, start.elapsed().as_secs_f64());
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
            corrects_log_q: config.corrects_log_q(),
            keep: config.keep_for(self.model.num_classes()),
            clip: config.clip,
            frozen_features: config.frozen_features,
        };
        let (model, batch) = (&mut self.model, (&self.examples, &self.order[places]));
        if let Some(sparse) = &mut self.sparse {
            sparse.propose(model, batch);
            clock.end(Stage::Sample);
        }
        let near = self.sparse.as_ref().map(SparseTraining::near);
        let network = (&mut model.network, moments);
        let loss = self.step.run(&context, network, &mut self.proposer, near, batch.0, batch.1);
        clock.end_measured(self.step.stage_times());
        let mut is_finite = true;
        if let Some(sparse) = &mut self.sparse {
            let start = model.sparse.as_ref().map_or(1.0, |part| part.start().rate());
            let rate = config.sparse_rate_at(progress.iteration, steps_per_epoch) * start;
            if rate > 0.0 {
                is_finite = sparse.run(self.cpu, model, batch, rate);
                clock.end(Stage::Update);
            }
        }
        (loss, is_finite)
    }

    fn advance(&mut self, end: usize, seconds: f64) {
        let progress = &mut self.state.progress;
        progress.iteration += 1;
        progress.train_seconds += seconds;
        progress.position = end;
        if end >= self.order.len() {
            progress.position = 0;
            progress.epoch += 1;
        }
    }

    /// Fisher–Yates on the sorted order, so that an epoch's order depends on the
    /// seed and the epoch alone, also after resuming.
    fn shuffle(&mut self, epoch: usize) {
        if self.state.progress.position == 0 && self.state.config.held_out_max() == 0 {
            self.order.extend(self.state.held_out.take().into_iter().flatten());
        }
        if let Some(rehearsal) = &self.state.rehearsal {
            rehearsal.leave_epoch(&mut self.order, &self.examples, self.state.config.seed, epoch);
        }
        self.order.sort_unstable();
        let mut random = rng(self.state.config.seed, Stream::Shuffle, epoch as u64, 0);
        let window = self.state.config.shuffle_window.unwrap_or(usize::MAX).min(self.order.len());
        if window < self.order.len() {
            let blocks: Vec<&[u32]> = self.order.chunks(window.div_ceil(BLOCKS_A_WINDOW)).collect();
            let mut places: Vec<u32> = (0..blocks.len() as u32).collect();
            shuffle(&mut places, &mut random);
            self.order = places.iter().flat_map(|&block| blocks[block as usize]).copied().collect();
        }
        self.order.chunks_mut(window.max(1)).for_each(|window| shuffle(window, &mut random));
        self.order_epoch = Some(epoch);
    }

    fn refresh(&mut self) {
        if let Proposer::Sampler(sampler) = &mut self.proposer {
            sampler.refresh(self.cpu, self.model.network.output.view(), self.changed.list());
            self.changed.clear();
        }
        if let Some(sparse) = &mut self.sparse {
            sparse.refresh(&self.model);
        }
        self.has_tables = true;
    }

    /// A sparse part that does not help is dropped at the end of an epoch: searching near
    /// classes with it costs time.
    fn end_epoch(&mut self) -> Result<(), ConfigError> {
        self.choose(self.state.progress.epoch + 1 >= self.state.config.epochs);
        let has_held_out = self.state.held_out.as_ref().is_some_and(|held_out| !held_out.is_empty());
        if has_held_out && self.model.sparse.as_ref().is_some_and(|sparse| sparse.blend() == 0.0) {
            self.drop_sparse_part()?;
        }
        Ok(())
    }

    /// Where nothing is calibrated, the held-out examples then have nothing left to choose,
    /// and are trained on like the others from the next epoch on. The sampler has to find
    /// all negatives itself.
    fn drop_sparse_part(&mut self) -> Result<(), ConfigError> {
        (self.model.sparse, self.model.neighbours) = (None, None);
        self.sparse = None;
        self.state.config.sparse = None;
        self.proposer = proposer(&self.state.config, &self.model, &self.shard)?;
        self.has_tables = false;
        Ok(())
    }

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

    fn choose(&mut self, with_nearest: bool) {
        if let (Some(sparse), Some(held_out)) = (&self.sparse, &self.state.held_out) {
            let choosing = (&self.order[..], &held_out[..]);
            sparse.choose(self.cpu, &mut self.model, &self.examples, choosing, with_nearest);
        }
        self.is_settled = with_nearest;
    }
}

/// Who proposes negatives of a shard's classes.
fn proposer(config: &TrainConfig, model: &Model, shard: &Shard) -> Result<Proposer, ConfigError> {
    let kind = config.sampler;
    if kind == SamplerKind::Full {
        return Ok(Proposer::All);
    }
    let setup = config.setup(&model.frequencies.examples_of_class, model.network.output.dim);
    let sampler = match shard.is_whole() {
        true => sampling::build(kind, &setup)?,
        false => sampling::build_sharded(kind, &setup, shard)?,
    };
    Ok(Proposer::Sampler(sampler))
}

/// Blocks of neighbours that are shuffled together.
const BLOCKS_A_WINDOW: usize = 64;

fn shuffle(list: &mut [u32], random: &mut Rng) {
    for i in (1..list.len()).rev() {
        let j = crate::random::below(random.next_u64(), i as u32 + 1) as usize;
        list.swap(i, j);
    }
}

/// Makes the tables those of the last refresh; false if they are not what was kept.
fn restore(refresh: &LastRefresh, seed: u64, proposer: &mut Proposer) -> bool {
    let Proposer::Sampler(sampler) = proposer else { return true };
    let Some(shape) = sampler.tables().map(|tables| *tables.family().shape()) else { return true };
    refresh.tables.as_ref().is_some_and(|saved| {
        saved.seed == seed && saved.shape == shape && sampler.restore(&saved.codes, &saved.mean)
    })
}

/// The same for the lists of near classes.
fn restore_near(refresh: &LastRefresh, sparse: Option<&mut SparseTraining>, model: &Model) -> bool {
    let Some(sparse) = sparse else { return true };
    refresh.near.as_ref().is_some_and(|lists| sparse.restore(lists, model))
}

fn check_sizes(model: &Model, examples: &Examples<'_>) -> Result<(), TrainError> {
    for (what, model, data) in [
        ("features", model.num_features(), examples.num_features),
        ("classes", model.num_classes(), examples.num_classes),
    ] {
        if model != data {
            return Err(TrainError::OtherData { what, model, data });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::model::Numbers;
    use crate::train::sparse::hold_out;
    use crate::train::{SparseConfig, TrainConfig};

    /// 200 examples of 10 classes, each with a feature of its own (its number),
    /// one of its class, one of all and, but for every ninth example, a label.
    fn data() -> Dataset {
        let mut data = Dataset::empty(211, 10);
        for i in 0..200u32 {
            let label = [i % 10];
            data.push([(i, 1.0), (200 + i % 10, 2.0), (210, 1.0)], if i % 9 == 0 { &[] } else { &label });
        }
        data
    }

    fn config(sparse: SparseConfig) -> TrainConfig {
        TrainConfig {
            batch: 16,
            hidden: vec![8],
            budget: Some(5),
            retrieve: Some(0),
            sparse: Some(sparse),
            ..Default::default()
        }
    }

    /// A held-out example's own feature is known to nobody after training.
    #[test]
    fn held_out_examples_are_never_trained_on() {
        let data = data();
        let sparse = SparseConfig { held_out: 6, ..SparseConfig::default() };
        let mut trainer = Trainer::new(config(sparse), data.view(), Cpu::detect()).unwrap();
        let held_out = trainer.state.held_out.clone().unwrap();
        assert_eq!(held_out.len(), 6);
        assert!(held_out.iter().all(|i| !trainer.order.contains(i) && i % 9 != 0));
        assert_eq!(trainer.order.len() + held_out.len(), 177);
        let row = |trainer: &Trainer<'_>, feature: u32| {
            let input = &trainer.model.network.input;
            let mut row = vec![0.0; input.stride];
            input.view().copy_row(feature as usize, &mut row);
            row
        };
        let before: Vec<Vec<f32>> = held_out.iter().map(|&i| row(&trainer, i)).collect();
        let trained = trainer.order[0];
        let trained_before = row(&trainer, trained);
        while !trainer.is_done() {
            trainer.step().unwrap();
        }
        let postings = trainer.model.sparse.as_ref().unwrap().postings(211);
        for (&example, before) in held_out.iter().zip(&before) {
            assert!(postings.of(example).0.is_empty());
            assert_eq!(&row(&trainer, example), before);
        }
        assert!(!postings.of(trained).0.is_empty());
        assert_ne!(row(&trainer, trained), trained_before);
    }

    /// Who looks at a model within an epoch sees all of it, and changes nothing.
    #[test]
    fn a_model_can_be_looked_at_at_any_time() {
        let data = data();
        let sparse = SparseConfig { held_out: 8, ..SparseConfig::default() };
        let run = |looks: bool| {
            let mut trainer = Trainer::new(config(sparse), data.view(), Cpu::detect()).unwrap();
            while !trainer.is_done() {
                trainer.step().unwrap();
                if looks {
                    trainer.settle();
                    assert!(trainer.is_settled);
                }
            }
            trainer.into_checkpoint().model
        };
        let (looked_at, left_alone) = (run(true), run(false));
        let Numbers::F32(expected) = &left_alone.network.output.weights else { unreachable!() };
        let Numbers::F32(found) = &looked_at.network.output.weights else { unreachable!() };
        assert_eq!(found[..], expected[..]);
        let weights =
            |model: &Model| model.sparse.as_ref().map(|part| (part.weights().to_vec(), part.blend()));
        assert_eq!(weights(&looked_at), weights(&left_alone));
        let nearest = |model: &Model| model.neighbours.as_ref().map(|kept| kept.weight());
        assert_eq!(nearest(&looked_at), nearest(&left_alone));
    }

    #[test]
    fn settling_chooses_what_the_end_of_an_epoch_would() {
        let data = data();
        let sparse = SparseConfig { held_out: 8, ..SparseConfig::default() };
        let mut trainer = Trainer::new(config(sparse), data.view(), Cpu::detect()).unwrap();
        for _ in 0..3 {
            trainer.step().unwrap();
        }
        let unseen = 77.0;
        trainer.model.sparse.as_mut().unwrap().set_blend(unseen);
        trainer.settle();
        assert_ne!(trainer.model.sparse.as_ref().unwrap().blend(), unseen);
    }

    #[test]
    fn a_window_is_made_of_blocks_and_an_epoch_of_all_examples() {
        let data = data();
        let config = TrainConfig { sparse: None, ..config(SparseConfig::default()) };
        let order = |window, epoch| {
            let config = TrainConfig { shuffle_window: window, ..config.clone() };
            let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
            trainer.shuffle(epoch);
            trainer.order
        };
        let sorted = |mut order: Vec<u32>| {
            order.sort_unstable();
            order
        };
        let all = order(None, 0);
        // A window that holds all is none.
        assert_eq!(order(Some(10_000), 0), all);
        // 128 examples: blocks of two, of which 64 stand together.
        let windows = order(Some(128), 0);
        assert!(windows != all && windows != order(Some(128), 1));
        assert_eq!(sorted(windows.clone()), sorted(all));
        let neighbours = sorted(windows.clone());
        let blocks: Vec<&[u32]> = neighbours.chunks(2).collect();
        let is_cut = |block: &&&[u32]| {
            let window = |i: &u32| windows.iter().position(|j| i == j).unwrap() / 128;
            block.iter().any(|i| window(i) != window(&block[0]))
        };
        // The last block is short, so that one may lie across.
        assert!(blocks.iter().filter(is_cut).count() <= 1);
    }

    #[test]
    fn a_model_that_no_memory_holds_is_refused() {
        let mut data = data();
        data.num_classes = u32::MAX as usize;
        let config = TrainConfig { hidden: vec![16_384], ..config(SparseConfig::default()) };
        let refused = Trainer::new(config, data.view(), Cpu::detect()).err().unwrap();
        assert!(matches!(refused, TrainError::Config(ConfigError::Memory { .. })), "{refused}");
    }

    #[test]
    fn a_place_beyond_the_data_is_refused() {
        let data = data();
        let trainer = || Trainer::new(config(SparseConfig::default()), data.view(), Cpu::detect()).unwrap();
        for position in [169, 1 << 62, usize::MAX] {
            let mut checkpoint = trainer().into_checkpoint();
            checkpoint.state.progress.position = position;
            let resumed = Trainer::resume(checkpoint, data.view(), Cpu::detect());
            assert!(matches!(resumed, Err(TrainError::OtherData { .. })), "{position}");
        }
    }

    #[test]
    fn at_most_one_example_in_twenty_is_held_out() {
        let mut order: Vec<u32> = (0..100).collect();
        assert_eq!(hold_out(&mut order, 1000, 1).len(), 5);
        assert_eq!(order.len(), 95);
        let mut few: Vec<u32> = (0..19).collect();
        assert!(hold_out(&mut few, 1000, 1).is_empty());
        let mut one: Vec<u32> = (0..100).collect();
        let mut two: Vec<u32> = (0..100).collect();
        assert_ne!(hold_out(&mut one, 1000, 1), hold_out(&mut two, 1000, 2));
    }

    /// Weights that ran off to infinity, or are no numbers, must not count; the
    /// examples that found it out are then trained on.
    #[test]
    fn a_sparse_part_that_diverged_does_not_count() {
        let data = data();
        let sparse = SparseConfig { rate: 1e38, ..SparseConfig::default() };
        let config = TrainConfig { epochs: 3, lr: 0.05, ..config(sparse) };
        let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
        while !trainer.is_done() {
            trainer.step().unwrap();
        }
        assert!(trainer.model.sparse.is_none() && trainer.state.config.sparse.is_none());
        assert_eq!(trainer.num_examples(), 177);
    }
}
