//! A step of the output layer over sampled candidates.
//!
//! The batch's (example, class) pairs are sorted by class. Where only the best classes of
//! each example are trained on, [`super::select`] leaves the others out first. Each class
//! row is then read once for its scores, and once more for both gradients and its update.
//! Rows belong to one part, parts to one thread at a time, and sums over parts are taken
//! in an order of parts ([`super`]), so the result is the same whatever the number of threads.
//!
//! Rows stored as bf16 meet embeddings rounded to bf16, once a batch: half the
//! bytes a pair, and an instruction of its own where the CPU has one. The
//! embeddings' own gradient stays f32.
//!
//! The layer may be a committee ([`super::members`]): each member then has scores, loss and
//! gradients of its own.
//!
//! Cost: O(pairs · width) arithmetic; rows touched · width · 6 numbers of memory
//! traffic (weights read twice and written once, moments read and written).

use lookalike_kernels::{AlignedVec, Cpu, Element, LANES, bf16};
use rayon::prelude::*;

use super::super::by_key::{Pairs, PairsByKey, Part, for_each_part};
use super::super::context::{PREFETCH_AHEAD, StepContext};
use super::super::stages::{Stage, StageClock, StageTimes};
use super::score::{Scorer, Shifts};
use super::select::{Found, Selection};
use super::{OutputLayer, rounding_noise, sum_shares};
use crate::collective::{RangeSums, Ranges, Reducer};
use crate::loss::{self, CandidateLoss, DRAWN, ExampleTerms, PartTerms, SPARED, TRUTH, entry};
use crate::model::Embeddings;
use crate::optim::{Divided, LayerMut, PairGradients, RowsMut, join_gradients};
use crate::sampling::{BitRows, Candidates};
use crate::scratch::{PerThread, grow, grow_aligned};

/// Pairs of which the loss takes care together, so soon after their scores were
/// written, or so shortly before their gradients are read, that they are in L1.
const PAIRS_AT_ONCE: usize = 2048;

/// Buffers of a step over candidates, kept between batches.
#[derive(Debug, Default)]
pub(crate) struct SampledStep {
    by_class: PairsByKey,
    work: Vec<PartScores>,
    pub(super) selection: Selection,
    /// By example: classes that were looked up.
    found: Vec<u32>,
    /// Whether some of them stay even if they are not among the best.
    spares: bool,
    /// By member.
    terms: Vec<ExampleTerms>,
    sums: PerThread<RangeSums<f32>>,
    /// The embeddings by member; only if there are several.
    divided: AlignedVec<f32>,
    /// The same, rounded; only if rows are.
    rounded: AlignedVec<bf16>,
    /// Their gradient, by member too.
    d_divided: AlignedVec<f32>,
    times: StageTimes,
}

/// A part's own scores and sums.
#[derive(Debug, Default)]
struct PartScores {
    /// By member: score of each entry, then its gradient.
    scores: Vec<f32>,
    /// By member: what the loss knows of them.
    terms: Vec<PartTerms>,
    /// By member and example: this part's share of the embedding's gradient.
    d_embeddings: AlignedVec<f32>,
}

/// What a batch is for this step.
#[derive(Clone, Copy)]
pub(crate) struct Proposed<'a> {
    /// The classes to score.
    pub(crate) candidates: &'a Candidates,
    /// There if scores are corrected by class.
    pub(crate) class_log_q: Option<&'a [f32]>,
    /// How much each example counts; empty if each counts 1.
    pub(crate) weights: &'a [f32],
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
        let (spared, found) = found.split_at(counts.spared as usize);
        for (classes, flags) in [(truths, TRUTH), (spared, SPARED), (found, 0), (drawn, DRAWN)] {
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

impl SampledStep {
    /// Moves the rows of all candidates, writes the gradient of the embeddings
    /// and gives the batch's mean loss.
    pub(crate) fn run(
        &mut self,
        context: &StepContext,
        layer: OutputLayer<'_>,
        proposed: Proposed<'_>,
        embeddings: Embeddings<'_>,
        d_embeddings: &mut [f32],
    ) -> f64 {
        let mut clock = StageClock::start();
        let Proposed { candidates, class_log_q, weights } = proposed;
        let batch = candidates.len();
        let entry_bits = usize::BITS - (batch << lookalike_kernels::FLAG_BITS).leading_zeros();
        let usual = Some(context.candidates);
        self.by_class.sort(context.cpu, &CandidatePairs(candidates), (layer.ranges, usual), entry_bits);
        let parts = self.by_class.parts().len();
        self.work.resize_with(parts.max(self.work.len()), PartScores::default);
        let OutputLayer { rows, moments, ranges, reducer } = layer;
        self.prepare_terms(context, candidates, weights, reducer);
        clock.end(Stage::Sort);

        let stride = rows.stride;
        let view = ShardView { class_log_q, ranges };
        let (members, embeddings) = (context.members, embeddings.rows());
        let loss = match LayerMut::new(rows, moments) {
            LayerMut::F32(rows) => {
                let mut buffer = std::mem::take(&mut self.divided);
                let divided = match members {
                    1 => Divided::whole(embeddings, stride),
                    _ => Divided::among(members, embeddings, stride, &mut buffer),
                };
                let embeddings = (embeddings, divided);
                let loss = self.layer_step(context, rows, view, embeddings, reducer, &mut clock);
                self.divided = buffer;
                loss
            }
            LayerMut::Bf16(rows) => {
                let mut buffer = std::mem::take(&mut self.rounded);
                let divided = Divided::among(members, embeddings, stride, &mut buffer);
                let embeddings = (embeddings, divided);
                let loss = self.layer_step(context, rows, view, embeddings, reducer, &mut clock);
                self.rounded = buffer;
                loss
            }
        };
        let work = (self.by_class.parts(), &self.work[..]);
        if members == 1 {
            sum_shares(work, |work| &work.d_embeddings, (ranges, stride), &mut self.sums, d_embeddings);
            reducer.sums(d_embeddings);
        } else {
            grow_aligned(&mut self.d_divided, d_embeddings.len());
            let d_divided = &mut self.d_divided[..d_embeddings.len()];
            sum_shares(
                work,
                |work| &work.d_embeddings,
                (ranges, stride / members),
                &mut self.sums,
                d_divided,
            );
            reducer.sums(d_divided);
            join_gradients(d_divided, members, stride, d_embeddings);
        }
        clock.end(Stage::Update);
        self.times = clock.times();
        loss / batch.max(1) as f64
    }

    /// Scores, loss and update; gives the summed loss.
    fn layer_step<T: Element>(
        &mut self,
        context: &StepContext,
        rows: RowsMut<'_, T>,
        view: ShardView<'_>,
        (embeddings, divided): (&[f32], Divided<'_, T>),
        reducer: &mut dyn Reducer,
        clock: &mut StageClock,
    ) -> f64 {
        let loss = context.loss.over_candidates();
        let scorer = Scorer {
            cpu: context.cpu,
            rows: &*rows.w,
            shifts: Shifts { bias: &*rows.bias.w, class_log_q: view.class_log_q },
            embeddings,
            stride: rows.stride,
        };
        if let Some(keep) = context.keep {
            let found = Found { counts: &self.found, spares: self.spares };
            let parts = self.by_class.parts_mut();
            self.selection.run(&scorer, parts, found, keep, (view.first_class(), reducer));
            clock.end(Stage::Select);
        }
        self.score(&scorer, divided, loss);
        clock.end(Stage::Score);
        let sum = self.weigh(context.cpu, loss, view.ranges, reducer);
        clock.end(Stage::Loss);
        self.update(context, loss, rows, view.first_class(), divided);
        sum
    }

    /// Classes that the last step moved.
    pub(crate) fn touched(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_class
            .parts()
            .iter()
            .flat_map(|part| part.groups().map(|(class, _)| (part.first_key + class) as u32))
    }

    /// Where the last step's time went.
    pub(crate) fn stage_times(&self) -> StageTimes {
        self.times
    }

    /// (example, class) pairs that the last step scored.
    pub(crate) fn num_pairs(&self) -> usize {
        self.by_class.num_pairs()
    }

    /// Different classes among them.
    pub(crate) fn num_scored_classes(&self) -> usize {
        self.by_class.num_keys()
    }

    /// Pairs that were left when the best were selected.
    pub(crate) fn num_trained_pairs(&self) -> usize {
        self.by_class.parts().iter().map(|part| part.entries.len()).sum()
    }

    fn prepare_terms(
        &mut self,
        context: &StepContext,
        candidates: &Candidates,
        weights: &[f32],
        reducer: &mut dyn Reducer,
    ) {
        self.terms.resize_with(context.members, ExampleTerms::default);
        self.terms.iter_mut().for_each(|terms| terms.resize(candidates.len()));
        let (terms, others) = self.terms.split_first_mut().expect("a member at least");
        terms.num_truths = candidates.all_counts().iter().map(|counts| counts.truths as usize).sum();
        for (example, counts) in candidates.all_counts().iter().enumerate() {
            terms.target[example] = counts.truths as f32;
            terms.drawn_log_q[example] = if context.corrects_log_q { counts.drawn_log_q } else { 0.0 };
        }
        // Some of an example's labels may be in other shards.
        reducer.sums(&mut terms.target);
        let ExampleTerms { target, weight, .. } = terms;
        for (example, (target, weight)) in target.iter_mut().zip(weight).enumerate() {
            // The loss is the mean of the members'.
            let given = weights.get(example).copied().unwrap_or(1.0) / context.members as f32;
            let labels = *target;
            *weight = given * labels.min(context.labels_counted as f32);
            *target = *weight / labels.max(1.0);
        }
        others.iter_mut().for_each(|other| other.set_from(terms));
        self.spares = candidates.all_counts().iter().any(|counts| counts.spared > 0);
        self.found.clear();
        self.found.extend(candidates.all_counts().iter().map(|counts| counts.found));
    }

    /// Scores all pairs.
    fn score<T: Element>(
        &mut self,
        scorer: &Scorer<'_, T>,
        divided: Divided<'_, T>,
        loss: &dyn CandidateLoss,
    ) {
        let (parts, terms) = (self.by_class.parts(), &self.terms[0]);
        self.work[..parts.len()].par_iter_mut().zip(parts).for_each(|(work, part)| {
            work.score(scorer, divided, part, loss, terms);
        });
    }

    /// Turns scores into what gradients are made of; gives the summed loss.
    fn weigh(
        &mut self,
        cpu: Cpu,
        loss: &dyn CandidateLoss,
        ranges: Ranges,
        reducer: &mut dyn Reducer,
    ) -> f64 {
        let parts = self.by_class.parts();
        let work = &mut self.work[..parts.len()];
        let mut sum = 0.0;
        for (member, terms) in self.terms.iter_mut().enumerate() {
            loss.join_observed(&mut work.iter().map(|work| &work.terms[member]), terms, reducer);
            let known = &*terms;
            work.par_iter_mut().zip(parts).for_each(|(work, part)| {
                let pairs = part.entries.len();
                let scores = &mut work.scores[member * pairs..][..pairs];
                loss.weigh(cpu, scores, &part.entries, known, &mut work.terms[member]);
            });
            let parts = &mut work.iter().map(|work| &work.terms[member]);
            sum += loss.join_weighed(parts, terms, (ranges, reducer));
        }
        sum
    }

    fn update<T: Element>(
        &mut self,
        context: &StepContext,
        loss: &dyn CandidateLoss,
        rows: RowsMut<'_, T>,
        first_class: usize,
        divided: Divided<'_, T>,
    ) {
        let parts = self.by_class.parts();
        let terms = &self.terms;
        let (batch, members) = (terms[0].len(), terms.len());
        let coded = context.keep.map(|_| self.selection.coded_classes());
        let work = &mut self.work[..parts.len()];
        for_each_part((rows, coded), parts, work, &|(mut rows, mut coded), part, work| {
            let PartScores { scores, terms: part_terms, d_embeddings, .. } = work;
            let (stride, distance) = (rows.stride, part.entries.len());
            grow_aligned(d_embeddings, batch * stride);
            d_embeddings[..batch * stride].fill(0.0);
            let mut finished = 0;
            for (i, (local, range)) in part.groups().enumerate() {
                if finished < range.end {
                    let end = range.end.max(finished + PAIRS_AT_ONCE).min(part.entries.len());
                    for (member, (terms, part_terms)) in terms.iter().zip(&*part_terms).enumerate() {
                        let scores = &mut scores[member * distance..][..distance];
                        loss.gradients(context.cpu, scores, &part.entries, finished..end, terms, part_terms);
                    }
                    finished = end;
                }
                let entries = &part.entries[range.clone()];
                let pairs = PairGradients { rows: divided, entries, g: &scores[range.start..], distance };
                let of_bias = (0..members).map(|member| sum_of(&scores[member * distance..][range.clone()]));
                let noise = rounding_noise(context, first_class + part.first_key + local);
                // Rows come from memory: later ones are prefetched while others are worked on.
                let soon = part.groups.get(i + PREFETCH_AHEAD).map(|soon| soon.local_key as usize);
                let row = rows.state(local, soon);
                context.adam.update_by_pairs(context.cpu, row, &pairs, d_embeddings, noise);
                rows.bias.update(local, &context.adam, of_bias.sum());
                if let Some(coded) = &mut coded {
                    coded.set(context.cpu, local, &rows.w[local * stride..][..stride]);
                    // Few of the classes are left: their neighbours do not bring these along.
                    if let Some(soon) = soon {
                        coded.prefetch(soon);
                        rows.bias.prefetch(soon);
                    }
                }
            }
        });
    }
}

impl PartScores {
    /// Scores the part's pairs and tells the loss of them, some at a time while they are
    /// in L1.
    fn score<T: Element>(
        &mut self,
        scorer: &Scorer<'_, T>,
        divided: Divided<'_, T>,
        part: &Part,
        loss: &dyn CandidateLoss,
        examples: &ExampleTerms,
    ) {
        let corrects_drawn = examples.drawn_log_q.iter().any(|&q| q != 0.0);
        let (members, pairs) = (divided.members(), part.entries.len());
        grow(&mut self.scores, members * pairs);
        self.terms.resize_with(members, PartTerms::default);
        self.terms.iter_mut().for_each(|terms| terms.start(examples.len(), part.range));
        let mut told = 0;
        for group in 0..part.groups.len() {
            let range = part.range(group);
            scorer.score(part, group, divided, &mut self.scores);
            if range.end - told < PAIRS_AT_ONCE && range.end < part.entries.len() {
                continue;
            }
            let ready = std::mem::replace(&mut told, range.end)..range.end;
            for (member, terms) in self.terms.iter_mut().enumerate() {
                let scores = &mut self.scores[member * pairs..][ready.clone()];
                let entries = &part.entries[ready.clone()];
                if corrects_drawn {
                    loss::correct_drawn(scores, entries, &examples.drawn_log_q);
                }
                loss.observe(scorer.cpu, scores, entries, terms);
            }
        }
    }
}

/// What of the layer only scoring and rounding ask for.
#[derive(Clone, Copy)]
struct ShardView<'a> {
    class_log_q: Option<&'a [f32]>,
    ranges: Ranges,
}

impl ShardView<'_> {
    fn first_class(&self) -> usize {
        self.ranges.keys().start
    }
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
