//! Training: one step, the loop around it, and what is kept of it.
//!
//! A step walks class by class, not example by example: the batch's (example,
//! class) pairs are turned around so that each row is touched by one thread,
//! once. There are no atomics, no locks and no lost updates, and the same seed
//! gives the same bits whatever the number of threads.

mod blend;
mod config;
mod full_step;
mod input_step;
mod output_step;
mod run;
mod sparse_step;
mod stages;
mod step;
pub mod tensorboard;
mod trainer;
mod turnaround;

pub use config::{AUTO, ConfigError, DataSize, PRESETS, RateSchedule, TrainConfig};
pub use output_step::StepContext;
pub use run::{Every, Observer, Outcome, Validation, run};
pub use sparse_step::SparseConfig;
pub use stages::{Stage, StageTimes};
pub use step::{Proposer, Step};
pub use trainer::{Progress, StepReport, TrainError, Trainer};
