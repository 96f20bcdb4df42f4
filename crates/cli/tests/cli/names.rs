//! Text in, names out.

use lookalike::artifact;
use lookalike::predict::{Ask, Predictor};
use lookalike_kernels::Cpu;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::support::{Folder, NAMES};

/// Strings of every kind: any characters, letters of some scripts, and texts that
/// share n-grams with the names.
fn random_texts(count: usize) -> Vec<String> {
    let names: Vec<&'static str> = NAMES.lines().map(|line| line.split('\t').next().unwrap()).collect();
    let strategy = prop_oneof![
        any::<String>(),
        "\\PC{0,20}",
        "[a-zäöüßA-Z ]{0,30}",
        "[а-яёА-Я]{1,10}",
        (proptest::sample::select(names), "\\PC{0,5}").prop_map(|(name, end)| format!("{name}{end}")),
    ];
    let mut runner = TestRunner::deterministic();
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// Issue 3: the same prediction from the command line, from a second process, and
/// within this one.
#[test]
fn a_thousand_random_texts_are_answered_alike_everywhere() {
    let folder = Folder::with_name_model();
    let texts = random_texts(1000);
    let lines: String =
        texts.iter().map(|text| format!("{}\n", serde_json::json!({ "text": text }))).collect();
    folder.write("texts.jsonl", &lines);
    let first = folder.succeed("predict model texts.jsonl --format jsonl --top-k 3");
    let second =
        folder.run_with_input("predict model - --format jsonl --top-k 3 --threads 1", lines.as_bytes());
    assert_eq!(first.out.lines().count(), texts.len());
    assert!(first.out == second.out);

    let model = artifact::load(&folder.path("model")).unwrap().model;
    let predictor = Predictor::new(&model, Cpu::from_env().unwrap());
    let data = model.text.as_ref().unwrap().vectoriser.transform_all(&texts);
    let batch: Vec<u32> = (0..texts.len() as u32).collect();
    let best = predictor.rank(&data.view(), &batch, Ask::best(3));
    for (i, line) in first.out.lines().enumerate() {
        let answer: serde_json::Value = serde_json::from_str(line).unwrap();
        for (place, class) in predictor.named(&best, i).iter().enumerate() {
            assert_eq!(answer["labels"][place], class.name, "{:?}", texts[i]);
            assert_eq!(answer["scores"][place].as_f64().unwrap() as f32, class.score, "{:?}", texts[i]);
        }
    }
}

#[test]
fn every_format_gives_the_same_model() {
    let folder = Folder::new();
    let rows: Vec<(&str, &str)> = NAMES.lines().map(|line| line.split_once('\t').unwrap()).collect();
    let write = |name: &str, head: &str, row: &dyn Fn(&str, &str) -> String| {
        let rows: String = rows.iter().map(|(text, labels)| row(text, labels) + "\n").collect();
        folder.write(name, head.to_owned() + &rows);
    };
    write("a.tsv", "", &|text, labels| format!("{text}\t{labels}"));
    write("a.csv", "id,labels,text\r\n", &|text, labels| format!("7,{labels},\"{text}\"\r"));
    write("a.jsonl", "", &|text, labels| {
        serde_json::json!({ "text": text, "labels": labels.split('|').collect::<Vec<_>>() }).to_string()
    });
    write("renamed.csv", "tags,body\n", &|text, labels| format!("{},{text}", labels.replace('|', ";")));
    let flags = "--model model --epochs 2 --hidden 16 --sampler full --min-documents 1 -q";
    let train = |line: &str| {
        folder.succeed(&format!("train {line} {flags}"));
        (folder.read("model/model.safetensors"), folder.read("model/labels.txt"))
    };
    let expected = train("a.tsv");
    assert!(train("a.csv") == expected);
    assert!(train("a.jsonl") == expected);
    assert!(train("renamed.csv --text-column body --labels-column tags --label-separator ;") == expected);
    folder.write("a.gz", zstd::encode_all(NAMES.as_bytes(), 1).unwrap());
    assert!(train("a.gz") == expected, "compression is told by content");

    // fastText's labels have no spaces.
    let no_spaces = NAMES.replace("Colonia del Sacramento", "Colonia");
    folder.write("a.tsv", &no_spaces);
    let fasttext: String = no_spaces
        .lines()
        .map(|line| {
            let (text, labels) = line.split_once('\t').unwrap();
            let labels: String = labels.split('|').map(|label| format!("__label__{label} ")).collect();
            format!("{labels}{text}\n")
        })
        .collect();
    folder.write("a.txt", fasttext);
    assert!(train("a.txt") == train("a.tsv"));
}

#[test]
fn names_go_in_and_come_out() {
    let folder = Folder::with_name_model();
    let done = folder.run_with_input("predict model - --top-k 1", "muenchen\nPRAHA\n東京\n".as_bytes());
    let names: Vec<&str> = done.out.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(names, ["Munich", "Prague", "Tokyo"]);
    let metrics = folder.succeed("evaluate model names.tsv --k 1 --json").json();
    assert!(metrics["P@1"].as_f64().unwrap() > 90.0, "{metrics}");

    let near = folder.succeed("inspect model --class mun --json").json();
    assert_eq!(near["class"], "Munich");
    let near: Vec<&str> =
        near["neighbours"].as_array().unwrap().iter().map(|n| n["class"].as_str().unwrap()).collect();
    assert_eq!(near.len(), 5);
    assert!(!near.contains(&"Munich"));
    let message = folder.refuse("inspect model --class C");
    assert!(message.contains("\"Cologne\", \"Colonia del Sacramento\""), "{message}");
    assert!(folder.refuse("inspect model --class Atlantis").contains("\"Atlantis\""));
}

#[test]
fn a_prediction_is_explained() {
    let folder = Folder::with_name_model();
    let told = folder.succeed("inspect model --text Muenchen --json").json();
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    assert_eq!(told["predictions"][0]["class"], "Munich");
    assert_eq!(told["prior"], false);
    let features = told["features"].as_array().unwrap();
    assert!(
        features.iter().any(|f| f["feature"] == "muenchen" && number(&f["contribution"]) > 0.0),
        "{told}"
    );
    let sum: f64 =
        features.iter().map(|f| number(&f["contribution"])).sum::<f64>() + number(&told["constant"]);
    assert!((sum - number(&told["lead"])).abs() < 1e-3, "{told}");
    let negatives = told["negatives"]["classes"].as_array().unwrap();
    assert_eq!(
        negatives.len() as f64,
        number(&told["negatives"]["found"]) + number(&told["negatives"]["drawn"])
    );
    assert!(!negatives.is_empty() && negatives.iter().all(|n| n["class"] != "Munich"));

    let printed = folder.succeed("inspect model --text Muenchen --top-k 3").out;
    for part in ["Munich", "what carried", "other features", "negatives that mixed would propose"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let prior = folder.succeed("inspect model --text qqq").out;
    assert!(prior.starts_with("no known feature"), "{prior}");
}

#[test]
fn a_text_model_goes_on() {
    let folder = Folder::new();
    folder.write("names.tsv", NAMES);
    let flags = "--hidden 16 --sampler lsh-label --budget 3 --min-documents 1 --lr-schedule constant --sparse-epochs 2 -q";
    folder.succeed(&format!("train names.tsv --model whole --epochs 3 {flags}"));
    folder.succeed(&format!("train names.tsv --model parts --epochs 2 {flags}"));
    folder.succeed("train names.tsv --model parts --resume --epochs 3 -q");
    assert!(folder.read("whole/model.safetensors") == folder.read("parts/model.safetensors"));
    let message = folder.refuse("train names.tsv --model parts --resume --epochs 4 --words 1-2");
    assert!(message.contains("--resume"), "{message}");
}

#[test]
fn hashing_words_and_characters_are_choices() {
    let folder = Folder::new();
    folder.write("names.tsv", NAMES);
    let features = |flags: &str| {
        let flags = format!("{flags} --model model --epochs 1 --hidden 16 --sampler full -q");
        folder.succeed(&format!("train names.tsv {flags}"));
        folder.succeed("inspect model --json").json()["network"]["num-features"].as_u64().unwrap()
    };
    assert_eq!(features("--hash-bits 9"), 512);
    let words = features("--characters none --min-documents 1");
    let both = features("--min-documents 1");
    assert!(words < both, "{words} {both}");
    assert_eq!(features("--min-documents 1 --max-features 5"), 5);
    assert!(features("--words none --characters 3 --min-documents 1") < both);
}

/// A `.npy` file of `f32` rows.
fn npy(rows: &[[f32; 3]]) -> Vec<u8> {
    let shape = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, 3), }}", rows.len());
    let header = format!("{shape:<117}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(rows.iter().flatten().flat_map(|x| x.to_le_bytes()));
    file
}

#[test]
fn a_matrix_and_its_labels_make_a_model_with_names() {
    let folder = Folder::new();
    let rows: Vec<[f32; 3]> = (0..60)
        .map(|i| std::array::from_fn(|j| if i % 3 == j { 1.0 } else { 0.01 * (i % 7) as f32 }))
        .collect();
    let labels: String = (0..60).map(|i| ["red\n", "green\n", "blue\n"][i % 3]).collect();
    folder.write("x.npy", npy(&rows)).write("x.txt", labels);
    assert!(folder.refuse("train x.npy --model model").contains("--labels-file"));
    folder.succeed(
        "train x.npy --labels-file x.txt --model model --epochs 40 --hidden 8 --lr 0.05 --sampler full --batch 16 -q",
    );
    let metrics = folder.succeed("evaluate model x.npy --labels-file x.txt --k 1 --json").json();
    assert_eq!(metrics["P@1"], 100.0);
    let out = folder.succeed("predict model x.npy --labels-file x.txt --top-k 1").out;
    let names: Vec<&str> = out.lines().take(3).map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(names, ["red", "green", "blue"]);
    folder.write("short.txt", "red\n");
    let message = folder.refuse("evaluate model x.npy --labels-file short.txt");
    assert!(message.contains("1 line") && message.contains("60 row"), "{message}");
}
