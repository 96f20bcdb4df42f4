//! The law of samplers, for every sampler: sets of different classes, true
//! labels first, no true label among the negatives, the budget kept; the same
//! sets whatever the number of threads; draws as often as the distribution says.

use lookalike::data::Dataset;
use lookalike::model::{Embeddings, RowsView};
use lookalike::random::{Stream, mix};
use lookalike::sampling::{
    Candidates, LshConfig, MixedConfig, MixedQuery, Request, Sampler, SamplerKind, Setup, build,
};
use lookalike_kernels::{Cpu, padded};

mod support {
    pub(crate) mod statistics;
}
use support::statistics::assert_follows;

const DIM: usize = 24;
const CLASSES: usize = 500;
const EXAMPLES: usize = 150;

/// All but `full`, which is none.
const SAMPLERS: [SamplerKind; 7] = [
    SamplerKind::LshEmbedding,
    SamplerKind::LshLabel,
    SamplerKind::Mixed,
    SamplerKind::TopK,
    SamplerKind::LogUniform,
    SamplerKind::Frequency,
    SamplerKind::Uniform,
];

/// Rows of numbers between -1 and 1; `relu` sets the negative ones to zero.
fn random_rows(rows: usize, dim: usize, seed: u64, relu: bool) -> Vec<f32> {
    let stride = padded(dim);
    let mut data = vec![0.0; rows * stride];
    for (i, row) in data.chunks_mut(stride).enumerate() {
        for (j, x) in row[..dim].iter_mut().enumerate() {
            let random = mix(seed, Stream::Data, i as u64, j as u64) >> 40;
            *x = random as f32 / (1 << 23) as f32 - 1.0;
            *x = if relu { x.max(0.0) } else { *x };
        }
    }
    data
}

/// Examples with 0 to 5 labels, small classes more often than large ones.
fn examples() -> Dataset {
    let mut data = Dataset::empty(1, CLASSES);
    for example in 0..EXAMPLES as u64 {
        let mut labels: Vec<u32> = (0..example % 6)
            .map(|i| {
                let unit = (mix(3, Stream::Data, example, i) >> 40) as f64 / (1 << 24) as f64;
                (unit * unit * CLASSES as f64) as u32
            })
            .collect();
        labels.sort_unstable();
        labels.dedup();
        data.push([(0, 1.0)], &labels);
    }
    data
}

fn sampler(kind: SamplerKind, budget: usize, seed: u64, counts: &[u32], lsh: &LshConfig) -> Box<dyn Sampler> {
    let mixed = MixedConfig::default();
    build(kind, &Setup { seed, budget, retrieve: budget, dim: DIM, label_counts: counts, lsh, mixed: &mixed })
        .unwrap()
}

/// Proposes for `batch` with fresh tables; the sets and the sampler.
fn propose(sampler: &mut dyn Sampler, data: &Dataset, batch: &[u32], iteration: u64) -> Candidates {
    let class_vectors = random_rows(CLASSES, DIM, 1, false);
    // Embeddings belong to examples, whatever their place in the batch.
    let all = random_rows(EXAMPLES, DIM, 2, true);
    let stride = padded(DIM);
    let embeddings: Vec<f32> =
        batch.iter().flat_map(|&example| &all[example as usize * stride..][..stride]).copied().collect();
    let class_vectors = RowsView::f32(&class_vectors, DIM);
    sampler.refresh(Cpu::detect(), class_vectors, None);
    let request = Request {
        seed: 11,
        iteration,
        cpu: Cpu::detect(),
        examples: data.view(),
        batch,
        embeddings: Embeddings::padded(&embeddings, DIM),
        class_vectors,
        class_bias: &class_bias(),
        near: None,
    };
    let mut out = Candidates::new();
    sampler.propose(&request, &mut out);
    out
}

/// Large for some classes.
fn class_bias() -> Vec<f32> {
    (0..CLASSES).map(|class| if class % 9 == 0 { 3.0 } else { 0.0 }).collect()
}

fn all_examples() -> Vec<u32> {
    (0..EXAMPLES as u32).collect()
}

fn in_pool<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

fn sets(candidates: &Candidates) -> Vec<(Vec<u32>, [u32; 4])> {
    (0..candidates.len())
        .map(|i| {
            let counts = candidates.counts(i);
            let numbers = [counts.truths, counts.found, counts.drawn, counts.drawn_log_q.to_bits()];
            (candidates.of(i).to_vec(), numbers)
        })
        .collect()
}

#[test]
fn sets_are_lawful() {
    let data = examples();
    let counts = data.view().label_counts();
    for kind in SAMPLERS {
        for budget in [1, 40, 480, 5_000] {
            for fill in [false, true] {
                let lsh = LshConfig { fill, ..LshConfig::default() };
                let mut sampler = sampler(kind, budget, 5, &counts, &lsh);
                let candidates = propose(&mut *sampler, &data, &all_examples(), 0);
                assert_eq!(candidates.len(), EXAMPLES);
                let mut given = 0;
                for example in 0..EXAMPLES {
                    let truths = data.view().labels(example);
                    let set = candidates.of(example);
                    assert_eq!(&set[..truths.len()], truths, "{kind}: true labels come first");
                    let mut sorted = set.to_vec();
                    sorted.sort_unstable();
                    sorted.dedup();
                    assert_eq!(sorted.len(), set.len(), "{kind}: all different");
                    assert!(sorted.last().is_none_or(|&class| (class as usize) < CLASSES));
                    let negatives = set.len() - truths.len();
                    assert!(negatives <= budget, "{kind}: {negatives} of {budget}");
                    let full = budget.min(CLASSES - truths.len());
                    let always_full =
                        matches!(kind, SamplerKind::Uniform | SamplerKind::Mixed | SamplerKind::TopK)
                            || fill && kind.uses_tables();
                    assert!(!always_full || negatives == full, "{kind}: {negatives} of {full}");
                    if kind == SamplerKind::Frequency && budget > CLASSES {
                        assert_eq!(sorted.len(), CLASSES, "all can be drawn, seen or not");
                    }
                    given += negatives as u64;
                }
                let stats = sampler.stats();
                assert_eq!((stats.queries, stats.given), (EXAMPLES as u64, given));
                assert!(stats.wanted >= stats.given);
            }
        }
    }
}

#[test]
fn threads_and_place_in_the_batch_do_not_matter() {
    let data = examples();
    let counts = data.view().label_counts();
    let lsh = LshConfig::default();
    for kind in SAMPLERS {
        let run = |threads, batch: &[u32]| {
            in_pool(threads, || sets(&propose(&mut *sampler(kind, 40, 5, &counts, &lsh), &data, batch, 7)))
        };
        let one = run(1, &all_examples());
        assert_eq!(one, run(2, &all_examples()), "{kind}");
        assert_eq!(one, run(5, &all_examples()), "{kind}");
        let reversed: Vec<u32> = all_examples().into_iter().rev().collect();
        let mut turned = run(3, &reversed);
        turned.reverse();
        assert_eq!(one, turned, "{kind}");
    }
}

#[test]
fn iterations_and_seeds_give_other_sets() {
    let data = examples();
    let counts = data.view().label_counts();
    let lsh = LshConfig::default();
    for kind in SAMPLERS {
        let mut sampler = sampler(kind, 10, 5, &counts, &lsh);
        let first = sets(&propose(&mut *sampler, &data, &all_examples(), 0));
        let second = sets(&propose(&mut *sampler, &data, &all_examples(), 1));
        let is_random = kind != SamplerKind::TopK;
        assert_eq!(first != second, is_random, "{kind}");
        assert_eq!(first, sets(&propose(&mut *sampler, &data, &all_examples(), 0)), "{kind}");
    }
}

#[test]
fn an_empty_batch_is_no_trouble() {
    let data = examples();
    let counts = data.view().label_counts();
    for kind in SAMPLERS {
        let mut sampler = sampler(kind, 10, 5, &counts, &LshConfig::default());
        assert!(propose(&mut *sampler, &data, &[], 0).is_empty());
    }
}

/// The codes of all classes and examples in the tables of a sampler with seed 5.
struct Buckets {
    classes: Vec<Vec<u32>>,
    embeddings: Vec<Vec<u32>>,
}

impl Buckets {
    fn of(lsh: &LshConfig, budget: usize) -> Self {
        let choice = lsh.choose(budget, CLASSES, DIM).unwrap();
        let tables = lsh.tables(&choice, CLASSES, DIM, 5).unwrap();
        let codes = |rows: Vec<f32>| -> Vec<Vec<u32>> {
            let ids: Vec<u32> = (0..(rows.len() / padded(DIM)) as u32).collect();
            let mut codes = vec![0; ids.len() * choice.l];
            let rows = RowsView::f32(&rows, DIM);
            tables.family().hash_rows(Cpu::detect(), rows, &ids, 0..choice.l, &mut codes);
            codes.chunks(choice.l).map(<[u32]>::to_vec).collect()
        };
        Self {
            classes: codes(random_rows(CLASSES, DIM, 1, false)),
            embeddings: codes(random_rows(EXAMPLES, DIM, 2, true)),
        }
    }

    /// Whether every one of these classes shares a bucket with the embedding.
    fn are_near_embedding(&self, classes: &[u32], example: usize) -> bool {
        self.share(classes, &self.embeddings[example])
    }

    /// Whether every one of them shares a bucket with the same true label; with
    /// the embedding if there is none.
    fn are_near_label(&self, classes: &[u32], truths: &[u32], example: usize) -> bool {
        truths.iter().any(|&truth| self.share(classes, &self.classes[truth as usize]))
            || truths.is_empty() && self.are_near_embedding(classes, example)
    }

    fn share(&self, classes: &[u32], query: &[u32]) -> bool {
        let shares = |&class: &u32| self.classes[class as usize].iter().zip(query).any(|(a, b)| a == b);
        classes.iter().all(shares)
    }
}

#[test]
fn found_classes_share_a_bucket_with_the_query() {
    let data = examples();
    let counts = data.view().label_counts();
    let lsh = LshConfig { k: Some(2), l: Some(6), ..LshConfig::default() };
    let buckets = Buckets::of(&lsh, 40);
    for kind in [SamplerKind::LshEmbedding, SamplerKind::LshLabel] {
        let mut sampler = sampler(kind, 40, 5, &counts, &lsh);
        let candidates = propose(&mut *sampler, &data, &all_examples(), 0);
        for example in 0..EXAMPLES {
            let truths = data.view().labels(example);
            let found = &candidates.of(example)[truths.len()..];
            let alike = match kind {
                SamplerKind::LshEmbedding => buckets.are_near_embedding(found, example),
                _ => buckets.are_near_label(found, truths, example),
            };
            assert!(alike, "{kind}, example {example}");
        }
        assert!(candidates.all_counts().iter().all(|c| c.drawn == 0));
        assert!(candidates.all_counts().iter().map(|c| c.found).sum::<u32>() > 1_000);
    }
}

/// Half of the budget by default, and of that half by the label and half by the
/// embedding; with one function a table every bucket is large enough.
#[test]
fn mixed_asks_its_tables_for_half_of_the_budget() {
    let data = examples();
    let counts = data.view().label_counts();
    let lsh = LshConfig { k: Some(1), l: Some(4), ..LshConfig::default() };
    let buckets = Buckets::of(&lsh, 40);
    let mut sampler = sampler(SamplerKind::Mixed, 40, 5, &counts, &lsh);
    let candidates = propose(&mut *sampler, &data, &all_examples(), 0);
    for example in 0..EXAMPLES {
        let counts = candidates.counts(example);
        assert_eq!((counts.found, counts.drawn), (20, 20));
        let truths = data.view().labels(example);
        let (by_label, by_embedding) = candidates.of(example)[truths.len()..][..20].split_at(10);
        assert!(buckets.are_near_label(by_label, truths, example), "example {example}");
        assert!(buckets.are_near_embedding(by_embedding, example), "example {example}");
    }
}

/// Against all scores, biases among them, in f64 and sorted.
#[test]
fn top_k_finds_the_classes_that_score_highest() {
    let data = examples();
    let counts = data.view().label_counts();
    let (class_vectors, embeddings) =
        (random_rows(CLASSES, DIM, 1, false), random_rows(EXAMPLES, DIM, 2, true));
    let row = |rows: &[f32], i: usize| rows[i * padded(DIM)..][..DIM].to_vec();
    let biases = class_bias();
    let mut sampler = sampler(SamplerKind::TopK, 30, 5, &counts, &LshConfig::default());
    let candidates = propose(&mut *sampler, &data, &all_examples(), 0);
    for example in 0..EXAMPLES {
        let truths = data.view().labels(example);
        let embedding = row(&embeddings, example);
        let score = |class: u32| {
            let products = row(&class_vectors, class as usize).into_iter().zip(&embedding);
            let sum: f64 = products.map(|(a, b)| f64::from(a) * f64::from(*b)).sum();
            sum + f64::from(biases[class as usize])
        };
        let mut others: Vec<u32> = (0..CLASSES as u32).filter(|class| !truths.contains(class)).collect();
        others.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
        assert_eq!(candidates.of(example)[truths.len()..], others[..30], "example {example}");
    }
}

/// How often each class is among the negatives of `draws` examples without labels.
fn times_drawn(sampler: &mut dyn Sampler, classes: usize, draws: u32, seed: u64) -> Vec<u32> {
    let mut data = Dataset::empty(1, classes);
    (0..draws).for_each(|_| data.push([(0, 1.0)], &[]));
    let batch: Vec<u32> = (0..draws).collect();
    let request = Request {
        seed,
        iteration: 0,
        cpu: Cpu::detect(),
        examples: data.view(),
        batch: &batch,
        embeddings: Embeddings::padded(&[], DIM),
        class_vectors: RowsView::f32(&[], DIM),
        class_bias: &[],
        near: None,
    };
    let mut out = Candidates::new();
    sampler.propose(&request, &mut out);
    let mut observed = vec![0; classes];
    (0..out.len()).flat_map(|i| out.of(i)).for_each(|&class| observed[class as usize] += 1);
    observed
}

/// One negative of many examples without labels, against the exact chances by
/// Pearson's chi-square. Error level 1e-6 for each of the three.
#[test]
fn draws_follow_their_distribution() {
    let classes = 40usize;
    let counts: Vec<u32> = (0..classes as u32).map(|c| (c * 7) % 40 * ((c * 7) % 40) / 4).collect();
    let total: u32 = counts.iter().map(|&count| count.max(1)).sum();
    let mut order: Vec<usize> = (0..classes).collect();
    order.sort_by_key(|&class| std::cmp::Reverse(counts[class]));
    let rank = |class: usize| order.iter().position(|&c| c == class).unwrap() as f64;
    let chance = |kind, class: usize| match kind {
        SamplerKind::Uniform => 1.0 / classes as f64,
        SamplerKind::Frequency => f64::from(counts[class].max(1)) / f64::from(total),
        _ => ((rank(class) + 2.0) / (rank(class) + 1.0)).ln() / (classes as f64 + 1.0).ln(),
    };
    let draws = 100_000u32;
    for kind in [SamplerKind::Uniform, SamplerKind::Frequency, SamplerKind::LogUniform] {
        let mut sampler = sampler(kind, 1, 5, &counts, &LshConfig::default());
        let observed = times_drawn(&mut *sampler, classes, draws, 3);
        assert_follows(&observed, |class| chance(kind, class), kind.name());
    }
}

/// How often each class is among many sets, against `exp(class_log_q)`. That
/// formula takes the number of draws as fixed, so agreement is not exact: 3% of
/// the chance and five standard deviations are allowed.
#[test]
fn expected_counts_agree_with_what_is_drawn() {
    let classes = 200usize;
    let counts: Vec<u32> = (0..classes as u32).map(|c| 1 + 2_000 / (c + 1)).collect();
    let draws = 40_000u32;
    for kind in [SamplerKind::Uniform, SamplerKind::Frequency, SamplerKind::LogUniform] {
        let mut sampler = sampler(kind, 20, 5, &counts, &LshConfig::default());
        let observed = times_drawn(&mut *sampler, classes, draws, 4);
        for (&log_q, &observed) in sampler.class_log_q().unwrap().iter().zip(&observed) {
            let expected = f64::from(log_q).exp();
            let seen = f64::from(observed) / f64::from(draws);
            let deviation = (expected * (1.0 - expected) / f64::from(draws)).sqrt();
            let allowed = 0.03 * expected + 5.0 * deviation;
            assert!((seen - expected).abs() < allowed, "{kind}: {seen} against {expected}");
        }
    }
}

/// `Σ exp(score - log q)` over the mixed sampler's candidates, averaged over
/// many draws, against the sum over all classes; whatever was found, and also where only
/// the best of the found classes are trained on.
#[test]
fn the_mixed_sampler_estimates_the_partition_function_without_bias() {
    let data = examples();
    let counts = data.view().label_counts();
    let score = |class: u32| (mix(8, Stream::Data, u64::from(class), 0) >> 40) as f64 / 4e6;
    // A quarter of the classes have more.
    let is_best = |class: u32| score(class) > 3.0;
    let full: f64 = (0..CLASSES as u32).map(|class| score(class).exp()).sum();
    for (hashed_share, query, retrieve) in [
        (0.5, MixedQuery::Both, 60),
        (0.3, MixedQuery::Label, 60),
        (0.8, MixedQuery::Embedding, 60),
        (0.0, MixedQuery::Both, 60),
        (0.5, MixedQuery::Both, 90),
        (0.3, MixedQuery::Embedding, 150),
    ] {
        let mixed = MixedConfig { hashed_share, query };
        let lsh = LshConfig::default();
        let setup = Setup {
            seed: 5,
            budget: 60,
            retrieve,
            dim: DIM,
            label_counts: &counts,
            lsh: &lsh,
            mixed: &mixed,
        };
        let mut sampler = build(SamplerKind::Mixed, &setup).unwrap();
        let (mut estimates, mut spared_ones) = (Vec::new(), 0);
        for iteration in 0..100 {
            let candidates = propose(&mut *sampler, &data, &all_examples(), iteration);
            for example in 0..EXAMPLES {
                let counts = candidates.counts(example);
                let [truths, found, spared] =
                    [counts.truths, counts.found, counts.spared].map(|count| count as usize);
                let (truths, negatives) = candidates.of(example).split_at(truths);
                let (found, drawn) = negatives.split_at(found);
                // Of a selection, what is neither best nor spared is left out.
                let selects = |place: usize, class: u32| retrieve == 60 || place < spared || is_best(class);
                let weight = |place: usize, class: u32| match place < spared && !is_best(class) {
                    true => score(class) - f64::from(counts.drawn_log_q),
                    false => score(class),
                };
                let of_found = found.iter().enumerate().filter(|&(place, &class)| selects(place, class));
                let estimate = truths.iter().map(|&c| score(c).exp()).sum::<f64>()
                    + of_found.map(|(place, &class)| weight(place, class).exp()).sum::<f64>()
                    + drawn.iter().map(|&c| (score(c) - f64::from(counts.drawn_log_q)).exp()).sum::<f64>();
                estimates.push(estimate / full);
                assert!(hashed_share > 0.0 || counts.found == 0);
                spared_ones += spared;
            }
        }
        assert_eq!(spared_ones > 0, retrieve > 60);
        let n = estimates.len() as f64;
        let mean = estimates.iter().sum::<f64>() / n;
        let variance = estimates.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let error = (variance / n).sqrt();
        assert!(error < 0.01 && (mean - 1.0).abs() < 5.0 * error, "{query:?}, {retrieve}: {mean} ± {error}");
    }
}
