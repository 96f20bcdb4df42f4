//! The settings that there are, by name.

use lookalike::metrics::MetricOptions;
use lookalike::sampling::SamplerKind;
use lookalike::text::TextOptions;
use lookalike::train::{AUTO, DataSize, TrainConfig};
use pyo3::prelude::*;

use crate::error;

/// The settings of training as JSON: the defaults, or those of a preset. The
/// preset `auto` wants the numbers of examples, classes, feature values and labels.
#[pyfunction]
#[pyo3(signature = (preset=None, size=None))]
pub(crate) fn training_settings(
    preset: Option<&str>,
    size: Option<(usize, usize, usize, usize)>,
) -> PyResult<String> {
    let config = match (preset, size) {
        (Some(AUTO), Some((examples, classes, feature_values, labels))) => {
            Ok(TrainConfig::auto(DataSize { examples, classes, feature_values, labels }).0)
        }
        (Some(preset), _) => TrainConfig::preset(preset),
        (None, _) => Ok(TrainConfig::default()),
    };
    serde_json::to_string(&config.map_err(error::value)?).map_err(error::value)
}

/// The defaults of how text becomes features, as JSON.
#[pyfunction]
pub(crate) fn text_settings() -> PyResult<String> {
    serde_json::to_string(&TextOptions::default()).map_err(error::value)
}

/// The defaults of what is measured, as JSON.
#[pyfunction]
pub(crate) fn metric_settings() -> PyResult<String> {
    serde_json::to_string(&MetricOptions::default()).map_err(error::value)
}

/// The names of the samplers.
#[pyfunction]
pub(crate) fn samplers() -> Vec<&'static str> {
    SamplerKind::ALL.map(SamplerKind::name).to_vec()
}
