//! How a trainer comes about: with a new model, or with one that goes on.

use std::sync::Arc;
use std::time::Instant;

use lookalike_kernels::Cpu;

use super::Trainer;
use super::folds::Folds;
use super::refresh::{restore, restore_near};
use crate::collective::{Collective, Shard};
use crate::data::{DataFingerprint, Examples};
use crate::hashing::Incremental;
use crate::model::{ClassFrequencies, Model, Network, SparseStart};
use crate::sampling::{self, SamplerKind};
use crate::train::changed::ChangedClasses;
use crate::train::class_start::start_classes;
use crate::train::config::{ClassStart, ConfigError, TrainConfig};
use crate::train::error::TrainError;
use crate::train::held_out::HeldOut;
use crate::train::sharded;
use crate::train::sparse::{SparseTraining, judged_start};
use crate::train::stages::StageTimes;
use crate::train::state::{Checkpoint, TrainingState};
use crate::train::step::{Proposer, Step};
use crate::train::unseen::{FeatureCounts, Unseen};

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
        let shard = Shard::new(collective, examples.num_classes);
        let (features, classes) = (shard.features(examples.num_features), shard.classes());
        config.check_memory(features.len(), classes.len())?;
        let mut checkpoint = new_checkpoint(config, &shard, &examples);
        checkpoint.state.data = Some(DataFingerprint::of(&examples));
        let mut trainer = Self::start(checkpoint, shard, examples, cpu, None)?;
        trainer.start_classes();
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
        check_sizes([
            ("features", model.num_features(), examples.num_features),
            ("classes", model.num_classes(), examples.num_classes),
        ])?;
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
        let network = &model.network;
        check_sizes([
            ("features on this rank", network.input.len, shard.features(examples.num_features).len()),
            ("classes on this rank", network.output.len, shard.classes().len()),
        ])?;
        Self::start(checkpoint, shard, examples, cpu, None)
    }

    /// With what a checkpoint has; a sparse part, if it is to have one and lacks it, starts
    /// as told, or else as held-out examples want it.
    pub(in crate::train) fn start(
        checkpoint: Checkpoint,
        shard: Shard,
        examples: Examples<'a>,
        cpu: Cpu,
        sparse_start: Option<SparseStart>,
    ) -> Result<Self, TrainError> {
        let Checkpoint { mut model, mut state } = checkpoint;
        sharded::check(&shard)?;
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
        let has_seen_others = model.frequencies.num_examples > order.len();
        let counts = match held_out_max == 0 || has_seen_others {
            true => FeatureCounts::unknown(),
            false => FeatureCounts::of(&examples),
        };
        // Those of a part that was dropped come back with the next epoch.
        let are_out = held_out_max > 0 || state.progress.position > 0;
        let held_out = match state.held_out.take().filter(|_| are_out) {
            Some(held_out) => {
                order.retain(|i| held_out.binary_search(i).is_err());
                HeldOut::Apart(held_out)
            }
            None => HeldOut::choose(&mut order, config, &examples),
        };
        let mut sparse = config.sparse.map(|sparse| {
            if model.sparse.is_none() {
                let judged = || {
                    let judges = (&held_out, &counts);
                    judged_start(cpu, &sparse, (&model, &shard), &examples, &order, judges)
                };
                let start = sparse_start.unwrap_or_else(judged);
                SparseTraining::start(cpu, sparse, &shard, &mut model, &examples, &order, start)
            } else {
                let epoch_steps = order.len().div_ceil(config.batch) as u64;
                let is_trained = config.sparse_rate_at(state.progress.iteration, epoch_steps) == 0.0;
                SparseTraining::resume(sparse, &shard, &model, is_trained, &examples, &order)
            }
        });
        let (apart, in_folds) = match held_out {
            HeldOut::Apart(apart) => ((held_out_max > 0 || !apart.is_empty()).then_some(apart), Vec::new()),
            HeldOut::InFolds(in_folds) => (None, in_folds),
        };
        let unseen = Unseen::of(&examples, apart.as_deref().unwrap_or_default(), &counts);
        state.held_out = apart;
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
            unseen,
            order_epoch: None,
            has_tables,
            folds: Folds::new(in_folds),
            sparse_diverged_at: None,
            is_settled: false,
            changed,
        })
    }

    /// Where class vectors of a new model start.
    pub(super) fn start_classes(&mut self) {
        if self.state.config.class_start == ClassStart::Examples {
            let (network, examples) = (&mut self.model.network, &self.examples);
            start_classes(self.cpu, network, examples, &self.order, &self.shard);
        }
    }
}

/// A new model, of what a shard has, before anything is known of the data but how often
/// there is each class.
pub(super) fn new_checkpoint(config: TrainConfig, shard: &Shard, examples: &Examples<'_>) -> Checkpoint {
    let shape = config.network(examples.num_features, examples.num_classes);
    let (features, classes) = (shard.features(examples.num_features), shard.classes());
    let mut network = Network::random_shard(shape, config.init, config.seed, features, classes);
    network.output.bias.fill(config.loss().over_candidates().starting_bias(examples.num_classes));
    let state = TrainingState::new(config, &network);
    Checkpoint { model: Model::new(network, ClassFrequencies::of(examples)), state }
}

/// Who proposes negatives of a shard's classes.
pub(super) fn proposer(config: &TrainConfig, model: &Model, shard: &Shard) -> Result<Proposer, ConfigError> {
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

/// Whether what a model has so many of, the data has as many of.
fn check_sizes(sizes: [(&'static str, usize, usize); 2]) -> Result<(), TrainError> {
    match sizes.into_iter().find(|(_, model, data)| model != data) {
        Some((what, model, data)) => Err(TrainError::OtherData { what, model, data }),
        None => Ok(()),
    }
}
