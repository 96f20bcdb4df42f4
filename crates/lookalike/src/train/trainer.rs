//! A model in training: the data, the order it is read in, and one step at a time.

use std::time::Instant;

use lookalike_kernels::Cpu;
use rand::Rng as _;
use serde::{Deserialize, Serialize};

use super::blend::{HeldOutScores, choose_start};
use super::config::{ConfigError, TrainConfig};
use super::output_step::StepContext;
use super::stages::{Stage, StageClock, StageTimes};
use super::step::{Proposer, Step};
use crate::artifact::Model;
use crate::data::Examples;
use crate::hashing::{Incremental, RefreshSchedule};
use crate::loss::Loss;
use crate::model::{Neighbours, Network, SparsePart};
use crate::optim::Adam;
use crate::random::{Stream, mix, rng};
use crate::sampling::{self, SamplerKind, SamplerStats, Setup};

/// How far training has come; saved with the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Progress {
    /// Steps done.
    pub iteration: u64,
    /// Epochs finished.
    pub epoch: usize,
    /// Examples of the current epoch that are done.
    pub position: usize,
    /// Time spent in making the model and in steps; reading and evaluation are not counted.
    pub train_seconds: f64,
    /// Training examples that have a label.
    pub examples: usize,
}

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
    /// The data changed under a resumed model.
    #[error("the model has {model} {what}, the training data {data}: resume with the data it was trained on")]
    OtherData {
        /// Features, classes or examples.
        what: &'static str,
        /// The model's number.
        model: usize,
        /// The data's number.
        data: usize,
    },
}

/// A model in training.
pub struct Trainer<'a> {
    /// The model as it is now.
    pub model: Model,
    cpu: Cpu,
    examples: Examples<'a>,
    proposer: Proposer,
    schedule: RefreshSchedule,
    step: Step,
    times: StageTimes,
    /// Examples with labels, in this epoch's order.
    order: Vec<u32>,
    /// Examples that choose how much the sparse part counts.
    held_out: Vec<u32>,
    order_epoch: Option<usize>,
    /// False at the start and after resuming within an epoch.
    has_tables: bool,
    /// Classes moved since the last refresh, where the tables want to know.
    changed: ChangedClasses,
}

impl<'a> Trainer<'a> {
    /// A new model for these examples.
    pub fn new(config: TrainConfig, examples: Examples<'a>, cpu: Cpu) -> Result<Self, TrainError> {
        let start = Instant::now();
        config.check(&examples)?;
        let shape = config.network(examples.num_features, examples.num_classes);
        let mut network = Network::random(shape, config.init, config.seed);
        if config.loss == Loss::Nce {
            // Noise-contrastive scores are log-probabilities without a sum to
            // normalise them; from 0 they would first all have to sink to -ln N.
            network.output.bias.w.fill(-(examples.num_classes as f32).ln());
        }
        let model = Model {
            network,
            class_counts: sampling::label_counts(examples),
            training: config,
            progress: Progress::default(),
            text: None,
            names: None,
        };
        let mut trainer = Self::resume(model, examples, cpu)?;
        trainer.model.progress.train_seconds = start.elapsed().as_secs_f64();
        Ok(trainer)
    }

    /// Goes on with a model; its settings may have been changed in between.
    pub fn resume(mut model: Model, examples: Examples<'a>, cpu: Cpu) -> Result<Self, TrainError> {
        let config = &model.training;
        config.check(&examples)?;
        let shape = &model.network.config;
        for (what, model, data) in [
            ("features", shape.num_features, examples.num_features),
            ("classes", shape.num_classes, examples.num_classes),
        ] {
            if model != data {
                return Err(TrainError::OtherData { what, model, data });
            }
        }
        let setup = Setup {
            seed: config.seed,
            budget: config.budget_for(shape.num_classes),
            dim: model.network.output.dim,
            label_counts: &model.class_counts,
            lsh: &config.lsh,
            mixed: &config.mixed,
        };
        let proposer = match config.sampler {
            SamplerKind::Full => Proposer::All,
            kind => Proposer::Sampler(sampling::build(kind, &setup).map_err(ConfigError::from)?),
        };
        let schedule = config.lsh.schedule();
        let tracks_changes = config.sampler.uses_tables() && config.lsh.incremental != Incremental::Never;
        let changed = ChangedClasses::new(if tracks_changes { shape.num_classes } else { 0 });
        // Examples without a label teach nothing here and are left out.
        let labelled = |&i: &u32| !examples.labels(i as usize).is_empty();
        let mut order: Vec<u32> = (0..examples.len() as u32).filter(labelled).collect();
        model.progress.examples = order.len();
        let mut held_out = Vec::new();
        let mut step = Step::default();
        // A network that was trained without a sparse part goes on without.
        let is_new = model.progress.iteration == 0;
        if let Some(sparse) = config.sparse.filter(|_| is_new || model.network.sparse.is_some()) {
            held_out = hold_out(&mut order, sparse.held_out, config.seed);
            let normalise = model.network.config.normalise;
            let mut own = Vec::new();
            if is_new {
                let (part, examples_own) =
                    choose_start(&sparse, normalise, &model.class_counts, &examples, &order, &held_out);
                model.network.sparse = Some(part);
                own = examples_own;
            } else if model.progress.epoch < sparse.epochs {
                // Not saved: it is what the start of this very data was.
                let start = model.network.sparse.as_ref().map(SparsePart::start).unwrap_or_default();
                (_, own) = SparsePart::from_means(&examples, &order, normalise, sparse.mean_rows(start));
            }
            let priors = model.network.sparse.as_ref().map(|part| part.priors(&model.class_counts));
            step.start_sparse(own, priors.unwrap_or_default());
        }
        model.network.prepare_training();
        Ok(Self {
            model,
            cpu,
            examples,
            proposer,
            schedule,
            step,
            times: StageTimes::default(),
            order,
            held_out,
            order_epoch: None,
            has_tables: false,
            changed,
        })
    }

    /// Steps in an epoch.
    pub fn steps_per_epoch(&self) -> u64 {
        self.order.len().div_ceil(self.model.training.batch) as u64
    }

    /// Steps in the planned run.
    pub fn planned_steps(&self) -> u64 {
        self.steps_per_epoch() * self.model.training.epochs as u64
    }

    /// Whether the planned epochs are done.
    pub fn is_done(&self) -> bool {
        self.model.progress.epoch >= self.model.training.epochs
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
        let config = &self.model.training;
        let output = &self.model.network.output;
        let budget = config.budget_for(output.len);
        match config.sampler {
            SamplerKind::Full => "full softmax: every class is scored".into(),
            kind if kind.uses_tables() => match config.lsh.choose(budget, output.len, output.dim) {
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

    /// Trains on one batch.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        let start = Instant::now();
        let progress = self.model.progress;
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
        if starts_epoch && progress.epoch > 0 {
            self.add_priors(-1.0);
        }
        let config = &self.model.training;
        let rate = config.rate_at(progress.iteration, self.planned_steps());
        let end = self.order.len().min(progress.position + config.batch);
        let batch = &self.order[progress.position..end];
        let context = StepContext {
            cpu: self.cpu,
            adam: Adam::at(config.adam, progress.iteration + 1, rate),
            seed: config.seed,
            iteration: progress.iteration,
            loss: config.loss,
            corrects_log_q: config.corrects_log_q(),
            near: config.sparse.map_or(0, |sparse| sparse.negatives),
            sparse_rate: config.sparse_rate_at(progress.iteration, self.steps_per_epoch())
                * self.model.network.sparse.as_ref().map_or(1.0, |sparse| sparse.start().rate()),
        };
        let network = &mut self.model.network;
        let loss = self.step.run(&context, network, &mut self.proposer, &self.examples, batch);
        clock.end_measured(self.step.stage_times());
        self.times = clock.times();
        let batch = batch.len();
        if !loss.is_finite() {
            let (iteration, epoch) = (progress.iteration, progress.epoch + 1);
            return Err(TrainError::Diverged { loss, iteration, epoch, rate });
        }
        self.changed.add(self.step.touched_classes());
        if end == self.order.len() {
            self.blend();
        }
        self.advance(end, start.elapsed().as_secs_f64());
        Ok(StepReport { progress: self.model.progress, loss, rate, batch, refreshed })
    }

    fn advance(&mut self, end: usize, seconds: f64) {
        let progress = &mut self.model.progress;
        progress.iteration += 1;
        progress.train_seconds += seconds;
        progress.position = end;
        if end == self.order.len() {
            progress.position = 0;
            progress.epoch += 1;
        }
    }

    /// Fisher–Yates on the sorted order, so that an epoch's order depends on the
    /// seed and the epoch alone, also after resuming.
    fn shuffle(&mut self, epoch: usize) {
        self.order.sort_unstable();
        let mut random = rng(self.model.training.seed, Stream::Shuffle, epoch as u64, 0);
        for i in (1..self.order.len()).rev() {
            let j = crate::random::below(random.next_u64(), i as u32 + 1) as usize;
            self.order.swap(i, j);
        }
        self.order_epoch = Some(epoch);
    }

    fn refresh(&mut self) {
        if let Proposer::Sampler(sampler) = &mut self.proposer {
            sampler.refresh(self.cpu, self.model.network.output.view(), self.changed.list());
            self.changed.clear();
        }
        self.step.refresh(&self.model.network);
        self.has_tables = true;
    }

    /// At the end of an epoch: how much does the sparse part help, and, after the
    /// last one, how much do the nearest examples? A sparse part that does not, also because it has
    /// diverged, is dropped: searching near classes with it costs time. Held-out
    /// examples have then nothing left to choose and are trained on like the others.
    fn blend(&mut self) {
        let (Some(config), network) = (self.model.training.sparse, &mut self.model.network) else { return };
        let Some(sparse) = &network.sparse else { return };
        let mut blend = sparse.blend();
        if !self.held_out.is_empty() {
            self.step.refresh(network);
            let near = self.step.near(network, &self.examples, &self.held_out, config.negatives);
            let scores = HeldOutScores::new(self.cpu, network, &self.examples, &self.held_out, near);
            blend = scores.best_blend();
            let kept = network.neighbours.take();
            // Searching them takes a while, and no step of training needs them.
            let is_last = self.model.progress.epoch + 1 >= self.model.training.epochs;
            if config.neighbours && blend != 0.0 && (is_last || kept.is_some()) {
                let kept = kept.unwrap_or_else(|| Neighbours::new(&self.examples, &self.order));
                let weight = scores.best_weight(blend, &kept);
                network.neighbours = (weight != 0.0).then(|| kept.weighted(weight));
            }
        }
        if blend == 0.0 {
            network.sparse = None;
            self.model.training.sparse = None;
            self.order.append(&mut self.held_out);
        } else if let Some(sparse) = &mut network.sparse {
            sparse.set_blend(blend);
            self.add_priors(1.0);
        }
    }

    /// Adds to the output layer's bias, or takes back from it, what the frequency
    /// of each class counts in the blended sparse score.
    fn add_priors(&mut self, sign: f32) {
        let Some(sparse) = &self.model.network.sparse else { return };
        let factor = sign * sparse.blend();
        let bias = &mut self.model.network.output.bias.w;
        for (bias, prior) in bias.iter_mut().zip(self.step.priors()) {
            *bias += factor * prior;
        }
    }
}

/// Takes up to `most` examples, and never more than one in twenty, out of
/// `order`: the same ones for the same seed.
fn hold_out(order: &mut Vec<u32>, most: usize, seed: u64) -> Vec<u32> {
    let count = most.min(order.len() / 20);
    let mut keyed: Vec<(u64, u32)> =
        order.iter().map(|&i| (mix(seed, Stream::HoldOut, 0, u64::from(i)), i)).collect();
    keyed.sort_unstable();
    let mut held_out: Vec<u32> = keyed[..count].iter().map(|&(_, i)| i).collect();
    held_out.sort_unstable();
    order.retain(|i| held_out.binary_search(i).is_err());
    held_out
}

/// A set of classes with its members listed (for algorithm 5 of the paper).
#[derive(Debug)]
struct ChangedClasses {
    is_member: Vec<bool>,
    members: Vec<u32>,
    /// Before the first refresh nothing is known, so everything counts as changed.
    complete: bool,
}

impl ChangedClasses {
    fn new(num_classes: usize) -> Self {
        Self { is_member: vec![false; num_classes], members: Vec::new(), complete: false }
    }

    fn add(&mut self, classes: impl Iterator<Item = u32>) {
        if self.is_member.is_empty() {
            return;
        }
        for class in classes {
            if !std::mem::replace(&mut self.is_member[class as usize], true) {
                self.members.push(class);
            }
        }
    }

    fn list(&mut self) -> Option<&[u32]> {
        self.members.sort_unstable();
        (self.complete && !self.is_member.is_empty()).then_some(&self.members)
    }

    fn clear(&mut self) {
        for class in self.members.drain(..) {
            self.is_member[class as usize] = false;
        }
        self.complete = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::train::SparseConfig;

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
        let held_out = trainer.held_out.clone();
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
        let postings = trainer.model.network.sparse.as_ref().unwrap().postings(211);
        for (&example, before) in held_out.iter().zip(&before) {
            assert!(postings.of(example).0.is_empty());
            assert_eq!(&row(&trainer, example), before);
        }
        assert!(!postings.of(trained).0.is_empty());
        assert_ne!(row(&trainer, trained), trained_before);
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
        assert!(trainer.model.network.sparse.is_none() && trainer.model.training.sparse.is_none());
        assert_eq!(trainer.num_examples(), 177);
    }
}
