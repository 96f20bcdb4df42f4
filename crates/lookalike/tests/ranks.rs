//! Training on several ranks, which are threads here, against training on one: every
//! sampler, losses step by step, the model in the end, and what crosses the wire.

use std::sync::Arc;

use lookalike::collective::{Alone, Collective, Threads};
use lookalike::data::Dataset;
use lookalike::loss::Loss;
use lookalike::metrics::MetricOptions;
use lookalike::model::{Numbers, Storage};
use lookalike::random::{Stream, below, mix};
use lookalike::sampling::{LshConfig, MixedConfig, MixedQuery, SamplerKind, Walk};
use lookalike::train::{Checkpoint, SparseConfig, TrainConfig, TrainError, Trainer};
use lookalike_kernels::Cpu;

const CLASSES: usize = 1_203;
const FEATURES: usize = 400;
const EXAMPLES: usize = 1_600;
const STEPS: usize = 200;

/// Each class has five features of its own; examples have one to three labels, most of
/// their features and one of noise. Every fiftieth has no label.
fn data(classes: usize, seed: u64) -> Dataset {
    let mut data = Dataset::empty(FEATURES, classes);
    for example in 0..EXAMPLES as u64 {
        let random = |i: u64, bound: usize| below(mix(seed, Stream::Data, example, i), bound as u32);
        let mut labels: Vec<u32> = (0..1 + example % 3).map(|i| random(i, classes)).collect();
        labels.sort_unstable();
        labels.dedup();
        let of_class = |class: u32, i: u64| below(mix(9, Stream::Data, u64::from(class), i), FEATURES as u32);
        let mut features: Vec<u32> =
            labels.iter().flat_map(|&class| (0..5).map(move |i| of_class(class, i))).collect();
        features.push(random(100, FEATURES));
        features.sort_unstable();
        features.dedup();
        let labels = if example % 50 == 7 { vec![] } else { labels };
        data.push(features.into_iter().map(|feature| (feature, 1.0)), &labels);
    }
    data
}

fn config(sampler: SamplerKind) -> TrainConfig {
    TrainConfig {
        sampler,
        budget: Some(60),
        retrieve: Some(0),
        hidden: vec![24],
        batch: 32,
        epochs: 5,
        lr: 5e-3,
        ..TrainConfig::default()
    }
}

/// What a rank saw of a run.
struct Run {
    losses: Vec<f64>,
    p_at_1: f64,
    whole: Option<Checkpoint>,
    bytes_a_step: u64,
}

fn train(collective: Arc<dyn Collective>, config: &TrainConfig, data: &Dataset, steps: usize) -> Run {
    let mut trainer =
        Trainer::new_on(collective.clone(), config.clone(), data.view(), Cpu::detect()).unwrap();
    let before = collective.bytes_sent();
    let losses = (0..steps).map(|_| trainer.step().unwrap().loss).collect();
    let bytes_a_step = (collective.bytes_sent() - before) / steps as u64;
    let evaluation = trainer.evaluate(&data.view(), &|_| 0, &MetricOptions::default()).unwrap();
    Run { losses, p_at_1: evaluation.first().unwrap(), whole: trainer.gather(), bytes_a_step }
}

fn train_on(ranks: usize, config: &TrainConfig, data: &Dataset, steps: usize) -> Vec<Run> {
    Threads::run(ranks, |collective| train(collective, config, data, steps))
}

fn weights(checkpoint: &Checkpoint) -> (Vec<f32>, Vec<f32>) {
    let numbers = |numbers: &Numbers| match numbers {
        Numbers::F32(numbers) => numbers.to_vec(),
        Numbers::Bf16(numbers) => numbers.iter().map(|x| x.to_f32()).collect(),
    };
    let network = &checkpoint.model.network;
    let output = [numbers(&network.output.weights), network.output.bias.clone()].concat();
    (numbers(&network.input.weights), output)
}

/// The law of the whole: as one process, up to the order of sums.
fn assert_as_one_process(config: &TrainConfig) {
    let (data, name) = (data(CLASSES, 1), config.sampler);
    let alone = train(Arc::new(Alone), config, &data, STEPS);
    for ranks in [2, 4] {
        let runs = train_on(ranks, config, &data, STEPS);
        for (rank, run) in runs.iter().enumerate() {
            for (step, (found, expected)) in run.losses.iter().zip(&alone.losses).enumerate() {
                assert!(
                    (found - expected).abs() < 1e-4,
                    "{name}: rank {rank} of {ranks}, step {step}: {found} and {expected}"
                );
            }
            assert_eq!(run.losses, runs[0].losses, "{name}: all ranks see the same");
            assert!((run.p_at_1 - alone.p_at_1).abs() < 0.3, "{name}: {} and {}", run.p_at_1, alone.p_at_1);
            assert_eq!(run.whole.is_some(), rank == 0);
        }
        let again = train_on(ranks, config, &data, STEPS);
        let whole = |runs: &[Run]| weights(runs[0].whole.as_ref().unwrap());
        assert!(whole(&again) == whole(&runs), "{name}: the same bits again on {ranks} ranks");
        assert_eq!(whole(&runs).1.len(), weights(alone.whole.as_ref().unwrap()).1.len());
    }
    assert!(alone.p_at_1 > 10.0, "{name}: it learns, {}", alone.p_at_1);
}

#[test]
fn lsh_embedding_trains_as_on_one_process() {
    assert_as_one_process(&config(SamplerKind::LshEmbedding));
}

#[test]
fn lsh_label_trains_as_on_one_process() {
    assert_as_one_process(&config(SamplerKind::LshLabel));
}

#[test]
fn filled_tables_train_as_on_one_process() {
    // Tables that give far too little, so that most is drawn.
    let lsh = LshConfig { k: Some(3), l: Some(2), fill: true, ..LshConfig::default() };
    assert_as_one_process(&TrainConfig { lsh, ..config(SamplerKind::LshEmbedding) });
}

#[test]
fn other_walks_train_as_on_one_process() {
    // So few tables that walks end in wide buckets, of centred vectors.
    let walk = Some(Walk::Widening);
    let lsh = LshConfig { k: Some(4), l: Some(3), walk, centre: true, ..LshConfig::default() };
    assert_as_one_process(&TrainConfig { lsh, ..config(SamplerKind::LshLabel) });
    let lsh = LshConfig { k: Some(2), l: Some(12), walk: Some(Walk::Paper), ..LshConfig::default() };
    assert_as_one_process(&TrainConfig { lsh, ..config(SamplerKind::LshEmbedding) });
}

#[test]
fn the_best_of_many_train_as_on_one_process() {
    // Limits from all scores, and from a sample.
    for budget in [20, 100] {
        let config = config(SamplerKind::LshEmbedding);
        assert_as_one_process(&TrainConfig { budget: Some(budget), retrieve: Some(300), ..config });
    }
}

#[test]
fn mixed_trains_as_on_one_process() {
    assert_as_one_process(&config(SamplerKind::Mixed));
    // So many negatives that one process goes through all classes to draw them.
    let mixed = MixedConfig { query: MixedQuery::Label, hashed_share: 0.2 };
    assert_as_one_process(&TrainConfig { budget: Some(800), mixed, ..config(SamplerKind::Mixed) });
}

#[test]
fn full_and_top_k_train_as_on_one_process() {
    assert_as_one_process(&config(SamplerKind::Full));
    assert_as_one_process(&config(SamplerKind::TopK));
}

#[test]
fn drawn_negatives_train_as_on_one_process() {
    for sampler in [SamplerKind::LogUniform, SamplerKind::Frequency, SamplerKind::Uniform] {
        assert_as_one_process(&config(sampler));
    }
    assert_as_one_process(&TrainConfig { loss: Loss::Nce, ..config(SamplerKind::LogUniform) });
}

/// What a step sends depends on batch, width and tables, not on classes.
#[test]
fn bytes_on_the_wire_do_not_depend_on_the_number_of_classes() {
    let lsh = LshConfig { k: Some(2), l: Some(20), ..LshConfig::default() };
    for sampler in SamplerKind::ALL {
        let config = TrainConfig { lsh: lsh.clone(), ..config(sampler) };
        let bytes = |classes| train_on(2, &config, &data(classes, 1), 20)[0].bytes_a_step;
        let (few, many) = (bytes(500), bytes(5_000));
        // Walks that need no exchange of where they end, and draws that need another round,
        // differ a little.
        assert!(few.abs_diff(many) < few / 5, "{sampler}: {few} and {many}");
        assert!(few > 0, "{sampler}");
    }
}

#[test]
fn half_precision_moves_too_and_the_same_way_again() {
    let data = data(CLASSES, 1);
    let config = TrainConfig { storage: Storage::Bf16, ..config(SamplerKind::LshEmbedding) };
    let run = || {
        let runs = train_on(2, &config, &data, 60);
        weights(runs[0].whole.as_ref().unwrap())
    };
    assert!(run() == run());
}

/// A checkpoint of four ranks goes on with two, and with one.
#[test]
fn a_gathered_checkpoint_goes_on_with_any_number_of_ranks() {
    let data = data(CLASSES, 1);
    let config = config(SamplerKind::LshEmbedding);
    let steps = EXAMPLES / config.batch; // About an epoch.
    let whole = train_on(4, &config, &data, steps).swap_remove(0).whole.unwrap();
    let go_on = |collective: Arc<dyn Collective>| -> Vec<f64> {
        let mut trainer = Trainer::resume_on(collective, whole.clone(), data.view(), Cpu::detect()).unwrap();
        (0..20).map(|_| trainer.step().unwrap().loss).collect()
    };
    let alone = go_on(Arc::new(Alone));
    for losses in Threads::run(2, go_on) {
        for (found, expected) in losses.iter().zip(&alone) {
            assert!((found - expected).abs() < 1e-4, "{found} and {expected}");
        }
    }
}

#[test]
fn ranks_that_differ_are_named() {
    let (data, other) = (data(CLASSES, 1), data(CLASSES, 2));
    let start = |collective: Arc<dyn Collective>, differs_in_data: bool| {
        let is_second = collective.rank() == 1;
        let examples = if is_second && differs_in_data { other.view() } else { data.view() };
        let seed = if is_second && !differs_in_data { 2 } else { 1 };
        let config = TrainConfig { seed, ..config(SamplerKind::Uniform) };
        Trainer::new_on(collective, config, examples, Cpu::detect()).map(|_| ())
    };
    for (differs_in_data, what) in [(true, "rank 1 has training data"), (false, "rank 1 has settings")] {
        for outcome in Threads::run(3, |collective| start(collective, differs_in_data)) {
            let message = outcome.unwrap_err().to_string();
            assert!(message.starts_with(what), "{message}");
        }
    }
}

#[test]
fn what_is_not_sharded_is_refused() {
    let data = data(CLASSES, 1);
    let config = TrainConfig { sparse: Some(SparseConfig::default()), ..config(SamplerKind::LshEmbedding) };
    let start =
        |collective| Trainer::new_on(collective, config.clone(), data.view(), Cpu::detect()).map(|_| ());
    for outcome in Threads::run(2, start) {
        assert!(matches!(outcome, Err(TrainError::NotSharded(_))));
    }
    start(Arc::new(Alone)).unwrap();
}
