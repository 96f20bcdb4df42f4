//! Everything that decides what training does: one struct. Its defaults are the
//! preset `plain`, which experiments and the Python package start from; the
//! command `train` starts from `auto`, which looks at the data.

mod check;
mod presets;

use lookalike_kernels::LANES;
use serde::{Deserialize, Serialize};

pub use self::check::ConfigError;
pub use self::presets::{AUTO, DataSize, PRESETS};
use super::sparse::SparseConfig;
use crate::loss::Loss;
use crate::model::{Activation, Init, NetworkConfig, Normalise, Storage};
use crate::optim::AdamConfig;
use crate::sampling::{LshConfig, MixedConfig, SamplerKind, Setup};

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
    /// Members of the committee that the last hidden layer is divided among, at most
    /// ([`TrainConfig::members`]).
    #[serde(skip_serializing_if = "is_one")]
    pub members: usize,
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
    /// Whether probabilities are to mean what they say
    /// ([`Calibration`](crate::model::Calibration)), which takes examples that a model has
    /// not seen, as for the sparse part ([`SparseConfig::held_out`]).
    pub calibrate: bool,
    /// Decides all that is random.
    pub seed: u64,
}

/// By default the tables may give so many times the budget …
const RETRIEVE_TIMES: usize = 20;
/// … but no more than so many (docs/notes/selection.md).
const RETRIEVE_MAX: usize = 1000;
/// With a ReLU so many times as many: embeddings that are never negative have much in
/// common, and the tables tell them less apart.
const RETRIEVE_RELU: usize = 3;
/// Where sparse weights bring near classes besides, so many times the budget …
const RETRIEVE_TIMES_BESIDE_SPARSE: usize = 4;
/// … unless there are fewer classes than so many for each of those: the best of nearly all
/// are too hard.
const CLASSES_PER_RETRIEVED_MIN: usize = 20;

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            sampler: SamplerKind::LshEmbedding,
            loss: None,
            labels_counted: 1,
            members: 1,
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

impl TrainConfig {
    /// How many examples judge at most that a model has not seen.
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
    /// times the budget, but no more than 1,000, three times that with a ReLU. Where there
    /// are sparse weights four times the budget, if that is few of all classes, and else
    /// none besides it (docs/notes/selection.md).
    pub fn retrieve_for(&self, num_classes: usize) -> usize {
        let budget = self.budget_for(num_classes);
        if !self.sampler.can_select() {
            return budget;
        }
        let by_default = match self.sampler.selected_by_default() {
            None => 0,
            // Sparse weights bring the nearest classes.
            Some(_) if self.sparse.is_some() => {
                let beside = RETRIEVE_TIMES_BESIDE_SPARSE * budget;
                if num_classes >= CLASSES_PER_RETRIEVED_MIN * beside { beside } else { 0 }
            }
            Some(_) => {
                let times = if self.activation == Activation::Relu { RETRIEVE_RELU } else { 1 };
                times * RETRIEVE_MAX.min(RETRIEVE_TIMES * budget)
            }
        };
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

    /// Among how many members the last hidden layer is divided: as many as are wanted at
    /// most and leave each a multiple of sixteen numbers. Where every class is scored there
    /// is one.
    pub fn members(&self) -> usize {
        let width = self.hidden.last().copied().unwrap_or(0);
        let divides = |members: &usize| width.is_multiple_of(members * LANES);
        let has_candidates = self.sampler != SamplerKind::Full;
        (1..=self.members).rev().filter(|_| has_candidates).find(divides).unwrap_or(1)
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
}

fn is_one(number: &usize) -> bool {
    *number == 1
}

fn is_zero(number: &usize) -> bool {
    *number == 0
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
    fn tables_give_more_than_is_trained_on() {
        let plain = TrainConfig::default();
        assert_eq!((plain.retrieve_for(20_000), plain.keep_for(20_000)), (1000, Some(100)));
        let told = TrainConfig { retrieve: Some(0), ..plain.clone() };
        assert_eq!((told.retrieve_for(20_000), told.keep_for(20_000)), (400, None));
        // Beside sparse weights less, and nothing where that were many of all classes.
        let sparse = TrainConfig { sparse: Some(SparseConfig::default()), ..plain.clone() };
        assert_eq!((sparse.retrieve_for(8000), sparse.keep_for(8000)), (400, Some(100)));
        assert_eq!((sparse.retrieve_for(7999), sparse.keep_for(7999)), (100, None));
        let uniform = TrainConfig { sampler: SamplerKind::Uniform, ..plain };
        assert_eq!(uniform.keep_for(20_000), None);
    }

    #[test]
    fn members_have_whole_registers() {
        let members = |hidden: &[usize], members, sampler| {
            TrainConfig { hidden: hidden.to_vec(), members, sampler, ..TrainConfig::default() }.members()
        };
        let lsh = SamplerKind::LshEmbedding;
        let found = [128, 64, 48, 32, 20, 8].map(|width| members(&[7, width], 4, lsh));
        assert_eq!(found, [4, 4, 3, 2, 1, 1]);
        assert_eq!((members(&[128], 1, lsh), members(&[128], 4, SamplerKind::Full)), (1, 1));
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
    fn settings_survive_json() {
        let config = TrainConfig::preset("wiki-325k").unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<TrainConfig>(&text).unwrap(), config);
        assert!(serde_json::from_str::<TrainConfig>(r#"{"epocs": 3}"#).is_err());
    }
}
