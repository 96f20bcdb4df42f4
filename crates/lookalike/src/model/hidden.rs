//! A small dense layer between input and output.
//!
//! Forward `Y = act(X·W + b)`, backward `dX = dY·Wᵀ` and `dW = Xᵀ·dY`, each one
//! matrix product: O(batch · in · out) a step.

use lookalike_kernels::{Cpu, Strided, adam_row, gemm, padded};
use lookalike_mapped::Buffer;
use rayon::prelude::*;

use super::network::Activation;
use super::rows::Biases;
use crate::optim::Adam;

/// Examples that one thread takes at a time.
const EXAMPLES_PER_BLOCK: usize = 64;

/// A dense layer of `inputs` × `outputs` weights.
#[derive(Clone, Debug)]
pub struct Hidden {
    /// Weights: a row an input, each padded to `stride`.
    pub w: Buffer<f32>,
    /// First moments.
    pub m: Buffer<f32>,
    /// Second moments.
    pub v: Buffer<f32>,
    /// A bias an output.
    pub bias: Biases,
    /// Width of the layer below.
    pub inputs: usize,
    /// Width of this layer.
    pub outputs: usize,
    /// Distance between rows of `w`.
    pub stride: usize,
    grad: Buffer<f32>,
    transposed: Buffer<f32>,
    bias_grad: Vec<f32>,
}

impl Hidden {
    /// A layer of zeroes.
    pub fn zeroed(inputs: usize, outputs: usize) -> Self {
        let stride = padded(outputs);
        let none = || Buffer::zeroed(0);
        Self {
            w: Buffer::zeroed(inputs * stride),
            m: none(),
            v: none(),
            bias: Biases::zeroed(outputs),
            inputs,
            outputs,
            stride,
            grad: none(),
            transposed: none(),
            bias_grad: Vec::new(),
        }
    }

    /// Makes room for moments and gradients.
    pub fn prepare_training(&mut self) {
        if self.m.is_empty() {
            self.m = Buffer::zeroed(self.w.len());
            self.v = Buffer::zeroed(self.w.len());
        }
        self.grad = Buffer::zeroed(self.w.len());
        self.transposed = Buffer::zeroed(self.outputs * padded(self.inputs));
        self.bias_grad = vec![0.0; self.outputs];
        self.bias.prepare_training();
    }

    /// `below` holds rows of `padded(inputs)`, `above` gets rows of `stride`.
    pub fn forward(&self, cpu: Cpu, activation: Activation, below: &[f32], above: &mut [f32]) {
        let below_stride = padded(self.inputs);
        let blocks = above.par_chunks_mut(EXAMPLES_PER_BLOCK * self.stride);
        blocks.zip(below.par_chunks(EXAMPLES_PER_BLOCK * below_stride)).for_each(|(above, below)| {
            for row in above.chunks_exact_mut(self.stride) {
                row.fill(0.0);
                row[..self.outputs].copy_from_slice(&self.bias.w);
            }
            let examples = above.len() / self.stride;
            let a = Strided { data: below, row_stride: below_stride, column_stride: 1 };
            let b = Strided { data: &self.w[..], row_stride: self.stride, column_stride: 1 };
            gemm(cpu, examples, self.stride, self.inputs, a, b, above, self.stride);
            activation.apply(above);
        });
    }

    /// Takes `d_above` (the gradient before this layer's activation), writes the
    /// gradient of `below` into `d_below`, then moves the weights.
    pub fn backward(&mut self, cpu: Cpu, adam: &Adam, below: &[f32], d_above: &[f32], d_below: &mut [f32]) {
        let (stride, below_stride) = (self.stride, padded(self.inputs));
        for (input, row) in self.w.chunks_exact(stride).enumerate() {
            for (output, &x) in row[..self.outputs].iter().enumerate() {
                self.transposed[output * below_stride + input] = x;
            }
        }
        let transposed = Strided { data: &self.transposed[..], row_stride: below_stride, column_stride: 1 };
        let blocks = d_below.par_chunks_mut(EXAMPLES_PER_BLOCK * below_stride);
        blocks.zip(d_above.par_chunks(EXAMPLES_PER_BLOCK * stride)).for_each(|(d_below, d_above)| {
            d_below.fill(0.0);
            let a = Strided { data: d_above, row_stride: stride, column_stride: 1 };
            let examples = d_above.len() / stride;
            gemm(cpu, examples, below_stride, self.outputs, a, transposed, d_below, below_stride);
        });

        let examples = d_above.len() / stride;
        self.bias_grad.fill(0.0);
        for row in d_above.chunks_exact(stride) {
            for (sum, &g) in self.bias_grad.iter_mut().zip(row) {
                *sum += g;
            }
        }
        const INPUTS_PER_BLOCK: usize = 16;
        self.grad.par_chunks_mut(INPUTS_PER_BLOCK * stride).enumerate().for_each(|(block, grad)| {
            grad.fill(0.0);
            let a = Strided {
                data: &below[block * INPUTS_PER_BLOCK..],
                row_stride: 1,
                column_stride: below_stride,
            };
            let b = Strided { data: d_above, row_stride: stride, column_stride: 1 };
            gemm(cpu, grad.len() / stride, stride, examples, a, b, grad, stride);
        });
        for (row, grad) in self.grad.chunks_exact(stride).enumerate() {
            let range = row * stride..(row + 1) * stride;
            let (w, m, v) = (&mut self.w[range.clone()], &mut self.m[range.clone()], &mut self.v[range]);
            adam_row(cpu, &adam.step, grad, w, m, v, 0);
        }
        self.bias.update_all(adam, &self.bias_grad);
    }
}
