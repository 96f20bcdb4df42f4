//! Going on with new data, changing classes, weights.

use crate::support::{Folder, NAMES};

/// Some names of two new cities; one of a city that is known.
const NEW: &str = "Tallinn\tTallinn\nTallin\tTallinn\nРеваль Таллин\tTallinn\nReval Tallinn\tTallinn\n\
                   Zagreb\tZagreb\nZágráb Zagreb\tZagreb\nAgram Zagreb\tZagreb\nZagabria Zagreb\tZagreb\n";

fn classes(folder: &Folder, model: &str) -> Vec<String> {
    let list = folder.succeed(&format!("classes list {model}"));
    list.out.lines().skip(1).map(|line| line.split('\t').nth(1).unwrap().to_owned()).collect()
}

fn best(folder: &Folder, model: &str, text: &str) -> String {
    let input = format!("{text}\n");
    let done =
        folder.run_with_input(&format!("predict {model} - --format jsonl --top-k 1"), input.as_bytes());
    done.json()["labels"][0].as_str().unwrap().to_owned()
}

#[test]
fn new_classes_come_behind_the_old_ones() {
    let folder = Folder::with_name_model();
    folder.write("new.tsv", NEW).write("old.tsv", NAMES);
    let before = classes(&folder, "model");
    let line =
        "train new.tsv --from model --model larger --rehearse-from old.tsv --rehearse 1 --epochs 20 --seed 1";
    let done = folder.succeed(line);
    assert!(done.errors.contains("2 classes"), "{}", done.errors);
    let after = classes(&folder, "larger");
    assert_eq!(after[..before.len()], before);
    assert_eq!(after[before.len()..], ["Tallinn", "Zagreb"]);
    assert_eq!(best(&folder, "larger", "Tallinn"), "Tallinn");
    assert_eq!(best(&folder, "larger", "Zagreb"), "Zagreb");
    // The old model is as it was, and so is the vocabulary where it is kept.
    assert_eq!(classes(&folder, "model"), before);
    folder.succeed(&format!("{line} --vocabulary keep").replace("larger", "kept"));
    assert_eq!(folder.read("kept/vocabulary.txt"), folder.read("model/vocabulary.txt"));
    assert_ne!(folder.read("larger/vocabulary.txt"), folder.read("model/vocabulary.txt"));
    // The same again gives the same bits, on one thread too.
    folder.succeed(&format!("{line} --threads 1").replace("larger", "again"));
    assert_eq!(folder.read("again/model.safetensors"), folder.read("larger/model.safetensors"));
    folder.succeed("evaluate larger old.tsv");
}

#[test]
fn numbers_may_have_more_features_and_classes_than_the_model() {
    let folder = Folder::new();
    let rows = |classes: std::ops::Range<u32>| -> String {
        (0..120)
            .map(|i| (classes.start + i % classes.len() as u32, i))
            .map(|(c, i)| format!("{c} {c}:1 {}:0.3\n", 90 + i % 9))
            .collect()
    };
    folder.write("old.txt", rows(0..12)).write("new.txt", rows(12..20));
    folder.succeed("train old.txt --model model --epochs 8");
    folder.succeed(
        "train new.txt --from model --model model --rehearse-from old.txt --rehearse 0.5 --epochs 8",
    );
    assert_eq!(classes(&folder, "model").len(), 20);
    folder.write("all.txt", [rows(0..12), rows(12..20)].concat());
    let found = folder.succeed("evaluate model all.txt --k 1 --json").json();
    let precision = found["P@1"].as_f64().or(found["metrics"]["P@1"].as_f64()).unwrap();
    assert!(precision > 90.0, "{precision}");
    // A class that goes leaves the others their numbers.
    folder.succeed("classes remove model 0 17");
    assert_eq!(classes(&folder, "model")[..2], ["1", "2"]);
    let done = folder.run_with_input("predict model - --format jsonl --top-k 1", b"18 18:1\n");
    assert_eq!(done.json()["labels"][0], "18");
    let found = folder.succeed("evaluate model all.txt --k 1 --json");
    assert!(found.out.contains("P@1"));
}

#[test]
fn classes_are_removed_and_renamed() {
    let folder = Folder::with_name_model();
    let before = classes(&folder, "model");
    let (first, second) = (before[0].clone(), before[1].clone());
    folder.write("gone.txt", format!("{first}\n"));
    folder.succeed("classes remove model --file gone.txt --out smaller");
    assert_eq!(classes(&folder, "smaller"), before[1..]);
    assert_eq!(classes(&folder, "model"), before);
    folder.write("names.tsv", format!("{second}\tanother\n"));
    folder.succeed("classes rename smaller --file names.tsv");
    assert_eq!(classes(&folder, "smaller")[0], "another");
    folder.refuse("classes remove model nowhere");
    assert!(folder.refuse("classes rename smaller nowhere somewhere").contains("nowhere"));
    folder.write("names.tsv", format!("another\t{}\n", before[2]));
    assert!(folder.refuse("classes rename smaller --file names.tsv").contains("two classes"));
    folder.write("gone.txt", before[1..].join("\n"));
    assert!(folder.refuse("classes remove model --file gone.txt").contains("at least two"));
    assert_eq!(classes(&folder, "model"), before);
}

#[test]
fn what_cannot_be_rehearsed_is_said() {
    let folder = Folder::with_name_model();
    folder.write("new.tsv", NEW);
    let refused = folder.run("train new.tsv --from model --model larger --rehearse 2");
    assert!(refused.errors.contains("from 0 to 1"), "{}", refused.errors);
    folder.succeed("train names.tsv --model dense --sparse false --epochs 1 --min-documents 1 -q");
    let refused = folder.refuse("train new.tsv --from dense --model larger --rehearse 0.5");
    assert!(refused.contains("--rehearse-from"), "{refused}");
}

/// 25 steps an epoch at least, counted by what it has: examples that nobody rehearses are
/// in none.
#[test]
fn batches_grow_with_the_examples_that_an_epoch_has() {
    let folder = Folder::with_numbers();
    folder.succeed("train made/train.txt --model model --sparse false --epochs 1 --hidden 16 --batch 2 -q");
    let few = String::from_utf8(folder.read("made/train.txt")).unwrap();
    let few: Vec<&str> = few.lines().skip(1).take(100).collect();
    folder.write("few.txt", format!("100 300 80\n{}\n", few.join("\n")));
    for (flags, batch) in [
        ("", 4),
        // Half of 600 earlier ones besides.
        ("--rehearse-from made/train.txt --rehearse 0.5", 16),
        ("--rehearse-from made/train.txt --rehearse 0", 4),
        ("--rehearse-from made/train.txt --rehearse 0.5 --batch 3", 3),
    ] {
        folder.succeed(&format!("train few.txt --from model --model larger --overwrite -q {flags}"));
        let settings = folder.succeed("train few.txt --model larger --resume --print-config").out;
        assert!(settings.contains(&format!("\nbatch = {batch}\n")), "{flags}: {settings}");
    }
}

#[test]
fn going_on_with_new_data_survives_a_break() {
    let folder = Folder::with_name_model();
    folder.write("new.tsv", NEW).write("old.tsv", NAMES);
    let line = "train new.tsv --from model --rehearse-from old.tsv --epochs 6 --batch 4 -q";
    folder.succeed(&format!("{line} --model whole"));
    let checkpoint = "--checkpoint steps --checkpoint-every 1steps --resume";
    for _ in 0..5 {
        folder.succeed(&format!("{line} --model broken {checkpoint} --time-limit 0.000001"));
        assert!(folder.read("broken/model.safetensors") != folder.read("whole/model.safetensors"));
    }
    folder.succeed(&format!("{line} --model broken {checkpoint}"));
    for file in ["model.safetensors", "training.safetensors", "vocabulary.txt", "labels.txt"] {
        let path = |model: &str| format!("{model}/{file}");
        assert!(folder.read(&path("broken")) == folder.read(&path("whole")), "{file}");
    }
    // What it started from is needed again, so it must not be replaced on the way.
    let refused = folder.refuse(&format!("{line} --model model {checkpoint}"));
    assert!(refused.contains("the same directory"), "{refused}");
}

#[test]
fn weights_come_from_columns_and_files_and_are_checked() {
    let folder = Folder::new();
    let weighted: String = NAMES.lines().map(|line| format!("{line}\t2\n")).collect();
    folder.write("plain.tsv", NAMES).write("weighted.tsv", weighted);
    let count = NAMES.lines().count();
    folder.write("ones.txt", "1\n".repeat(count)).write("twos.txt", "2\n".repeat(count));
    let train = |file: &str, model: &str, flags: &str| {
        folder.succeed(&format!("train {file} --model {model} --epochs 2 {flags}"));
        folder.read(&format!("{model}/model.safetensors"))
    };
    let plain = train("plain.tsv", "a", "");
    assert_eq!(plain, train("plain.tsv", "b", "--weights ones.txt"));
    let twice = train("plain.tsv", "c", "--weights twos.txt");
    assert_eq!(twice, train("weighted.tsv", "d", "--weight-column 3"));
    assert_ne!(twice, plain);
    let class = classes(&folder, "a")[0].clone();
    folder.write("classes.tsv", format!("{class}\t3\n"));
    assert_ne!(plain, train("plain.tsv", "e", "--class-weights classes.tsv"));
    for (content, message) in [("1\n", "expected one for each"), ("-1\n", "line 1"), ("nan\n", "line 1")] {
        folder.write("bad.txt", content);
        let refused = folder.refuse("train plain.tsv --weights bad.txt");
        assert!(refused.contains(message), "{refused}");
    }
    folder.write("classes.tsv", "nowhere\t3\n");
    assert!(folder.refuse("train plain.tsv --class-weights classes.tsv").contains("nowhere"));
    folder.write("numbers.txt", "0 1:1\n1 2:1\n");
    assert!(folder.refuse("train numbers.txt --weight-column 3").contains("--weights"));
}
