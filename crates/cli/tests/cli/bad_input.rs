//! Bad input of every kind: one message with the place, exit code 2, nothing written.

use std::io::Write;

use crate::support::{Folder, NAMES};

/// What is wrong with examples of numbers, and what the message must hold.
const BAD_NUMBERS: [(&str, &[&str]); 16] = [
    ("", &["data, line 1"]),
    ("3 9 9\n1 0:1\n2 0:1\n", &["data, line 4", "3"]),
    ("1 9 9\n1 0:1\n2 0:1\n", &["data, line 3", "1"]),
    ("2 9 9\n1 0:1\nx 0:1\n", &["data, line 3, column 1", "`x`"]),
    ("2 9 9\n1 0:1\n1 0:abc\n", &["data, line 3, column 5", "`abc`"]),
    ("1 0:1\n1 2:nan\n", &["data, line 2, column 5", "nan"]),
    ("1 0:1\n1 2:inf\n", &["data, line 2, column 5", "inf"]),
    ("1 0:1\n1 2:1e99\n", &["data, line 2, column 5", "1e99"]),
    ("1 0:1\n-1 2:1\n", &["data, line 2, column 1", "-1"]),
    ("1 0:1\n1 -2:1\n", &["data, line 2, column 3", "-2:1"]),
    ("2 9 9\n1 0:1\n9 0:1\n", &["data, line 3, column 1", "9"]),
    ("2 9 9\n1 0:1\n1 9:1\n", &["data, line 3, column 3", "9"]),
    ("1 0:1\n1 3:1 4:1 3:2\n", &["data, line 2, column 11", "3:2"]),
    ("1 0:1\n1 word\n1 0:1\n", &["data, line 2, column 3", "`word`"]),
    ("9999999999999 9 9\n1 0:1\n", &["data, line 3"]),
    ("2 99999999999 9\n1 0:1\n1 0:1\n", &["data, line 1"]),
];

#[test]
fn bad_numbers_are_refused_with_their_place() {
    let folder = Folder::new();
    for (content, expected) in BAD_NUMBERS {
        folder.write("data", content);
        let message = folder.refuse("train data --model model");
        for part in expected {
            assert!(message.contains(part), "{content:?}: {message}");
        }
    }
}

#[test]
fn missing_and_unreadable_files_are_refused() {
    let folder = Folder::with_number_model();
    std::fs::create_dir(folder.path("a-folder")).unwrap();
    for path in ["nowhere.txt", "a-folder"] {
        for line in [
            format!("train {path} --model other"),
            format!("train made/train.txt --test {path} --model other"),
            format!("evaluate model {path}"),
            format!("predict model {path}"),
        ] {
            assert!(folder.refuse(&line).contains(path), "{line}");
        }
    }
    for line in ["evaluate nowhere made/test.txt", "predict nowhere made/test.txt", "inspect nowhere"] {
        assert!(folder.refuse(line).contains("nowhere"), "{line}");
    }
    for line in ["train", "train made/train.txt --epochs x", "fly"] {
        assert_eq!(folder.run(line).code, Some(2), "{line}");
    }
}

#[test]
fn a_line_of_a_hundred_megabytes_is_refused() {
    let folder = Folder::with_number_model();
    let mut long = b"2 300 80\n1 0:1\n".to_vec();
    long.resize(long.len() + 100_000_000, b'7');
    folder.write("long", &long);
    for line in ["train long --model other", "evaluate model long"] {
        let message = folder.refuse(line);
        assert!(message.contains("long, line 3"), "{message}");
    }
    // A stream has answered the first line by then.
    let done = folder.run("predict model long");
    assert_eq!(done.code, Some(2));
    assert!(done.errors.contains("long, line 3"), "{}", done.errors);
}

#[test]
fn files_cut_within_a_compressed_block_are_refused() {
    let folder = Folder::with_numbers();
    let plain = folder.read("made/train.txt");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&plain).unwrap();
    for whole in [gz.finish().unwrap(), zstd::encode_all(&plain[..], 1).unwrap()] {
        folder.write("cut", &whole[..whole.len() / 2]);
        let message = folder.refuse("train cut --model model");
        assert!(message.contains("cut, line "), "{message}");
        folder.write("cut", &whole);
        folder.succeed("train cut --epochs 1 --hidden 16");
    }
}

#[test]
fn bad_rows_can_be_left_out_and_are_counted() {
    let folder = Folder::with_number_model();
    folder.write("some", "1 0:1 1:1\nx 0:1\n2 3:1\n2 3:nan\n3 4:1\n");
    let done = folder.succeed("train some --skip-bad-rows --model other --epochs 1 --hidden 16");
    assert!(done.errors.contains("some: 2 bad rows left out"), "{}", done.errors);
    assert!(done.errors.contains("line 2, column 1") && done.errors.contains("line 4, column 5"));
    assert!(done.errors.contains("3 examples"), "{}", done.errors);
    let done = folder.succeed("evaluate model some --skip-bad-rows --json");
    assert_eq!(done.json()["examples"], 3);
    let done = folder.succeed("predict model some --skip-bad-rows");
    assert_eq!(done.out.lines().count(), 3);
    assert!(done.errors.contains("2 bad rows left out"));
}

#[test]
fn bad_rows_of_texts_can_be_left_out_too() {
    let folder = Folder::new();
    let mut texts = NAMES.as_bytes().to_vec();
    texts.extend(b"no labels here\nM\xfcnchen\tMunich\n");
    folder.write("some.tsv", &texts);
    let places =
        ["some.tsv: 2 bad rows left out", "some.tsv:LINE: found 1 column", "some.tsv:NEXT:2: byte 0xfc"];
    let line = NAMES.lines().count() + 1;
    let tells = |errors: &str| {
        let place =
            |text: &str| text.replace("LINE", &line.to_string()).replace("NEXT", &(line + 1).to_string());
        assert!(places.iter().all(|text| errors.contains(&place(text))), "{errors}");
    };
    folder.refuse("train some.tsv --model model");
    tells(&folder.succeed("train some.tsv --skip-bad-rows --model model --epochs 1 --hidden 16").errors);
    let done = folder.succeed("evaluate model some.tsv --skip-bad-rows --json");
    assert_eq!(done.json()["examples"], line - 1);
    tells(&done.errors);
    let done = folder.succeed("data split some.tsv --out parts --skip-bad-rows");
    tells(&done.errors);
    // No label is asked for here, so a text without one is none too few.
    let done = folder.succeed("predict model some.tsv --skip-bad-rows");
    assert_eq!(done.out.lines().count(), line);
    assert!(done.errors.contains("some.tsv: 1 bad row left out"), "{}", done.errors);
    folder.write("none.tsv", "\"a\"b\tx\n\"c\"d\ty\n");
    assert!(folder.refuse("train none.tsv --skip-bad-rows").contains("none.tsv:1:4"));
}

/// What is wrong with a text file, how it is read, and what the message must hold.
const BAD_TEXTS: [(&str, &str, &[&str]); 12] = [
    ("text\tlabels\na\tx\n", "--text-column name", &["data:1", "\"name\"", "text, labels"]),
    ("a\tx\nb\ty\n", "--labels-column 3", &["data:1", "found 2", "at least 3"]),
    ("a\tx\nb\n", "", &["data:2", "found 1 column"]),
    ("a,x\n\"b,y\nc,z\n", "", &["data:2:1", "quote"]),
    ("a,x\n\"b\"c,y\n", "", &["data:2:4", "'c'"]),
    (
        "{\"text\":\"a\",\"labels\":\"x\"}\n{\"text\":1,\"labels\":\"y\"}\n",
        "",
        &["data:2", "\"text\"", "string"],
    ),
    ("{\"text\":\"a\",\"labels\":\"x\"}\n{\"text\":\"b\"}\n", "", &["data:2", "\"labels\""]),
    ("{\"text\":\"a\",\"labels\":\"x\"}\n{oops\n", "", &["data:2:2", "JSON"]),
    ("a\tx\nb\tx\n", "", &["data", "\"x\" is the only label of its 2 examples"]),
    ("a\t\nb\t\n", "", &["data", "none of its 2 examples has a label"]),
    ("riddle\n", "", &["data:1", "\"riddle\""]),
    ("a\tx\nb\ty\n", "--hash-bits 40", &["hash_bits is 40"]),
];

#[test]
fn bad_texts_are_refused_with_their_place() {
    let folder = Folder::new();
    for (content, flags, expected) in BAD_TEXTS {
        folder.write("data", content);
        let message = folder.refuse(&format!("train data --min-documents 1 --model model {flags}"));
        for part in expected {
            assert!(message.contains(part), "{content:?}: {message}");
        }
    }
    folder.write("data", b"a\tx\nM\xfcnchen\ty\n");
    let message = folder.refuse("train data --model model");
    assert!(message.contains("data:2:2") && message.contains("0xfc"), "{message}");
    folder.write("data", "one\tx\ntwo\ty\n");
    assert!(folder.refuse("train data --min-documents 9 --model model").contains("--min-documents"));
}

#[test]
fn texts_of_which_nothing_is_known_are_told_with_their_line() {
    let folder = Folder::with_name_model();
    folder.write("odd.tsv", "Wien\tVienna\n\"\"\tPrague\nqqqq\tMunich\nPrag\tAtlantis|Prague\nPrag\n");
    assert!(folder.refuse("evaluate model odd.tsv").contains("odd.tsv:5"));
    folder.write("odd.tsv", "Wien\tVienna\n\"\"\tPrague\nqqqq\tMunich\nPrag\tAtlantis|Prague\n");
    let done = folder.succeed("evaluate model odd.tsv --json");
    assert!(done.errors.contains("texts are empty (the first on line 2)"), "{}", done.errors);
    assert!(done.errors.contains("no known feature") && done.errors.contains("line 3"), "{}", done.errors);
    assert!(done.errors.contains("never seen in training") && done.errors.contains("line 4"));
    let metrics = done.json();
    assert_eq!((&metrics["unknown-labels"], &metrics["examples"]), (&1.into(), &4.into()));

    let done = folder.run_with_input("predict model - --format jsonl", b"Wien\nqqqq\n\n");
    assert_eq!(done.code, Some(0));
    assert!(done.errors.contains("-:2: this text has no known feature"), "{}", done.errors);
    assert!(done.errors.contains("2 texts have no known feature"), "{}", done.errors);
    let answers: Vec<serde_json::Value> =
        done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers[0].get("prior"), None);
    assert_eq!((&answers[1]["prior"], &answers[2]["prior"]), (&true.into(), &true.into()));
    assert_eq!(answers[1], answers[2]);

    // A label nobody has seen is welcome in training.
    folder.succeed("train odd.tsv --model other --epochs 1 --hidden 16 --min-documents 1");
}

#[test]
fn settings_that_mean_nothing_are_refused_before_data_is_read() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("a-folder")).unwrap();
    folder.write("bad.toml", "epocs = 3\n");
    folder.write("worse.toml", "[text]\nwords = \"a-b\"\n");
    for (flags, expected) in [
        ("--lr 0", "lr is 0"),
        ("--lr -1", "lr is -1"),
        ("--epochs 0", "epochs is 0"),
        ("--hidden 0", "hidden is [0]"),
        ("--budget 0", "budget is 0"),
        ("--sparsity 2", "sparsity is 2"),
        ("--k 0", "k is 0"),
        ("--preset papper", "papper"),
        ("--loss nce --sampler lsh-label", "nce"),
        ("--loss nce --sampler full", "nce"),
        ("--tables 0", "L = 0"),
        ("--refresh-growth 0.5", "refresh-growth is 0.5"),
        ("--hashed-share 2", "2"),
        ("--sparse-lr 0", "sparse.rate is 0"),
        ("--sparse-negatives 0", "sparse.negatives is 0"),
        ("--clip 0", "clip is 0"),
        ("--test nowhere.txt", "nowhere.txt"),
        ("--valid a-folder", "a-folder: it is a folder"),
        ("--resume --checkpoint steps --lr 0", "lr is 0"),
        ("--config bad.toml", "bad.toml"),
        ("--config worse.toml", "worse.toml"),
        ("--config absent.toml", "absent.toml"),
    ] {
        let message = folder.refuse(&format!("train unread.txt --model model {flags}"));
        assert!(message.contains(expected) && !message.contains("unread"), "{flags}: {message}");
    }
    for flags in [
        "--time-limit=-1",
        "--time-limit long",
        "--epochs -1",
        "--eval-epochs 0",
        "--eval-iterations 0",
        "--valid made/test.txt --patience 0",
        "--checkpoint steps --keep 0",
        "--checkpoint steps --checkpoint-every 0s",
        "--from model --rehearse 2",
        "--from model --rehearse=-0.1",
        "--from model --rehearse nan",
    ] {
        let done = folder.run(&format!("train unread.txt --model model {flags}"));
        let flag = flags.rsplit("--").next().unwrap().split([' ', '=']).next().unwrap();
        assert_eq!(done.code, Some(2), "{flags}: {}", done.errors);
        assert!(done.errors.contains(&format!("'--{flag} <")), "{flags}: {}", done.errors);
    }
}

#[test]
fn experiments_refuse_bad_settings_before_data_is_read() {
    let folder = Folder::new();
    for command in ["compare", "sweep --vary budget=3", "adapt"] {
        let message =
            folder.refuse(&format!("{command} --train unread.txt --test unread.txt --out out --lr 0"));
        assert!(message.contains("lr is 0") && !message.contains("unread"), "{command}: {message}");
    }
    for (flags, expected) in
        [("--eval-every 0", "--eval-every is 0"), ("--time-limit 0", "--time-limit is 0")]
    {
        let message =
            folder.refuse(&format!("compare --train unread.txt --test unread.txt --out out {flags}"));
        assert!(message.contains(expected) && !message.contains("unread"), "{flags}: {message}");
    }
    assert!(!folder.path("out").exists());
}

/// What a model can't be asked for is known when it is read.
#[test]
fn settings_that_do_not_fit_a_model_are_refused_before_data_is_read() {
    let folder = Folder::with_number_model();
    folder.succeed("train made/train.txt --model dense --sparse false --epochs 1 --hidden 16 -q");
    for (flags, expected) in [
        ("--model model --resume --lr 0", "lr is 0"),
        ("--model model --resume --hidden 8", "hidden is [8]"),
        ("--model model --resume --sparse false", "sparse is false"),
        ("--model larger --from model --epochs 0", "epochs is 0"),
        ("--model larger --from model --hidden 8", "hidden is [8]"),
        ("--model larger --from model --storage bf16", "storage is bf16"),
        ("--model larger --from model --rehearse-from nowhere.txt", "nowhere.txt"),
        ("--model larger --from dense --rehearse 0.5", "--rehearse-from"),
    ] {
        let message = folder.refuse(&format!("train unread.txt {flags}"));
        assert!(message.contains(expected) && !message.contains("unread"), "{flags}: {message}");
    }
}
