//! Training of the sparse part, and of what is chosen on held-out examples.
//!
//! [`SparseTraining`] owns what this takes: the index that finds near classes, and the
//! step's buffers. The weights themselves belong to the model. [`start`] chooses what
//! weights start from, [`step`] moves them, [`choose`] and [`blend`] decide how much they
//! count, after each epoch and whenever somebody looks at the model.

mod blend;
mod choose;
mod config;
mod start;
mod step;

pub(super) use choose::{Judge, choose};
pub use config::SparseConfig;
pub(super) use start::judged_start;
pub(super) use step::LABELS_COUNTED;

use std::borrow::Cow;

use lookalike_kernels::Cpu;

use crate::collective::Shard;
use crate::data::Examples;
use crate::model::{Model, Normalise, SparsePart, SparseStart};
use crate::sampling::{FeatureIndex, FeatureLists, NearClasses, Truths};
use start::start_part;
use step::SparseStep;

/// What training the sparse part takes besides the weights.
#[derive(Debug)]
pub(super) struct SparseTraining {
    config: SparseConfig,
    /// Which classes have their rows here.
    shard: Shard,
    /// By class that is here: what one of its examples has put into its score at the start.
    own: Vec<f32>,
    index: FeatureIndex,
    near: NearClasses,
    step: SparseStep,
}

/// A batch of the training examples.
pub(super) type Batch<'a> = (&'a Examples<'a>, &'a [u32]);

impl SparseTraining {
    /// Gives a model without a sparse part one that starts from the examples `chosen`.
    pub(super) fn start(
        cpu: Cpu,
        config: SparseConfig,
        shard: &Shard,
        model: &mut Model,
        examples: &Examples<'_>,
        chosen: &[u32],
        start: SparseStart,
    ) -> Self {
        let (part, own) = start_part(cpu, &config, (model, shard), examples, chosen, start);
        model.sparse = Some(part);
        Self::new(config, shard, own)
    }

    /// Goes on with a model's sparse part, which started from the examples `chosen`.
    pub(super) fn resume(
        config: SparseConfig,
        shard: &Shard,
        model: &Model,
        is_trained: bool,
        examples: &Examples<'_>,
        chosen: &[u32],
    ) -> Self {
        if is_trained {
            return Self::new(config, shard, Vec::new());
        }
        // Not saved: it follows from the start of this very data. Where it is not all
        // that the rows started from, one example of many has put less into them.
        let start = model.sparse.as_ref().map(SparsePart::start).unwrap_or_default();
        let (rows, counts) = (config.mean_rows(start), &model.frequencies.examples_of_class);
        let normalise = model.network.config.normalise;
        let classes = shard.classes();
        let (_, mut own) =
            SparsePart::from_means_of(classes.clone(), examples, chosen, normalise, rows, counts);
        let here = &examples.label_counts()[classes.clone()];
        for ((own, &here), &all) in own.iter_mut().zip(here).zip(&counts[classes]) {
            *own *= here as f32 / here.max(all).max(1) as f32;
        }
        Self::new(config, shard, own)
    }

    fn new(config: SparseConfig, shard: &Shard, own: Vec<f32>) -> Self {
        let (index, near, shard) = (FeatureIndex::default(), NearClasses::default(), shard.clone());
        Self { config, shard, own, index, near, step: SparseStep::default() }
    }

    /// Takes notice that the weights have changed since it was last told.
    pub(super) fn refresh(&mut self, model: &Model) {
        if let Some(sparse) = &model.sparse {
            let counts = &model.frequencies.examples_of_class;
            self.index.refresh_on(&self.shard, sparse, model.num_features(), counts);
        }
    }

    /// The lists of near classes as the last refresh left them.
    pub(super) fn lists(&self) -> FeatureLists {
        self.index.lists()
    }

    /// Goes on with lists that were kept; false if they are not this model's.
    pub(super) fn restore(&mut self, lists: &FeatureLists, model: &Model) -> bool {
        let Some(sparse) = &model.sparse else { return false };
        let priors = match self.shard.is_whole() {
            true => Cow::Borrowed(sparse.priors()),
            false => Cow::Owned(sparse.start().priors(&model.frequencies.examples_of_class)),
        };
        self.index.restore(lists, &priors, model.num_features())
    }

    /// Finds, when it is called, the classes near each example of a batch, true labels left
    /// out; asks no other rank.
    pub(super) fn search<'s>(
        &'s mut self,
        cpu: Cpu,
        normalise: Normalise,
        batch: Batch<'s>,
    ) -> impl FnOnce() -> &'s NearClasses {
        move || {
            let wanted = self.config.negatives;
            self.index.propose(cpu, batch, normalise, wanted, Truths::LeftOut, &mut self.near);
            &self.near
        }
    }

    /// Moves the weights of true labels and of the near classes found last. False if
    /// they have run off to where they are no numbers.
    pub(super) fn run(&mut self, cpu: Cpu, model: &mut Model, batch: Batch<'_>, rate: f32) -> bool {
        let Some(sparse) = &mut model.sparse else { return true };
        let normalise = model.network.config.normalise;
        let (part, near) = ((sparse, &self.shard), (&self.own[..], &self.near));
        let is_finite = self.step.run(cpu, part, near, batch, normalise, rate);
        !self.shard.collective().any(!is_finite)
    }
}
