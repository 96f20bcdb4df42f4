use super::*;
use crate::data::Dataset;
use crate::model::Numbers;
use crate::train::held_out::hold_out;
use crate::train::{SparseConfig, TrainConfig};

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

/// A held-out example's own feature is known to nobody after training.
#[test]
fn held_out_examples_are_never_trained_on() {
    let data = data();
    let sparse = SparseConfig { held_out: 6, ..SparseConfig::default() };
    let mut trainer = Trainer::new(config(sparse), data.view(), Cpu::detect()).unwrap();
    let held_out = trainer.state.held_out.clone().unwrap();
    assert_eq!(held_out.len(), 6);
    assert!(held_out.iter().all(|i| !trainer.order.contains(i) && i % 9 != 0));
    assert_eq!(trainer.order.len() + held_out.len(), 177);
    let row = |trainer: &Trainer<'_>, feature: u32| {
        let input = &trainer.model.network.input;
        let mut row = vec![0.0; input.stride];
        input.view().copy_row(feature as usize, &mut row);
        row
    };
    let before: Vec<Vec<f32>> = held_out.iter().map(|&i| row(&trainer, i)).collect();
    let trained = trainer.order[0];
    let trained_before = row(&trainer, trained);
    while !trainer.is_done() {
        trainer.step().unwrap();
    }
    let postings = trainer.model.sparse.as_ref().unwrap().postings(211);
    for (&example, before) in held_out.iter().zip(&before) {
        assert!(postings.of(example).0.is_empty());
        assert_eq!(&row(&trainer, example), before);
    }
    assert!(!postings.of(trained).0.is_empty());
    assert_ne!(row(&trainer, trained), trained_before);
}

/// Who looks at a model within an epoch sees all of it, and changes nothing.
#[test]
fn a_model_can_be_looked_at_at_any_time() {
    let data = data();
    let sparse = SparseConfig { held_out: 8, ..SparseConfig::default() };
    let run = |looks: bool| {
        let mut trainer = Trainer::new(config(sparse), data.view(), Cpu::detect()).unwrap();
        while !trainer.is_done() {
            trainer.step().unwrap();
            if looks {
                trainer.settle();
                assert!(trainer.is_settled);
            }
        }
        trainer.into_checkpoint().model
    };
    let (looked_at, left_alone) = (run(true), run(false));
    let Numbers::F32(expected) = &left_alone.network.output.weights else { unreachable!() };
    let Numbers::F32(found) = &looked_at.network.output.weights else { unreachable!() };
    assert_eq!(found[..], expected[..]);
    let weights = |model: &Model| model.sparse.as_ref().map(|part| (part.weights().to_vec(), part.blend()));
    assert_eq!(weights(&looked_at), weights(&left_alone));
    let nearest = |model: &Model| model.neighbours.as_ref().map(|kept| kept.weight());
    assert_eq!(nearest(&looked_at), nearest(&left_alone));
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
    for position in [169, 1 << 62, usize::MAX] {
        let mut checkpoint = trainer().into_checkpoint();
        checkpoint.state.progress.position = position;
        let resumed = Trainer::resume(checkpoint, data.view(), Cpu::detect());
        assert!(matches!(resumed, Err(TrainError::OtherData { .. })), "{position}");
    }
}

#[test]
fn at_most_one_example_in_twenty_is_held_out() {
    let mut order: Vec<u32> = (0..100).collect();
    assert_eq!(hold_out(&mut order, 1000, 1).len(), 5);
    assert_eq!(order.len(), 95);
    let mut few: Vec<u32> = (0..19).collect();
    assert!(hold_out(&mut few, 1000, 1).is_empty());
    let mut one: Vec<u32> = (0..100).collect();
    let mut two: Vec<u32> = (0..100).collect();
    assert_ne!(hold_out(&mut one, 1000, 1), hold_out(&mut two, 1000, 2));
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
