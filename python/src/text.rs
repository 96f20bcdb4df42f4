//! Text to features.

use lookalike::text::{self, Format, ReadOptions, TextFile, TextOptions};
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::arrays::{OwnedFeatures, into_arrays};
use crate::error;
use crate::pool::pool;

/// Turns texts into rows of tf-idf values.
#[pyclass(module = "lookalike._native", frozen)]
pub(crate) struct Vectoriser {
    pub(crate) inner: text::Vectoriser,
}

#[pymethods]
impl Vectoriser {
    /// Learns a vocabulary from texts, and gives their rows.
    #[staticmethod]
    fn fit<'py>(
        py: Python<'py>,
        texts: Vec<String>,
        options: &str,
        threads: Option<usize>,
    ) -> PyResult<(Self, OwnedFeatures<'py>)> {
        let options: TextOptions = serde_json::from_str(options).map_err(error::value)?;
        let pool = pool(py, threads)?;
        let fitted = py.detach(|| {
            // The command line's way in, so that the same texts give the same features.
            let lines: Vec<u8> = texts.par_iter().flat_map_iter(|text| json_line(text)).collect();
            drop(texts);
            let read =
                ReadOptions { format: Some(Format::JsonLines), with_labels: false, ..ReadOptions::default() };
            let file = TextFile::from_bytes("texts", &lines, &read)?;
            drop(lines);
            pool.install(|| text::fit_dataset(&file, &options))
        });
        let fitted = fitted.map_err(|e| error::text(&e))?;
        Ok((Self { inner: fitted.vectoriser }, into_arrays(py, fitted.dataset).0))
    }

    /// The rows of other texts.
    fn transform<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<String>,
        threads: Option<usize>,
    ) -> PyResult<OwnedFeatures<'py>> {
        let pool = pool(py, threads)?;
        let rows = py.detach(|| pool.install(|| self.inner.transform_all(&texts)));
        Ok(into_arrays(py, rows).0)
    }

    /// What each feature stands for.
    fn feature_names(&self) -> Vec<String> {
        (0..self.inner.num_features() as u32).map(|id| self.inner.feature_name(id)).collect()
    }
}

fn json_line(text: &str) -> Vec<u8> {
    let mut line = serde_json::json!({ "text": text }).to_string().into_bytes();
    line.push(b'\n');
    line
}
