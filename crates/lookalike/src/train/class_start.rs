//! Where class vectors start: in the middle of their examples.
//!
//! A network knows where it puts examples, and one whose weights are still random keeps
//! roughly the angles between them (Johnson and Lindenstrauss 1984). So a class starts in
//! the direction of the mean embedding of its examples, less the mean of all. From the
//! first step on it scores high where it should, and hash tables bring classes that look
//! alike; over random vectors they bring indifferent ones for the first hundred steps.
//!
//! A class that comes to a model later is as long as the old ones are on average, and
//! has the bias that makes it score like them where nothing speaks for it: a smaller
//! learning rate, which forgets less, is then enough for it.
//!
//! Cost: a forward pass over at most [`EXAMPLES_MAX`] examples of each class. They are
//! embedded in the order of the data, for many classes at a time: read class by class, a file
//! that does not fit into memory would be read again for every few of them. Ranks, who have
//! the rows of some features each, go through the classes of all together.

use std::ops::Range;

use lookalike_kernels::Cpu;

use crate::collective::Shard;
use crate::data::Examples;
use crate::model::{Activations, ExamplesOfClass, Network, Rows};

/// Examples embedded at a time.
const BATCH: usize = 1024;
/// Numbers of the embeddings that are kept at a time: 16 MB.
const KEPT_MAX: usize = 1 << 22;
/// Examples of a class that its mean is taken of, at most, and of all examples.
const EXAMPLES_MAX: usize = 64;
const ALL_MAX: usize = 1 << 14;
/// How long the vectors of a new network start: about as long as an embedding. Longer ones
/// fit the examples before the layers below have learnt from them, which only some data
/// forgives (docs/notes/selection.md).
const LENGTH: f64 = 1.0;

/// Lets the classes of a new network start from the examples `chosen`; those without any
/// stay as they are. The network is what a rank has of it.
pub(super) fn start_classes(
    cpu: Cpu,
    network: &mut Network,
    examples: &Examples<'_>,
    chosen: &[u32],
    shard: &Shard,
) {
    let here = shard.classes();
    let all = mean_of_all(cpu, network, examples, chosen, shard);
    let means = Means { all, classes: 0..shard.num_classes(), shard };
    means.for_each(cpu, network, examples, chosen, |output, class, direction| {
        if here.contains(&class) {
            set_row(output, class - here.start, direction, LENGTH);
        }
    });
}

/// Gives the classes from `first` on, as far as they are labels of the examples `chosen`,
/// the vectors and biases that they start from beside the old ones.
pub(super) fn start_new_classes(
    cpu: Cpu,
    network: &mut Network,
    examples: &Examples<'_>,
    chosen: &[u32],
    first: usize,
) {
    let shard = &Shard::whole(network.output.len);
    let all = mean_of_all(cpu, network, examples, chosen, shard);
    let mut row = vec![0.0; network.output.stride];
    let (mut length, mut level) = (0.0, 0.0);
    for class in 0..first {
        network.output.view().copy_row(class, &mut row);
        length += norm(row.iter().map(|&x| f64::from(x)));
        level += dot(&row, &all) + f64::from(network.output.bias[class]);
    }
    let (length, level) = (length / first as f64, level / first as f64);
    let means = Means { all: all.clone(), classes: first..network.output.len, shard };
    means.for_each(cpu, network, examples, chosen, |output, class, direction| {
        if set_row(output, class, direction, length) {
            output.view().copy_row(class, &mut row);
            output.bias[class] = (level - dot(&row, &all)) as f32;
        }
    });
}

/// Sets a row to a direction; one without a direction stays as it is.
fn set_row(rows: &mut Rows, row: usize, direction: &[f64], length: f64) -> bool {
    let scale = length / norm(direction.iter().copied());
    let has_direction = scale.is_finite() && scale > 0.0;
    if has_direction {
        let values: Vec<f32> = direction.iter().map(|&x| (scale * x) as f32).collect();
        rows.set_row(row, &values);
    }
    has_direction
}

/// Some of a list, evenly spread.
fn spread(list: &[u32], count_max: usize) -> impl Iterator<Item = u32> {
    let count = list.len().min(count_max);
    (0..count).map(move |i| list[i * list.len() / count])
}

fn mean_of_all(
    cpu: Cpu,
    network: &Network,
    examples: &Examples<'_>,
    chosen: &[u32],
    shard: &Shard,
) -> Vec<f64> {
    let mut all = vec![0.0; network.output.dim];
    let some: Vec<u32> = spread(chosen, ALL_MAX).collect();
    let mut activations = Activations::default();
    for batch in some.chunks(BATCH) {
        let sum = shard.sum_over_features(network.config.num_features);
        network.embed_summed(cpu, examples, batch, &mut activations, sum);
        (0..batch.len()).for_each(|place| add(&mut all, activations.embeddings().row(place)));
    }
    all.iter_mut().for_each(|x| *x /= some.len().max(1) as f64);
    all
}

/// Mean embeddings of the classes of a range, less the mean of all.
struct Means<'a> {
    all: Vec<f64>,
    classes: Range<usize>,
    shard: &'a Shard,
}

impl Means<'_> {
    /// Calls `start` for each class that has examples, in their order.
    fn for_each(
        &self,
        cpu: Cpu,
        network: &mut Network,
        examples: &Examples<'_>,
        chosen: &[u32],
        mut start: impl FnMut(&mut Rows, usize, &[f64]),
    ) {
        let of_class = ExamplesOfClass::new(examples, chosen);
        let pairs_of = |class| spread(of_class.of(class), EXAMPLES_MAX).map(move |example| (class, example));
        let mut pairs = self.classes.clone().flat_map(pairs_of).peekable();
        let dim = self.all.len();
        let at_once = (KEPT_MAX / dim).max(BATCH);
        let mut embeddings = Vec::new();
        let (mut sum, mut count) = (vec![0.0; dim], 0usize);
        while pairs.peek().is_some() {
            let (classes, members): (Vec<usize>, Vec<u32>) = pairs.by_ref().take(at_once).unzip();
            self.embed(cpu, network, examples, &members, &mut embeddings);
            let after = pairs.peek().map(|&(class, _)| class);
            for (place, (&class, embedding)) in classes.iter().zip(embeddings.chunks_exact(dim)).enumerate() {
                add(&mut sum, embedding);
                count += 1;
                if classes.get(place + 1).copied().or(after) != Some(class) {
                    let mean = |(sum, all): (&mut f64, &f64)| *sum = *sum / count as f64 - all;
                    sum.iter_mut().zip(&self.all).for_each(mean);
                    start(&mut network.output, class, &sum);
                    sum.fill(0.0);
                    count = 0;
                }
            }
        }
    }

    /// The embeddings of some examples, one after the other, which are read in the order of
    /// the data.
    fn embed(
        &self,
        cpu: Cpu,
        network: &Network,
        examples: &Examples<'_>,
        members: &[u32],
        embeddings: &mut Vec<f32>,
    ) {
        let dim = self.all.len();
        embeddings.resize(members.len() * dim, 0.0);
        let mut places: Vec<usize> = (0..members.len()).collect();
        places.sort_by_key(|&place| members[place]);
        let mut activations = Activations::default();
        for places in places.chunks(BATCH) {
            let batch: Vec<u32> = places.iter().map(|&place| members[place]).collect();
            let sum_over_ranks = self.shard.sum_over_features(network.config.num_features);
            network.embed_summed(cpu, examples, &batch, &mut activations, sum_over_ranks);
            for (row, &place) in places.iter().enumerate() {
                let embedding = &activations.embeddings().row(row)[..dim];
                embeddings[place * dim..][..dim].copy_from_slice(embedding);
            }
        }
    }
}

fn add(sum: &mut [f64], row: &[f32]) {
    sum.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
}

fn dot(row: &[f32], other: &[f64]) -> f64 {
    row.iter().zip(other).map(|(&x, &y)| f64::from(x) * y).sum()
}

fn norm(row: impl Iterator<Item = f64>) -> f64 {
    row.map(|x| x * x).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::collective::{Alone, Threads};
    use crate::data::Dataset;
    use crate::model::{Activation, Init, NetworkConfig, Normalise, Storage};
    use crate::random::{Stream, below, mix};

    const CLASSES: usize = 7;

    /// The last class has no example; others have some, one of them very many.
    fn data() -> Dataset {
        let mut data = Dataset::empty(30, CLASSES);
        for example in 0..400u64 {
            let random = |place, bound| below(mix(2, Stream::Data, example, place), bound);
            let feature = random(0, 15);
            let label = if example % 2 == 0 { 0 } else { random(2, CLASSES as u32 - 1) };
            data.push([(feature, 1.0), (15 + random(1, 15), 0.5)], &[label]);
        }
        data
    }

    fn network(shard: &Shard) -> Network {
        let config = NetworkConfig {
            num_features: 30,
            num_classes: CLASSES,
            hidden: vec![8],
            activation: Activation::Linear,
            normalise: Normalise::L2,
            storage: Storage::F32,
        };
        Network::random_shard(config, Init::default(), 5, shard.features(30), shard.classes())
    }

    fn rows(network: &Network) -> Vec<Vec<f32>> {
        let mut row = vec![0.0; network.output.stride];
        let mut copy = |class| {
            network.output.view().copy_row(class, &mut row);
            row[..network.output.dim].to_vec()
        };
        (0..network.output.len).map(&mut copy).collect()
    }

    fn mean(embeddings: &[Vec<f32>]) -> Vec<f64> {
        let sum = |i: usize| embeddings.iter().map(|row| f64::from(row[i])).sum::<f64>();
        (0..8).map(|i| sum(i) / embeddings.len() as f64).collect()
    }

    #[test]
    fn classes_start_in_the_middle_of_their_examples() {
        let (data, cpu) = (data(), Cpu::detect());
        let (examples, chosen) = (data.view(), (0..400).collect::<Vec<u32>>());
        let whole = Shard::whole(CLASSES);
        let mut network = network(&whole);
        let before = rows(&network);
        let mut activations = Activations::default();
        network.embed(cpu, &examples, &chosen, &mut activations);
        let embedding = |&example: &u32| activations.embeddings().row(example as usize)[..8].to_vec();
        let all = mean(&chosen.iter().map(embedding).collect::<Vec<_>>());
        start_classes(cpu, &mut network, &examples, &chosen, &whole);
        let after = rows(&network);
        assert_eq!(after[CLASSES - 1], before[CLASSES - 1], "without examples nothing moves");
        for (class, row) in after.iter().enumerate().take(CLASSES - 1) {
            let has = |&&example: &&u32| examples.labels(example as usize) == [class as u32];
            let own: Vec<u32> = chosen.iter().filter(has).copied().collect();
            let own: Vec<Vec<f32>> = spread(&own, EXAMPLES_MAX).map(|example| embedding(&example)).collect();
            let direction: Vec<f64> = mean(&own).iter().zip(&all).map(|(own, all)| own - all).collect();
            let scale = LENGTH / norm(direction.iter().copied());
            for (found, expected) in row.iter().zip(&direction) {
                assert!((f64::from(*found) - scale * expected).abs() < 1e-5, "class {class}");
            }
        }
    }

    #[test]
    fn a_shard_starts_as_the_whole_does() {
        let (data, cpu) = (data(), Cpu::detect());
        let (examples, chosen) = (data.view(), (0..400).collect::<Vec<u32>>());
        let start = |collective| {
            let shard = Shard::new(collective, CLASSES);
            let mut network = network(&shard);
            start_classes(cpu, &mut network, &examples, &chosen, &shard);
            rows(&network)
        };
        let whole = start(Arc::new(Alone)).concat();
        assert_eq!(Threads::run(2, start).concat().concat(), whole);
        // Three ranks sum embeddings over other ranges.
        let parts = Threads::run(3, start).concat().concat();
        assert_eq!(parts.len(), whole.len());
        assert!(parts.iter().zip(&whole).all(|(found, expected)| (found - expected).abs() < 1e-5));
    }

    #[test]
    fn some_of_a_list_are_evenly_spread() {
        let list: Vec<u32> = (0..10).collect();
        assert_eq!(spread(&list, 4).collect::<Vec<_>>(), [0, 2, 5, 7]);
        assert_eq!(spread(&list, 20).collect::<Vec<_>>(), list);
        assert_eq!(spread(&[], 4).count(), 0);
    }
}
