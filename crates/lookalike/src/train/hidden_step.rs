//! A dense layer's part of a step: `dX = dY·Wᵀ` and `dW = Xᵀ·dY`, each one matrix
//! product, O(batch · in · out), then one Adam step of all its weights.

use lookalike_kernels::{AlignedVec, Cpu, Strided, adam_row, gemm, padded};
use rayon::prelude::*;

use crate::model::{EXAMPLES_PER_BLOCK, Hidden};
use crate::optim::{Adam, HiddenMoments};
use crate::scratch::{grow, grow_aligned};

/// Inputs whose gradients one thread computes at a time.
const INPUTS_PER_BLOCK: usize = 16;

/// Buffers of a dense layer's step, kept between batches.
#[derive(Debug, Default)]
pub(super) struct HiddenStep {
    grad: AlignedVec<f32>,
    transposed: AlignedVec<f32>,
    bias_grad: Vec<f32>,
}

impl HiddenStep {
    /// Takes `d_above` (the gradient before the layer's activation), writes the
    /// gradient of `below` into `d_below`, then moves the weights.
    pub(super) fn run(
        &mut self,
        cpu: Cpu,
        adam: &Adam,
        (layer, moments): (&mut Hidden, &mut HiddenMoments),
        (below, d_below): (&[f32], &mut [f32]),
        d_above: &[f32],
    ) {
        self.gradient_below(cpu, layer, d_above, d_below);
        let (stride, below_stride) = (layer.stride, padded(layer.inputs));
        let examples = d_above.len() / stride;
        grow(&mut self.bias_grad, layer.outputs);
        self.bias_grad.fill(0.0);
        for row in d_above.chunks_exact(stride) {
            self.bias_grad.iter_mut().zip(row).for_each(|(sum, &g)| *sum += g);
        }
        grow_aligned(&mut self.grad, layer.w.len());
        let grad = &mut self.grad[..layer.w.len()];
        grad.par_chunks_mut(INPUTS_PER_BLOCK * stride).enumerate().for_each(|(block, grad)| {
            grad.fill(0.0);
            let data = &below[block * INPUTS_PER_BLOCK..];
            let a = Strided { data, row_stride: 1, column_stride: below_stride };
            let b = Strided { data: d_above, row_stride: stride, column_stride: 1 };
            gemm(cpu, grad.len() / stride, stride, examples, a, b, grad, stride);
        });
        for (row, grad) in grad.chunks_exact(stride).enumerate() {
            let range = row * stride..(row + 1) * stride;
            let (w, m) = (&mut layer.w[range.clone()], &mut moments.m[range.clone()]);
            adam_row(cpu, &adam.step, grad, w, m, &mut moments.v[range], 0);
        }
        moments.bias.update_all(&mut layer.bias, adam, &self.bias_grad);
    }

    fn gradient_below(&mut self, cpu: Cpu, layer: &Hidden, d_above: &[f32], d_below: &mut [f32]) {
        let (stride, below_stride) = (layer.stride, padded(layer.inputs));
        // What is padding stays zero: it is never written.
        grow_aligned(&mut self.transposed, layer.outputs * below_stride);
        for (input, row) in layer.w.chunks_exact(stride).enumerate() {
            for (output, &x) in row[..layer.outputs].iter().enumerate() {
                self.transposed[output * below_stride + input] = x;
            }
        }
        let transposed = Strided { data: &self.transposed[..], row_stride: below_stride, column_stride: 1 };
        let blocks = d_below.par_chunks_mut(EXAMPLES_PER_BLOCK * below_stride);
        blocks.zip(d_above.par_chunks(EXAMPLES_PER_BLOCK * stride)).for_each(|(d_below, d_above)| {
            d_below.fill(0.0);
            let a = Strided { data: d_above, row_stride: stride, column_stride: 1 };
            let examples = d_above.len() / stride;
            gemm(cpu, examples, below_stride, layer.outputs, a, transposed, d_below, below_stride);
        });
    }
}
