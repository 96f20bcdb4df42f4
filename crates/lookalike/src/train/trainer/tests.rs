use super::*;
use crate::data::Dataset;
use crate::model::{Numbers, SparsePart, SparseStart};
use crate::train::{ClassStart, SparseConfig, TrainConfig};

/// 200 examples of 10 classes, each with a feature of its own (its number),
/// one of its class, one of all and, but for every ninth example, a label.
fn data() -> Dataset {
    let mut data = Dataset::empty(211, 10);
    for i in 0..200u32 {
        let label = [i % 10];
        data.push([(i, 1.0), (200 + i % 10, 2.0), (210, 1.0)], if i % 9 == 0 { &[] } else { &label });
    }
    data
}

fn config(sparse: SparseConfig) -> TrainConfig {
    TrainConfig {
        batch: 16,
        hidden: vec![8],
        budget: Some(5),
        retrieve: Some(0),
        sparse: Some(sparse),
        ..Default::default()
    }
}

/// Sixty examples judge, each of four folds fifteen of them.
fn in_folds() -> SparseConfig {
    SparseConfig { held_out: 60, ..SparseConfig::default() }
}

fn finish(mut trainer: Trainer<'_>) -> Trainer<'_> {
    while !trainer.is_done() {
        trainer.step().unwrap();
    }
    trainer
}

/// What the network has learnt of a feature.
fn row(trainer: &Trainer<'_>, feature: u32) -> Vec<f32> {
    let input = &trainer.model.network.input;
    let mut row = vec![0.0; input.stride];
    input.view().copy_row(feature as usize, &mut row);
    row
}

/// The examples whose own feature a model knows nothing of, in neither of its parts.
fn unknown_to(trainer: &Trainer<'_>, new: &Trainer<'_>) -> Vec<u32> {
    let postings = trainer.model.sparse.as_ref().unwrap().postings(211);
    let is_unknown =
        |&i: &u32| !i.is_multiple_of(9) && postings.of(i).0.is_empty() && row(trainer, i) == row(new, i);
    (0..200).filter(is_unknown).collect()
}

#[test]
fn examples_kept_apart_are_never_trained_on() {
    let data = data();
    let sparse = SparseConfig { held_out: 6, ..SparseConfig::default() };
    let trainer = || Trainer::new(config(sparse), data.view(), Cpu::detect()).unwrap();
    let new = trainer();
    let held_out = new.state.held_out.clone().unwrap();
    assert_eq!((new.judges(), held_out.len(), new.num_examples()), ((6, 0), 6, 171));
    assert_eq!(unknown_to(&finish(trainer()), &new), held_out);
}

/// Each example shares its last feature with one other.
#[test]
fn judges_lack_the_features_that_they_made_themselves() {
    let mut data = Dataset::empty(110, 10);
    let features = |i: u32| [0, 1, 2, 3, 4 + i / 2].map(|feature| (feature, 1.0));
    (0..200).for_each(|i| data.push(features(i), &[i % 10]));
    let sparse = SparseConfig { held_out: 4, ..SparseConfig::default() };
    let (view, shard) = (data.view(), Shard::whole(10));
    let of_judges = |others: usize| {
        let mut checkpoint = start::new_checkpoint(config(sparse), &shard, &view);
        checkpoint.model.frequencies.num_examples += others;
        let trainer = Trainer::start(checkpoint, shard.clone(), view, Cpu::detect(), None).unwrap();
        let judges = trainer.unseen.examples();
        (0..judges.len()).map(|i| judges.features(i).0.len()).collect::<Vec<_>>()
    };
    assert_eq!(of_judges(0), [4; 4]);
    // Others may have taught them to a model that is trained further.
    assert_eq!(of_judges(1), [5; 4]);
}

/// Each fold has not seen what it judges; the model has seen all.
#[test]
fn folds_are_never_trained_on_what_they_judge() {
    let data = data();
    let trainer = || Trainer::new(config(in_folds()), data.view(), Cpu::detect()).unwrap();
    let new = trainer();
    assert_eq!((new.judges(), new.num_examples(), &new.state.held_out), ((60, 4), 177, &None));
    let trained = finish(trainer());
    assert!(unknown_to(&trained, &new).is_empty());
    let mut all = Vec::new();
    assert_eq!(trained.folds.trainers().len(), 4);
    for (fold, held_out) in trained.folds.trainers().iter().zip(trained.folds.held_out()) {
        assert!(fold.is_done() && held_out.len() == 15);
        // It has taken as many steps, of fewer examples each.
        assert_eq!(fold.state.progress.iteration, trained.state.progress.iteration);
        assert_eq!(&unknown_to(fold, &new), held_out);
        all.extend_from_slice(held_out);
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 60);
}

/// All numbers that steps move.
fn moved(trainer: &Trainer<'_>) -> (Vec<Vec<f32>>, Vec<f32>, Vec<f32>) {
    let rows = (0..211).map(|feature| row(trainer, feature)).collect();
    let Numbers::F32(output) = &trainer.model.network.output.weights else { unreachable!() };
    (rows, output.to_vec(), trainer.model.sparse.as_ref().unwrap().weights().to_vec())
}

#[test]
fn folds_choose_and_change_nothing_of_what_is_trained() {
    let data = data();
    let with = |sparse, calibrate| {
        let config = TrainConfig { calibrate, ..config(sparse) };
        let mut trainer = finish(Trainer::new(config, data.view(), Cpu::detect()).unwrap());
        trainer.settle();
        trainer
    };
    let nobody = SparseConfig { held_out: 0, ..SparseConfig::default() };
    let (judged, alone) = (with(in_folds(), true), with(nobody, false));
    assert!(moved(&judged) == moved(&alone));
    assert_eq!(judged.model.calibration.as_ref().unwrap().examples, 60);
    // All models answer alike.
    let choice = |model: &Model| {
        let weight = model.neighbours.as_ref().map(|kept| kept.weight());
        (model.sparse.as_ref().unwrap().blend(), weight)
    };
    assert_ne!(choice(&judged.model), choice(&alone.model));
    assert!(judged.folds.trainers().iter().all(|fold| choice(&fold.model) == choice(&judged.model)));
}

/// They come as far as the trainer has, step by step, and not further.
#[test]
fn folds_keep_up() {
    let data = data();
    let mut trainer = Trainer::new(config(in_folds()), data.view(), Cpu::detect()).unwrap();
    while !trainer.is_done() {
        trainer.step().unwrap();
        let done = trainer.epochs_done();
        for fold in trainer.folds.trainers() {
            assert!(fold.epochs_done() <= done + 1e-9 && fold.epochs_done() > done - 0.1, "{done}");
        }
    }
}

/// A fold starts as the model did, from its own examples.
#[test]
fn folds_start_as_the_model_does() {
    let data = data();
    let folds = |class_start, sparse_start| {
        let config = TrainConfig { class_start, ..config(in_folds()) };
        let (shard, cpu) = (Shard::whole(10), Cpu::detect());
        let checkpoint = start::new_checkpoint(config, &shard, &data.view());
        let mut trainer = Trainer::start(checkpoint, shard, data.view(), cpu, sparse_start).unwrap();
        trainer.train_folds();
        let of_fold = |fold: &Trainer<'_>| (fold.model.sparse.as_ref().unwrap().start(), moved(fold).1);
        let found: Vec<(SparseStart, Vec<f32>)> = trainer.folds.trainers().iter().map(of_fold).collect();
        assert_eq!(found.len(), 4);
        found
    };
    // Its own examples would not choose logarithms here.
    let random = folds(ClassStart::Random, None);
    assert!(random.iter().all(|(start, vectors)| *start == SparseStart::Centroid && *vectors == random[0].1));
    let logarithms = folds(ClassStart::Random, Some(SparseStart::LogMean));
    assert!(logarithms.iter().all(|(start, _)| *start == SparseStart::LogMean));
    // In the middle of other examples each.
    let starts = folds(ClassStart::Examples, None);
    for (i, (_, vectors)) in starts.iter().enumerate() {
        assert!(*vectors != random[0].1 && starts[..i].iter().all(|(_, other)| other != vectors));
    }
}

/// One whose numbers are no longer finite judges nothing, and the others go on.
#[test]
fn a_fold_that_fails_has_no_say() {
    let data = data();
    let config = TrainConfig { calibrate: true, ..config(in_folds()) };
    let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
    (0..15).for_each(|_| _ = trainer.step().unwrap());
    trainer.folds.trainers_mut()[1].model.network.input_bias[0] = f32::NAN;
    let others = [0, 2, 3].map(|fold| trainer.folds.held_out()[fold].clone());
    let mut trainer = finish(trainer);
    trainer.settle();
    let judging: Vec<_> = trainer.folds.trainers().iter().map(|fold| fold.state.held_out.clone()).collect();
    assert_eq!(judging, others.map(Some));
    assert_eq!(trainer.model.calibration.as_ref().unwrap().examples, 45);
}

/// Settings that are changed after a sparse part was dropped are those of all models.
#[test]
fn folds_start_anew_with_other_settings() {
    let data = data();
    let config = TrainConfig { calibrate: true, ..config(in_folds()) };
    let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
    (0..15).for_each(|_| _ = trainer.step().unwrap());
    trainer.drop_sparse_part().unwrap();
    let trainer = finish(trainer);
    for fold in trainer.folds.trainers() {
        assert!(fold.model.sparse.is_none() && fold.is_done());
    }
    assert_eq!(trainer.judges(), (60, 4));
    // Nothing is left to judge where nothing is calibrated.
    let mut trainer = Trainer::new(self::config(in_folds()), data.view(), Cpu::detect()).unwrap();
    trainer.drop_sparse_part().unwrap();
    assert_eq!(trainer.judges(), (0, 0));
}

/// Who looks at a model within an epoch sees all of it, and changes nothing.
#[test]
fn a_model_can_be_looked_at_at_any_time() {
    let data = data();
    let apart = SparseConfig { held_out: 8, ..SparseConfig::default() };
    let run = |sparse: SparseConfig, looks: bool| {
        let config = TrainConfig { calibrate: true, ..config(sparse) };
        let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
        while !trainer.is_done() {
            trainer.step().unwrap();
            if looks {
                trainer.settle();
                assert!(trainer.is_settled);
            }
        }
        trainer.settle();
        trainer
    };
    for sparse in [apart, in_folds()] {
        let (looked_at, left_alone) = (run(sparse, true), run(sparse, false));
        assert!(moved(&looked_at) == moved(&left_alone));
        let blend = |trainer: &Trainer<'_>| trainer.model.sparse.as_ref().map(SparsePart::blend);
        assert_eq!(blend(&looked_at), blend(&left_alone));
        let nearest = |trainer: &Trainer<'_>| trainer.model.neighbours.as_ref().map(|kept| kept.weight());
        assert_eq!(nearest(&looked_at), nearest(&left_alone));
        assert_eq!(looked_at.model.calibration, left_alone.model.calibration);
    }
}

#[test]
fn settling_chooses_what_the_end_of_an_epoch_would() {
    let data = data();
    let sparse = SparseConfig { held_out: 8, ..SparseConfig::default() };
    let mut trainer = Trainer::new(config(sparse), data.view(), Cpu::detect()).unwrap();
    for _ in 0..3 {
        trainer.step().unwrap();
    }
    let unseen = 77.0;
    trainer.model.sparse.as_mut().unwrap().set_blend(unseen);
    trainer.settle();
    assert_ne!(trainer.model.sparse.as_ref().unwrap().blend(), unseen);
}

#[test]
fn a_window_is_made_of_blocks_and_an_epoch_of_all_examples() {
    let data = data();
    let config = TrainConfig { sparse: None, ..config(SparseConfig::default()) };
    let order = |window, epoch| {
        let config = TrainConfig { shuffle_window: window, ..config.clone() };
        let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
        trainer.shuffle(epoch);
        trainer.order
    };
    let sorted = |mut order: Vec<u32>| {
        order.sort_unstable();
        order
    };
    let all = order(None, 0);
    // A window that holds all is none.
    assert_eq!(order(Some(10_000), 0), all);
    // 128 examples: blocks of two, of which 64 stand together.
    let windows = order(Some(128), 0);
    assert!(windows != all && windows != order(Some(128), 1));
    assert_eq!(sorted(windows.clone()), sorted(all));
    let neighbours = sorted(windows.clone());
    let blocks: Vec<&[u32]> = neighbours.chunks(2).collect();
    let is_cut = |block: &&&[u32]| {
        let window = |i: &u32| windows.iter().position(|j| i == j).unwrap() / 128;
        block.iter().any(|i| window(i) != window(&block[0]))
    };
    // The last block is short, so that one may lie across.
    assert!(blocks.iter().filter(is_cut).count() <= 1);
}

#[test]
fn a_model_that_no_memory_holds_is_refused() {
    let mut data = data();
    data.num_classes = u32::MAX as usize;
    let config = TrainConfig { hidden: vec![16_384], ..config(SparseConfig::default()) };
    let refused = Trainer::new(config, data.view(), Cpu::detect()).err().unwrap();
    assert!(matches!(refused, TrainError::Config(ConfigError::Memory { .. })), "{refused}");
}

#[test]
fn a_place_beyond_the_data_is_refused() {
    let data = data();
    let trainer = || Trainer::new(config(SparseConfig::default()), data.view(), Cpu::detect()).unwrap();
    for position in [177, 1 << 62, usize::MAX] {
        let mut checkpoint = trainer().into_checkpoint();
        checkpoint.state.progress.position = position;
        let resumed = Trainer::resume(checkpoint, data.view(), Cpu::detect());
        assert!(matches!(resumed, Err(TrainError::OtherData { .. })), "{position}");
    }
}

/// Weights that ran off to infinity, or are no numbers, must not count; the
/// examples that found it out are then trained on.
#[test]
fn a_sparse_part_that_diverged_does_not_count() {
    let data = data();
    let sparse = SparseConfig { rate: 1e38, ..SparseConfig::default() };
    let config = TrainConfig { epochs: 3, lr: 0.05, ..config(sparse) };
    let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
    while !trainer.is_done() {
        trainer.step().unwrap();
    }
    assert!(trainer.model.sparse.is_none() && trainer.state.config.sparse.is_none());
    assert_eq!(trainer.num_examples(), 177);
}
