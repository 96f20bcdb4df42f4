//! Files of named tensors in the safetensors format, streamed both ways: whoever
//! writes a matrix needs no second one, and nothing is mapped, so that a file that
//! others cut is an error and no signal.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use lookalike_mapped::Buffer;
use rayon::prelude::*;
use safetensors::tensor::{Dtype, TensorInfo};
use serde_json::Value;

use super::ModelError;
use super::snapshot::Snapshot;
use crate::disk;
use crate::model::{Numbers, with_numbers};

/// More names than any model of ours has.
const HEADER_BYTES_MAX: u64 = 64 << 20;
/// Bytes read or written at a time.
const PIECE: usize = 1 << 20;

/// Rows, numbers in a row, and the distance between rows in memory.
pub(super) type Shape = (usize, usize, usize);

/// Number formats that tensors have.
pub(super) trait Number: bytemuck::Pod + Send + Sync {
    const DTYPE: Dtype;
    /// Whether it is a number at all.
    fn is_finite(self) -> bool;
}
impl Number for f32 {
    const DTYPE: Dtype = Dtype::F32;
    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }
}
impl Number for half::bf16 {
    const DTYPE: Dtype = Dtype::BF16;
    fn is_finite(self) -> bool {
        half::bf16::is_finite(self)
    }
}
impl Number for u32 {
    const DTYPE: Dtype = Dtype::U32;
    fn is_finite(self) -> bool {
        true
    }
}
impl Number for i8 {
    const DTYPE: Dtype = Dtype::I8;
    fn is_finite(self) -> bool {
        true
    }
}
impl Number for u16 {
    const DTYPE: Dtype = Dtype::U16;
    fn is_finite(self) -> bool {
        true
    }
}

/// Writes the numbers of a tensor, row after row.
type WriteNumbers<'a> = Box<dyn Fn(&mut dyn Write) -> io::Result<()> + 'a>;

/// A tensor to be written.
pub(super) struct Tensor<'a> {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    write: WriteNumbers<'a>,
}

impl Tensor<'_> {
    fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * (self.dtype.bitsize() / 8)
    }
}

/// A matrix whose numbers are made while they are written.
pub(super) fn made<'a, T: Number>(
    name: &str,
    shape: &[usize],
    write: impl Fn(&mut dyn Write) -> io::Result<()> + 'a,
) -> Tensor<'a> {
    Tensor { name: name.into(), dtype: T::DTYPE, shape: shape.into(), write: Box::new(write) }
}

pub(super) fn vector<'a, T: Number>(name: &str, data: &'a [T]) -> Tensor<'a> {
    made::<T>(name, &[data.len()], move |out| out.write_all(bytemuck::cast_slice(data)))
}

pub(super) fn numbers<'a>(name: &str, numbers: &'a Numbers, shape: Shape) -> Tensor<'a> {
    with_numbers!(numbers, numbers => matrix(name, &numbers[..], shape))
}

/// A matrix whose rows may be padded.
pub(super) fn matrix<'a, T: Number>(name: &str, data: &'a [T], (rows, dim, stride): Shape) -> Tensor<'a> {
    made::<T>(name, &[rows, dim], move |out| match dim == stride {
        true => out.write_all(bytemuck::cast_slice(data)),
        false => {
            data.chunks_exact(stride).try_for_each(|row| out.write_all(bytemuck::cast_slice(&row[..dim])))
        }
    })
}

/// Writes a file of tensors.
pub(super) fn write(path: &Path, mut tensors: Vec<Tensor<'_>>) -> Result<(), ModelError> {
    // The largest numbers first, so that all are aligned; then by name.
    tensors.sort_by(|a, b| b.dtype.bitsize().cmp(&a.dtype.bitsize()).then_with(|| a.name.cmp(&b.name)));
    let mut header = BTreeMap::new();
    let mut end = 0;
    for tensor in &tensors {
        let start = end;
        end += tensor.bytes();
        let (dtype, shape) = (tensor.dtype, tensor.shape.clone());
        header.insert(&tensor.name, TensorInfo { dtype, shape, data_offsets: (start, end) });
    }
    let mut header = serde_json::to_vec(&header).map_err(ModelError::encode)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let write = || {
        let file = disk::create(path)?;
        let mut out = BufWriter::with_capacity(PIECE, disk::Writer::new(&file, path));
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        tensors.iter().try_for_each(|tensor| (tensor.write)(&mut out))?;
        out.flush()
    };
    write().map_err(ModelError::io(path))
}

/// A file of tensors, open.
pub(super) struct TensorFile<'a> {
    path: PathBuf,
    file: &'a File,
    tensors: BTreeMap<String, Value>,
    /// Where the first tensor starts, and how many bytes follow.
    start: u64,
    bytes: u64,
}

impl<'a> TensorFile<'a> {
    pub(super) fn open(snapshot: &'a Snapshot, name: &str) -> Result<Self, ModelError> {
        let (path, file) = (snapshot.path(name), snapshot.file(name)?);
        let read = || -> io::Result<Option<(Vec<u8>, u64)>> {
            let length = file.metadata()?.len();
            let mut size = [0; 8];
            if length < 8 {
                return Ok(None);
            }
            disk::read_at(file, &mut size, 0)?;
            let size = u64::from_le_bytes(size);
            if size > HEADER_BYTES_MAX || size > length - 8 {
                return Ok(None);
            }
            let mut header = vec![0; size as usize];
            disk::read_at(file, &mut header, 8)?;
            Ok(Some((header, length - 8 - size)))
        };
        let found = read().map_err(ModelError::io(&path))?;
        let (header, bytes) = found.ok_or_else(|| damaged(&path, "no header that fits".into()))?;
        let tensors = serde_json::from_slice(&header).map_err(|error| damaged(&path, error.to_string()))?;
        Ok(Self { start: 8 + header.len() as u64, path, file, tensors, bytes })
    }

    /// Where it was, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn read_matrix<T: Number>(&self, name: &str, shape: Shape) -> Result<Buffer<T>, ModelError> {
        let (rows, dim, stride) = shape;
        self.find::<T>(name, &[rows, dim])?;
        let mut buffer = Buffer::<T>::zeroed(rows * stride);
        self.read_rows_into(name, shape, 0..rows, &mut buffer)?;
        Ok(buffer)
    }

    /// Some rows of a matrix; `out` has room for them.
    pub(super) fn read_rows_into<T: Number>(
        &self,
        name: &str,
        (rows, dim, stride): Shape,
        wanted: Range<usize>,
        out: &mut [T],
    ) -> Result<(), ModelError> {
        let place = self.find::<T>(name, &[rows, dim])? + (wanted.start * dim * size_of::<T>()) as u64;
        if dim == stride {
            self.fill(name, place, out)?;
        } else if dim > 0 {
            let rows_at_once = (PIECE / (dim * size_of::<T>())).max(1);
            let fill = |piece: &mut Vec<T>, (i, rows): (usize, &mut [T])| {
                let piece = &mut piece[..rows.len() / stride * dim];
                self.fill_piece(name, place + (i * rows_at_once * dim * size_of::<T>()) as u64, piece)?;
                for (row, found) in rows.chunks_exact_mut(stride).zip(piece.chunks_exact(dim)) {
                    row[..dim].copy_from_slice(found);
                }
                Ok::<(), ModelError>(())
            };
            let pieces = out.par_chunks_mut(rows_at_once * stride).enumerate();
            pieces.map_init(|| vec![T::zeroed(); rows_at_once * dim], fill).collect::<Result<(), _>>()?;
        }
        Ok(())
    }

    /// Some numbers of a vector of `len`.
    pub(super) fn read_part<T: Number>(
        &self,
        name: &str,
        len: usize,
        wanted: Range<usize>,
    ) -> Result<Vec<T>, ModelError> {
        let place = self.find::<T>(name, &[len])? + (wanted.start * size_of::<T>()) as u64;
        let mut numbers = vec![T::zeroed(); wanted.len()];
        self.fill(name, place, &mut numbers)?;
        Ok(numbers)
    }

    /// Some columns of a matrix of unpadded rows; `out` has a row of `out_stride` for each.
    pub(super) fn read_columns_into<T: Number>(
        &self,
        name: &str,
        (rows, columns): (usize, usize),
        wanted: Range<usize>,
        (out, out_stride): (&mut [T], usize),
    ) -> Result<(), ModelError> {
        let start = self.find::<T>(name, &[rows, columns])?;
        for (row, out) in out.chunks_mut(out_stride.max(1)).take(rows).enumerate() {
            let place = start + ((row * columns + wanted.start) * size_of::<T>()) as u64;
            self.fill_piece(name, place, &mut out[..wanted.len()])?;
        }
        Ok(())
    }

    /// Whether it has a matrix of this type and shape.
    pub(super) fn expect<T: Number>(&self, name: &str, shape: &[usize]) -> Result<(), ModelError> {
        self.find::<T>(name, shape).map(|_| ())
    }

    pub(super) fn read_vector<T: Number>(&self, name: &str, len: usize) -> Result<Vec<T>, ModelError> {
        self.read_all(name, &[len])
    }

    /// All numbers of a tensor of this shape.
    pub(super) fn read_all<T: Number>(&self, name: &str, shape: &[usize]) -> Result<Vec<T>, ModelError> {
        let place = self.find::<T>(name, shape)?;
        let mut numbers = vec![T::zeroed(); shape.iter().product()];
        self.fill(name, place, &mut numbers)?;
        Ok(numbers)
    }

    /// Reads the numbers of a tensor that lies there, threads a piece each.
    fn fill<T: Number>(&self, name: &str, place: u64, numbers: &mut [T]) -> Result<(), ModelError> {
        let piece = PIECE / size_of::<T>();
        numbers
            .par_chunks_mut(piece)
            .enumerate()
            .try_for_each(|(i, numbers)| self.fill_piece(name, place + (i * PIECE) as u64, numbers))
    }

    /// Reads some numbers of a tensor. What is no number would make every answer none.
    fn fill_piece<T: Number>(&self, name: &str, place: u64, numbers: &mut [T]) -> Result<(), ModelError> {
        let read = disk::read_at(self.file, bytemuck::cast_slice_mut(numbers), place);
        read.map_err(ModelError::io(&self.path))?;
        // All are looked at, finite or not: so it takes many at once.
        if numbers.iter().fold(true, |all, &number| all & number.is_finite()) {
            return Ok(());
        }
        let expected = format!("finite numbers in {name}");
        let found = "infinite or undefined ones".into();
        Err(ModelError::Damaged { path: self.path.clone(), expected, found })
    }

    /// Where a tensor of this type and shape starts; it lies in the file.
    fn find<T: Number>(&self, name: &str, shape: &[usize]) -> Result<u64, ModelError> {
        let missing = || damaged(&self.path, format!("no tensor {name}"));
        let found: TensorInfo = self
            .tensors
            .get(name)
            .and_then(|info| serde_json::from_value(info.clone()).ok())
            .ok_or_else(missing)?;
        if found.shape != shape || found.dtype != T::DTYPE {
            return Err(ModelError::Shape {
                path: self.path.clone(),
                what: name.into(),
                expected: format!("{:?} {shape:?}", T::DTYPE),
                found: format!("{:?} {:?}", found.dtype, found.shape),
            });
        }
        let bytes = shape.iter().try_fold(size_of::<T>(), |bytes, &size| bytes.checked_mul(size));
        let (start, end) = found.data_offsets;
        if bytes.is_none() || start.checked_add(bytes.unwrap_or(0)) != Some(end) || end as u64 > self.bytes {
            return Err(damaged(&self.path, format!("{name} beyond the end")));
        }
        Ok(self.start + start as u64)
    }
}

fn damaged(path: &Path, found: String) -> ModelError {
    let expected = "a safetensors file with this model's tensors".into();
    ModelError::Damaged { path: path.into(), expected, found }
}
