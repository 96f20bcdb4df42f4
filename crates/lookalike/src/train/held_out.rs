//! Which training examples judge what can't be told from what a model has seen: how much
//! its parts count, and what its scores mean.
//!
//! Of much data some are kept apart, and nobody trains on them. Of little data one in
//! twenty would be too few to judge and too many to miss. There further models are trained,
//! each without some of the examples, and judge these; the model itself is trained on all.

use super::config::TrainConfig;
use crate::data::Examples;
use crate::random::{Stream, mix};

/// Of examples kept apart so many are enough.
const APART_ENOUGH: usize = 1000;
/// A model is without one example in so many at most: one that judges should know as much
/// as the one that is judged.
const PER_HELD_OUT: usize = 10;
/// Examples of a fold are looked at together, and so are all models' bytes.
const BYTES_MAX: u64 = 1 << 30;
/// A sparse weight with its postings.
const SPARSE_WEIGHT_BYTES: u64 = 16;

/// Who is not trained on by whom.
#[derive(Debug, PartialEq)]
pub(super) enum HeldOut {
    /// These, by nobody.
    Apart(Vec<u32>),
    /// Each of these by one of as many further models.
    InFolds(Vec<Vec<u32>>),
}

impl HeldOut {
    /// Of examples that are trained on, up to as many as the settings want: the same ones
    /// for the same seed. Those that are kept apart are taken out of `order`.
    pub(super) fn choose(order: &mut Vec<u32>, config: &TrainConfig, examples: &Examples<'_>) -> Self {
        let most = config.held_out_max();
        let folds = num_folds(order.len(), most);
        let bytes = bytes_to_train(config, examples).saturating_mul(folds as u64);
        match folds > 0 && bytes <= BYTES_MAX {
            true => Self::InFolds(in_folds(order, most, folds, config.seed)),
            false => Self::Apart(hold_out(order, most, config.seed)),
        }
    }
}

/// How many further models so many examples take; none if enough can be kept apart.
fn num_folds(count: usize, most: usize) -> usize {
    let is_enough = count / 20 >= most.min(APART_ENOUGH);
    if count < 20 || is_enough { 0 } else { most.min(count).div_ceil(count / PER_HELD_OUT).min(PER_HELD_OUT) }
}

/// What one more model takes, with all that training needs.
fn bytes_to_train(config: &TrainConfig, examples: &Examples<'_>) -> u64 {
    let network = config.bytes_to_train(examples.num_features, examples.num_classes);
    let Some(sparse) = &config.sparse else { return network };
    let of_example = |i: usize| (examples.features(i).0.len() * examples.labels(i).len()) as u64;
    let of_labels: u64 = (0..examples.len()).map(of_example).sum();
    let of_classes = (examples.num_classes as u64).saturating_mul(sparse.entries_max as u64);
    // As many again may speak against a class.
    let weights = 2 * of_labels.min(of_classes);
    network.saturating_add(weights.saturating_mul(SPARSE_WEIGHT_BYTES))
}

/// Takes up to `most` examples, and never more than one in twenty, out of `order`.
pub(super) fn hold_out(order: &mut Vec<u32>, most: usize, seed: u64) -> Vec<u32> {
    let mut held_out = by_lot(order, most.min(order.len() / 20), seed);
    held_out.sort_unstable();
    order.retain(|i| held_out.binary_search(i).is_err());
    held_out
}

/// Deals up to `most` examples out to `folds`.
fn in_folds(order: &[u32], most: usize, folds: usize, seed: u64) -> Vec<Vec<u32>> {
    let drawn = by_lot(order, most.min(order.len() / PER_HELD_OUT * folds), seed);
    let fold = |fold: usize| {
        let mut held_out: Vec<u32> = drawn.iter().copied().skip(fold).step_by(folds).collect();
        held_out.sort_unstable();
        held_out
    };
    (0..folds).map(fold).collect()
}

fn by_lot(order: &[u32], count: usize, seed: u64) -> Vec<u32> {
    let mut keyed: Vec<(u64, u32)> =
        order.iter().map(|&i| (mix(seed, Stream::HoldOut, 0, u64::from(i)), i)).collect();
    keyed.sort_unstable();
    keyed[..count].iter().map(|&(_, i)| i).collect()
}
