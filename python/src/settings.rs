//! The settings that there are, by name.

use std::time::Duration;

use lookalike::metrics::{MetricOptions, Metrics};
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

/// Whether settings of training, metrics (as JSON) and a time limit mean something: what can
/// be known before there is data. Gives a sentence for each that hardly ever does any good.
#[pyfunction]
pub(crate) fn check_run(settings: &str, metrics: &str, time_limit: Option<f64>) -> PyResult<Vec<String>> {
    let config = parse_training(settings)?;
    config.check_values().map_err(error::value)?;
    parse_metrics(metrics)?;
    parse_time_limit(time_limit)?;
    Ok(config.warnings())
}

pub(crate) fn parse_training(settings: &str) -> PyResult<TrainConfig> {
    serde_json::from_str(settings).map_err(|e| error::value(format!("settings: {e}")))
}

pub(crate) fn parse_metrics(metrics: &str) -> PyResult<MetricOptions> {
    let options: MetricOptions = serde_json::from_str(metrics).map_err(error::value)?;
    Metrics::new(&options, None).map_err(error::value)?;
    Ok(options)
}

pub(crate) fn parse_time_limit(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let limit = seconds.map(Duration::try_from_secs_f64).transpose();
    limit.map_err(|_| error::value("time_limit must be a number of seconds, 0 or more"))
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
