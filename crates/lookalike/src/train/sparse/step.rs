//! Training of the sparse part: gradient descent on a softmax for each of an
//! example's true labels against the classes nearest to it.
//!
//! The sparse part has its own loss beside the network's, so that each of the
//! two is a good model by itself and their sum a better one; trained on one
//! common loss, each leaves to the other what it finds hard, and the sum is
//! worse (docs/notes/accuracy.md). True labels do not compete with each other
//! (`loss/each.rs`): where an example has many, or one that most examples have, a
//! common softmax never lets them be as certain as they are. Plain gradient descent: an entry is touched
//! by few examples, and moments would triple its memory.
//!
//! A class's row starts from its own examples, so a training example finds its
//! true labels too easily, most of all those with few examples, and what is learnt
//! from it would favour frequent classes. What an example itself has put into a
//! true label's score is therefore taken out again, divided by the number of its
//! labels: in full it helps where labels are few and hurts where they are many.
//!
//! The walk is that of the output layer: pairs are turned around, and a class is visited
//! with all of its examples. Features of an example that have a weight in the row of a class
//! are found once, by the visit that scores, and kept for the one that moves the row: half
//! of them have one. They are found in one of two ways, whichever is shorter: rows of some
//! hundred weights meet two or three examples in a batch. Either the places of the row's
//! weights are spread over all features, for O(weights) and one look a feature, or each
//! feature is searched in the row ([`common_ids`]), which costs three to four times that.
//!
//! Cost: O(features) a pair and O(weights / 16) a class, or O(weights) if that is less than
//! searching; of a move the weights once more, front to back. Memory: 8 bytes for each weight
//! that meets an example of the batch, and 4 bytes a feature a thread.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use lookalike_kernels::{Common, Cpu, SortedIds, common_ids, prefetch};
use rayon::prelude::*;

use super::super::by_key::{Pairs, PairsByKey, Part, SplitRows, for_each_part};
use crate::collective::{Ranges, Shard};
use crate::data::Examples;
use crate::loss::each_gradient;
use crate::model::{Normalise, SparsePart};
use crate::sampling::NearClasses;
use crate::scratch::{PerThread, extend, grow, make_room};

/// Buffers of the sparse part's step, kept between batches.
#[derive(Debug, Default)]
pub(super) struct SparseStep {
    by_class: PairsByKey,
    work: Vec<PartWork>,
    /// Scores, then gradients: a row an example, true labels first.
    scores: Vec<f32>,
    factors: Vec<f32>,
    workers: PerThread<Worker>,
}

/// Of each entry of a part, in order: its score, and the weights that its example meets.
#[derive(Debug, Default)]
struct PartWork {
    scores: Vec<f32>,
    met: Vec<Met>,
    /// How many of them are an entry's.
    counts: Vec<u32>,
}

/// A weight that an example meets in the row of a class.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    /// Its place in the row.
    place: u32,
    /// The value of its feature.
    value: f32,
}

/// What one thread needs.
#[derive(Debug, Default)]
struct Worker {
    search: RowSearch,
    /// By feature: its place in the row that is spread out, and one more; zero between rows.
    places: Vec<u32>,
    /// The gradient of a row, zero between classes.
    gradient: Vec<f32>,
}

/// Working memory to search features in a row.
#[derive(Debug, Default)]
struct RowSearch {
    firsts: Vec<u32>,
    common: Vec<Common>,
}

/// What a batch is for the walk: places are `position · stride + candidate`.
struct NearPairs<'a> {
    batch: SparseBatch<'a>,
    near: &'a NearClasses,
    /// The classes whose rows are here.
    here: Range<usize>,
}

#[derive(Clone, Copy)]
struct SparseBatch<'a> {
    examples: &'a Examples<'a>,
    ids: &'a [u32],
    factors: &'a [f32],
    stride: usize,
}

impl<'a> SparseBatch<'a> {
    fn labels(&self, position: usize) -> &'a [u32] {
        self.examples.labels(self.ids[position] as usize)
    }

    /// Features of the example at a place.
    fn features(&self, place: u32) -> (&'a [u32], &'a [f32], f32) {
        let (ids, values) = self.examples.features(self.ids[place as usize / self.stride] as usize);
        (ids, values, self.factor(place))
    }

    /// What the values of the example at a place are multiplied with.
    fn factor(&self, place: u32) -> f32 {
        self.factors[place as usize / self.stride]
    }
}

impl Pairs for NearPairs<'_> {
    fn num_examples(&self) -> usize {
        self.batch.ids.len()
    }

    fn for_each(&self, example: usize, mut visit: impl FnMut(u32, u32)) {
        let classes = self.batch.labels(example).iter().chain(self.near.of(example));
        let first = self.here.start as u32;
        for (place, &class) in ((example * self.batch.stride) as u32..).zip(classes) {
            if self.here.contains(&(class as usize)) {
                visit(class - first, place);
            }
        }
    }
}

impl SparseStep {
    /// Moves the rows of the true labels and the near classes of a batch. `own`
    /// says what one of a class's examples has put into its score. False if a
    /// weight is no number any more: the part has diverged. On several ranks each scores
    /// and moves the rows it has, and scores, which are one rank's each, are told to all.
    pub(super) fn run(
        &mut self,
        cpu: Cpu,
        (sparse, shard): (&mut SparsePart, &Shard),
        (own, near): (&[f32], &NearClasses),
        (examples, batch): (&Examples<'_>, &[u32]),
        normalise: Normalise,
        rate: f32,
    ) -> bool {
        let labels_max = batch.iter().map(|&i| examples.labels(i as usize).len()).max().unwrap_or(0);
        let stride = labels_max + near.stride();
        self.factors.clear();
        self.factors.extend(batch.iter().map(|&i| normalise.factor(examples.features(i as usize).1)));
        let view = SparseBatch { examples, ids: batch, factors: &self.factors, stride };
        let entry_bits = usize::BITS - (batch.len() * stride).leading_zeros();
        let pairs = NearPairs { batch: view, near, here: shard.classes() };
        let all = (Ranges::whole(sparse.num_classes()), None);
        self.by_class.sort(cpu, &pairs, all, entry_bits);
        let parts = self.by_class.parts();
        self.work.resize_with(parts.len().max(self.work.len()), PartWork::default);
        self.workers.prepare();
        let workers = &self.workers;
        self.work[..parts.len()].par_iter_mut().zip(parts).for_each(|(work, part)| {
            workers.with(|worker| work.score(cpu, sparse, part, view, worker));
        });
        grow(&mut self.scores, batch.len() * stride);
        if !shard.is_whole() {
            self.scores[..batch.len() * stride].fill(0.0);
        }
        for (work, part) in self.work.iter().zip(parts) {
            for (&place, &score) in part.entries.iter().zip(&work.scores) {
                self.scores[place as usize] = score;
            }
        }
        let (priors, first) = (sparse.priors(), shard.classes().start);
        let rows = self.scores[..batch.len() * stride].par_chunks_mut(stride).enumerate();
        rows.for_each(|(position, row)| {
            let (labels, near) = (view.labels(position), near.of(position));
            let weight = examples.weight(batch[position] as usize);
            let here = |class: u32| (class as usize).checked_sub(first).filter(|&row| row < priors.len());
            for (score, &class) in row.iter_mut().zip(labels.iter().chain(near)) {
                *score += here(class).map_or(0.0, |row| priors[row]);
            }
            for (score, &class) in row.iter_mut().zip(labels) {
                *score -= here(class).map_or(0.0, |row| weight * own[row] / labels.len() as f32);
            }
        });
        shard.collective().sum_f32(&mut self.scores[..batch.len() * stride]);
        let rows = self.scores[..batch.len() * stride].par_chunks_mut(stride).enumerate();
        rows.for_each(|(position, row)| {
            let (labels, near) = (view.labels(position), near.of(position));
            let row = &mut row[..labels.len() + near.len()];
            let weight = examples.weight(batch[position] as usize);
            // Precision at five sees no more than five labels. With a weight of 1 it would
            // be recall that is optimised (Menon et al., Multilabel reductions, 2019).
            let counted = labels.len().min(LABELS_COUNTED) as f32;
            each_gradient(row, labels.len(), weight * counted);
        });
        let (offsets, _, weights) = sparse.parts_mut();
        let rows = SparseRows { offsets, weights };
        let (scores, has_diverged) = (&self.scores, AtomicBool::new(false));
        for_each_part(rows, parts, &mut self.work[..parts.len()], &|mut rows, part, work| {
            if !workers.with(|worker| rows.update(part, work, view, scores, rate, &mut worker.gradient)) {
                has_diverged.store(true, Ordering::Relaxed);
            }
        });
        !has_diverged.into_inner()
    }
}

/// Lines of a row that are asked for while the row before is worked on: the hardware sees
/// the stream of a longer one.
const LINES_AHEAD: usize = 32;
const NUMBERS_PER_LINE: usize = 16;

/// Asks for the features and weights of a row to come near.
fn ask_for(features: &[u32], weights: &[f32]) {
    for at in (0..features.len()).step_by(NUMBERS_PER_LINE).take(LINES_AHEAD) {
        prefetch(features, at);
        prefetch(weights, at);
    }
}

/// Searching a feature in a row takes as long as so many of the row's weights take to be
/// spread out, more than looking its place up there takes.
const SEARCH_COST: usize = 4;

impl PartWork {
    fn score(
        &mut self,
        cpu: Cpu,
        sparse: &SparsePart,
        part: &Part,
        batch: SparseBatch<'_>,
        Worker { search, places, .. }: &mut Worker,
    ) {
        let num_asked = |entries: &[u32]| entries.iter().map(|&at| batch.features(at).0.len()).sum::<usize>();
        places.resize(batch.examples.num_features, 0);
        let room = num_asked(&part.entries).max(self.met.len());
        extend(&mut self.met, room);
        make_room(&mut self.scores, part.entries.len());
        make_room(&mut self.counts, part.entries.len());
        let mut met_before = 0;
        let mut groups = part.groups().peekable();
        while let Some((local, range)) = groups.next() {
            if let Some(&(next, _)) = groups.peek() {
                let (features, weights) = sparse.row(part.first_key + next);
                ask_for(features, weights);
            }
            let (features, weights) = sparse.row(part.first_key + local);
            let entries = &part.entries[range];
            let is_spread = features.len() <= SEARCH_COST * num_asked(entries);
            if is_spread {
                (1..).zip(features).for_each(|(place, &feature)| places[feature as usize] = place);
            }
            let row = (!is_spread).then(|| SortedIds::new(features, &mut search.firsts));
            for &entry in entries {
                let (ids, values, factor) = batch.features(entry);
                let met = &mut self.met[met_before..];
                let count = match row {
                    Some(row) => look_for(cpu, row, (ids, values), &mut search.common, met),
                    None => look_up(places, (ids, values), met),
                };
                let products = met[..count].iter().map(|met| weights[met.place as usize] * met.value);
                self.scores.push(factor * products.sum::<f32>());
                self.counts.push(count as u32);
                met_before += count;
            }
            if is_spread {
                features.iter().for_each(|&feature| places[feature as usize] = 0);
            }
        }
    }
}

/// Writes what an example meets in a row that is spread out; gives how much it is.
fn look_up(places: &[u32], (ids, values): (&[u32], &[f32]), met: &mut [Met]) -> usize {
    let mut count = 0;
    for (&id, &value) in ids.iter().zip(values) {
        let place = places[id as usize];
        // Always written, counted only where there is one: no branch to miss.
        met[count] = Met { place: place.wrapping_sub(1), value };
        count += usize::from(place != 0);
    }
    count
}

/// The same by searching.
fn look_for(
    cpu: Cpu,
    row: SortedIds<'_>,
    (ids, values): (&[u32], &[f32]),
    common: &mut Vec<Common>,
    met: &mut [Met],
) -> usize {
    if common.len() < ids.len() {
        extend(common, ids.len());
    }
    let count = common_ids(cpu, row, ids, common);
    for (met, found) in met.iter_mut().zip(&common[..count]) {
        *met = Met { place: found.in_row, value: values[found.in_list as usize] };
    }
    count
}

/// Weights this large, or no numbers at all, are not the beginning of anything: the
/// scores of the network are lost beside them.
const DIVERGED_FROM: f32 = 1e12;

/// Labels of an example that count, at most: it counts once for each, as precision
/// does.
pub(crate) const LABELS_COUNTED: usize = 5;

/// Sparse rows of consecutive classes that one thread owns for a while.
struct SparseRows<'a> {
    /// Where each of the rows starts among all entries, and one more.
    offsets: &'a [u64],
    /// Weights of these rows.
    weights: &'a mut [f32],
}

impl SplitRows for SparseRows<'_> {
    fn split_at(self, row: usize) -> (Self, Self) {
        let Self { offsets, weights } = self;
        let (left, right) = weights.split_at_mut((offsets[row] - offsets[0]) as usize);
        (Self { offsets: &offsets[..=row], weights: left }, Self { offsets: &offsets[row..], weights: right })
    }
}

impl SparseRows<'_> {
    /// False if a weight has run off.
    fn update(
        &mut self,
        part: &Part,
        work: &PartWork,
        batch: SparseBatch<'_>,
        scores: &[f32],
        rate: f32,
        gradient: &mut Vec<f32>,
    ) -> bool {
        let (mut is_sound, first) = (true, self.offsets[0] as usize);
        let mut met = &work.met[..];
        for (local, range) in part.groups() {
            let row = self.offsets[local] as usize - first..self.offsets[local + 1] as usize - first;
            let weights = &mut self.weights[row];
            if gradient.len() < weights.len() {
                extend(gradient, weights.len());
            }
            let gradient = &mut gradient[..weights.len()];
            for (&place, &count) in part.entries[range.clone()].iter().zip(&work.counts[range]) {
                let step = scores[place as usize] * batch.factor(place);
                let (of_entry, others) = met.split_at(count as usize);
                of_entry.iter().for_each(|met| gradient[met.place as usize] += step * met.value);
                met = others;
            }
            for (weight, gradient) in weights.iter_mut().zip(gradient) {
                *weight -= rate * std::mem::take(gradient);
                is_sound &= weight.abs() < DIVERGED_FROM;
            }
        }
        is_sound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::model::{MeanRows, SparseStart};
    use crate::random::{Stream, mix};
    use crate::sampling::{FeatureIndex, Truths};

    const FEATURES: usize = 40;
    const CLASSES: usize = 70;
    const RATE: f32 = 0.5;

    /// Examples of none to seven labels and none to six features, of three weights.
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
            data.weights.push([1.0, 0.5, 2.0][example as usize % 3]);
        }
        data
    }

    fn start(data: &Dataset, normalise: Normalise) -> SparsePart {
        let all: Vec<u32> = (0..data.view().len() as u32).collect();
        let start = MeanRows { start: SparseStart::Centroid, length: 2.0, entries_max: 9 };
        let (mut sparse, _) = SparsePart::from_means(&data.view(), &all, normalise, start, &counts());
        for (i, weight) in sparse.parts_mut().2.iter_mut().enumerate() {
            *weight += (i % 7) as f32 * 0.1 - 0.3;
        }
        sparse
    }

    fn own(class: usize) -> f32 {
        (class % 5) as f32 * 0.2
    }

    fn counts() -> Vec<u32> {
        (0..CLASSES as u32).map(|class| 1 + class % 3 * 40).collect()
    }

    fn near(
        sparse: &SparsePart,
        data: &Dataset,
        batch: &[u32],
        normalise: Normalise,
        wanted: usize,
    ) -> NearClasses {
        let (mut index, mut near) = (FeatureIndex::default(), NearClasses::default());
        index.refresh(sparse, FEATURES);
        index.propose(Cpu::detect(), (&data.view(), batch), normalise, wanted, Truths::LeftOut, &mut near);
        near
    }

    /// A step on a batch, with the near classes it had.
    fn run_step(
        step: &mut SparseStep,
        sparse: &mut SparsePart,
        data: &Dataset,
        batch: &[u32],
        normalise: Normalise,
        wanted: usize,
    ) -> NearClasses {
        let near = near(sparse, data, batch, normalise, wanted);
        let own: Vec<f32> = (0..CLASSES).map(own).collect();
        let (batch, whole) = ((&data.view(), batch), Shard::whole(CLASSES));
        step.run(Cpu::detect(), (sparse, &whole), (&own, &near), batch, normalise, RATE);
        near
    }

    /// The loss of one example, from the formula, in f64.
    fn loss(
        sparse: &SparsePart,
        weights: &[f64],
        (ids, values): (&[u32], &[f64]),
        classes: &[u32],
        (truths, of_example): (usize, f64),
    ) -> f64 {
        let scores: Vec<f64> = classes
            .iter()
            .enumerate()
            .map(|(place, &class)| {
                let class = class as usize;
                let own =
                    if place < truths { of_example * f64::from(own(class)) / truths as f64 } else { 0.0 };
                let range = sparse.range(class);
                let weight = |id: &u32| {
                    sparse.features[range.clone()]
                        .iter()
                        .position(|f| f == id)
                        .map_or(0.0, |i| weights[range.start + i])
                };
                let product: f64 = ids.iter().zip(values).map(|(id, x)| weight(id) * x).sum();
                product + f64::from(sparse.priors()[class]) - own
            })
            .collect();
        let negatives: f64 = scores[truths..].iter().map(|s| s.exp()).sum();
        let weight = truths.min(LABELS_COUNTED) as f64 / truths.max(1) as f64;
        scores[..truths].iter().map(|s| (negatives + s.exp()).ln() - s).sum::<f64>() * weight * of_example
    }

    #[test]
    fn a_step_follows_the_gradient_of_the_loss() {
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
            let near = run_step(&mut SparseStep::default(), &mut sparse, &data, &batch, normalise, 5);

            // The example's part of the loss, with the candidates it had.
            let examples: Vec<_> = batch
                .iter()
                .enumerate()
                .map(|(position, &example)| {
                    let (ids, values) = view.features(example as usize);
                    let factor = f64::from(normalise.factor(values));
                    let values: Vec<f64> = values.iter().map(|&x| f64::from(x) * factor).collect();
                    let truths = view.labels(example as usize);
                    let weight = f64::from(view.weight(example as usize));
                    (ids, values, [truths, near.of(position)].concat(), (truths.len(), weight))
                })
                .collect();
            assert!(examples.iter().filter(|(_, _, classes, truths)| classes.len() > truths.0).count() > 40);
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
                let mut step = SparseStep::default();
                for _ in 0..3 {
                    run_step(&mut step, &mut sparse, &data, &batch, Normalise::L2, 8);
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
            let mut step = SparseStep::default();
            let mut sparse = SparsePart::default();
            for batch in batches {
                sparse = start(&data, Normalise::L2);
                run_step(&mut step, &mut sparse, &data, batch, Normalise::L2, 8);
            }
            sparse.weights().to_vec()
        };
        assert_eq!(run(&[&all, &all[5..9]]), run(&[&all[5..9]]));
    }
}
