//! The library's errors as the exceptions that Python users expect.

use lookalike::artifact::ModelError;
use lookalike::data::DataError;
use lookalike::data::law::BrokenLaw;
use lookalike::text::TextError;
use lookalike::train::TrainError;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// Wrong arguments: what most of them are.
pub(crate) fn value(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Divergence is not the fault of an argument; everything else is.
pub(crate) fn training(error: &TrainError) -> PyErr {
    match error {
        TrainError::Diverged { .. } => PyRuntimeError::new_err(error.to_string()),
        _ => value(error),
    }
}

/// What the operating system refuses is an `OSError`, as from `open`.
pub(crate) fn model(error: &ModelError) -> PyErr {
    match error {
        ModelError::NotAModel { .. } => PyFileNotFoundError::new_err(error.to_string()),
        ModelError::Io { source, .. }
        | ModelError::NotInPlace { source, .. }
        | ModelError::LeftAside { source, .. } => system(source, error),
        ModelError::WouldOverwrite { .. } | ModelError::Unsuitable { .. } => {
            PyOSError::new_err(error.to_string())
        }
        _ => value(error),
    }
}

/// See [`model`].
pub(crate) fn data(error: &DataError) -> PyErr {
    match error {
        DataError::Unreadable { reason, .. } | DataError::Unwritable { reason, .. } => system(reason, error),
        _ => value(error),
    }
}

/// See [`model`].
pub(crate) fn text(error: &TextError) -> PyErr {
    match error {
        TextError::Io { source, .. } => system(source, error),
        _ => value(error),
    }
}

fn system(source: &std::io::Error, error: &impl std::fmt::Display) -> PyErr {
    match source.kind() {
        std::io::ErrorKind::NotFound => PyFileNotFoundError::new_err(error.to_string()),
        _ => PyOSError::new_err(error.to_string()),
    }
}

/// Arrays of the caller's that are no lawful examples, with what to do.
///
/// Ids come as signed integers; read as unsigned, a negative one is huge and
/// spoils the order, so a `negative` one is told before anything else.
pub(crate) fn broken(error: &BrokenLaw, negative: Option<i32>) -> PyErr {
    let advice = match (error, negative) {
        (BrokenLaw::Beyond { .. } | BrokenLaw::Order { .. }, Some(id)) => {
            return value(format!("the matrix has an index of {id}, but ids start at 0"));
        }
        (BrokenLaw::Order { .. }, None) => {
            "the indices are unsorted or repeat; call sum_duplicates() on the matrix first"
        }
        (BrokenLaw::NotFinite { .. }, _) => {
            "the matrix contains NaN or infinity; remove or impute such values first"
        }
        (BrokenLaw::Beyond { .. }, None) => "the id is out of range; does the matrix have the right shape?",
        _ => "the sparse matrix is inconsistent; call check_format() on it",
    };
    value(format!("{error}: {advice}"))
}
