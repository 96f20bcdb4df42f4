//! Hash tables over any vectors, for any framework.

use lookalike::hashing::{Codes, Family, FamilyShape, HashTables, Incremental, LookupOptions};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde_json::{Value, from_value};

use crate::arrays::{class_ids, finite_floats, matrix, rows};
use crate::error;
use crate::model::cpu;
use crate::pool::pool;

/// Ids and log-probabilities, a row a query, and how many of each row count.
type Found<'py> = (Bound<'py, PyArray2<i64>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray2<f32>>);

/// L hash tables of K functions each over the rows of a matrix.
#[pyclass(module = "lookalike._native")]
pub(crate) struct LshTables {
    shape: FamilyShape,
    seed: u64,
    tables: Option<HashTables>,
}

fn named<T: serde::de::DeserializeOwned>(what: &str, name: &str) -> PyResult<T> {
    from_value(Value::from(name)).map_err(|e| error::value(format!("{what}: {e}")))
}

#[pymethods]
impl LshTables {
    #[new]
    fn new(
        dim: usize,
        k: usize,
        l: usize,
        family: &str,
        bin: usize,
        codes: &str,
        seed: u64,
    ) -> PyResult<Self> {
        let (family, codes) = (named::<Family>("family", family)?, named::<Codes>("codes", codes)?);
        let shape = FamilyShape { family, dim, k, l, bin, codes };
        shape.buckets().map_err(error::value)?;
        Ok(Self { shape, seed, tables: None })
    }

    /// Hashes all rows of `weights`.
    fn build(
        &mut self,
        py: Python<'_>,
        weights: PyReadonlyArray2<'_, f32>,
        threads: Option<usize>,
    ) -> PyResult<()> {
        let (cpu, pool) = (cpu()?, pool(py, threads)?);
        let dim = self.shape.dim;
        let rows = rows(finite_floats("weights", &weights, dim)?, dim);
        if rows.is_empty() || rows.len() > i32::MAX as usize {
            return Err(error::value(format!(
                "weights has {} rows, but 1 to 2^31 can be hashed",
                rows.len()
            )));
        }
        let (shape, seed) = (self.shape, self.seed);
        let made = py.detach(|| {
            // Codes are kept, so that an update never needs the other rows.
            let mut tables = HashTables::new(shape.draw(seed)?, rows.len(), Incremental::Always);
            pool.install(|| tables.rebuild(cpu, rows));
            Ok(tables)
        });
        self.tables = Some(made.map_err(|e: lookalike::hashing::HashError| error::value(e))?);
        Ok(())
    }

    /// Hashes again the rows `ids`, whose new values are the rows of `weights`.
    fn update(
        &mut self,
        py: Python<'_>,
        ids: PyReadonlyArray1<'_, i64>,
        weights: PyReadonlyArray2<'_, f32>,
        threads: Option<usize>,
    ) -> PyResult<()> {
        let (cpu, pool, dim) = (cpu()?, pool(py, threads)?, self.shape.dim);
        let values = finite_floats("weights", &weights, dim)?;
        let tables = self.tables.as_mut().ok_or_else(not_built)?;
        let ids = class_ids("id", ids.as_slice()?, tables.classes())?;
        let count = rows(values, dim).len();
        if ids.len() != count {
            return Err(error::value(format!("{} ids, but weights has {count} rows", ids.len())));
        }
        let mut changed = ids.clone();
        changed.sort_unstable();
        if let Some(twice) = changed.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(error::value(format!("id {} stands twice among the ids to update", twice[0])));
        }
        py.detach(|| {
            // Only changed rows are read. The others are zeroes that the
            // operating system never has to supply.
            let mut all = vec![0.0f32; tables.classes() * dim];
            for (&id, row) in ids.iter().zip(values.chunks_exact(dim)) {
                all[id as usize * dim..][..dim].copy_from_slice(row);
            }
            pool.install(|| tables.update(cpu, rows(&all, dim), &changed));
        });
        Ok(())
    }

    /// Up to `budget` different ids that share a bucket with each vector.
    fn query<'py>(
        &self,
        py: Python<'py>,
        vectors: PyReadonlyArray2<'py, f32>,
        budget: usize,
        iteration: u64,
        threads: Option<usize>,
    ) -> PyResult<Found<'py>> {
        let (cpu, pool) = (cpu()?, pool(py, threads)?);
        let dim = self.shape.dim;
        let rows = rows(finite_floats("vectors", &vectors, dim)?, dim);
        let tables = self.tables.as_ref().ok_or_else(not_built)?;
        if budget == 0 {
            return Err(error::value("budget is 0, but must be at least 1"));
        }
        let options = LookupOptions { budget, seed: self.seed, iteration };
        let queries = rows.len();
        let (found, ids, log_probabilities) = py.detach(|| {
            let found = pool.install(|| tables.look_up(cpu, rows, options));
            let mut ids = vec![-1i64; queries * found.budget()];
            let mut log_probabilities = vec![f32::NEG_INFINITY; queries * found.budget()];
            for query in 0..queries {
                let first = query * found.budget();
                for (slot, &id) in ids[first..].iter_mut().zip(found.classes(query)) {
                    *slot = id.into();
                }
                for (slot, of_id) in log_probabilities[first..].iter_mut().zip(found.log_probabilities(query))
                {
                    *slot = of_id;
                }
            }
            (found, ids, log_probabilities)
        });
        let counts: Vec<i64> = (0..queries).map(|query| found.classes(query).len() as i64).collect();
        let ids = matrix(py, ids, queries, found.budget())?;
        let log_probabilities = matrix(py, log_probabilities, queries, found.budget())?;
        Ok((ids, counts.into_pyarray(py), log_probabilities))
    }

    /// How many rows are in the tables; 0 before they are built.
    fn __len__(&self) -> usize {
        self.tables.as_ref().map_or(0, HashTables::classes)
    }
}

fn not_built() -> PyErr {
    PyRuntimeError::new_err("the tables are empty: call build(weights) first")
}
