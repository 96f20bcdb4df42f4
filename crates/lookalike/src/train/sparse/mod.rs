//! Training of the sparse part, and of what is chosen on held-out examples.
//!
//! [`SparseTraining`] owns all that this takes: the examples held out from
//! training, the index that finds near classes, and the step's buffers. The
//! weights themselves belong to the model. [`start`] chooses what weights start
//! from, [`step`] moves them, [`blend`] decides how much they count, after each epoch
//! and whenever somebody looks at the model.

mod blend;
mod config;
mod start;
mod step;

pub use config::SparseConfig;
pub(super) use step::LABELS_COUNTED;

use std::borrow::Cow;

use lookalike_kernels::Cpu;

use crate::collective::Shard;
use crate::data::Examples;
use crate::model::{Model, Neighbours, SparsePart};
use crate::random::{Stream, mix};
use crate::sampling::{FeatureIndex, FeatureLists, NearClasses, Truths};
use blend::HeldOutScores;
use start::choose_start;
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
    /// Gives a model without a sparse part one that starts from the examples `chosen`;
    /// the `held_out` ones choose how.
    pub(super) fn start(
        config: SparseConfig,
        shard: &Shard,
        model: &mut Model,
        examples: &Examples<'_>,
        chosen: &[u32],
        held_out: &[u32],
    ) -> Self {
        let (part, own) = choose_start(&config, (model, shard), examples, chosen, held_out);
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

    /// Finds the classes near each example of a batch, true labels left out.
    pub(super) fn propose(&mut self, model: &Model, batch: Batch<'_>) {
        let (normalise, wanted) = (model.network.config.normalise, self.config.negatives);
        self.index.propose(batch.0, batch.1, normalise, wanted, Truths::LeftOut, &mut self.near);
    }

    /// The classes that [`propose`](Self::propose) found last.
    pub(super) fn near(&self) -> &NearClasses {
        &self.near
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

    /// Lets the `held_out` examples choose how much the sparse part counts, as the
    /// model is now, and, where `with_nearest`, how much the nearest of the examples
    /// `chosen`. Neither is part of any step: training goes on as if nobody had asked.
    pub(super) fn choose(
        &self,
        cpu: Cpu,
        model: &mut Model,
        examples: &Examples<'_>,
        (chosen, held_out): (&[u32], &[u32]),
        with_nearest: bool,
    ) {
        let Some(part) = model.sparse.as_ref().filter(|_| !held_out.is_empty()) else { return };
        let (mut index, mut near) = (FeatureIndex::default(), NearClasses::default());
        let (shard, counts) = (&self.shard, &model.frequencies.examples_of_class);
        index.refresh_on(shard, part, examples.num_features, counts);
        let (normalise, wanted) = (model.network.config.normalise, self.config.negatives);
        index.propose(examples, held_out, normalise, wanted, Truths::Kept, &mut near);
        let scores = HeldOutScores::new(cpu, (model, shard), examples, held_out, &near);
        let blend = scores.best_blend();
        let kept = model.neighbours.take();
        // Searching them takes a while.
        if self.config.neighbours && blend != 0.0 && (with_nearest || kept.is_some()) {
            // Those that a rank kept are of its own classes, and all are to choose.
            let kept = kept.filter(|_| shard.is_whole());
            let kept = kept.unwrap_or_else(|| Neighbours::new(examples, chosen));
            let weight = scores.best_weight(blend, &kept);
            let of_shard = |kept: Neighbours| match shard.is_whole() {
                true => kept,
                false => kept.of_shard(shard.classes()),
            };
            model.neighbours = (weight != 0.0).then(|| of_shard(kept.weighted(weight)));
        }
        if let Some(sparse) = &mut model.sparse {
            sparse.set_blend(blend);
        }
    }
}

/// Takes up to `most` examples, and never more than one in twenty, out of
/// `order`: the same ones for the same seed.
pub(super) fn hold_out(order: &mut Vec<u32>, most: usize, seed: u64) -> Vec<u32> {
    let count = most.min(order.len() / 20);
    let mut keyed: Vec<(u64, u32)> =
        order.iter().map(|&i| (mix(seed, Stream::HoldOut, 0, u64::from(i)), i)).collect();
    keyed.sort_unstable();
    let mut held_out: Vec<u32> = keyed[..count].iter().map(|&(_, i)| i).collect();
    held_out.sort_unstable();
    order.retain(|i| held_out.binary_search(i).is_err());
    held_out
}
