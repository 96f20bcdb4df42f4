//! Training: the same bits, going on, settings, and Ctrl-C.

use std::time::{Duration, Instant};

use crate::support::Folder;

const SMALL: &str = "--hidden 16 --batch 64 --budget 12 --lr-schedule constant -q";
/// Samplers, and some of them with a sparse part.
const METHODS: [&str; 13] = [
    "lsh-embedding",
    "lsh-label",
    "mixed",
    "full",
    "top-k",
    "log-uniform",
    "frequency",
    "uniform",
    "nce",
    "lsh-embedding --sparse true --sparse-negatives 9",
    "mixed --sparse true --sparse-epochs 3",
    "full --sparse true --sparse-epochs 1",
    // Weights that diverge: the part does not count, and still goes on.
    "lsh-label --sparse true --sparse-lr 1e38",
];

#[test]
fn the_number_of_threads_changes_no_bit() {
    let folder = Folder::with_numbers();
    for method in METHODS.map(|method| format!("{method} --preset plain")) {
        let train = |threads: usize, flags: &str| {
            folder.succeed(&format!(
                "train made/train.txt --model model --sampler {method} --epochs 2 --threads {threads} {SMALL} {flags}"
            ));
            folder.read("model/model.safetensors")
        };
        let one = train(1, "");
        assert!(one == train(2, ""), "{method}");
        assert!(one == train(3, ""), "{method}");
        assert!(one != train(1, "--seed 8"), "{method}");
    }
}

#[test]
fn two_epochs_and_one_more_are_three() {
    let folder = Folder::with_numbers();
    for method in METHODS.map(|method| format!("{method} --preset plain")) {
        let flags = format!("--sampler {method} {SMALL}");
        folder.succeed(&format!("train made/train.txt --model whole --epochs 3 {flags}"));
        folder.succeed(&format!("train made/train.txt --model parts --epochs 2 {flags}"));
        let two = folder.read("parts/model.safetensors");
        folder.succeed("train made/train.txt --model parts --resume --epochs 3 -q");
        let three = folder.read("parts/model.safetensors");
        assert!(two != three, "{method}");
        assert!(three == folder.read("whole/model.safetensors"), "{method}");
    }
}

#[test]
fn only_what_was_saved_for_it_can_go_on() {
    let folder = Folder::with_numbers();
    folder.succeed(&format!("train made/train.txt --model lean --without-training-state --epochs 1 {SMALL}"));
    let message = folder.refuse("train made/train.txt --model lean --resume");
    assert!(message.contains("training.safetensors"), "{message}");
    folder.write("other.txt", "1 0:1\n999 1:1\n");
    folder.succeed(&format!("train made/train.txt --model whole --epochs 1 {SMALL}"));
    assert!(folder.refuse("train other.txt --model whole --resume").contains("999"));
    folder.write("file", "not a model");
    let done = folder.run("train made/train.txt --model file --epochs 1 --hidden 16");
    assert_ne!(done.code, Some(0));
    assert_eq!(folder.read("file"), b"not a model");
}

#[test]
fn printed_settings_give_the_same_model() {
    let folder = Folder::with_numbers();
    let flags = format!("--sampler mixed --epochs 2 --hashed-share 0.25 {SMALL}");
    let printed = folder.succeed(&format!("train made/train.txt --print-config {flags}")).out;
    folder.write("settings.toml", &printed);
    let again = folder.succeed("train made/train.txt --config settings.toml --print-config").out;
    assert_eq!(again, printed);
    folder.succeed(&format!("train made/train.txt --model flags {flags}"));
    folder.succeed("train made/train.txt --model file --config settings.toml -q");
    assert!(folder.read("flags/model.safetensors") == folder.read("file/model.safetensors"));
    // Flags come last.
    let changed = folder.succeed("train made/train.txt --config settings.toml --print-config --epochs 9").out;
    // The network's epochs come before those of the sparse part.
    assert_eq!(changed, printed.replacen("epochs = 2", "epochs = 9", 1));
    assert_ne!(changed, printed);
    // What has no value of its own in TOML survives too.
    let text = folder
        .succeed("train x --preset plain --print-config --words none --max-features 0 --hash-bits 18")
        .out;
    folder.write("text.toml", &text);
    assert_eq!(folder.succeed("train x --config text.toml --print-config").out, text);
    assert!(text.contains("words = \"none\"") && text.contains("hash-bits = 18"), "{text}");
}

#[test]
fn logs_hold_every_evaluation() {
    let folder = Folder::with_numbers();
    let flags = format!("--epochs 3 --log log.jsonl --tensorboard events {SMALL}");
    let done = folder.succeed(&format!("train made/train.txt --test made/test.txt {flags}"));
    assert!(done.out.contains("P@1"), "{}", done.out);
    let log = String::from_utf8(folder.read("log.jsonl")).unwrap();
    let entries: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let evaluations: Vec<_> = entries.iter().filter(|entry| entry["event"] == "evaluation").collect();
    assert_eq!(evaluations.len(), 3);
    assert!(evaluations.iter().all(|entry| entry["metrics"]["P@1"].is_number()));
    assert_eq!(std::fs::read_dir(folder.path("events")).unwrap().count(), 1);
}

#[test]
fn the_model_saved_with_validation_is_the_best_one() {
    let folder = Folder::with_numbers();
    let flags = format!("--epochs 6 --valid made/test.txt --model model --log log.jsonl {SMALL} --lr 0.05");
    folder.succeed(&format!("train made/train.txt {flags}"));
    let log = String::from_utf8(folder.read("log.jsonl")).unwrap();
    let best = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|entry| entry["event"] == "evaluation")
        .map(|entry| entry["metrics"]["P@1"].as_f64().unwrap())
        .fold(0.0, f64::max);
    let saved = folder.succeed("evaluate model made/test.txt --json").json();
    assert!((saved["P@1"].as_f64().unwrap() - best).abs() < 1e-9, "{saved} {best}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_saves_a_model_that_goes_on() {
    let folder = Folder::with_numbers();
    let child =
        folder.spawn(&format!("train made/train.txt --model model --log log.jsonl --epochs 1000000 {SMALL}"));
    let patience = Instant::now() + Duration::from_secs(60);
    while std::fs::metadata(folder.path("log.jsonl")).map_or(0, |m| m.len()) == 0 {
        assert!(Instant::now() < patience, "training never began");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!folder.path("model").exists());
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));

    let steps = || folder.succeed("inspect model --json").json()["progress"]["iteration"].as_u64().unwrap();
    let before = steps();
    assert!(before > 0);
    folder.succeed("train made/train.txt --model model --resume --time-limit 0.05 -q");
    assert!(steps() > before);
}

#[test]
fn diverging_training_says_what_to_try() {
    let folder = Folder::with_numbers();
    let done = folder.run("train made/train.txt --model model --lr 1e30 --epochs 5 --hidden 16");
    assert_eq!(done.code, Some(1));
    assert!(done.errors.contains("diverged") && done.errors.contains("learning rate"), "{}", done.errors);
    assert!(!folder.path("model").exists());
}
