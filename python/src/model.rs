//! A trained network, as Python sees it.

use std::path::PathBuf;

use lookalike::artifact;
use lookalike::metrics::{MetricOptions, TrainingFrequencies};
use lookalike::model::{Activations, RowData, Rows};
use lookalike::predict::{self, ClassScorer, Ranker};
use lookalike::sampling::label_counts;
use lookalike::sampling::{self, SamplerKind, Setup};
use lookalike::text::{LabelNames, TextPipeline};
use lookalike::train::{TrainConfig, Trainer};
use lookalike_kernels::Cpu;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{Features, Labels, NoLabels, matrix};
use crate::error;
use crate::pool::pool;
use crate::text::Vectoriser;
use crate::training::{self, RunOptions, metrics};

/// Examples that are embedded or ranked between two looks for signals.
const BATCH: usize = 1024;

/// Class ids and scores, a row an example.
type Best<'py> = (Bound<'py, PyArray2<i64>>, Bound<'py, PyArray2<f32>>);

/// A trained network.
#[pyclass(module = "lookalike._native")]
pub(crate) struct Model {
    /// Absent only while a failed `resume` has lost it.
    inner: Option<artifact::Model>,
}

impl Model {
    fn get(&self) -> PyResult<&artifact::Model> {
        self.inner.as_ref().ok_or_else(|| PyRuntimeError::new_err("the model was lost when training failed"))
    }

    fn get_mut(&mut self) -> PyResult<&mut artifact::Model> {
        self.inner.as_mut().ok_or_else(|| PyRuntimeError::new_err("the model was lost when training failed"))
    }

    fn check_features(&self, features: usize) -> PyResult<()> {
        let expected = self.get()?.network.config.num_features;
        if features != expected {
            return Err(error::value(format!(
                "the examples have {features} features, but the model was trained with {expected}"
            )));
        }
        Ok(())
    }

    /// Class numbers, if there are such classes.
    fn checked_classes(&self, classes: &[i64]) -> PyResult<Vec<u32>> {
        let count = self.get()?.network.config.num_classes;
        let checked = |&class: &i64| {
            u32::try_from(class).ok().filter(|&class| (class as usize) < count).ok_or_else(|| {
                error::value(format!("class {class} is out of range: the model has {count} classes"))
            })
        };
        classes.iter().map(checked).collect()
    }
}

/// The instructions to use, or why `LOOKALIKE_CPU` can't be obeyed.
pub(crate) fn cpu() -> PyResult<Cpu> {
    Cpu::from_env().map_err(error::value)
}

fn parse_settings(settings: &str) -> PyResult<TrainConfig> {
    serde_json::from_str(settings).map_err(|e| error::value(format!("settings: {e}")))
}

#[pymethods]
impl Model {
    /// Trains a new model. Gives it with the reason for the end.
    #[staticmethod]
    fn train(
        py: Python<'_>,
        features: Features<'_>,
        labels: Labels<'_>,
        settings: &str,
        options: RunOptions<'_>,
    ) -> PyResult<(Self, &'static str)> {
        let (config, cpu, pool) = (parse_settings(settings)?, cpu()?, pool(py, options.threads)?);
        let examples = features.examples(py, labels.slices()?, &pool)?;
        let made = py.detach(|| pool.install(|| Trainer::new(config, examples, cpu)));
        let mut trainer = made.map_err(|e| error::training(&e))?;
        let outcome = training::train(py, &pool, &mut trainer, &options)?;
        Ok((Self { inner: Some(trainer.model) }, outcome))
    }

    /// Trains for one more pass over other examples of the same shape.
    fn resume(
        &mut self,
        py: Python<'_>,
        features: Features<'_>,
        labels: Labels<'_>,
        settings: &str,
        options: RunOptions<'_>,
    ) -> PyResult<&'static str> {
        let (mut config, cpu, pool) = (parse_settings(settings)?, cpu()?, pool(py, options.threads)?);
        let examples = features.examples(py, labels.slices()?, &pool)?;
        self.check_features(examples.num_features)?;
        let model = self.get_mut()?;
        config.epochs = model.progress.epoch + 1;
        check_settings(&config, &examples, model)?;
        let mut model = self.inner.take().expect("it was there a line before");
        model.training = config;
        model.progress.position = 0;
        for (count, more) in model.class_counts.iter_mut().zip(label_counts(examples)) {
            *count += more;
        }
        let examples_before = model.progress.examples;
        let made = py.detach(|| pool.install(|| Trainer::resume(model, examples, cpu)));
        let mut trainer = made.map_err(|e| error::training(&e))?;
        let outcome = training::train(py, &pool, &mut trainer, &options);
        trainer.model.progress.examples += examples_before;
        self.inner = Some(trainer.model);
        outcome
    }

    /// Reads a model directory.
    #[staticmethod]
    fn load(py: Python<'_>, directory: PathBuf, for_training: bool) -> PyResult<Self> {
        let loaded = py.detach(|| artifact::Model::load(&directory, for_training));
        Ok(Self { inner: Some(loaded.map_err(|e| error::model(&e))?) })
    }

    /// Writes a model directory.
    fn save(&self, py: Python<'_>, directory: PathBuf, with_training_state: bool) -> PyResult<()> {
        let model = self.get()?;
        py.detach(|| model.save(&directory, with_training_state)).map_err(|e| error::model(&e))
    }

    /// Network, training settings and progress, as JSON.
    fn describe(&self) -> PyResult<String> {
        let model = self.get()?;
        let description = serde_json::json!({
            "network": model.network.config,
            "training": model.training,
            "progress": model.progress,
            "parameters": model.network.num_parameters(),
            "sparse": model.network.sparse.as_ref().map(
                |sparse| serde_json::json!({ "entries": sparse.num_entries(), "blend": sparse.blend() })
            ),
            "neighbours": model.network.neighbours.as_ref().map(
                |part| serde_json::json!({ "examples": part.num_examples(), "weight": part.weight() })
            ),
        });
        Ok(description.to_string())
    }

    /// The best `k` classes of each example and their scores, or probabilities.
    /// Places beyond the last class hold -1.
    #[pyo3(signature = (features, k, probabilities, threads))]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        features: Features<'py>,
        k: usize,
        probabilities: bool,
        threads: Option<usize>,
    ) -> PyResult<Best<'py>> {
        let (network, cpu, pool) = (&self.get()?.network, cpu()?, pool(py, threads)?);
        let none = NoLabels::new(&features)?;
        let examples = features.examples(py, none.slices(), &pool)?;
        self.check_features(examples.num_features)?;
        if k == 0 {
            return Err(error::value("k is 0, but must be at least 1"));
        }
        let k = k.min(network.config.num_classes);
        let mut ranker = Ranker::new(k);
        if probabilities {
            ranker = ranker.with_log_sum_exp();
        }
        let mut classes = vec![-1i64; examples.len() * k];
        let mut scores = vec![f32::NEG_INFINITY; examples.len() * k];
        let all: Vec<u32> = (0..examples.len() as u32).collect();
        let places = classes.chunks_mut(BATCH * k).zip(scores.chunks_mut(BATCH * k));
        for (batch, (classes, scores)) in all.chunks(BATCH).zip(places) {
            py.check_signals()?;
            py.detach(|| {
                let best = pool.install(|| ranker.rank(cpu, network, &examples, batch));
                let places = classes.chunks_exact_mut(k).zip(scores.chunks_exact_mut(k));
                for (example, (classes, scores)) in places.enumerate() {
                    let ranked = best.example(example);
                    let shift = best.log_sum_exp(example);
                    for (i, (&class, &score)) in ranked.classes.iter().zip(ranked.scores).enumerate() {
                        classes[i] = class.into();
                        scores[i] = shift.map_or(score, |shift| (score - shift).exp());
                    }
                }
            });
        }
        Ok((matrix(py, classes, all.len(), k)?, matrix(py, scores, all.len(), k)?))
    }

    /// The hidden activation of each example.
    fn embed<'py>(
        &self,
        py: Python<'py>,
        features: Features<'py>,
        threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let (network, cpu, pool) = (&self.get()?.network, cpu()?, pool(py, threads)?);
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
                let view = activations.embeddings();
                let RowData::F32(data) = view.data else { unreachable!("embeddings are always f32") };
                data.chunks_exact(view.stride).for_each(|row| embeddings.extend_from_slice(&row[..dim]));
            });
        }
        matrix(py, embeddings, all.len(), dim)
    }

    /// Ranks all classes for each example and measures the result.
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        features: Features<'py>,
        labels: Labels<'py>,
        unknown_labels: PyReadonlyArray1<'py, u32>,
        options: &str,
        threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (model, cpu, pool) = (self.get()?, cpu()?, pool(py, threads)?);
        let examples = features.examples(py, labels.slices()?, &pool)?;
        self.check_features(examples.num_features)?;
        let options: MetricOptions = serde_json::from_str(options).map_err(error::value)?;
        let unknown_labels = unknown_labels.as_slice()?;
        let unknown = |example: usize| unknown_labels.get(example).map_or(0, |&count| count as usize);
        let frequencies = TrainingFrequencies {
            examples_of_class: &model.class_counts,
            num_examples: model.progress.examples,
        };
        let evaluation = py.detach(|| {
            pool.install(|| {
                predict::evaluate(cpu, &model.network, &examples, &unknown, &options, Some(frequencies))
            })
        });
        metrics(py, &evaluation.map_err(error::value)?)
    }

    /// All parameters, by the names they have in the model's file.
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let model = self.get()?;
        let network = &model.network;
        let dict = PyDict::new(py);
        let vector = |values: &[f32]| values.to_vec().into_pyarray(py);
        dict.set_item("input.weight", weights(py, &network.input)?)?;
        dict.set_item("input.bias", vector(&network.input_bias.w))?;
        for (i, layer) in network.hidden.iter().enumerate() {
            let rows = layer.w.chunks_exact(layer.stride);
            let values: Vec<f32> = rows.flat_map(|row| &row[..layer.outputs]).copied().collect();
            dict.set_item(format!("hidden.{i}.weight"), matrix(py, values, layer.inputs, layer.outputs)?)?;
            dict.set_item(format!("hidden.{i}.bias"), vector(&layer.bias.w))?;
        }
        dict.set_item("output.weight", weights(py, &network.output)?)?;
        dict.set_item("output.bias", vector(&network.output.bias.w))?;
        if let Some(sparse) = &network.sparse {
            dict.set_item("sparse.lengths", sparse.lengths().into_pyarray(py))?;
            dict.set_item("sparse.features", sparse.features.clone().into_pyarray(py))?;
            dict.set_item("sparse.weights", vector(sparse.weights()))?;
        }
        if let Some(neighbours) = &network.neighbours {
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
        let (network, cpu, pool) = (&self.get()?.network, cpu()?, pool(py, threads)?);
        let none = NoLabels::new(&features)?;
        let examples = features.examples(py, none.slices(), &pool)?;
        self.check_features(examples.num_features)?;
        let classes = self.checked_classes(classes.as_slice()?)?;
        let mut scorer = ClassScorer::default();
        let mut scores = Vec::with_capacity(examples.len() * classes.len());
        let all: Vec<u32> = (0..examples.len() as u32).collect();
        for batch in all.chunks(BATCH) {
            py.check_signals()?;
            py.detach(|| {
                scores.extend(pool.install(|| scorer.score(cpu, network, &examples, batch, &classes)));
            });
        }
        matrix(py, scores, all.len(), classes.len())
    }

    /// How many training examples each class had.
    fn class_counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let counts: Vec<i64> = self.get()?.class_counts.iter().map(|&count| count.into()).collect();
        Ok(counts.into_pyarray(py))
    }

    /// The classes' names, if the model was trained from text.
    fn class_names(&self) -> PyResult<Option<Vec<String>>> {
        let text = self.get()?.text.as_ref();
        Ok(text.map(|text| text.names.iter().map(str::to_owned).collect()))
    }

    /// Says how text becomes features and what the classes are called.
    fn set_text(&mut self, vectoriser: &Vectoriser, names: Vec<String>) -> PyResult<()> {
        let model = self.get_mut()?;
        if names.len() != model.network.config.num_classes {
            let (found, expected) = (names.len(), model.network.config.num_classes);
            return Err(error::value(format!("{found} names for {expected} classes")));
        }
        let names = LabelNames::in_order(names.iter().map(String::as_str)).map_err(|e| error::text(&e))?;
        model.text = Some(TextPipeline { vectoriser: vectoriser.inner.clone(), names });
        Ok(())
    }

    /// How text becomes features, if the model was trained from text.
    fn vectoriser(&self) -> PyResult<Option<Vectoriser>> {
        let text = self.get()?.text.as_ref();
        Ok(text.map(|text| Vectoriser { inner: text.vectoriser.clone() }))
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

/// Everything that could make [`Trainer::resume`] refuse, found before it takes
/// the model.
fn check_settings(
    config: &TrainConfig,
    examples: &lookalike::data::Examples<'_>,
    model: &artifact::Model,
) -> PyResult<()> {
    config.check(examples).map_err(error::value)?;
    let output = &model.network.output;
    if examples.num_classes != output.len {
        return Err(error::value(format!(
            "the labels have {} classes, but the model was trained with {}",
            examples.num_classes, output.len
        )));
    }
    if config.network(examples.num_features, examples.num_classes) != model.network.config {
        return Err(error::value(
            "hidden, activation, normalise and storage belong to the model and can't change between calls of \
             partial_fit: call fit to start again",
        ));
    }
    if config.sampler != SamplerKind::Full {
        let budget = config.budget_for(output.len);
        config.lsh.choose(budget, output.len, output.dim).map_err(error::value)?;
        // The same sampler for two classes costs nothing and refuses the same options.
        let setup = Setup {
            seed: config.seed,
            budget: 1,
            dim: output.dim,
            label_counts: &[1, 1],
            lsh: &config.lsh,
            mixed: &config.mixed,
        };
        sampling::build(config.sampler, &setup).map_err(error::value)?;
    }
    Ok(())
}
