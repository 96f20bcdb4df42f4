//! What the sparse part starts from: chosen on examples held out from training,
//! before anything is trained.

use super::blend::{PLACES, precision};
use super::config::SparseConfig;
use crate::collective::Shard;
use crate::data::Examples;
use crate::model::{ExamplesOfClass, Model, Normalise, SparsePart, SparseStart};
use crate::sampling::{FeatureIndex, NearClasses, Truths};

/// How many times better logarithms must rank before training to be taken.
/// Centroids gain more by training: where both started alike, they ended ahead.
const LOG_LEAD: f64 = 1.5;

/// An example speaks against so many classes: the nearest that are not its labels.
const AGAINST_CLASSES: usize = 10;
/// So many examples, at most, are asked what they speak against: enough for the features
/// that matter, and 40 bytes each.
const AGAINST_EXAMPLES_MAX: usize = 1 << 18;

/// A sparse part for the examples `chosen`, from the start that ranks the
/// `held_out` ones better, with room for what speaks against each class; and what
/// [`SparsePart::from_means`] says of own examples.
pub(super) fn choose_start(
    config: &SparseConfig,
    (model, shard): (&Model, &Shard),
    examples: &Examples<'_>,
    chosen: &[u32],
    held_out: &[u32],
) -> (SparsePart, Vec<f32>) {
    let (normalise, counts) = (model.network.config.normalise, &model.frequencies.examples_of_class);
    let make = |start| {
        let rows = config.mean_rows(start);
        let classes = shard.classes();
        let (part, own) = SparsePart::from_means_of(classes, examples, chosen, normalise, rows, counts);
        let (mut index, mut near) = (FeatureIndex::default(), NearClasses::default());
        index.refresh_on(shard, &part, examples.num_features, counts);
        let places = PLACES.map(|(k, _)| k).into_iter().max().unwrap_or(1);
        index.propose(examples, held_out, normalise, places, Truths::Kept, &mut near);
        let truths = held_out.iter().map(|&example| examples.labels(example as usize));
        let value = truths.enumerate().map(|(i, truths)| precision(&PLACES, near.of(i), truths)).sum::<u64>();
        (value, part, own)
    };
    let (value, mut part, mut own) = make(SparseStart::Centroid);
    if !held_out.is_empty() {
        let (log_value, log_part, log_own) = make(SparseStart::LogMean);
        if log_value as f64 > LOG_LEAD * value as f64 {
            (part, own) = (log_part, log_own);
        }
    }
    let against = examples_against(&part, shard, examples, chosen, (normalise, counts));
    (part.with_features_against(examples, &against, shard.classes().start, normalise), own)
}

/// By class, the examples of `chosen` to which it is among the nearest without being a
/// label of theirs.
fn examples_against(
    part: &SparsePart,
    shard: &Shard,
    examples: &Examples<'_>,
    chosen: &[u32],
    (normalise, counts): (Normalise, &[u32]),
) -> ExamplesOfClass {
    // Spread over all of them.
    let count = chosen.len().min(AGAINST_EXAMPLES_MAX);
    let asked: Vec<u32> = (0..count).map(|i| chosen[i * chosen.len() / count]).collect();
    let (mut index, mut near) = (FeatureIndex::default(), NearClasses::default());
    index.refresh_on(shard, part, examples.num_features, counts);
    index.propose(examples, &asked, normalise, AGAINST_CLASSES, Truths::LeftOut, &mut near);
    ExamplesOfClass::of_lists(examples.num_classes, &asked, |place| near.of(place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::model::{ClassFrequencies, Network};
    use crate::train::TrainConfig;

    /// Class 0 has a hundred examples, each of one of fifty features of its own
    /// and one of fifty others; each of these others has a class to itself.
    fn spread_out() -> Dataset {
        let mut data = Dataset::empty(100, 51);
        (0..110).for_each(|i| data.push([(i % 50, 1.0), (50 + i * 7 % 50, 1.0)], &[0]));
        (0..50).for_each(|i| data.push([(50 + i, 1.0)], &[1 + i]));
        data
    }

    #[test]
    fn the_start_that_ranks_better_is_taken() {
        let data = spread_out();
        let (view, config) = (data.view(), SparseConfig::default());
        let shape = TrainConfig { hidden: vec![4], ..TrainConfig::default() }.network(100, 51);
        let model = Model::new(Network::zeroed(shape), ClassFrequencies::of(&view));
        let start = |held_out: &[u32]| {
            let chosen: Vec<u32> = (0..160).filter(|i| !held_out.contains(i)).collect();
            choose_start(&config, (&model, &Shard::whole(51)), &view, &chosen, held_out).0.start()
        };
        // The centroid of class 0 is near to none of its examples.
        assert_eq!(start(&[0, 10, 20, 30, 40]), SparseStart::LogMean);
        // Nobody to ask.
        assert_eq!(start(&[]), SparseStart::Centroid);
    }
}
