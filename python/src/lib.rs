//! The native half of the Python package: thin, because what there is to decide
//! is decided in the library (training, hashing, metrics) or in Python (types
//! of input, scikit-learn's conventions).
//!
//! | file | what Python gets from it |
//! |---|---|
//! | `arrays` | examples from NumPy arrays, without a copy; arrays from results |
//! | `training` | the training loop, with progress, Ctrl-C and without the interpreter's lock |
//! | `model` | train, save, load, predict, weights |
//! | `text` | texts to features |
//! | `index` | hash tables over any vectors |
//! | `sampler` | candidates for a model that lives elsewhere |
//! | `metrics` | P@k and its like, of any predictions |
//! | `datasets` | files of examples, and generated ones |
//! | `settings` | defaults and presets, as JSON |
//! | `pool` | the threads, safe after `fork` |
//! | `error` | exceptions |
#![forbid(unsafe_code)]

use pyo3::prelude::*;

mod arrays;
mod datasets;
mod error;
mod index;
mod metrics;
mod model;
mod pool;
mod sampler;
mod settings;
mod text;
mod training;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::datasets::{generate_examples, read_examples, read_matrix, read_texts, write_examples};
    #[pymodule_export]
    use super::index::LshTables;
    #[pymodule_export]
    use super::metrics::measure;
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::sampler::Sampler;
    #[pymodule_export]
    use super::settings::{check_run, metric_settings, samplers, text_settings, training_settings};
    #[pymodule_export]
    use super::text::Vectoriser;
    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        use pyo3::prelude::*;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
