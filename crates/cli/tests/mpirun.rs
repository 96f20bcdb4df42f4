//! `mpirun lookalike train` with two ranks on this machine, as a user starts it. Built with
//! the feature `mpi` alone; `scripts/test` runs it where there is an MPI.
#![cfg(feature = "mpi")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use lookalike::artifact;
use lookalike::model::Numbers;
use lookalike::random::{Stream, below, mix};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_lookalike");
/// No run may hang: the whole of it ends after so many seconds, with code 124.
const SECONDS: &str = "300";

/// Classes with three features each, one or two a line.
fn examples(seed: u64) -> String {
    let (lines, features, classes) = (800, 60, 90);
    let mut text = format!("{lines} {features} {classes}\n");
    for line in 0..lines {
        let random = |i: u64, bound: u32| below(mix(seed, Stream::Data, line, i), bound);
        let label = random(0, classes);
        let mut ids: Vec<u32> =
            (0..3).map(|i| below(mix(5, Stream::Data, u64::from(label), i), features)).collect();
        ids.push(random(1, features));
        ids.sort_unstable();
        ids.dedup();
        let values: Vec<String> = ids.iter().map(|id| format!("{id}:1")).collect();
        text += &format!("{label} {}\n", values.join(" "));
    }
    text
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("train.txt"), examples(1)).unwrap();
    std::fs::write(folder.path().join("other.txt"), examples(2)).unwrap();
    folder
}

const TRAIN: &str = "train train.txt --preset plain --budget 12 --hidden 16 --batch 32 --epochs 2 --lr 0.01";

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args([SECONDS, program]).args(arguments).current_dir(folder);
    let output = command.output().expect("timeout is part of every system");
    assert_ne!(output.status.code(), Some(124), "{arguments:?} hangs");
    output
}

fn alone(folder: &Path, line: &str) -> Output {
    run(folder, PROGRAM, &line.split(' ').collect::<Vec<_>>())
}

/// Runs what each rank is to do; no line is split but at blanks.
fn together(folder: &Path, lines: &[&str]) -> Output {
    let mut arguments = vec!["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"];
    for (rank, line) in lines.iter().enumerate() {
        arguments.extend((rank > 0).then_some(":"));
        arguments.extend(["-n", "1"]);
        arguments.extend(line.split(' '));
    }
    run(folder, "mpirun", &arguments)
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What an evaluation prints for the model that a run saved.
fn p_at_1(folder: &Path, model: &str) -> f64 {
    let output = alone(folder, &format!("evaluate {model} train.txt --json"));
    assert!(output.status.success(), "{}", errors(&output));
    let values: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    values["P@1"].as_f64().or(values["metrics"]["P@1"].as_f64()).expect("P@1 is measured")
}

fn losses(folder: &Path, log: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(folder.join(log)).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    entries.filter_map(|entry| entry["loss"].as_f64()).collect()
}

/// The weights of a saved model's network, whoever wrote its files.
fn network(folder: &Path, model: &str) -> Vec<Vec<f32>> {
    let network = artifact::load(&folder.join(model)).unwrap().model.network;
    let numbers = |numbers: &Numbers| match numbers {
        Numbers::F32(numbers) => numbers.to_vec(),
        Numbers::Bf16(numbers) => numbers.iter().map(|x| x.to_f32()).collect(),
    };
    let rows = [&network.input, &network.output].map(|rows| numbers(&rows.weights));
    [rows.to_vec(), vec![network.input_bias, network.output.bias]].concat()
}

/// All files of a model but those that tell of time.
fn weights(folder: &Path, model: &str) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(folder.join(model)).unwrap().map(|file| file.unwrap().path());
    let name = |file: &Path| file.file_name().unwrap().to_string_lossy().into_owned();
    let tensors = files.filter(|file| file.extension().is_some_and(|end| end == "safetensors"));
    let mut tensors: Vec<_> = tensors.map(|file| (name(&file), std::fs::read(&file).unwrap())).collect();
    tensors.sort();
    assert!(!tensors.is_empty());
    tensors
}

#[test]
fn two_ranks_train_the_model_of_one_to_the_bit() {
    let folder = folder();
    let folder = folder.path();
    for sampler in ["lsh-embedding", "lsh-label", "mixed", "full"] {
        let line = format!("{TRAIN} --overwrite --sampler {sampler}");
        let one = alone(folder, &format!("{line} --log one.log --model one"));
        assert!(one.status.success(), "{}", errors(&one));
        for model in ["two", "again"] {
            let rank = format!("{PROGRAM} {line} --log {model}.log --model {model}");
            let both = together(folder, &[&rank, &rank]);
            assert!(both.status.success(), "{}", errors(&both));
            assert!(errors(&both).contains("bytes from this rank"), "{}", errors(&both));
        }
        let (expected, found) = (losses(folder, "one.log"), losses(folder, "two.log"));
        assert!(!expected.is_empty());
        assert_eq!(found, expected, "{sampler}");
        assert!(network(folder, "two") == network(folder, "one"), "{sampler}");
        assert_eq!(p_at_1(folder, "two"), p_at_1(folder, "one"), "{sampler}");
        assert!(weights(folder, "two") == weights(folder, "again"), "{sampler}");
    }
}

/// What is odd about a file or a setting is said once.
#[test]
fn the_first_rank_speaks_for_all() {
    let folder = folder();
    let titles: String = (0..60).map(|i| format!("word{} title {i}\tlabel{}\n", i % 3, i % 3)).collect();
    std::fs::write(folder.path().join("titles.tsv"), format!("title\tsubject\n{titles}")).unwrap();
    let rank = format!("{PROGRAM} train titles.tsv --preset plain --epochs 1 --lr 0.9");
    let output = together(folder.path(), &[&rank, &rank]);
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(errors(&output).matches("looks like a header").count(), 1, "{}", errors(&output));
    assert_eq!(errors(&output).matches("the learning rate is").count(), 1, "{}", errors(&output));
}

#[test]
fn ranks_that_would_not_do_the_same_are_named() {
    let folder = folder();
    let first = format!("{PROGRAM} {TRAIN}");
    for (second, what) in [
        (first.replace("train.txt", "other.txt"), "rank 1 has training data"),
        (format!("{first} --seed 9"), "rank 1 has settings"),
        (first.replace("train.txt", "missing.txt"), "missing.txt"),
    ] {
        let output = together(folder.path(), &[&first, &second]);
        assert!(!output.status.success());
        assert!(errors(&output).contains(what), "{}", errors(&output));
    }
}

/// What `train` does where nothing is said: sparse weights and nearest examples too.
#[test]
fn the_defaults_train_on_ranks() {
    let folder = folder();
    let folder = folder.path();
    let line = "train train.txt --epochs 3 --overwrite";
    let one = alone(folder, &format!("{line} --model one"));
    assert!(one.status.success(), "{}", errors(&one));
    for ranks in [2, 4] {
        let rank = format!("{PROGRAM} {line} --model many");
        let all = together(folder, &vec![&*rank; ranks]);
        assert!(all.status.success(), "{}", errors(&all));
        assert!(errors(&all).contains("on held-out examples"), "{}", errors(&all));
        assert!(errors(&all).contains("calibrated on"), "{}", errors(&all));
        assert!(network(folder, "many") == network(folder, "one"), "{ranks} ranks");
        assert_eq!(p_at_1(folder, "many"), p_at_1(folder, "one"), "{ranks} ranks");
        for command in ["inspect many", "predict many train.txt --probabilities"] {
            let output = alone(folder, command);
            assert!(output.status.success(), "{}", errors(&output));
        }
    }
}

/// Ranks make no search index; one process, which trains nothing any more, does.
#[test]
fn one_process_gives_a_model_of_ranks_its_search_index() {
    let folder = folder();
    let folder = folder.path();
    let of_many = examples(3).replacen("800 60 90", "800 60 2500", 1);
    std::fs::write(folder.join("many.txt"), of_many).unwrap();
    let line = TRAIN.replace("train.txt", "many.txt");
    let rank = format!("{PROGRAM} {line} --model model");
    assert!(together(folder, &[&rank, &rank]).status.success());
    let saved = |model| artifact::load(&folder.join(model)).unwrap().model;
    let before = saved("model");
    assert!(before.search.is_none());
    for says in ["search index", "nothing is left to do"] {
        let output = alone(folder, "train many.txt --model model --resume");
        assert!(output.status.success() && errors(&output).contains(says), "{}", errors(&output));
        let after = saved("model");
        assert!(after.search.is_some());
        assert_eq!(after.network.output.bias, before.network.output.bias);
    }
}

/// The same words and, up to the order of sums, the same numbers: one process sums over the
/// features of an example straight through when it answers.
fn assert_same_answers(found: &Output, expected: &Output) {
    let [found, expected] = [found, expected].map(|output| String::from_utf8_lossy(&output.stdout));
    let words = |text: &'_ str| -> Vec<String> {
        let is_between = |c: char| !(c.is_alphanumeric() || "+-.@".contains(c));
        text.split(is_between).map(String::from).collect()
    };
    let (found, expected) = (words(&found), words(&expected));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        let is_close = match (found.parse::<f64>(), expected.parse::<f64>()) {
            (Ok(found), Ok(expected)) => (found - expected).abs() <= 1e-5 * expected.abs().max(1.0),
            _ => found == expected,
        };
        assert!(is_close, "{found} instead of {expected}");
    }
}

/// One process and several say the same of a model that several wrote.
#[test]
fn ranks_answer_together_what_one_answers() {
    let folder = folder();
    let folder = folder.path();
    let rank = format!("{PROGRAM} train train.txt --epochs 2 --model model");
    assert!(together(folder, &[&rank, &rank]).status.success());
    for command in ["evaluate model other.txt --json", "predict model other.txt --top-k 7 --probabilities"] {
        let expected = alone(folder, command);
        let rank = format!("{PROGRAM} {command}");
        let found = together(folder, &[&rank, &rank, &rank]);
        assert!(found.status.success(), "{}", errors(&found));
        assert_same_answers(&found, &expected);
    }
    let rank = format!("{PROGRAM} predict model - --top-k 1");
    let output = together(folder, &[&rank, &rank]);
    assert!(!output.status.success() && errors(&output).contains("one process"), "{}", errors(&output));
}

/// A run of 800 steps that writes a checkpoint every ten.
fn long(checkpoints: &str) -> String {
    format!(
        "{PROGRAM} {} --batch 8 --epochs 8 --checkpoint {checkpoints} --checkpoint-every 10steps --resume --quiet",
        TRAIN.replace("--batch 32 --epochs 2 ", "")
    )
}

/// Starts two ranks and sends the second one a signal when there is a checkpoint; gives
/// what they said.
fn two_ranks_until(folder: &Path, line: &str, signal: &str) -> Output {
    let number = folder.join("number");
    let second = format!("echo $$ > {}; exec {line}", number.display());
    let mut command = Command::new("timeout");
    command.args([SECONDS, "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
    command.args(["-n", "1"]).args(line.split(' ')).args([":", "-n", "1", "sh", "-c", &second]);
    command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut ranks = command.spawn().expect("timeout is part of every system");
    let is_step = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("step-");
    while !std::fs::read_dir(folder.join("saved")).into_iter().flatten().flatten().any(is_step) {
        assert!(ranks.try_wait().unwrap().is_none(), "they ended before their first checkpoint");
        std::thread::sleep(Duration::from_millis(20));
    }
    let number = std::fs::read_to_string(number).unwrap();
    let send = |signal: &str| Command::new("kill").args([signal, number.trim()]).status().unwrap().success();
    assert!(send(signal), "it ended before");
    let output = ranks.wait_with_output().unwrap();
    // One that was stopped may be there still.
    send("-KILL");
    output
}

#[test]
fn a_rank_that_is_killed_ends_all_and_the_run_goes_on_to_the_same_bits() {
    let folder = folder();
    let folder = folder.path();
    let output = two_ranks_until(folder, &long("saved"), "-KILL");
    assert!(!output.status.success() && output.status.code() != Some(124));
    assert!(errors(&output).contains("rank 1"), "{}", errors(&output));
    for (checkpoints, model) in [("saved", "resumed"), ("other", "unbroken")] {
        let rank = format!("{} --model {model}", long(checkpoints));
        let output = together(folder, &[&rank, &rank]);
        assert!(output.status.success(), "{}", errors(&output));
    }
    assert!(weights(folder, "resumed") == weights(folder, "unbroken"));
    // One process goes on with what two have left.
    let further = format!("{} --epochs 9 --model one", long("saved").replace("--epochs 8 ", ""));
    let output = alone(folder, further.strip_prefix(PROGRAM).unwrap().trim());
    assert!(output.status.success(), "{}", errors(&output));
    assert!((p_at_1(folder, "one") - p_at_1(folder, "resumed")).abs() < 5.0);
}

/// It does not end, and nobody tells: the others find out.
#[test]
fn a_rank_that_is_stopped_is_named() {
    let folder = folder();
    let output = two_ranks_until(folder.path(), &format!("{} --rank-timeout 4", long("saved")), "-STOP");
    assert!(!output.status.success() && output.status.code() != Some(124));
    assert!(errors(&output).contains("nothing was heard of rank 1"), "{}", errors(&output));
}

#[test]
fn what_ranks_cannot_share_is_refused() {
    let folder = folder();
    let rank = format!("{PROGRAM} train train.txt --from missing --model model");
    let output = together(folder.path(), &[&rank, &rank]);
    assert!(!output.status.success() && errors(&output).contains("one process"), "{}", errors(&output));
    let rank = format!("{PROGRAM} data stats train.txt");
    let output = together(folder.path(), &[&rank, &rank]);
    assert!(!output.status.success() && errors(&output).contains("start one"), "{}", errors(&output));
    assert!(!folder.path().join("model").exists());
}
