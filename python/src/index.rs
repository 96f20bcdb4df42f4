//! Hash tables over any vectors, for any framework.

use std::cell::RefCell;

use lookalike::hashing::{Codes, Family, FamilyShape, HashTables, Incremental};
use lookalike::model::{RowData, RowsView};
use lookalike::random::{Stream, below, mix};
use lookalike_kernels::LANES;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::prelude::*;
use serde_json::{Value, from_value};

use crate::arrays::{class_ids, finite_rows, matrix};
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
        let rows = finite_rows("weights", &weights, self.shape.dim)?;
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
        let rows = finite_rows("weights", &weights, dim)?;
        let tables = self.tables.as_mut().ok_or_else(not_built)?;
        let ids = class_ids("id", ids.as_slice()?, tables.classes())?;
        if ids.len() != rows.len() {
            return Err(error::value(format!("{} ids, but weights has {} rows", ids.len(), rows.len())));
        }
        let mut changed = ids.clone();
        changed.sort_unstable();
        if let Some(twice) = changed.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(error::value(format!("id {} stands twice among the ids to update", twice[0])));
        }
        let RowData::F32(values) = rows.data else { unreachable!("made from f32") };
        py.detach(|| {
            // Only changed rows are read. The others are zeroes that the
            // operating system never has to supply.
            let mut all = vec![0.0f32; tables.classes() * dim];
            for (&id, row) in ids.iter().zip(values.chunks_exact(dim)) {
                all[id as usize * dim..][..dim].copy_from_slice(row);
            }
            let all = RowsView { data: RowData::F32(&all), dim, stride: dim };
            pool.install(|| tables.update(cpu, all, &changed));
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
        let rows = finite_rows("vectors", &vectors, self.shape.dim)?;
        let tables = self.tables.as_ref().ok_or_else(not_built)?;
        if budget == 0 {
            return Err(error::value("budget is 0, but must be at least 1"));
        }
        let budget = budget.min(tables.classes());
        let queries = rows.len();
        let mut ids = vec![-1i64; queries * budget];
        let mut log_probabilities = vec![f32::NEG_INFINITY; queries * budget];
        let mut counts = vec![0i64; queries];
        let search = Search { tables, seed: self.seed, iteration };
        py.detach(|| {
            pool.install(|| {
                let blocks = ids.par_chunks_mut(LANES * budget);
                let blocks = blocks.zip(log_probabilities.par_chunks_mut(LANES * budget));
                blocks.zip(counts.par_chunks_mut(LANES)).enumerate().for_each(
                    |(block, ((ids, log_probabilities), counts))| {
                        let first = block * LANES;
                        let codes = search.codes(cpu, rows, first..first + counts.len());
                        let slots = ids.chunks_mut(budget).zip(log_probabilities.chunks_mut(budget));
                        for (i, ((ids, log_probabilities), count)) in slots.zip(counts).enumerate() {
                            let codes = &codes[i * self.shape.l..][..self.shape.l];
                            *count = search.one(first + i, codes, ids, log_probabilities) as i64;
                        }
                    },
                );
            });
        });
        let ids = matrix(py, ids, queries, budget)?;
        Ok((ids, counts.into_pyarray(py), matrix(py, log_probabilities, queries, budget)?))
    }

    /// How many rows are in the tables; 0 before they are built.
    fn __len__(&self) -> usize {
        self.tables.as_ref().map_or(0, HashTables::classes)
    }
}

fn not_built() -> PyErr {
    PyRuntimeError::new_err("the tables are empty: call build(weights) first")
}

thread_local! {
    /// In how many tables each id was met; all zero between queries.
    static MET: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

struct Search<'a> {
    tables: &'a HashTables,
    seed: u64,
    iteration: u64,
}

impl Search<'_> {
    fn codes(
        &self,
        cpu: lookalike_kernels::Cpu,
        rows: RowsView<'_>,
        queries: std::ops::Range<usize>,
    ) -> Vec<u32> {
        let family = self.tables.family();
        let ids: Vec<u32> = queries.map(|query| query as u32).collect();
        let mut codes = vec![0; ids.len() * family.tables()];
        family.hash_rows(cpu, rows, &ids, 0..family.tables(), &mut codes);
        codes
    }

    /// Algorithm 3 of the paper, but to the last table, to count how often each
    /// id that was found is met: O(size of the buckets).
    fn one(&self, query: usize, codes: &[u32], ids: &mut [i64], log_probabilities: &mut [f32]) -> usize {
        MET.with_borrow_mut(|met| {
            if met.len() < self.tables.classes() {
                met.resize(self.tables.classes(), 0);
            }
            let random = mix(self.seed, Stream::Sample, self.iteration, query as u64);
            let start = below(random, codes.len() as u32) as usize;
            let mut found = 0;
            for step in 0..codes.len() {
                let table = (start + step) % codes.len();
                let bucket = self.tables.bucket(table, codes[table]);
                // Of a bucket that may be too full, a random run, wrapping round.
                let turn = below(random.rotate_left(step as u32), bucket.len() as u32) as usize;
                let (before, after) = bucket.split_at(turn);
                for &id in after.iter().chain(before) {
                    let times = &mut met[id as usize];
                    if *times > 0 {
                        *times += 1;
                    } else if found < ids.len() {
                        *times = 1;
                        ids[found] = id.into();
                        found += 1;
                    }
                }
            }
            for (&id, log_probability) in ids[..found].iter().zip(log_probabilities) {
                let times = std::mem::take(&mut met[id as usize]);
                *log_probability = log_chance(times, codes.len());
            }
            found
        })
    }
}

/// `ln(1 - (1 - p)^L)` with p, the chance to meet in one table, estimated by
/// the share of tables in which they met (paper, theorem 1).
fn log_chance(times: u32, tables: usize) -> f32 {
    let miss = 1.0 - f64::from(times) / tables as f64;
    (-miss.powi(tables as i32)).ln_1p() as f32
}
