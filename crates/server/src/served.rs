//! The model that answers, and how it is exchanged for another one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::SystemTime;

use lookalike::artifact::{self, ModelError};
use lookalike::data::Dataset;
use lookalike::model::{Model, Storage};
use lookalike::predict::{Ask, Explainer, Predictor, Search};
use lookalike::train::TrainingRecord;
use lookalike_kernels::Cpu;
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::{Value, json};
use thiserror::Error;

/// A model that has been loaded and tried.
pub(crate) struct Served {
    pub(crate) predictor: Predictor<Box<Model>>,
    pub(crate) cpu: Cpu,
    storage: Option<Storage>,
    /// How many models were served before it.
    pub(crate) generation: u64,
    /// What `GET /v1/model` says of it.
    pub(crate) card: Value,
    /// Costs a pass over all classes, and few ask.
    explainer: OnceLock<Explainer>,
}

/// Why a model is not served.
#[derive(Debug, Error)]
pub enum LoadError {
    /// It can't be read.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// It can be read and can't answer.
    #[error("{}: the model gives no class a finite score for an empty example: train it again", .0.display())]
    NoAnswer(PathBuf),
    /// The system gives no threads.
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

impl Served {
    fn load(
        directory: &Path,
        (cpu, storage): (Cpu, Option<Storage>),
        generation: u64,
    ) -> Result<Self, LoadError> {
        let mut saved = artifact::load(directory)?;
        if let Some(storage) = storage {
            saved.model.store_classes(storage);
        }
        let card = card(directory, &saved.model, &saved.record, generation);
        let predictor = Predictor::new(Box::new(saved.model), cpu);
        // What is made at the first question is made now.
        let mut empty = Dataset::empty(predictor.model().num_features(), predictor.model().num_classes());
        empty.push([], &[]);
        // Both ways, as each makes on first use what it needs.
        let finds = |search: Search| {
            let ask = Ask { search, ..Ask::best(1) };
            !predictor.rank(&empty.view(), &[0], ask).example(0).classes.is_empty()
        };
        if !finds(Search::Exact) || !finds(Search::FAST) {
            return Err(LoadError::NoAnswer(directory.to_owned()));
        }
        Ok(Self { predictor, cpu, storage, generation, card, explainer: OnceLock::new() })
    }

    pub(crate) fn model(&self) -> &Model {
        self.predictor.model()
    }

    pub(crate) fn explainer(&self) -> &Explainer {
        self.explainer.get_or_init(|| Explainer::new(self.model()))
    }
}

/// The place of the model that answers now.
pub(crate) struct Models {
    directory: PathBuf,
    current: RwLock<Arc<Served>>,
    /// One exchange at a time.
    exchange: Mutex<()>,
}

impl Models {
    /// Loads the first model, with all threads that will answer.
    pub(crate) fn load(
        directory: &Path,
        how: (Cpu, Option<Storage>),
        pool: &ThreadPool,
    ) -> Result<Self, LoadError> {
        let first = pool.install(|| Served::load(directory, how, 0))?;
        let current = RwLock::new(Arc::new(first));
        Ok(Self { directory: directory.to_owned(), current, exchange: Mutex::default() })
    }

    /// The model that answers now. Whoever holds it goes on with it.
    pub(crate) fn current(&self) -> Arc<Served> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Loads the model anew and serves it if it is good; otherwise the old one stays.
    /// One thread of its own does it, so that answers go on meanwhile. Until the last
    /// answer of the old model is given there is memory for both.
    pub(crate) fn reload(&self) -> Result<Arc<Served>, LoadError> {
        let _one_at_a_time = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.current();
        let pool = ThreadPoolBuilder::new().num_threads(1).build()?;
        let how = (before.cpu, before.storage);
        let next = pool.install(|| Served::load(&self.directory, how, before.generation + 1))?;
        let next = Arc::new(next);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = next.clone();
        Ok(next)
    }
}

/// What people want to know of a model.
fn card(directory: &Path, model: &Model, record: &TrainingRecord, generation: u64) -> Value {
    let shape = &model.network.config;
    let name = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let loaded = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    json!({
        "name": name.file_name().unwrap_or_default().to_string_lossy(),
        "generation": generation,
        "loaded": loaded.as_secs(),
        "reads": reads(model),
        "classes": model.num_classes(),
        "features": model.num_features(),
        "parameters": model.num_parameters(),
        "hidden": shape.hidden,
        "storage": format!("{:?}", model.network.output.weights.storage()).to_lowercase(),
        "has_names": model.label_names().is_some(),
        "sparse_weights": model.sparse.as_ref().map_or(0, |part| part.num_entries()),
        "kept_examples": model.neighbours.as_ref().map_or(0, |part| part.num_examples()),
        "has_search_index": model.search.is_some(),
        "training": {
            "examples": model.frequencies.num_examples,
            "epochs": record.progress.epoch,
            "steps": record.progress.iteration,
            "seconds": record.progress.train_seconds,
            "sampler": record.config.sampler.to_string(),
        },
        "frequent_classes": frequent_classes(model, 5),
    })
}

/// What the model was trained from: where it has names without text, a dense matrix.
fn reads(model: &Model) -> &'static str {
    match (&model.text, &model.names) {
        (Some(_), _) => "text",
        (None, Some(_)) => "vector",
        (None, None) => "features",
    }
}

fn frequent_classes(model: &Model, count: usize) -> Vec<Value> {
    let examples = &model.frequencies.examples_of_class;
    let mut classes: Vec<u32> = (0..examples.len() as u32).collect();
    let order = |&class: &u32| (std::cmp::Reverse(examples[class as usize]), class);
    if classes.len() > count {
        classes.select_nth_unstable_by_key(count, order);
        classes.truncate(count);
    }
    classes.sort_unstable_by_key(order);
    let entry =
        |&class: &u32| json!({ "name": model.class_name(class), "examples": examples[class as usize] });
    classes.iter().map(entry).collect()
}
