//! A small dense layer between input and output.
//!
//! Forward `Y = act(X·W + b)`, one matrix product: O(batch · in · out). The way
//! back is in `train/hidden_step.rs`.

use lookalike_kernels::{Cpu, Strided, gemm, padded};
use lookalike_mapped::Buffer;
use rayon::prelude::*;

use super::network::Activation;

/// Examples that one thread takes at a time.
pub(crate) const EXAMPLES_PER_BLOCK: usize = 64;

/// A dense layer of `inputs` × `outputs` weights.
#[derive(Clone, Debug)]
pub struct Hidden {
    /// Weights: a row an input, each padded to `stride`.
    pub w: Buffer<f32>,
    /// A bias an output.
    pub bias: Vec<f32>,
    /// Width of the layer below.
    pub inputs: usize,
    /// Width of this layer.
    pub outputs: usize,
    /// Distance between rows of `w`.
    pub stride: usize,
}

impl Hidden {
    /// A layer of zeroes.
    pub fn zeroed(inputs: usize, outputs: usize) -> Self {
        let stride = padded(outputs);
        Self { w: Buffer::zeroed(inputs * stride), bias: vec![0.0; outputs], inputs, outputs, stride }
    }

    /// `below` holds rows of `padded(inputs)`, `above` gets rows of `stride`.
    pub fn forward(&self, cpu: Cpu, activation: Activation, below: &[f32], above: &mut [f32]) {
        let below_stride = padded(self.inputs);
        let blocks = above.par_chunks_mut(EXAMPLES_PER_BLOCK * self.stride);
        blocks.zip(below.par_chunks(EXAMPLES_PER_BLOCK * below_stride)).for_each(|(above, below)| {
            for row in above.chunks_exact_mut(self.stride) {
                row.fill(0.0);
                row[..self.outputs].copy_from_slice(&self.bias);
            }
            let examples = above.len() / self.stride;
            let a = Strided { data: below, row_stride: below_stride, column_stride: 1 };
            let b = Strided { data: &self.w[..], row_stride: self.stride, column_stride: 1 };
            gemm(cpu, examples, self.stride, self.inputs, a, b, above, self.stride);
            activation.apply(above);
        });
    }
}
