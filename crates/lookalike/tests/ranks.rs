//! Training on several ranks, which are threads here, against training on one: every
//! sampler, losses step by step, the model in the end, and what crosses the wire.

use std::path::Path;
use std::sync::Arc;

use lookalike::artifact::{self, Checkpoints, DirectoryKeeper};
use lookalike::collective::{Alone, Collective, Threads};
use lookalike::data::Dataset;
use lookalike::loss::Loss;
use lookalike::metrics::MetricOptions;
use lookalike::model::{Numbers, Storage};
use lookalike::predict::{Predictor, Search};
use lookalike::random::{Stream, below, mix};
use lookalike::sampling::{LshConfig, MixedConfig, MixedQuery, SamplerKind, Walk};
use lookalike::train::{Checkpoint, ClassStart, SparseConfig, TrainConfig, TrainError, Trainer};
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

/// The paper's start and loss; the defaults of `train` are tested beside them.
fn config(sampler: SamplerKind) -> TrainConfig {
    TrainConfig {
        sampler,
        loss: Some(Loss::Softmax),
        class_start: ClassStart::Random,
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
    bytes_a_step: u64,
    /// Questions to the sampler, and how many negatives they asked for.
    asked: Option<(u64, u64)>,
}

fn train(
    collective: Arc<dyn Collective>,
    config: &TrainConfig,
    data: &Dataset,
    steps: usize,
    folder: &Path,
) -> Run {
    let mut trainer =
        Trainer::new_on(collective.clone(), config.clone(), data.view(), Cpu::detect()).unwrap();
    let before = collective.bytes_sent();
    let losses = (0..steps).map(|_| trainer.step().unwrap().loss).collect();
    let bytes_a_step = (collective.bytes_sent() - before) / steps as u64;
    trainer.settle();
    let evaluation = trainer.evaluate(&data.view(), &|_| 0, &MetricOptions::default()).unwrap();
    DirectoryKeeper::new(&folder.join("model"), true).save(&trainer).unwrap();
    let asked = trainer.sampler_stats().map(|stats| (stats.queries, stats.wanted));
    Run { losses, p_at_1: evaluation.first().unwrap(), bytes_a_step, asked }
}

/// What all ranks saw, and the model that they saved together, as one process reads it.
fn train_on(ranks: usize, config: &TrainConfig, data: &Dataset, steps: usize) -> (Vec<Run>, Checkpoint) {
    let folder = tempfile::tempdir().unwrap();
    let runs = match ranks {
        1 => vec![train(Arc::new(Alone), config, data, steps, folder.path())],
        _ => Threads::run(ranks, |collective| train(collective, config, data, steps, folder.path())),
    };
    (runs, artifact::load_checkpoint(&folder.path().join("model")).unwrap())
}

fn numbers(numbers: &Numbers) -> Vec<f32> {
    match numbers {
        Numbers::F32(numbers) => numbers.to_vec(),
        Numbers::Bf16(numbers) => numbers.iter().map(|x| x.to_f32()).collect(),
    }
}

fn weights(checkpoint: &Checkpoint) -> (Vec<f32>, Vec<f32>) {
    let network = &checkpoint.model.network;
    let output = [numbers(&network.output.weights), network.output.bias.clone()].concat();
    (numbers(&network.input.weights), output)
}

/// The law of the whole: the bits of one process, on numbers of ranks that have its ranges.
fn assert_as_one_process(config: &TrainConfig) {
    let (data, name) = (data(CLASSES, 1), config.sampler);
    let (alone, of_one) = train_on(1, config, &data, STEPS);
    let alone = &alone[0];
    for ranks in [2, 4] {
        let (runs, whole) = train_on(ranks, config, &data, STEPS);
        for (rank, run) in runs.iter().enumerate() {
            assert_eq!(run.losses, alone.losses, "{name}: rank {rank} of {ranks}");
            assert_eq!(run.asked, alone.asked, "{name}: rank {rank} of {ranks}");
            assert_eq!(run.p_at_1, alone.p_at_1, "{name}: rank {rank} of {ranks}");
        }
        assert!(weights(&whole) == weights(&of_one), "{name}: the model of one process on {ranks} ranks");
        // What ranks measured together is what one process measures of what they saved.
        let evaluation = Predictor::new(&whole.model, Cpu::detect()).evaluate(
            &data.view(),
            &|_| 0,
            &MetricOptions::default(),
            Search::Exact,
        );
        assert_eq!(evaluation.unwrap().first(), Some(runs[0].p_at_1), "{name}");
    }
    assert!(alone.p_at_1 > 10.0, "{name}: it learns, {}", alone.p_at_1);
}

/// Other numbers of ranks sum in another order. A class that is found or selected by a hair's
/// breadth then makes runs differ by more than digits, so that this is for samplers that
/// draw.
fn assert_as_one_process_up_to_the_order_of_sums(ranks: usize, config: &TrainConfig) {
    let (data, name) = (data(CLASSES, 1), config.sampler);
    let (alone, _) = train_on(1, config, &data, STEPS);
    let (runs, whole) = train_on(ranks, config, &data, STEPS);
    for (step, (found, expected)) in runs[0].losses.iter().zip(&alone[0].losses).enumerate() {
        assert!((found - expected).abs() < 1e-4, "{name}, step {step}: {found} and {expected}");
    }
    assert!((runs[0].p_at_1 - alone[0].p_at_1).abs() < 0.3, "{name}");
    assert!(runs.iter().all(|run| run.losses == runs[0].losses), "{name}: all ranks see the same");
    let (_, again) = train_on(ranks, config, &data, STEPS);
    assert!(weights(&again) == weights(&whole), "{name}: the same bits again on {ranks} ranks");
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
    // The best of what the tables give, and lots among the others.
    for budget in [40, 200] {
        let config = config(SamplerKind::Mixed);
        assert_as_one_process(&TrainConfig { budget: Some(budget), retrieve: Some(300), ..config });
    }
}

#[test]
fn full_and_top_k_train_as_on_one_process() {
    assert_as_one_process(&config(SamplerKind::Full));
    assert_as_one_process(&TrainConfig { class_start: ClassStart::Examples, ..config(SamplerKind::Full) });
    assert_as_one_process(&config(SamplerKind::TopK));
}

#[test]
fn drawn_negatives_train_as_on_one_process() {
    for sampler in [SamplerKind::LogUniform, SamplerKind::Frequency, SamplerKind::Uniform] {
        assert_as_one_process(&config(sampler));
    }
    assert_as_one_process(&TrainConfig { loss: Some(Loss::Nce), ..config(SamplerKind::LogUniform) });
}

#[test]
fn three_ranks_train_as_one_process_up_to_the_order_of_sums() {
    for sampler in [SamplerKind::Full, SamplerKind::LogUniform, SamplerKind::Uniform] {
        assert_as_one_process_up_to_the_order_of_sums(3, &config(sampler));
    }
}

/// What `train` does where nothing is said: sparse weights, nearest examples, classes that
/// start at their examples, and the best of many where there are classes enough.
#[test]
fn the_defaults_train_as_on_one_process() {
    let defaults = TrainConfig { batch: 32, epochs: 5, members: 4, ..TrainConfig::default() };
    assert_as_one_process(&defaults);
    let sparse = SparseConfig { held_out: 60, ..SparseConfig::default() };
    assert_as_one_process(&TrainConfig { sparse: Some(sparse), ..defaults.clone() });
    assert_as_one_process(&TrainConfig { storage: Storage::Bf16, hidden: vec![24, 48], ..defaults });
}

/// What a step sends depends on batch, width and tables, not on classes.
#[test]
fn bytes_on_the_wire_do_not_depend_on_the_number_of_classes() {
    let lsh = LshConfig { k: Some(2), l: Some(20), ..LshConfig::default() };
    for sampler in SamplerKind::ALL {
        let config = TrainConfig { lsh: lsh.clone(), ..config(sampler) };
        let bytes = |classes| train_on(2, &config, &data(classes, 1), 20).0[0].bytes_a_step;
        let (few, many) = (bytes(500), bytes(5_000));
        // Walks that need no exchange of where they end, and draws that need another round,
        // differ a little.
        assert!(few.abs_diff(many) < few / 5, "{sampler}: {few} and {many}");
        assert!(few > 0, "{sampler}");
    }
}

/// Two layers, and fewer features than ranks.
#[test]
fn ranks_without_a_feature_train_too() {
    for features in [1, 3] {
        let mut data = Dataset::empty(features, 8);
        for example in 0..64u32 {
            data.push([(example % features as u32, 1.0)], &[example % 8]);
        }
        let config = TrainConfig { hidden: vec![8, 6], budget: Some(4), ..config(SamplerKind::Uniform) };
        let (alone, _) = train_on(1, &config, &data, 10);
        let (runs, whole) = train_on(4, &config, &data, 10);
        for (found, expected) in runs[3].losses.iter().zip(&alone[0].losses) {
            assert!((found - expected).abs() < 1e-5, "{found} and {expected}");
        }
        assert_eq!(whole.model.network.input.len, features);
    }
}

#[test]
fn half_precision_moves_too_and_the_same_way_again() {
    let data = data(CLASSES, 1);
    let config = TrainConfig { storage: Storage::Bf16, ..config(SamplerKind::LshEmbedding) };
    let run = || weights(&train_on(2, &config, &data, 60).1);
    assert!(run() == run());
}

/// With all parts of a model, as `train` makes them where nothing is said.
fn with_all_parts() -> TrainConfig {
    let sparse = SparseConfig { held_out: 60, ..SparseConfig::default() };
    TrainConfig { sparse: Some(sparse), ..config(SamplerKind::LshEmbedding) }
}

#[test]
fn all_parts_of_a_model_train_as_on_one_process() {
    assert_as_one_process(&with_all_parts());
    assert_as_one_process(&TrainConfig { sampler: SamplerKind::LogUniform, ..with_all_parts() });
    assert_all_parts_are_those_of_one_process(&with_all_parts(), 60, STEPS);
}

/// Where folds judge, each of them is on all ranks too.
#[test]
fn folds_judge_on_ranks_as_on_one_process() {
    let sparse = SparseConfig { held_out: 400, ..SparseConfig::default() };
    let config = TrainConfig { sparse: Some(sparse), calibrate: true, ..with_all_parts() };
    assert_all_parts_are_those_of_one_process(&config, 400, 60);
}

fn assert_all_parts_are_those_of_one_process(config: &TrainConfig, judging: usize, steps: usize) {
    let data = data(CLASSES, 1);
    let [one, two, four] = [1, 2, 4].map(|ranks| train_on(ranks, config, &data, steps).1.model);
    let sparse = one.sparse.as_ref().expect("it helps here");
    let kept = one.neighbours.as_ref().expect("so do they");
    for model in [&two, &four] {
        let found = model.sparse.as_ref().unwrap();
        assert_eq!((found.weights(), found.blend()), (sparse.weights(), sparse.blend()));
        assert_eq!(found.priors(), sparse.priors());
        let found = model.neighbours.as_ref().unwrap();
        assert_eq!((found.members(), found.weight()), (kept.members(), kept.weight()));
        assert_eq!(found.entries(), kept.entries());
        assert_eq!(model.calibration, one.calibration);
        assert_eq!(one.calibration.as_ref().unwrap().examples, judging);
    }
}

/// The losses of some further steps, and the weights after them.
fn go_on(collective: Arc<dyn Collective>, directory: &Path, data: &Dataset, to: &Path) -> Vec<f64> {
    let checkpoint = artifact::load_checkpoint_on(collective.clone(), directory).unwrap();
    let mut trainer = Trainer::resume_on(collective, checkpoint, data.view(), Cpu::detect()).unwrap();
    let losses = (0..20).map(|_| trainer.step().unwrap().loss).collect();
    DirectoryKeeper::new(to, true).save(&trainer).unwrap();
    losses
}

/// Within an epoch, with tables some steps old.
#[test]
fn a_checkpoint_goes_on_to_the_bit_on_any_number_of_ranks_with_the_same_sums() {
    let data = data(CLASSES, 1);
    let centred = LshConfig { centre: true, ..LshConfig::default() };
    for config in [
        config(SamplerKind::LshEmbedding),
        TrainConfig { lsh: centred, ..config(SamplerKind::LshLabel) },
        with_all_parts(),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let unbroken = Threads::run(4, |collective| {
            let mut trainer =
                Trainer::new_on(collective, config.clone(), data.view(), Cpu::detect()).unwrap();
            (0..70).for_each(|_| _ = trainer.step().unwrap());
            assert!(trainer.state.progress.position > 0);
            DirectoryKeeper::new(&place("broken"), true).save(&trainer).unwrap();
            let losses: Vec<f64> = (0..20).map(|_| trainer.step().unwrap().loss).collect();
            DirectoryKeeper::new(&place("unbroken"), true).save(&trainer).unwrap();
            losses
        });
        let expected = artifact::load_checkpoint(&place("unbroken")).unwrap();
        for ranks in [1, 2, 4] {
            let to = place(&format!("on-{ranks}"));
            let losses = Threads::run(ranks, |ranks| go_on(ranks, &place("broken"), &data, &to));
            let found = artifact::load_checkpoint(&to).unwrap();
            assert_eq!(losses[0], unbroken[0], "{ranks} ranks");
            assert!(weights(&found) == weights(&expected), "{ranks} ranks");
            assert_eq!(found.state.moments.output.bias.m, expected.state.moments.output.bias.m);
        }
        let losses = Threads::run(3, |ranks| go_on(ranks, &place("broken"), &data, &place("on-3")));
        for (found, expected) in losses[0].iter().zip(&unbroken[0]) {
            assert!((found - expected).abs() < 1e-4, "three ranks: {found} and {expected}");
        }
    }
}

/// A file a rank and an index, which any number of ranks opens.
#[test]
fn a_sharded_directory_is_whole_and_guarded() {
    let folder = tempfile::tempdir().unwrap();
    let (data, directory) = (data(CLASSES, 1), folder.path().join("model"));
    Threads::run(3, |ranks| train(ranks, &with_all_parts(), &data, 10, folder.path()));
    let whole = artifact::load(&directory).unwrap().model;
    for ranks in [2, 5] {
        let parts = Threads::run(ranks, |ranks| artifact::load_on(ranks, &directory).unwrap().model);
        let bias: Vec<f32> = parts.iter().flat_map(|part| part.network.output.bias.clone()).collect();
        assert_eq!(bias, whole.network.output.bias);
        assert_eq!(parts.iter().map(|part| part.network.input.len).max(), Some(FEATURES.div_ceil(ranks)));
        let input: Vec<f32> = parts.iter().flat_map(|part| numbers(&part.network.input.weights)).collect();
        assert_eq!(input, numbers(&whole.network.input.weights));
        let sparse = parts.iter().flat_map(|part| part.sparse.as_ref().unwrap().weights().to_vec());
        assert_eq!(sparse.collect::<Vec<_>>(), whole.sparse.as_ref().unwrap().weights());
    }
    let files = || {
        let entries = std::fs::read_dir(&directory).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let shards = |stem: &'static str| (1..=3).map(move |i| format!("{stem}-0000{i}-of-00003.safetensors"));
    let common = ["config.json", "model.safetensors", "training.safetensors"].map(String::from);
    let mut expected: Vec<String> =
        common.into_iter().chain(shards("model")).chain(shards("training")).collect();
    expected.sort();
    assert_eq!(files(), expected);
    // A bit of any shard.
    for name in shards("model").chain(shards("training")) {
        let path = directory.join(&name);
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        let last = bad.len() - 1;
        bad[last] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let error = artifact::load_checkpoint(&directory).unwrap_err().to_string();
        assert!(error.contains(&name), "{error}");
        std::fs::write(&path, &good).unwrap();
    }
    artifact::load_checkpoint(&directory).unwrap();
    // One process replaces it with a model of its own, and nothing is left behind.
    let saved = artifact::load(&directory).unwrap();
    artifact::save_model(&directory, &saved.model, &saved.record).unwrap();
    assert_eq!(files(), ["config.json", "model.safetensors"]);
}

/// A damaged shard makes all ranks go on with the checkpoint before.
#[test]
fn ranks_fall_back_to_the_same_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let data = data(CLASSES, 1);
    Threads::run(2, |collective| {
        let config = config(SamplerKind::LshEmbedding);
        let mut trainer = Trainer::new_on(collective, config, data.view(), Cpu::detect()).unwrap();
        let mut checkpoints = Checkpoints::new(folder.path(), 2);
        for _ in 0..3 {
            trainer.step().unwrap();
            checkpoints.write(&trainer).unwrap();
        }
        checkpoints.wait().unwrap();
    });
    let shard = folder.path().join("step-0000000003/training-00002-of-00002.safetensors");
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    for ranks in [2, 3] {
        let found = Threads::run(ranks, |collective| {
            let mut told = 0;
            let newest = Checkpoints::new(folder.path(), 2).newest(&collective, &mut |_| told += 1);
            (newest.unwrap().unwrap().state.progress.iteration, told)
        });
        // It is told once, then set aside.
        assert_eq!(found, vec![(2, usize::from(ranks == 2)); ranks]);
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
fn more_ranks_than_classes_are_refused() {
    let data = data(3, 1);
    let start = |collective| {
        let config = TrainConfig { budget: Some(1), ..config(SamplerKind::Uniform) };
        Trainer::new_on(collective, config, data.view(), Cpu::detect()).map(|_| ())
    };
    for outcome in Threads::run(4, start) {
        assert!(matches!(outcome, Err(TrainError::NotSharded(_))));
    }
}
