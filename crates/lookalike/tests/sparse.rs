//! Models with a sparse part, and with the training examples beside it: on the
//! disk, damaged, and against models without.

use std::path::{Path, PathBuf};

use lookalike::artifact::{self, ModelError};
use lookalike::data::Dataset;
use lookalike::data::synth::{SynthOptions, synth};
use lookalike::metrics::MetricOptions;
use lookalike::model::{Model, Neighbours, SparsePart, SparseStart};
use lookalike::predict::{Ask, Predictor, Search};
use lookalike::random::{Stream, below, mix};
use lookalike::train::{Checkpoint, SparseConfig, TrainConfig, Trainer};
use lookalike_kernels::Cpu;

/// A folder of the test's own, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lookalike-sparse-{name}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Lists of words: many classes with few examples, told apart by rare words.
fn word_lists() -> (Dataset, Dataset) {
    let shape = SynthOptions {
        classes: 400,
        features: 3_000,
        train: 2_400,
        test: 600,
        labels_per_example: 2.0,
        features_per_example: 30.0,
        noise: 0.0,
        ..SynthOptions::default()
    };
    synth(&shape).unwrap()
}

fn trained(data: &Dataset, sparse: Option<SparseConfig>) -> Checkpoint {
    let config = TrainConfig {
        hidden: vec![16],
        epochs: 3,
        batch: 64,
        budget: Some(60),
        sparse,
        ..Default::default()
    };
    let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
    while !trainer.is_done() {
        trainer.step().unwrap();
    }
    trainer.into_checkpoint()
}

fn save(checkpoint: &Checkpoint, directory: &Path, with_training_state: bool) {
    let Checkpoint { model, state } = checkpoint;
    match with_training_state {
        true => artifact::save_checkpoint(directory, model, state),
        false => artifact::save_model(directory, model, &state.record()),
    }
    .unwrap();
}

fn load(directory: &Path, with_training_state: bool) -> Result<Model, ModelError> {
    match with_training_state {
        true => artifact::load_checkpoint(directory).map(|checkpoint| checkpoint.model),
        false => artifact::load(directory).map(|saved| saved.model),
    }
}

fn answers(model: &Model, data: &Dataset) -> Vec<(Vec<u32>, Vec<f32>)> {
    let all: Vec<u32> = (0..data.view().len() as u32).collect();
    let ask = Ask::best(7);
    let ranked = Predictor::new(model, Cpu::detect()).rank(&data.view(), &all, ask);
    let answer = |i| (ranked.example(i).classes.to_vec(), ranked.example(i).scores.to_vec());
    (0..all.len()).map(answer).collect()
}

#[test]
fn word_lists_are_learnt_better_with_a_sparse_part() {
    let (train, test) = word_lists();
    let precision = |sparse| precision(&trained(&train, sparse).model, &test);
    let (with, without) = (precision(Some(SparseConfig::default())), precision(None));
    assert!(with > without + 3.0, "P@1 {with} with a sparse part, {without} without");
}

/// Walks over things on a ring: after a thing comes one of its neighbours, never itself
/// again. Every thing is near itself by what it has in common with its neighbours.
fn walks() -> (Dataset, Dataset) {
    const THINGS: u32 = 60;
    let (mut train, mut test) = (Dataset::empty(60, 60), Dataset::empty(60, 60));
    for i in 0..3_000u32 {
        let (last, step) = (i % THINGS, 1 + i / 7 % 2);
        let before = (last + THINGS - step) % THINGS;
        let set = if i % 9 < 6 { &mut train } else { &mut test };
        let mut things = [(before, 0.9), (last, 1.0)];
        things.sort_unstable_by_key(|&(thing, _)| thing);
        set.push(things, &[(last + step) % THINGS]);
    }
    (train, test)
}

/// A class has no example with the feature that speaks against it.
#[test]
fn weights_learn_what_speaks_against_a_class() {
    let (train, _) = walks();
    let part = trained(&train, Some(SparseConfig::default())).model.sparse.unwrap();
    let of_itself = |class: u32| {
        let (features, weights) = part.row(class as usize);
        features.binary_search(&class).map_or(0.0, |place| weights[place])
    };
    let against = (0..60).filter(|&class| of_itself(class) < -0.5).count();
    assert!(against > 50, "{against} of 60 classes know that they do not come twice");
}

/// A word tells which half of the classes it is, so that weights are worth having; the class is
/// made by a combination of two others, each of which is in all classes: only single
/// examples can tell. A third of each combination's examples is for testing.
fn combinations() -> (Dataset, Dataset) {
    let (mut train, mut test) = (Dataset::empty(42, 30), Dataset::empty(42, 30));
    for i in 0..3_600u32 {
        let combination = i % 400;
        let class = below(mix(9, Stream::Data, u64::from(combination), 0), 30);
        let words = [combination % 20, 20 + combination / 20, 40 + class / 15];
        let set = if i % 9 < 6 { &mut train } else { &mut test };
        set.push(words.map(|word| (word, 1.0)), &[class]);
    }
    (train, test)
}

fn precision(model: &Model, data: &Dataset) -> f64 {
    let options = MetricOptions::default();
    let found =
        Predictor::new(model, Cpu::detect()).evaluate(&data.view(), &|_| 0, &options, Search::Exact).unwrap();
    found.values.get("P@1").unwrap()
}

#[test]
fn examples_are_kept_where_single_ones_say_more_and_only_there() {
    let (train, test) = combinations();
    let with = trained(&train, Some(SparseConfig::default())).model;
    let without = trained(&train, Some(SparseConfig { neighbours: false, ..SparseConfig::default() })).model;
    assert!(without.neighbours.is_none());
    let kept = with.neighbours.as_ref().unwrap();
    // All, as folds chose the weight.
    assert_eq!(kept.num_examples(), 2_400);
    let (with, without) = (precision(&with, &test), precision(&without, &test));
    assert!(with > without + 10.0, "P@1 {with} with training examples, {without} without");

    // An example has nothing but a word of its class, which the weights know.
    let mut words = Dataset::empty(30, 30);
    (0..2_000).for_each(|i| words.push([(i % 30, 1.0)], &[i % 30]));
    assert!(trained(&words, Some(SparseConfig::default())).model.neighbours.is_none());
}

#[test]
fn a_saved_model_keeps_its_examples() {
    let (train, test) = combinations();
    let folder = Folder::new("neighbours");
    let directory = folder.0.join("model");
    let checkpoint = trained(&train, Some(SparseConfig::default()));
    let model = &checkpoint.model;
    let kept = model.neighbours.as_ref().unwrap();
    for with_training_state in [true, false] {
        save(&checkpoint, &directory, with_training_state);
        let loaded = load(&directory, with_training_state).unwrap();
        let found = loaded.neighbours.as_ref().unwrap();
        assert_eq!((found.weight(), found.entries()), (kept.weight(), kept.entries()));
        assert_eq!((found.lengths(), found.class_lengths()), (kept.lengths(), kept.class_lengths()));
        assert_eq!(found.members(), kept.members());
        assert_eq!(answers(&loaded, &test), answers(model, &test));
    }
    // Before version 3 there were none.
    edit(&directory, |config| {
        config["format-version"] = 2.into();
        config.as_object_mut().unwrap().remove("neighbours");
        config["training"]["sparse"].as_object_mut().unwrap().remove("neighbours");
        config["progress"]["examples"] = config["examples"].take();
        config.as_object_mut().unwrap().remove("examples");
    });
    assert!(load(&directory, false).unwrap().neighbours.is_none());
}

#[test]
fn damaged_examples_are_refused() {
    let folder = Folder::new("damaged-neighbours");
    let directory = folder.0.join("model");
    // Two examples of six features, three classes.
    let save = |lengths: &[u32], features: &[u32], class_lengths: &[u32], members: &[u32], weight: f32| {
        let mut checkpoint = small_model(Some(part(&[2, 0, 1], &[1, 5, 0])));
        let values = vec![half::bf16::ONE; features.len()];
        let (features, members) = (features.to_vec(), members.to_vec());
        let kept = Neighbours::from_parts(6, lengths, features, values, class_lengths, members, weight);
        checkpoint.model.neighbours = Some(kept);
        crate::save(&checkpoint, &directory, false);
        load(&directory, false)
    };
    save(&[2, 1], &[1, 5, 0], &[1, 0, 1], &[0, 1], 0.5).unwrap();
    save(&[], &[], &[0, 0, 0], &[], 0.0).unwrap();
    for (lengths, features, class_lengths, members, weight, expected) in [
        (&[2, 2][..], &[1, 5, 0][..], &[1, 0, 1][..], &[0, 1][..], 0.5, "3 features"),
        (&[2, 1], &[1, 6, 0], &[1, 0, 1], &[0, 1], 0.5, "below 6"),
        (&[2, 1], &[1, 5, 0], &[1, 1, 1], &[0, 1], 0.5, "2 training examples"),
        (&[2, 1], &[1, 5, 0], &[1, 1], &[0, 1], 0.5, "neighbours.class_lengths"),
        (&[2, 1], &[1, 5, 0], &[1, 0, 1], &[0, 2], 0.5, "below 2"),
        (&[2, 1], &[1, 5, 0], &[1, 0, 1], &[0, 1], -1.0, "weight"),
    ] {
        let error = save(lengths, features, class_lengths, members, weight).unwrap_err();
        assert!(matches!(error, ModelError::Damaged { .. } | ModelError::Shape { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.contains(expected) && message.contains("model.safetensors"), "{message}");
    }
    for value in [
        serde_json::json!({ "examples": 3, "entries": 3, "members": 2, "weight": 1.0 }),
        serde_json::json!({ "examples": 2, "entries": u64::MAX, "members": 2, "weight": 1.0 }),
        serde_json::json!({ "examples": 2, "entries": 3, "members": 2, "weight": 1e300 }),
        serde_json::json!({ "examples": 2 }),
    ] {
        save(&[2, 1], &[1, 5, 0], &[1, 0, 1], &[0, 1], 0.5).unwrap();
        edit(&directory, |config| config["neighbours"] = value.clone());
        load(&directory, false).expect_err(&value.to_string());
    }
}

#[test]
fn a_saved_model_is_the_model() {
    let (train, test) = word_lists();
    let folder = Folder::new("round-trip");
    let checkpoint = trained(&train, Some(SparseConfig::default()));
    let model = &checkpoint.model;
    let part = model.sparse.as_ref().unwrap();
    assert!(part.blend() > 0.0 && part.num_entries() > 0);
    for with_training_state in [true, false] {
        let directory = folder.0.join("model");
        save(&checkpoint, &directory, with_training_state);
        let loaded = load(&directory, with_training_state).unwrap();
        let found = loaded.sparse.as_ref().unwrap();
        assert_eq!((found.blend(), found.start()), (part.blend(), part.start()));
        assert_eq!((&found.offsets, &found.features), (&part.offsets, &part.features));
        assert_eq!(found.weights(), part.weights());
        assert_eq!(answers(&loaded, &test), answers(model, &test));
    }
}

fn small_model(sparse: Option<SparsePart>) -> Checkpoint {
    let mut data = Dataset::empty(6, 3);
    (0..3).for_each(|i| data.push([(i, 1.0), (i + 3, 0.5)], &[i]));
    let config = TrainConfig { hidden: vec![4], ..Default::default() };
    let mut checkpoint = Trainer::new(config, data.view(), Cpu::detect()).unwrap().into_checkpoint();
    checkpoint.model.sparse = sparse;
    checkpoint
}

fn part(lengths: &[u32], features: &[u32]) -> SparsePart {
    let weights = vec![0.5; features.len()];
    SparsePart::from_parts(lengths, features.to_vec(), weights, (2.0, SparseStart::Centroid), &[1; 3])
}

#[test]
fn damaged_sparse_parts_are_refused() {
    let folder = Folder::new("damaged");
    let directory = folder.0.join("model");
    for (lengths, features) in [(&[2, 0, 1][..], &[1, 5, 0][..]), (&[0, 0, 0], &[]), (&[3, 0, 0], &[0, 1, 5])]
    {
        save(&small_model(Some(part(lengths, features))), &directory, false);
        load(&directory, false).unwrap();
    }
    for (lengths, features, expected) in [
        (&[2, 0, 2][..], &[1, 5, 0][..], "3 entries"), // more than there are
        (&[1, 0, 1], &[1, 5, 0], "3 entries"),         // fewer
        (&[u32::MAX, u32::MAX, 3], &[1, 5, 0], "3 entries"),
        (&[2, 1], &[1, 5, 0], "sparse.lengths"), // a class too few
        (&[1, 1, 1, 0], &[1, 5, 0], "sparse.lengths"),
        (&[2, 0, 1], &[1, 6, 0], "ascending features below 6"),
        (&[2, 0, 1], &[1, u32::MAX, 0], "ascending features below 6"),
        (&[2, 0, 1], &[5, 1, 0], "ascending features"),
        (&[3, 0, 0], &[9, 1, 2], "ascending features"),
        (&[2, 0, 1], &[1, 1, 0], "ascending features"), // twice
    ] {
        // Lengths are written as they are; loading has to notice.
        save(&small_model(Some(part(lengths, features))), &directory, false);
        let error = load(&directory, false).unwrap_err();
        assert!(matches!(error, ModelError::Damaged { .. } | ModelError::Shape { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.contains(expected) && message.contains("model.safetensors"), "{message}");
    }
}

/// Changes `config.json` as versions up to 4 had it, without a checksum.
fn edit(directory: &Path, change: impl Fn(&mut serde_json::Value)) {
    let path = directory.join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config.as_object_mut().unwrap().remove("checksum");
    config["format-version"] = 4.into();
    change(&mut config);
    std::fs::write(path, config.to_string()).unwrap();
}

#[test]
fn sizes_and_blends_that_cannot_be_are_refused() {
    let folder = Folder::new("header");
    let directory = folder.0.join("model");
    for value in [
        serde_json::json!({ "entries": 4, "blend": 1.0 }),
        serde_json::json!({ "entries": u64::MAX, "blend": 1.0 }),
        serde_json::json!({ "entries": -1, "blend": 1.0 }),
        serde_json::json!({ "entries": 3 }),
        serde_json::json!({ "entries": 3, "blend": 1e300 }),
        serde_json::json!([]),
    ] {
        save(&small_model(Some(part(&[2, 0, 1], &[1, 5, 0]))), &directory, false);
        edit(&directory, |config| config["sparse"] = value.clone());
        load(&directory, false).expect_err(&value.to_string());
    }
    // A model without the tensors does not get a sparse part by saying so.
    save(&small_model(None), &directory, false);
    edit(&directory, |config| config["sparse"] = serde_json::json!({ "entries": 3, "blend": 1.0 }));
    let error = load(&directory, false).unwrap_err().to_string();
    assert!(error.contains("sparse.lengths"), "{error}");
}

/// Version 1 knew no sparse part, neither in the model nor in the settings.
#[test]
fn models_of_version_1_still_load() {
    let folder = Folder::new("version-1");
    let directory = folder.0.join("model");
    let checkpoint = small_model(None);
    save(&checkpoint, &directory, true);
    edit(&directory, |config| {
        config["format-version"] = 1.into();
        assert!(config.get("sparse").is_none());
        config["training"].as_object_mut().unwrap().remove("sparse");
        config["progress"]["examples"] = config["examples"].take();
        config.as_object_mut().unwrap().remove("examples");
    });
    let loaded = load(&directory, true).unwrap();
    assert!(loaded.sparse.is_none());
    assert_eq!(loaded.network.output.bias, checkpoint.model.network.output.bias);
    edit(&directory, |config| config["format-version"] = (artifact::FORMAT_VERSION + 1).into());
    assert!(matches!(load(&directory, true), Err(ModelError::Newer { .. })));
}

/// More places than the walk can number are refused before any memory is taken.
#[test]
fn batches_too_large_for_the_sparse_step_are_refused() {
    let (train, _) = word_lists();
    let sparse = Some(SparseConfig { negatives: 100_000, ..SparseConfig::default() });
    let config = TrainConfig { batch: 1 << 20, budget: Some(1), sparse, ..Default::default() };
    let error = Trainer::new(config, train.view(), Cpu::detect()).err().unwrap().to_string();
    assert!(error.contains("sparse.negatives"), "{error}");
}
