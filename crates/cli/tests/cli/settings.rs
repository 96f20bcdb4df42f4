//! Every flag of a setting arrives at that setting, and nowhere else.

use std::collections::BTreeMap;

use toml::Value;

use crate::support::Folder;

/// A flag, and the settings it changes with their new values.
const FLAGS: [(&str, &[(&str, &str)]); 46] = [
    ("--sampler lsh-label", &[("sampler", "'lsh-label'")]),
    ("--sampler nce", &[("sampler", "'log-uniform'"), ("loss", "'nce'")]),
    ("--budget 12", &[("budget", "12")]),
    ("--sparsity 0.125", &[("sparsity", "0.125")]),
    ("--log-q false", &[("log-q", "false")]),
    ("--sampler uniform --loss nce", &[("sampler", "'uniform'"), ("loss", "'nce'")]),
    ("--hashed-share 0.25", &[("mixed.hashed-share", "0.25")]),
    ("--hashed-query label", &[("mixed.query", "'label'")]),
    ("--epochs 17", &[("epochs", "17")]),
    ("--labels-counted 3", &[("labels-counted", "3")]),
    ("--batch 48", &[("batch", "48")]),
    ("--hidden 24,16", &[("hidden", "[24, 16]")]),
    ("--activation relu", &[("activation", "'relu'")]),
    ("--normalise none", &[("normalise", "'none'")]),
    ("--input-scale 0.75", &[("init.input-scale", "0.75")]),
    ("--output-scale 0.25", &[("init.output-scale", "0.25")]),
    ("--class-start random", &[("class-start", "'random'")]),
    ("--storage bf16", &[("storage", "'bf16'")]),
    ("--lr 0.5", &[("lr", "0.5")]),
    ("--lr-schedule cosine", &[("lr-schedule", "'cosine'")]),
    ("--warmup 9", &[("warmup", "9")]),
    ("--adam exact", &[("adam.decay", "'exact'")]),
    ("--seed 5", &[("seed", "5")]),
    ("--hash simhash", &[("lsh.family", "'simhash'")]),
    ("--functions 3", &[("lsh.k", "3")]),
    ("--tables 31", &[("lsh.l", "31")]),
    ("--bin 4", &[("lsh.bin", "4")]),
    ("--codes overlapped", &[("lsh.codes", "'overlapped'")]),
    ("--refresh 7", &[("lsh.refresh-first", "7")]),
    ("--refresh-growth 1.5", &[("lsh.refresh-growth", "1.5")]),
    ("--incremental always", &[("lsh.incremental", "'always'")]),
    ("--walk paper", &[("lsh.walk", "'paper'")]),
    ("--centre true", &[("lsh.centre", "true")]),
    ("--fill", &[("lsh.fill", "true")]),
    ("--sparse-epochs 6", &[("sparse.epochs", "6")]),
    ("--sparse-lr 0.5", &[("sparse.rate", "0.5")]),
    ("--sparse-negatives 33", &[("sparse.negatives", "33")]),
    ("--neighbours false", &[("sparse.neighbours", "false")]),
    ("--words none", &[("text.words", "'none'")]),
    ("--word-length 3", &[("text.word-length", "3")]),
    ("--characters 3-5", &[("text.characters", "'3-5'")]),
    ("--sublinear false", &[("text.sublinear", "false")]),
    ("--min-documents 4", &[("text.min-documents", "4")]),
    ("--max-features 99", &[("text.max-features", "99")]),
    ("--hash-bits 12", &[("text.hash-bits", "12")]),
    ("--table-limit 500", &[("text.table-limit", "500")]),
];

/// The printed settings by their names, dots between tables and keys.
fn settings(folder: &Folder, flags: &str) -> BTreeMap<String, Value> {
    fn flatten(prefix: &str, table: toml::Table, into: &mut BTreeMap<String, Value>) {
        for (key, value) in table {
            match value {
                Value::Table(table) => flatten(&format!("{prefix}{key}."), table, into),
                value => _ = into.insert(format!("{prefix}{key}"), value),
            }
        }
    }
    let line = format!("train x --preset plain --print-config {flags}");
    let printed: toml::Table = folder.succeed(&line).out.parse().unwrap();
    let mut settings = BTreeMap::new();
    flatten("", printed, &mut settings);
    settings
}

#[test]
fn every_flag_changes_its_setting_and_no_other() {
    let folder = Folder::new();
    let with_sparse_part = |flags: &str| settings(&folder, &format!("--sparse true {flags}"));
    let defaults = with_sparse_part("");
    for (flags, changes) in FLAGS {
        let mut expected = defaults.clone();
        for (name, value) in changes {
            let value: toml::Table = format!("it = {value}").parse().unwrap();
            expected.insert((*name).into(), value["it"].clone());
        }
        assert_ne!(expected, defaults, "{flags} would show nothing");
        assert_eq!(with_sparse_part(flags), expected, "{flags}");
    }
    let without = settings(&folder, "--sparse false");
    let expected = defaults.into_iter().filter(|(name, _)| !name.starts_with("sparse."));
    assert_eq!(without, expected.collect());
}
