//! Fast search: what it finds has the scores of an exact search, and it finds nearly all.

use std::sync::OnceLock;

use lookalike::artifact;
use lookalike::data::Dataset;
use lookalike::data::synth::{SynthOptions, synth};
use lookalike::model::{
    Activation, Activations, ClassFrequencies, Clusters, Init, Model, Neighbours, Network, NetworkConfig,
    Normalise, SearchIndex, SparsePart, SparseStart, Storage,
};
use lookalike::predict::{Ask, Predictor, Recall, Search, TopK, index};
use lookalike::sampling::SamplerKind;
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

/// A file twice as long: every second example is ranked exactly too, and all of them count.
#[test]
fn an_evaluation_measures_recall_on_some_examples() {
    let (model, test) = &models()[0];
    let model = &Model { calibration: None, ..model.clone() };
    let mut data = Dataset::empty(model.num_features(), model.num_classes());
    let view = test.view();
    for i in 0..2000 {
        let (ids, values) = view.features(i % 300);
        data.push(ids.iter().copied().zip(values.iter().copied()), view.labels(i % 300));
    }
    let predictor = Predictor::new(model, Cpu::from_env().unwrap());
    let search = Search::Fast { effort: Some(64) };
    let options = lookalike::metrics::MetricOptions::default();
    let found = predictor.evaluate(&data.view(), &|_| 0, &options, search).unwrap();
    let asked: Vec<u32> = (0..2000).step_by(2).collect();
    let k = found.recall.unwrap().all as usize / asked.len();
    let rank = |search| predictor.rank(&data.view(), &asked, Ask { search, ..Ask::best(k) });
    assert_eq!(found.recall.unwrap(), Recall::of(&rank(search), &rank(Search::Exact)));
    assert_eq!(found.examples + found.skipped, 2000);
}

#[test]
fn the_effort_is_the_least_that_finds_enough() {
    let cpu = Cpu::from_env().unwrap();
    for (model, test) in models() {
        let judges: Vec<u32> = (0..200).collect();
        let mut model = model.clone();
        index(cpu, &mut model, &test.view(), &judges);
        let chosen = model.search.as_ref().unwrap();
        let predictor = Predictor::new(&model, cpu);
        let recall = |effort: usize| {
            let search = Search::Fast { effort: Some(effort) };
            let found = predictor.rank(&test.view(), &judges, Ask { search, ..Ask::best(K) });
            let exact = predictor.rank(&test.view(), &judges, Ask::best(K));
            Recall::of(&found, &exact).share()
        };
        assert_eq!(recall(chosen.effort) as f32, chosen.recall);
        assert!(chosen.recall >= 0.99);
        assert!(chosen.effort == 64 || recall(chosen.effort / 2) < 0.99, "{}", chosen.effort);
    }
}

#[test]
fn a_model_of_few_classes_gets_no_index() {
    for (classes, is_indexed) in [(2, false), (1999, false), (2000, true), (2001, true)] {
        let mut data = Dataset::empty(50, classes);
        (0..40).for_each(|i| data.push([(i, 1.0)], &[i % 2]));
        let config =
            TrainConfig { sampler: SamplerKind::Uniform, hidden: vec![16], ..TrainConfig::default() };
        let mut trainer = Trainer::new(config, data.view(), Cpu::from_env().unwrap()).unwrap();
        assert_eq!(trainer.lacks_index(), is_indexed, "{classes}");
        trainer.index();
        assert_eq!(trainer.model.search.is_some(), is_indexed, "{classes}");
    }
}

/// Class vectors that say nothing, and one class that another part of the model means.
fn scattered() -> Model {
    let config = NetworkConfig {
        num_features: 50,
        num_classes: 3000,
        hidden: vec![16],
        activation: Activation::Linear,
        normalise: Normalise::None,
        storage: Storage::F32,
    };
    Model::new(Network::random(config, Init::default(), 3), ClassFrequencies::default())
}

#[test]
fn what_one_part_of_the_model_means_is_found_by_that_part() {
    let cpu = Cpu::from_env().unwrap();
    let mut data = Dataset::empty(50, 3000);
    (0..50).for_each(|feature| data.push([(feature, 1.0)], &[60 * feature]));
    let all: Vec<u32> = (0..50).collect();

    let mut by_weights = scattered();
    let lengths: Vec<u32> = (0..3000).map(|class| u32::from(class % 60 == 0)).collect();
    let start = (1.0, SparseStart::Centroid);
    by_weights.sparse = Some(SparsePart::from_parts(&lengths, all.clone(), vec![9.0; 50], start, &[1; 3000]));
    let mut by_examples = scattered();
    by_examples.neighbours = Some(Neighbours::new(&data.view(), &all).weighted(9.0));
    for mut model in [by_weights, by_examples] {
        model.search = Some(SearchIndex::build(cpu, &model));
        let ask = |search| Ask { search, ..Ask::best(1) };
        let predictor = Predictor::new(&model, cpu);
        let fast = predictor.rank(&data.view(), &all, ask(Search::Fast { effort: Some(32) }));
        let exact = predictor.rank(&data.view(), &all, ask(Search::Exact));
        for example in 0..50 {
            assert_eq!(fast.example(example), exact.example(example));
            assert_eq!(fast.example(example).classes, [60 * example as u32]);
        }
    }
}

/// Lists of weights end somewhere: the best class of all may have its weight behind the end,
/// and more than a few dozen others seem better until they are scored exactly.
#[test]
fn what_weights_behind_the_end_of_a_list_make_best_is_found() {
    let (classes, best) = (20_000, 15_000);
    let config =
        NetworkConfig { num_features: 1, num_classes: classes, ..scattered().network.config.clone() };
    let mut network = Network::zeroed(config);
    network.input.fill(|_, row| row[0] = 1.0);
    network.output.fill(|class, row| {
        let small = |place: usize| ((class * 31 + place * 17 + class / 7 * place) % 101) as f32 / 5000.0;
        row[1..16].iter_mut().enumerate().for_each(|(place, x)| *x = small(place) - 0.01);
        row[0] = if class == best { 0.9 } else { 0.0 };
    });
    let mut model = Model::new(network, ClassFrequencies::default());
    let weights = (0..classes).map(|class| if class < 3000 { 1.0 } else { 0.5 });
    let mut weights: Vec<f32> = weights.collect();
    weights[best] = 0.99;
    let start = (1.0, SparseStart::Centroid);
    model.sparse =
        Some(SparsePart::from_parts(&vec![1; classes], vec![0; classes], weights, start, &vec![1; classes]));
    let cpu = Cpu::from_env().unwrap();
    model.search = Some(SearchIndex::build(cpu, &model));
    let mut data = Dataset::empty(1, classes);
    data.push([(0, 1.0)], &[]);
    let search = Search::Fast { effort: Some(256) };
    let found = Predictor::new(&model, cpu).rank(&data.view(), &[0], Ask { search, ..Ask::best(1) });
    assert_eq!(found.example(0).classes, [best as u32]);
}

#[test]
fn an_answer_is_as_long_as_asked_for_and_its_probabilities_are_not_smaller() {
    for (model, test) in models() {
        let predictor = Predictor::new(model, Cpu::from_env().unwrap());
        let batch: Vec<u32> = (0..20).collect();
        let answer = |search| {
            let ask = Ask { search, probabilities: true, ..Ask::best(300) };
            predictor.rank(&test.view(), &batch, ask)
        };
        let (exact, fast) = (answer(Search::Exact), answer(Search::Fast { effort: Some(1) }));
        for example in 0..batch.len() {
            assert_eq!(fast.example(example).classes.len(), 300);
            if let (Some(fast), Some(exact)) = (fast.log_sum_exp(example), exact.log_sum_exp(example)) {
                assert!(fast <= exact + 1e-2 && fast > exact - 3.0, "{fast} {exact}");
            }
        }
    }
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
