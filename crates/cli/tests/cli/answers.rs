//! Predicting, evaluating and inspecting.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::ChildStdout;
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{Folder, NAMES};

/// Reads lines in a thread, so that a missing answer fails and does not hang.
fn lines_of(out: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

#[test]
fn standard_input_is_answered_line_by_line() {
    let numbers = Folder::with_number_model();
    let names = Folder::with_name_model();
    let tsv: Vec<&str> = NAMES.lines().take(4).collect();
    let cases: [(&Folder, Vec<&str>); 4] = [
        (&numbers, vec!["1 0:1 5:2", "7:1", "3 2:0.5"]),
        (&names, vec!["Muenchen", "", "Prag, Praha"]),
        (&names, tsv),
        (&names, vec!["{\"text\":\"Wien\"}", "{\"text\":\"Köln\"}"]),
    ];
    for (folder, inputs) in cases {
        let mut child = folder.spawn("predict model - --top-k 2");
        let mut stdin = child.stdin.take().unwrap();
        let answers = lines_of(child.stdout.take().unwrap());
        let mut one_by_one = Vec::new();
        for input in &inputs {
            writeln!(stdin, "{input}").unwrap();
            stdin.flush().unwrap();
            let answer = answers.recv_timeout(Duration::from_secs(60)).expect("an answer to a line");
            assert_eq!(answer.split('\t').count(), 4, "{answer}");
            one_by_one.push(answer);
        }
        drop(stdin);
        assert!(child.wait().unwrap().success());
        // The same bits as for all lines at once.
        let whole = folder.run_with_input("predict model - --top-k 2", (inputs.join("\n") + "\n").as_bytes());
        assert_eq!(whole.out.lines().collect::<Vec<_>>(), one_by_one);
    }
}

#[test]
fn answers_do_not_depend_on_what_arrives_with_them() {
    let folder = Folder::with_number_model();
    let test = String::from_utf8(folder.read("made/test.txt")).unwrap();
    let rows: Vec<&str> = test.lines().skip(1).collect();
    let whole = folder.succeed("predict model made/test.txt");
    assert_eq!(whole.out.lines().count(), rows.len());
    for (row, expected) in rows.iter().zip(whole.out.lines()).take(5) {
        let one = folder.run_with_input("predict model - --threads 1", format!("{row}\n").as_bytes());
        assert_eq!(one.out.trim_end(), expected);
    }
    folder.succeed("data pack made/test.txt --out packed");
    assert_eq!(folder.succeed("predict model packed").out, whole.out);
    folder.write("test.zst", zstd::encode_all(test.as_bytes(), 1).unwrap());
    assert_eq!(folder.succeed("predict model test.zst").out, whole.out);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let folder = Folder::with_number_model();
    folder.write("many.txt", "1 0:1 5:2\n".repeat(200_000));
    let mut child = folder.spawn("predict model many.txt");
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    drop(out);
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((child.wait().unwrap().code(), errors.as_str()), (Some(0), ""));
    assert_eq!(line.split('\t').count(), 10);
}

#[test]
fn predictions_as_tsv_and_json_lines_agree() {
    let folder = Folder::with_number_model();
    let tsv = folder.succeed("predict model made/test.txt --top-k 3 --probabilities").out;
    let json = folder.succeed("predict model made/test.txt --top-k 3 --probabilities --format jsonl").out;
    assert_eq!(tsv.lines().count(), json.lines().count());
    for (tsv, json) in tsv.lines().zip(json.lines()) {
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        let cells: Vec<&str> = tsv.split('\t').collect();
        for (i, pair) in cells.chunks_exact(2).enumerate() {
            assert_eq!(json["labels"][i], pair[0]);
            let probability: f64 = pair[1].parse().unwrap();
            assert!((json["scores"][i].as_f64().unwrap() - probability).abs() < 1e-6);
            // Of several labels each has a probability of its own.
            assert!((0.0..=1.0).contains(&probability), "{probability}");
        }
    }
}

#[test]
fn evaluation_is_one_object_of_percentages() {
    let folder = Folder::with_number_model();
    let metrics = folder.succeed("evaluate model made/test.txt --k 1,3,5 --json").json();
    for k in [1, 3, 5] {
        for name in ["P", "capped-P", "nDCG", "PSP", "recall"] {
            let value = metrics[format!("{name}@{k}")].as_f64();
            assert!(value.is_some_and(|v| (0.0..=100.0).contains(&v)), "{name}@{k}: {value:?}");
        }
    }
    assert_eq!((&metrics["examples"], &metrics["unknown-labels"]), (&100.into(), &0.into()));
    let printed = folder.succeed("evaluate model made/test.txt --k 1").out;
    let line = printed.lines().find(|line| line.starts_with("P@1 ")).unwrap();
    let value: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!((value - metrics["P@1"].as_f64().unwrap()).abs() < 0.006);
    // From standard input too.
    let input = folder.read("made/test.txt");
    assert_eq!(folder.run_with_input("evaluate model - --json", &input).json(), metrics);
}

#[test]
fn a_model_shows_its_shape_tables_and_neighbours() {
    let folder = Folder::with_number_model();
    let summary = folder.succeed("inspect model --json").json();
    assert_eq!(summary["network"]["num-classes"], 80);
    assert_eq!(summary["network"]["hidden"], serde_json::json!([16]));
    assert_eq!(summary["progress"]["epoch"], 2);
    let occupancy = &summary["tables"]["occupancy"];
    let buckets: u64 = occupancy["histogram"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
    let expected = occupancy["tables"].as_u64().unwrap() * occupancy["buckets"].as_u64().unwrap();
    assert_eq!(buckets, expected);
    let text = folder.succeed("inspect model").out;
    assert!(text.contains("classes     80") && text.contains("empty"), "{text}");

    let near = folder.succeed("inspect model --class 17 --top-k 4 --json").json();
    let cosines: Vec<f64> =
        near["neighbours"].as_array().unwrap().iter().map(|n| n["cosine"].as_f64().unwrap()).collect();
    assert_eq!(cosines.len(), 4);
    assert!(cosines.is_sorted_by(|a, b| a >= b) && cosines[0] <= 1.0001, "{cosines:?}");
    assert_eq!(folder.succeed("inspect model --class 17 --top-k 4").out.lines().count(), 5);
    assert!(folder.refuse("inspect model --class 80").contains("80"));
    assert!(folder.refuse("inspect model --text word").contains("trained from numbers"));
}

#[test]
fn a_model_shows_its_sparse_part() {
    let folder = Folder::with_numbers();
    let train = "train made/train.txt --model model --epochs 2 --hidden 4 --budget 20 -q --sparse";
    folder.succeed(&format!("{train} true"));
    let sparse = folder.succeed("inspect model --json").json()["sparse"].clone();
    let (entries, blend) = (sparse["entries"].as_u64().unwrap(), sparse["blend"].as_f64().unwrap());
    assert!(entries > 80 && blend > 0.0, "{sparse}");
    let text = folder.succeed("inspect model").out;
    let line = text.lines().find(|line| line.starts_with("sparse ")).unwrap();
    assert!(line.contains(&format!("count {blend} times")), "{line}");
    let kept = folder.succeed("inspect model --json").json()["neighbours"].clone();
    assert_eq!(text.contains("\nneighbours "), !kept.is_null(), "{text}");
    folder.succeed(&format!("{train} true --neighbours false"));
    assert!(folder.succeed("inspect model --json").json()["neighbours"].is_null());
    folder.succeed(&format!("{train} false"));
    assert!(folder.succeed("inspect model --json").json()["sparse"].is_null());
    assert!(!folder.succeed("inspect model").out.contains("\nsparse "));
}

#[test]
fn completions_and_manual_pages_are_made() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = folder.succeed(&format!("completions {shell}")).out;
        assert!(script.contains("lookalike") && script.contains("evaluate"), "{shell}");
    }
    folder.succeed("man pages");
    let page = String::from_utf8(folder.read("pages/lookalike-train.1")).unwrap();
    assert!(page.contains("sampler"), "{page}");
    for line in ["--help", "train --help", "predict --help", "inspect --help", "demo --help", "--version"] {
        assert!(!folder.succeed(line).out.is_empty());
    }
}
