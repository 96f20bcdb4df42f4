//! A network as named tensors.
//!
//! Tensors hold the true widths, not the padded ones, so that any reader of
//! safetensors can use them: `input.weight` is features × hidden,
//! `hidden.N.weight` inputs × outputs, `output.weight` classes × hidden.

use std::borrow::Cow;
use std::path::Path;

use lookalike_mapped::MappedFile;
use safetensors::tensor::{Dtype, SafeTensors, View};

use super::{Model, ModelError, NeighboursHeader, SparseHeader};
use crate::model::{Biases, Neighbours, NetworkConfig, Rows, SparsePart, with_store};

/// Which tensors a file holds.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Group {
    /// What prediction needs.
    Weights,
    /// What resuming needs besides.
    Moments,
}

/// A matrix whose rows may be padded, or a vector (`dim` and `stride` 1).
struct Tensor<'a> {
    name: String,
    shape: Vec<usize>,
    dtype: Dtype,
    bytes: Bytes<'a>,
    row_bytes: usize,
    stride_bytes: usize,
}

enum Bytes<'a> {
    Read(&'a [u8]),
    Write(&'a mut [u8]),
}

impl View for &Tensor<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let bytes: &[u8] = match &self.bytes {
            Bytes::Read(bytes) => bytes,
            Bytes::Write(bytes) => bytes,
        };
        if self.row_bytes == self.stride_bytes {
            return Cow::Borrowed(bytes);
        }
        let rows = bytes.chunks_exact(self.stride_bytes);
        Cow::Owned(rows.flat_map(|row| &row[..self.row_bytes]).copied().collect())
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * (self.dtype.bitsize() / 8)
    }
}

/// Writes a group of a model's tensors; the sparse part and the examples, if it
/// has them, with the weights.
pub(super) fn write_tensors(path: &Path, model: &Model, group: Group) -> Result<(), ModelError> {
    let mut tensors = tensors_of(model, group);
    let is_weights = group == Group::Weights;
    let sparse = model.network.sparse.as_ref().filter(|_| is_weights);
    let neighbours = model.network.neighbours.as_ref().filter(|_| is_weights);
    let lengths = sparse.map_or(vec![], SparsePart::lengths);
    if let Some(sparse) = sparse {
        tensors.push(vector_read(SPARSE[0], &lengths));
        tensors.push(vector_read(SPARSE[1], &sparse.features));
        tensors.push(vector_read(SPARSE[2], sparse.weights()));
    }
    let example_lengths = neighbours.map_or(vec![], Neighbours::lengths);
    let class_lengths = neighbours.map_or(vec![], Neighbours::class_lengths);
    if let Some(neighbours) = neighbours {
        let (features, values) = neighbours.entries();
        tensors.push(vector_read(NEIGHBOURS[0], &example_lengths));
        tensors.push(vector_read(NEIGHBOURS[1], features));
        tensors.push(vector_read(NEIGHBOURS[2], values));
        tensors.push(vector_read(NEIGHBOURS[3], &class_lengths));
        tensors.push(vector_read(NEIGHBOURS[4], neighbours.members()));
    }
    let views = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor));
    safetensors::serialize_to_file(views, None, path).map_err(|e| bad_file(path, e))
}

/// Reads a group of tensors into a model of the right shape.
pub(super) fn read_tensors(path: &Path, model: &mut Model, group: Group) -> Result<(), ModelError> {
    let map = MappedFile::open(path).map_err(ModelError::io(path))?;
    let file = SafeTensors::deserialize(map.bytes()).map_err(|e| bad_file(path, e))?;
    for tensor in tensors_of_mut(model, group) {
        let found = file.tensor(&tensor.name).map_err(|e| bad_file(path, e))?;
        if found.shape() != tensor.shape || found.dtype() != tensor.dtype {
            return Err(ModelError::Shape {
                path: path.into(),
                what: tensor.name.clone(),
                expected: format!("{:?} {:?}", tensor.dtype, tensor.shape),
                found: format!("{:?} {:?}", found.dtype(), found.shape()),
            });
        }
        let Bytes::Write(bytes) = tensor.bytes else { unreachable!("made for writing") };
        if tensor.row_bytes == 0 {
            continue;
        }
        let rows = found.data().chunks_exact(tensor.row_bytes);
        for (slot, row) in bytes.chunks_exact_mut(tensor.stride_bytes).zip(rows) {
            slot[..tensor.row_bytes].copy_from_slice(row);
        }
    }
    Ok(())
}

/// Entries of each class; feature and weight of each entry.
const SPARSE: [&str; 3] = ["sparse.lengths", "sparse.features", "sparse.weights"];

/// Reads the sparse part, and checks what prediction relies on.
pub(super) fn read_sparse(
    path: &Path,
    header: SparseHeader,
    network: &NetworkConfig,
) -> Result<SparsePart, ModelError> {
    let map = MappedFile::open(path).map_err(ModelError::io(path))?;
    let file = SafeTensors::deserialize(map.bytes()).map_err(|e| bad_file(path, e))?;
    let lengths: Vec<u32> = read_vector(path, &file, SPARSE[0], network.num_classes)?;
    let features: Vec<u32> = read_vector(path, &file, SPARSE[1], header.entries)?;
    let weights: Vec<f32> = read_vector(path, &file, SPARSE[2], header.entries)?;
    let damaged =
        |expected: String, found: String| ModelError::Damaged { path: path.into(), expected, found };
    check_sum(path, &lengths, header.entries, "entries of the sparse part")?;
    if !header.blend.is_finite() {
        return Err(damaged("a finite blend of the sparse part".into(), header.blend.to_string()));
    }
    let sparse = SparsePart::from_parts(&lengths, features, weights, header.blend, header.start);
    for class in 0..sparse.num_classes() {
        let row = sparse.row(class).0;
        let fits = row.last().is_none_or(|&last| (last as usize) < network.num_features);
        if !fits || !row.is_sorted_by(|a, b| a < b) {
            let expected = format!("ascending features below {}", network.num_features);
            return Err(damaged(expected, format!("others in the sparse row of class {class}")));
        }
    }
    Ok(sparse)
}

/// Features of each example; feature and value of each; examples of each class;
/// each of them.
const NEIGHBOURS: [&str; 5] = [
    "neighbours.lengths",
    "neighbours.features",
    "neighbours.values",
    "neighbours.class_lengths",
    "neighbours.members",
];

/// Reads the kept training examples, and checks what prediction relies on.
pub(super) fn read_neighbours(
    path: &Path,
    header: NeighboursHeader,
    network: &NetworkConfig,
) -> Result<Neighbours, ModelError> {
    let map = MappedFile::open(path).map_err(ModelError::io(path))?;
    let file = SafeTensors::deserialize(map.bytes()).map_err(|e| bad_file(path, e))?;
    let lengths: Vec<u32> = read_vector(path, &file, NEIGHBOURS[0], header.examples)?;
    let features: Vec<u32> = read_vector(path, &file, NEIGHBOURS[1], header.entries)?;
    let values = read_vector(path, &file, NEIGHBOURS[2], header.entries)?;
    let class_lengths: Vec<u32> = read_vector(path, &file, NEIGHBOURS[3], network.num_classes)?;
    let members: Vec<u32> = read_vector(path, &file, NEIGHBOURS[4], header.members)?;
    check_sum(path, &lengths, header.entries, "features of training examples")?;
    check_sum(path, &class_lengths, header.members, "training examples of classes")?;
    for (what, ids, count) in [
        ("features of training examples", &features, network.num_features),
        ("training examples of classes", &members, header.examples),
    ] {
        if let Some(id) = ids.iter().find(|&&id| id as usize >= count) {
            let (expected, found) = (format!("{what} below {count}"), id.to_string());
            return Err(ModelError::Damaged { path: path.into(), expected, found });
        }
    }
    if !(header.weight.is_finite() && header.weight >= 0.0) {
        let expected = "a positive weight of the training examples".into();
        return Err(ModelError::Damaged { path: path.into(), expected, found: header.weight.to_string() });
    }
    let num_features = network.num_features;
    let weight = header.weight;
    Ok(Neighbours::from_parts(num_features, &lengths, features, values, &class_lengths, members, weight))
}

/// Lengths of lists must add up to what is in them.
fn check_sum(path: &Path, lengths: &[u32], expected: usize, what: &str) -> Result<(), ModelError> {
    let total: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
    if total == expected as u64 {
        return Ok(());
    }
    let expected = format!("{expected} {what}");
    Err(ModelError::Damaged { path: path.into(), expected, found: total.to_string() })
}

fn read_vector<T: Number>(
    path: &Path,
    file: &SafeTensors<'_>,
    name: &str,
    len: usize,
) -> Result<Vec<T>, ModelError> {
    let found = file.tensor(name).map_err(|e| bad_file(path, e))?;
    if found.shape() != [len] || found.dtype() != T::DTYPE {
        return Err(ModelError::Shape {
            path: path.into(),
            what: name.into(),
            expected: format!("{:?} [{len}]", T::DTYPE),
            found: format!("{:?} {:?}", found.dtype(), found.shape()),
        });
    }
    // The file is aligned to 8 bytes only by custom; a copy does not mind.
    Ok(found.data().chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
}

fn bad_file(path: &Path, error: safetensors::SafeTensorError) -> ModelError {
    match error {
        safetensors::SafeTensorError::IoError(source) => ModelError::io(path)(source),
        error => ModelError::Damaged {
            path: path.into(),
            expected: "a safetensors file with this model's tensors".into(),
            found: error.to_string(),
        },
    }
}

/// The same list twice, for reading from a model and for writing into one; a
/// macro because Rust cannot abstract over `&` and `&mut`.
macro_rules! list_tensors {
    ($function:ident, $model:ty, $rows:ident, $biases:ident, $vector:ident, [$($r:tt)+]) => {
        fn $function(model: $model, group: Group) -> Vec<Tensor<'_>> {
            let mut list = Vec::new();
            $rows(&mut list, "input", $($r)+ model.network.input, group);
            $biases(&mut list, "input.bias", $($r)+ model.network.input_bias, group);
            for (i, layer) in ($($r)+ model.network.hidden).into_iter().enumerate() {
                let shape = (layer.inputs, layer.outputs, layer.stride);
                let name = format!("hidden.{i}");
                match group {
                    Group::Weights => list.push($vector(format!("{name}.weight"), $($r)+ layer.w[..], shape)),
                    Group::Moments => {
                        list.push($vector(format!("{name}.weight.m"), $($r)+ layer.m[..], shape));
                        list.push($vector(format!("{name}.weight.v"), $($r)+ layer.v[..], shape));
                    }
                }
                $biases(&mut list, &format!("{name}.bias"), $($r)+ layer.bias, group);
            }
            $rows(&mut list, "output", $($r)+ model.network.output, group);
            if group == Group::Weights {
                let shape = (model.class_counts.len(), 1, 1);
                list.push(flat($vector("class_counts".into(), $($r)+ model.class_counts[..], shape)));
            }
            list
        }
    };
}

list_tensors!(tensors_of, &Model, rows_read, biases_read, matrix_read, [&]);
list_tensors!(tensors_of_mut, &mut Model, rows_write, biases_write, matrix_write, [&mut]);

macro_rules! layer_tensors {
    ($rows_fn:ident, $biases_fn:ident, $vector:ident, $rows:ty, $biases:ty, [$($r:tt)+]) => {
        fn $rows_fn<'a>(list: &mut Vec<Tensor<'a>>, name: &str, rows: $rows, group: Group) {
            let shape = (rows.len, rows.dim, rows.stride);
            with_store!($($r)+ rows.stored, store => match group {
                Group::Weights => list.push($vector(format!("{name}.weight"), $($r)+ store.w[..], shape)),
                Group::Moments => {
                    list.push($vector(format!("{name}.weight.m"), $($r)+ store.m[..], shape));
                    list.push($vector(format!("{name}.weight.v"), $($r)+ store.v[..], shape));
                    list.push(flat($vector(format!("{name}.last"), $($r)+ rows.last[..], (rows.len, 1, 1))));
                }
            });
            if !rows.bias.w.is_empty() {
                $biases_fn(list, &format!("{name}.bias"), $($r)+ rows.bias, group);
            }
        }

        fn $biases_fn<'a>(list: &mut Vec<Tensor<'a>>, name: &str, biases: $biases, group: Group) {
            let shape = (biases.w.len(), 1, 1);
            match group {
                Group::Weights => list.push(flat($vector(name.into(), $($r)+ biases.w[..], shape))),
                Group::Moments => {
                    list.push(flat($vector(format!("{name}.m"), $($r)+ biases.m[..], shape)));
                    list.push(flat($vector(format!("{name}.v"), $($r)+ biases.v[..], shape)));
                    list.push(flat($vector(format!("{name}.last"), $($r)+ biases.last[..], shape)));
                }
            }
        }
    };
}

layer_tensors!(rows_read, biases_read, matrix_read, &'a Rows, &'a Biases, [&]);
layer_tensors!(rows_write, biases_write, matrix_write, &'a mut Rows, &'a mut Biases, [&mut]);

/// Number formats that tensors have.
trait Number: bytemuck::Pod {
    const DTYPE: Dtype;
}
impl Number for f32 {
    const DTYPE: Dtype = Dtype::F32;
}
impl Number for half::bf16 {
    const DTYPE: Dtype = Dtype::BF16;
}
impl Number for u32 {
    const DTYPE: Dtype = Dtype::U32;
}

fn matrix_read<T: Number>(name: String, data: &[T], shape: (usize, usize, usize)) -> Tensor<'_> {
    matrix::<T>(name, Bytes::Read(bytemuck::cast_slice(data)), shape)
}

fn vector_read<'a, T: Number>(name: &str, data: &'a [T]) -> Tensor<'a> {
    flat(matrix_read(name.into(), data, (data.len(), 1, 1)))
}

fn matrix_write<T: Number>(name: String, data: &mut [T], shape: (usize, usize, usize)) -> Tensor<'_> {
    matrix::<T>(name, Bytes::Write(bytemuck::cast_slice_mut(data)), shape)
}

fn matrix<T: Number>(
    name: String,
    bytes: Bytes<'_>,
    (rows, dim, stride): (usize, usize, usize),
) -> Tensor<'_> {
    let size = size_of::<T>();
    let (row_bytes, stride_bytes) = (dim * size, stride * size);
    Tensor { name, shape: vec![rows, dim], dtype: T::DTYPE, bytes, row_bytes, stride_bytes }
}

/// A matrix of one column is a vector.
fn flat(mut tensor: Tensor<'_>) -> Tensor<'_> {
    tensor.shape.truncate(1);
    tensor
}
