//! Files of examples, and generated ones.

use std::path::PathBuf;

use lookalike::data::synth::{SynthOptions, synth};
use lookalike::data::{Dataset, ReadOptions, Source, write_packed, write_text};
use lookalike::text::{self, Column, Format, TextFile, dense_dataset};
use pyo3::prelude::*;

use crate::arrays::{Features, Labels, OwnedFeatures, OwnedLabels, into_arrays};
use crate::error;
use crate::pool::pool;

/// Features and labels of a data set.
type Arrays<'py> = (OwnedFeatures<'py>, OwnedLabels<'py>);

/// Reads a file, text or packed, plain or compressed. Also gives what was left
/// out or worth a word.
#[pyfunction]
pub(crate) fn read_examples<'py>(
    py: Python<'py>,
    path: PathBuf,
    num_features: Option<usize>,
    num_classes: Option<usize>,
    skip_bad_rows: bool,
) -> PyResult<(Arrays<'py>, Vec<String>)> {
    let options = ReadOptions { skip_bad_rows, num_features, num_classes };
    let pool = pool(py, None)?;
    let loaded = py.detach(|| {
        pool.install(|| {
            let (source, report) = Source::load(&path, &options)?;
            let data = match source {
                Source::Parsed(data) => data,
                Source::Packed(packed) => {
                    Dataset::select(packed.view(), &(0..packed.view().len()).collect::<Vec<_>>())
                }
            };
            Ok((data, report))
        })
    });
    let (data, report) = loaded.map_err(|e| error::data(&e))?;
    let mut notes = report.notes;
    let first: Vec<String> = report.first_errors.iter().map(ToString::to_string).collect();
    notes.extend(left_out(report.bad_rows, &first));
    Ok((into_arrays(py, data), notes))
}

/// What to say of rows that were left out, if any was.
fn left_out(rows: u64, first_errors: &[String]) -> Option<String> {
    (rows > 0).then(|| format!("{rows} bad rows left out, the first: {}", first_errors.join("; ")))
}

/// Texts, the names of their labels, and a word on rows that were left out.
type Texts = (Vec<String>, Vec<Vec<String>>, Option<String>);

/// Reads the texts of a file, and the names of their labels.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "each is a keyword of the Python function")]
#[pyo3(signature = (
    path, *, format, text, labels, header, label_separator, quotes, label_prefix, with_labels, skip_bad_rows
))]
pub(crate) fn read_texts(
    py: Python<'_>,
    path: PathBuf,
    format: Option<&str>,
    text: Option<&str>,
    labels: Option<&str>,
    header: Option<bool>,
    label_separator: String,
    quotes: bool,
    label_prefix: String,
    with_labels: bool,
    skip_bad_rows: bool,
) -> PyResult<Texts> {
    let pool = pool(py, None)?;
    let read = || {
        let options = text::ReadOptions {
            format: format.map(str::parse::<Format>).transpose()?,
            text: text.map(str::parse::<Column>).transpose()?,
            labels: labels.map(str::parse::<Column>).transpose()?,
            weight: None,
            header,
            label_separator,
            quotes,
            label_prefix,
            with_labels,
            skip_bad_rows,
        };
        TextFile::open(&path, &options)?.read()
    };
    let (records, skipped) = py.detach(|| pool.install(read)).map_err(|e| error::text(&e))?;
    let (texts, labels) = records.into_iter().map(|record| (record.text, record.labels)).unzip();
    Ok((texts, labels, left_out(skipped.rows, &skipped.first_errors)))
}

/// Reads a `.npy` matrix and the file of its labels; also gives their names.
#[pyfunction]
pub(crate) fn read_matrix<'py>(
    py: Python<'py>,
    path: PathBuf,
    labels: PathBuf,
    label_separator: &str,
) -> PyResult<(Arrays<'py>, Vec<String>)> {
    let read = py.detach(|| dense_dataset(&path, &labels, label_separator));
    let (data, names, _) = read.map_err(|e| error::text(&e))?;
    let names = (0..names.len() as u32).filter_map(|id| names.name(id).map(str::to_owned)).collect();
    Ok((into_arrays(py, data), names))
}

/// Writes a file of examples: packed, or as text.
#[pyfunction]
pub(crate) fn write_examples(
    py: Python<'_>,
    path: PathBuf,
    features: Features<'_>,
    labels: Labels<'_>,
    packed: bool,
) -> PyResult<()> {
    let pool = pool(py, None)?;
    let examples = features.examples(py, labels.slices()?, &pool)?;
    let written = py.detach(|| {
        pool.install(|| if packed { write_packed(&path, examples) } else { write_text(&path, examples) })
    });
    written.map_err(|e| error::data(&e))
}

/// Generates a training and a test set: see the library's `synth`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "each is a keyword of the Python function")]
#[pyo3(signature = (
    *, classes, features, train, test, labels_per_example, features_per_example, label_skew, noise,
    classes_per_cluster, seed
))]
pub(crate) fn generate_examples(
    py: Python<'_>,
    classes: usize,
    features: usize,
    train: usize,
    test: usize,
    labels_per_example: f64,
    features_per_example: f64,
    label_skew: f64,
    noise: f64,
    classes_per_cluster: usize,
    seed: u64,
) -> PyResult<(Arrays<'_>, Arrays<'_>)> {
    let options = SynthOptions {
        classes,
        features,
        train,
        test,
        labels_per_example,
        features_per_example,
        label_skew,
        noise,
        classes_per_cluster,
        seed,
    };
    let pool = pool(py, None)?;
    let made = py.detach(|| pool.install(|| synth(&options)));
    let (train, test) = made.map_err(|e| error::data(&e))?;
    Ok((into_arrays(py, train), into_arrays(py, test)))
}
