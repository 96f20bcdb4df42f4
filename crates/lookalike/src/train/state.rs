//! All that training needs besides the model, and what is kept of a run.

use serde::{Deserialize, Serialize};

use super::config::TrainConfig;
use super::rehearsal::Rehearsal;
use crate::data::DataFingerprint;
use crate::hashing::{FamilyShape, TableCodes};
use crate::model::{Model, Network};
use crate::optim::NetworkMoments;
use crate::sampling::FeatureLists;

/// How far training has come.
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
}

/// How a model came about: kept with every saved model, for people to read and for
/// whoever wants to ask its sampler again.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingRecord {
    /// The settings.
    pub config: TrainConfig,
    /// How far training came.
    pub progress: Progress,
}

/// The best evaluation so far, and how long ago it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct BestScore {
    /// The first metric's best value; none before the first evaluation that had one.
    pub value: Option<f64>,
    /// Evaluations since then.
    pub waited: usize,
}

impl BestScore {
    /// Takes the next evaluation's first metric; true if it beats all before.
    pub fn take(&mut self, value: Option<f64>) -> bool {
        let is_better = value.is_some() && self.value.is_none_or(|best| value > Some(best));
        if is_better {
            *self = Self { value, waited: 0 };
        } else {
            self.waited += 1;
        }
        is_better
    }
}

/// What the last refresh left of hash tables and near classes. Class vectors have moved
/// since, so it does not follow from them; every epoch starts with a refresh, and does
/// without.
#[derive(Clone, Debug, PartialEq)]
pub struct LastRefresh {
    /// The hash tables, if the sampler has some.
    pub tables: Option<SavedTables>,
    /// The classes near each feature, if there is a sparse part.
    pub near: Option<FeatureLists>,
}

/// Hash tables, by what they are made of.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedTables {
    /// What the functions were drawn with.
    pub seed: u64,
    /// What they are.
    pub shape: FamilyShape,
    /// The bucket of every class.
    pub codes: TableCodes,
    /// The mean that class vectors were hashed less; empty if none.
    pub mean: Vec<f32>,
}

/// All that training needs besides the model.
#[derive(Clone, Debug)]
pub struct TrainingState {
    /// The settings.
    pub config: TrainConfig,
    /// How far training has come.
    pub progress: Progress,
    /// What Adam remembers.
    pub moments: NetworkMoments,
    /// Which data it is trained on; unknown in files of early versions.
    pub data: Option<DataFingerprint>,
    /// Training examples that only choose how much parts of the model count; none
    /// as long as nobody has chosen them.
    pub held_out: Option<Vec<u32>>,
    /// Which examples are rehearsed, if the data has some.
    pub rehearsal: Option<Rehearsal>,
    /// The best evaluation so far.
    pub best: BestScore,
    /// What the last refresh left, in a checkpoint within an epoch; while training runs
    /// the trainer has it.
    pub refresh: Option<LastRefresh>,
}

impl TrainingState {
    /// What there is before the first step.
    pub fn new(config: TrainConfig, network: &Network) -> Self {
        Self {
            config,
            progress: Progress::default(),
            moments: NetworkMoments::of(network),
            data: None,
            held_out: None,
            rehearsal: None,
            best: BestScore::default(),
            refresh: None,
        }
    }

    /// What is kept of it with a model that is not trained any more.
    pub fn record(&self) -> TrainingRecord {
        TrainingRecord { config: self.config.clone(), progress: self.progress }
    }
}

/// A model in training at one moment, complete.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// What predicts.
    pub model: Model,
    /// What goes on.
    pub state: TrainingState,
}
