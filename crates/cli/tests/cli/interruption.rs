//! Signals: the model is saved, and the best one stays.
#![cfg(unix)]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::Folder;

const ENDLESS: &str = "--log log.jsonl --epochs 1000000 --hidden 16 --batch 64 --budget 12 \
                       --lr-schedule constant -q";

/// Waits until the log has so many lines of a kind.
fn wait_for(folder: &Folder, event: &str, count: usize) {
    let patience = Instant::now() + Duration::from_secs(120);
    let found =
        || std::fs::read_to_string(folder.path("log.jsonl")).unwrap_or_default().matches(event).count();
    while found() < count {
        assert!(Instant::now() < patience, "training never came so far");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Trains for ever, started by a program that says what SIGHUP does: a child inherits it,
/// and whoever runs the tests under nohup ignores it.
#[cfg(target_os = "linux")]
fn spawn_with_hangup(folder: &Folder, starter: &str, arguments: &[&str]) -> Child {
    Command::new(starter)
        .args(arguments)
        .arg(env!("CARGO_BIN_EXE_lookalike"))
        .args(format!("train made/train.txt --model model {ENDLESS}").split_whitespace())
        .current_dir(folder.path(""))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn end(child: Child) {
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
}

fn steps(folder: &Folder) -> u64 {
    folder.succeed("inspect model --json").json()["progress"]["iteration"].as_u64().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn signals_save_a_model_that_goes_on() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let folder = Folder::with_numbers();
        let child = spawn_with_hangup(&folder, "env", &["--default-signal=HUP"]);
        wait_for(&folder, "step", 1);
        assert!(!folder.path("model").exists());
        send(&child, signal);
        end(child);
        let before = steps(&folder);
        assert!(before > 0);
        folder.succeed("train made/train.txt --model model --resume --time-limit 0.05 -q");
        assert!(steps(&folder) > before);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn who_was_told_to_ignore_the_terminal_outlives_it() {
    let folder = Folder::with_numbers();
    // As nohup starts a program.
    let child = spawn_with_hangup(&folder, "sh", &["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
    wait_for(&folder, "step", 1);
    send(&child, Signal::HUP);
    let lines = || folder.read("log.jsonl").iter().filter(|&&byte| byte == b'\n').count();
    wait_for(&folder, "step", lines() + 50);
    send(&child, Signal::TERM);
    end(child);
    assert!(steps(&folder) > 50);
}

#[test]
fn ctrl_c_never_replaces_the_best_model() {
    let folder = Folder::with_numbers();
    // So large a rate that the first evaluation is the best of many.
    let child = folder.spawn(&format!(
        "train made/train.txt --model model --valid made/test.txt --eval-iterations 1 --lr 0.3 {ENDLESS}"
    ));
    wait_for(&folder, "evaluation", 30);
    send(&child, Signal::INT);
    end(child);
    let log = String::from_utf8(folder.read("log.jsonl")).unwrap();
    let evaluations: Vec<f64> = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|entry| entry["event"] == "evaluation")
        .map(|entry| entry["metrics"]["P@1"].as_f64().unwrap())
        .collect();
    let best = evaluations.iter().copied().fold(0.0, f64::max);
    let saved = folder.succeed("evaluate model made/test.txt --json").json()["P@1"].as_f64().unwrap();
    assert!((saved - best).abs() < 1e-9, "{saved} {evaluations:?}");
}

#[test]
fn kills_leave_a_whole_model_and_the_next_save_removes_the_rest() {
    let folder = Folder::with_number_model();
    std::fs::create_dir(folder.path("model/src")).unwrap();
    folder.write("model/src/thesis.tex", "my life's work");
    let evaluate = "evaluate model made/test.txt";
    let valid = "--valid made/test.txt --eval-iterations 1";
    for seed in 0..8 {
        // Every better step is saved, so that most of the time something is being written.
        let _ = std::fs::remove_file(folder.path("log.jsonl"));
        let line = format!("train made/train.txt --model model --seed {seed} --lr 1e-4 {valid} {ENDLESS}");
        let mut child = folder.spawn(&line);
        wait_for(&folder, "evaluation", 1 + seed);
        child.kill().unwrap();
        child.wait().unwrap();
        folder.succeed(evaluate);
    }
    folder.succeed("train made/train.txt --model model --epochs 1 --hidden 16 --budget 12 -q");
    folder.succeed(evaluate);
    assert_eq!(folder.read("model/src/thesis.tex"), b"my life's work");
    assert_eq!(folder.names(), ["log.jsonl", "made", "model"]);
}
