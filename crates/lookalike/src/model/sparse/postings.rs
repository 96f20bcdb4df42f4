//! Sparse weights by feature: what ranking all classes needs.
//!
//! A feature lists the classes that have a weight on it, so a query costs an addition for
//! each weight of its features. On real data most of those additions are for a few frequent
//! features that a good part of all classes weigh. These have a bit for each class besides:
//! their weights are added 16 classes at a time, in the same order and with the same bits
//! ([`add_expanded`]). Memory: 8 bytes a weight, and at most a quarter more for the bits.

use std::ops::Range;
use std::sync::OnceLock;

use lookalike_kernels::{Cpu, LANES, add_expanded};
use rayon::prelude::*;

use super::SparsePart;
use super::frequent::FrequentRows;

/// Pieces in which [`Postings`] are made: each looks for its features in every row, which with
/// many pieces takes longer than what it does there.
const PIECES: usize = 8;

/// The weights of a [`SparsePart`] by feature.
#[derive(Clone, Debug)]
pub struct Postings {
    offsets: Vec<u64>,
    classes: Vec<u32>,
    weights: Vec<f32>,
    /// For each feature where its bits start, or [`NO_BITS`].
    bits_from: Vec<u32>,
    /// Bits of the classes that have a weight, those of a feature padded to whole masks.
    bits: Vec<u16>,
    num_classes: usize,
    /// The largest weight of all, infinite where one is not finite.
    largest: f32,
    /// Of the features that have bits; made on first use.
    frequent: OnceLock<FrequentRows>,
}

/// A feature has bits if one class in so many or more has a weight on it. A mask of 16
/// classes costs about as much as two additions.
const CLASSES_PER_WEIGHT_MAX: usize = 16;
/// No bits of a feature start here.
const NO_BITS: u32 = u32::MAX;

impl Postings {
    pub(super) fn new(sparse: &SparsePart, num_features: usize) -> Self {
        let mut offsets = vec![0u64; num_features + 1];
        for &feature in &sparse.features {
            offsets[feature as usize + 1] += 1;
        }
        for i in 0..num_features {
            offsets[i + 1] += offsets[i];
        }
        let mut classes = vec![0; sparse.num_entries()];
        let mut weights = vec![0.0; sparse.num_entries()];
        // Each piece has a range of features with about as many weights, and takes its own
        // from every row.
        let quota = sparse.num_entries().div_ceil(PIECES).max(1) as u64;
        let mut pieces = Vec::with_capacity(PIECES + 1);
        let (mut free_classes, mut free_weights, mut first) = (&mut classes[..], &mut weights[..], 0);
        while first < num_features {
            let end = offsets[first + 1..].partition_point(|&end| end <= offsets[first] + quota);
            let end = (first + end).clamp(first + 1, num_features);
            let entries = (offsets[end] - offsets[first]) as usize;
            let (classes, other_classes) = free_classes.split_at_mut(entries);
            let (weights, other_weights) = free_weights.split_at_mut(entries);
            pieces.push((first..end, classes, weights));
            (free_classes, free_weights, first) = (other_classes, other_weights, end);
        }
        pieces.into_par_iter().for_each(|(features, classes, weights)| {
            let starts = &offsets[features.start..features.end];
            let mut next: Vec<usize> = starts.iter().map(|&start| (start - starts[0]) as usize).collect();
            for class in 0..sparse.num_classes() {
                let (row, values) = sparse.row(class);
                let from = row.partition_point(|&feature| (feature as usize) < features.start);
                for (&feature, &weight) in row[from..].iter().zip(&values[from..]) {
                    if feature as usize >= features.end {
                        break;
                    }
                    let place = &mut next[feature as usize - features.start];
                    (classes[*place], weights[*place]) = (class as u32, weight);
                    *place += 1;
                }
            }
        });
        let num_classes = sparse.num_classes();
        let (bits_from, bits) = bits_of_frequent(&offsets, &classes, num_classes);
        let larger = |most: f32, x: &f32| if x.is_finite() { most.max(x.abs()) } else { f32::INFINITY };
        let largest = weights.par_iter().fold(|| 0.0, larger).reduce(|| 0.0, f32::max);
        let frequent = OnceLock::new();
        Self { offsets, classes, weights, bits_from, bits, num_classes, largest, frequent }
    }

    /// The classes that have a weight on a feature, ascending, and the weights.
    pub fn of(&self, feature: u32) -> (&[u32], &[f32]) {
        let range = self.offsets[feature as usize] as usize..self.offsets[feature as usize + 1] as usize;
        (&self.classes[range.clone()], &self.weights[range])
    }

    /// Whether a good part of all classes have a weight on a feature.
    pub(super) fn is_frequent(&self, feature: u32) -> bool {
        self.bits_from[feature as usize] != NO_BITS
    }

    /// The weights on frequent features, about.
    pub fn frequent(&self) -> &FrequentRows {
        self.frequent.get_or_init(|| FrequentRows::new(self, self.bits_from.len(), self.num_classes))
    }

    /// The largest weight of all.
    pub fn largest(&self) -> f32 {
        self.largest
    }

    /// Adds `factor` times the weights on a feature to the scores of consecutive classes.
    /// `place` is how many of the feature's weights are those of earlier classes, and
    /// afterwards how many are those of these classes too.
    pub fn add(
        &self,
        cpu: Cpu,
        (feature, factor): (u32, f32),
        classes: Range<usize>,
        place: &mut u32,
        scores: &mut [f32],
    ) {
        let (posted, weights) = self.of(feature);
        let (posted, weights) = (&posted[*place as usize..], &weights[*place as usize..]);
        let from = self.bits_from[feature as usize];
        if from != NO_BITS && classes.start.is_multiple_of(LANES) {
            let masks = classes.start / LANES..classes.end.div_ceil(LANES);
            let masks = &self.bits[from as usize..][masks];
            *place += add_expanded(cpu, factor, masks, weights, scores) as u32;
            return;
        }
        let mut taken = 0;
        for (&class, weight) in posted.iter().zip(weights) {
            if class as usize >= classes.end {
                break;
            }
            scores[class as usize - classes.start] += factor * weight;
            taken += 1;
        }
        *place += taken;
    }

    /// As [`add`](Self::add), to the scores of all classes.
    pub fn add_to_all(&self, cpu: Cpu, weighted: (u32, f32), scores: &mut [f32]) {
        self.add(cpu, weighted, 0..scores.len(), &mut 0, scores);
    }
}

/// Where each feature's bits start, and the bits.
fn bits_of_frequent(offsets: &[u64], classes: &[u32], num_classes: usize) -> (Vec<u32>, Vec<u16>) {
    let masks = num_classes.div_ceil(LANES);
    let (mut bits_from, mut bits) = (Vec::with_capacity(offsets.len()), Vec::new());
    for range in offsets.windows(2) {
        let posted = &classes[range[0] as usize..range[1] as usize];
        let (from, is_frequent) = (bits.len(), posted.len() * CLASSES_PER_WEIGHT_MAX >= num_classes);
        // What lies beyond 32 bits does without.
        if !is_frequent || posted.is_empty() || from + masks > NO_BITS as usize {
            bits_from.push(NO_BITS);
            continue;
        }
        bits_from.push(from as u32);
        bits.resize(from + masks, 0);
        posted.iter().for_each(|&class| bits[from + class as usize / LANES] |= 1 << (class as usize % LANES));
    }
    (bits_from, bits)
}
