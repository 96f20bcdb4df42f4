//! Which settings mean something: each alone, against the data, against a model that goes
//! on. Whoever trains comes through here, so that nobody else has to check.

use std::fmt::Display;

use lookalike_kernels::padded;
use lookalike_mapped::can_reserve;
use serde::Serialize;

use super::TrainConfig;
use crate::data::Examples;
use crate::model::{Model, Storage};
use crate::sampling::{SamplerError, SamplerKind};

/// Learning rates above this are worth a word.
const LR_USUAL_MAX: f32 = 0.5;

/// A setting that means nothing, or does not fit the data.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value out of its range.
    #[error("{name} is {found}, but must be {expected}")]
    Value {
        /// The option.
        name: &'static str,
        /// What was given.
        found: String,
        /// What it must be.
        expected: &'static str,
    },
    /// Nothing to learn from.
    #[error("{0}")]
    Data(&'static str),
    /// A model that no memory holds.
    #[error(
        "a model of {features} features, {classes} classes and hidden {hidden:?} takes {gigabytes} GB to train, more \
         than this process can have: correct the header of the data, or choose a smaller --hidden or --storage bf16"
    )]
    Memory {
        /// Features.
        features: usize,
        /// Classes.
        classes: usize,
        /// Widths of the hidden layers.
        hidden: Vec<usize>,
        /// Weights and moments.
        gigabytes: u64,
    },
    /// A preset nobody knows.
    #[error("there is no preset {found:?}; presets are {known}")]
    Preset {
        /// What was given.
        found: String,
        /// What there is.
        known: String,
    },
    /// The preset that looks at the data was asked for where there is none yet.
    #[error(
        "the preset auto depends on the whole data, which is not known here; start from plain (with sparse weights \
         if wanted) or another preset"
    )]
    NeedsData,
    /// A loss and a sampler that do not go together.
    #[error("the loss {loss} {why}; the sampler is {sampler}")]
    Pair {
        /// The loss.
        loss: &'static str,
        /// What it asks for.
        why: &'static str,
        /// The sampler.
        sampler: SamplerKind,
    },
    /// A setting that belongs to the model.
    #[error(
        "{name} is {found}, but the model was made with {expected}: it belongs to the model and can't be changed \
         while training goes on"
    )]
    Fixed {
        /// The setting.
        name: &'static str,
        /// What was asked for.
        found: String,
        /// What the model has.
        expected: String,
    },
    /// A sampler that cannot be.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
}

impl TrainConfig {
    /// Settings that may be meant so, and hardly ever do any good: a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.lr > LR_USUAL_MAX {
            warnings.push(format!(
                "the learning rate is {}; above {LR_USUAL_MAX} weights jump and nothing is learnt (usual: 0.001 to 0.05)",
                self.lr
            ));
        }
        warnings
    }

    /// Checks the settings alone: what can be known before any data is read.
    pub fn check_values(&self) -> Result<(), ConfigError> {
        let widths = format!("{:?}", self.hidden);
        let fits = !self.hidden.is_empty() && self.hidden.iter().all(|&w| (1..=16_384).contains(&w));
        value(fits, "hidden", &widths, "one or more widths from 1 to 16384")?;
        value((1..=1 << 20).contains(&self.batch), "batch", &self.batch, "from 1 to 1048576")?;
        value(self.epochs > 0, "epochs", &self.epochs, "at least 1")?;
        value(self.lr.is_finite() && self.lr > 0.0, "lr", &self.lr, "a positive number")?;
        value(self.shuffle_window != Some(0), "shuffle-window", &0, "at least 1")?;
        let clip = self.clip.unwrap_or(1.0);
        value(clip.is_finite() && clip > 0.0, "clip", &clip, "a positive number")?;
        value(self.labels_counted > 0, "labels-counted", &0, "at least 1")?;
        value((1..=64).contains(&self.members), "members", &self.members, "from 1 to 64")?;
        value(self.budget != Some(0), "budget", &0, "at least 1")?;
        let sparsity = self.sparsity.unwrap_or(1.0);
        value(sparsity > 0.0 && sparsity <= 1.0, "sparsity", &sparsity, "above 0 and at most 1")?;
        for (name, beta) in [("beta1", self.adam.beta1), ("beta2", self.adam.beta2)] {
            value((0.0..1.0).contains(&beta), name, &beta, "at least 0 and below 1")?;
        }
        if let Some(sparse) = &self.sparse {
            let rate = sparse.rate;
            value(rate.is_finite() && rate > 0.0, "sparse.rate", &rate, "a positive number")?;
            let start = sparse.start;
            value(start.is_finite() && start > 0.0, "sparse.start", &start, "a positive number")?;
            let negatives = sparse.negatives;
            value((1..=100_000).contains(&negatives), "sparse.negatives", &negatives, "from 1 to 100000")?;
            value(sparse.entries_max > 0, "sparse.entries-max", &0, "at least 1")?;
        }
        self.check_sampler()
    }

    /// Checks the settings, alone and against the data.
    pub fn check(&self, examples: &Examples<'_>) -> Result<(), ConfigError> {
        self.check_values()?;
        if let Some(sparse) = &self.sparse {
            let labels_max = examples.label_offsets.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
            let places = self.batch.saturating_mul(sparse.negatives + labels_max as usize);
            let limit = "such that batch × (negatives + labels of an example) stays below 2^31";
            value(places < 1 << 31, "sparse.negatives", &places, limit)?;
        }
        let pairs = self.batch.saturating_mul(self.retrieve_for(examples.num_classes) + 1);
        let limit = "such that batch × budget stays below 2^31";
        value(pairs < 1 << 31 || self.sampler == SamplerKind::Full, "budget", &pairs, limit)?;
        if examples.is_empty() {
            return Err(ConfigError::Data("there is no training example"));
        }
        if examples.num_classes < 2 {
            return Err(ConfigError::Data(
                "training needs at least two classes; the data has one label in all",
            ));
        }
        if examples.label_ids.is_empty() {
            return Err(ConfigError::Data("no training example has a label"));
        }
        if !(0..examples.len()).any(|example| examples.teaches(example)) {
            return Err(ConfigError::Data("the weight of every training example that has a label is zero"));
        }
        Ok(())
    }

    /// Sizes may come from the header of a file: whether memory holds such a model is
    /// found out before it is made.
    pub(in crate::train) fn check_memory(&self, features: usize, classes: usize) -> Result<(), ConfigError> {
        let bytes = self.bytes_to_train(features, classes);
        let fits = usize::try_from(bytes).is_ok_and(can_reserve);
        if fits {
            return Ok(());
        }
        let (hidden, gigabytes) = (self.hidden.clone(), bytes.div_ceil(1 << 30));
        Err(ConfigError::Memory { features, classes, hidden, gigabytes })
    }

    /// What the network takes to train.
    pub(in crate::train) fn bytes_to_train(&self, features: usize, classes: usize) -> u64 {
        let number = if self.storage == Storage::F32 { 4u64 } else { 2 };
        // Weight and two moments for each number; counts, biases and steps for each row.
        let row = |width: Option<&usize>| {
            (padded(width.copied().unwrap_or(1)) as u64).saturating_mul(3 * number) + 20
        };
        (features as u64)
            .saturating_mul(row(self.hidden.first()))
            .saturating_add((classes as u64).saturating_mul(row(self.hidden.last())))
    }

    /// Loss, sampler and hash tables must go together.
    fn check_sampler(&self) -> Result<(), ConfigError> {
        let (loss, sampler) = (self.loss().over_candidates(), self.sampler);
        let pair = |why| Err(ConfigError::Pair { loss: self.loss().name(), why, sampler });
        if sampler == SamplerKind::Full && !loss.can_score_every_class() {
            return pair("is taken over candidates, not over all classes: choose log-uniform or frequency");
        }
        if loss.needs_known_noise() && !sampler.knows_noise() {
            return pair("needs noise of a known distribution: choose log-uniform or frequency");
        }
        if sampler.uses_tables() {
            let dim = self.hidden.last().copied().unwrap_or(1);
            // Which K and L are possible does not depend on how many classes there are.
            self.lsh.choose(1, 2, dim).map_err(SamplerError::from)?;
        }
        let share = self.mixed.hashed_share;
        if !(0.0..=1.0).contains(&share) {
            return Err(SamplerError::HashedShare { found: share.to_string() }.into());
        }
        let growth = self.lsh.refresh_growth;
        value(growth.is_finite() && growth >= 1.0, "refresh-growth", &growth, "a number, 1 or more")
    }

    /// Checks that a model can go on with these settings.
    pub fn check_model(&self, model: &Model) -> Result<(), ConfigError> {
        let shape = &model.network.config;
        let wanted = self.network(shape.num_features, shape.num_classes);
        let fixed = |name, found: String, expected: String| {
            if found == expected { Ok(()) } else { Err(ConfigError::Fixed { name, found, expected }) }
        };
        fixed("hidden", format!("{:?}", wanted.hidden), format!("{:?}", shape.hidden))?;
        fixed("activation", name_of(wanted.activation), name_of(shape.activation))?;
        fixed("normalise", name_of(wanted.normalise), name_of(shape.normalise))?;
        fixed("storage", name_of(wanted.storage), name_of(shape.storage))?;
        fixed("sparse", self.sparse.is_some().to_string(), model.sparse.is_some().to_string())
    }

    /// The settings with which a model is trained further, if it can be: parts that did not
    /// help were dropped from it, and do not come back.
    pub fn further_with(mut self, model: &Model) -> Result<Self, ConfigError> {
        self.sparse = self.sparse.filter(|_| model.sparse.is_some());
        if let Some(sparse) = &mut self.sparse {
            sparse.neighbours &= model.neighbours.is_some();
        }
        self.check_model(model)?;
        Ok(self)
    }
}

fn value(
    ok: bool,
    name: &'static str,
    found: &dyn Display,
    expected: &'static str,
) -> Result<(), ConfigError> {
    if ok { Ok(()) } else { Err(ConfigError::Value { name, found: found.to_string(), expected }) }
}

/// The name that a setting's value has in files.
fn name_of(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}
