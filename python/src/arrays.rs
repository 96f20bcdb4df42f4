//! NumPy arrays as examples, and results as NumPy arrays.
//!
//! Values and ids are read where they lie. NumPy has signed integers where the
//! library has unsigned ones; a negative id, read as unsigned, is beyond every
//! limit, so the law of [`Examples`] finds it with everything else.

use lookalike::data::{Dataset, Examples};
use lookalike::model::{RowData, RowsView};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use rayon::ThreadPool;

use crate::error;

/// The rows of a sparse matrix as SciPy keeps them: `indptr`, `indices`,
/// `data` and the number of columns.
#[derive(FromPyObject)]
pub(crate) struct Features<'py>(
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, i32>,
    PyReadonlyArray1<'py, f32>,
    usize,
);

/// The same without values: the labels of each example, and how many classes
/// there are.
#[derive(FromPyObject)]
pub(crate) struct Labels<'py>(PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i32>, usize);

/// Offsets and ids of labels, in the library's types.
#[derive(Clone, Copy)]
pub(crate) struct LabelSlices<'a> {
    offsets: &'a [u64],
    ids: &'a [u32],
    num_classes: usize,
}

impl Labels<'_> {
    /// The labels as they are, not checked.
    pub(crate) fn slices(&self) -> PyResult<LabelSlices<'_>> {
        let Self(indptr, indices, num_classes) = self;
        Ok(LabelSlices {
            offsets: bytemuck::cast_slice(indptr.as_slice()?),
            ids: bytemuck::cast_slice(indices.as_slice()?),
            num_classes: *num_classes,
        })
    }
}

impl Features<'_> {
    /// The examples, checked.
    pub(crate) fn examples<'a>(
        &'a self,
        py: Python<'_>,
        labels: LabelSlices<'a>,
        pool: &ThreadPool,
    ) -> PyResult<Examples<'a>> {
        let Self(indptr, indices, values, num_features) = self;
        let examples = Examples {
            feature_offsets: bytemuck::cast_slice(indptr.as_slice()?),
            feature_ids: bytemuck::cast_slice(indices.as_slice()?),
            feature_values: values.as_slice()?,
            label_offsets: labels.offsets,
            label_ids: labels.ids,
            weights: &[],
            num_features: *num_features,
            num_classes: labels.num_classes,
        };
        checked(py, examples, pool)
    }

    /// The number of examples.
    pub(crate) fn len(&self) -> PyResult<usize> {
        Ok(self.0.as_slice()?.len().saturating_sub(1))
    }
}

impl<'a> LabelSlices<'a> {
    /// Offsets of as many examples without features.
    pub(crate) fn no_features(self) -> Vec<u64> {
        vec![0; self.offsets.len()]
    }

    /// Examples that have labels and no features, checked.
    pub(crate) fn examples(
        self,
        py: Python<'_>,
        no_features: &'a [u64],
        pool: &ThreadPool,
    ) -> PyResult<Examples<'a>> {
        let examples = Examples {
            feature_offsets: no_features,
            feature_ids: &[],
            feature_values: &[],
            label_offsets: self.offsets,
            label_ids: self.ids,
            weights: &[],
            num_features: 0,
            num_classes: self.num_classes,
        };
        checked(py, examples, pool)
    }
}

fn checked<'a>(py: Python<'_>, examples: Examples<'a>, pool: &ThreadPool) -> PyResult<Examples<'a>> {
    let law = py.detach(|| pool.install(|| examples.check_law()));
    law.map_err(|broken| {
        let ids = examples.feature_ids.iter().chain(examples.label_ids);
        error::broken(&broken, ids.map(|&id| id as i32).find(|&id| id < 0))
    })?;
    Ok(examples)
}

/// Labels of examples that have none.
pub(crate) struct NoLabels(Vec<u64>);

impl NoLabels {
    pub(crate) fn new(features: &Features<'_>) -> PyResult<Self> {
        Ok(Self(vec![0; features.len()? + 1]))
    }

    pub(crate) fn slices(&self) -> LabelSlices<'_> {
        LabelSlices { offsets: &self.0, ids: &[], num_classes: 0 }
    }
}

/// `indptr`, `indices`, `data` and the number of columns.
pub(crate) type OwnedFeatures<'py> =
    (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i32>>, Bound<'py, PyArray1<f32>>, usize);

/// `indptr`, `indices` and the number of classes.
pub(crate) type OwnedLabels<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i32>>, usize);

/// Hands a data set's memory over to NumPy, without a copy.
pub(crate) fn into_arrays(py: Python<'_>, data: Dataset) -> (OwnedFeatures<'_>, OwnedLabels<'_>) {
    let offsets = |offsets: Vec<u64>| bytemuck::cast_vec::<u64, i64>(offsets).into_pyarray(py);
    let ids = |ids: Vec<u32>| bytemuck::cast_vec::<u32, i32>(ids).into_pyarray(py);
    let features = (
        offsets(data.feature_offsets),
        ids(data.feature_ids),
        data.feature_values.into_pyarray(py),
        data.num_features,
    );
    (features, (offsets(data.label_offsets), ids(data.label_ids), data.num_classes))
}

/// Numbers of a whole matrix as one.
pub(crate) fn matrix<'py, T: numpy::Element>(
    py: Python<'py>,
    values: Vec<T>,
    rows: usize,
    columns: usize,
) -> PyResult<Bound<'py, PyArray2<T>>> {
    values.into_pyarray(py).reshape([rows, columns])
}

/// The numbers of a C-contiguous matrix of `dim` columns, row after row.
pub(crate) fn floats<'a>(
    what: &str,
    matrix: &'a PyReadonlyArray2<'_, f32>,
    dim: usize,
) -> PyResult<&'a [f32]> {
    let columns = matrix.as_array().shape()[1];
    if columns != dim {
        return Err(error::value(format!("{what} has {columns} columns, but the dimension is {dim}")));
    }
    matrix.as_slice().map_err(|_| {
        error::value(format!(
            "{what} must be C-contiguous: use numpy.ascontiguousarray({what}, numpy.float32)"
        ))
    })
}

/// The same, after a look at every number: O(rows · dim).
pub(crate) fn finite_floats<'a>(
    what: &str,
    matrix: &'a PyReadonlyArray2<'_, f32>,
    dim: usize,
) -> PyResult<&'a [f32]> {
    let floats = floats(what, matrix, dim)?;
    if floats.iter().any(|x| !x.is_finite()) {
        return Err(error::value(format!("{what} contains NaN or infinity")));
    }
    Ok(floats)
}

/// Numbers that lie row after row, as rows.
pub(crate) fn rows(floats: &[f32], dim: usize) -> RowsView<'_> {
    RowsView { data: RowData::F32(floats), dim, stride: dim }
}

/// Class ids of the caller's: all below `limit`.
pub(crate) fn class_ids(what: &str, ids: &[i64], limit: usize) -> PyResult<Vec<u32>> {
    let id = |&id: &i64| {
        let known = u32::try_from(id).ok().filter(|&id| (id as usize) < limit);
        known.ok_or_else(|| error::value(format!("{what} {id} is out of range: there are {limit} classes")))
    };
    ids.iter().map(id).collect()
}
