//! Hard negatives for the sparse part: for each feature, the classes that weigh
//! it most.
//!
//! The classes that a [`SparsePart`] scores high for an example share its
//! telling features. Scoring all of them exactly walks every posting of every
//! feature, and common features have postings for most classes. Here each
//! feature lists only the [`LIST_MAX`] classes with the largest weights on it, and
//! an example asks only its [`FEATURES_MAX`] largest features, and the fewer it has
//! the more of each list: the sums over these lists, with what the frequency of each class adds, say well enough which
//! classes are near. Lists age as weights
//! move, and are made again when the schedule of the hash tables says so.
//!
//! Sums lie in the order of classes, sixteen in a line. Each addition marks its line, and
//! whether a class is met for the first time decides nothing: it would be as good as random,
//! and a branch on it be guessed wrongly half of the time.
//!
//! Cost: at most [`ADDITIONS_MAX`] additions an example and as many lines read, however many
//! classes there are, but for a byte for sixteen of them; O(entries) to make the lists. Five
//! bytes a class a thread.

use lookalike_kernels::{Cpu, LANES, indices_above, prefetch, take_positive};
use rayon::prelude::*;

use crate::best::Best;
use crate::collective::{Collective, Shard};
use crate::data::Examples;
use crate::model::{Normalise, SparsePart};
use crate::scratch::PerThread;

/// Classes in a feature's list at most.
const LIST_MAX: usize = 300;
/// Features of an example that are asked at most.
const FEATURES_MAX: usize = 20;
/// Features whose lists ranks tell each other at a time: ten megabytes at most.
const FEATURES_A_MESSAGE: usize = 4096;
const ENTRIES_PER_LINE: usize = 8;
/// List entries that an example walks at most.
const ADDITIONS_MAX: usize = 3000;

/// For each feature, the classes that weigh it most; see the module's description.
#[derive(Debug, Default)]
pub struct FeatureIndex {
    /// Where each feature's list starts, and one more.
    offsets: Vec<usize>,
    /// Classes with their weights, those that count most first.
    lists: Vec<(u32, f32)>,
    /// What the frequency of each class adds.
    priors: Vec<f32>,
    workers: PerThread<SumWorker>,
}

/// The lists of an index, to be kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeatureLists {
    /// Classes in each feature's list.
    pub lengths: Vec<u32>,
    /// The classes of all lists.
    pub classes: Vec<u32>,
    /// The weight of each.
    pub weights: Vec<f32>,
}

/// What one thread needs.
#[derive(Debug, Default)]
struct SumWorker {
    /// A sum a class, zero between examples.
    sums: Vec<f32>,
    /// For each line of sums whether any is not zero.
    marks: Vec<u8>,
    largest: Largest,
    /// Classes with a sum above 0, and their scores.
    classes: Vec<u32>,
    scores: Vec<f32>,
    maxima: Vec<f32>,
    found: Vec<u32>,
    best: Best,
}

/// Whether an example's true labels may be among the classes near it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truths {
    /// They may: who wants to know how well they are found.
    Kept,
    /// They may not: who wants negatives.
    LeftOut,
}

/// The nearest classes of each example of a batch.
#[derive(Clone, Debug, Default)]
pub struct NearClasses {
    stride: usize,
    classes: Vec<u32>,
    counts: Vec<u32>,
}

impl NearClasses {
    /// Those of an example, by its place in the batch.
    pub fn of(&self, position: usize) -> &[u32] {
        &self.classes[position * self.stride..][..self.counts[position] as usize]
    }

    /// The most that an example can have.
    pub fn stride(&self) -> usize {
        self.stride
    }
}

impl FeatureIndex {
    /// Makes the lists for the weights as they are now.
    pub fn refresh(&mut self, sparse: &SparsePart, num_features: usize) {
        self.take(largest_of(sparse, num_features, 0));
        self.priors.clear();
        self.priors.extend_from_slice(sparse.priors());
    }

    /// As [`refresh`](Self::refresh), where each rank has the weights of its own classes:
    /// all ranks get the lists of all classes. `class_counts` are those of all classes.
    pub fn refresh_on(
        &mut self,
        shard: &Shard,
        sparse: &SparsePart,
        num_features: usize,
        class_counts: &[u32],
    ) {
        if shard.is_whole() {
            return self.refresh(sparse, num_features);
        }
        self.priors = sparse.start().priors(class_counts);
        let own = largest_of(sparse, num_features, shard.classes().start as u32);
        let joined = own.chunks(FEATURES_A_MESSAGE);
        let joined = joined.flat_map(|own| join(shard.collective(), own, &self.priors)).collect();
        self.take(joined);
    }

    fn take(&mut self, lists: Vec<Vec<(u32, f32)>>) {
        self.offsets.clear();
        self.offsets.push(0);
        self.lists.clear();
        for list in lists {
            self.lists.extend(list);
            self.offsets.push(self.lists.len());
        }
    }

    /// The lists as the last refresh left them.
    pub fn lists(&self) -> FeatureLists {
        let lengths = self.offsets.windows(2).map(|bounds| (bounds[1] - bounds[0]) as u32);
        let (classes, weights) = self.lists.iter().copied().unzip();
        FeatureLists { lengths: lengths.collect(), classes, weights }
    }

    /// Makes the lists what they were when [`lists`](Self::lists) were taken of them.
    /// False, and nothing is changed, if they are not of a sparse part with so many features
    /// and these priors of all classes.
    pub fn restore(&mut self, lists: &FeatureLists, priors: &[f32], num_features: usize) -> bool {
        let FeatureLists { lengths, classes, weights } = lists;
        let total: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        let fits = lengths.len() == num_features
            && total == classes.len() as u64
            && classes.len() == weights.len()
            && classes.iter().all(|&class| (class as usize) < priors.len());
        if fits {
            self.offsets.clear();
            self.offsets.push(0);
            self.offsets.extend(lengths.iter().scan(0, |end, &length| {
                *end += length as usize;
                Some(*end)
            }));
            self.lists = classes.iter().copied().zip(weights.iter().copied()).collect();
            self.priors.clear();
            self.priors.extend_from_slice(priors);
        }
        fits
    }

    /// Finds up to `wanted` classes near each example of a batch, with the true
    /// labels among them or without.
    pub fn propose(
        &mut self,
        cpu: Cpu,
        (examples, batch): (&Examples<'_>, &[u32]),
        normalise: Normalise,
        wanted: usize,
        truths: Truths,
        out: &mut NearClasses,
    ) {
        out.stride = wanted.max(1);
        out.classes.resize(batch.len() * out.stride, 0);
        out.counts.resize(batch.len(), 0);
        self.workers.prepare();
        // What is found is the same with all instructions.
        let this = &*self;
        let slots = out.classes.par_chunks_mut(out.stride);
        slots.zip(&mut out.counts).zip(batch).with_min_len(16).for_each(|((slot, count), &example)| {
            this.workers.with(|worker| {
                let left_out =
                    if truths == Truths::LeftOut { examples.labels(example as usize) } else { &[] };
                let features = examples.features(example as usize);
                *count = this.search(cpu, features, left_out, normalise, worker, slot);
            });
        });
    }

    fn search(
        &self,
        cpu: Cpu,
        (ids, values): (&[u32], &[f32]),
        left_out: &[u32],
        normalise: Normalise,
        worker: &mut SumWorker,
        slot: &mut [u32],
    ) -> u32 {
        let SumWorker { sums, marks, largest, classes, scores, maxima, found, best } = worker;
        sums.resize(self.priors.len(), 0.0);
        marks.resize(self.priors.len().div_ceil(LANES), 0);
        classes.resize(ADDITIONS_MAX + LANES, 0);
        scores.resize(ADDITIONS_MAX + LANES, 0.0);
        let factor = normalise.factor(values);
        let each = ADDITIONS_MAX / ids.len().clamp(1, FEATURES_MAX);
        let asked = largest.of(values, factor);
        let list_of = |&at: &usize| {
            let list = &self.lists[self.offsets[ids[at] as usize]..self.offsets[ids[at] as usize + 1]];
            &list[..list.len().min(each)]
        };
        for (i, at) in asked.iter().enumerate() {
            // The next one is asked for while this one is added up.
            if let Some(next) = asked.get(i + 1).map(list_of) {
                (0..next.len()).step_by(ENTRIES_PER_LINE).for_each(|at| prefetch(next, at));
            }
            let value = values[*at] * factor;
            for &(class, weight) in list_of(at) {
                sums[class as usize] += value * weight;
                marks[class as usize / LANES] = 1;
            }
        }
        left_out.iter().for_each(|&class| sums[class as usize] = 0.0);
        let count = take_positive(cpu, sums, marks, &self.priors, classes, scores);
        let (classes, scores) = (&classes[..count], &scores[..count]);
        found.clear();
        indices_above(cpu, scores, reached_by(scores, slot.len(), maxima).next_down(), found);
        best.reset(slot.len());
        found.iter().for_each(|&i| best.offer(scores[i as usize], classes[i as usize]));
        let mut count = 0;
        for (place, (_, class)) in slot.iter_mut().zip(best.ranked()) {
            *place = class;
            count += 1;
        }
        count
    }
}

/// The places of the largest values of an example.
#[derive(Debug, Default)]
struct Largest {
    keys: Vec<u64>,
    places: Vec<usize>,
}

impl Largest {
    /// At most [`FEATURES_MAX`], in the order of features; of equal ones the first.
    fn of(&mut self, values: &[f32], factor: f32) -> &[usize] {
        self.places.clear();
        if values.len() <= FEATURES_MAX {
            self.places.extend(0..values.len());
        } else {
            // The bits of numbers that are not negative order as the numbers do.
            let key = |(place, value): (u32, &f32)| {
                u64::from((value * factor).abs().to_bits()) << 32 | u64::from(!place)
            };
            self.keys.clear();
            self.keys.extend((0..).zip(values).map(key));
            let (_, &mut last, _) = self.keys.select_nth_unstable_by(FEATURES_MAX - 1, |a, b| b.cmp(a));
            self.places
                .extend((0..).zip(values).filter(|&pair| key(pair) >= last).map(|(at, _)| at as usize));
        }
        &self.places
    }
}

/// Scores whose maximum is taken together, at least: the highest of some twenty are hardly
/// more than one of the best.
const MAXIMA_A_PLACE: usize = 2;

/// A score that `k` of the scores reach at least, and not many more: the `k`-th of the
/// maxima of equal shares. Of fewer than `k`, lower than any.
fn reached_by(scores: &[f32], k: usize, maxima: &mut Vec<f32>) -> f32 {
    let shares = k * MAXIMA_A_PLACE;
    if scores.len() <= shares {
        return f32::NEG_INFINITY;
    }
    maxima.clear();
    maxima.resize(shares, f32::NEG_INFINITY);
    for scores in scores.chunks(shares) {
        for (maximum, &score) in maxima.iter_mut().zip(scores) {
            *maximum = if score > *maximum { score } else { *maximum };
        }
    }
    *maxima.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1
}

/// For each feature the classes that weigh it most, the first of which is `first_class`.
fn largest_of(sparse: &SparsePart, num_features: usize, first_class: u32) -> Vec<Vec<(u32, f32)>> {
    let (postings, priors) = (sparse.postings(num_features), sparse.priors());
    let largest = |feature: u32| {
        let (classes, weights) = postings.of(feature);
        let entries = classes.iter().copied().zip(weights.iter().copied());
        let mut list: Vec<(u32, f32)> = entries.filter(|&(_, weight)| weight != 0.0).collect();
        leave_largest(&mut list, |class| priors[class as usize]);
        list.iter_mut().for_each(|(class, _)| *class += first_class);
        list
    };
    (0..num_features as u32).into_par_iter().map(largest).collect()
}

/// Leaves the classes that count most, those first.
fn leave_largest(list: &mut Vec<(u32, f32)>, prior: impl Fn(u32) -> f32) {
    let value = |&(class, weight): &(u32, f32)| weight + prior(class);
    let order = |a: &(u32, f32), b: &(u32, f32)| value(b).total_cmp(&value(a)).then(a.0.cmp(&b.0));
    if list.len() > LIST_MAX {
        list.select_nth_unstable_by(LIST_MAX - 1, order);
        list.truncate(LIST_MAX);
    }
    list.sort_unstable_by(order);
}

/// The lists of all classes, of some features of which each rank has those of its own.
fn join(collective: &dyn Collective, own: &[Vec<(u32, f32)>], priors: &[f32]) -> Vec<Vec<(u32, f32)>> {
    let lengths: Vec<u32> = own.iter().map(|list| list.len() as u32).collect();
    let lengths = collective.gather(&lengths);
    let entries: Vec<[u32; 2]> = own.iter().flatten().map(|&(class, w)| [class, w.to_bits()]).collect();
    let texts = collective.gather_texts(bytemuck::cast_slice(&entries));
    let mut lists = vec![Vec::new(); own.len()];
    for (lengths, text) in lengths.chunks_exact(own.len()).zip(&texts) {
        let mut entries = text.chunks_exact(8).map(|entry| {
            let [class, weight] = [0, 4].map(|at| bytemuck::pod_read_unaligned::<u32>(&entry[at..at + 4]));
            (class, f32::from_bits(weight))
        });
        for (list, &length) in lists.iter_mut().zip(lengths) {
            list.extend(entries.by_ref().take(length as usize));
        }
    }
    lists.par_iter_mut().for_each(|list| leave_largest(list, |class| priors[class as usize]));
    lists
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::model::{MeanRows, SparseStart};

    #[test]
    fn near_classes_are_the_best_scored_ones_without_the_truth() {
        let mut data = Dataset::empty(6, 4);
        data.push([(0, 1.0), (1, 1.0)], &[0]);
        data.push([(1, 1.0), (2, 1.0)], &[1]);
        data.push([(0, 1.0), (1, 3.0)], &[2]);
        data.push([(5, 1.0)], &[3]);
        let (view, cpu) = (data.view(), Cpu::detect());
        let start = MeanRows { start: SparseStart::Centroid, length: 1.0, entries_max: 9 };
        let (mut sparse, _) = SparsePart::from_means(&view, &[0, 1, 2, 3], Normalise::L2, start, &[1; 4]);
        let mut index = FeatureIndex::default();
        index.refresh(&sparse, 6);
        let mut near = NearClasses::default();
        index.propose(cpu, (&view, &[0, 3, 1]), Normalise::L2, 5, Truths::LeftOut, &mut near);
        assert_eq!(near.of(0), [2, 1]);
        assert!(near.of(1).is_empty());
        assert_eq!(near.of(2), [2, 0]);
        index.propose(cpu, (&view, &[0]), Normalise::L2, 1, Truths::LeftOut, &mut near);
        assert_eq!(near.of(0), [2]);
        index.propose(cpu, (&view, &[3]), Normalise::L2, 5, Truths::Kept, &mut near);
        assert_eq!(near.of(0), [3]);
        // A frequent class comes first, if it is near at all.
        sparse.set_class_counts(&[1, u32::MAX, 1, u32::MAX]);
        index.refresh(&sparse, 6);
        index.propose(cpu, (&view, &[0]), Normalise::L2, 5, Truths::LeftOut, &mut near);
        assert_eq!(near.of(0), [1, 2]);
    }
}
