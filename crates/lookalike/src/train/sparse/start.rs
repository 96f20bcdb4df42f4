//! What the sparse part starts from: chosen on examples held out from training,
//! before anything is trained.

use lookalike_kernels::Cpu;

use super::blend::{PLACES, precision};
use super::config::SparseConfig;
use crate::collective::Shard;
use crate::data::Examples;
use crate::model::{ExamplesOfClass, Model, Normalise, SparsePart, SparseStart};
use crate::sampling::{FeatureIndex, NearClasses, Truths};
use crate::train::held_out::HeldOut;
use crate::train::unseen::{FeatureCounts, Unseen};

/// How many times better logarithms must rank before training to be taken.
/// Centroids gain more by training: where both started alike, they ended ahead.
const LOG_LEAD: f64 = 1.5;

/// An example speaks against so many classes: the nearest that are not its labels.
const AGAINST_CLASSES: usize = 10;
/// So many examples, at most, are asked what they speak against: enough for the features
/// that matter, and 40 bytes each.
const AGAINST_EXAMPLES_MAX: usize = 1 << 18;

/// The start that ranks better what models are not trained on, of those that make up
/// `order` otherwise.
pub(in crate::train) fn judged_start(
    cpu: Cpu,
    config: &SparseConfig,
    model: (&Model, &Shard),
    examples: &Examples<'_>,
    order: &[u32],
    (held_out, counts): (&HeldOut, &FeatureCounts),
) -> SparseStart {
    let value = |start| match held_out {
        HeldOut::Apart(apart) if apart.is_empty() => 0,
        HeldOut::Apart(apart) => {
            let unseen = Unseen::of(examples, apart, counts);
            value_of_start(cpu, config, model, examples, (order, &unseen), start)
        }
        HeldOut::InFolds(in_folds) => in_folds
            .iter()
            .map(|fold| {
                let others = order.iter().filter(|&i| fold.binary_search(i).is_err());
                let others: Vec<u32> = others.copied().collect();
                let unseen = Unseen::of(examples, fold, counts);
                value_of_start(cpu, config, model, examples, (&others, &unseen), start)
            })
            .sum(),
    };
    let [centroid, log] = [SparseStart::Centroid, SparseStart::LogMean].map(value);
    if log as f64 > LOG_LEAD * centroid as f64 { SparseStart::LogMean } else { SparseStart::Centroid }
}

/// How well a sparse part of the examples `chosen` ranks the unseen ones.
fn value_of_start(
    cpu: Cpu,
    config: &SparseConfig,
    (model, shard): (&Model, &Shard),
    examples: &Examples<'_>,
    (chosen, unseen): (&[u32], &Unseen),
    start: SparseStart,
) -> u64 {
    let (normalise, counts) = (model.network.config.normalise, &model.frequencies.examples_of_class);
    let rows = config.mean_rows(start);
    let (part, _) = SparsePart::from_means_of(shard.classes(), examples, chosen, normalise, rows, counts);
    let (mut index, mut near) = (FeatureIndex::default(), NearClasses::default());
    index.refresh_on(shard, &part, examples.num_features, counts);
    let places = PLACES.map(|(k, _)| k).into_iter().max().unwrap_or(1);
    let new = unseen.examples();
    index.propose(cpu, (&new, unseen.ids()), normalise, places, Truths::Kept, &mut near);
    let truths = (0..new.len()).map(|example| new.labels(example));
    truths.enumerate().map(|(i, truths)| precision(&PLACES, near.of(i), truths)).sum()
}

/// A sparse part for the examples `chosen`, with room for what speaks against each class;
/// and what [`SparsePart::from_means`] says of own examples.
pub(super) fn start_part(
    cpu: Cpu,
    config: &SparseConfig,
    (model, shard): (&Model, &Shard),
    examples: &Examples<'_>,
    chosen: &[u32],
    start: SparseStart,
) -> (SparsePart, Vec<f32>) {
    let (normalise, counts) = (model.network.config.normalise, &model.frequencies.examples_of_class);
    let rows = config.mean_rows(start);
    let (part, own) = SparsePart::from_means_of(shard.classes(), examples, chosen, normalise, rows, counts);
    let against = examples_against(cpu, &part, shard, examples, chosen, (normalise, counts));
    (part.with_features_against(examples, &against, shard.classes().start, normalise), own)
}

/// By class, the examples of `chosen` to which it is among the nearest without being a
/// label of theirs.
fn examples_against(
    cpu: Cpu,
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
    index.propose(cpu, (examples, &asked), normalise, AGAINST_CLASSES, Truths::LeftOut, &mut near);
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
        let order = |held_out: &[u32]| -> Vec<u32> { (0..160).filter(|i| !held_out.contains(i)).collect() };
        let start = |order: &[u32], held_out: HeldOut| {
            let judges = (&held_out, &FeatureCounts::of(&view));
            judged_start(Cpu::detect(), &config, (&model, &Shard::whole(51)), &view, order, judges)
        };
        let apart = |held_out: &[u32]| start(&order(held_out), HeldOut::Apart(held_out.into()));
        // The centroid of class 0 is near to none of its examples.
        assert_eq!(apart(&[0, 10, 20, 30, 40]), SparseStart::LogMean);
        let in_folds = HeldOut::InFolds(vec![vec![0, 10], vec![20, 30, 40]]);
        assert_eq!(start(&order(&[]), in_folds), SparseStart::LogMean);
        // Nobody to ask.
        assert_eq!(apart(&[]), SparseStart::Centroid);
    }
}
