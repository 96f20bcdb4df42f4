//! The shape of what is measured: sizes of the data, and of an epoch of it.

use clap::Args;
use clap::builder::PossibleValuesParser;
use lookalike::data::Dataset;
use lookalike::data::error::DataError;
use lookalike::data::synth::{PRESETS, SynthOptions, synth};
use lookalike::train::TrainConfig;
use serde::{Deserialize, Serialize};

use crate::commands::train::SettingArguments;

/// Negatives as a share of all classes, where no budget is given.
const SPARSITY: f64 = 0.005;

/// The sizes of the data.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Shape")]
pub(crate) struct ShapeArguments {
    /// The data set whose sizes to take; options below override them
    #[arg(long, value_name = "NAME", default_value = "amazon-670k", value_parser = PossibleValuesParser::new(PRESETS))]
    shape: String,
    /// Features
    #[arg(long, value_name = "F")]
    features: Option<usize>,
    /// Features of an example, on average
    #[arg(long, value_name = "n")]
    nonzeros: Option<f64>,
    /// Labels of an example, on average
    #[arg(long, value_name = "m")]
    labels: Option<f64>,
    /// Examples to hold in memory [default: a batch for each step]
    #[arg(long, value_name = "N")]
    examples: Option<usize>,
}

impl ShapeArguments {
    /// The settings of the run: those of training, with the paper's batch.
    pub(crate) fn config(&self, settings: &SettingArguments) -> anyhow::Result<TrainConfig> {
        let batch = TrainConfig::preset(&self.shape)?.batch;
        let mut config = TrainConfig { batch, sparsity: Some(SPARSITY), ..TrainConfig::default() };
        settings.apply(&mut config);
        Ok(config)
    }

    /// Examples of this shape, over its or other `classes`: as many as asked
    /// for, at least `examples_min`.
    pub(crate) fn generate(&self, classes: Option<usize>, examples_min: usize) -> Result<Dataset, DataError> {
        let train = self.examples.unwrap_or(0).max(examples_min);
        let sizes = self.sizes();
        let classes = classes.unwrap_or(sizes.classes);
        synth(&SynthOptions { train, classes, ..sizes }).map(|(train, _)| train)
    }

    /// The shape with what overrides it; `train` is that of the whole data set.
    fn sizes(&self) -> SynthOptions {
        let shape = SynthOptions::preset(&self.shape).unwrap_or_default();
        SynthOptions {
            features: self.features.unwrap_or(shape.features),
            features_per_example: self.nonzeros.unwrap_or(shape.features_per_example),
            labels_per_example: self.labels.unwrap_or(shape.labels_per_example),
            test: 0,
            ..shape
        }
    }
}

/// The first epoch over a whole data set of the shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch {
    /// Steps.
    pub(crate) steps: u64,
    /// Refreshes of the tables in it.
    pub(crate) refreshes: u64,
}

impl Epoch {
    pub(crate) fn of(shape: &ShapeArguments, config: &TrainConfig) -> Self {
        let steps = shape.sizes().train.div_ceil(config.batch) as u64;
        let schedule = config.lsh.schedule();
        let refreshes = (0..steps).filter(|&step| schedule.is_due(step, step == 0)).count() as u64;
        Self { steps, refreshes }
    }
}

/// What was measured, for the record.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Sizes {
    pub(crate) classes: usize,
    pub(crate) features: usize,
    pub(crate) nonzeros_per_example: f64,
    pub(crate) labels_per_example: f64,
    pub(crate) examples_in_memory: usize,
    pub(crate) batch: usize,
    pub(crate) budget: usize,
    pub(crate) hidden: Vec<usize>,
    pub(crate) storage: lookalike::model::Storage,
}

impl Sizes {
    pub(crate) fn of(data: &Dataset, config: &TrainConfig) -> Self {
        let view = data.view();
        let per_example = |entries: usize| entries as f64 / view.len().max(1) as f64;
        Self {
            classes: data.num_classes,
            features: data.num_features,
            nonzeros_per_example: per_example(data.feature_ids.len()),
            labels_per_example: per_example(data.label_ids.len()),
            examples_in_memory: view.len(),
            batch: config.batch,
            budget: config.budget_for(data.num_classes),
            hidden: config.hidden.clone(),
            storage: config.storage,
        }
    }
}
