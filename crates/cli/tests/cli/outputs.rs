//! Outputs that are full, closed or can't be written.
#![cfg(unix)]

use std::fs::File;
use std::process::Stdio;

use crate::support::{Done, Folder};

const TRAIN: &str = "train made/train.txt --test made/test.txt --hidden 16 --batch 64 --budget 12 --epochs 5";

#[test]
fn outputs_are_checked_before_data_is_read() {
    let folder = Folder::new();
    folder.write("file", "x");
    for (flags, named) in [
        ("train absent --log no-folder/log", "no-folder/log"),
        ("train absent --log .", "--log"),
        ("train absent --tensorboard file", "--tensorboard"),
        ("train absent --tensorboard file/events", "--tensorboard"),
        ("train absent --model file/model", "file/model"),
        ("compare --train absent --test absent --out file", "--out"),
        ("sweep --train absent --test absent --vary budget=3 --out file", "--out"),
        ("adapt --train absent --out file/folder", "--out"),
        ("demo --out file", "--out"),
    ] {
        let message = folder.refuse(flags);
        assert!(message.contains(named) && !message.contains("absent:"), "{flags}: {message}");
    }
    assert_eq!(folder.read("file"), b"x");
}

#[test]
fn a_full_log_costs_a_warning_and_no_model() {
    let folder = Folder::with_numbers();
    std::os::unix::fs::symlink("/dev/full", folder.path("full")).unwrap();
    let done = folder.succeed(&format!("{TRAIN} --model model --log full -q"));
    assert_eq!(done.errors.matches("cannot write the log").count(), 1, "{}", done.errors);
    folder.succeed("evaluate model made/test.txt");
    // Files that can't grow any more, without a model, which could not either.
    let flags = "--log log.jsonl --tensorboard events --epochs 60 -q";
    let done = folder.run_with_little_space(&format!("{TRAIN} {flags}").replacen("--epochs 5 ", "", 1), 2);
    assert_eq!(done.code, Some(0), "{}", done.errors);
    for warning in ["cannot write the log", "cannot write the TensorBoard events"] {
        assert_eq!(done.errors.matches(warning).count(), 1, "{}", done.errors);
    }
    assert!(done.out.contains("P@1"), "{}", done.out);
}

#[test]
fn a_full_disk_leaves_the_old_model_and_says_so() {
    let folder = Folder::with_number_model();
    let before = folder.read("model/model.safetensors");
    let done = folder.run_with_little_space(&format!("{TRAIN} --model model --seed 9"), 8);
    assert_eq!(done.code, Some(1), "{}", done.errors);
    let message = done.errors.lines().last().unwrap();
    assert!(message.contains("model.safetensors") && message.contains("File too large"), "{message}");
    assert!(!message.contains("damaged") && !done.errors.contains("saved to"), "{}", done.errors);
    assert!(before == folder.read("model/model.safetensors"));
    assert_eq!(folder.names(), ["made", "model"]);
}

#[test]
fn a_closed_or_full_standard_error_ends_nothing() {
    let folder = Folder::with_numbers();
    let line = format!("{TRAIN} --model model --log log.jsonl");
    let check = |done: Done| {
        assert_eq!(done.code, Some(0), "{}", done.errors);
        assert!(done.out.contains("P@1"), "{}", done.out);
        folder.succeed("evaluate model made/test.txt");
        std::fs::remove_dir_all(folder.path("model")).unwrap();
    };
    let mut child = folder.spawn(&line);
    drop(child.stderr.take());
    check(Done::new(child.wait_with_output().unwrap()));
    let full = File::options().write(true).open("/dev/full").unwrap();
    check(Done::new(folder.command(&line).stderr(Stdio::from(full)).output().unwrap()));
    // Errors too are told to nobody, but their code stays.
    let mut child = folder.spawn("train absent");
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn a_closed_or_full_standard_output_loses_no_model() {
    let folder = Folder::with_numbers();
    let line = format!("{TRAIN} --model model -q");
    let mut child = folder.spawn(&line);
    drop(child.stdout.take());
    let closed = Done::new(child.wait_with_output().unwrap());
    // Nobody wants to see more: no error.
    assert_eq!((closed.code, closed.errors.as_str()), (Some(0), ""));
    folder.succeed("evaluate model made/test.txt");
    std::fs::remove_dir_all(folder.path("model")).unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let full = Done::new(folder.command(&line).stdout(Stdio::from(full)).output().unwrap());
    assert_eq!(full.code, Some(1), "{}", full.errors);
    assert!(full.errors.contains("No space left"), "{}", full.errors);
    folder.succeed("evaluate model made/test.txt");
}
