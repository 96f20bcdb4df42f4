//! A step of the output layer over *all* its classes: full softmax.
//!
//! Matrix products over tiles of classes and examples, with a running
//! log-sum-exp, so that a batch × classes matrix never exists. Scores are
//! computed twice: once for each example's normaliser, once more for the
//! gradient that needs it.
//!
//! Cost: four products of batch · classes · width multiply-adds, and every row
//! read twice and written once.

use lookalike_kernels::{AlignedVec, Cpu, Element, Strided, exp_sum, gemm};
use rayon::prelude::*;

use super::super::by_key::{Part, for_each_part};
use super::super::context::StepContext;
use super::super::stages::{Stage, StageClock, StageTimes};
use super::{OutputLayer, rounding_noise, sum_shares};
use crate::collective::{RANGES, RangeSums, Ranges, Reducer};
use crate::data::Examples;
use crate::loss::RunningSum;
use crate::model::Embeddings;
use crate::optim::{LayerMut, RowsMut, with_layer};
use crate::scratch::{PerThread, grow, grow_aligned};

/// Classes and examples of a tile: its scores take 256 KiB and stay in L2.
const TILE: usize = 256;
/// Parts that a range of classes is cut into, whatever the number of threads.
const PARTS: usize = 32 / RANGES;

/// Buffers of the full softmax's step, kept between batches.
#[derive(Debug, Default)]
pub(crate) struct FullStep {
    parts: Vec<Part>,
    work: Vec<PartTiles>,
    /// (class, example) of every true label, sorted.
    truths: Vec<(u32, u32)>,
    /// By example: how much it counts; 0 without labels.
    weight: Vec<f32>,
    /// By example: target of each true label, `weight/|y|`, or 0 without labels.
    target: Vec<f32>,
    /// By example: what turns a score into its share of the gradient,
    /// `weight · p / batch = exp(score - log_norm)`.
    log_norm: Vec<f32>,
    /// By example: sum of exponentials, over the largest score.
    sums: RangeSums<f64>,
    shares: PerThread<RangeSums<f32>>,
    times: StageTimes,
}

/// A part's tiles and sums.
#[derive(Debug, Default)]
struct PartTiles {
    scores: AlignedVec<f32>,
    grads: AlignedVec<f32>,
    d_embeddings: AlignedVec<f32>,
    bias_grads: Vec<f32>,
    sums: Vec<RunningSum>,
    loss: f64,
}

/// The batch as every tile sees it.
#[derive(Clone, Copy)]
struct TileBatch<'a> {
    cpu: Cpu,
    embeddings: &'a [f32],
    stride: usize,
    dim: usize,
    examples: usize,
    truths: &'a [(u32, u32)],
    target: &'a [f32],
}

impl TileBatch<'_> {
    /// Scores of a tile: a row an example, a column a class.
    fn scores<'s, T: Element>(
        &self,
        w: &[T],
        bias: &[f32],
        examples: std::ops::Range<usize>,
        buffer: &'s mut AlignedVec<f32>,
    ) -> &'s mut [f32] {
        grow_aligned(buffer, TILE * TILE);
        let classes = bias.len();
        let scores = &mut buffer[..examples.len() * classes];
        for row in scores.chunks_exact_mut(classes) {
            row.copy_from_slice(bias);
        }
        let b = Strided { data: w, row_stride: 1, column_stride: self.stride };
        gemm(self.cpu, examples.len(), classes, self.dim, self.rows(examples), b, scores, classes);
        scores
    }

    /// The embeddings of a range of examples.
    fn rows(&self, examples: std::ops::Range<usize>) -> Strided<'_, f32> {
        let data = &self.embeddings[examples.start * self.stride..examples.end * self.stride];
        Strided { data, row_stride: self.stride, column_stride: 1 }
    }

    /// Calls `visit(example, class)`, both counted from the tile's first, for
    /// the true labels in a tile.
    fn truths_in(
        &self,
        classes: std::ops::Range<usize>,
        examples: std::ops::Range<usize>,
        mut visit: impl FnMut(usize, usize),
    ) {
        let from = self.truths.partition_point(|t| (t.0 as usize) < classes.start);
        for &(class, example) in &self.truths[from..] {
            if class as usize >= classes.end {
                break;
            }
            if examples.contains(&(example as usize)) {
                visit(example as usize - examples.start, class as usize - classes.start);
            }
        }
    }
}

/// Consecutive ranges of at most [`TILE`].
fn tiles(range: std::ops::Range<usize>) -> impl Iterator<Item = std::ops::Range<usize>> {
    let end = range.end;
    range.step_by(TILE).map(move |first| first..end.min(first + TILE))
}

impl FullStep {
    /// Moves all rows, writes the gradient of the embeddings and gives the
    /// batch's mean loss.
    pub(crate) fn run(
        &mut self,
        context: &StepContext,
        layer: OutputLayer<'_>,
        examples: &Examples<'_>,
        batch: &[u32],
        embeddings: Embeddings<'_>,
        d_embeddings: &mut [f32],
    ) -> f64 {
        let mut clock = StageClock::start();
        let OutputLayer { rows, moments, ranges, reducer } = layer;
        let first_class = ranges.keys().start;
        self.prepare(ranges, context.labels_counted, examples, batch);
        clock.end(Stage::Sort);
        let Self { parts, work, truths, weight, target, log_norm, sums, shares, times } = self;
        let (work, parts) = (&mut work[..parts.len()], &parts[..]);
        let stride = rows.stride;
        let view = TileBatch {
            cpu: context.cpu,
            embeddings: embeddings.rows(),
            stride,
            dim: embeddings.dim(),
            examples: batch.len(),
            truths,
            target,
        };
        with_layer!(LayerMut::new(rows, moments), rows => {
            let (w, bias) = (&*rows.w, &*rows.bias.w);
            work.par_iter_mut().zip(parts).for_each(|(work, part)| work.normalise(&view, w, bias, part));
            clock.end(Stage::Score);
            let loss = combine((parts, work), weight, (log_norm, sums), (ranges, reducer));
            clock.end(Stage::Loss);
            for_each_part(rows, parts, work, &|rows, part, work| {
                work.update(&view, rows, part, context, first_class, log_norm);
            });
            sum_shares((parts, work), |work| &work.d_embeddings, (ranges, stride), shares, d_embeddings);
            reducer.sums(d_embeddings);
            clock.end(Stage::Update);
            *times = clock.times();
            loss / batch.len().max(1) as f64
        })
    }

    /// Where the last step's time went. A score stands for its exponential too,
    /// and the second pass over the scores is part of the update.
    pub(crate) fn stage_times(&self) -> StageTimes {
        self.times
    }

    /// `ranges` are those of the shard; true labels of others are other shards' business.
    fn prepare(&mut self, ranges: Ranges, labels_counted: usize, examples: &Examples<'_>, batch: &[u32]) {
        let classes = ranges.keys();
        self.parts.clear();
        for (range, keys) in ranges.iter().enumerate() {
            let classes_per_part = keys.len().div_ceil(PARTS).next_multiple_of(TILE);
            for first_key in keys.clone().step_by(classes_per_part.max(1)) {
                let num_keys = classes_per_part.min(keys.end - first_key);
                self.parts.push(Part::of(first_key, num_keys, range));
            }
        }
        self.work.resize_with(self.parts.len().max(self.work.len()), PartTiles::default);
        self.truths.clear();
        grow(&mut self.weight, batch.len());
        grow(&mut self.target, batch.len());
        for (place, &example) in batch.iter().enumerate() {
            let labels = examples.labels(example as usize);
            let counted = labels.len().min(labels_counted) as f32;
            self.weight[place] = counted * examples.weight(example as usize);
            self.target[place] = self.weight[place] / labels.len().max(1) as f32;
            let own = labels.iter().filter(|&&class| classes.contains(&(class as usize)));
            self.truths.extend(own.map(|&class| (class - classes.start as u32, place as u32)));
        }
        self.truths.sort_unstable();
    }
}

impl PartTiles {
    /// First pass: this part's share of each example's normaliser and loss.
    fn normalise<T: Element>(&mut self, batch: &TileBatch<'_>, w: &[T], bias: &[f32], part: &Part) {
        self.sums.clear();
        self.sums.resize(batch.examples, RunningSum::default());
        self.loss = 0.0;
        for classes in tiles(part.first_key..part.first_key + part.num_keys) {
            let rows = &w[classes.start * batch.stride..classes.end * batch.stride];
            for examples in tiles(0..batch.examples) {
                let bias = &bias[classes.clone()];
                let scores = batch.scores(rows, bias, examples.clone(), &mut self.scores);
                batch.truths_in(classes.clone(), examples.clone(), |example, class| {
                    let target = batch.target[examples.start + example];
                    self.loss -= f64::from(target * scores[example * classes.len() + class]);
                });
                let rows = scores.chunks_exact_mut(classes.len());
                for (row, sum) in rows.zip(&mut self.sums[examples]) {
                    sum.add(batch.cpu, row);
                }
            }
        }
    }

    /// Second pass: gradients of both sides and the rows' update.
    fn update<T: Element>(
        &mut self,
        batch: &TileBatch<'_>,
        mut rows: RowsMut<'_, T>,
        part: &Part,
        context: &StepContext,
        first_class: usize,
        log_norm: &[f32],
    ) {
        let stride = batch.stride;
        grow_aligned(&mut self.d_embeddings, batch.examples * stride);
        self.d_embeddings[..batch.examples * stride].fill(0.0);
        grow_aligned(&mut self.grads, TILE * stride);
        for classes in tiles(0..part.num_keys) {
            self.grads[..classes.len() * stride].fill(0.0);
            self.bias_grads.clear();
            self.bias_grads.resize(classes.len(), 0.0);
            let w = &rows.w[classes.start * stride..classes.end * stride];
            let bias = &rows.bias.w[classes.clone()];
            let global = part.first_key + classes.start..part.first_key + classes.end;
            for examples in tiles(0..batch.examples) {
                self.tile_gradients(batch, w, bias, global.clone(), examples, log_norm);
            }
            for (local, class) in classes.enumerate() {
                let noise = rounding_noise(context, first_class + part.first_key + class);
                let grad = &self.grads[local * stride..][..stride];
                rows.update(batch.cpu, class, &context.adam, grad, noise);
                rows.bias.update(class, &context.adam, self.bias_grads[local]);
            }
        }
    }

    /// Adds a tile's gradients of class vectors, biases and embeddings.
    fn tile_gradients<T: Element>(
        &mut self,
        batch: &TileBatch<'_>,
        w: &[T],
        bias: &[f32],
        classes: std::ops::Range<usize>,
        examples: std::ops::Range<usize>,
        log_norm: &[f32],
    ) {
        let (stride, width) = (batch.stride, classes.len());
        let scores = batch.scores(w, bias, examples.clone(), &mut self.scores);
        for (row, &log_norm) in scores.chunks_exact_mut(width).zip(&log_norm[examples.clone()]) {
            exp_sum(batch.cpu, row, log_norm);
        }
        let scale = 1.0 / batch.examples as f32;
        batch.truths_in(classes, examples.clone(), |example, class| {
            scores[example * width + class] -= batch.target[examples.start + example] * scale;
        });
        for row in scores.chunks_exact(width) {
            self.bias_grads.iter_mut().zip(row).for_each(|(sum, g)| *sum += g);
        }
        let by_class = Strided { data: &*scores, row_stride: 1, column_stride: width };
        let grads = &mut self.grads[..width * stride];
        gemm(batch.cpu, width, stride, examples.len(), by_class, batch.rows(examples.clone()), grads, stride);
        let by_example = Strided { data: &*scores, row_stride: width, column_stride: 1 };
        let w = Strided { data: w, row_stride: stride, column_stride: 1 };
        let d_embeddings = &mut self.d_embeddings[examples.start * stride..examples.end * stride];
        gemm(batch.cpu, examples.len(), stride, width, by_example, w, d_embeddings, stride);
    }
}

/// Joins the parts' normalisers, and those of all shards; gives the summed loss. An
/// example that does not count gets an infinite one, so that its gradient is 0.
fn combine(
    (parts, work): (&[Part], &[PartTiles]),
    weight: &[f32],
    (log_norm, sums): (&mut Vec<f32>, &mut RangeSums<f64>),
    (ranges, reducer): (Ranges, &mut dyn Reducer),
) -> f64 {
    let batch = weight.len();
    // First the largest score, in the place of what it becomes.
    log_norm.clear();
    log_norm.resize(batch, f32::NEG_INFINITY);
    for work in work {
        let maxima = work.sums.iter().map(RunningSum::max);
        log_norm.iter_mut().zip(maxima).for_each(|(max, other)| *max = max.max(other));
    }
    reducer.maxima(log_norm);
    // The loss has a place behind the examples.
    sums.start(ranges.len(), batch + 1);
    for (part, work) in parts.iter().zip(work) {
        let of_range = sums.of(part.range);
        let own = work.sums.iter().zip(&*log_norm).map(|(sum, &max)| sum.sum_over(max));
        of_range.iter_mut().zip(own).for_each(|(all, sum)| *all += sum);
        of_range[batch] += work.loss;
    }
    let sums = sums.whole(reducer);
    let mut loss = sums[batch];
    for (example, (log_norm, &sum)) in log_norm.iter_mut().zip(sums).enumerate() {
        let log_sum_exp = (f64::from(*log_norm) + sum.ln()) as f32;
        *log_norm = f32::INFINITY;
        let weight = weight[example];
        if weight > 0.0 {
            loss += f64::from(weight) * f64::from(log_sum_exp);
            *log_norm = log_sum_exp + (batch as f32).ln() - weight.ln();
        }
    }
    loss
}
