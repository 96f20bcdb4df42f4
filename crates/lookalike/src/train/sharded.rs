//! A trainer that is one rank of several: what it may do, what it holds, and what ranks
//! do together besides their steps.
//!
//! The output layer, its moments and its hash tables, sparse rows and which training
//! examples a class has are sharded by class, the rows of the input layer with theirs by
//! feature. Everything else (hidden layers, biases below the output, frequencies of classes,
//! data) is on every rank, and moves there by the same bits, as all ranks see every batch and
//! the embeddings' gradient is whole before the layers below get it.

use std::sync::Arc;

use lookalike_kernels::Cpu;

use super::error::TrainError;
use super::state::TrainingState;
use super::trainer::Trainer;
use crate::collective::{Agreement, Collective, Shard};
use crate::data::Examples;
use crate::metrics::{MetricOptions, MetricsError};
use crate::predict::{Evaluation, Predictor, Search};

/// Whether ranks can share this work at all.
pub(super) fn check(shard: &Shard) -> Result<(), TrainError> {
    if shard.num_classes() < shard.collective().size() {
        return Err(TrainError::NotSharded("there are more ranks than classes: start fewer"));
    }
    Ok(())
}

/// Whether all ranks are about to do the same.
pub(super) fn agree(state: &TrainingState, cpu: Cpu, shard: &Shard) -> Result<(), TrainError> {
    if shard.is_whole() {
        return Ok(());
    }
    let data = state.data.as_ref().map(|data| {
        let [examples, features, classes] = [data.examples, data.features, data.classes];
        format!("{examples} examples, {features} features, {classes} classes, checksum {:08x}", data.crc32)
    });
    let progress = &state.progress;
    let agreement = Agreement::new()
        .on("version", env!("CARGO_PKG_VERSION"))
        .on("training data", data.unwrap_or_default())
        // Layers that every rank has must move by the same bits.
        .on("instructions (LOOKALIKE_CPU)", cpu.name())
        .on("steps done", progress.iteration)
        .on("examples done", progress.position)
        .on("settings", serde_json::to_string(&state.config).unwrap_or_default());
    Ok(agreement.check(shard.collective())?)
}

impl Trainer<'_> {
    /// The classes of this rank; all of them on one process.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Which of some wishes any rank has.
    pub(super) fn wishes_of_all<const N: usize>(&self, wishes: [bool; N]) -> [bool; N] {
        let mut counts = wishes.map(u32::from);
        self.shard.collective().sum_u32(&mut counts);
        counts.map(|count| count > 0)
    }

    /// Measures the model as it is now, on all ranks together: they all get the same.
    pub fn evaluate(
        &self,
        examples: &Examples<'_>,
        unknown_labels: &(dyn Fn(usize) -> usize + Sync),
        options: &MetricOptions,
    ) -> Result<Evaluation, MetricsError> {
        let predictor = Predictor::in_training(&self.shard, &self.model, self.cpu());
        predictor.evaluate(examples, unknown_labels, options, Search::Exact)
    }
}

/// A collective of one, for whoever does not say.
pub(super) fn alone() -> Arc<dyn Collective> {
    Arc::new(crate::collective::Alone)
}
