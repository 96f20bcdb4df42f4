//! Examples in memory: sparse feature rows with their labels.

use rayon::prelude::*;

/// A borrowed view of examples, whoever owns them: a parsed file, a mapped
/// file, or arrays of a caller in another language.
///
/// Law: both offset slices have one element more than there are examples, start
/// at 0 and never fall; feature ids are below `num_features`, ascending and
/// distinct within an example; label ids are below `num_classes`, ascending and
/// distinct within an example; values are finite; weights are finite and not
/// negative, one an example or none at all. Whoever makes a view guarantees this;
/// readers rely on it.
#[derive(Clone, Copy, Debug)]
pub struct Examples<'a> {
    /// Where each example's features start.
    pub feature_offsets: &'a [u64],
    /// Feature ids of all examples, one after the other.
    pub feature_ids: &'a [u32],
    /// Values of the features, beside their ids.
    pub feature_values: &'a [f32],
    /// Where each example's labels start.
    pub label_offsets: &'a [u64],
    /// Label ids of all examples, one after the other.
    pub label_ids: &'a [u32],
    /// How much each example counts in training; empty if each counts 1.
    pub weights: &'a [f32],
    /// The number of features.
    pub num_features: usize,
    /// The number of classes.
    pub num_classes: usize,
}

impl<'a> Examples<'a> {
    /// The number of examples.
    pub fn len(&self) -> usize {
        self.feature_offsets.len().saturating_sub(1)
    }

    /// Whether there is no example.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ids and values of an example's features.
    pub fn features(&self, example: usize) -> (&'a [u32], &'a [f32]) {
        let range = span(self.feature_offsets, example);
        (&self.feature_ids[range.clone()], &self.feature_values[range])
    }

    /// An example's labels.
    pub fn labels(&self, example: usize) -> &'a [u32] {
        &self.label_ids[span(self.label_offsets, example)]
    }

    /// How much an example counts in training; 0 leaves it out.
    pub fn weight(&self, example: usize) -> f32 {
        self.weights.get(example).copied().unwrap_or(1.0)
    }

    /// Whether an example is trained on: it has a label and a weight.
    pub fn teaches(&self, example: usize) -> bool {
        !self.labels(example).is_empty() && self.weight(example) > 0.0
    }

    /// How many examples have each class as a label, those without weight left out.
    pub fn label_counts(&self) -> Vec<u32> {
        let mut counts = vec![0u32; self.num_classes];
        for example in (0..self.len()).filter(|&example| self.teaches(example)) {
            for &label in self.labels(example) {
                counts[label as usize] += 1;
            }
        }
        counts
    }
}

fn span(offsets: &[u64], i: usize) -> std::ops::Range<usize> {
    offsets[i] as usize..offsets[i + 1] as usize
}

/// Examples that own their memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// See [`Examples::feature_offsets`].
    pub feature_offsets: Vec<u64>,
    /// See [`Examples::feature_ids`].
    pub feature_ids: Vec<u32>,
    /// See [`Examples::feature_values`].
    pub feature_values: Vec<f32>,
    /// See [`Examples::label_offsets`].
    pub label_offsets: Vec<u64>,
    /// See [`Examples::label_ids`].
    pub label_ids: Vec<u32>,
    /// See [`Examples::weights`].
    pub weights: Vec<f32>,
    /// See [`Examples::num_features`].
    pub num_features: usize,
    /// See [`Examples::num_classes`].
    pub num_classes: usize,
}

impl Dataset {
    /// No example yet, of the given shape.
    pub fn empty(num_features: usize, num_classes: usize) -> Self {
        Self {
            feature_offsets: vec![0],
            feature_ids: Vec::new(),
            feature_values: Vec::new(),
            label_offsets: vec![0],
            label_ids: Vec::new(),
            weights: Vec::new(),
            num_features,
            num_classes,
        }
    }

    /// Appends an example. Its ids must obey the law of [`Examples`].
    pub fn push(&mut self, features: impl IntoIterator<Item = (u32, f32)>, labels: &[u32]) {
        for (id, value) in features {
            debug_assert!((id as usize) < self.num_features && value.is_finite());
            self.feature_ids.push(id);
            self.feature_values.push(value);
        }
        self.feature_offsets.push(self.feature_ids.len() as u64);
        debug_assert!(labels.iter().all(|&l| (l as usize) < self.num_classes));
        debug_assert!(labels.is_sorted_by(|a, b| a < b));
        self.label_ids.extend_from_slice(labels);
        self.label_offsets.push(self.label_ids.len() as u64);
    }

    /// A copy of the chosen examples, in the order given.
    pub fn select(examples: Examples<'_>, chosen: &[usize]) -> Self {
        let mut data = Self::empty(examples.num_features, examples.num_classes);
        for &example in chosen {
            let (ids, values) = examples.features(example);
            data.push(ids.iter().copied().zip(values.iter().copied()), examples.labels(example));
        }
        if !examples.weights.is_empty() {
            data.weights = chosen.iter().map(|&example| examples.weight(example)).collect();
        }
        data
    }

    /// The examples of all parts in order, with the sizes of the largest part.
    /// Copies in parallel: O(entries) and as much memory again.
    pub fn concat(parts: &[Dataset]) -> Self {
        Self {
            feature_offsets: concat_offsets(parts, |part| &part.feature_offsets),
            feature_ids: concat_entries(parts, |part| &part.feature_ids),
            feature_values: concat_entries(parts, |part| &part.feature_values),
            label_offsets: concat_offsets(parts, |part| &part.label_offsets),
            label_ids: concat_entries(parts, |part| &part.label_ids),
            weights: concat_weights(parts),
            num_features: parts.iter().map(|part| part.num_features).max().unwrap_or(0),
            num_classes: parts.iter().map(|part| part.num_classes).max().unwrap_or(0),
        }
    }

    /// A view of all examples.
    pub fn view(&self) -> Examples<'_> {
        Examples {
            feature_offsets: &self.feature_offsets,
            feature_ids: &self.feature_ids,
            feature_values: &self.feature_values,
            label_offsets: &self.label_offsets,
            label_ids: &self.label_ids,
            weights: &self.weights,
            num_features: self.num_features,
            num_classes: self.num_classes,
        }
    }
}

fn concat_entries<T: Copy + Default + Send + Sync>(
    parts: &[Dataset],
    pick: impl Fn(&Dataset) -> &Vec<T> + Sync,
) -> Vec<T> {
    let mut all = vec![T::default(); parts.iter().map(|part| pick(part).len()).sum()];
    let mut rest = &mut all[..];
    let mut slots = Vec::with_capacity(parts.len());
    for part in parts {
        let (slot, others) = rest.split_at_mut(pick(part).len());
        slots.push((slot, pick(part)));
        rest = others;
    }
    slots.into_par_iter().for_each(|(slot, entries)| slot.copy_from_slice(entries));
    all
}

/// Where only some parts have weights, the examples of the others count 1.
fn concat_weights(parts: &[Dataset]) -> Vec<f32> {
    if parts.iter().all(|part| part.weights.is_empty()) {
        return Vec::new();
    }
    let of_part = |part: &Dataset| -> Vec<f32> {
        let examples = part.view();
        (0..examples.len()).map(|example| examples.weight(example)).collect()
    };
    parts.iter().flat_map(of_part).collect()
}

fn concat_offsets(parts: &[Dataset], pick: impl Fn(&Dataset) -> &Vec<u64>) -> Vec<u64> {
    let mut all = vec![0];
    for part in parts {
        let entries_before = all[all.len() - 1];
        all.extend(pick(part)[1..].iter().map(|offset| entries_before + offset));
    }
    all
}
