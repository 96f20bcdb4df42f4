//! Rows of parameters with their moments: what the input and the output layer
//! are made of, a row a feature or a class.
//!
//! A row, its moments and its bias are split off together, so that each thread
//! owns the rows it updates: nothing races and nothing locks.

use lookalike_kernels::{Cpu, Element, bf16, padded, prefetch_row};
use lookalike_mapped::Buffer;
use serde::{Deserialize, Serialize};

use super::view::{RowData, RowsView};
use crate::optim::{Adam, RowState, ScalarState};

/// How parameters and moments are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// Single precision.
    #[default]
    F32,
    /// Half the memory; rounded stochastically.
    Bf16,
}

/// The parameters of a layer in one storage format.
#[derive(Clone, Debug)]
pub struct Store<T: Element> {
    /// Weights, row after row.
    pub w: Buffer<T>,
    /// First moments; empty in a model that is not being trained.
    pub m: Buffer<T>,
    /// Second moments.
    pub v: Buffer<T>,
}

impl<T: Element> Store<T> {
    fn zeroed(elements: usize) -> Self {
        Self { w: Buffer::zeroed(elements), m: Buffer::zeroed(0), v: Buffer::zeroed(0) }
    }
}

/// A layer's rows in either storage.
#[derive(Clone, Debug)]
pub enum Stored {
    /// Single precision.
    F32(Store<f32>),
    /// Half precision.
    Bf16(Store<bf16>),
}

/// Runs `$body` with `$store` bound to the typed store, whichever it is.
macro_rules! with_store {
    ($stored:expr, $store:ident => $body:expr) => {
        match $stored {
            $crate::model::Stored::F32($store) => $body,
            $crate::model::Stored::Bf16($store) => $body,
        }
    };
}
pub(crate) use with_store;

/// A matrix of parameter rows, each with an optional bias of its own.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Weights and moments.
    pub stored: Stored,
    /// When each row was last touched; kept up by `exact` decay only.
    pub last: Vec<u32>,
    /// A bias a row (the output layer), or none (the input layer).
    pub bias: Biases,
    /// Numbers in a row.
    pub dim: usize,
    /// Distance between rows.
    pub stride: usize,
    /// The number of rows.
    pub len: usize,
}

/// A vector of single weights with their moments.
#[derive(Clone, Debug, Default)]
pub struct Biases {
    /// The weights.
    pub w: Vec<f32>,
    /// First moments; empty in a model that is not being trained.
    pub m: Vec<f32>,
    /// Second moments.
    pub v: Vec<f32>,
    /// When each was last touched.
    pub last: Vec<u32>,
}

impl Biases {
    /// `len` zeroes.
    pub fn zeroed(len: usize) -> Self {
        Self { w: vec![0.0; len], ..Self::default() }
    }

    /// Makes room for the moments.
    pub fn prepare_training(&mut self) {
        self.m.resize(self.w.len(), 0.0);
        self.v.resize(self.w.len(), 0.0);
        self.last.resize(self.w.len(), 0);
    }

    /// One Adam step of all of them.
    pub fn update_all(&mut self, adam: &Adam, grads: &[f32]) {
        let mut view = self.as_mut();
        for (i, &grad) in grads.iter().enumerate().take(view.w.len()) {
            view.update(i, adam, grad);
        }
    }

    /// A view that can be split.
    pub fn as_mut(&mut self) -> BiasesMut<'_> {
        BiasesMut { w: &mut self.w, m: &mut self.m, v: &mut self.v, last: &mut self.last }
    }
}

/// Biases that one thread owns for a while.
#[derive(Debug)]
pub struct BiasesMut<'a> {
    /// The weights.
    pub w: &'a mut [f32],
    m: &'a mut [f32],
    v: &'a mut [f32],
    last: &'a mut [u32],
}

impl BiasesMut<'_> {
    /// One Adam step of bias `i`.
    pub fn update(&mut self, i: usize, adam: &Adam, grad: f32) {
        let state =
            ScalarState { w: &mut self.w[i], m: &mut self.m[i], v: &mut self.v[i], last: &mut self.last[i] };
        adam.update_scalar(state, grad);
    }

    fn split_at(self, i: usize) -> (Self, Self) {
        // A layer without biases has empty slices on both sides.
        let i = i.min(self.w.len());
        let (w0, w1) = self.w.split_at_mut(i);
        let (m0, m1) = self.m.split_at_mut(i);
        let (v0, v1) = self.v.split_at_mut(i);
        let (last0, last1) = self.last.split_at_mut(i);
        (Self { w: w0, m: m0, v: v0, last: last0 }, Self { w: w1, m: m1, v: v1, last: last1 })
    }
}

impl Rows {
    /// `len` rows of `dim` zeroes.
    pub fn zeroed(len: usize, dim: usize, storage: Storage, with_bias: bool) -> Self {
        let stride = padded(dim);
        let stored = match storage {
            Storage::F32 => Stored::F32(Store::zeroed(len * stride)),
            Storage::Bf16 => Stored::Bf16(Store::zeroed(len * stride)),
        };
        let bias = Biases::zeroed(if with_bias { len } else { 0 });
        Self { stored, last: Vec::new(), bias, dim, stride, len }
    }

    /// Makes room for the moments.
    pub fn prepare_training(&mut self) {
        with_store!(&mut self.stored, store => {
            if store.m.is_empty() {
                store.m = Buffer::zeroed(store.w.len());
                store.v = Buffer::zeroed(store.w.len());
            }
        });
        self.last.resize(self.len, 0);
        self.bias.prepare_training();
    }

    /// The rows' storage format.
    pub fn storage(&self) -> Storage {
        match self.stored {
            Stored::F32(_) => Storage::F32,
            Stored::Bf16(_) => Storage::Bf16,
        }
    }

    /// A view of the weights.
    pub fn view(&self) -> RowsView<'_> {
        let data = match &self.stored {
            Stored::F32(store) => RowData::F32(&store.w),
            Stored::Bf16(store) => RowData::Bf16(&store.w),
        };
        RowsView { data, dim: self.dim, stride: self.stride }
    }

    /// Writes one row, rounding to nearest.
    pub fn set_row(&mut self, row: usize, values: &[f32]) {
        let at = row * self.stride;
        with_store!(&mut self.stored, store => {
            for (slot, &x) in store.w[at..at + self.dim].iter_mut().zip(values) {
                *slot = Element::from_f32(x);
            }
        });
    }

    /// Sets every row; `write` gets the row's number and its `dim` values to fill.
    pub fn fill(&mut self, write: impl Fn(usize, &mut [f32]) + Sync) {
        use rayon::prelude::*;
        let (dim, stride) = (self.dim, self.stride);
        if stride == 0 {
            return;
        }
        with_store!(&mut self.stored, store => {
            store.w.par_chunks_mut(stride).enumerate().for_each_init(
                || vec![0.0; dim],
                |values, (row, w)| {
                    write(row, values);
                    for (slot, &x) in w.iter_mut().zip(values.iter()) {
                        *slot = Element::from_f32(x);
                    }
                },
            );
        });
    }
}

/// Rows that one thread owns for a while, with their moments and biases.
#[derive(Debug)]
pub struct RowsMut<'a, T> {
    /// The weights.
    pub w: &'a mut [T],
    m: &'a mut [T],
    v: &'a mut [T],
    last: &'a mut [u32],
    /// The rows' biases.
    pub bias: BiasesMut<'a>,
    /// Distance between rows.
    pub stride: usize,
}

impl<'a, T: Element> RowsMut<'a, T> {
    /// All rows of a store that is ready for training.
    pub fn new(store: &'a mut Store<T>, last: &'a mut [u32], bias: &'a mut Biases, stride: usize) -> Self {
        Self { w: &mut store.w, m: &mut store.m, v: &mut store.v, last, bias: bias.as_mut(), stride }
    }

    /// The rows before and from `row`.
    pub fn split_at(self, row: usize) -> (Self, Self) {
        let (at, stride) = (row * self.stride, self.stride);
        let (w0, w1) = self.w.split_at_mut(at);
        let (m0, m1) = self.m.split_at_mut(at);
        let (v0, v1) = self.v.split_at_mut(at);
        let (last0, last1) = self.last.split_at_mut(row);
        let (bias0, bias1) = self.bias.split_at(row);
        (
            Self { w: w0, m: m0, v: v0, last: last0, bias: bias0, stride },
            Self { w: w1, m: m1, v: v1, last: last1, bias: bias1, stride },
        )
    }

    /// The weights of a row.
    pub fn row(&self, row: usize) -> &[T] {
        &self.w[row * self.stride..][..self.stride]
    }

    /// Asks memory for a row and its moments.
    #[inline]
    pub fn prefetch(&self, row: usize) {
        let range = row * self.stride..(row + 1) * self.stride;
        prefetch_row(&self.w[range.clone()]);
        prefetch_row(&self.m[range.clone()]);
        prefetch_row(&self.v[range]);
    }

    /// One Adam step of a row.
    pub fn update(&mut self, cpu: Cpu, row: usize, adam: &Adam, grad: &[f32], noise: u64) {
        adam.update(cpu, self.state(row, None), grad, noise);
    }

    /// A row with its moments. A later row that will be needed soon may be told, so
    /// that memory is asked for it meanwhile.
    pub fn state(&mut self, row: usize, soon: Option<usize>) -> RowState<'_, T> {
        let range = row * self.stride..(row + 1) * self.stride;
        RowState {
            w: &mut self.w[range.clone()],
            m: &mut self.m[range.clone()],
            v: &mut self.v[range],
            last: &mut self.last[row],
            ahead: soon.map_or(0, |soon| (soon - row) * self.stride),
        }
    }
}
