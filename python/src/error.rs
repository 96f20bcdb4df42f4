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
        ModelError::Io { source, .. } => system(source, error),
        ModelError::WouldOverwrite { .. } => PyOSError::new_err(error.to_string()),
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
        TextError::Io { .. } => PyOSError::new_err(error.to_string()),
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
pub(crate) fn broken(error: &BrokenLaw) -> PyErr {
    // Ids come as signed integers; read as unsigned, a negative one is huge.
    let negative = |found: u32| (found as i32) < 0;
    let advice = match error {
        BrokenLaw::Beyond { found, .. } | BrokenLaw::Order { found, .. } if negative(*found) => {
            format!(": the id is {}, and ids start at 0", *found as i32)
        }
        BrokenLaw::Order { .. } => {
            ": the indices are unsorted or repeat; call sum_duplicates() on the matrix first".into()
        }
        BrokenLaw::NotFinite { .. } => {
            ": the matrix contains NaN or infinity; remove or impute such values first".into()
        }
        BrokenLaw::Beyond { .. } => ": the id is out of range; does the matrix have the right shape?".into(),
        BrokenLaw::Lengths { .. } | BrokenLaw::Offsets { .. } => {
            ": the sparse matrix is inconsistent; call check_format() on it".into()
        }
        _ => String::new(),
    };
    value(format!("{error}{advice}"))
}
