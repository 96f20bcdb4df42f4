//! Rows of parameters: what the input and the output layer are made of, a row a
//! feature or a class. What training needs of a row besides is in
//! [`crate::optim`].

use lookalike_kernels::{Element, bf16, padded};
use lookalike_mapped::Buffer;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::view::{RowData, RowsView};

/// How parameters and their moments are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// Single precision.
    #[default]
    F32,
    /// Half the memory; rounded stochastically.
    Bf16,
}

/// Numbers in either storage.
#[derive(Clone, Debug)]
pub enum Numbers {
    /// Single precision.
    F32(Buffer<f32>),
    /// Half precision.
    Bf16(Buffer<bf16>),
}

impl Numbers {
    /// `len` zeroes.
    pub fn zeroed(storage: Storage, len: usize) -> Self {
        match storage {
            Storage::F32 => Self::F32(Buffer::zeroed(len)),
            Storage::Bf16 => Self::Bf16(Buffer::zeroed(len)),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        with_numbers!(self, numbers => numbers.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Some rows of `stride` numbers, in the order given, and zeroes behind them until
    /// there are `len` rows.
    pub fn taken(&self, stride: usize, rows: &[u32], len: usize) -> Self {
        fn copy<T: Element>(from: &[T], to: &mut [T], stride: usize, rows: &[u32]) {
            if stride > 0 {
                to.par_chunks_mut(stride).zip(rows).for_each(|(to, &row)| {
                    to.copy_from_slice(&from[row as usize * stride..][..stride]);
                });
            }
        }
        let mut taken = Self::zeroed(self.storage(), len * stride);
        match (self, &mut taken) {
            (Self::F32(from), Self::F32(to)) => copy(from, to, stride, rows),
            (Self::Bf16(from), Self::Bf16(to)) => copy(from, to, stride, rows),
            _ => unreachable!("made in the same storage"),
        }
        taken
    }

    /// The same in another storage, each the nearest number that it knows.
    pub fn stored_as(self, storage: Storage) -> Self {
        fn convert<A: Element, B: Element>(from: &[A]) -> Buffer<B> {
            let mut to = Buffer::zeroed(from.len());
            let pairs = to.par_chunks_mut(1 << 16).zip(from.par_chunks(1 << 16));
            pairs.for_each(|(to, from)| {
                to.iter_mut().zip(from).for_each(|(to, x)| *to = B::from_f32(x.to_f32()));
            });
            to
        }
        match (self, storage) {
            (Self::F32(from), Storage::Bf16) => Self::Bf16(convert(&from)),
            (Self::Bf16(from), Storage::F32) => Self::F32(convert(&from)),
            (same, _) => same,
        }
    }

    /// Their storage.
    pub fn storage(&self) -> Storage {
        match self {
            Self::F32(_) => Storage::F32,
            Self::Bf16(_) => Storage::Bf16,
        }
    }
}

/// Runs `$body` with `$numbers` bound to the typed buffer, whichever it is.
macro_rules! with_numbers {
    ($stored:expr, $numbers:ident => $body:expr) => {
        match $stored {
            $crate::model::Numbers::F32($numbers) => $body,
            $crate::model::Numbers::Bf16($numbers) => $body,
        }
    };
}
pub(crate) use with_numbers;

/// A matrix of parameter rows, each with an optional bias of its own.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Weights, row after row, each padded with zeroes to `stride`.
    pub weights: Numbers,
    /// A bias a row (the output layer), or none (the input layer).
    pub bias: Vec<f32>,
    /// Numbers in a row.
    pub dim: usize,
    /// Distance between rows.
    pub stride: usize,
    /// The number of rows.
    pub len: usize,
}

impl Rows {
    /// `len` rows of `dim` zeroes.
    pub fn zeroed(len: usize, dim: usize, storage: Storage, with_bias: bool) -> Self {
        let stride = padded(dim);
        let weights = Numbers::zeroed(storage, len * stride);
        Self { weights, bias: vec![0.0; if with_bias { len } else { 0 }], dim, stride, len }
    }

    /// A view of the weights.
    pub fn view(&self) -> RowsView<'_> {
        let data = match &self.weights {
            Numbers::F32(weights) => RowData::F32(weights),
            Numbers::Bf16(weights) => RowData::Bf16(weights),
        };
        RowsView { data, dim: self.dim, stride: self.stride }
    }

    /// Some rows in the order given, with their biases, and zeroes behind them until
    /// there are `len`.
    pub fn taken(&self, rows: &[u32], len: usize) -> Self {
        let mut bias = Vec::new();
        if !self.bias.is_empty() {
            bias.extend(rows.iter().map(|&row| self.bias[row as usize]));
            bias.resize(len, 0.0);
        }
        let weights = self.weights.taken(self.stride, rows, len);
        Self { weights, bias, dim: self.dim, stride: self.stride, len }
    }

    /// Sets every row; `write` gets the row's number and its `dim` values to fill.
    pub fn fill(&mut self, write: impl Fn(usize, &mut [f32]) + Sync) {
        self.fill_from(0, write);
    }

    /// Sets one row.
    pub fn set_row(&mut self, row: usize, values: &[f32]) {
        let start = row * self.stride;
        with_numbers!(&mut self.weights, weights => {
            for (slot, &x) in weights[start..start + self.dim].iter_mut().zip(values) {
                *slot = Element::from_f32(x);
            }
        });
    }

    /// Sets the rows from `first` on.
    pub fn fill_from(&mut self, first: usize, write: impl Fn(usize, &mut [f32]) + Sync) {
        let (dim, stride) = (self.dim, self.stride);
        if stride == 0 {
            return;
        }
        with_numbers!(&mut self.weights, weights => {
            weights[first * stride..].par_chunks_mut(stride).enumerate().for_each_init(
                || vec![0.0; dim],
                |values, (row, slots)| {
                    write(first + row, values);
                    for (slot, &x) in slots.iter_mut().zip(values.iter()) {
                        *slot = Element::from_f32(x);
                    }
                },
            );
        });
    }
}
