//! Model directories under other writers, damage and failing disks.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use lookalike_kernels::Cpu;

use super::*;
use crate::data::Dataset;
use crate::disk::Operation;
use crate::disk::faults::{Fault, Injected};
use crate::text::{self, TextDataset, TextFile, TextOptions};
use crate::train::{ClassStart, SparseConfig, Trainer};

/// A model as small as one with all parts can be.
fn trained(seed: u64) -> Checkpoint {
    let mut data = Dataset::empty(6, 4);
    (0..40u32).for_each(|i| data.push([(i % 4, 1.0), (4 + i % 2, 0.5)], &[i % 4]));
    let config = TrainConfig {
        seed,
        epochs: 2,
        batch: 8,
        hidden: vec![2],
        budget: Some(2),
        // From a better start the network would need no sparse part, and lose it.
        class_start: ClassStart::Random,
        sparse: Some(SparseConfig::default()),
        ..TrainConfig::default()
    };
    let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
    (0..7).for_each(|_| _ = trainer.step().unwrap());
    trainer.into_checkpoint()
}

fn save_to(directory: &Path, Checkpoint { model, state }: &Checkpoint) -> Result<(), ModelError> {
    save_checkpoint(directory, model, state)
}

fn bits(checkpoint: &Checkpoint) -> Vec<u32> {
    let Checkpoint { model, state } = checkpoint;
    let sparse = model.sparse.as_ref().map_or(&[][..], SparsePart::weights);
    let numbers = [&model.network.output.bias, &model.network.input_bias, &state.moments.output.bias.m];
    numbers.into_iter().flatten().chain(sparse).map(|x| x.to_bits()).collect()
}

#[test]
fn a_load_while_others_save_gives_one_of_their_models() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("m");
    let both = [trained(1), trained(2)];
    let expected = both.each_ref().map(bits);
    assert_ne!(expected[0], expected[1]);
    save_to(&directory, &both[0]).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            (0..60).for_each(|i| save_to(&directory, &both[i % 2]).unwrap());
            ended.store(true, Ordering::SeqCst);
        });
        let mut met = [0; 2];
        while !ended.load(Ordering::SeqCst) {
            let found = bits(&load_checkpoint(&directory).unwrap());
            let which = expected.iter().position(|expected| *expected == found);
            met[which.expect("figures of neither model")] += 1;
        }
        assert!(met[0] > 0 && met[1] > 0, "{met:?}");
    });
}

/// A model with text, calibration and search index, and a state with rehearsed examples:
/// whatever a directory can hold.
fn complete() -> Checkpoint {
    let texts: String = (0..300).map(|i| format!("w{} all\tc{}\n", i % 6, i % 4)).collect();
    let file = TextFile::from_bytes("m", texts.as_bytes(), &text::ReadOptions::default()).unwrap();
    let options = TextOptions { characters: None, ..TextOptions::default() };
    let TextDataset { dataset, vectoriser, names, .. } = text::fit_dataset(&file, &options).unwrap();
    let config = TrainConfig {
        batch: 64,
        hidden: vec![2],
        budget: Some(2),
        sparse: Some(SparseConfig::default()),
        calibrate: true,
        ..TrainConfig::default()
    };
    let cpu = Cpu::detect();
    let mut trainer = Trainer::new(config, dataset.view(), cpu).unwrap();
    (0..7).for_each(|_| _ = trainer.step().unwrap());
    trainer.settle();
    let mut checkpoint = trainer.into_checkpoint();
    checkpoint.model.search = Some(SearchIndex::build(cpu, &checkpoint.model));
    checkpoint.model.text = Some(TextPipeline { vectoriser, names });
    checkpoint.state.rehearsal = Some(Rehearsal { first: 290, an_epoch: 5 });
    assert!(checkpoint.model.calibration.is_some() && checkpoint.state.refresh.is_some());
    checkpoint
}

#[test]
fn all_that_a_directory_can_hold_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("m");
    let saved = complete();
    save_to(&directory, &saved).unwrap();
    let loaded = load_checkpoint(&directory).unwrap();
    assert_eq!(bits(&loaded), bits(&saved));
    assert_eq!(loaded.model.calibration, saved.model.calibration);
    assert_eq!(loaded.state.rehearsal, saved.state.rehearsal);
    assert_eq!(loaded.state.refresh, saved.state.refresh);
    assert!(loaded.model.search.is_some() && loaded.model.text.is_some());
}

/// Whatever bit of whatever file, and wherever it is cut.
#[test]
fn every_flipped_bit_and_every_cut_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("m");
    save_to(&directory, &complete()).unwrap();
    let names: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 6, "{names:?}");
    for name in &names {
        let name = name.to_str().unwrap();
        let path = directory.join(name);
        let good = fs::read(&path).unwrap();
        // In place: a file that is written anew each time has to reach the disk each time.
        let mut file = fs::File::options().write(true).open(&path).unwrap();
        let mut put = |place: usize, bytes: &[u8]| {
            file.seek(SeekFrom::Start(place as u64)).and_then(|_| file.write_all(bytes)).unwrap();
        };
        for bit in 0..good.len() * 8 {
            put(bit / 8, &[good[bit / 8] ^ 1 << (bit % 8)]);
            assert!(load_checkpoint(&directory).is_err(), "bit {bit} of {name}");
            put(bit / 8, &good[bit / 8..=bit / 8]);
        }
        load_checkpoint(&directory).unwrap();
        for cut in (0..good.len()).rev() {
            file.set_len(cut as u64).unwrap();
            assert!(load_checkpoint(&directory).is_err(), "{name} cut at {cut}");
        }
        fs::write(&path, &good).unwrap();
        load_checkpoint(&directory).unwrap();
    }
}

#[test]
fn unknown_keys_are_refused_in_every_version() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("m");
    save_to(&directory, &trained(1)).unwrap();
    let path = directory.join(CONFIG_FILE);
    let text = fs::read_to_string(&path).unwrap();
    let older = text.replace("\"format-version\": 5", "\"format-version\": 4");
    let without: String = older.lines().filter(|line| !line.contains("checksum")).collect();
    fs::write(&path, &without).unwrap();
    load(&directory).unwrap();
    for (from, to) in
        [("\"sparse\": {\"", "\"sparsu\": {\""), ("\"blend\"", "\"blenc\""), ("\"text\"", "\"uext\"")]
    {
        let compact = without.replace(": {    ", ": {").replace("  ", "");
        assert!(compact.contains(from), "{compact}");
        fs::write(&path, compact.replacen(from, to, 1)).unwrap();
        assert!(load(&directory).is_err(), "{to}");
    }
}

#[test]
fn weights_that_are_no_numbers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for bad in [f32::NAN, f32::INFINITY] {
        let mut checkpoint = trained(1);
        checkpoint.model.network.output.bias[1] = bad;
        save_to(folder.path(), &checkpoint).unwrap();
        let message = load(folder.path()).unwrap_err().to_string();
        assert!(message.contains("finite numbers in output.bias"), "{message}");
    }
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_in_a_model_make_nobody_wait() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("m");
    save_to(&directory, &trained(1)).unwrap();
    for name in [MODEL_FILE, CONFIG_FILE] {
        let path = directory.join(name);
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(load(&directory).unwrap_err().to_string().contains("not a file"));
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(load(&directory).unwrap_err().to_string().contains("not a file"));
    }
}

/// Each step of saving fails in each way, once: the old model or the new one is
/// there, and the next save goes well.
#[test]
fn a_failing_disk_leaves_the_old_model_or_the_new_one() {
    let [old, new] = [trained(1), trained(2)];
    let expected = [bits(&old), bits(&new)];
    let mut struck = 0;
    for operation in [Operation::Create, Operation::Write, Operation::Sync, Operation::Rename] {
        for fault in [Fault::Short, Fault::Full, Fault::Broken] {
            for left in 0.. {
                let folder = tempfile::tempdir().unwrap();
                let directory = folder.path().join("m");
                save_to(&directory, &old).unwrap();
                let injected = Injected::new(folder.path(), operation, fault, left);
                let saved = save_to(&directory, &new);
                let has_struck = injected.has_struck();
                drop(injected);
                let found = bits(&load_checkpoint(&directory).unwrap());
                assert!(expected.contains(&found), "{operation:?} {fault:?} {left}");
                assert!(saved.is_err() || found == expected[1], "{operation:?} {fault:?} {left}");
                if let Err(error) = saved {
                    assert!(!error.to_string().contains("damaged"), "{error}");
                }
                save_to(&directory, &new).unwrap();
                let left_over = fs::read_dir(folder.path()).unwrap().flatten();
                assert!(
                    left_over.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
                );
                if !has_struck {
                    break;
                }
                struck += 1;
            }
        }
    }
    assert!(struck > 40, "{struck}");
}

#[test]
fn a_directory_has_one_trainer() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("m");
    let lock = DirectoryLock::take(&directory).unwrap();
    let refused = DirectoryLock::take(&directory).unwrap_err().to_string();
    assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
    let _other = DirectoryLock::take(&folder.path().join("n")).unwrap();
    drop(lock);
    // What a dead process leaves.
    fs::write(folder.path().join(".lookalike-lock-m"), "process 1").unwrap();
    let lock = DirectoryLock::take(&directory).unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("m", folder.path().join("link")).unwrap();
        fs::create_dir(&directory).unwrap();
        assert!(DirectoryLock::take(&folder.path().join("link/")).is_err());
    }
    drop(lock);
    assert!(!folder.path().join(".lookalike-lock-m").exists());
}
