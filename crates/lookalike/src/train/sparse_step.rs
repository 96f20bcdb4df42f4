//! Training of the sparse part: gradient descent on a softmax over each
//! example's true labels and the classes nearest to it.
//!
//! The sparse part has its own loss beside the network's, so that each of the
//! two is a good model by itself and their sum a better one; trained on one
//! common loss, each leaves to the other what it finds hard, and the sum is
//! worse (docs/notes/accuracy.md). Plain gradient descent: an entry is touched
//! by few examples, and moments would triple its memory.
//!
//! A class's row starts from its own examples, so a training example finds its
//! true labels too easily, most of all those with few examples, and what is learnt
//! from it would favour frequent classes. What an example itself has put into a
//! true label's score is therefore taken out again, divided by the number of its
//! labels: in full it helps where labels are few and hurts where they are many.
//!
//! The walk is that of the output layer: pairs are turned around, a class's row
//! is spread over a scratch row of all features once, and each of its examples
//! costs as many multiplications as it has features.

use std::ops::Range;

use lookalike_kernels::Cpu;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::turnaround::{Pairs, Part, Turnaround, grow};
use crate::data::Examples;
use crate::hashing::PerThread;
use crate::model::{MeanRows, Normalise, SparsePart, SparseStart};
use crate::sampling::{FeatureIndex, NearClasses, Truths};

/// The sparse part's settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SparseConfig {
    /// The first so many epochs train it.
    pub epochs: usize,
    /// Learning rate, an example; falls to zero over those epochs. See also
    /// [`SparseStart::rate`](crate::model::SparseStart::rate).
    pub rate: f32,
    /// What a class scores at the start for an example that is its centroid.
    pub start: f32,
    /// Nearest classes that are negatives, for the sparse part and, within its
    /// budget, for a sampler with hash tables.
    pub negatives: usize,
    /// Weights a class at most.
    pub entries_max: usize,
    /// Examples held out to choose the blend, at most; never more than 5%.
    pub held_out: usize,
    /// Whether the model keeps its training examples, if that ranks held-out ones
    /// better: see [`Neighbours`](crate::model::Neighbours).
    pub neighbours: bool,
}

impl Default for SparseConfig {
    fn default() -> Self {
        Self {
            epochs: 2,
            rate: 10.0,
            start: 12.0,
            negatives: 50,
            entries_max: 2000,
            held_out: 1000,
            neighbours: true,
        }
    }
}

impl SparseConfig {
    /// How a sparse part starts.
    pub fn mean_rows(&self, start: SparseStart) -> MeanRows {
        MeanRows { start, length: self.start, entries_max: self.entries_max }
    }
}

/// Buffers of the sparse part's step, kept between batches, and the index that
/// finds its negatives.
#[derive(Debug, Default)]
pub(super) struct SparseStep {
    /// By class: what one of its examples has put into its score.
    own: Vec<f32>,
    /// By class: what its frequency adds to its score.
    priors: Vec<f32>,
    index: FeatureIndex,
    near: NearClasses,
    turnaround: Turnaround,
    work: Vec<Vec<f32>>,
    /// Scores, then gradients: a row an example, true labels first.
    scores: Vec<f32>,
    factors: Vec<f32>,
    workers: PerThread<Vec<f32>>,
}

/// What a batch is for the walk: places are `position · stride + candidate`.
struct NearPairs<'a> {
    batch: Batch<'a>,
    near: &'a NearClasses,
}

#[derive(Clone, Copy)]
struct Batch<'a> {
    examples: &'a Examples<'a>,
    ids: &'a [u32],
    factors: &'a [f32],
    stride: usize,
}

impl<'a> Batch<'a> {
    fn labels(&self, position: usize) -> &'a [u32] {
        self.examples.labels(self.ids[position] as usize)
    }

    /// Features of the example at a place.
    fn features(&self, place: u32) -> (&'a [u32], &'a [f32], f32) {
        let position = place as usize / self.stride;
        let (ids, values) = self.examples.features(self.ids[position] as usize);
        (ids, values, self.factors[position])
    }
}

impl Pairs for NearPairs<'_> {
    fn num_examples(&self) -> usize {
        self.batch.ids.len()
    }

    fn for_each(&self, example: usize, mut visit: impl FnMut(u32, u32)) {
        let classes = self.batch.labels(example).iter().chain(self.near.of(example));
        for (place, &class) in ((example * self.batch.stride) as u32..).zip(classes) {
            visit(class, place);
        }
    }
}

impl SparseStep {
    /// Starts with what each class's examples and frequency add to its score.
    pub(super) fn start(&mut self, own: Vec<f32>, priors: Vec<f32>) {
        (self.own, self.priors) = (own, priors);
    }

    /// What the frequency of each class adds to its score.
    pub(super) fn priors(&self) -> &[f32] {
        &self.priors
    }

    /// Makes the index again.
    pub(super) fn refresh(&mut self, sparse: &SparsePart, num_features: usize) {
        self.index.refresh(sparse, &self.priors, num_features);
    }

    /// Finds the classes near each example of a batch.
    pub(super) fn propose(
        &mut self,
        examples: &Examples<'_>,
        batch: &[u32],
        normalise: Normalise,
        wanted: usize,
        truths: Truths,
    ) -> &NearClasses {
        self.index.propose(examples, batch, normalise, wanted, truths, &mut self.near);
        &self.near
    }

    /// The classes that [`propose`](Self::propose) found last.
    pub(super) fn near(&self) -> &NearClasses {
        &self.near
    }

    /// Moves the rows of the true labels and the near classes of a batch.
    pub(super) fn run(
        &mut self,
        cpu: Cpu,
        sparse: &mut SparsePart,
        examples: &Examples<'_>,
        batch: &[u32],
        normalise: Normalise,
        rate: f32,
    ) {
        let labels_max = batch.iter().map(|&i| examples.labels(i as usize).len()).max().unwrap_or(0);
        let stride = labels_max + self.near.stride();
        self.factors.clear();
        self.factors.extend(batch.iter().map(|&i| normalise.factor(examples.features(i as usize).1)));
        let view = Batch { examples, ids: batch, factors: &self.factors, stride };
        let entry_bits = usize::BITS - (batch.len() * stride).leading_zeros();
        let pairs = NearPairs { batch: view, near: &self.near };
        self.turnaround.turn(cpu, &pairs, sparse.num_classes(), entry_bits);
        let parts = self.turnaround.parts();
        self.work.resize_with(parts.len().max(self.work.len()), Vec::default);
        self.workers.prepare();
        let (workers, num_features) = (&self.workers, examples.num_features);
        self.work[..parts.len()].par_iter_mut().zip(parts).for_each(|(scores, part)| {
            workers.with(|row| {
                row.resize(num_features, 0.0);
                score_part(sparse, part, view, row, scores);
            });
        });
        grow(&mut self.scores, batch.len() * stride);
        for (scores, part) in self.work.iter().zip(parts) {
            for (&place, &score) in part.entries.iter().zip(scores) {
                self.scores[place as usize] = score;
            }
        }
        let (near, own, priors) = (&self.near, &self.own, &self.priors);
        self.scores[..batch.len() * stride].par_chunks_mut(stride).enumerate().for_each(|(position, row)| {
            let (labels, near) = (view.labels(position), near.of(position));
            let row = &mut row[..labels.len() + near.len()];
            for (score, &class) in row.iter_mut().zip(labels.iter().chain(near)) {
                *score += priors[class as usize];
            }
            for (score, &class) in row.iter_mut().zip(labels) {
                *score -= own[class as usize] / labels.len() as f32;
            }
            softmax_gradient(row, labels.len());
        });
        let (offsets, features, weights) = sparse.parts_mut();
        let rows = SparseRows { offsets, features, weights, first: 0 };
        let scores = &self.scores;
        for_each_part(rows, parts, &|mut rows, part| {
            workers.with(|gradient| rows.update(part, view, scores, rate, gradient));
        });
    }
}

fn score_part(sparse: &SparsePart, part: &Part, batch: Batch<'_>, row: &mut [f32], scores: &mut Vec<f32>) {
    scores.clear();
    for (local, range) in part.groups() {
        let (features, weights) = sparse.row(part.first_key + local);
        for (&feature, &weight) in features.iter().zip(weights) {
            row[feature as usize] = weight;
        }
        scores.extend(part.entries[range].iter().map(|&place| {
            let (ids, values, factor) = batch.features(place);
            let products = ids.iter().zip(values).map(|(&id, &value)| row[id as usize] * value);
            factor * products.sum::<f32>()
        }));
        for &feature in features {
            row[feature as usize] = 0.0;
        }
    }
}

/// Labels of an example that count, at most.
const LABELS_COUNTED: usize = 5;

/// Turns scores, true labels first, into `w · (p - t)` with `t = 1/|y|`. An
/// example counts `w` times, once for each label as precision does, and precision
/// at five sees no more than five of them. With `w = 1` it would be recall that is
/// optimised (Menon et al., Multilabel reductions, 2019).
fn softmax_gradient(scores: &mut [f32], truths: usize) {
    if truths == 0 {
        return scores.fill(0.0);
    }
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|x| *x = (*x - max).exp());
    let weight = truths.min(LABELS_COUNTED) as f32;
    let factor = weight / scores.iter().sum::<f32>();
    scores.iter_mut().for_each(|x| *x *= factor);
    scores[..truths].iter_mut().for_each(|x| *x -= weight / truths as f32);
}

/// Sparse rows of consecutive classes that one thread owns for a while.
struct SparseRows<'a> {
    offsets: &'a [u64],
    features: &'a [u32],
    weights: &'a mut [f32],
    /// The entry that `weights` starts with.
    first: usize,
}

impl SparseRows<'_> {
    fn split_at(self, class: usize) -> (Self, Self) {
        let Self { offsets, features, weights, first } = self;
        let middle = offsets[class] as usize;
        let (left, right) = weights.split_at_mut(middle - first);
        (
            Self { offsets, features, weights: left, first },
            Self { offsets, features, weights: right, first: middle },
        )
    }

    /// `gradient` is a row of all features, zero before and after.
    fn update(&mut self, part: &Part, batch: Batch<'_>, scores: &[f32], rate: f32, gradient: &mut Vec<f32>) {
        gradient.resize(batch.examples.num_features, 0.0);
        for (local, range) in part.groups() {
            let places = &part.entries[range];
            for &place in places {
                let (ids, values, factor) = batch.features(place);
                let step = scores[place as usize] * factor;
                for (&id, &value) in ids.iter().zip(values) {
                    gradient[id as usize] += step * value;
                }
            }
            let class = part.first_key + local;
            let row: Range<usize> = self.offsets[class] as usize..self.offsets[class + 1] as usize;
            let weights = &mut self.weights[row.start - self.first..row.end - self.first];
            for (&feature, weight) in self.features[row].iter().zip(weights) {
                *weight -= rate * gradient[feature as usize];
            }
            for &place in places {
                for &id in batch.features(place).0 {
                    gradient[id as usize] = 0.0;
                }
            }
        }
    }
}

/// Gives each part the rows that belong to it, in parallel.
fn for_each_part(rows: SparseRows<'_>, parts: &[Part], run: &(impl Fn(SparseRows<'_>, &Part) + Sync)) {
    match parts {
        [] => {}
        [part] => run(rows, part),
        _ => {
            let (left, right) = parts.split_at(parts.len() / 2);
            let (left_rows, right_rows) = rows.split_at(right[0].first_key);
            rayon::join(|| for_each_part(left_rows, left, run), || for_each_part(right_rows, right, run));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::random::{Stream, mix};

    const FEATURES: usize = 40;
    const CLASSES: usize = 70;
    const RATE: f32 = 0.5;

    /// Examples of none to seven labels and none to six features.
    fn data() -> Dataset {
        let mut data = Dataset::empty(FEATURES, CLASSES);
        for example in 0..90u64 {
            let random = |place: u64| mix(3, Stream::Data, example, place);
            let chosen = |count: u64, first: u64, below: usize| {
                let mut ids: Vec<u32> =
                    (0..count).map(|i| (random(first + i) % below as u64) as u32).collect();
                ids.sort_unstable();
                ids.dedup();
                ids
            };
            let features = chosen(example % 7, 0, FEATURES);
            let value = |id: u32| 0.5 + (random(50 + u64::from(id)) % 100) as f32 / 50.0;
            data.push(features.into_iter().map(|id| (id, value(id))), &chosen(example % 8, 100, CLASSES));
        }
        data
    }

    fn start(data: &Dataset, normalise: Normalise) -> SparsePart {
        let all: Vec<u32> = (0..data.view().len() as u32).collect();
        let start = MeanRows { start: SparseStart::Centroid, length: 2.0, entries_max: 9 };
        let (mut sparse, _) = SparsePart::from_means(&data.view(), &all, normalise, start);
        for (i, weight) in sparse.parts_mut().2.iter_mut().enumerate() {
            *weight += (i % 7) as f32 * 0.1 - 0.3;
        }
        sparse
    }

    fn own(class: usize) -> f32 {
        (class % 5) as f32 * 0.2
    }

    fn prior(class: usize) -> f32 {
        (class % 3) as f32 * 0.4
    }

    fn step() -> SparseStep {
        let mut step = SparseStep::default();
        step.start((0..CLASSES).map(own).collect(), (0..CLASSES).map(prior).collect());
        step
    }

    /// The loss of one example, from the formula, in f64.
    fn loss(
        sparse: &SparsePart,
        weights: &[f64],
        (ids, values): (&[u32], &[f64]),
        classes: &[u32],
        truths: usize,
    ) -> f64 {
        let scores: Vec<f64> = classes
            .iter()
            .enumerate()
            .map(|(place, &class)| {
                let class = class as usize;
                let own = if place < truths { f64::from(own(class)) / truths as f64 } else { 0.0 };
                let range = sparse.range(class);
                let weight = |id: &u32| {
                    sparse.features[range.clone()]
                        .iter()
                        .position(|f| f == id)
                        .map_or(0.0, |i| weights[range.start + i])
                };
                let product: f64 = ids.iter().zip(values).map(|(id, x)| weight(id) * x).sum();
                product + f64::from(prior(class)) - own
            })
            .collect();
        let log_sum = scores.iter().map(|s| s.exp()).sum::<f64>().ln();
        let weight = truths.min(LABELS_COUNTED) as f64 / truths.max(1) as f64;
        scores[..truths].iter().map(|s| log_sum - s).sum::<f64>() * weight
    }

    #[test]
    fn a_step_follows_the_gradient_of_the_softmax() {
        let data = data();
        let view = data.view();
        let batch: Vec<u32> = (0..view.len() as u32).rev().collect();
        assert!(batch.iter().any(|&i| view.labels(i as usize).is_empty()));
        assert!(
            batch
                .iter()
                .any(|&i| { view.features(i as usize).0.is_empty() && !view.labels(i as usize).is_empty() })
        );
        for normalise in [Normalise::L2, Normalise::None] {
            let mut sparse = start(&data, normalise);
            let before = sparse.clone();
            let mut step = step();
            step.refresh(&sparse, FEATURES);
            step.propose(&view, &batch, normalise, 5, Truths::LeftOut);
            step.run(Cpu::detect(), &mut sparse, &view, &batch, normalise, RATE);

            // The example's part of the loss, with the candidates it had.
            let examples: Vec<_> = batch
                .iter()
                .enumerate()
                .map(|(position, &example)| {
                    let (ids, values) = view.features(example as usize);
                    let factor = f64::from(normalise.factor(values));
                    let values: Vec<f64> = values.iter().map(|&x| f64::from(x) * factor).collect();
                    let truths = view.labels(example as usize);
                    (ids, values, [truths, step.near().of(position)].concat(), truths.len())
                })
                .collect();
            assert!(examples.iter().filter(|(_, _, classes, truths)| classes.len() > *truths).count() > 40);
            let mut weights: Vec<f64> = before.weights().iter().map(|&w| f64::from(w)).collect();
            let mut moved = 0;
            for class in 0..CLASSES {
                for entry in before.range(class) {
                    let mut total = |shift: f64| {
                        let old = std::mem::replace(
                            &mut weights[entry],
                            f64::from(before.weights()[entry]) + shift,
                        );
                        let sum: f64 = examples
                            .iter()
                            .filter(|(_, _, classes, _)| classes.contains(&(class as u32)))
                            .map(|(ids, values, classes, truths)| {
                                loss(&before, &weights, (ids, values), classes, *truths)
                            })
                            .sum();
                        weights[entry] = old;
                        sum
                    };
                    const STEP: f64 = 1e-4;
                    let slope = (total(STEP) - total(-STEP)) / (2.0 * STEP);
                    let found = f64::from(sparse.weights()[entry]) - f64::from(before.weights()[entry]);
                    let expected = -f64::from(RATE) * slope;
                    assert!((found - expected).abs() < 1e-5, "class {class}: {found} {expected}");
                    moved += usize::from(found != 0.0);
                }
            }
            assert!(moved > before.num_entries() / 2, "{moved} of {} moved", before.num_entries());
        }
    }

    #[test]
    fn threads_change_no_bit_of_a_step() {
        let data = data();
        let view = data.view();
        let batch: Vec<u32> = (0..view.len() as u32).collect();
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut sparse = start(&data, Normalise::L2);
                let mut step = step();
                for _ in 0..3 {
                    step.refresh(&sparse, FEATURES);
                    step.propose(&view, &batch, Normalise::L2, 8, Truths::LeftOut);
                    step.run(Cpu::detect(), &mut sparse, &view, &batch, Normalise::L2, RATE);
                }
                sparse.weights().iter().map(|w| w.to_bits()).collect::<Vec<_>>()
            })
        };
        let one = run(1);
        assert_eq!(one, run(2));
        assert_eq!(one, run(3));
    }

    /// Buffers of a large batch must not leak into a small one.
    #[test]
    fn a_step_does_not_depend_on_the_steps_before_it() {
        let data = data();
        let view = data.view();
        let all: Vec<u32> = (0..view.len() as u32).collect();
        let run = |batches: &[&[u32]]| {
            let mut step = step();
            let mut sparse = SparsePart::default();
            for batch in batches {
                sparse = start(&data, Normalise::L2);
                step.refresh(&sparse, FEATURES);
                step.propose(&view, batch, Normalise::L2, 8, Truths::LeftOut);
                step.run(Cpu::detect(), &mut sparse, &view, batch, Normalise::L2, RATE);
            }
            sparse.weights().to_vec()
        };
        assert_eq!(run(&[&all, &all[5..9]]), run(&[&all[5..9]]));
    }
}
