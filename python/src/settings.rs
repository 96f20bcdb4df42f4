//! The settings that there are, by name.

use lookalike::metrics::MetricOptions;
use lookalike::sampling::SamplerKind;
use lookalike::text::TextOptions;
use lookalike::train::TrainConfig;
use pyo3::prelude::*;

use crate::error;

/// The settings of training as JSON: the defaults, or those of a preset.
#[pyfunction]
#[pyo3(signature = (preset=None))]
pub(crate) fn training_settings(preset: Option<&str>) -> PyResult<String> {
    let config = preset.map_or_else(|| Ok(TrainConfig::default()), TrainConfig::preset);
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
