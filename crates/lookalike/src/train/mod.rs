//! Training: one step, the loop around it, and what is kept of it.
//!
//! A step walks class by class, not example by example: the batch's (example,
//! class) pairs are sorted by class so that each row is touched by one thread,
//! once. There are no atomics, no locks and no lost updates, and the same seed
//! gives the same bits whatever the number of threads.
//!
//! A [`Trainer`] holds a [`Model`](crate::model::Model), which predicts, and a
//! [`TrainingState`], which is all that training needs besides; together they are
//! a [`Checkpoint`]. [`run`] is the one loop around its steps.

mod by_key;
mod calibrate;
mod changed;
mod class_start;
mod config;
mod context;
mod error;
mod finite;
mod further;
mod held_out;
mod hidden_step;
mod input_step;
mod keeper;
mod order;
mod output;
mod record;
mod rehearsal;
mod run;
mod sharded;
mod sparse;
mod stages;
mod state;
mod step;
pub mod tensorboard;
mod trainer;
mod unseen;

pub use config::{AUTO, ClassStart, ConfigError, DataSize, PRESETS, RateSchedule, TrainConfig};
pub use context::StepContext;
pub use error::TrainError;
pub use further::{FurtherData, rehearsal_weights, rehearsed, sparse_rate_change};
pub use keeper::InMemory;
pub use record::ProposedNegatives;
pub use rehearsal::Rehearsal;
pub use run::{Every, KeepError, Keeper, NothingKept, Observer, Outcome, RunPlan, Validation, run};
pub use sparse::SparseConfig;
pub use stages::{Stage, StageTimes};
pub use state::{BestScore, Checkpoint, LastRefresh, Progress, SavedTables, TrainingRecord, TrainingState};
pub use step::{Proposer, Step};
pub use trainer::{StepReport, Trainer};
