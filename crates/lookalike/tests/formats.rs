//! Files that earlier versions wrote, opened by this one, for ever: each model of
//! tests/fixtures answers what its own release answered, and those with training
//! state go on. See tests/fixtures/README.md.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use lookalike::artifact::{self, FORMAT_VERSION};
use lookalike::data::{Dataset, Examples, Packed, ReadOptions, Source, packed};
use lookalike::model::{Model, Storage};
use lookalike::predict::{Ask, Predictor};
use lookalike::text::{TextFile, dense_dataset_with_names, transform_dataset};
use lookalike::train::{Checkpoint, Trainer};
use lookalike_kernels::Cpu;
use serde::Deserialize;

/// Models by the data they were trained on.
const MODELS: [(&str, Data); 34] = [
    ("v1-numbers", Data::Numbers),
    ("v1-two-layers", Data::Numbers),
    ("v1-bf16-exact-adam", Data::Numbers),
    ("v1-text", Data::Texts),
    ("v1-text-hashed", Data::Texts),
    ("v1-embeddings", Data::Embeddings),
    ("v2-no-priors", Data::Numbers),
    ("v2-no-priors-within-epoch", Data::Numbers),
    ("v2-blend-0", Data::Numbers),
    ("v2-centroid", Data::Numbers),
    ("v2-log-mean", Data::Numbers),
    ("v2-within-epoch", Data::Numbers),
    ("v2-text", Data::Texts),
    ("v3-first", Data::Numbers),
    ("v3-plain", Data::Numbers),
    ("v3-centroid", Data::Numbers),
    ("v3-log-mean", Data::Numbers),
    ("v3-no-state", Data::Numbers),
    ("v3-first-step", Data::Numbers),
    ("v3-within-epoch", Data::Numbers),
    ("v3-bf16", Data::Numbers),
    ("v3-text", Data::Texts),
    ("v4-plain", Data::Numbers),
    ("v4-centroid", Data::Numbers),
    ("v4-no-state", Data::Numbers),
    ("v4-within-epoch", Data::Numbers),
    ("v4-text", Data::Texts),
    ("v5-plain", Data::Numbers),
    ("v5-centroid", Data::Numbers),
    ("v5-no-state", Data::Numbers),
    ("v5-within-epoch", Data::Numbers),
    ("v5-text", Data::Texts),
    ("v5-auto", Data::Numbers),
    ("v5-ranks", Data::Numbers),
];

#[derive(Clone, Copy)]
enum Data {
    Numbers,
    Texts,
    Embeddings,
}

/// Scores are sums in floating point, and each instruction set adds in its own order.
const ROUNDING: f32 = 1e-5;
/// What rounding grows to in an epoch, with parameters in f32 and in bf16.
const ROUNDING_AFTER_AN_EPOCH: [f32; 2] = [1e-3, 0.05];

/// From this format on the frequency of classes counts also in a model that was saved
/// within an epoch; the releases before left it out there.
const PRIORS_APART_SINCE: u64 = 4;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// A model of the fixtures.
struct Fixture {
    name: &'static str,
    data: Data,
}

fn all() -> impl Iterator<Item = Fixture> {
    MODELS.into_iter().map(|(name, data)| Fixture { name, data })
}

impl Fixture {
    fn folder(&self) -> PathBuf {
        fixtures().join("models").join(self.name)
    }

    fn load(&self) -> Model {
        let saved = artifact::load(&self.folder().join("model"));
        saved.unwrap_or_else(|e| panic!("{}: {e}", self.name)).model
    }

    fn load_checkpoint(&self) -> Checkpoint {
        let checkpoint = artifact::load_checkpoint(&self.folder().join("model"));
        checkpoint.unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    fn has_training_state(&self) -> bool {
        self.folder().join("model/training.safetensors").exists()
    }

    fn config(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.folder().join("model/config.json")).unwrap()).unwrap()
    }

    /// What its own release answered.
    fn answers(&self, model: &Model) -> Vec<Answer> {
        let mut answers = self.answers_in("answers.jsonl").unwrap();
        let config = self.config();
        let is_within_epoch = config["progress"]["position"] != 0;
        if is_within_epoch && config["format-version"].as_u64().unwrap() < PRIORS_APART_SINCE {
            answers.iter_mut().for_each(|answer| answer.add_priors(&config["sparse"], model));
        }
        answers
    }

    /// Answers of its own release, if it left such a file.
    fn answers_in(&self, file: &str) -> Option<Vec<Answer>> {
        let lines = fs::read_to_string(self.folder().join(file)).ok()?;
        Some(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    fn train_examples(&self, model: &Model) -> Dataset {
        let data = fixtures().join("data");
        match self.data {
            Data::Numbers => numbers(&data.join("numbers-train.txt")),
            Data::Texts => texts(&data.join("texts-train.jsonl"), model),
            Data::Embeddings => {
                let labels = data.join("embeddings-labels.txt");
                let names = model.label_names().unwrap();
                dense_dataset_with_names(&data.join("embeddings-train.npy"), &labels, "|", names).unwrap().0
            }
        }
    }

    fn test_examples(&self, model: &Model) -> Dataset {
        let data = fixtures().join("data");
        match self.data {
            Data::Numbers => numbers(&data.join("numbers-test.txt")),
            Data::Texts => texts(&data.join("texts-test.txt"), model),
            Data::Embeddings => numbers(&data.join("embeddings-test.txt")),
        }
    }

    /// Fails if answers of this version differ from those of the release.
    fn compare(&self, found: &[Answer], expected: &[Answer], rounding: f32) {
        assert_eq!(found.len(), expected.len(), "{}: examples", self.name);
        for (example, (found, expected)) in found.iter().zip(expected).enumerate() {
            let place = format!("{}, example {example}", self.name);
            let scores: HashMap<&str, f32> = found.pairs().collect();
            assert_eq!(scores.len(), expected.labels.len(), "{place}: classes");
            for (label, expected) in expected.pairs() {
                let found = scores[label];
                let close = (found - expected).abs() <= rounding * expected.abs().max(1.0);
                assert!(close, "{place}: {label:?} scores {found}, and then {expected}");
            }
            if rounding <= ROUNDING {
                let best = |answer: &Answer| answer.labels.iter().take(5).cloned().collect::<Vec<_>>();
                assert_eq!(best(found), best(expected), "{place}: the best classes");
            }
        }
    }
}

/// A line of `lookalike predict --format jsonl`: classes and scores, best first.
#[derive(Debug, Deserialize)]
struct Answer {
    labels: Vec<String>,
    scores: Vec<f32>,
}

impl Answer {
    fn pairs(&self) -> impl Iterator<Item = (&str, f32)> {
        self.labels.iter().map(String::as_str).zip(self.scores.iter().copied())
    }

    /// Adds `blend · prior · ln n` to the score of each class with n examples. A
    /// sparse part without a start is of the time before priors.
    fn add_priors(&mut self, sparse: &serde_json::Value, model: &Model) {
        let Some(start) = sparse["start"].as_str() else { return };
        let factor = sparse["blend"].as_f64().unwrap() as f32 * if start == "log-mean" { 1.0 } else { 0.15 };
        let mut pairs: Vec<(f32, String)> = self.scores.drain(..).zip(self.labels.drain(..)).collect();
        for (score, label) in &mut pairs {
            let count = model.frequencies.examples_of_class[model.class_id(label).unwrap() as usize];
            *score += factor * (count.max(1) as f32).ln();
        }
        pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
        (self.scores, self.labels) = pairs.into_iter().unzip();
    }
}

fn numbers(path: &Path) -> Dataset {
    match Source::load(path, &ReadOptions::default()).unwrap().0 {
        Source::Parsed(data) => data,
        Source::Packed(_) => unreachable!("these files are text"),
    }
}

fn texts(path: &Path, model: &Model) -> Dataset {
    let with_labels = path.extension().is_some_and(|extension| extension == "jsonl");
    let options = lookalike::text::ReadOptions { with_labels, ..Default::default() };
    let file = TextFile::open(path, &options).unwrap();
    let text = model.text.as_ref().expect("trained from text");
    transform_dataset(&file, &text.vectoriser, &text.names).unwrap().0
}

/// What a model answers now: all classes for each example, best first.
fn answers_of(model: &Model, examples: Examples<'_>) -> Vec<Answer> {
    let all: Vec<u32> = (0..examples.len() as u32).collect();
    let ask = Ask::best(model.num_classes());
    let ranked = Predictor::new(model, Cpu::detect()).rank(&examples, &all, ask);
    let answer = |i: usize| {
        let ranked = ranked.example(i);
        let labels = ranked.classes.iter().map(|&class| model.class_name(class)).collect();
        Answer { labels, scores: ranked.scores.to_vec() }
    };
    (0..all.len()).map(answer).collect()
}

/// Goes on with a model until three epochs are done.
fn trained_for_three_epochs(mut checkpoint: Checkpoint, examples: Examples<'_>) -> Checkpoint {
    checkpoint.state.config.epochs = 3;
    let mut trainer = Trainer::resume(checkpoint, examples, Cpu::detect()).unwrap();
    while !trainer.is_done() {
        trainer.step().unwrap();
    }
    trainer.into_checkpoint()
}

/// Whoever raises a version adds a fixture of it here.
#[test]
fn every_version_of_every_format_is_here() {
    let found: BTreeSet<String> = fs::read_dir(fixtures().join("models"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, all().map(|fixture| fixture.name.into()).collect::<BTreeSet<String>>());
    let mut versions = BTreeSet::new();
    for fixture in all() {
        let version = fixture.config()["format-version"].as_u64().unwrap();
        assert!(fixture.name.starts_with(&format!("v{version}-")), "{} has format {version}", fixture.name);
        versions.insert(version);
    }
    assert_eq!(versions, (1..=u64::from(FORMAT_VERSION)).collect());
    assert_eq!(packed::VERSION, 1);
}

#[test]
fn old_models_answer_as_they_did() {
    for fixture in all() {
        for for_training in [false, true] {
            if !for_training || fixture.has_training_state() {
                let model = if for_training { fixture.load_checkpoint().model } else { fixture.load() };
                let found = answers_of(&model, fixture.test_examples(&model).view());
                fixture.compare(&found, &fixture.answers(&model), ROUNDING);
            }
        }
    }
}

#[test]
fn old_models_saved_by_this_version_answer_as_they_did() {
    for fixture in all() {
        let folder = tempfile::tempdir().unwrap();
        if fixture.has_training_state() {
            let Checkpoint { model, state } = fixture.load_checkpoint();
            artifact::save_checkpoint(folder.path(), &model, &state).unwrap();
            artifact::load_checkpoint(folder.path()).unwrap();
        } else {
            let saved = artifact::load(&fixture.folder().join("model")).unwrap();
            artifact::save_model(folder.path(), &saved.model, &saved.record).unwrap();
        }
        let model = artifact::load(folder.path()).unwrap().model;
        let found = answers_of(&model, fixture.test_examples(&model).view());
        fixture.compare(&found, &fixture.answers(&model), ROUNDING);
    }
}

/// Where training is what it was, old models also end where their release did.
#[test]
fn old_models_go_on() {
    for fixture in all().filter(Fixture::has_training_state) {
        let checkpoint = fixture.load_checkpoint();
        let done = checkpoint.state.progress.iteration;
        let train = fixture.train_examples(&checkpoint.model);
        let Checkpoint { model, state } = trained_for_three_epochs(checkpoint, train.view());
        assert_eq!((state.progress.epoch, state.progress.position), (3, 0), "{}", fixture.name);
        assert!(state.progress.iteration > done, "{}", fixture.name);
        let found = answers_of(&model, fixture.test_examples(&model).view());
        let is_finite = found.iter().all(|answer| answer.scores.iter().all(|score| score.is_finite()));
        assert!(is_finite, "{}", fixture.name);
        // Sparse weights have been trained by another loss since (CHANGELOG), and go on by it.
        let expected = fixture.answers_in("answers-after-third-epoch.jsonl");
        if let Some(expected) = expected.filter(|_| model.sparse.is_none()) {
            let is_bf16 = model.network.config.storage == Storage::Bf16;
            fixture.compare(&found, &expected, ROUNDING_AFTER_AN_EPOCH[usize::from(is_bf16)]);
        }
    }
}

#[test]
fn old_packed_files_hold_the_same_examples() {
    let expected = numbers(&fixtures().join("data/numbers-test.txt"));
    let found = Packed::open(&fixtures().join("data/numbers-test.v1.lkp")).unwrap();
    found.verify().unwrap();
    let (found, expected) = (found.view(), expected.view());
    assert_eq!((found.num_features, found.num_classes), (expected.num_features, expected.num_classes));
    assert_eq!(found.feature_offsets, expected.feature_offsets);
    assert_eq!(found.feature_ids, expected.feature_ids);
    assert_eq!(found.feature_values, expected.feature_values);
    assert_eq!(found.label_offsets, expected.label_offsets);
    assert_eq!(found.label_ids, expected.label_ids);
}
