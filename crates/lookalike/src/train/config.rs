//! Everything that decides what training does: one struct. Its defaults are the
//! preset `plain`, which experiments and the Python package start from; the
//! command `train` starts from `auto`, which looks at the data.

use serde::{Deserialize, Serialize};

use super::sparse::{LABELS_COUNTED, SparseConfig};
use crate::data::Examples;
use crate::hashing::Codes;
use crate::loss::Loss;
use crate::model::{Activation, Init, Model, NetworkConfig, Normalise, Storage};
use crate::optim::AdamConfig;
use crate::sampling::{LshConfig, MixedConfig, SamplerError, SamplerKind, Setup, Walk};

/// How the learning rate moves over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateSchedule {
    /// It stays (the paper's).
    #[default]
    Constant,
    /// Falls to zero in a straight line over the planned epochs.
    Linear,
    /// Falls to zero along a half cosine.
    Cosine,
}

/// Where the vectors of classes start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassStart {
    /// In the direction of the mean embedding of their examples.
    Examples,
    /// Anywhere (the paper's).
    Random,
}

/// The settings of a training run. The same settings, data and seed give the
/// same bits, whatever the number of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrainConfig {
    /// Who proposes the negatives.
    pub sampler: SamplerKind,
    /// What is minimised; unset, see [`TrainConfig::loss`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Labels of an example that count, at most: it counts once for each. With 1
    /// every example counts alike, as in the paper, and recall is optimised; precision
    /// counts labels.
    pub labels_counted: usize,
    /// Whether scores are corrected by `ln q`; unset, each sampler's own default.
    pub log_q: Option<bool>,
    /// Negatives an example; unset, `sparsity` decides.
    pub budget: Option<usize>,
    /// Negatives as a share of all classes (the paper's `S_p`); unset, see
    /// [`TrainConfig::budget_for`].
    pub sparsity: Option<f64>,
    /// Classes that the hash tables may give an example, of which the best `budget` are
    /// trained on. 0, or anything up to the budget, trains on all that they give, as the
    /// paper does. Unset, see [`TrainConfig::retrieve_for`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retrieve: Option<usize>,
    /// The mixed sampler.
    pub mixed: MixedConfig,
    /// Hash tables.
    pub lsh: LshConfig,
    /// Widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// What hidden units do.
    pub activation: Activation,
    /// What is done to an example's values first.
    pub normalise: Normalise,
    /// How parameters are stored.
    pub storage: Storage,
    /// Spread of the initial weights.
    pub init: Init,
    /// Where the vectors of classes start.
    pub class_start: ClassStart,
    /// Examples that are shuffled together; unset, all of them. Blocks of neighbours are
    /// shuffled first, so that of a large file only so many are needed at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shuffle_window: Option<usize>,
    /// Examples a step.
    pub batch: usize,
    /// Passes over the training data.
    pub epochs: usize,
    /// Learning rate.
    pub lr: f32,
    /// How it moves.
    pub lr_schedule: RateSchedule,
    /// Steps over which it first rises from zero.
    pub warmup: u64,
    /// The optimizer.
    pub adam: AdamConfig,
    /// The length to which each example's gradient of its embedding is cut, if at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<f32>,
    /// The first so many features' rows stay as they are, and if there is one, all
    /// biases and layers below the output: for going on with new data.
    #[serde(skip_serializing_if = "is_zero")]
    pub frozen_features: usize,
    /// The sparse part beside the network, if there is one.
    pub sparse: Option<SparseConfig>,
    /// Whether up to a thousand examples, and never more than one in twenty, are held
    /// out so that probabilities mean what they say
    /// ([`Calibration`](crate::model::Calibration)). The sparse part holds them out too.
    pub calibrate: bool,
    /// Decides all that is random.
    pub seed: u64,
}

/// More sparse weights than this (2 GB with their postings) are not made
/// without being asked for.
const SPARSE_ENTRIES_MAX: f64 = (1u64 << 27) as f64;

/// Data whose features take more bytes is shuffled in windows: it may not fit into memory.
const SHUFFLED_BYTES_MAX: usize = 4 << 30;
/// Examples of a window then.
const SHUFFLE_WINDOW: usize = 1 << 18;
/// Learning rates above this are worth a word.
const LR_USUAL_MAX: f32 = 0.5;

/// By default the tables may give so many times the budget …
const RETRIEVE_TIMES: usize = 20;
/// … but no more than so many (docs/notes/selection.md).
const RETRIEVE_MAX: usize = 1000;
/// With a ReLU so many times as many: embeddings that are never negative have much in
/// common, and the tables tell them less apart.
const RETRIEVE_RELU: usize = 3;

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            sampler: SamplerKind::LshEmbedding,
            loss: None,
            labels_counted: 1,
            log_q: None,
            budget: None,
            sparsity: None,
            retrieve: None,
            mixed: MixedConfig::default(),
            lsh: LshConfig::default(),
            hidden: vec![128],
            activation: Activation::Linear,
            normalise: Normalise::L2,
            storage: Storage::F32,
            init: Init::default(),
            class_start: ClassStart::Examples,
            shuffle_window: None,
            batch: 256,
            epochs: 5,
            lr: 1e-2,
            lr_schedule: RateSchedule::Linear,
            warmup: 0,
            adam: AdamConfig::default(),
            clip: None,
            frozen_features: 0,
            sparse: None,
            calibrate: false,
            seed: 1,
        }
    }
}

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

/// The preset that depends on the data; see [`TrainConfig::auto`].
pub const AUTO: &str = "auto";

/// The presets with one line each.
pub const PRESETS: [(&str, &str); 7] = [
    (AUTO, "the default of `train`: looks at the size of the data, says what it chose and why"),
    ("plain", "a dense network alone: hidden 128, linear, LSH Embedding, Adam at 0.01 falling"),
    ("paper", "the paper's network: hidden 128, ReLU, Adam at 1e-4, refresh from 50 iterations on"),
    ("amazon-670k", "the paper's settings for Amazon-670K: batch 1024, K=6, L=400, sparsity 0.05"),
    ("wiki-325k", "the paper's settings for Wiki-325K: batch 256, K=5, L=300, sparsity 0.1"),
    ("odp-105k", "the paper's settings for ODP: batch 128, K=5, L=150, sparsity 0.04"),
    ("amazon-uniform", "the paper's settings for Amazon-Uniform: batch 256, K=6, L=150, sparsity 0.02"),
];

/// What [`TrainConfig::auto`] wants to know of the data.
#[derive(Clone, Copy, Debug)]
pub struct DataSize {
    /// Examples.
    pub examples: usize,
    /// Classes.
    pub classes: usize,
    /// Feature values of all examples.
    pub feature_values: usize,
    /// Labels of all examples.
    pub labels: usize,
}

impl From<&Examples<'_>> for DataSize {
    fn from(examples: &Examples<'_>) -> Self {
        Self {
            examples: examples.len(),
            classes: examples.num_classes,
            feature_values: examples.feature_ids.len(),
            labels: examples.label_ids.len(),
        }
    }
}

impl TrainConfig {
    /// The settings behind a preset's name.
    pub fn preset(name: &str) -> Result<Self, ConfigError> {
        // The public code's codes overlap; with clean ones its K would mean
        // something else.
        let lsh = LshConfig { codes: Codes::Overlapped, walk: Some(Walk::Paper), ..LshConfig::default() };
        let paper = Self {
            epochs: 10,
            loss: Some(Loss::Softmax),
            hidden: vec![128],
            activation: Activation::Relu,
            class_start: ClassStart::Random,
            lr: 1e-4,
            lr_schedule: RateSchedule::Constant,
            batch: 256,
            sparsity: Some(0.05),
            retrieve: Some(0),
            lsh: lsh.clone(),
            ..Self::default()
        };
        let with = |batch, k, l, sparsity| Self {
            batch,
            sparsity: Some(sparsity),
            lsh: LshConfig { k: Some(k), l: Some(l), ..lsh.clone() },
            ..paper.clone()
        };
        match name {
            AUTO => Err(ConfigError::NeedsData),
            "plain" => Ok(Self::default()),
            "paper" => Ok(paper),
            "amazon-670k" => Ok(with(1024, 6, 400, 0.05)),
            "wiki-325k" => Ok(with(256, 5, 300, 0.1)),
            "odp-105k" => Ok(with(128, 5, 150, 0.04)),
            "amazon-uniform" => Ok(with(256, 6, 150, 0.02)),
            _ => Err(ConfigError::Preset {
                found: name.into(),
                known: PRESETS.map(|(name, _)| name).join(", "),
            }),
        }
    }

    /// What suits data of this size, and why, in lines for the user. The choices
    /// were made on validation parts (docs/notes/accuracy.md).
    pub fn auto(size: DataSize) -> (Self, Vec<String>) {
        let DataSize { examples: count, classes, feature_values, labels } = size;
        let has_few_classes = classes < 1000;
        let (epochs, batch) = match count {
            0..10_000 => (10, 256),
            10_000..50_000 if has_few_classes => (5, 256),
            10_000..50_000 => (4, 256),
            50_000..200_000 => (3, 256),
            200_000..700_000 => (3, 1024),
            _ => (2, 1024),
        };
        // Many negatives pay where a class has examples enough to learn from them.
        let per_class = count as f64 / classes.max(1) as f64;
        let by_classes = (classes as f64 * 0.02).clamp(100.0, 200.0);
        let budget = by_classes.min((16.0 * per_class).max(100.0)) as usize;
        let budget = budget.min(classes.max(1));
        let mut why = vec![
            format!("auto: {epochs} epochs in batches of {batch}, as there are {count} examples"),
            format!(
                "auto: {budget} negatives an example, as there are {classes} classes with {per_class:.1} examples each"
            ),
        ];
        // Every label of an example has at most the example's features, a class at most so many, …
        let features_mean = feature_values as f64 / count.max(1) as f64;
        let of_labels = features_mean * labels as f64;
        let of_classes = classes as f64 * SparseConfig::default().entries_max as f64;
        // … and as many again may speak against a class.
        let entries_at_most = 2.0 * of_labels.min(of_classes);
        let fits = entries_at_most <= SPARSE_ENTRIES_MAX;
        // The more labels an example has, the more rows it moves; and where classes
        // are few, many examples of a batch move the same row.
        let labels_mean = (labels as f32 / count.max(1) as f32).max(1.0);
        let rate = if has_few_classes { 1.0 } else { SparseConfig::default().rate } / labels_mean;
        let sparse = fits.then(|| SparseConfig { rate, ..SparseConfig::default() });
        why.push(match fits {
            true => {
                "auto: sparse weights beside the network, and the training examples themselves; held-out examples say how much they count".into()
            }
            false => format!("auto: no sparse weights, which could be {entries_at_most:.0}"),
        });
        if labels > count {
            why.push(format!(
                "auto: an example counts once for each of its labels, up to {LABELS_COUNTED}, as precision counts labels; they do not compete with each other"
            ));
        }
        let is_large = feature_values.saturating_mul(8) > SHUFFLED_BYTES_MAX;
        let shuffle_window = is_large.then_some(SHUFFLE_WINDOW);
        if is_large {
            why.push(format!("auto: shuffled in windows of {SHUFFLE_WINDOW} examples, as the data is large"));
        }
        let chosen = Self {
            epochs,
            batch,
            labels_counted: LABELS_COUNTED,
            budget: Some(budget),
            sparse,
            shuffle_window,
            calibrate: true,
            ..Self::default()
        };
        (chosen, why)
    }

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

    /// How many examples are held out from training at most.
    pub(super) fn held_out_max(&self) -> usize {
        match &self.sparse {
            Some(sparse) => sparse.held_out,
            None if self.calibrate => SparseConfig::default().held_out,
            None => 0,
        }
    }

    /// Negatives an example for so many classes: `budget`, or `sparsity · N`. By default
    /// 100 where they are the best of many (50 for LSH Label), else 2% of the classes, at least 100 and at
    /// most 1,000.
    pub fn budget_for(&self, num_classes: usize) -> usize {
        let by_sparsity = |share: f64| (share * num_classes as f64).round() as usize;
        let wanted = match (self.budget, self.sparsity) {
            (Some(budget), _) => budget,
            (None, Some(sparsity)) => by_sparsity(sparsity),
            (None, None) => match self.sampler.selected_by_default() {
                Some(budget) if self.retrieve != Some(0) => budget,
                _ => by_sparsity(0.02).clamp(100, 1000),
            },
        };
        wanted.clamp(1, num_classes.max(1))
    }

    /// Whether scores are corrected by `ln q`.
    pub fn corrects_log_q(&self) -> bool {
        self.log_q.unwrap_or(self.sampler.corrects_log_q())
    }

    /// Classes that the hash tables may give an example: `retrieve`, or by default twenty
    /// times the budget, but no more than 1,000, three times that with a ReLU; none besides
    /// the budget where there are sparse weights (docs/notes/selection.md).
    pub fn retrieve_for(&self, num_classes: usize) -> usize {
        let budget = self.budget_for(num_classes);
        if !self.sampler.can_select() {
            return budget;
        }
        // Where sparse weights bring near classes, the best of more gained nothing.
        let selects = self.sparse.is_none() && self.sampler.selected_by_default().is_some();
        let times = if self.activation == Activation::Relu { RETRIEVE_RELU } else { 1 };
        let by_default = if selects { times * RETRIEVE_MAX.min(RETRIEVE_TIMES * budget) } else { 0 };
        let wanted = self.retrieve.unwrap_or(by_default);
        wanted.clamp(budget, num_classes.max(budget))
    }

    /// How many of the classes that the tables gave an example are trained on, if not
    /// all.
    pub fn keep_for(&self, num_classes: usize) -> Option<usize> {
        let budget = self.budget_for(num_classes);
        let selects = self.retrieve_for(num_classes) > budget;
        match self.sampler {
            SamplerKind::Mixed => Some(self.mixed.hashed(budget)).filter(|&keep| selects && keep > 0),
            _ => selects.then_some(budget),
        }
    }

    /// What a sampler is made for: classes with these counts, whose vectors have `dim`
    /// numbers.
    pub fn setup<'a>(&'a self, label_counts: &'a [u32], dim: usize) -> Setup<'a> {
        Setup {
            seed: self.seed,
            budget: self.budget_for(label_counts.len()),
            retrieve: self.retrieve_for(label_counts.len()),
            dim,
            label_counts,
            lsh: &self.lsh,
            mixed: &self.mixed,
        }
    }

    /// The network for data of this shape.
    pub fn network(&self, num_features: usize, num_classes: usize) -> NetworkConfig {
        NetworkConfig {
            num_features,
            num_classes,
            hidden: self.hidden.clone(),
            activation: self.activation,
            normalise: self.normalise,
            storage: self.storage,
        }
    }

    /// What is minimised unless told otherwise: the softmax of each label against the
    /// negatives alone, since labels that share one probability hold each other down; the
    /// plain softmax where every class is scored.
    pub fn loss(&self) -> Loss {
        let by_default = if self.sampler == SamplerKind::Full { Loss::Softmax } else { Loss::SoftmaxEach };
        self.loss.unwrap_or(by_default)
    }

    /// The learning rate of a step (from 0) of a run of `planned` steps.
    pub fn rate_at(&self, iteration: u64, planned: u64) -> f32 {
        let warmed =
            if self.warmup > 0 { ((iteration + 1) as f64 / self.warmup as f64).min(1.0) } else { 1.0 };
        let done = (iteration as f64 / planned.max(1) as f64).min(1.0);
        let left = match self.lr_schedule {
            RateSchedule::Constant => 1.0,
            RateSchedule::Linear => 1.0 - done,
            RateSchedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done).cos()),
        };
        (f64::from(self.lr) * warmed * left) as f32
    }

    /// Epochs that train the sparse part: all, unless fewer are asked for.
    pub fn sparse_epochs(&self) -> usize {
        self.sparse.and_then(|sparse| sparse.epochs).unwrap_or(self.epochs)
    }

    /// The sparse part's learning rate at a step (from 0), with so many steps
    /// an epoch: falls to zero over its epochs, and stays there.
    pub fn sparse_rate_at(&self, iteration: u64, epoch_steps: u64) -> f32 {
        let Some(sparse) = &self.sparse else { return 0.0 };
        let planned = (epoch_steps * self.sparse_epochs() as u64).max(1);
        sparse.rate * (1.0 - iteration as f64 / planned as f64).max(0.0) as f32
    }

    /// Checks the settings, alone and against the data.
    pub fn check(&self, examples: &Examples<'_>) -> Result<(), ConfigError> {
        let value = |ok: bool, name, found: &dyn std::fmt::Display, expected| {
            let found = found.to_string();
            if ok { Ok(()) } else { Err(ConfigError::Value { name, found, expected }) }
        };
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
            let labels_max = examples.label_offsets.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
            let places = self.batch.saturating_mul(negatives + labels_max as usize);
            let limit = "such that batch × (negatives + labels of an example) stays below 2^31";
            value(places < 1 << 31, "sparse.negatives", &places, limit)?;
        }
        self.check_sampler(examples.num_classes)?;
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
}

impl TrainConfig {
    /// Sizes may come from the header of a file: whether memory holds such a model is
    /// found out before it is made.
    pub(super) fn check_memory(&self, features: usize, classes: usize) -> Result<(), ConfigError> {
        let number = if self.storage == Storage::F32 { 4u64 } else { 2 };
        // Weight and two moments for each number; counts, biases and steps for each row.
        let row = |width: Option<&usize>| {
            (lookalike_kernels::padded(width.copied().unwrap_or(1)) as u64).saturating_mul(3 * number) + 20
        };
        let bytes = (features as u64)
            .saturating_mul(row(self.hidden.first()))
            .saturating_add((classes as u64).saturating_mul(row(self.hidden.last())));
        let fits = usize::try_from(bytes).is_ok_and(lookalike_mapped::can_reserve);
        if fits {
            return Ok(());
        }
        let (hidden, gigabytes) = (self.hidden.clone(), bytes.div_ceil(1 << 30));
        Err(ConfigError::Memory { features, classes, hidden, gigabytes })
    }

    /// Loss, sampler and hash tables must go together.
    fn check_sampler(&self, num_classes: usize) -> Result<(), ConfigError> {
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
            let choice = self.lsh.choose(self.retrieve_for(num_classes), num_classes, dim);
            choice.map_err(SamplerError::from)?;
        }
        let share = self.mixed.hashed_share;
        if !(0.0..=1.0).contains(&share) {
            return Err(SamplerError::HashedShare { found: share.to_string() }.into());
        }
        let growth = self.lsh.refresh_growth;
        if !(growth.is_finite() && growth >= 1.0) {
            let (found, expected) = (growth.to_string(), "a number, 1 or more");
            return Err(ConfigError::Value { name: "refresh-growth", found, expected });
        }
        Ok(())
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
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The name that a setting's value has in files.
fn name_of(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_follows_budget_then_sparsity_then_default() {
        let config = TrainConfig { budget: Some(7), sparsity: Some(0.5), ..TrainConfig::default() };
        assert_eq!(config.budget_for(1000), 7);
        assert_eq!(TrainConfig { budget: None, ..config }.budget_for(1000), 500);
        assert_eq!(
            TrainConfig { sampler: SamplerKind::Uniform, ..TrainConfig::default() }.budget_for(20_000),
            400
        );
        assert_eq!(TrainConfig::default().budget_for(20_000), 100);
        assert_eq!(TrainConfig::default().budget_for(50), 50);
    }

    #[test]
    fn loss_follows_the_sampler_and_the_paper_has_its_own_start() {
        let plain = TrainConfig::default();
        assert_eq!((plain.loss(), plain.class_start), (Loss::SoftmaxEach, ClassStart::Examples));
        let full = TrainConfig { sampler: SamplerKind::Full, ..plain.clone() };
        assert_eq!(full.loss(), Loss::Softmax);
        let told = TrainConfig { loss: Some(Loss::Logistic), ..plain };
        assert_eq!(told.loss(), Loss::Logistic);
        let paper = TrainConfig::preset("paper").unwrap();
        assert_eq!((paper.loss(), paper.class_start), (Loss::Softmax, ClassStart::Random));
    }

    #[test]
    fn the_rate_warms_up_and_falls() {
        let config =
            TrainConfig { lr: 1.0, warmup: 10, lr_schedule: RateSchedule::Linear, ..TrainConfig::default() };
        assert_eq!(config.rate_at(0, 100), 0.1);
        assert!((config.rate_at(50, 100) - 0.5).abs() < 1e-6);
        assert_eq!(config.rate_at(100, 100), 0.0);
    }

    #[test]
    fn every_preset_exists_and_others_are_named_in_the_error() {
        for (name, _) in PRESETS {
            assert_eq!(TrainConfig::preset(name).is_ok(), name != AUTO);
        }
        let error = TrainConfig::preset("papper").unwrap_err().to_string();
        assert!(error.contains("papper") && error.contains("amazon-670k"), "{error}");
    }

    #[test]
    fn auto_goes_by_examples_and_classes() {
        let auto = |examples, classes| {
            let size = DataSize { examples, classes, feature_values: 10 * examples, labels: examples };
            let (config, why) = TrainConfig::auto(size);
            assert!(why[0].contains(&config.epochs.to_string()) && why[1].contains(&classes.to_string()));
            (config.epochs, config.batch, config.budget.unwrap(), config.sparse.map(|sparse| sparse.rate))
        };
        let usual = Some(SparseConfig::default().rate);
        for (examples, classes, expected) in [
            (9_999, 2_000, (10, 256, 100, usual)),
            (10_000, 999, (5, 256, 100, Some(1.0))),
            (10_000, 1_000, (4, 256, 100, usual)),
            (49_999, 50, (5, 256, 50, Some(1.0))),
            (50_000, 50_000, (3, 256, 100, usual)),
            (199_999, 7_000, (3, 256, 140, usual)),
            (200_000, 20_000, (3, 1024, 160, usual)),
            (699_999, 20_000, (3, 1024, 200, usual)),
            (700_000, 20_000, (2, 1024, 200, usual)),
        ] {
            assert_eq!(auto(examples, classes), expected, "{examples} examples of {classes} classes");
        }
    }

    #[test]
    fn auto_has_sparse_weights_unless_they_would_be_too_many() {
        let with = |examples: usize, classes: usize, features: usize, labels: usize| {
            let (feature_values, labels) = (examples * features, examples * labels);
            TrainConfig::auto(DataSize { examples, classes, feature_values, labels }).0.sparse.is_some()
        };
        assert!(with(60_000, 14_000, 50, 2));
        // Long texts with many labels, of classes whose rows end somewhere.
        assert!(with(14_000, 30_000, 670, 19));
        assert!(with(1_000_000, 13_000, 70, 5));
        assert!(!with(1_000_000, 1_000_000, 70, 5));
    }

    #[test]
    fn settings_survive_json() {
        let config = TrainConfig::preset("wiki-325k").unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<TrainConfig>(&text).unwrap(), config);
        assert!(serde_json::from_str::<TrainConfig>(r#"{"epocs": 3}"#).is_err());
    }
}
