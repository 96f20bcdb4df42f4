//! `lookalike data …` as a user runs it: what is printed where, exit codes, and
//! that bad input leaves nothing behind.

use std::path::Path;
use std::process::{Command, Output};

fn lookalike(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lookalike"))
        .args(args)
        .current_dir(folder)
        .output()
        .expect("the program runs")
}

fn succeed(folder: &Path, args: &[&str]) -> String {
    let output = lookalike(folder, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail with exit code 2 and one message.
fn refuse(folder: &Path, args: &[&str]) -> String {
    let output = lookalike(folder, args);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
    assert!(output.stdout.is_empty());
    errors
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

const SYNTH: [&str; 12] = [
    "data",
    "synth",
    "--classes",
    "200",
    "--features",
    "900",
    "--train",
    "2000",
    "--test",
    "300",
    "--out",
    "made",
];

#[test]
fn generate_look_pack_split_and_even_out() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert_eq!(succeed(folder, &SYNTH), "", "results of synth are files");
    assert_eq!(names(&folder.join("made")), ["test.txt", "train.txt"]);

    let table = succeed(folder, &["data", "stats", "made/train.txt"]);
    assert!(table.contains("examples") && table.contains("2,000"), "{table}");
    let json = succeed(folder, &["data", "stats", "made/train.txt", "--json"]);
    assert!(json.starts_with("{\"examples\":2000,\"features\":900,\"classes\":200,"), "{json}");
    assert_eq!(json.lines().count(), 1);

    succeed(folder, &["data", "pack", "made/train.txt", "--out", "train.lkp"]);
    assert_eq!(succeed(folder, &["data", "stats", "train.lkp", "--json"]), json);

    succeed(
        folder,
        &["data", "split", "train.lkp", "--test-fraction", "0.25", "--seed", "3", "--out", "parts"],
    );
    let part = succeed(folder, &["data", "stats", "parts/test.txt", "--json"]);
    assert!(part.starts_with("{\"examples\":500,"), "{part}");

    succeed(
        folder,
        &["data", "uniform", "made/train.txt", "--test", "made/test.txt", "--cap", "8", "--out", "even"],
    );
    assert_eq!(names(&folder.join("even")), ["classes.txt", "test.txt", "train.txt"]);
    let even = succeed(folder, &["data", "stats", "even/train.txt", "--json"]);
    let classes = std::fs::read_to_string(folder.join("even/classes.txt")).unwrap().lines().count();
    assert!(even.contains(&format!("\"classes\":{classes},")), "{even}");
    assert!(!even.contains("\"at_least\":16"), "{even}");
}

#[test]
fn the_same_seed_makes_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let read = || std::fs::read(folder.path().join("made/train.txt")).unwrap();
    succeed(folder.path(), &SYNTH);
    let first = read();
    succeed(folder.path(), &SYNTH);
    assert!(read() == first);
    succeed(folder.path(), &[&SYNTH[..], &["--seed", "2"]].concat());
    assert!(read() != first);
}

#[test]
fn bad_input_gives_one_message_and_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("bad.txt"), "1 0:1\n2 0:nan\n").unwrap();
    for command in [
        &["data", "stats", "bad.txt"][..],
        &["data", "pack", "bad.txt", "--out", "bad.lkp"],
        &["data", "split", "bad.txt", "--out", "parts"],
        &["data", "uniform", "bad.txt", "--out", "even"],
    ] {
        let message = refuse(folder, command);
        assert!(message.contains("bad.txt, line 2, column 5: found `nan`"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert_eq!(names(folder), ["bad.txt"]);
    }
    let output = lookalike(folder, &["data", "stats", "bad.txt", "--skip-bad-rows"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("bad.txt: 1 bad row left out"));
    assert!(
        refuse(folder, &["data", "stats", "absent.txt"]).contains("absent.txt: expected a readable file")
    );
    refuse(folder, &["data", "synth", "--classes", "0", "--out", "made"]);
    refuse(folder, &["data", "synth", "--preset", "imagenet", "--out", "made"]);
    assert_eq!(names(folder), ["bad.txt"]);
}

#[test]
fn input_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("train.txt"), "1 0:1\n2 1:1\n").unwrap();
    let before = std::fs::read(folder.join("train.txt")).unwrap();
    for command in [
        &["data", "pack", "train.txt", "--out", "./train.txt"][..],
        &["data", "split", "train.txt", "--out", "."],
        &["data", "uniform", "train.txt", "--out", "."],
    ] {
        assert!(refuse(folder, command).contains("choose another output"));
        assert_eq!(std::fs::read(folder.join("train.txt")).unwrap(), before);
        assert_eq!(names(folder), ["train.txt"]);
    }
}
