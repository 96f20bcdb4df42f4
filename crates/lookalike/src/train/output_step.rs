//! The output layer's part of a step, over sampled candidates.
//!
//! The batch's (example, class) pairs are turned around to (class, examples);
//! each class row is then read once for its scores, and once more for both
//! gradients and its update. Rows belong to one part, parts to one thread at a
//! time, and sums over parts are taken in the order of parts, so the result is
//! the same whatever the number of threads.
//!
//! Rows stored as bf16 meet embeddings rounded to bf16, once a batch: half the
//! bytes a pair, and an instruction of its own where the CPU has one. The
//! embeddings' own gradient stays f32.
//!
//! Cost: O(pairs · width) arithmetic; rows touched · width · 6 numbers of memory
//! traffic (weights read twice and written once, moments read and written).

use std::ops::Range;

use lookalike_kernels::{
    AlignedVec, Cpu, Element, LANES, bf16, gather_dot, gather_scale, indices_flagged, prefetch_row,
    scatter_exp, scatter_max,
};
use rayon::prelude::*;

use super::stages::{Stage, StageClock, StageTimes};
use super::turnaround::{Pairs, Part, Turnaround, grow, grow_aligned};
use crate::loss::{self, DRAWN, ExampleTerms, Loss, TRUTH, entry};
use crate::model::{Biases, RowData, Rows, RowsMut, RowsView, Store, Stored};
use crate::optim::{Adam, PairGradients};
use crate::random::{Stream, mix};
use crate::sampling::{BitRows, Candidates};

/// How many rows ahead memory is asked for a row with its moments: 24 lines each.
pub(super) const PREFETCH_AHEAD: usize = 2;
/// The same where only the row itself is read: 8 lines.
const PREFETCH_ROWS_AHEAD: usize = 8;
/// Pairs of which the loss takes care together, so soon after their scores were
/// written, or so shortly before their gradients are read, that they are in L1.
const PAIRS_AT_ONCE: usize = 2048;

/// What a step needs to know besides the parameters.
#[derive(Clone, Copy, Debug)]
pub struct StepContext {
    /// Instructions to use.
    pub cpu: Cpu,
    /// The optimizer at this step.
    pub adam: Adam,
    /// The run's seed.
    pub seed: u64,
    /// The step's number.
    pub iteration: u64,
    /// What is minimised.
    pub loss: Loss,
    /// Whether scores are corrected by `ln q` of the sampler.
    pub corrects_log_q: bool,
    /// Classes near each example that the sparse part looks for.
    pub near: usize,
    /// The sparse part's learning rate; 0 once it is trained.
    pub sparse_rate: f32,
}

/// Buffers of the output layer's step, kept between batches.
#[derive(Debug, Default)]
pub(super) struct OutputStep {
    turnaround: Turnaround,
    work: Vec<Work>,
    terms: ExampleTerms,
    num_truths: usize,
    /// The embeddings, rounded; only if rows are.
    rounded: AlignedVec<bf16>,
    times: StageTimes,
}

/// A part's own scores and sums.
#[derive(Debug, Default)]
struct Work {
    /// Score of each entry, then its gradient.
    scores: Vec<f32>,
    /// Where the entries of true labels are.
    truths: Vec<u32>,
    /// By example: largest score, then sum of exponentials.
    max: Vec<f32>,
    sum: Vec<f32>,
    /// By example: this part's share of the embedding's gradient.
    d_embeddings: AlignedVec<f32>,
    loss: f64,
}

struct CandidatePairs<'a>(&'a Candidates);

impl Pairs for CandidatePairs<'_> {
    fn num_examples(&self) -> usize {
        self.0.len()
    }

    fn for_each(&self, example: usize, mut visit: impl FnMut(u32, u32)) {
        let (classes, counts) = (self.0.of(example), self.0.counts(example));
        let (truths, negatives) = classes.split_at(counts.truths as usize);
        let (found, drawn) = negatives.split_at(counts.found as usize);
        for (classes, flags) in [(truths, TRUTH), (found, 0), (drawn, DRAWN)] {
            let entry = entry(example, flags);
            for &class in classes {
                visit(class, entry);
            }
        }
    }

    fn bits(&self) -> Option<BitRows<'_>> {
        // Those flags of drawn classes that have a meaning would be too many to look for.
        let corrected = self.0.all_counts().iter().any(|counts| counts.drawn_log_q != 0.0);
        self.0.bits().filter(|_| !corrected)
    }

    fn for_each_flagged(&self, example: usize, mut visit: impl FnMut(u32, u32)) {
        let truths = &self.0.of(example)[..self.0.counts(example).truths as usize];
        truths.iter().for_each(|&class| visit(class, entry(example, TRUTH)));
    }
}

impl OutputStep {
    /// Moves the rows of all candidates, writes the gradient of the embeddings
    /// and gives the batch's mean loss.
    pub(super) fn run(
        &mut self,
        context: &StepContext,
        output: &mut Rows,
        candidates: &Candidates,
        class_log_q: Option<&[f32]>,
        embeddings: RowsView<'_>,
        d_embeddings: &mut [f32],
    ) -> f64 {
        let mut clock = StageClock::start();
        let batch = candidates.len();
        let class_log_q = class_log_q.filter(|_| context.corrects_log_q);
        let entry_bits = usize::BITS - (batch << lookalike_kernels::FLAG_BITS).leading_zeros();
        self.turnaround.turn(context.cpu, &CandidatePairs(candidates), output.len, entry_bits);
        self.work.resize_with(self.turnaround.parts().len().max(self.work.len()), Work::default);
        self.prepare_terms(candidates, context.corrects_log_q);
        clock.end(Stage::Sort);

        let RowData::F32(embeddings) = embeddings.data else { unreachable!("embeddings are always f32") };
        let Rows { stored, last, bias, stride, .. } = output;
        let layer = Layer { class_log_q, last, bias, stride: *stride };
        let loss = match stored {
            Stored::F32(store) => self.layer_step(context, store, layer, embeddings, &mut clock),
            Stored::Bf16(store) => {
                let mut rounded = std::mem::take(&mut self.rounded);
                round(embeddings, &mut rounded);
                let loss = self.layer_step(context, store, layer, &rounded, &mut clock);
                self.rounded = rounded;
                loss
            }
        };
        sum_parts(&self.work[..self.turnaround.parts().len()], *stride, d_embeddings);
        clock.end(Stage::Update);
        self.times = clock.times();
        loss / batch.max(1) as f64
    }

    /// Scores, loss and update; gives the summed loss.
    fn layer_step<T: Element>(
        &mut self,
        context: &StepContext,
        store: &mut Store<T>,
        layer: Layer<'_>,
        embeddings: &[T],
        clock: &mut StageClock,
    ) -> f64 {
        let Layer { class_log_q, last, bias, stride } = layer;
        self.score(context, &store.w, &bias.w, class_log_q, embeddings);
        clock.end(Stage::Score);
        let loss = match context.loss {
            Loss::Softmax => self.softmax(context.cpu),
            Loss::Nce => self.logistic(),
        };
        clock.end(Stage::Loss);
        self.update(context, RowsMut::new(store, last, bias, stride), embeddings);
        loss
    }

    /// Classes that the last step moved.
    pub(super) fn touched(&self) -> impl Iterator<Item = u32> + '_ {
        self.turnaround
            .parts()
            .iter()
            .flat_map(|part| part.groups().map(|(class, _)| (part.first_key + class) as u32))
    }

    /// Where the last step's time went.
    pub(super) fn stage_times(&self) -> StageTimes {
        self.times
    }

    /// (example, class) pairs of the last step.
    pub(super) fn num_pairs(&self) -> usize {
        self.turnaround.parts().iter().map(|part| part.entries.len()).sum()
    }

    fn prepare_terms(&mut self, candidates: &Candidates, corrects_log_q: bool) {
        let batch = candidates.len();
        grow(&mut self.terms.target, batch);
        grow(&mut self.terms.drawn_log_q, batch);
        grow(&mut self.terms.max, batch);
        grow(&mut self.terms.factor, batch);
        self.num_truths = candidates.all_counts().iter().map(|counts| counts.truths as usize).sum();
        for example in 0..batch {
            let counts = candidates.counts(example);
            self.terms.target[example] = if counts.truths > 0 { 1.0 / counts.truths as f32 } else { 0.0 };
            self.terms.drawn_log_q[example] = if corrects_log_q { counts.drawn_log_q } else { 0.0 };
        }
    }

    fn score<T: Element>(
        &mut self,
        context: &StepContext,
        w: &[T],
        bias: &[f32],
        class_log_q: Option<&[f32]>,
        embeddings: &[T],
    ) {
        let stride = w.len() / bias.len();
        let parts = self.turnaround.parts();
        let terms = &self.terms;
        let batch = terms.max.len();
        let correct_drawn = terms.drawn_log_q.iter().any(|&q| q != 0.0);
        let is_softmax = context.loss == Loss::Softmax;
        self.work[..parts.len()].par_iter_mut().zip(parts).for_each(|(work, part)| {
            grow(&mut work.scores, part.entries.len());
            work.max.clear();
            work.max.resize(batch, f32::NEG_INFINITY);
            let mut corrected = 0;
            for (i, (local, range)) in part.groups().enumerate() {
                let class = part.first_key + local;
                if let Some(ahead) = part.groups.get(i + PREFETCH_ROWS_AHEAD) {
                    prefetch_row(&w[(part.first_key + ahead.local_key as usize) * stride..][..stride]);
                }
                let scores = &mut work.scores[range.clone()];
                let row = &w[class * stride..][..stride];
                gather_dot(context.cpu, row, embeddings, &part.entries[range.clone()], scores);
                let shift = bias[class] - class_log_q.map_or(0.0, |log_q| log_q[class]);
                scores.iter_mut().for_each(|score| *score += shift);
                if range.end - corrected < PAIRS_AT_ONCE && range.end < part.entries.len() {
                    continue;
                }
                let ready = std::mem::replace(&mut corrected, range.end)..range.end;
                let (scores, entries) = (&mut work.scores[ready.clone()], &part.entries[ready]);
                if correct_drawn {
                    loss::correct_drawn(scores, entries, &terms.drawn_log_q);
                }
                if is_softmax {
                    scatter_max(context.cpu, scores, entries, &mut work.max);
                }
            }
        });
    }

    /// Turns scores into exponentials, which are the softmax's gradients but for
    /// a factor and the targets ([`Work::finish_softmax`]); gives the summed loss.
    fn softmax(&mut self, cpu: Cpu) -> f64 {
        let parts = self.turnaround.parts();
        let work = &mut self.work[..parts.len()];
        let batch = self.terms.max.len();
        for example in 0..batch {
            self.terms.max[example] =
                work.iter().fold(f32::NEG_INFINITY, |max, work| max.max(work.max[example]));
        }
        let (terms, num_truths) = (&self.terms, self.num_truths);
        work.par_iter_mut().zip(parts).for_each(|(work, part)| {
            // A part may get all of them, sooner or later.
            grow(&mut work.truths, num_truths);
            work.truths.clear();
            indices_flagged(cpu, &part.entries, TRUTH, &mut work.truths);
            work.loss = loss::truth_loss(&work.scores, &part.entries, &work.truths, terms);
            work.sum.clear();
            work.sum.resize(batch, 0.0);
            scatter_exp(cpu, &mut work.scores, &part.entries, &terms.max, &mut work.sum);
        });
        let mut total: f64 = work.iter().map(|work| work.loss).sum();
        let scale = 1.0 / batch as f32;
        for example in 0..batch {
            let sum: f32 = work.iter().map(|work| work.sum[example]).sum();
            let has_label = self.terms.target[example] > 0.0;
            self.terms.factor[example] = if has_label { scale / sum } else { 0.0 };
            total += if has_label { f64::from(sum).ln() } else { 0.0 };
        }
        total
    }

    /// Turns scores into the logistic loss's gradients; gives the summed loss.
    fn logistic(&mut self) -> f64 {
        let parts = self.turnaround.parts();
        let terms = &self.terms;
        let scale = 1.0 / terms.max.len() as f32;
        let work = &mut self.work[..parts.len()];
        work.par_iter_mut().zip(parts).for_each(|(work, part)| {
            work.loss = loss::logistic(&mut work.scores, &part.entries, &terms.target, scale);
        });
        work.iter().map(|work| work.loss).sum()
    }

    fn update<T: Element>(&mut self, context: &StepContext, rows: RowsMut<'_, T>, embeddings: &[T]) {
        let parts = self.turnaround.parts();
        let terms = &self.terms;
        let batch = terms.max.len();
        for_each_part(rows, parts, &mut self.work[..parts.len()], &|mut rows, part, work| {
            let stride = rows.stride;
            grow_aligned(&mut work.d_embeddings, batch * stride);
            work.d_embeddings[..batch * stride].fill(0.0);
            let mut finished = if context.loss == Loss::Softmax { 0 } else { part.entries.len() };
            for (i, (local, range)) in part.groups().enumerate() {
                if finished < range.end {
                    let end = range.end.max(finished + PAIRS_AT_ONCE).min(part.entries.len());
                    work.finish_softmax(context.cpu, part, finished..end, terms);
                    finished = end;
                }
                let (entries, g) = (&part.entries[range.clone()], &work.scores[range]);
                let pairs = PairGradients { rows: embeddings, entries, g };
                let class = (part.first_key + local) as u64;
                let noise = mix(context.seed, Stream::Round, context.iteration, class);
                // Rows come from memory: ask for them while others are worked on.
                let soon = part.groups.get(i + PREFETCH_AHEAD).map(|soon| soon.local_key as usize);
                let row = rows.state(local, soon);
                context.adam.update_by_pairs(context.cpu, row, &pairs, &mut work.d_embeddings, noise);
                rows.bias.update(local, &context.adam, sum_of(g));
            }
        });
    }
}

impl Work {
    /// The softmax's gradients of some pairs, from their exponentials.
    fn finish_softmax(&mut self, cpu: Cpu, part: &Part, pairs: Range<usize>, terms: &ExampleTerms) {
        gather_scale(cpu, &mut self.scores[pairs.clone()], &part.entries[pairs.clone()], &terms.factor);
        let place = |pair: usize| self.truths.partition_point(|&truth| (truth as usize) < pair);
        let truths = &self.truths[place(pairs.start)..place(pairs.end)];
        let scale = 1.0 / terms.max.len() as f32;
        loss::subtract_targets(&mut self.scores, &part.entries, truths, &terms.target, scale);
    }
}

/// The output layer, apart from its rows.
struct Layer<'a> {
    class_log_q: Option<&'a [f32]>,
    last: &'a mut [u32],
    bias: &'a mut Biases,
    stride: usize,
}

/// The nearest bf16 of each number.
fn round(numbers: &[f32], out: &mut AlignedVec<bf16>) {
    const CHUNK: usize = 1 << 12;
    if out.len() < numbers.len() {
        *out = AlignedVec::zeroed(numbers.len());
    }
    out.par_chunks_mut(CHUNK).zip(numbers.par_chunks(CHUNK)).for_each(|(out, numbers)| {
        out.iter_mut().zip(numbers).for_each(|(out, &number)| *out = bf16::from_f32(number));
    });
}

/// Sixteen sums side by side, which the compiler turns into vector code.
fn sum_of(numbers: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, number)| *lane += number);
    }
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

/// Gives each part the rows that belong to it, in parallel.
pub(super) fn for_each_part<T: Element, W: Send>(
    rows: RowsMut<'_, T>,
    parts: &[Part],
    work: &mut [W],
    run: &(impl Fn(RowsMut<'_, T>, &Part, &mut W) + Sync),
) {
    match parts {
        [] => {}
        [part] => run(rows, part, &mut work[0]),
        _ => {
            let middle = parts.len() / 2;
            let (left, right) = parts.split_at(middle);
            let (left_work, right_work) = work.split_at_mut(middle);
            let (left_rows, right_rows) = rows.split_at(right[0].first_key - left[0].first_key);
            rayon::join(
                || for_each_part(left_rows, left, left_work, run),
                || for_each_part(right_rows, right, right_work, run),
            );
        }
    }
}

/// Adds the parts' shares of the embeddings' gradient, in the order of parts.
fn sum_parts(work: &[Work], stride: usize, out: &mut [f32]) {
    out.par_chunks_mut(stride).enumerate().for_each(|(example, out)| {
        out.fill(0.0);
        for work in work {
            let share = &work.d_embeddings[example * stride..][..stride];
            out.iter_mut().zip(share).for_each(|(sum, x)| *sum += x);
        }
    });
}
