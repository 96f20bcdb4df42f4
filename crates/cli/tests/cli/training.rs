//! Training: the same bits, going on, settings, and which model is saved.

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
    "lsh-embedding --sparse true --sparse-negatives 9 --sparse-epochs 2",
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
    let flags = format!("--epochs 3 --log log.jsonl --tensorboard events --eval-examples 20 {SMALL}");
    let done = folder.succeed(&format!("train made/train.txt --test made/test.txt --model model {flags}"));
    assert!(done.out.contains("P@1"), "{}", done.out);
    let log = String::from_utf8(folder.read("log.jsonl")).unwrap();
    let entries: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let evaluations: Vec<_> = entries.iter().filter(|entry| entry["event"] == "evaluation").collect();
    assert_eq!(evaluations.len(), 3);
    assert!(evaluations.iter().all(|entry| entry["metrics"]["P@1"].is_number()));
    // The end is evaluated once, on all examples.
    let iterations: Vec<u64> = evaluations.iter().filter_map(|entry| entry["iteration"].as_u64()).collect();
    assert!(iterations.is_sorted_by(|a, b| a < b), "{iterations:?}");
    let last = &evaluations[2]["metrics"];
    assert!((last["P@1"].as_f64().unwrap() - precision(&folder, "model")).abs() < 1e-9, "{last}");
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

/// P@1 of a model on the test examples.
fn precision(folder: &Folder, model: &str) -> f64 {
    folder.succeed(&format!("evaluate {model} made/test.txt --json")).json()["P@1"].as_f64().unwrap()
}

#[test]
fn going_on_with_validation_never_makes_a_model_worse() {
    let folder = Folder::with_numbers();
    let valid = format!("--valid made/test.txt --model model {SMALL}").replace(" -q", "");
    folder.succeed(&format!("train made/train.txt --epochs 4 {valid}"));
    let (before, bytes) = (precision(&folder, "model"), folder.read("model/model.safetensors"));
    // So large a rate unlearns what was learnt.
    let done = folder.succeed(&format!("train made/train.txt --resume --epochs 6 --lr 100 {valid}"));
    assert!(done.errors.contains("model was the best on --valid and is left as it is"), "{}", done.errors);
    assert!(!done.errors.contains("saved to") && !done.errors.contains("best so far"), "{}", done.errors);
    assert!(bytes == folder.read("model/model.safetensors"));
    // What is better is saved, and said to be.
    folder.succeed(&format!(
        "train made/train.txt --epochs 1 --lr 1e-5 --sparse false --class-start random {valid}"
    ));
    let poor = precision(&folder, "model");
    let done = folder.succeed(&format!("train made/train.txt --resume --epochs 4 --lr 0.01 {valid}"));
    assert!(done.errors.contains("saved to model: the best on --valid"), "{}", done.errors);
    let better = precision(&folder, "model");
    assert!(poor < better && poor < before, "{poor} {better} {before}");
}

#[test]
fn a_file_without_labels_can_not_choose() {
    let folder = Folder::with_number_model();
    folder.write("unlabelled.txt", "2 300 80\n 0:1\n 1:1\n");
    let before = folder.read("model/model.safetensors");
    let message = folder.refuse(&format!(
        "train made/train.txt --model model --valid unlabelled.txt --epochs 1 --seed 5 {SMALL}"
    ));
    assert!(message.contains("unlabelled.txt: none of its 2 examples has a label"), "{message}");
    assert!(before == folder.read("model/model.safetensors"));
}

#[test]
fn printing_the_settings_of_a_model_does_nothing_else() {
    let folder = Folder::with_name_model();
    let before = folder.read("model/config.json");
    let printed = folder.succeed("train names.tsv --model model --resume --print-config --epochs 99").out;
    for line in ["epochs = 99", "batch = ", "sampler = \"mixed\"", "hidden = [16]", "min-documents = 1"] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    // The data is not looked at, and neither is anything written.
    assert_eq!(folder.succeed("train absent --model model --resume --print-config --epochs 99").out, printed);
    assert_eq!(folder.read("model/config.json"), before);
    assert_eq!(folder.names(), ["model", "names.tsv"]);
}

#[test]
fn a_log_goes_on_where_training_does() {
    let folder = Folder::with_numbers();
    let flags = format!("--test made/test.txt --model model --log log.jsonl {SMALL}");
    let evaluations =
        || String::from_utf8(folder.read("log.jsonl")).unwrap().matches("\"evaluation\"").count();
    folder.succeed(&format!("train made/train.txt --epochs 2 {flags}"));
    folder.succeed(&format!("train made/train.txt --resume --epochs 3 {flags}"));
    assert_eq!(evaluations(), 3);
    folder.succeed(&format!("train made/train.txt --epochs 1 {flags}"));
    assert_eq!(evaluations(), 1);
}

#[test]
fn diverging_training_says_what_to_try() {
    let folder = Folder::with_numbers();
    let done = folder.run("train made/train.txt --model model --lr 1e30 --epochs 5 --hidden 16");
    assert_eq!(done.code, Some(1));
    assert!(done.errors.contains("diverged") && done.errors.contains("learning rate"), "{}", done.errors);
    assert!(!folder.path("model").exists());
}
