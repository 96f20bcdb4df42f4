//! Generated data sets: seeded, learnable, with hard negatives.
//!
//! Classes stand in clusters, and a cluster has features that no other cluster
//! has more often than by chance. Some of them all its classes show alike; of
//! the rest each class takes a small part as its mark, so that marks overlap
//! and only the whole of a mark tells a class from its siblings. There are also
//! background features that say nothing, a few of them very frequent. An
//! example is a bag of words drawn from its labels' marks, their cluster and
//! the background; values are like tf-idf, of length 1.
//!
//! One feature thus tells the cluster, and negatives from other clusters soon
//! teach nothing; what remains to be learned is only learned from siblings.
//!
//! `noise` bounds what can be learned: so many examples show the features of
//! siblings instead of those of their labels. The best possible P@1 is
//! therefore about `1 - noise`.
//!
//! Classes are drawn by rank with `P(rank) ∝ rank^-label_skew`; the clusters
//! take turns along the ranks, so that each has frequent and rare classes.
//! Everything is computed from the example's number, in parallel and in O(1)
//! memory beside the output: O(values) in all. Powers and logarithms are the
//! platform's, so a seed gives the same bits on one platform, and the same
//! kind of data on all.

use rand_xoshiro::rand_core::Rng as _;
use rayon::prelude::*;

use super::error::{DataError, ID_LIMIT};
use super::{Dataset, PLACE_SYNTH};
use crate::random::{Rng, Stream, below, mix, rng};

/// The shape of a generated data set.
#[derive(Clone, Debug, PartialEq)]
pub struct SynthOptions {
    /// Classes.
    pub classes: usize,
    /// Features.
    pub features: usize,
    /// Training examples.
    pub train: usize,
    /// Test examples.
    pub test: usize,
    /// Mean number of labels an example, at least 1.
    pub labels_per_example: f64,
    /// Mean number of features an example.
    pub features_per_example: f64,
    /// How unevenly labels occur: 0 is uniform, towards 1 a steeper power law.
    /// Exact for the first label of an example; further ones are siblings and
    /// even it out a little.
    pub label_skew: f64,
    /// The share of examples that nobody can get right.
    pub noise: f64,
    /// Classes that share a pool of features.
    pub classes_per_cluster: usize,
    /// Another seed, other data of the same shape.
    pub seed: u64,
}

impl Default for SynthOptions {
    fn default() -> Self {
        Self {
            classes: 20_000,
            features: 40_000,
            train: 400_000,
            test: 20_000,
            labels_per_example: 1.5,
            features_per_example: 40.0,
            label_skew: 0.6,
            noise: 0.1,
            classes_per_cluster: 32,
            seed: 1,
        }
    }
}

/// Names that [`SynthOptions::preset`] knows.
pub const PRESETS: [&str; 4] = ["amazon-670k", "wiki-325k", "odp-105k", "amazon-uniform"];

impl SynthOptions {
    /// The shapes of the paper's Table 1, with labels and features an example
    /// as the Extreme Classification Repository reports them (for ODP and
    /// Amazon-Uniform, which it does not list, close to what is known).
    pub fn preset(name: &str) -> Option<Self> {
        let shape = |classes, features, train, test, labels, nonzero, label_skew| Self {
            classes,
            features,
            train,
            test,
            labels_per_example: labels,
            features_per_example: nonzero,
            label_skew,
            ..Self::default()
        };
        match name {
            "amazon-670k" => Some(shape(670_091, 135_909, 490_449, 153_025, 5.45, 75.7, 0.6)),
            "wiki-325k" => Some(shape(325_056, 1_617_899, 1_778_351, 587_084, 3.19, 42.2, 0.7)),
            "odp-105k" => Some(shape(105_033, 422_713, 1_084_320, 493_014, 1.0, 60.0, 0.6)),
            "amazon-uniform" => Some(shape(158_114, 135_909, 348_174, 111_018, 2.0, 75.7, 0.0)),
            _ => None,
        }
    }

    fn check(&self) -> Result<(), DataError> {
        let complain = |what: &str, found: &dyn std::fmt::Display, expected: &str| {
            Err(DataError::Option(format!("{what}: found {found}, expected {expected}")))
        };
        let sizes = 1..ID_LIMIT as usize;
        if !sizes.contains(&self.classes) {
            return complain("classes", &self.classes, "1 to 4294967294");
        }
        if !sizes.contains(&self.features) {
            return complain("features", &self.features, "1 to 4294967294");
        }
        if !(1.0..=1000.0).contains(&self.labels_per_example) {
            return complain("labels an example", &self.labels_per_example, "1 to 1000");
        }
        if !(1.0..=100_000.0).contains(&self.features_per_example) {
            return complain("features an example", &self.features_per_example, "1 to 100000");
        }
        if !(0.0..=0.95).contains(&self.label_skew) {
            return complain("label skew", &self.label_skew, "0 (uniform) to 0.95");
        }
        if !(0.0..=1.0).contains(&self.noise) {
            return complain("noise", &self.noise, "0 to 1");
        }
        if self.classes_per_cluster == 0 {
            return complain("classes a cluster", &0, "at least 1");
        }
        Ok(())
    }
}

/// Examples that one task makes.
const BLOCK: usize = 1024;
/// Features in the mark of a class.
const MARK_FEATURES: u32 = 16;
/// Features of a cluster from which its classes take their marks.
const MARKS_POOL: u32 = 128;
/// Features that all classes of a cluster show alike.
const SHARED_POOL: u32 = 64;
/// The share of words that say nothing.
const BACKGROUND_SHARE: f64 = 0.3;
/// Of the others, the share that comes from a class's mark.
const MARK_SHARE: f64 = 0.4;
/// The share of further labels that come from the first label's cluster.
const SAME_CLUSTER_SHARE: f64 = 0.9;

/// Generates a training and a test set.
pub fn synth(options: &SynthOptions) -> Result<(Dataset, Dataset), DataError> {
    options.check()?;
    let generator = Generator::new(options);
    let train = generator.examples(0..options.train);
    // The test set goes on where the training set ends: same classes, other
    // examples.
    let test = generator.examples(options.train..options.train + options.test);
    Ok((train, test))
}

struct Generator<'a> {
    options: &'a SynthOptions,
    clusters: u32,
    /// The class of each rank, shuffled so that ids tell nothing.
    class_of_rank: Vec<u32>,
    mark_seed: u64,
    pool_seed: u64,
    example_seed: u64,
}

impl<'a> Generator<'a> {
    fn new(options: &'a SynthOptions) -> Self {
        let seed = |part| mix(options.seed, Stream::Data, PLACE_SYNTH, part);
        let mut class_of_rank: Vec<u32> = (0..options.classes as u32).collect();
        let mut random = rng(seed(0), Stream::Data, 0, 0);
        for i in (1..class_of_rank.len()).rev() {
            let other = below(random.next_u64(), i as u32 + 1) as usize;
            class_of_rank.swap(i, other);
        }
        Self {
            options,
            clusters: options.classes.div_ceil(options.classes_per_cluster) as u32,
            class_of_rank,
            mark_seed: seed(1),
            pool_seed: seed(2),
            example_seed: seed(3),
        }
    }

    fn examples(&self, range: std::ops::Range<usize>) -> Dataset {
        let starts: Vec<usize> = range.clone().step_by(BLOCK).collect();
        let parts: Vec<Dataset> = starts
            .into_par_iter()
            .map(|start| {
                let mut part = Dataset::empty(self.options.features, self.options.classes);
                for example in start..(start + BLOCK).min(range.end) {
                    self.push_example(example as u64, &mut part);
                }
                part
            })
            .collect();
        let mut all = Dataset::concat(&parts);
        (all.num_features, all.num_classes) = (self.options.features, self.options.classes);
        all
    }

    fn push_example(&self, example: u64, out: &mut Dataset) {
        let random = &mut rng(self.example_seed, Stream::Data, example, 0);
        let ranks = self.draw_labels(random);
        let shown = if fraction(random) < self.options.noise {
            ranks.iter().map(|&rank| self.other_sibling(random, rank, &ranks)).collect()
        } else {
            ranks.clone()
        };
        let words = self.draw_words(random, &shown);
        let mut labels: Vec<u32> = ranks.iter().map(|&rank| self.class_of_rank[rank as usize]).collect();
        labels.sort_unstable();
        out.push(weigh(&words), &labels);
    }

    /// Distinct ranks of the labels; the first one decides the cluster.
    fn draw_labels(&self, random: &mut Rng) -> Vec<u32> {
        let first = self.draw_rank(random);
        let mut ranks = vec![first];
        for _ in 0..poisson(random, self.options.labels_per_example - 1.0) {
            // Popular siblings are drawn again and again; a few attempts keep
            // the mean, and a small cluster cannot stall us.
            for _ in 0..8 {
                let near = fraction(random) < SAME_CLUSTER_SHARE;
                let rank = if near { self.draw_sibling(random, first) } else { self.draw_rank(random) };
                if !ranks.contains(&rank) {
                    ranks.push(rank);
                    break;
                }
            }
        }
        ranks
    }

    /// Inverts `P(rank < r) = (r / classes)^(1 - skew)`.
    fn draw_rank(&self, random: &mut Rng) -> u32 {
        let classes = self.options.classes as f64;
        let rank = classes * fraction(random).powf(1.0 / (1.0 - self.options.label_skew));
        (rank as u32).min(self.options.classes as u32 - 1)
    }

    /// A class of the same cluster, by the same power law: the nearest rank of
    /// the cluster to a fresh draw.
    fn draw_sibling(&self, random: &mut Rng, rank: u32) -> u32 {
        let draw = self.draw_rank(random);
        let sibling = u64::from(draw - draw % self.clusters) + u64::from(rank % self.clusters);
        let past_the_end = sibling >= self.options.classes as u64;
        (sibling - if past_the_end { u64::from(self.clusters) } else { 0 }) as u32
    }

    /// A sibling of `rank` that is none of `ranks`, if one is soon found.
    fn other_sibling(&self, random: &mut Rng, rank: u32, ranks: &[u32]) -> u32 {
        (0..8)
            .map(|_| self.draw_sibling(random, rank))
            .find(|sibling| !ranks.contains(sibling))
            .unwrap_or(rank)
    }

    /// Words, sorted, some of them several times. As many distinct ones as the
    /// example shall have features, or nearly.
    fn draw_words(&self, random: &mut Rng, shown: &[u32]) -> Vec<u32> {
        let wanted = (self.options.features_per_example * (0.5 + fraction(random))).round().max(1.0) as usize;
        let mut words = Vec::with_capacity(2 * wanted);
        let mut missing = wanted;
        for _ in 0..4 {
            words.extend((0..missing).map(|_| self.draw_word(random, shown)));
            words.sort_unstable();
            let distinct = words.chunk_by(|a, b| a == b).count();
            missing = wanted.saturating_sub(distinct);
            if missing == 0 {
                break;
            }
        }
        words
    }

    fn draw_word(&self, random: &mut Rng, shown: &[u32]) -> u32 {
        let features = self.options.features as u32;
        if fraction(random) < BACKGROUND_SHARE {
            // Low ids are frequent: P(word < w) = (w / features)^(1/3).
            return (f64::from(features) * fraction(random).powi(3)) as u32;
        }
        let rank = shown[below(random.next_u64(), shown.len() as u32) as usize];
        let place = if fraction(random) < MARK_SHARE {
            let word = u64::from(below(random.next_u64(), MARK_FEATURES));
            below(mix(self.mark_seed, Stream::Data, u64::from(rank), word), MARKS_POOL)
        } else {
            MARKS_POOL + below(random.next_u64(), SHARED_POOL)
        };
        let cluster = u64::from(rank % self.clusters);
        below(mix(self.pool_seed, Stream::Data, cluster, u64::from(place)), features)
    }
}

/// Values like tf-idf, of length 1, rounded to four decimals as published data
/// sets are. Ids stand in the order of popularity, and popularity follows a
/// power law, so the logarithm of the id is the idf but for a factor.
fn weigh(words: &[u32]) -> Vec<(u32, f32)> {
    let mut weights: Vec<(u32, f32)> = words
        .chunk_by(|a, b| a == b)
        .map(|run| (run[0], (1.0 + (run.len() as f32).ln()) * (2.0 + run[0] as f32).ln()))
        .collect();
    let length = weights.iter().map(|pair| pair.1 * pair.1).sum::<f32>().sqrt();
    for pair in &mut weights {
        pair.1 = (10_000.0 * pair.1 / length).round().max(1.0) / 10_000.0;
    }
    weights
}

/// Uniform in [0, 1).
fn fraction(random: &mut Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Knuth's method, in pieces that do not underflow: O(mean).
fn poisson(random: &mut Rng, mut mean: f64) -> usize {
    let mut count = 0;
    while mean > 0.0 {
        let part = mean.min(30.0);
        mean -= part;
        let limit = (-part).exp();
        let mut product = fraction(random);
        while product > limit {
            count += 1;
            product *= fraction(random);
        }
    }
    count
}

#[cfg(test)]
mod tests;
