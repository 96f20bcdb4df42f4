//! The best classes ranked again, by the training examples nearest to a query.
//!
//! Network and sparse weights find the classes that can be meant; which of them
//! it is, the examples know better ([`Neighbours`]). What they add is never
//! negative, so a class that was not among the [`RERANKED`] best stays behind
//! all that were.

use rayon::prelude::*;

use super::best::Best;
use super::ranking::TopK;
use crate::data::Examples;
use crate::model::{NeighbourScratch, Neighbours};
use crate::scratch::PerThread;

/// How many classes are ranked again, or as many as are asked for.
pub(super) const RERANKED: usize = 100;

/// Working memory of [`rerank`], reused between calls.
#[derive(Debug, Default)]
pub(super) struct RerankScratch {
    workers: PerThread<Worker>,
}

#[derive(Debug, Default)]
struct Worker {
    neighbours: NeighbourScratch,
    scores: Vec<f32>,
    best: Best,
}

/// Ranks the classes in `first`, a ranking of the examples in `batch`, and keeps
/// the best of them in `out`.
pub(super) fn rerank(
    neighbours: &Neighbours,
    examples: &Examples<'_>,
    batch: &[u32],
    first: &TopK,
    scratch: &mut RerankScratch,
    out: &mut TopK,
) {
    out.resize(batch.len(), first.stride);
    let k = out.stride;
    if k == 0 {
        return;
    }
    scratch.workers.prepare();
    let workers = &scratch.workers;
    out.lens
        .par_iter_mut()
        .zip(&mut out.log_sum_exp)
        .zip(out.classes.par_chunks_mut(k))
        .zip(out.scores.par_chunks_mut(k))
        .zip(batch)
        .enumerate()
        .for_each(|(position, ((((len, log_sum_exp), classes), scores), &example))| {
            workers.with(|worker| {
                let ranked = first.example(position);
                worker.scores.clear();
                worker.scores.extend_from_slice(ranked.scores);
                let query = examples.features(example as usize);
                neighbours.add_scores(query, ranked.classes, &mut worker.scores, &mut worker.neighbours);
                worker.best.reset(k);
                for (&score, &class) in worker.scores.iter().zip(ranked.classes) {
                    worker.best.offer(score, class);
                }
                let best = worker.best.ranked();
                *len = best.len();
                for ((class, score), (best_score, best_class)) in classes.iter_mut().zip(scores).zip(best) {
                    (*class, *score) = (best_class, best_score);
                }
                if let Some(before) = first.log_sum_exp(position) {
                    *log_sum_exp = raised(before, ranked.scores, &worker.scores);
                }
            });
        });
}

/// The logarithm of a sum of exponentials of which some have grown.
fn raised(log_sum_exp: f32, before: &[f32], after: &[f32]) -> f32 {
    let share = |&score: &f32| f64::from(score - log_sum_exp).exp();
    let growth: f64 = before.iter().zip(after).map(|(before, after)| share(after) - share(before)).sum();
    (f64::from(log_sum_exp) + growth.max(0.0).ln_1p()) as f32
}

#[cfg(test)]
mod tests {
    use lookalike_kernels::Cpu;

    use crate::data::Dataset;
    use crate::model::{
        Activation, ClassFrequencies, Init, Model, Neighbours, Network, NetworkConfig, Normalise, Storage,
    };
    use crate::predict::{Ask, Predictor};
    use crate::random::{Stream, mix};

    const FEATURES: usize = 30;
    const CLASSES: usize = 250;

    fn data() -> Dataset {
        let mut data = Dataset::empty(FEATURES, CLASSES);
        for example in 0..300u64 {
            let random = |place| mix(4, Stream::Data, example, place);
            let mut ids: Vec<u32> = (0..4).map(|i| (random(i) % FEATURES as u64) as u32).collect();
            ids.sort_unstable();
            ids.dedup();
            let label = (random(10) % CLASSES as u64) as u32;
            data.push(ids.into_iter().map(|id| (id, 1.0 + id as f32)), &[label]);
        }
        data
    }

    fn model() -> Model {
        let config = NetworkConfig {
            num_features: FEATURES,
            num_classes: CLASSES,
            hidden: vec![8],
            activation: Activation::Linear,
            normalise: Normalise::L2,
            storage: Storage::F32,
        };
        Model::new(Network::random(config, Init::default(), 3), ClassFrequencies::default())
    }

    /// With as many places as classes nothing is left out, and the ranking is
    /// that of the sums, with probabilities that add up to 1.
    #[test]
    fn classes_are_ranked_by_the_sum_and_probabilities_add_up() {
        let (data, mut model) = (data(), model());
        let batch: Vec<u32> = (0..300).rev().collect();
        let rank = |model: &Model, k: usize| {
            Predictor::new(model, Cpu::detect()).rank(
                &data.view(),
                &batch,
                Ask { probabilities: true, ..Ask::best(k) },
            )
        };
        let before = rank(&model, CLASSES);
        let neighbours = Neighbours::new(&data.view(), &batch[..200]).weighted(0.3);
        model.neighbours = Some(neighbours.clone());
        let (all, few) = (rank(&model, CLASSES), rank(&model, 7));
        let mut scratch = Default::default();
        for (position, &example) in batch.iter().enumerate() {
            let ranked = before.example(position);
            let mut sums = ranked.scores.to_vec();
            let query = data.view();
            neighbours.add_scores(query.features(example as usize), ranked.classes, &mut sums, &mut scratch);
            let mut expected: Vec<(f32, u32)> =
                sums.into_iter().zip(ranked.classes.iter().copied()).collect();
            let narrow: Vec<(f32, u32)> = {
                let mut best = expected[..super::RERANKED].to_vec();
                best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                best.truncate(7);
                best
            };
            expected.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let pairs = |ranked: crate::predict::Ranked<'_>| -> Vec<(f32, u32)> {
                ranked.scores.iter().copied().zip(ranked.classes.iter().copied()).collect()
            };
            assert_eq!(pairs(all.example(position)), expected);
            assert_eq!(pairs(few.example(position)), narrow);
            let log_sum_exp = all.log_sum_exp(position).unwrap();
            let total: f32 = expected.iter().map(|(score, _)| (score - log_sum_exp).exp()).sum();
            assert!((total - 1.0).abs() < 1e-4, "{total}");
        }
    }

    #[test]
    fn threads_change_nothing() {
        let (data, mut model) = (data(), model());
        let batch: Vec<u32> = (0..300).collect();
        model.neighbours = Some(Neighbours::new(&data.view(), &batch).weighted(1.0));
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let ask = Ask { probabilities: true, ..Ask::best(5) };
            let best = pool.install(|| Predictor::new(&model, Cpu::detect()).rank(&data.view(), &batch, ask));
            let bits: Vec<u32> = best.scores.iter().chain(&best.log_sum_exp).map(|x| x.to_bits()).collect();
            (best.classes, bits)
        };
        assert_eq!(run(1), run(3));
    }
}
