//! All that training needs besides the model, and what is kept of a run.

use serde::{Deserialize, Serialize};

use super::config::TrainConfig;
use crate::data::DataFingerprint;
use crate::model::Model;
use crate::optim::NetworkMoments;

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
    /// The best evaluation so far.
    pub best: BestScore,
}

impl TrainingState {
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
