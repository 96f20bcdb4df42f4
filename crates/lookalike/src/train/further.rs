//! Going on with new data: more examples, and classes and features never seen.
//!
//! New examples come first, then those that are rehearsed: examples of the earlier
//! training that are trained on again, so that old classes are not forgotten. Only new
//! ones count as further training data: they make the sparse rows of their classes, are
//! kept beside the nearest examples, and add to frequencies and priors. Only they are
//! held out, too: a rehearsed example is in the model already and would say nothing.
//!
//! [`Trainer::further`] gives the model a training state of its own: moments from zero, a
//! schedule from the start. [`Trainer::go_on`] goes on with the state there is.

use std::time::Instant;

use lookalike_kernels::Cpu;

use super::class_start::start_new_classes;
use super::config::TrainConfig;
use super::error::TrainError;
use super::held_out::hold_out;
use super::rehearsal::Rehearsal;
use super::state::{Checkpoint, TrainingState};
use super::trainer::Trainer;
use crate::collective::Shard;
use crate::data::{DataFingerprint, Dataset, Examples};
use crate::model::{ClassFrequencies, Growth, Model, SparsePart};
use crate::random::{Stream, mix};

/// With fewer held-out examples than this nothing is chosen anew: what parts of the model
/// count was chosen on more.
const HELD_OUT_MIN: usize = 100;

/// Examples to go on with, perhaps of more features and classes than the model has.
#[derive(Clone, Copy, Debug)]
pub struct FurtherData<'a> {
    /// The new examples, then the rehearsed ones.
    pub examples: Examples<'a>,
    /// How many are new.
    pub num_new: usize,
    /// How many of the rehearsed ones each epoch has, others every time.
    pub rehearsed_an_epoch: usize,
}

impl<'a> FurtherData<'a> {
    /// Examples that are all new.
    pub fn new(examples: Examples<'a>) -> Self {
        Self { examples, num_new: examples.len(), rehearsed_an_epoch: 0 }
    }

    /// The new ones that teach something.
    fn new_examples(&self) -> Vec<u32> {
        (0..self.num_new as u32).filter(|&i| self.examples.teaches(i as usize)).collect()
    }

    fn frequencies(&self) -> ClassFrequencies {
        let Examples { feature_offsets, label_offsets, weights, .. } = self.examples;
        let new = Examples {
            feature_offsets: &feature_offsets[..=self.num_new],
            label_offsets: &label_offsets[..=self.num_new],
            weights: &weights[..self.num_new.min(weights.len())],
            ..self.examples
        };
        ClassFrequencies::of(&new)
    }
}

impl<'a> Trainer<'a> {
    /// Trains a model further, with a new training state.
    pub fn further(
        model: Model,
        config: TrainConfig,
        data: FurtherData<'a>,
        cpu: Cpu,
    ) -> Result<Self, TrainError> {
        let start = Instant::now();
        let state = TrainingState::new(config, &model.network);
        let mut trainer = Self::go_on(Checkpoint { model, state }, data, cpu)?;
        trainer.state.progress.train_seconds = start.elapsed().as_secs_f64();
        Ok(trainer)
    }

    /// Goes on with new examples from the start of an epoch; what Adam remembers stays.
    pub fn go_on(mut checkpoint: Checkpoint, data: FurtherData<'a>, cpu: Cpu) -> Result<Self, TrainError> {
        let examples = data.examples;
        checkpoint.state.config.check(&examples)?;
        check_sizes(&checkpoint.model, &examples)?;
        take_in(&mut checkpoint, &data, cpu)?;
        let shard = Shard::whole(examples.num_classes);
        Self::start(checkpoint, shard, examples, cpu, None)
    }
}

/// Growing is possible, shrinking is not.
fn check_sizes(model: &Model, examples: &Examples<'_>) -> Result<(), TrainError> {
    for (what, model, data) in [
        ("features", model.num_features(), examples.num_features),
        ("classes", model.num_classes(), examples.num_classes),
    ] {
        if data < model {
            return Err(TrainError::OtherData { what, model, data });
        }
    }
    Ok(())
}

/// Makes a model one that knows of the new examples, before any step is done.
fn take_in(checkpoint: &mut Checkpoint, data: &FurtherData<'_>, cpu: Cpu) -> Result<(), TrainError> {
    let Checkpoint { model, state } = checkpoint;
    let examples = &data.examples;
    state.config = state.config.clone().further_with(model)?;
    let num_old = model.num_classes();
    model.grow(&Growth {
        num_features: examples.num_features,
        num_classes: examples.num_classes,
        init: state.config.init,
        bias: state.config.loss().over_candidates().starting_bias(examples.num_classes),
        seed: state.config.seed,
    });
    state.moments.grow(&model.network);
    // Those of the data before.
    state.held_out = None;
    let (first, an_epoch) = (data.num_new, data.rehearsed_an_epoch);
    state.rehearsal = (first < examples.len()).then_some(Rehearsal { first, an_epoch });
    let mut chosen = data.new_examples();
    let is_enough = state.config.sparse.is_none() || chosen.len() / 20 >= HELD_OUT_MIN;
    let most = if is_enough { state.config.held_out_max() } else { 0 };
    // Always apart: no further model has learnt what this one knows without them.
    state.held_out = Some(hold_out(&mut chosen, most, state.config.seed));
    if num_old < model.num_classes() {
        start_new_classes(cpu, &mut model.network, examples, &chosen, num_old);
    }
    take_in_examples(model, &state.config, data, &chosen);
    state.data = Some(DataFingerprint::of(examples));
    state.progress.position = 0;
    state.refresh = None;
    Ok(())
}

/// Frequencies, sparse rows and nearest examples of the new examples `chosen`.
fn take_in_examples(model: &mut Model, config: &TrainConfig, data: &FurtherData<'_>, chosen: &[u32]) {
    let examples = &data.examples;
    let old = model.frequencies.examples_of_class.clone();
    model.frequencies.add(&data.frequencies());
    let counts = &model.frequencies.examples_of_class;
    if let (Some(part), Some(sparse)) = (&mut model.sparse, &config.sparse) {
        let mut new = vec![0u32; counts.len()];
        for &example in chosen {
            examples.labels(example as usize).iter().for_each(|&class| new[class as usize] += 1);
        }
        let rows = sparse.mean_rows(part.start());
        let normalise = model.network.config.normalise;
        let (means, _) = SparsePart::from_means(examples, chosen, normalise, rows, counts);
        part.take_in(&means, (&old, &new), sparse.entries_max, counts);
    }
    model.neighbours = model.neighbours.take().map(|kept| kept.with(examples, chosen));
}

/// How much examples count, in training, of which each epoch has all `num_new` new ones and
/// `an_epoch` of the others, which are a `share` of those there are. A class would be taken
/// for as many times more probable as its examples are shown more often; so what is shown
/// less often counts more, and all count 1 on average. Only by the root of how much less
/// often: few examples that count for all the others make steps that are mostly chance, and
/// leave little of them to what is new (docs/notes/incremental.md).
pub fn rehearsal_weights(examples: Examples<'_>, num_new: usize, an_epoch: usize, share: f64) -> Vec<f32> {
    let (new, an_epoch) = (num_new as f64, an_epoch as f64);
    let times = share.sqrt().recip();
    let of_new = (new + an_epoch) / (new + an_epoch * times);
    let counts = |i: usize| if i < num_new { of_new } else { of_new * times };
    (0..examples.len()).map(|i| (f64::from(examples.weight(i)) * counts(i)) as f32).collect()
}

/// How many times as fast sparse weights are to learn once a model has seen the examples
/// `new` too: the more labels an example has, the more rows it moves, and the less each of
/// them ([`TrainConfig::auto`]).
pub fn sparse_rate_change(model: &Model, new: &Examples<'_>) -> f32 {
    let mut all = model.frequencies.clone();
    let before = all.labels_mean();
    all.examples_of_class.resize(new.num_classes.max(all.examples_of_class.len()), 0);
    all.add(&ClassFrequencies::of(new));
    (before / all.labels_mean()) as f32
}

/// A share of the examples that teach something: drawn by lot, others for every seed and
/// every model that is trained further, and more of them for a larger share.
pub fn rehearsed(examples: Examples<'_>, share: f64, model: &Model, seed: u64) -> Dataset {
    let round = model.frequencies.num_examples as u64;
    let drawn = |&example: &usize| {
        let lot = (mix(seed, Stream::Rehearse, round, example as u64) >> 11) as f64 / (1u64 << 53) as f64;
        examples.teaches(example) && lot < share
    };
    let chosen: Vec<usize> = (0..examples.len()).filter(drawn).collect();
    Dataset::select(examples, &chosen)
}
