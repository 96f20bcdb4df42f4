//! Checkpoints: a run that goes on from one ends with the bits of the unbroken run,
//! wherever it was broken; and a damaged one is not the end of it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use lookalike::artifact::{self, Checkpoints};
use lookalike::collective::{Alone, Collective};
use lookalike::data::Dataset;
use lookalike::model::{SparsePart, Storage};
use lookalike::optim::Decay;
use lookalike::sampling::{SamplerKind, Walk};
use lookalike::train::{
    Checkpoint, FurtherData, LastRefresh, SparseConfig, TrainConfig, TrainError, Trainer,
};
use lookalike_kernels::Cpu;

/// 200 examples of 40 classes, with noise, a few without a label.
fn data() -> Dataset {
    let mut data = Dataset::empty(120, 40);
    for i in 0..200u32 {
        let class = i * 7 % 40;
        // Shared by classes, so that there is something to tell apart.
        let noise = 40 + i * i % 23;
        data.push([(class, 1.0), (noise, 0.5)], if i % 19 == 3 { &[] } else { std::slice::from_ref(&class) });
    }
    data
}

/// Refreshes fall due between the ends of epochs, so that tables are some steps old.
fn config(sampler: SamplerKind) -> TrainConfig {
    let mut config = TrainConfig {
        sampler,
        epochs: 2,
        batch: 16,
        hidden: vec![8],
        lr: 0.05,
        budget: Some(8),
        ..TrainConfig::default()
    };
    (config.lsh.refresh_first, config.lsh.refresh_growth) = (4, 1.3);
    config
}

fn configs() -> Vec<TrainConfig> {
    let sparse = Some(SparseConfig::default());
    let mut exact = TrainConfig { storage: Storage::Bf16, ..config(SamplerKind::LshLabel) };
    exact.adam.decay = Decay::Exact;
    let mut centred = TrainConfig { calibrate: true, ..config(SamplerKind::LshEmbedding) };
    (centred.lsh.centre, centred.lsh.walk) = (true, Some(Walk::Paper));
    let diverging = Some(SparseConfig { rate: 3e38, ..SparseConfig::default() });
    // Ten examples can be kept apart; else folds judge.
    let apart = Some(SparseConfig { held_out: 9, ..SparseConfig::default() });
    vec![
        config(SamplerKind::LshEmbedding),
        TrainConfig { sparse, calibrate: true, ..config(SamplerKind::Mixed) },
        TrainConfig { sparse, ..config(SamplerKind::Full) },
        TrainConfig { sparse: apart, calibrate: true, ..config(SamplerKind::LshEmbedding) },
        exact,
        centred,
        // Dropped within an epoch.
        TrainConfig { sparse: diverging, ..config(SamplerKind::LshLabel) },
        config(SamplerKind::Uniform),
    ]
}

fn finish(mut trainer: Trainer<'_>) -> Checkpoint {
    while !trainer.is_done() {
        trainer.step().unwrap();
    }
    trainer.settle();
    trainer.into_checkpoint()
}

/// All bytes of the model and of what training needs besides, and what judges chose.
fn bytes(checkpoint: &Checkpoint) -> ([Vec<u8>; 2], String) {
    let folder = tempfile::tempdir().unwrap();
    let Checkpoint { model, state } = checkpoint;
    artifact::save_checkpoint(folder.path(), model, state).unwrap();
    let blend = model.sparse.as_ref().map(SparsePart::blend);
    let weight = model.neighbours.as_ref().map(|kept| kept.weight());
    let chosen = format!("{blend:?} {weight:?} {:?}", model.calibration);
    let read = |name| fs::read(folder.path().join(name)).unwrap();
    (["model.safetensors", "training.safetensors"].map(read), chosen)
}

#[test]
fn a_run_broken_at_any_step_ends_with_the_same_bits() {
    let data = data();
    let cpu = Cpu::detect();
    for config in configs() {
        let expected = bytes(&finish(Trainer::new(config.clone(), data.view(), cpu).unwrap()));
        let mut trainer = Trainer::new(config.clone(), data.view(), cpu).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut checkpoints = Checkpoints::new(folder.path(), 2);
        while !trainer.is_done() {
            trainer.step().unwrap();
            checkpoints.write(&trainer).unwrap();
            checkpoints.wait().unwrap();
            let read = checkpoints.newest(&alone(), &mut |error| panic!("{error}")).unwrap().unwrap();
            assert_eq!(read.state.progress, trainer.state.progress);
            let resumed = finish(Trainer::resume(read, data.view(), cpu).unwrap());
            let step = trainer.state.progress.iteration;
            assert!(bytes(&resumed) == expected, "{:?} broken after step {step}", config.sampler);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        let is_diverging = config.sparse.is_some_and(|sparse| sparse.rate > 1e38);
        let diverged_at = trainer.sparse_diverged_at();
        assert_eq!(
            is_diverging,
            diverged_at.is_some_and(|step| step < trainer.steps_per_epoch()),
            "{diverged_at:?}"
        );
    }
}

/// A run that goes on with new data, rehearses others in each epoch, and is broken.
#[test]
fn a_further_run_broken_at_any_step_ends_with_the_same_bits() {
    let (data, cpu) = (data(), Cpu::detect());
    let sparse = Some(SparseConfig::default());
    let config = TrainConfig { epochs: 3, sparse, ..config(SamplerKind::Mixed) };
    let model = finish(Trainer::new(config.clone(), data.view(), cpu).unwrap()).model;
    let further = || {
        let given = FurtherData { examples: data.view(), num_new: 90, rehearsed_an_epoch: 40 };
        Trainer::further(model.clone(), config.clone(), given, cpu).unwrap()
    };
    let expected = bytes(&finish(further()));
    let mut trainer = further();
    let (batches, mut met) = (trainer.steps_per_epoch(), 0);
    assert!(trainer.num_examples() < 90 + 41);
    while !trainer.is_done() {
        trainer.step().unwrap();
        met += 1;
        let folder = tempfile::tempdir().unwrap();
        let mut checkpoints = Checkpoints::new(folder.path(), 1);
        checkpoints.write(&trainer).unwrap();
        checkpoints.wait().unwrap();
        let read = checkpoints.newest(&alone(), &mut |error| panic!("{error}")).unwrap().unwrap();
        assert_eq!(read.state.rehearsal, trainer.state.rehearsal);
        let resumed = Trainer::resume(read, data.view(), cpu).unwrap();
        assert_eq!(resumed.num_examples(), trainer.num_examples());
        assert!(bytes(&finish(resumed)) == expected, "broken after step {met}");
    }
    assert_eq!(met, 3 * batches);
    // Others in each epoch, or it would end elsewhere.
    let mut checkpoint = further().into_checkpoint();
    checkpoint.state.rehearsal = None;
    assert!(bytes(&finish(Trainer::resume(checkpoint, data.view(), cpu).unwrap())) != expected);
}

/// What makes it so: without the tables the bits are others.
#[test]
fn the_tables_of_the_last_refresh_are_part_of_the_state() {
    let data = data();
    let cpu = Cpu::detect();
    let start = || Trainer::new(config(SamplerKind::LshEmbedding), data.view(), cpu).unwrap();
    let expected = bytes(&finish(start()));
    let mut trainer = start();
    (0..8).for_each(|_| _ = trainer.step().unwrap());
    let mut checkpoint = trainer.into_checkpoint();
    let refresh = checkpoint.state.refresh.take();
    assert!(matches!(refresh, Some(LastRefresh { tables: Some(_), near: None })));
    let broken = Checkpoint { model: checkpoint.model.clone(), state: checkpoint.state.clone() };
    assert!(bytes(&finish(Trainer::resume(broken, data.view(), cpu).unwrap())) != expected);
    checkpoint.state.refresh = refresh;
    assert!(bytes(&finish(Trainer::resume(checkpoint, data.view(), cpu).unwrap())) == expected);
}

fn alone() -> Arc<dyn Collective> {
    Arc::new(Alone)
}

fn write_steps(folder: &Path, keep: usize, steps: usize) -> Vec<String> {
    let data = data();
    let mut trainer = Trainer::new(config(SamplerKind::Mixed), data.view(), Cpu::detect()).unwrap();
    let mut checkpoints = Checkpoints::new(folder, keep);
    assert!(checkpoints.is_empty());
    for _ in 0..steps {
        trainer.step().unwrap();
        checkpoints.write(&trainer).unwrap();
    }
    checkpoints.wait().unwrap();
    assert!(!checkpoints.is_empty());
    names(folder)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_last_few_are_kept_and_damage_falls_back() {
    let folder = tempfile::tempdir().unwrap();
    let steps = write_steps(folder.path(), 3, 5);
    assert_eq!(steps, ["step-0000000003", "step-0000000004", "step-0000000005"]);
    let damage = |step: &str, file: &str| {
        let path = folder.path().join(step).join(file);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        fs::write(path, bytes).unwrap();
    };
    let newest = || {
        let mut told = Vec::new();
        let checkpoints = Checkpoints::new(folder.path(), 3);
        let found = checkpoints.newest(&alone(), &mut |error| told.push(error.to_string()));
        (found.map(|found| found.map(|found| found.state.progress.iteration)), told)
    };
    damage("step-0000000005", "training.safetensors");
    let (found, told) = newest();
    assert_eq!(found.unwrap(), Some(5 - 1));
    assert!(told.len() == 1 && told[0].contains("step-0000000005/training.safetensors"), "{told:?}");
    // Set aside, so that it is told once and its name is free.
    assert_eq!(newest().1.len(), 0);
    assert!(names(folder.path()).contains(&"step-0000000005.damaged".to_owned()));
    damage("step-0000000004", "config.json");
    assert_eq!(newest().0.unwrap(), Some(3));
    damage("step-0000000003", "model.safetensors");
    let (found, told) = newest();
    assert!(found.is_err() && told.len() == 1);
    assert_eq!(newest().0.unwrap(), None);
}

#[test]
fn no_number_gone_wrong_leaves_the_trainer() {
    let mut data = Dataset::empty(4, 4);
    // Constant features, rows of zeroes, values at the end of all numbers.
    for i in 0..80u32 {
        let value = [1.0, 0.0, 1e30, f32::MAX][i as usize % 4];
        data.push([(0, 1.0), (1 + i % 3, value)], &[i % 3]);
    }
    for (lr, normalise) in
        [(1e38, lookalike::model::Normalise::None), (1e30, Default::default()), (1e-3, Default::default())]
    {
        for sparse in [None, Some(SparseConfig { rate: 1e37, ..SparseConfig::default() })] {
            let mut config = TrainConfig { lr, normalise, sparse, ..config(SamplerKind::Full) };
            config.batch = 8;
            let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
            let plan = lookalike::train::RunPlan { detect_anomaly: true, ..Default::default() };
            struct Nobody;
            impl lookalike::train::Observer for Nobody {}
            let mut nothing = lookalike::train::NothingKept;
            match lookalike::train::run(&mut trainer, &plan, &mut nothing, &mut Nobody) {
                Ok(_) => trainer.check_finite().unwrap(),
                Err(TrainError::Diverged { .. } | TrainError::NotFinite { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}
