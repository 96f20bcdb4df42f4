//! What meets a newcomer in the first hour.

use crate::support::Folder;

/// Three subjects, told by a word each; every tenth title has two.
fn titles() -> String {
    let subjects = [("gardens", "gardening"), ("stars", "astronomy"), ("bread", "cooking")];
    let title = |i: usize| {
        let (word, label) = subjects[i % 3];
        let (other, second) = subjects[(i + 1) % 3];
        match i % 10 {
            0 => format!("Volume {i} of {word} and {other}\t{label}|{second}\n"),
            _ => format!("Volume {i} of {word}\t{label}\n"),
        }
    };
    (0..400).map(title).collect()
}

fn with_titles() -> Folder {
    let folder = Folder::new();
    folder.write("titles.tsv", titles());
    folder
}

#[test]
fn what_was_understood_chosen_and_done_is_said() {
    let folder = with_titles();
    folder.write("test.tsv", titles());
    let said =
        folder.succeed("train titles.tsv --test test.tsv --model model --epochs 2 --eval-examples 50").errors;
    for words in [
        "read and vectorised titles.tsv in ",
        "columns separated by tabs, without a header; the text is column 1, labels are column 2, separated by \"|\"",
        "its first text is \"Volume 0 of gardens and stars\", with the labels \"gardening\", \"astronomy\"",
        "10 further models, each without some of 400 examples, are trained to choose",
        "metrics are of 50 of 400 test examples",
        "probabilities are calibrated on 400 held-out examples",
        "saved to model",
        "in all: ",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // The exact evaluation comes once, as the result.
    assert_eq!(said.matches("epoch 2 ").count(), 1, "{said}");
}

#[test]
fn a_model_is_replaced_only_if_that_is_meant() {
    let folder = with_titles();
    folder.succeed("train titles.tsv --model model --epochs 1 -q");
    let before = folder.read("model/model.safetensors");
    let message = folder.refuse_to_replace("train titles.tsv --model model --epochs 2 -q");
    assert!(message.contains("--resume goes on with it, --overwrite replaces it"), "{message}");
    assert!(folder.read("model/model.safetensors") == before);
    folder.succeed("train titles.tsv --model model --epochs 2 -q --overwrite");
    assert!(folder.read("model/model.safetensors") != before);
    let said = folder.succeed("train titles.tsv --model model --resume").errors;
    assert!(said.contains("nothing is left to do: the model has had its 2 epochs"), "{said}");
}

#[test]
fn strange_values_and_names_get_a_word() {
    let folder = with_titles();
    let said = folder.run("train titles.tsv --sampler lsh").errors;
    assert!(said.contains("expected one of full, ") && said.contains(", nce, "), "{said}");
    let said = folder.succeed("train titles.tsv --model model --epochs 1 --lr 0.9 -q").errors;
    assert!(said.contains("note: the learning rate is 0.9"), "{said}");
    assert!(folder.refuse("inspect model --class cookng").contains("did you mean \"cooking\"?"));
    let printed = folder.succeed("train titles.tsv --print-config").out;
    assert!(printed.lines().any(|line| line == "lr = 0.01"), "{printed}");
}

#[test]
fn probabilities_are_calibrated_and_judged() {
    let folder = with_titles();
    folder.succeed("train titles.tsv --model model -q");
    let found = folder.succeed("evaluate model titles.tsv --json --page report.html").json();
    let error = found["calibration"]["ECE"].as_f64().unwrap();
    assert!((0.0..0.3).contains(&error), "{error}");
    assert!(
        found["calibration"]["bins"].as_array().unwrap().iter().all(|bin| bin["answers"].as_u64() > Some(0))
    );
    let page = String::from_utf8(folder.read("report.html")).unwrap();
    assert!(page.contains("Reliability") && page.contains("As it should be"));
    // Nothing known: the prior.
    let ask = "predict model - --probabilities --top-k 3 --format jsonl";
    let answer = folder.run_with_input(ask, "\u{4e0d}\u{77e5}\n".as_bytes()).json();
    let scores: Vec<f64> = answer["scores"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
    assert_eq!(answer["prior"], true);
    assert!(scores.iter().all(|&p| (0.3..0.5).contains(&p)), "{scores:?}");
    // Models that know no better say so.
    folder.succeed("train titles.tsv --model plain --preset plain --epochs 1 -q");
    let said = folder.run_with_input("predict plain - --probabilities", b"gardens\n").errors;
    assert!(said.contains("not calibrated"), "{said}");
    assert!(folder.succeed("evaluate plain titles.tsv --json").json().get("calibration").is_none());
}

#[test]
fn files_of_a_spreadsheet_are_read_or_named() {
    let folder = Folder::new();
    let rows = titles().replace('\t', ";").replace('|', "/");
    folder.write("titles.csv", format!("text;labels\n{rows}"));
    let flags = "--label-separator / --preset plain --epochs 1 --model model";
    let said = folder.succeed(&format!("train titles.csv {flags}")).errors;
    assert!(said.contains("columns separated by semicolons, named on line 1"), "{said}");
    assert!(said.contains("400 examples") && said.contains("trained 1 epoch in"), "{said}");
    folder.write("titles.xlsx", b"PK\x03\x04\x14\x00\x06\x00");
    assert!(folder.refuse("train titles.xlsx").contains("save a sheet as CSV"));
    folder.write("titles.jsonl", "{\"title\": \"a\", \"subjects\": [\"b\"]}\n");
    let message = folder.refuse("train titles.jsonl");
    assert!(message.contains("found \"subjects\", \"title\": name the right one"), "{message}");
    let message = folder.refuse("predict model titles.csv --probabilities --threshold 80");
    assert!(message.contains("from 0 to 1"), "{message}");
}

#[test]
fn data_commands_read_what_train_reads() {
    let folder = with_titles();
    let stats = folder.succeed("data stats titles.tsv --json").json();
    assert_eq!((stats["examples"].as_u64(), stats["classes"].as_u64()), (Some(400), Some(3)));
    folder.succeed("data split titles.tsv --test-count 100 --out parts");
    let test = String::from_utf8(folder.read("parts/test.jsonl")).unwrap();
    assert_eq!(test.lines().count(), 100);
    folder.succeed("train parts/train.jsonl --test parts/test.jsonl --model model --epochs 1 -q");
    folder.succeed("data uniform titles.tsv --cap 50 --min-count 1 --out even");
    assert_eq!(folder.read("even/classes.txt"), b"astronomy\ncooking\ngardening\n");
    folder.succeed("data vectorise titles.tsv --test titles.tsv --out numbers");
    assert_eq!(folder.read("numbers/train.txt"), folder.read("numbers/test.txt"));
    // What train makes of the text and of the numbers is the same.
    folder.succeed("train titles.tsv --model of-text --epochs 1 -q");
    folder.succeed("train numbers/train.txt --model of-numbers --epochs 1 -q");
    assert!(folder.read("of-text/model.safetensors") == folder.read("of-numbers/model.safetensors"));
    assert!(folder.refuse("data vectorise numbers/train.txt --out again").contains("numbers already"));
}

#[test]
fn a_matrix_to_predict_needs_no_labels() {
    let folder = Folder::new();
    let rows = 60usize;
    let mut matrix = b"\x93NUMPY\x01\x00".to_vec();
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 3), }}");
    let header = format!("{header:<117}\n");
    matrix.extend((header.len() as u16).to_le_bytes());
    matrix.extend(header.bytes());
    (0..rows * 3).for_each(|i| matrix.extend(f32::from(u8::from(i / 3 % 3 == i % 3)).to_le_bytes()));
    folder.write("m.npy", matrix);
    folder.write("labels.txt", (0..rows).map(|i| format!("label{}\n", i % 3)).collect::<String>());
    folder.succeed(
        "train m.npy --labels-file labels.txt --model model --preset plain --epochs 20 --batch 8 -q",
    );
    let answers = folder.succeed("predict model m.npy --top-k 1").out;
    assert_eq!(answers.lines().count(), rows);
    assert!(answers.starts_with("label0\t"), "{answers}");
}
