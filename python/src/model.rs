//! A trained network, as Python sees it.

use std::path::PathBuf;

use lookalike::artifact;
use lookalike::data::{Examples, law::check_weights};
use lookalike::metrics::MetricOptions;
use lookalike::model::{self, Activations, Growth, Rows};
use lookalike::predict::{Ask, Predictor, Search};
use lookalike::text::{LabelNames, TextPipeline};
use lookalike::train::{
    Checkpoint, ConfigError, FurtherData, TrainConfig, TrainError, Trainer, TrainingRecord, TrainingState,
};
use lookalike_kernels::Cpu;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{Features, Labels, NoLabels, class_ids, matrix};
use crate::error;
use crate::pool::pool;
use crate::settings::parse_training;
use crate::text::Vectoriser;
use crate::training::{self, Ended, RunOptions, metrics};

/// Examples that are embedded, ranked or scored between two looks for signals.
const BATCH: usize = 1024;

/// Class ids and scores, a row an example.
type RankedArrays<'py> = (Bound<'py, PyArray2<i64>>, Bound<'py, PyArray2<f32>>);

/// A trained model.
#[pyclass(module = "lookalike._native")]
pub(crate) struct Model {
    model: model::Model,
    record: TrainingRecord,
    /// Absent where the model was saved without it, or is an earlier one than
    /// training ended with.
    state: Option<TrainingState>,
}

impl Model {
    /// What training gave.
    fn trained(trainer: Trainer<'_>, best: Option<(model::Model, TrainingRecord)>) -> Self {
        match best {
            Some((model, record)) => Self { model, record, state: None },
            None => Self::from(trainer.into_checkpoint()),
        }
    }

    /// A copy to go on with; where there is no state, the optimizer starts anew.
    fn checkpoint(&self, mut config: TrainConfig) -> Checkpoint {
        config.epochs = self.record.progress.epoch + 1;
        let model = self.model.clone();
        let state = match &self.state {
            Some(state) => TrainingState { config, ..state.clone() },
            None => {
                TrainingState { progress: self.record.progress, ..TrainingState::new(config, &model.network) }
            }
        };
        Checkpoint { model, state }
    }

    fn check_features(&self, features: usize) -> PyResult<()> {
        let expected = self.model.num_features();
        if features != expected {
            return Err(error::value(format!(
                "the examples have {features} features, but the model was trained with {expected}"
            )));
        }
        Ok(())
    }
}

impl From<Checkpoint> for Model {
    fn from(Checkpoint { model, state }: Checkpoint) -> Self {
        Self { model, record: state.record(), state: Some(state) }
    }
}

/// The instructions to use, or why `LOOKALIKE_CPU` can't be obeyed.
pub(crate) fn cpu() -> PyResult<Cpu> {
    Cpu::from_env().map_err(error::value)
}

/// Examples with what each of them counts, checked.
fn weighted<'a>(
    examples: Examples<'a>,
    weights: Option<&'a PyReadonlyArray1<'_, f32>>,
) -> PyResult<Examples<'a>> {
    let weights = weights.map_or(Ok(&[][..]), |weights| weights.as_slice())?;
    check_weights(weights, examples.len()).map_err(error::value)?;
    Ok(Examples { weights, ..examples })
}

#[pymethods]
impl Model {
    /// Trains a new model. Gives it with the reason for the end.
    #[staticmethod]
    fn train(
        py: Python<'_>,
        features: Features<'_>,
        labels: Labels<'_>,
        weights: Option<PyReadonlyArray1<'_, f32>>,
        settings: &str,
        options: RunOptions<'_>,
    ) -> PyResult<(Self, &'static str)> {
        let (config, cpu, pool) = (parse_training(settings)?, cpu()?, pool(py, options.threads)?);
        let examples = weighted(features.examples(py, labels.slices()?, &pool)?, weights.as_ref())?;
        let made = py.detach(|| pool.install(|| Trainer::new(config, examples, cpu)));
        let mut trainer = made.map_err(|e| error::training(&e))?;
        let Ended { reason, best } = training::train(py, &pool, &mut trainer, &options)?;
        Ok((Self::trained(trainer, best), reason))
    }

    /// Trains for one more pass over other examples, perhaps of more classes. It works on
    /// a copy: a call that fails leaves the model as it was.
    fn resume(
        &mut self,
        py: Python<'_>,
        features: Features<'_>,
        labels: Labels<'_>,
        weights: Option<PyReadonlyArray1<'_, f32>>,
        settings: &str,
        options: RunOptions<'_>,
    ) -> PyResult<&'static str> {
        let (config, cpu, pool) = (parse_training(settings)?, cpu()?, pool(py, options.threads)?);
        let examples = weighted(features.examples(py, labels.slices()?, &pool)?, weights.as_ref())?;
        self.check_features(examples.num_features)?;
        let data = FurtherData::new(examples);
        let made = py.detach(|| pool.install(|| Trainer::go_on(self.checkpoint(config), data, cpu)));
        let mut trainer = made.map_err(|e| match e {
            TrainError::Config(ConfigError::Fixed { .. }) => {
                error::value(format!("{e}: call fit to start again"))
            }
            _ => error::training(&e),
        })?;
        let Ended { reason, best } = training::train(py, &pool, &mut trainer, &options)?;
        *self = Self::trained(trainer, best);
        Ok(reason)
    }

    /// Reads a model directory.
    #[staticmethod]
    fn load(py: Python<'_>, directory: PathBuf, for_training: bool) -> PyResult<Self> {
        let load = || {
            if for_training {
                return artifact::load_checkpoint(&directory).map(Self::from);
            }
            let artifact::SavedModel { model, record } = artifact::load(&directory)?;
            Ok(Self { model, record, state: None })
        };
        py.detach(load).map_err(|e| error::model(&e))
    }

    /// Writes a model directory; without the training state also if there is none.
    fn save(&self, py: Python<'_>, directory: PathBuf, with_training_state: bool) -> PyResult<()> {
        let saved = py.detach(|| match self.state.as_ref().filter(|_| with_training_state) {
            Some(state) => artifact::save_checkpoint(&directory, &self.model, state),
            None => artifact::save_model(&directory, &self.model, &self.record),
        });
        saved.map_err(|e| error::model(&e))
    }

    /// Network, training settings and progress, as JSON.
    fn describe(&self) -> String {
        let Self { model, record, .. } = self;
        let description = serde_json::json!({
            "network": model.network.config,
            "training": record.config,
            "progress": record.progress,
            "parameters": model.num_parameters(),
            "sparse": model.sparse.as_ref().map(
                |sparse| serde_json::json!({ "entries": sparse.num_entries(), "blend": sparse.blend() })
            ),
            "calibration": model.calibration.as_ref().map(
                |part| serde_json::json!({ "examples": part.examples, "labels": part.labels })
            ),
            "neighbours": model.neighbours.as_ref().map(
                |part| serde_json::json!({ "examples": part.num_examples(), "weight": part.weight() })
            ),
            "search": model.search.as_ref().map(
                |index| serde_json::json!({ "effort": index.effort, "recall": index.recall })
            ),
        });
        description.to_string()
    }

    /// The best `k` classes of each example and their scores, or probabilities.
    /// Places beyond the last class hold -1.
    #[pyo3(signature = (features, k, probabilities, threads, search=None))]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        features: Features<'py>,
        k: usize,
        probabilities: bool,
        threads: Option<usize>,
        search: Option<NamedSearch>,
    ) -> PyResult<RankedArrays<'py>> {
        let (cpu, pool) = (cpu()?, pool(py, threads)?);
        let none = NoLabels::new(&features)?;
        let examples = features.examples(py, none.slices(), &pool)?;
        self.check_features(examples.num_features)?;
        if k == 0 {
            return Err(error::value("k is 0, but must be at least 1"));
        }
        let search = search_of(search)?;
        let ask = Ask { probabilities, search, ..Ask::best(k.min(self.model.num_classes())) };
        let predictor = Predictor::new(&self.model, cpu);
        let mut classes = vec![-1i64; examples.len() * ask.k];
        let mut scores = vec![f32::NEG_INFINITY; examples.len() * ask.k];
        let all: Vec<u32> = (0..examples.len() as u32).collect();
        let places = classes.chunks_mut(BATCH * ask.k).zip(scores.chunks_mut(BATCH * ask.k));
        for (batch, (classes, scores)) in all.chunks(BATCH).zip(places) {
            py.check_signals()?;
            py.detach(|| {
                let best = pool.install(|| predictor.rank(&examples, batch, ask));
                let places = classes.chunks_exact_mut(ask.k).zip(scores.chunks_exact_mut(ask.k));
                for (example, (classes, scores)) in places.enumerate() {
                    let ranked = best.example(example).classes.iter().zip(best.values(example));
                    for ((&class, value), (to_class, to_score)) in ranked.zip(classes.iter_mut().zip(scores))
                    {
                        (*to_class, *to_score) = (class.into(), value);
                    }
                }
            });
        }
        Ok((matrix(py, classes, all.len(), ask.k)?, matrix(py, scores, all.len(), ask.k)?))
    }

    /// The hidden activation of each example.
    fn embed<'py>(
        &self,
        py: Python<'py>,
        features: Features<'py>,
        threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let (network, cpu, pool) = (&self.model.network, cpu()?, pool(py, threads)?);
        let none = NoLabels::new(&features)?;
        let examples = features.examples(py, none.slices(), &pool)?;
        self.check_features(examples.num_features)?;
        let dim = network.output.dim;
        let mut embeddings = Vec::with_capacity(examples.len() * dim);
        let mut activations = Activations::default();
        let all: Vec<u32> = (0..examples.len() as u32).collect();
        for batch in all.chunks(BATCH) {
            py.check_signals()?;
            py.detach(|| {
                pool.install(|| network.embed(cpu, &examples, batch, &mut activations));
                let rows = activations.embeddings();
                (0..rows.len()).for_each(|row| embeddings.extend_from_slice(&rows.row(row)[..dim]));
            });
        }
        matrix(py, embeddings, all.len(), dim)
    }

    /// Ranks classes for each example and measures the result.
    #[expect(clippy::too_many_arguments, reason = "as Python calls it")]
    #[pyo3(signature = (features, labels, unknown_labels, options, threads, search=None))]
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        features: Features<'py>,
        labels: Labels<'py>,
        unknown_labels: PyReadonlyArray1<'py, u32>,
        options: &str,
        threads: Option<usize>,
        search: Option<NamedSearch>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let search = search_of(search)?;
        let (cpu, pool) = (cpu()?, pool(py, threads)?);
        let examples = features.examples(py, labels.slices()?, &pool)?;
        self.check_features(examples.num_features)?;
        let options: MetricOptions = serde_json::from_str(options).map_err(error::value)?;
        let unknown_labels = unknown_labels.as_slice()?;
        let unknown = |example: usize| unknown_labels.get(example).map_or(0, |&count| count as usize);
        let evaluation = py.detach(|| {
            let predictor = Predictor::new(&self.model, cpu);
            pool.install(|| predictor.evaluate(&examples, &unknown, &options, search))
        });
        metrics(py, &evaluation.map_err(error::value)?)
    }

    /// All parameters, by the names they have in the model's file; and the priors,
    /// which are not there because they follow from the class counts.
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let model::Model { network, sparse, neighbours, .. } = &self.model;
        let dict = PyDict::new(py);
        let vector = |values: &[f32]| values.to_vec().into_pyarray(py);
        dict.set_item("input.weight", weights(py, &network.input)?)?;
        dict.set_item("input.bias", vector(&network.input_bias))?;
        for (i, layer) in network.hidden.iter().enumerate() {
            let rows = layer.w.chunks_exact(layer.stride);
            let values: Vec<f32> = rows.flat_map(|row| &row[..layer.outputs]).copied().collect();
            dict.set_item(format!("hidden.{i}.weight"), matrix(py, values, layer.inputs, layer.outputs)?)?;
            dict.set_item(format!("hidden.{i}.bias"), vector(&layer.bias))?;
        }
        dict.set_item("output.weight", weights(py, &network.output)?)?;
        dict.set_item("output.bias", vector(&network.output.bias))?;
        if let Some(sparse) = sparse {
            dict.set_item("sparse.lengths", sparse.lengths().into_pyarray(py))?;
            dict.set_item("sparse.features", sparse.features.clone().into_pyarray(py))?;
            dict.set_item("sparse.weights", vector(sparse.weights()))?;
            dict.set_item("sparse.priors", vector(sparse.priors()))?;
        }
        if let Some(neighbours) = neighbours {
            let (features, values) = neighbours.entries();
            let values: Vec<f32> = values.iter().map(|value| value.to_f32()).collect();
            dict.set_item("neighbours.lengths", neighbours.lengths().into_pyarray(py))?;
            dict.set_item("neighbours.features", features.to_vec().into_pyarray(py))?;
            dict.set_item("neighbours.values", values.into_pyarray(py))?;
            dict.set_item("neighbours.class_lengths", neighbours.class_lengths().into_pyarray(py))?;
            dict.set_item("neighbours.members", neighbours.members().to_vec().into_pyarray(py))?;
        }
        Ok(dict)
    }

    /// The scores of chosen classes, a row an example.
    fn scores<'py>(
        &self,
        py: Python<'py>,
        features: Features<'py>,
        classes: PyReadonlyArray1<'py, i64>,
        threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let (cpu, pool) = (cpu()?, pool(py, threads)?);
        let none = NoLabels::new(&features)?;
        let examples = features.examples(py, none.slices(), &pool)?;
        self.check_features(examples.num_features)?;
        let classes = class_ids("class", classes.as_slice()?, self.model.num_classes())?;
        let predictor = Predictor::new(&self.model, cpu);
        let mut scores = Vec::with_capacity(examples.len() * classes.len());
        let all: Vec<u32> = (0..examples.len() as u32).collect();
        for batch in all.chunks(BATCH) {
            py.check_signals()?;
            py.detach(|| {
                scores.extend(pool.install(|| predictor.scores(&examples, batch, &classes)));
            });
        }
        matrix(py, scores, all.len(), classes.len())
    }

    /// How many training examples each class had.
    fn class_counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        let counts = &self.model.frequencies.examples_of_class;
        counts.iter().map(|&count| i64::from(count)).collect::<Vec<_>>().into_pyarray(py)
    }

    /// The classes' names, if they have names.
    fn class_names(&self) -> Option<Vec<String>> {
        Some(self.model.label_names()?.iter().map(str::to_owned).collect())
    }

    /// Adds classes without examples; their names are for the caller to give.
    fn add_classes(&mut self, count: usize) {
        let config = &self.record.config;
        let num_classes = self.model.num_classes() + count;
        self.model.grow(&Growth {
            num_features: self.model.num_features(),
            num_classes,
            init: config.init,
            bias: config.loss().over_candidates().starting_bias(num_classes),
            seed: config.seed,
        });
        if let Some(state) = &mut self.state {
            state.moments.grow(&self.model.network);
        }
    }

    /// Removes classes; the others move up.
    fn remove_classes(&mut self, classes: PyReadonlyArray1<'_, i64>) -> PyResult<()> {
        let removed = class_ids("class", classes.as_slice()?, self.model.num_classes())?;
        let kept = self.model.remove_classes(&removed).map_err(error::value)?;
        if let Some(state) = &mut self.state {
            state.moments.keep_classes(&self.model.network, &kept);
        }
        Ok(())
    }

    /// Says what the classes are called.
    fn set_names(&mut self, names: Vec<String>) -> PyResult<()> {
        let renamed: Vec<(u32, String)> = (0..).zip(names).collect();
        self.model.rename_classes(&renamed).map_err(error::value)
    }

    /// Says how text becomes features and what the classes are called.
    fn set_text(&mut self, vectoriser: &Vectoriser, names: Vec<String>) -> PyResult<()> {
        let (found, expected) = (names.len(), self.model.num_classes());
        if found != expected {
            return Err(error::value(format!("{found} names for {expected} classes")));
        }
        let names = LabelNames::in_order(names.iter().map(String::as_str)).map_err(|e| error::text(&e))?;
        self.model.text = Some(TextPipeline { vectoriser: vectoriser.inner.clone(), names });
        Ok(())
    }

    /// How text becomes features, if the model was trained from text.
    fn vectoriser(&self) -> Option<Vectoriser> {
        let text = self.model.text.as_ref()?;
        Some(Vectoriser { inner: text.vectoriser.clone() })
    }
}

fn weights<'py>(py: Python<'py>, rows: &Rows) -> PyResult<Bound<'py, PyArray2<f32>>> {
    let mut values = Vec::with_capacity(rows.len * rows.dim);
    let mut row = vec![0.0; rows.stride];
    for i in 0..rows.len {
        rows.view().copy_row(i, &mut row);
        values.extend_from_slice(&row[..rows.dim]);
    }
    matrix(py, values, rows.len, rows.dim)
}

/// `"exact"` or `"fast"`, and the effort if it is not the model's own.
type NamedSearch = (String, Option<usize>);

/// How classes are found, by name.
fn search_of(search: Option<NamedSearch>) -> PyResult<Search> {
    match search.as_ref().map(|(name, effort)| (name.as_str(), *effort)) {
        None | Some(("exact", _)) => Ok(Search::Exact),
        Some(("fast", Some(0))) => Err(error::value("effort is 0, but must be at least 1")),
        Some(("fast", effort)) => Ok(Search::Fast { effort }),
        Some((other, _)) => {
            Err(error::value(format!("search is {other:?}, but must be \"exact\" or \"fast\"")))
        }
    }
}
