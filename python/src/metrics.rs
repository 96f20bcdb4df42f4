//! Metrics of predictions, whoever made them.

use lookalike::metrics::{MetricOptions, Metrics, Totals, TrainingFrequencies};
use lookalike::predict::Evaluation;
use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::Labels;
use crate::error;
use crate::pool::pool;
use crate::training::metrics;

/// Measures ranked predictions, a row an example, best first; a negative number
/// ends a row early.
#[pyfunction]
pub(crate) fn measure<'py>(
    py: Python<'py>,
    predicted: PyReadonlyArray2<'py, i64>,
    labels: Labels<'py>,
    unknown_labels: PyReadonlyArray1<'py, u32>,
    options: &str,
    training: Option<(PyReadonlyArray1<'py, u32>, usize)>,
) -> PyResult<Bound<'py, PyDict>> {
    let options: MetricOptions = serde_json::from_str(options).map_err(error::value)?;
    let pool = pool(py, None)?;
    let no_features = labels.slices()?.no_features();
    let examples = labels.slices()?.examples(py, &no_features, &pool)?;
    let shape = predicted.as_array().shape().to_vec();
    if shape[0] != examples.len() {
        let (rows, labelled) = (shape[0], examples.len());
        return Err(error::value(format!("{rows} rows of predictions, but labels of {labelled} examples")));
    }
    let rows = rows_of(predicted.as_slice()?, shape[1])?;
    let unknown_labels = unknown_labels.as_slice()?;
    let frequencies = match &training {
        None => None,
        Some((counts, num_examples)) => {
            Some(TrainingFrequencies { examples_of_class: counts.as_slice()?, num_examples: *num_examples })
        }
    };
    let measure = Metrics::new(&options, frequencies).map_err(error::value)?;
    let totals = py.detach(|| {
        let mut totals = Totals::new(&measure);
        pool.install(|| {
            totals.add_all(&measure, rows.len(), |i| {
                let unknown = unknown_labels.get(i).map_or(0, |&count| count as usize);
                (&rows[i][..], examples.labels(i), unknown)
            });
        });
        totals
    });
    let evaluation = Evaluation {
        reliability: None,
        values: totals.values(&measure),
        examples: totals.examples(),
        skipped: totals.skipped(),
        recall: None,
    };
    metrics(py, &evaluation)
}

fn rows_of(predicted: &[i64], k: usize) -> PyResult<Vec<Vec<u32>>> {
    let row = |(example, row): (usize, &[i64])| {
        let end = row.iter().position(|&class| class < 0).unwrap_or(k);
        let classes: Vec<u32> =
            row[..end].iter().map(|&class| class.try_into().unwrap_or(u32::MAX)).collect();
        let mut sorted = classes.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(classes),
            Some(twice) => Err(error::value(format!(
                "example {example}: class {} is predicted twice; predictions of an example must differ",
                twice[0]
            ))),
        }
    };
    predicted.chunks(k.max(1)).enumerate().map(row).collect()
}
