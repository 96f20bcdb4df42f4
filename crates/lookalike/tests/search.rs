//! Fast search: what it finds has the scores of an exact search, and it finds nearly all.

use std::sync::OnceLock;

use lookalike::artifact;
use lookalike::data::Dataset;
use lookalike::data::synth::{SynthOptions, synth};
use lookalike::model::{Activations, Clusters, Model, Storage};
use lookalike::predict::{Ask, Predictor, Recall, Search, TopK, index};
use lookalike::train::{NothingKept, Observer, RunPlan, SparseConfig, TrainConfig, Trainer, run};
use lookalike_kernels::Cpu;

const K: usize = 5;

struct Silent;
impl Observer for Silent {}

/// A trained model, and examples it was not trained on.
fn trained(sparse: Option<SparseConfig>) -> (Model, Dataset) {
    let options =
        SynthOptions { classes: 3000, features: 2000, train: 9000, test: 300, ..Default::default() };
    let (train, test) = synth(&options).unwrap();
    let config = TrainConfig { epochs: 2, hidden: vec![24], sparse, ..TrainConfig::default() };
    let mut trainer = Trainer::new(config, train.view(), Cpu::detect()).unwrap();
    run(&mut trainer, &RunPlan::default(), &mut NothingKept, &mut Silent).unwrap();
    (trainer.into_checkpoint().model, test)
}

/// A network alone; one with sparse weights and, where they help, training examples.
fn models() -> &'static [(Model, Dataset); 2] {
    static MODELS: OnceLock<[(Model, Dataset); 2]> = OnceLock::new();
    MODELS.get_or_init(|| [trained(None), trained(Some(SparseConfig::default()))])
}

fn rank(model: &Model, data: &Dataset, search: Search) -> TopK {
    let batch: Vec<u32> = (0..data.view().len() as u32).collect();
    let predictor = Predictor::new(model, Cpu::from_env().unwrap());
    predictor.rank(&data.view(), &batch, Ask { search, ..Ask::best(K) })
}

fn bits(ranking: &TopK) -> Vec<(Vec<u32>, Vec<u32>)> {
    let of = |example: usize| {
        let ranked = ranking.example(example);
        (ranked.classes.to_vec(), ranked.scores.iter().map(|score| score.to_bits()).collect())
    };
    (0..ranking.len()).map(of).collect()
}

#[test]
fn training_leaves_an_index_that_finds_nearly_all() {
    for (model, test) in models() {
        let index = model.search.as_ref().expect("as many classes are indexed");
        assert!(index.recall >= 0.99, "{}", index.recall);
        let exact = rank(model, test, Search::Exact);
        let quarter = Search::Fast { effort: Some(model.num_classes() / 4) };
        for (search, least) in [(Search::FAST, 0.95), (quarter, 0.85)] {
            let recall = Recall::of(&rank(model, test, search), &exact).share();
            assert!(recall > least, "{search:?}: {recall}");
        }
    }
}

#[test]
fn what_is_found_scores_as_in_an_exact_search() {
    for (model, test) in models() {
        let all = {
            let batch: Vec<u32> = (0..test.view().len() as u32).collect();
            let predictor = Predictor::new(model, Cpu::from_env().unwrap());
            predictor.rank(&test.view(), &batch, Ask::best(model.num_classes()))
        };
        for effort in [1, 64, 500] {
            let found = rank(model, test, Search::Fast { effort: Some(effort) });
            for example in 0..found.len() {
                let (found, all) = (found.example(example), all.example(example));
                for (class, score) in found.classes.iter().zip(found.scores) {
                    let place = all.classes.iter().position(|other| other == class).unwrap();
                    assert_eq!(score.to_bits(), all.scores[place].to_bits(), "class {class}");
                }
            }
        }
    }
}

#[test]
fn full_effort_is_an_exact_search() {
    for (model, test) in models() {
        let full = Search::Fast { effort: Some(model.num_classes()) };
        assert_eq!(bits(&rank(model, test, full)), bits(&rank(model, test, Search::Exact)));
    }
}

#[test]
fn an_answer_is_the_same_alone_in_a_batch_and_by_any_number_of_threads() {
    for (model, test) in models() {
        let together = bits(&rank(model, test, Search::FAST));
        let predictor = Predictor::new(model, Cpu::from_env().unwrap());
        let ask = Ask { search: Search::FAST, ..Ask::best(K) };
        for example in 0..40 {
            let alone = bits(&predictor.rank(&test.view(), &[example], ask));
            assert_eq!(alone[0], together[example as usize]);
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        assert_eq!(bits(&pool.install(|| rank(model, test, Search::FAST))), together);
    }
}

#[test]
fn the_index_has_the_same_bits_for_any_number_of_threads() {
    let (model, test) = &models()[1];
    let judges: Vec<u32> = (0..50).collect();
    let build = |threads: usize| {
        let mut model = model.clone();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| index(Cpu::from_env().unwrap(), &mut model, &test.view(), &judges));
        let found = model.search.unwrap();
        let Clusters { groups, clusters, group_offsets, offsets, members, classes } = found.clusters;
        let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let spreads = [bits(&groups.spread), bits(&clusters.spread)];
        let rows = [groups.means, clusters.means, classes]
            .map(|rows| (rows.codes.to_vec(), bits(&rows.scale), bits(&rows.bias)));
        (rows, spreads, group_offsets, offsets, members, found.effort)
    };
    assert_eq!(build(1), build(3));
}

/// Whatever is asked for, a class is in one cluster.
#[test]
fn every_class_is_in_one_cluster() {
    for (model, _) in models() {
        let clusters = &model.search.as_ref().unwrap().clusters;
        let mut members = clusters.members.clone();
        members.sort_unstable();
        assert_eq!(members, (0..model.num_classes() as u32).collect::<Vec<_>>());
        assert_eq!(*clusters.offsets.last().unwrap() as usize, members.len());
    }
}

#[test]
fn a_saved_model_finds_the_same() {
    for (model, test) in models() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        artifact::save_model(&path, model, &record()).unwrap();
        let loaded = artifact::load(&path).unwrap().model;
        let (old, new) = (model.search.as_ref().unwrap(), loaded.search.as_ref().unwrap());
        assert_eq!((old.effort, old.recall), (new.effort, new.recall));
        assert_eq!(bits(&rank(model, test, Search::FAST)), bits(&rank(&loaded, test, Search::FAST)));
    }
}

/// A file whose checksums are right may still hold nonsense.
#[test]
fn a_damaged_index_is_refused() {
    type Damage = fn(&mut Clusters);
    let damages: [(&str, Damage); 6] = [
        ("a class twice", |clusters| clusters.members[1] = clusters.members[0]),
        ("no such class", |clusters| clusters.members[0] = u32::MAX),
        ("a class less", |clusters| clusters.members.truncate(10)),
        ("a cluster too long", |clusters| *clusters.offsets.last_mut().unwrap() += 1),
        ("a group too long", |clusters| *clusters.group_offsets.last_mut().unwrap() += 1),
        ("no number", |clusters| clusters.groups.means.bias[0] = f32::NAN),
    ];
    let (model, _) = &models()[0];
    for (what, damage) in damages {
        let mut model = model.clone();
        damage(&mut model.search.as_mut().unwrap().clusters);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        artifact::save_model(&path, &model, &record()).unwrap();
        let error = artifact::load(&path).map(|_| ()).expect_err(what).to_string();
        assert!(error.contains("model.safetensors"), "{what}: {error}");
    }
}

/// Class vectors in half the memory: scores within the bound that is promised.
#[test]
fn half_the_memory_changes_scores_within_its_bound() {
    let (model, test) = &models()[0];
    let mut small = model.clone();
    small.store_classes(Storage::Bf16);
    assert_eq!(small.network.output.weights.storage(), Storage::Bf16);
    let (cpu, examples) = (Cpu::from_env().unwrap(), test.view());
    let batch: Vec<u32> = (0..40).collect();
    let classes: Vec<u32> = (0..model.num_classes() as u32).collect();
    let scores = |model: &Model| Predictor::new(model, cpu).scores(&examples, &batch, &classes);
    let (before, after) = (scores(model), scores(&small));
    assert_ne!(before, after);
    let mut activations = Activations::default();
    model.network.embed(cpu, &examples, &batch, &mut activations);
    let mut row = vec![0.0; model.network.output.stride];
    for (example, pair) in before.chunks(classes.len()).zip(after.chunks(classes.len())).enumerate() {
        let embedding = activations.embeddings().row(example).to_vec();
        for (class, (before, after)) in pair.0.iter().zip(pair.1).enumerate() {
            model.network.output.view().copy_row(class, &mut row);
            let size: f32 = row.iter().zip(&embedding).map(|(w, x)| (w * x).abs()).sum();
            assert!((before - after).abs() <= size / 256.0 + 1e-5, "{class}: {before} {after} {size}");
        }
    }
    small.store_classes(Storage::F32);
    assert_eq!(scores(&small), after, "what was rounded stays so");
}

fn record() -> lookalike::train::TrainingRecord {
    lookalike::train::TrainingRecord { config: TrainConfig::default(), progress: Default::default() }
}

#[test]
fn recall_counts_what_was_found() {
    let (model, test) = &models()[0];
    let exact = rank(model, test, Search::Exact);
    let all = (exact.len() * K) as u64;
    assert!(!exact.is_empty());
    assert_eq!(Recall::of(&exact, &exact), Recall { found: all, all });
    let few = rank(model, test, Search::Fast { effort: Some(1) });
    let found = (0..exact.len()).map(|example| {
        let (found, wanted) = (few.example(example).classes, exact.example(example).classes);
        found.iter().filter(|class| wanted.contains(class)).count() as u64
    });
    assert_eq!(Recall::of(&few, &exact), Recall { found: found.sum(), all });
    assert_eq!(Recall::default().share(), 1.0);
}

/// Cosines of all that scores a class, one class after the other.
#[test]
fn lookalikes_are_those_of_the_largest_cosine() {
    for (model, _) in models() {
        let row = |class: u32| {
            let output = &model.network.output;
            let mut row = vec![0.0; output.stride];
            output.view().copy_row(class as usize, &mut row);
            row.resize(output.stride + model.num_features(), 0.0);
            if let Some(sparse) = &model.sparse {
                let (features, weights) = sparse.row(class as usize);
                for (&feature, weight) in features.iter().zip(weights) {
                    row[output.stride + feature as usize] = sparse.blend() * weight;
                }
            }
            row
        };
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(x * y)).sum::<f64>();
        let predictor = Predictor::new(model, Cpu::from_env().unwrap());
        for class in [0, 7, 2999] {
            let own = row(class);
            let found = predictor.lookalikes(class, 10);
            assert_eq!(found.len(), 10);
            assert!(found.windows(2).all(|pair| pair[0].0 >= pair[1].0));
            for &(cosine, other) in &found {
                let vector = row(other);
                let expected = dot(&own, &vector) / (dot(&own, &own) * dot(&vector, &vector)).sqrt();
                assert!((f64::from(cosine) - expected).abs() < 1e-3, "{cosine} {expected}");
                assert!(other != class && (0.01..=1.001).contains(&cosine), "{cosine}");
            }
            let least = f64::from(found[9].0) - 1e-3;
            let better = (0..3000).filter(|&other| other != class).filter(|&other| {
                let vector = row(other);
                dot(&own, &vector) / (dot(&own, &own) * dot(&vector, &vector)).sqrt() >= least
            });
            assert!(better.count() >= 10);
        }
    }
}
