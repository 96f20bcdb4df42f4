//! The best of some candidates, by all parts of the model.
//!
//! Whoever finds the candidates, every class of the training examples nearest to the
//! query is one too ([`Near`]): they add to the score of no other class. So if the
//! candidates hold the best `k` classes by the rest of the model, the best `k` of the
//! union are the best of all.

use super::few::{FewClasses, FewScratch, ScoredExample};
use super::ranking::{Ranked, TopK};
use crate::best::Best;
use crate::data::Examples;
use crate::model::{Embeddings, Near, NeighbourScratch};
use crate::scratch::PerThread;

/// Working memory of [`rerank`], reused between calls.
#[derive(Debug, Default)]
pub(super) struct RerankScratch {
    workers: PerThread<RerankWorker>,
}

#[derive(Debug, Default)]
struct RerankWorker {
    neighbours: NeighbourScratch,
    ranker: CandidateRanker,
}

/// Ranks the classes of `first`, an exact ranking of the examples in `batch` without the
/// nearest training examples, with them, and keeps the best in `out`.
pub(super) fn rerank(
    few: FewClasses<'_>,
    (examples, batch): (&Examples<'_>, &[u32]),
    embeddings: Embeddings<'_>,
    first: &TopK,
    scratch: &mut RerankScratch,
    out: &mut TopK,
) {
    scratch.workers.prepare();
    let workers = &scratch.workers;
    out.fill_each(batch.len(), few.bias.len(), |position, slot| {
        workers.with(|RerankWorker { neighbours, ranker }| {
            let query = ScoredExample::new(examples, batch, embeddings, position);
            let part = few.model.neighbours.as_ref();
            let near = part.map_or(Near::NONE, |part| part.near(query.features, neighbours));
            let ranked = first.example(position);
            let share = |class| near.share(class);
            match first.log_sum_exp(position) {
                Some(before) => {
                    let others = ranked.classes.iter().filter(|&&class| !near.contains(class));
                    ranker.rank(few, query, near.classes().iter().chain(others), share, slot.k());
                    *slot.log_sum_exp = ranker.raised(before, near);
                }
                None => {
                    let others = contenders(ranked, near, slot.k());
                    ranker.rank(few, query, ranked.classes.iter().chain(others), share, slot.k());
                }
            }
            slot.take(&mut ranker.best);
        });
    });
}

/// The classes that are near, not among the `ranked`, and could be among the best `k` by
/// what is near. Without it they score no more than the last of the ranked, so with it no
/// more than that sum, and sums keep their order when they are rounded.
fn contenders<'a>(ranked: Ranked<'a>, near: Near<'a>, k: usize) -> impl Iterator<Item = &'a u32> {
    let total = |(&class, score): (&u32, &f32)| score + near.share(class);
    let is_full = ranked.classes.len() == k;
    let last = ranked.scores.last().copied().filter(|_| is_full).unwrap_or(f32::INFINITY);
    let floor = ranked.classes.iter().zip(ranked.scores).map(total).fold(f32::INFINITY, f32::min);
    let is_contender =
        move |class: &&u32| last + near.share(**class) >= floor && !ranked.classes.contains(class);
    near.classes().iter().filter(is_contender)
}

/// Ranks the candidates of one example at a time; memory is kept between calls.
#[derive(Debug, Default)]
pub(super) struct CandidateRanker {
    few: FewScratch,
    classes: Vec<u32>,
    scores: Vec<f32>,
    pub(super) best: Best,
}

impl CandidateRanker {
    /// Scores candidates, all different, with the `share` that the nearest examples add to
    /// each, and leaves the best `k` in [`best`](Self::best).
    pub(super) fn rank<'c>(
        &mut self,
        few: FewClasses<'_>,
        query: ScoredExample<'_>,
        candidates: impl Iterator<Item = &'c u32>,
        share: impl Fn(u32) -> f32,
        k: usize,
    ) {
        let Self { few: scratch, classes, scores, best } = self;
        classes.clear();
        classes.extend(candidates);
        few.score(query, classes, scratch, scores);
        best.reset(k);
        for (&class, &score) in classes.iter().zip(&*scores) {
            best.offer(score + share(class), class);
        }
    }

    /// What the logarithm of a sum of exponentials becomes by what the nearest examples
    /// add to the scores in it; their classes were the first candidates.
    fn raised(&self, log_sum_exp: f32, near: Near<'_>) -> f32 {
        let share = |score: f32| f64::from(score - log_sum_exp).exp();
        let growth = |(&class, &score): (&u32, &f32)| share(score + near.share(class)) - share(score);
        let growth: f64 = near.classes().iter().zip(&self.scores).map(growth).sum();
        (f64::from(log_sum_exp) + growth.max(0.0).ln_1p()) as f32
    }
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

    /// However few are asked for, they are the best by the sum, with probabilities that
    /// add up to 1 over all classes.
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
            let query = data.view();
            let near = neighbours.near(query.features(example as usize), &mut scratch);
            let sum = |(&class, &score): (&u32, &f32)| (score + near.share(class), class);
            let mut expected: Vec<(f32, u32)> = ranked.classes.iter().zip(ranked.scores).map(sum).collect();
            expected.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let pairs = |ranked: crate::predict::Ranked<'_>| -> Vec<(f32, u32)> {
                ranked.scores.iter().copied().zip(ranked.classes.iter().copied()).collect()
            };
            assert_eq!(pairs(all.example(position)), expected);
            assert_eq!(pairs(few.example(position)), expected[..7]);
            assert_eq!(few.log_sum_exp(position), all.log_sum_exp(position));
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
