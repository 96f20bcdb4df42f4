//! The output layer's part of a step over *all* classes: full softmax.
//!
//! Matrix products over tiles of classes, with a running log-sum-exp, so that a
//! batch × classes matrix never exists. Scores are computed twice: once for
//! each example's normaliser, once more for the gradient that needs it.
//!
//! Cost: four products of batch · classes · width multiply-adds, and every row
//! read twice and written once.

use lookalike_kernels::{Cpu, Element, FLAG_BITS, Strided, gather_scale, gemm, scatter_exp, scatter_max};
use rayon::prelude::*;

use super::output_step::{StepContext, for_each_part};
use super::stages::{Stage, StageClock, StageTimes};
use super::turnaround::{Part, grow};
use crate::data::Examples;
use crate::model::{RowData, Rows, RowsMut, RowsView, with_store};
use crate::optim::Adam;
use crate::random::{Stream, mix};

/// Classes whose scores are held at a time; with 1,024 examples, half a megabyte.
const TILE: usize = 128;
/// Parts that classes are cut into, whatever the number of threads.
const PARTS: usize = 32;

/// Buffers of the full softmax's step, kept between batches.
#[derive(Debug, Default)]
pub struct FullStep {
    parts: Vec<Part>,
    work: Vec<Work>,
    /// Embeddings, a row a dimension.
    transposed: Vec<f32>,
    /// (class, example) of every true label, sorted.
    truths: Vec<(u32, u32)>,
    /// The entries 0, 1, 2, …: a tile's row has one score an example.
    entries: Vec<u32>,
    target: Vec<f32>,
    max: Vec<f32>,
    factor: Vec<f32>,
    times: StageTimes,
}

#[derive(Debug, Default)]
struct Work {
    scores: Vec<f32>,
    tile_max: Vec<f32>,
    max: Vec<f32>,
    sum: Vec<f32>,
    grads: Vec<f32>,
    d_embeddings: Vec<f32>,
    loss: f64,
}

/// The batch as every tile sees it.
struct Batch<'a> {
    cpu: Cpu,
    embeddings: &'a [f32],
    stride: usize,
    dim: usize,
    transposed: &'a [f32],
    examples: usize,
    entries: &'a [u32],
    truths: &'a [(u32, u32)],
}

impl Batch<'_> {
    /// Scores of a tile of classes: a row a class, a column an example.
    fn scores<T: Element>(&self, w: &[T], bias: &[f32], scores: &mut Vec<f32>) {
        grow(scores, bias.len() * self.examples);
        for (row, &bias) in scores.chunks_exact_mut(self.examples).zip(bias) {
            row.fill(bias);
        }
        let a = Strided { data: w, row_stride: self.stride, column_stride: 1 };
        let b = Strided { data: self.transposed, row_stride: self.examples, column_stride: 1 };
        gemm(self.cpu, bias.len(), self.examples, self.dim, a, b, scores, self.examples);
    }

    /// The true labels that fall in a range of classes.
    fn truths_in(&self, classes: std::ops::Range<usize>) -> &[(u32, u32)] {
        let from = self.truths.partition_point(|t| (t.0 as usize) < classes.start);
        let to = self.truths.partition_point(|t| (t.0 as usize) < classes.end);
        &self.truths[from..to]
    }
}

impl FullStep {
    /// Moves all rows, writes the gradient of the embeddings and gives the
    /// batch's mean loss.
    pub fn run(
        &mut self,
        context: &StepContext,
        output: &mut Rows,
        examples: &Examples<'_>,
        batch: &[u32],
        embeddings: RowsView<'_>,
        d_embeddings: &mut [f32],
    ) -> f64 {
        let RowData::F32(rows) = embeddings.data else { unreachable!("embeddings are always f32") };
        let mut clock = StageClock::start();
        self.prepare(output.len, examples, batch, rows, embeddings);
        clock.end(Stage::Sort);
        let view = Batch {
            cpu: context.cpu,
            embeddings: rows,
            stride: embeddings.stride,
            dim: embeddings.dim,
            transposed: &self.transposed,
            examples: batch.len(),
            entries: &self.entries,
            truths: &self.truths,
        };
        let (work, parts) = (&mut self.work[..self.parts.len()], &self.parts[..]);
        let stride = output.stride;
        with_store!(&mut output.stored, store => {
            let bias = &output.bias.w;
            work.par_iter_mut().zip(parts).for_each(|(work, part)| {
                work.normalise(&view, &store.w, bias, part, &self.target);
            });
            clock.end(Stage::Score);
            let loss = combine(work, &self.target, &mut self.max, &mut self.factor);
            clock.end(Stage::Loss);
            let rows = RowsMut::new(store, &mut output.last, &mut output.bias, stride);
            let (max, factor, target) = (&self.max, &self.factor, &self.target);
            for_each_part(rows, parts, work, &|rows, part, work| {
                work.update(&view, rows, part, context, &context.adam, (max, factor, target));
            });
            d_embeddings.par_chunks_mut(stride).enumerate().for_each(|(example, out)| {
                out.fill(0.0);
                for work in work.iter() {
                    let share = &work.d_embeddings[example * stride..][..stride];
                    out.iter_mut().zip(share).for_each(|(sum, x)| *sum += x);
                }
            });
            clock.end(Stage::Update);
            self.times = clock.times();
            loss / batch.len().max(1) as f64
        })
    }

    /// Where the last step's time went. A score stands for its exponential too,
    /// and the second pass over the scores is part of the update.
    pub(super) fn stage_times(&self) -> StageTimes {
        self.times
    }

    fn prepare(
        &mut self,
        num_classes: usize,
        examples: &Examples<'_>,
        batch: &[u32],
        rows: &[f32],
        embeddings: RowsView<'_>,
    ) {
        let classes_per_part = num_classes.div_ceil(PARTS).next_multiple_of(TILE).max(1);
        let num_parts = num_classes.div_ceil(classes_per_part).max(1);
        self.parts.resize_with(num_parts, Part::default);
        for (i, part) in self.parts.iter_mut().enumerate() {
            part.first_key = i * classes_per_part;
            part.num_keys = classes_per_part.min(num_classes - part.first_key);
        }
        self.work.resize_with(num_parts.max(self.work.len()), Work::default);

        let n = batch.len();
        grow(&mut self.transposed, embeddings.dim * n);
        for (example, row) in rows.chunks_exact(embeddings.stride).enumerate() {
            for (dimension, &x) in row[..embeddings.dim].iter().enumerate() {
                self.transposed[dimension * n + example] = x;
            }
        }
        self.entries.clear();
        self.entries.extend((0..n as u32).map(|example| example << FLAG_BITS));
        self.truths.clear();
        grow(&mut self.target, n);
        for (place, &example) in batch.iter().enumerate() {
            let labels = examples.labels(example as usize);
            self.target[place] = if labels.is_empty() { 0.0 } else { 1.0 / labels.len() as f32 };
            self.truths.extend(labels.iter().map(|&class| (class, place as u32)));
        }
        self.truths.sort_unstable();
    }
}

impl Work {
    /// First pass: this part's share of each example's normaliser and loss.
    fn normalise<T: Element>(
        &mut self,
        batch: &Batch<'_>,
        w: &[T],
        bias: &[f32],
        part: &Part,
        target: &[f32],
    ) {
        self.max.clear();
        self.max.resize(batch.examples, f32::NEG_INFINITY);
        self.sum.clear();
        self.sum.resize(batch.examples, 0.0);
        self.loss = 0.0;
        let end = part.first_key + part.num_keys;
        for first in (part.first_key..end).step_by(TILE) {
            let classes = first..end.min(first + TILE);
            let rows = &w[first * batch.stride..classes.end * batch.stride];
            batch.scores(rows, &bias[classes.clone()], &mut self.scores);
            for &(class, example) in batch.truths_in(classes.clone()) {
                let score = self.scores[(class as usize - first) * batch.examples + example as usize];
                self.loss -= f64::from(target[example as usize] * score);
            }
            self.tile_max.clear();
            self.tile_max.extend_from_slice(&self.max);
            for row in self.scores.chunks_exact(batch.examples) {
                scatter_max(batch.cpu, row, batch.entries, &mut self.tile_max);
            }
            // The running sum is rescaled to the new maximum.
            for ((sum, old), new) in self.sum.iter_mut().zip(&mut self.max).zip(&self.tile_max) {
                *sum *= (*old - new).exp();
                *old = *new;
            }
            for row in self.scores.chunks_exact_mut(batch.examples) {
                scatter_exp(batch.cpu, row, batch.entries, &self.max, &mut self.sum);
            }
        }
    }

    /// Second pass: gradients of both sides and the rows' update.
    fn update<T: Element>(
        &mut self,
        batch: &Batch<'_>,
        mut rows: RowsMut<'_, T>,
        part: &Part,
        context: &StepContext,
        adam: &Adam,
        (max, factor, target): (&[f32], &[f32], &[f32]),
    ) {
        let (stride, n) = (batch.stride, batch.examples);
        let scale = 1.0 / n as f32;
        self.d_embeddings.clear();
        grow(&mut self.d_embeddings, n * stride);
        for first in (0..part.num_keys).step_by(TILE) {
            let classes = first..part.num_keys.min(first + TILE);
            let w = &rows.w[first * stride..classes.end * stride];
            batch.scores(w, &rows.bias.w[classes.clone()], &mut self.scores);
            for row in self.scores.chunks_exact_mut(n) {
                // The sum is known already; here it is only a by-product.
                scatter_exp(batch.cpu, row, batch.entries, max, &mut self.sum);
                gather_scale(batch.cpu, row, batch.entries, factor);
            }
            let global = part.first_key + classes.start..part.first_key + classes.end;
            for &(class, example) in batch.truths_in(global.clone()) {
                let at = (class as usize - global.start) * n + example as usize;
                self.scores[at] -= target[example as usize] * scale;
            }
            self.grads.clear();
            grow(&mut self.grads, classes.len() * stride);
            let by_class = Strided { data: &self.scores[..], row_stride: n, column_stride: 1 };
            let embeddings = Strided { data: batch.embeddings, row_stride: stride, column_stride: 1 };
            gemm(batch.cpu, classes.len(), stride, n, by_class, embeddings, &mut self.grads, stride);
            let by_example = Strided { data: &self.scores[..], row_stride: 1, column_stride: n };
            let w = Strided { data: w, row_stride: stride, column_stride: 1 };
            gemm(batch.cpu, n, stride, classes.len(), by_example, w, &mut self.d_embeddings, stride);
            for class in classes.clone() {
                let local = class - first;
                let noise =
                    mix(context.seed, Stream::Round, context.iteration, (part.first_key + class) as u64);
                rows.update(batch.cpu, class, adam, &self.grads[local * stride..][..stride], noise);
                let bias_grad = self.scores[local * n..][..n].iter().sum();
                rows.bias.update(class, adam, bias_grad);
            }
        }
    }
}

/// Joins the parts' normalisers; gives the summed loss.
fn combine(work: &[Work], target: &[f32], max: &mut Vec<f32>, factor: &mut Vec<f32>) -> f64 {
    let n = target.len();
    grow(max, n);
    grow(factor, n);
    let mut loss: f64 = work.iter().map(|work| work.loss).sum();
    for example in 0..n {
        max[example] = work.iter().fold(f32::NEG_INFINITY, |max, work| max.max(work.max[example]));
        let shares = work.iter().map(|work| work.sum[example] * (work.max[example] - max[example]).exp());
        let sum: f32 = shares.sum();
        let has_label = target[example] > 0.0;
        factor[example] = if has_label { 1.0 / (n as f32 * sum) } else { 0.0 };
        loss += if has_label { f64::from(max[example]) + f64::from(sum).ln() } else { 0.0 };
    }
    loss
}
