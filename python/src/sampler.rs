//! The library's samplers for a model that lives elsewhere.

use lookalike::model::Embeddings;
use lookalike::sampling::{self, Candidates, Request, SamplerKind};
use lookalike::train::TrainConfig;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::arrays::{Labels, class_ids, finite_floats, floats, matrix, rows};
use crate::error;
use crate::model::cpu;
use crate::pool::pool;

/// The classes of a whole batch, ascending; for each example its candidates, as
/// places among them; how many are true labels, found and drawn; and the
/// log-probability of the drawn ones.
type Proposal<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray2<i64>>,
    Bound<'py, PyArray2<i64>>,
    Bound<'py, PyArray1<f32>>,
);

/// Proposes the classes to score for each example of a batch.
#[pyclass(module = "lookalike._native")]
pub(crate) struct Sampler {
    inner: Box<dyn sampling::Sampler>,
    config: TrainConfig,
    dim: usize,
    num_classes: usize,
    candidates: Candidates,
    /// Where each class stands among those of the batch; unused between batches.
    places: Vec<u32>,
}

#[pymethods]
impl Sampler {
    /// `class_counts` says how often each class occurs; its length is the
    /// number of classes.
    #[new]
    fn new(settings: &str, dim: usize, class_counts: PyReadonlyArray1<'_, u32>) -> PyResult<Self> {
        let config: TrainConfig =
            serde_json::from_str(settings).map_err(|e| error::value(format!("settings: {e}")))?;
        let label_counts = class_counts.as_slice()?;
        if matches!(config.sampler, SamplerKind::TopK | SamplerKind::Full) {
            return Err(error::value(format!("{} scores every class and needs no sampler", config.sampler)));
        }
        let setup = config.setup(label_counts, dim);
        Ok(Self {
            inner: sampling::build(config.sampler, &setup).map_err(error::value)?,
            dim,
            num_classes: label_counts.len(),
            candidates: Candidates::new(),
            places: vec![0; label_counts.len()],
            config,
        })
    }

    /// Whether it looks at class vectors, and so has to be refreshed.
    #[getter]
    fn uses_tables(&self) -> bool {
        self.config.sampler.uses_tables()
    }

    /// Whether scores are to be corrected by the log-probabilities.
    #[getter]
    fn corrects_log_q(&self) -> bool {
        self.config.corrects_log_q()
    }

    /// Negatives an example, at most.
    #[getter]
    fn budget(&self) -> usize {
        self.config.budget_for(self.num_classes)
    }

    /// Whether a refresh is due before an iteration, counted from 0.
    fn is_due(&self, iteration: u64) -> bool {
        self.uses_tables() && (iteration == 0 || self.config.lsh.schedule().is_due(iteration, false))
    }

    /// The logarithm of each class's expected count, for a fixed distribution.
    fn class_log_q<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f32>>> {
        self.inner.class_log_q().map(|log_q| log_q.to_vec().into_pyarray(py))
    }

    /// Hashes the class vectors again: all, or those of `changed` classes.
    fn refresh(
        &mut self,
        py: Python<'_>,
        class_vectors: PyReadonlyArray2<'_, f32>,
        changed: Option<PyReadonlyArray1<'_, i64>>,
        threads: Option<usize>,
    ) -> PyResult<()> {
        let (cpu, pool) = (cpu()?, pool(py, threads)?);
        let vectors = rows(finite_floats("class_vectors", &class_vectors, self.dim)?, self.dim);
        self.check_classes(vectors.len())?;
        let changed = match &changed {
            None => None,
            Some(ids) => {
                let mut ids = class_ids("class", ids.as_slice()?, self.num_classes)?;
                ids.sort_unstable();
                ids.dedup();
                Some(ids)
            }
        };
        let inner = &mut self.inner;
        py.detach(|| pool.install(|| inner.refresh(cpu, vectors, changed.as_deref())));
        Ok(())
    }

    /// The candidates of a batch.
    fn propose<'py>(
        &mut self,
        py: Python<'py>,
        iteration: u64,
        embeddings: PyReadonlyArray2<'py, f32>,
        labels: Labels<'py>,
        class_vectors: PyReadonlyArray2<'py, f32>,
        threads: Option<usize>,
    ) -> PyResult<Proposal<'py>> {
        let (cpu, pool) = (cpu()?, pool(py, threads)?);
        let embeddings = Embeddings::new(floats("embeddings", &embeddings, self.dim)?, self.dim, self.dim);
        let vectors = rows(floats("class_vectors", &class_vectors, self.dim)?, self.dim);
        self.check_classes(vectors.len())?;
        let no_features = labels.slices()?.no_features();
        let examples = labels.slices()?.examples(py, &no_features, &pool)?;
        self.check_classes(examples.num_classes)?;
        if examples.len() != embeddings.len() {
            let (labels, rows) = (examples.len(), embeddings.len());
            return Err(error::value(format!("{rows} embeddings, but labels of {labels} examples")));
        }
        let batch: Vec<u32> = (0..examples.len() as u32).collect();
        let request = Request {
            seed: self.config.seed,
            iteration,
            cpu,
            examples,
            batch: &batch,
            embeddings,
            class_vectors: vectors,
            class_bias: &[],
            near: None,
        };
        let (inner, candidates, places) = (&mut self.inner, &mut self.candidates, &mut self.places);
        let (classes, positions) = py.detach(|| {
            pool.install(|| inner.propose(&request, candidates));
            place_candidates(candidates, places)
        });
        let counts = candidates.all_counts().iter();
        let counts: Vec<i64> = counts.flat_map(|c| [c.truths, c.found, c.drawn].map(i64::from)).collect();
        let log_q: Vec<f32> = candidates.all_counts().iter().map(|c| c.drawn_log_q).collect();
        let (examples, stride) = (candidates.len(), candidates.stride());
        Ok((
            classes.into_pyarray(py),
            matrix(py, positions, examples, stride)?,
            matrix(py, counts, examples, 3)?,
            log_q.into_pyarray(py),
        ))
    }
}

impl Sampler {
    fn check_classes(&self, found: usize) -> PyResult<()> {
        if found == self.num_classes {
            return Ok(());
        }
        let expected = self.num_classes;
        Err(error::value(format!("found {found} classes, but the sampler was made for {expected}")))
    }
}

/// The different classes of a batch, ascending, and each candidate's place among
/// them (0 beyond an example's last). O(candidates), whatever the number of classes.
fn place_candidates(candidates: &Candidates, places: &mut [u32]) -> (Vec<i64>, Vec<i64>) {
    let all = || (0..candidates.len()).flat_map(|example| candidates.of(example));
    let mut classes = Vec::new();
    for &class in all() {
        if std::mem::replace(&mut places[class as usize], 1) == 0 {
            classes.push(class);
        }
    }
    classes.sort_unstable();
    for (place, &class) in classes.iter().enumerate() {
        places[class as usize] = place as u32;
    }
    let mut positions = vec![0; candidates.len() * candidates.stride()];
    for (example, row) in positions.chunks_mut(candidates.stride()).enumerate() {
        for (slot, &class) in row.iter_mut().zip(candidates.of(example)) {
            *slot = places[class as usize].into();
        }
    }
    for &class in &classes {
        places[class as usize] = 0;
    }
    (classes.into_iter().map(i64::from).collect(), positions)
}
