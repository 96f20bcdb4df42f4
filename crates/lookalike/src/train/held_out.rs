//! Which training examples judge what can't be told from what a model has seen: how much
//! its parts count, and what its scores mean.
//!
//! Of much data some are kept apart, and nobody trains on them. Of little data one in
//! twenty would be too few to judge and too many to miss. There further models are trained,
//! each without some of the examples, and judge these; the model itself is trained on all.

use super::config::TrainConfig;
use crate::data::Examples;
use crate::random::{Stream, mix};

/// One example in so many is kept apart at most.
const APART_OF: usize = 20;
/// So many examples kept apart are enough to judge.
const APART_ENOUGH: usize = 1000;
/// A fold is without one example in so many at most: it should know nearly as much as the
/// model that it judges for. And there are as many folds at most.
const FOLD_OF: usize = 10;
/// All folds take so many bytes at most.
const FOLDS_BYTES_MAX: u64 = 1 << 30;
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
        match folds > 0 && bytes <= FOLDS_BYTES_MAX {
            true => Self::InFolds(in_folds(order, most, folds, config.seed)),
            false => Self::Apart(hold_out(order, most, config.seed)),
        }
    }
}

/// How many further models so many examples take; none if enough can be kept apart.
fn num_folds(count: usize, most: usize) -> usize {
    let apart = count / APART_OF;
    let is_small = apart > 0 && apart < most.min(APART_ENOUGH);
    if is_small { most.div_ceil(count / FOLD_OF).min(FOLD_OF) } else { 0 }
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
    let mut held_out = by_lot(order, most.min(order.len() / APART_OF), seed);
    held_out.sort_unstable();
    order.retain(|i| held_out.binary_search(i).is_err());
    held_out
}

/// Deals up to `most` examples out to `folds`.
fn in_folds(order: &[u32], most: usize, folds: usize, seed: u64) -> Vec<Vec<u32>> {
    let drawn = by_lot(order, most.min(order.len() / FOLD_OF * folds), seed);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::train::SparseConfig;

    #[test]
    fn at_most_one_example_in_twenty_is_kept_apart() {
        let mut order: Vec<u32> = (0..100).collect();
        assert_eq!(hold_out(&mut order, 1000, 1).len(), 5);
        assert_eq!(order.len(), 95);
        let mut few: Vec<u32> = (0..19).collect();
        assert!(hold_out(&mut few, 1000, 1).is_empty());
        let mut one: Vec<u32> = (0..100).collect();
        let mut two: Vec<u32> = (0..100).collect();
        assert_ne!(hold_out(&mut one, 1000, 1), hold_out(&mut two, 1000, 2));
    }

    /// How many folds, of how many examples all together.
    #[test]
    fn as_many_folds_as_it_takes() {
        for (count, most, expected) in [
            (19, 2000, (0, 0)),
            (20, 2000, (10, 20)),
            (1000, 2000, (10, 1000)),
            (4880, 2000, (5, 2000)),
            (19_999, 2000, (2, 2000)),
            (20_000, 2000, (0, 0)),
            // As many as are wanted can be kept apart.
            (1000, 50, (0, 0)),
            (1000, 51, (1, 51)),
            (1000, 0, (0, 0)),
        ] {
            let folds = num_folds(count, most);
            let order: Vec<u32> = (0..count as u32).collect();
            let dealt = in_folds(&order, most, folds, 1);
            let mut all = dealt.concat();
            assert!(dealt.iter().all(|fold| fold.is_sorted() && fold.len() <= count / 10));
            assert_eq!((dealt.len(), all.len()), expected, "{count} examples, {most} wanted");
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), expected.1);
        }
    }

    #[test]
    fn models_that_take_too_much_memory_are_not_trained_besides() {
        let mut data = Dataset::empty(10, 4);
        (0..100).for_each(|i| data.push([(i % 10, 1.0)], &[i % 4]));
        let choose = |data: &Dataset| {
            let config =
                TrainConfig { calibrate: true, sparse: Some(SparseConfig::default()), ..Default::default() };
            HeldOut::choose(&mut (0..100).collect(), &config, &data.view())
        };
        assert!(matches!(choose(&data), HeldOut::InFolds(folds) if folds.len() == 10));
        data.num_classes = 1 << 20;
        assert!(matches!(choose(&data), HeldOut::Apart(apart) if apart.len() == 5));
    }

    /// A small network, and sparse weights that ten folds have no room for; or five would.
    #[test]
    fn sparse_weights_of_all_folds_take_memory_too() {
        let are_folds = |labels: u32, entries_max| {
            let mut data = Dataset::empty(10, labels as usize);
            let all: Vec<u32> = (0..labels).collect();
            (0..100).for_each(|_| data.push((0..10).map(|feature| (feature, 1.0)), &all));
            let sparse = Some(SparseConfig { entries_max, ..SparseConfig::default() });
            let config = TrainConfig { hidden: vec![16], sparse, ..TrainConfig::default() };
            matches!(
                HeldOut::choose(&mut (0..100).collect(), &config, &data.view()),
                HeldOut::InFolds(folds) if folds.len() == 10
            )
        };
        // A weight for and perhaps one against a class, 16 bytes each, of ten features of a
        // hundred examples.
        let fits = FOLDS_BYTES_MAX / (10 * 2 * SPARSE_WEIGHT_BYTES * 10 * 100);
        assert!(are_folds(fits as u32 * 9 / 10, 2000));
        assert!(!are_folds(fits as u32 * 11 / 10, 2000));
        // A class has no more weights than settings say.
        assert!(are_folds(fits as u32 * 11 / 10, 100));
    }

    #[test]
    fn another_seed_deals_other_folds() {
        let order: Vec<u32> = (0..1000).collect();
        let dealt = |seed| in_folds(&order, 200, 2, seed);
        assert_eq!(dealt(1), dealt(1));
        assert_ne!(dealt(1), dealt(2));
    }
}
