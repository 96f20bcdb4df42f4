//! How much the sparse part counts: chosen on examples that a model has not seen.
//!
//! On lists of words the sparse part is the better half, on short names the
//! dense one, and which it is cannot be told from training examples, which the
//! sparse part's centroids have seen. So after each epoch the blend is taken that ranks
//! best what its judges have not seen: examples kept aside from the model itself, or those
//! of each of its folds, taken together. A blend of 0 says
//! that the sparse part surely does not help. In the same way they choose, once the model is
//! looked at, how much the nearest training examples count ([`Neighbours`]).
//!
//! What is wanted is precision at 1, 3 and 5. But where few answers are right, as in
//! guessing what somebody buys next, a thousand examples have thirty hits and choose by
//! chance; so hits at 10 and 20 count too, for less.
//!
//! Cost: the network's exact ranking of at most a thousand examples an epoch, and
//! their cosines with the examples of some hundred classes.

use lookalike_kernels::Cpu;
use rayon::prelude::*;

use crate::collective::Shard;
use crate::data::Examples;
use crate::model::{Activations, Model, NeighbourScratch, Neighbours, SparsePart};
use crate::predict::{RescoreScratch, TopK, TopKScratch, join_ranks, rescore, top_k};
use crate::sampling::NearClasses;
use crate::scratch::PerThread;

/// The blends that are tried.
const BLENDS: [f32; 9] = [0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];
/// The weights of the nearest examples that are tried, for scores that count 1.
const WEIGHTS: [f32; 6] = [0.0, 1.0 / 16.0, 1.0 / 8.0, 1.0 / 4.0, 1.0 / 2.0, 1.0];
/// A value of a ranking is made of precisions at some places: a place and what a hit up
/// to it counts.
type Places = [(usize, u64)];
/// Precision at 1, 3, 5, 10 and 20 alike, in sixtieths.
const DEEP_PLACES: [(usize, u64); 5] = [(1, 60), (3, 20), (5, 12), (10, 6), (20, 3)];
/// Precision at 1, 3 and 5 alike, in fifteenths.
pub(super) const PLACES: [(usize, u64); 3] = [(1, 15), (3, 5), (5, 3)];
/// Classes taken from the dense part's ranking; those of the sparse part come
/// from its index.
const DENSE_CANDIDATES: usize = 50;

/// What each part of a model scores the candidates of held-out examples.
/// True labels are candidates like any other class: only if they are found.
pub(super) struct HeldOutScores<'a> {
    examples: Examples<'a>,
    held_out: &'a [u32],
    candidates: Vec<Vec<HeldOutCandidate>>,
}

struct HeldOutCandidate {
    class: u32,
    dense: f32,
    sparse: f32,
}

impl<'a> HeldOutScores<'a> {
    /// Of `held_out` examples, whose near classes are in `near`. A rank of several scores
    /// the candidates it has, and all know the scores of all.
    pub(super) fn new(
        cpu: Cpu,
        (model, shard): (&Model, &Shard),
        (examples, held_out): (Examples<'a>, &'a [u32]),
        near: &NearClasses,
    ) -> Self {
        let mut activations = Activations::default();
        let network = &model.network;
        let sum = shard.sum_over_features(network.config.num_features);
        network.embed_summed(cpu, &examples, held_out, &mut activations, sum);
        let embeddings = activations.embeddings();
        let (vectors, bias) = (network.output.view(), &network.output.bias);
        let mut best = TopK::new(DENSE_CANDIDATES);
        top_k(cpu, vectors, bias, embeddings.rows(), None, &mut TopKScratch::default(), &mut best);
        if !shard.is_whole() {
            join_ranks(shard, &mut best);
        }
        let first = shard.classes().start as u32;
        let score = |(position, &example): (usize, &u32)| {
            let mut candidates: Vec<u32> = best.example(position).classes.to_vec();
            candidates.extend_from_slice(near.of(position));
            candidates.sort_unstable();
            candidates.dedup();
            let embedding = embeddings.row(position);
            let features = examples.features(example as usize);
            let factor = network.config.normalise.factor(features.1);
            let own: Vec<u32> = shard.own(&candidates).collect();
            let mut scratch = RescoreScratch::default();
            let ranked = rescore(cpu, vectors, bias, embedding, &own, own.len().max(1), &mut scratch);
            let unscored = if shard.is_whole() { f32::NEG_INFINITY } else { 0.0 };
            let unscored = |class| HeldOutCandidate { class, dense: unscored, sparse: 0.0 };
            let mut scored: Vec<HeldOutCandidate> = candidates.into_iter().map(unscored).collect();
            for (&row, &dense) in ranked.classes.iter().zip(ranked.scores) {
                let of_sparse =
                    |part: &SparsePart| part.score(cpu, features, factor, row) + part.priors()[row as usize];
                let sparse = model.sparse.as_ref().map_or(0.0, of_sparse);
                if let Ok(place) = scored.binary_search_by_key(&(row + first), |candidate| candidate.class) {
                    (scored[place].dense, scored[place].sparse) = (dense, sparse);
                }
            }
            scored
        };
        let mut candidates: Vec<Vec<HeldOutCandidate>> = held_out.par_iter().enumerate().map(score).collect();
        share_scores(shard, &mut candidates);
        Self { examples, held_out, candidates }
    }

    /// By example, the values of the rankings by each blend.
    fn of_blends(&self) -> Vec<[u64; BLENDS.len()]> {
        self.values(|_, candidates| {
            let scores = |blend| candidates.iter().map(|c| blended(c, blend)).collect();
            BLENDS.map(scores)
        })
    }

    /// The same by each weight of the nearest examples.
    fn of_weights(
        &self,
        blend: f32,
        weights: [f32; WEIGHTS.len()],
        neighbours: &Neighbours,
    ) -> Vec<[u64; WEIGHTS.len()]> {
        neighbours.prepare();
        let mut workers = PerThread::<NeighbourScratch>::default();
        workers.prepare();
        self.values(|example, candidates| {
            workers.with(|scratch| {
                let near = neighbours.near(self.examples.features(example as usize), scratch);
                let score = |weight: f32, c: &HeldOutCandidate| {
                    blended(c, blend) + weight * near.soft_maximum(c.class)
                };
                weights.map(|weight| candidates.iter().map(|c| score(weight, c)).collect())
            })
        })
    }

    /// By example, the values of the rankings by each option; `score` gives the
    /// candidates' scores by each.
    fn values<const N: usize>(
        &self,
        score: impl Fn(u32, &[HeldOutCandidate]) -> [Vec<f32>; N] + Sync,
    ) -> Vec<[u64; N]> {
        let examples = self.held_out.par_iter().zip(&self.candidates).map(|(&example, candidates)| {
            let truths = self.examples.labels(example as usize);
            score(example, candidates).map(|scores| value(candidates, &scores, truths))
        });
        examples.collect()
    }
}

/// The best blend of dense and sparse scores, as all judges together see it: 0 only where
/// that is surely better than any other. A sparse part that counts nothing is dropped for
/// good, at the end of any epoch, so chance must not decide it.
pub(super) fn best_blend<'a>(judged: impl Iterator<Item = &'a HeldOutScores<'a>>) -> f32 {
    let values: Vec<_> = judged.flat_map(HeldOutScores::of_blends).collect();
    let best = 1 + best_of(values.iter().map(|of_blends| &of_blends[1..]));
    let is_needless = is_surely_better(values.iter().map(|of_blends| (of_blends[0], of_blends[best])));
    if is_needless { 0.0 } else { BLENDS[best] }
}

/// The best weight of the nearest examples beside the blended scores; each judge has its own.
pub(super) fn best_weight<'a>(
    judged: impl Iterator<Item = (&'a HeldOutScores<'a>, &'a Neighbours)>,
    blend: f32,
) -> f32 {
    // In proportion to what the other scores count.
    let weights = WEIGHTS.map(|weight| weight * (1.0 + blend));
    let values: Vec<_> =
        judged.flat_map(|(scores, neighbours)| scores.of_weights(blend, weights, neighbours)).collect();
    weights[best_of(values.iter().map(|of_weights| &of_weights[..]))]
}

/// The option with the highest sum over examples, and the first of equals.
fn best_of<'a>(values: impl Iterator<Item = &'a [u64]>) -> usize {
    let mut sums: Vec<u64> = Vec::new();
    for of_options in values {
        sums.resize(of_options.len(), 0);
        sums.iter_mut().zip(of_options).for_each(|(sum, value)| *sum += value);
    }
    (0..sums.len()).rev().max_by_key(|&option| sums[option]).unwrap_or(0)
}

/// Whether the first of two options is better by more than two standard errors of what it
/// gains, example by example.
fn is_surely_better(values: impl Iterator<Item = (u64, u64)>) -> bool {
    let gain = |(first, second)| first as i64 - second as i64;
    let (sum, squares) =
        values.map(gain).fold((0, 0), |(sum, squares), gain| (sum + gain, squares + gain * gain));
    sum > 0 && sum * sum > 4 * squares
}

/// A candidate's scores are those of the rank that has it.
fn share_scores(shard: &Shard, candidates: &mut [Vec<HeldOutCandidate>]) {
    if shard.is_whole() {
        return;
    }
    let all = || candidates.iter().flatten();
    let mut scores: Vec<f32> = all().flat_map(|candidate| [candidate.dense, candidate.sparse]).collect();
    shard.collective().sum_f32(&mut scores);
    for (candidate, scores) in candidates.iter_mut().flatten().zip(scores.chunks_exact(2)) {
        (candidate.dense, candidate.sparse) = (scores[0], scores[1]);
    }
}

/// As in ranking: a blend of 0 asks nothing of the sparse part, not even to be
/// a number.
fn blended(candidate: &HeldOutCandidate, blend: f32) -> f32 {
    if blend == 0.0 { candidate.dense } else { candidate.dense + blend * candidate.sparse }
}

/// The value of a ranking by `scores`; what is no number has no place.
fn value(candidates: &[HeldOutCandidate], scores: &[f32], truths: &[u32]) -> u64 {
    let mut ranked: Vec<(f32, u32)> =
        scores.iter().zip(candidates).map(|(&score, candidate)| (score, candidate.class)).collect();
    ranked.retain(|(score, _)| *score > f32::NEG_INFINITY);
    ranked.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let ranked: Vec<u32> = ranked.iter().map(|&(_, class)| class).collect();
    precision(&DEEP_PLACES, &ranked, truths)
}

/// Sum of precisions at `places` of classes best first.
pub(super) fn precision(places: &Places, ranked: &[u32], truths: &[u32]) -> u64 {
    let hit = |class: &&u32| truths.binary_search(class).is_ok();
    places.iter().map(|&(k, weight)| weight * ranked.iter().take(k).filter(hit).count() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::model::{
        Activation, ClassFrequencies, Network, NetworkConfig, Normalise, Numbers, SparseStart, Storage,
    };
    use crate::random::{Stream, mix};
    use crate::sampling::{FeatureIndex, Truths};

    const CLASSES: usize = 16;
    /// The weight on the only feature of a class's examples.
    type Weight = fn(usize) -> f32;

    fn noise(place: usize) -> f32 {
        (mix(5, Stream::Data, place as u64, 0) % 1000) as f32 / 100.0
    }

    /// An example a class, whose only feature has the class's number. Dense and
    /// sparse score of a class for it are what `dense` and `sparse` say of
    /// (class · CLASSES + example).
    fn chosen(dense: Weight, sparse: Weight) -> f32 {
        let config = NetworkConfig {
            num_features: CLASSES,
            num_classes: CLASSES,
            hidden: vec![CLASSES],
            activation: Activation::Linear,
            normalise: Normalise::None,
            storage: Storage::F32,
        };
        let mut network = Network::zeroed(config);
        let Numbers::F32(input) = &mut network.input.weights else { unreachable!() };
        (0..CLASSES).for_each(|i| input[i * CLASSES + i] = 1.0);
        let Numbers::F32(output) = &mut network.output.weights else { unreachable!() };
        (0..CLASSES * CLASSES).for_each(|i| output[i] = dense(i));
        let features = (0..CLASSES).flat_map(|_| 0..CLASSES as u32).collect();
        let weights = (0..CLASSES * CLASSES).map(sparse).collect();
        let lengths = [CLASSES as u32; CLASSES];
        let start = (1.0, SparseStart::Centroid);
        let part = SparsePart::from_parts(&lengths, features, weights, start, &[1; CLASSES]);
        let mut data = Dataset::empty(CLASSES, CLASSES);
        (0..CLASSES as u32).for_each(|i| data.push([(i, 1.0)], &[i]));
        let all: Vec<u32> = (0..CLASSES as u32).collect();
        let (mut index, mut near) = (FeatureIndex::default(), NearClasses::default());
        index.refresh(&part, CLASSES);
        index.propose(Cpu::detect(), (&data.view(), &all), Normalise::None, 8, Truths::Kept, &mut near);
        let mut model = Model::new(network, ClassFrequencies::default());
        model.sparse = Some(part);
        let shard = Shard::whole(CLASSES);
        let view = data.view();
        let scores = HeldOutScores::new(Cpu::detect(), (&model, &shard), (view, &all), &near);
        best_blend([&scores].into_iter())
    }

    fn truth(place: usize) -> f32 {
        f32::from(place.is_multiple_of(CLASSES + 1))
    }

    #[test]
    fn a_noisy_part_does_not_count() {
        assert_eq!(chosen(truth, |place| 100.0 * noise(place)), 0.0);
        // Not surely worse than nothing, and then as little as may be.
        assert_eq!(chosen(truth, |_| 0.0), BLENDS[1]);
        assert_eq!(chosen(truth, |_| f32::NAN), 0.0);
        assert_eq!(chosen(truth, |place| f32::INFINITY * (noise(place) - 5.0)), 0.0);
    }

    #[test]
    fn the_better_part_counts_most() {
        // The dense noise reaches 10, so the truth's 1 has to count more.
        assert_eq!(chosen(noise, truth), 16.0);
        // The least that is enough wins.
        assert_eq!(chosen(|_| 0.0, truth), 0.125);
    }

    #[test]
    fn what_chance_may_have_brought_is_not_sure() {
        // Of a hundred examples ten change: sums of gains have a standard error of 10 · √10.
        let gains = |better: usize| {
            let value = move |i: usize| if i < better { (10, 0) } else { (0, u64::from(i < 10) * 10) };
            is_surely_better((0..100).map(value))
        };
        assert_eq!([5, 8, 9, 10].map(gains), [false, false, true, true]);
        assert!(!is_surely_better([(3, 3)].into_iter()) && !is_surely_better(std::iter::empty()));
    }
}
