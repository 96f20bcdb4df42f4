//! Models that go on: new classes and features, classes that go, weights.

use lookalike::artifact;
use lookalike::data::{Dataset, Examples};
use lookalike::model::{ChangeError, Growth, Init, Model};
use lookalike::predict::Predictor;
use lookalike::train::{
    FurtherData, SparseConfig, TrainConfig, TrainError, Trainer, rehearsal_weights, rehearsed,
    sparse_rate_change,
};
use lookalike_kernels::Cpu;

const PER_CLASS: u32 = 12;

/// Examples of some classes: two features of the class, one of the example among
/// neighbours, one of all.
fn data(classes: std::ops::Range<u32>) -> Dataset {
    let mut data = Dataset::empty(1 + 3 * classes.end as usize, classes.end as usize);
    for i in 0..PER_CLASS {
        for class in classes.clone() {
            let other = (class + 1 + i % 3) % classes.end;
            let mut features =
                vec![(0, 0.5), (1 + 3 * class, 1.0), (2 + 3 * class, 0.7), (3 + 3 * other, 0.4)];
            features.sort_by_key(|&(id, _)| id);
            data.push(features, &[class]);
        }
    }
    data
}

fn config() -> TrainConfig {
    TrainConfig {
        epochs: 4,
        batch: 32,
        hidden: vec![16],
        budget: Some(8),
        retrieve: Some(0),
        // Nobody is asked whether the sparse part helps: it would not be missed here.
        sparse: Some(SparseConfig { held_out: 0, ..SparseConfig::default() }),
        ..TrainConfig::default()
    }
}

fn finish(mut trainer: Trainer<'_>) -> Trainer<'_> {
    while !trainer.is_done() {
        trainer.step().unwrap();
    }
    trainer
}

fn trained(data: &Dataset, config: TrainConfig) -> Model {
    let trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
    finish(trainer).into_checkpoint().model
}

/// Scores of some classes for all examples, bit by bit.
fn scores(model: &Model, examples: Examples<'_>, classes: &[u32]) -> Vec<u32> {
    let examples = Examples { num_features: model.num_features(), ..examples };
    let batch: Vec<u32> = (0..examples.len() as u32).collect();
    let scores = Predictor::new(model, Cpu::detect()).scores(&examples, &batch, classes);
    scores.into_iter().map(f32::to_bits).collect()
}

fn hits(model: &Model, data: &Dataset) -> usize {
    let all: Vec<u32> = (0..model.num_classes() as u32).collect();
    let scores = scores(model, data.view(), &all);
    let best = |row: &[u32]| {
        (0..row.len()).max_by(|&a, &b| f32::from_bits(row[a]).total_cmp(&f32::from_bits(row[b])))
    };
    let rows = scores.chunks_exact(all.len()).enumerate();
    rows.filter(|(i, row)| best(row) == Some(data.view().labels(*i)[0] as usize)).count()
}

fn growth(num_features: usize, num_classes: usize) -> Growth {
    Growth { num_features, num_classes, init: Init::default(), bias: 0.0, seed: 1 }
}

#[test]
fn growing_changes_no_score_of_what_was_there() {
    let data = data(0..20);
    let model = trained(&data, config());
    assert!(model.sparse.is_some());
    let old: Vec<u32> = (0..20).collect();
    let mut grown = model.clone();
    grown.grow(&growth(100, 30));
    assert_eq!((grown.num_features(), grown.num_classes()), (100, 30));
    assert_eq!(scores(&grown, data.view(), &old), scores(&model, data.view(), &old));
    // New rows are those of a new network.
    let fresh = lookalike::model::Network::random(grown.network.config.clone(), Init::default(), 1);
    let row = |rows: &lookalike::model::Rows, i: usize| {
        let mut row = vec![0.0; rows.stride];
        rows.view().copy_row(i, &mut row);
        row
    };
    assert_eq!(row(&grown.network.output, 29), row(&fresh.output, 29));
    assert_eq!(row(&grown.network.input, 99), row(&fresh.input, 99));
    assert_ne!(row(&grown.network.output, 3), row(&fresh.output, 3));
}

#[test]
fn removing_classes_changes_no_score_of_the_others_and_survives_the_disk() {
    let data = data(0..20);
    let trainer = finish(Trainer::new(config(), data.view(), Cpu::detect()).unwrap());
    let record = trainer.state.record();
    let model = trainer.into_checkpoint().model;
    let mut smaller = model.clone();
    let kept = smaller.remove_classes(&[3, 19, 3, 0]).unwrap();
    assert_eq!(kept.len(), 17);
    assert_eq!(smaller.num_classes(), 17);
    let all: Vec<u32> = (0..17).collect();
    assert_eq!(scores(&smaller, data.view(), &all), scores(&model, data.view(), &kept));
    assert_eq!(smaller.class_name(0), "1");
    assert_eq!(smaller.class_id("19"), None);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    artifact::save_model(&path, &smaller, &record).unwrap();
    let loaded = artifact::load(&path).unwrap().model;
    assert_eq!(scores(&loaded, data.view(), &all), scores(&smaller, data.view(), &all));
    assert_eq!(loaded.class_name(0), "1");
}

#[test]
fn impossible_changes_are_refused_and_change_nothing() {
    let mut model = trained(&data(0..4), config());
    let before = scores(&model, data(0..4).view(), &[0, 1, 2, 3]);
    let unknown = |name: &str| ChangeError::Unknown { name: name.into() };
    assert_eq!(model.remove_classes(&[1, 4]).unwrap_err(), unknown("4"));
    assert_eq!(
        model.remove_classes(&[0, 1, 2]).unwrap_err(),
        ChangeError::TooFewLeft { classes: 4, removed: 3 }
    );
    assert_eq!(model.rename_classes(&[(9, "a".into())]).unwrap_err(), unknown("9"));
    assert_eq!(
        model.rename_classes(&[(0, "2".into())]).unwrap_err(),
        ChangeError::Taken { name: "2".into() }
    );
    assert_eq!(model.rename_classes(&[(0, String::new())]).unwrap_err(), ChangeError::Empty);
    assert_eq!(scores(&model, data(0..4).view(), &[0, 1, 2, 3]), before);
    assert!(model.label_names().is_none());
    // Two may exchange their names.
    model.rename_classes(&[(0, "2".into()), (2, "0".into())]).unwrap();
    assert_eq!((model.class_id("2"), model.class_id("0")), (Some(0), Some(2)));
    model.add_classes(&["new".into()], &growth(0, 0)).unwrap();
    assert_eq!(model.class_id("new"), Some(4));
    let again = model.add_classes(&["new".into()], &growth(0, 0)).unwrap_err();
    assert_eq!(again, ChangeError::Taken { name: "new".into() });
}

/// The new classes' examples and some of the old ones.
fn further(model: &Model, config: TrainConfig) -> Model {
    let new = data(20..26);
    let all = Dataset::concat(&[new.clone(), rehearsed(data(0..20).view(), 0.5, model, 1)]);
    let num_new = new.view().len();
    let given = FurtherData { examples: all.view(), num_new, rehearsed_an_epoch: all.view().len() - num_new };
    let trainer = Trainer::further(model.clone(), config, given, Cpu::detect()).unwrap();
    finish(trainer).into_checkpoint().model
}

#[test]
fn new_classes_are_learnt_and_old_ones_are_not_forgotten() {
    let (old, new) = (data(0..20), data(20..26));
    let model = trained(&old, config());
    assert_eq!(hits(&model, &old), old.view().len());
    let grown = further(&model, config());
    assert_eq!(grown.num_classes(), 26);
    assert_eq!(grown.num_features(), new.num_features);
    assert!(hits(&grown, &new) > new.view().len() * 9 / 10, "{}", hits(&grown, &new));
    assert!(hits(&grown, &old) > old.view().len() * 9 / 10, "{}", hits(&grown, &old));
    // Only new examples are further training data.
    assert_eq!(grown.frequencies.examples_of_class, vec![PER_CLASS; 26]);
    assert_eq!(grown.frequencies.num_examples, 26 * PER_CLASS as usize);
    let priors = grown.sparse.as_ref().unwrap().priors();
    assert!(priors.iter().all(|&prior| prior == priors[0]));
}

/// Their vectors start in the middle of their examples.
#[test]
fn new_classes_are_found_before_the_first_step() {
    let (old, new) = (data(0..20), data(20..26));
    let dense = TrainConfig { sparse: None, ..config() };
    let model = trained(&old, dense.clone());
    let given = FurtherData::new(new.view());
    let trainer = Trainer::further(model.clone(), dense.clone(), given, Cpu::detect()).unwrap();
    let classes: Vec<u32> = (0..20).collect();
    assert_eq!(scores(&trainer.model, old.view(), &classes), scores(&model, old.view(), &classes));
    let found = hits(&trainer.model, &new);
    assert!(found > new.view().len() * 2 / 3, "{found}");
    // A class without an example starts as in a new network.
    let mut more = new.clone();
    more.num_classes = 27;
    let trainer =
        Trainer::further(model.clone(), dense, FurtherData::new(more.view()), Cpu::detect()).unwrap();
    let mut grown = model;
    grown.grow(&growth(new.num_features, 27));
    let row = |model: &Model, class: usize| {
        let mut row = vec![0.0; model.network.output.stride];
        model.network.output.view().copy_row(class, &mut row);
        row
    };
    assert_eq!(row(&trainer.model, 26), row(&grown, 26));
    assert_ne!(row(&trainer.model, 25), row(&grown, 25));
}

#[test]
fn threads_do_not_show_in_further_training() {
    let model = trained(&data(0..20), config());
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let all: Vec<u32> = (0..26).collect();
        pool.install(|| scores(&further(&model, config()), data(0..26).view(), &all))
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(3));
}

#[test]
fn frozen_features_stay_and_new_ones_move() {
    let model = trained(&data(0..20), config());
    let frozen = model.num_features();
    let grown = further(&model, TrainConfig { frozen_features: frozen, ..config() });
    let row = |model: &Model, i: usize| {
        let mut row = vec![0.0; model.network.input.stride];
        model.network.input.view().copy_row(i, &mut row);
        row
    };
    assert!((0..frozen).all(|feature| row(&grown, feature) == row(&model, feature)));
    assert_eq!(grown.network.input_bias, model.network.input_bias);
    let mut start = model.clone();
    start.grow(&growth(grown.num_features(), 26));
    assert_ne!(row(&grown, 61), row(&start, 61));
    let moved = further(&model, config());
    assert_ne!(row(&moved, 0), row(&model, 0));
    // With nothing new below, only the output layer moves.
    let old = data(0..20);
    let given = FurtherData::new(old.view());
    let config = TrainConfig { frozen_features: frozen, ..config() };
    let same =
        finish(Trainer::further(model.clone(), config, given, Cpu::detect()).unwrap()).into_checkpoint();
    assert_eq!(row(&same.model, 0), row(&model, 0));
}

/// Whatever the share, an epoch's examples count 1 on average, rehearsed ones more by the root
/// of how much less often they are shown.
#[test]
fn what_is_shown_less_often_counts_more() {
    let mut all = data(0..20);
    let count = all.view().len();
    let (num_new, share) = (count / 4, 0.25);
    let an_epoch = (count - num_new) / 4;
    let weights = rehearsal_weights(all.view(), num_new, an_epoch, share);
    let shown = num_new as f32 * weights[0] + an_epoch as f32 * weights[count - 1];
    assert!((shown - (num_new + an_epoch) as f32).abs() < 1e-3, "{shown}");
    assert!((weights[num_new] / weights[num_new - 1] - 2.0).abs() < 1e-5);
    all.weights = vec![0.5; count];
    let halved = rehearsal_weights(all.view(), num_new, an_epoch, share);
    assert!(halved.iter().zip(&weights).all(|(half, weight)| (half - 0.5 * weight).abs() < 1e-6));
}

/// As one training on all would have chosen it.
#[test]
fn sparse_weights_learn_the_slower_the_more_labels_an_example_has() {
    let old = data(0..4);
    let model = trained(&old, config());
    let count = old.view().len();
    let with_labels = |labels: &[u32]| {
        let mut new = Dataset::empty(old.num_features, 8);
        (0..count).for_each(|_| new.push([(0, 1.0)], labels));
        sparse_rate_change(&model, &new.view())
    };
    assert_eq!(with_labels(&[7]), 1.0);
    // Two labels an example, now that half of them have three.
    assert_eq!(with_labels(&[1, 5, 7]), 0.5);
}

#[test]
fn data_smaller_than_the_model_is_refused() {
    let model = trained(&data(0..20), config());
    let small = data(0..10);
    let refused = Trainer::further(model, config(), FurtherData::new(small.view()), Cpu::detect());
    assert!(matches!(refused, Err(TrainError::OtherData { what: "features", .. })));
}

/// A dense network: what is held out depends on an example's number.
fn dense() -> TrainConfig {
    TrainConfig { sparse: None, ..config() }
}

#[test]
fn an_example_without_weight_is_left_out() {
    let all = data(0..20);
    let mut weighted = all.clone();
    let count = all.view().len();
    weighted.weights = (0..count).map(|i| if i % 3 == 0 { 0.0 } else { 1.0 }).collect();
    let chosen: Vec<usize> = (0..count).filter(|i| i % 3 != 0).collect();
    let without = Dataset::select(all.view(), &chosen);
    let (one, two) = (trained(&weighted, dense()), trained(&without, dense()));
    assert_eq!(one.frequencies, two.frequencies);
    let classes: Vec<u32> = (0..20).collect();
    assert_eq!(scores(&one, all.view(), &classes), scores(&two, all.view(), &classes));
}

#[test]
fn a_weight_of_one_changes_no_bit_and_others_do() {
    let all = data(0..20);
    let classes: Vec<u32> = (0..20).collect();
    let of = |weight: f32| {
        let mut weighted = all.clone();
        weighted.weights = vec![1.0; all.view().len()];
        weighted.weights[7] = weight;
        scores(&trained(&weighted, config()), all.view(), &classes)
    };
    assert_eq!(of(1.0), scores(&trained(&all, config()), all.view(), &classes));
    assert_ne!(of(2.0), of(1.0));
}

/// Twice in a batch is once with twice the weight, but for the batch's length, by which
/// Adam's moments are divided too.
#[test]
fn a_sparse_row_of_doubled_examples_is_that_of_doubled_weights() {
    use lookalike::model::{MeanRows, Normalise, SparsePart, SparseStart};
    let mut once = data(0..6);
    let twice: Vec<usize> =
        (0..once.view().len()).flat_map(|i| vec![i; 1 + usize::from(i % 2 == 0)]).collect();
    let twice = Dataset::select(once.view(), &twice);
    once.weights = (0..once.view().len()).map(|i| if i % 2 == 0 { 2.0 } else { 1.0 }).collect();
    for start in [SparseStart::Centroid, SparseStart::LogMean] {
        let rows = MeanRows { start, length: 3.0, entries_max: 100 };
        let means = |data: &Dataset| {
            let all: Vec<u32> = (0..data.view().len() as u32).collect();
            SparsePart::from_means(&data.view(), &all, Normalise::L2, rows, &[1; 6]).0
        };
        let (one, two) = (means(&once), means(&twice));
        assert_eq!(one.features, two.features);
        let close = one.weights().iter().zip(two.weights()).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(close);
    }
}
