//! The paper's experiments on anybody's data: which method, and does the claim
//! hold?
//!
//! A *run* trains one network with one [`Method`], one seed and one group of
//! settings, and leaves a [`RunRecord`]: its curve of metrics over iterations
//! and time. A *matrix* is a list of runs on the same data
//! ([`run_matrix`]); finished runs are kept in a folder, so that an interrupted
//! matrix goes on where it stopped. [`summary`] makes the numbers of the
//! paper's tables from records, and [`adapt`] measures how closely a sampler
//! follows the true distribution of negatives.
//!
//! All runs of a seed start from the same weights and see the same batches:
//! both depend on the seed alone. Time is the time of training steps;
//! evaluation is never counted.
//!
//! Architecture invariant: nothing here draws or prints. What a reader sees is
//! made by the command line with the crate `lookalike-report`.

pub mod adapt;
mod matrix;
mod method;
mod run;
pub mod summary;

pub use matrix::{MatrixObserver, RunFolder, run_matrix};
pub use method::{Method, UnknownMethod};
pub use run::{Arena, CurvePoint, PlannedRun, RunRecord};

use crate::data::DataError;
use crate::metrics::MetricsError;
use crate::train::TrainError;

/// An experiment went wrong.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// A run could not start or go on.
    #[error("the run {run} failed")]
    Run {
        /// Its name and seed.
        run: String,
        /// Why.
        source: TrainError,
    },
    /// Metrics that mean nothing.
    #[error("cannot evaluate")]
    Metrics(#[from] MetricsError),
    /// The folder of finished runs cannot be used.
    #[error("cannot use the folder of finished runs {path}")]
    Folder {
        /// The folder.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A record cannot be read.
    #[error("{path} is no record of a finished run: {reason}; delete it, and the run is done again")]
    Record {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A record cannot be written.
    #[error("cannot keep a finished run")]
    Save(#[from] DataError),
}
