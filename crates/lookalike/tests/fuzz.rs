//! Mutated files: every reader gives an error or a value that obeys its law, and never
//! panics, hangs or reserves memory without end.
//!
//! Valid files of every format (tests/fixtures is the corpus) are changed at random, by
//! numbers that a seed names: bits, bytes, numbers, cuts, pieces moved about or taken
//! from other files. Half of the time checksums are then repaired, to get behind them.
//! `LOOKALIKE_FUZZ=1000000 cargo test --release -p lookalike --test fuzz` runs so many
//! mutations of each kind, `LOOKALIKE_FUZZ_SEED` others; by default there are few. Files
//! are written where `TMPDIR` says: in memory it is ten times as fast.

use std::fs;
use std::path::{Path, PathBuf};

use lookalike::artifact;
use lookalike::data::{Packed, ReadOptions, packed, xc};
use lookalike::model::SearchIndex;
use lookalike::random::{Stream, mix};
use lookalike::text::{self, LabelNames, TextDataset, TextFile, TextOptions, TextPipeline, Vectoriser};
use lookalike::train::{Checkpoint, SparseConfig, TrainConfig, Trainer};
use lookalike_kernels::Cpu;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Mutations of each kind of file.
fn count() -> u64 {
    std::env::var("LOOKALIKE_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(3000)
}

/// Where runs differ.
fn seed() -> u64 {
    std::env::var("LOOKALIKE_FUZZ_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// No reader may need more, whatever a file says: it is a hundred times the largest one.
fn limit_memory() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let most = Some(6u64 << 30);
        setrlimit(Resource::As, Rlimit { current: most, maximum: most }).unwrap();
    }
}

/// Random numbers of one mutation.
struct Chance {
    run: u64,
    drawn: u64,
}

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.drawn += 1;
        (mix(seed(), Stream::Data, self.run, self.drawn) % limit.max(1) as u64) as usize
    }
}

/// Words that formats are afraid of.
const WORDS: [&[u8]; 16] = [
    b"4294967295",
    b"18446744073709551615",
    b"-1",
    b"nan",
    b"1e999",
    b"\n\n\n\n",
    b"\0",
    b"\xff\xfe",
    b"\"",
    b"{",
    b"[[[[[[[[",
    b":",
    b",",
    b"\t",
    b"0",
    b"\\u0000",
];

fn mutate(good: &[u8], other: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..1 + chance.below(4) {
        let at = chance.below(bytes.len());
        let end = (at + 1 + chance.below(16)).min(bytes.len());
        match chance.below(9) {
            0 | 1 if !bytes.is_empty() => bytes[at] ^= 1 << chance.below(8),
            2 if !bytes.is_empty() => bytes[at] = [0, 0xff, 0x7f, 0x80, b'9'][chance.below(5)],
            3 => bytes.truncate(at),
            4 => bytes.splice(at..at, WORDS[chance.below(16)].iter().copied()).for_each(drop),
            5 => drop(bytes.drain(at.min(end)..end)),
            6 => bytes.extend_from_within(at.min(end)..end),
            7 if bytes.len() >= 8 => {
                let at = at.min(bytes.len() - 8) / 8 * 8;
                let words = [0, 1, u64::MAX, 1 << 63, 1 << 32, 1 << 20, u64::MAX / 8, 255];
                bytes[at..at + 8].copy_from_slice(&words[chance.below(8)].to_le_bytes());
            }
            _ => {
                let from = chance.below(other.len());
                let to = (from + chance.below(64)).min(other.len());
                bytes.splice(at..at, other[from.min(to)..to].iter().copied()).for_each(drop);
            }
        }
    }
    bytes
}

/// Runs a reader on mutations of files; says how many it took for good.
fn fuzz(name: &str, corpus: &[Vec<u8>], mut read: impl FnMut(&[u8], &mut Chance, usize) -> bool) {
    limit_memory();
    // The work of a mutation is too little to be handed to another thread.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
    pool.expect("a test has a thread of its own");
    let stream = crc32fast::hash(name.as_bytes());
    let mut accepted = 0u64;
    for run in 0..count() {
        let mut chance = Chance { run: run ^ (u64::from(stream) << 32), drawn: 0 };
        let which = chance.below(corpus.len());
        let other = chance.below(corpus.len());
        let bytes = mutate(&corpus[which], &corpus[other], &mut chance);
        accepted += u64::from(read(&bytes, &mut chance, which));
    }
    println!("{name}: {} mutations, {accepted} of them readable", count());
}

#[test]
fn packed_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.lkp");
    let good = fs::read(fixtures().join("data/numbers-test.v1.lkp")).unwrap();
    fs::write(&path, &good).unwrap();
    let expected = Packed::open(&path).unwrap().view().feature_values.to_vec();
    fuzz("packed", std::slice::from_ref(&good), |bytes, chance, _| {
        let mut bytes = bytes.to_vec();
        let repaired = chance.below(2) == 0 && repair_packed(&mut bytes);
        fs::write(&path, &bytes).unwrap();
        match Packed::open(&path) {
            Ok(packed) if repaired => packed.view().check_law().is_ok() && packed.verify().is_ok(),
            Ok(packed) => packed.view().feature_values == expected,
            Err(_) => true,
        }
        .then_some(())
        .expect("a damaged file was believed");
        bytes == good
    });
}

/// Makes the checksums of a packed file those of what is in it, as far as there is something.
fn repair_packed(bytes: &mut [u8]) -> bool {
    if bytes.len() < 128 {
        return false;
    }
    let word = |bytes: &[u8], i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().unwrap());
    let counts = [2, 3, 3, 2, 4].map(|i| word(bytes, i));
    let sizes = [8, 4, 4, 8, 4];
    let mut at = 128u64;
    for (i, (count, size)) in counts.into_iter().zip(sizes).enumerate() {
        let count = if size == 8 { count.saturating_add(1) } else { count };
        let end = at.saturating_add(count.saturating_mul(size));
        if end > bytes.len() as u64 {
            break;
        }
        let checksum = u64::from(crc32fast::hash(&bytes[at as usize..end as usize]));
        bytes[56 + i * 8..64 + i * 8].copy_from_slice(&checksum.to_le_bytes());
        at = end.next_multiple_of(64);
    }
    bytes[..8].copy_from_slice(packed::MAGIC);
    let checksum = u64::from(crc32fast::hash(&bytes[..120]));
    bytes[120..128].copy_from_slice(&checksum.to_le_bytes());
    true
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// A model or checkpoint, one file of which is changed.
fn fuzz_directory(name: &str, models: &[&str], files: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let places: Vec<(PathBuf, &str)> = models
        .iter()
        .flat_map(|model| files.iter().map(move |file| (root.join(model), *file)))
        .filter(|(directory, file)| {
            if directory.ends_with(COMPLETE) {
                save_complete(directory);
            } else if !directory.exists() {
                copy_folder(
                    &fixtures().join("models").join(directory.file_name().unwrap()).join("model"),
                    directory,
                );
                resave(directory);
            }
            directory.join(file).exists()
        })
        .collect();
    let corpus: Vec<Vec<u8>> =
        places.iter().map(|(directory, file)| fs::read(directory.join(file)).unwrap()).collect();
    fuzz(name, &corpus, |bytes, chance, which| {
        let (directory, file) = &places[which];
        let path = directory.join(file);
        fs::write(&path, bytes).unwrap();
        let config = directory.join("config.json");
        let old = fs::read(&config).unwrap();
        if chance.below(2) == 0 {
            repair_config(&config, file, bytes);
        }
        let model = artifact::load(directory);
        let checkpoint = artifact::load_checkpoint(directory);
        let is_readable = model.is_ok() || checkpoint.is_ok();
        if let Ok(Checkpoint { model, state }) = checkpoint {
            // What was believed can be used.
            assert!(model.network.output.bias.iter().all(|x| x.is_finite()));
            assert!(state.held_out.is_none_or(|held_out| held_out.is_sorted()));
        }
        fs::write(&config, &old).unwrap();
        fs::write(&path, &corpus[which]).unwrap();
        is_readable
    });
}

/// Writes a model of an earlier version as this one does: half of the corpus.
fn resave(directory: &Path) {
    if directory.to_string_lossy().contains("v4")
        && let Ok(Checkpoint { model, state }) = artifact::load_checkpoint(directory)
    {
        artifact::save_checkpoint(directory, &model, &state).unwrap();
    }
}

/// Not among the fixtures: see below.
const COMPLETE: &str = "complete";

/// A checkpoint of this version with all that a directory can hold: text, sparse weights,
/// nearest examples, tables of the last refresh, calibration, search index.
fn save_complete(directory: &Path) {
    let texts: String = (0..300).map(|i| format!("w{} all\tc{}\n", i % 6, i % 4)).collect();
    let file = TextFile::from_bytes("m", texts.as_bytes(), &text::ReadOptions::default()).unwrap();
    let options = TextOptions { characters: None, ..TextOptions::default() };
    let TextDataset { dataset, vectoriser, names, .. } = text::fit_dataset(&file, &options).unwrap();
    let config = TrainConfig {
        batch: 64,
        hidden: vec![2],
        budget: Some(2),
        sparse: Some(SparseConfig::default()),
        calibrate: true,
        ..TrainConfig::default()
    };
    let mut trainer = Trainer::new(config, dataset.view(), Cpu::detect()).unwrap();
    (0..7).for_each(|_| _ = trainer.step().unwrap());
    trainer.settle();
    let Checkpoint { mut model, state } = trainer.into_checkpoint();
    model.search = Some(SearchIndex::build(Cpu::detect(), &model));
    model.text = Some(TextPipeline { vectoriser, names });
    assert!(model.calibration.is_some() && state.refresh.is_some());
    artifact::save_checkpoint(directory, &model, &state).unwrap();
}

/// Makes checksums those of what is there: of one file, and of the settings themselves.
fn repair_config(config: &Path, file: &str, bytes: &[u8]) {
    let text = fs::read(config).unwrap();
    let Ok(mut value) = serde_json::from_slice::<serde_json::Value>(&text) else { return };
    let Some(object) = value.as_object_mut() else { return };
    for entry in object.get_mut("files").and_then(|files| files.as_array_mut()).into_iter().flatten() {
        if entry.get("name").is_some_and(|name| name == file) {
            entry["bytes"] = bytes.len().into();
            entry["crc32"] = crc32fast::hash(bytes).into();
        }
    }
    if object.contains_key("checksum") {
        object.insert("checksum".into(), "00000000".into());
    }
    let text = serde_json::to_string_pretty(&value).unwrap();
    let checksum = format!("\"checksum\": \"{:08x}\"", crc32fast::hash(text.as_bytes()));
    fs::write(config, text.replacen("\"checksum\": \"00000000\"", &checksum, 1)).unwrap();
}

const MODELS: [&str; 6] =
    ["v1-two-layers", "v2-centroid", "v3-bf16", "v4-centroid", "v4-within-epoch", COMPLETE];

#[test]
fn settings() {
    fuzz_directory("config.json", &MODELS, &["config.json"]);
}

#[test]
fn tensors() {
    fuzz_directory("tensors", &MODELS, &["model.safetensors", "training.safetensors"]);
}

#[test]
fn text_parts_of_models() {
    let files = ["vectoriser.json", "vocabulary.txt", "labels.txt"];
    fuzz_directory("text parts", &["v1-text-hashed", "v4-text", COMPLETE], &files);
}

#[test]
fn vocabularies_and_names_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("m");
    copy_folder(&fixtures().join("models/v4-text/model"), &directory);
    let files = ["vocabulary.txt", "labels.txt"];
    let corpus = files.map(|file| fs::read(directory.join(file)).unwrap());
    let header = fs::read_to_string(directory.join("vectoriser.json")).unwrap();
    let checksum = crc32fast::hash(&corpus[0]).to_string();
    assert!(header.contains(&checksum));
    fuzz("vocabulary and names", &corpus.clone(), |bytes, _, which| {
        fs::write(directory.join(files[which]), bytes).unwrap();
        if which == 0 {
            let header = header.replace(&checksum, &crc32fast::hash(bytes).to_string());
            fs::write(directory.join("vectoriser.json"), header).unwrap();
            Vectoriser::load(&directory).is_ok()
        } else {
            LabelNames::load(&directory).is_ok_and(|names| names.iter().count() == names.len())
        }
    });
}

#[test]
fn rows_of_numbers() {
    let texts = ["numbers-train.txt", "numbers-test.txt"]
        .map(|name| fs::read(fixtures().join("data").join(name)).unwrap());
    fuzz("rows of numbers", &texts, |bytes, chance, _| {
        let options = ReadOptions {
            skip_bad_rows: chance.below(2) == 0,
            num_features: (chance.below(3) == 0).then_some(50),
            num_classes: (chance.below(3) == 0).then_some(5),
        };
        match xc::parse("m", bytes, &options) {
            Ok((data, _)) => {
                assert_eq!(data.view().check_law(), Ok(()));
                true
            }
            Err(_) => false,
        }
    });
}

#[test]
fn texts() {
    let jsonl = fs::read(fixtures().join("data/texts-train.jsonl")).unwrap();
    let corpus = [
        jsonl,
        b"text\tlabels\nWien an der Donau\tVienna|Austria\n\"a \"\"b\"\"\"\tx\n".to_vec(),
        b"text,label\n\"one, two\",x\nthree,y\n".to_vec(),
        b"__label__a some text\n__label__b __label__c other text\n".to_vec(),
    ];
    fuzz("texts", &corpus, |bytes, _, _| {
        let Ok(file) = TextFile::from_bytes("m", bytes, &text::ReadOptions::default()) else { return false };
        let options = TextOptions { min_documents: 1, ..TextOptions::default() };
        match text::fit_dataset(&file, &options) {
            Ok(fitted) => {
                assert_eq!(fitted.dataset.view().check_law(), Ok(()));
                true
            }
            Err(_) => false,
        }
    });
}

#[test]
fn matrices() {
    let folder = tempfile::tempdir().unwrap();
    let (matrix, labels) = (folder.path().join("m.npy"), folder.path().join("labels.txt"));
    let data = fixtures().join("data");
    fs::copy(data.join("embeddings-labels.txt"), &labels).unwrap();
    let corpus = [fs::read(data.join("embeddings-train.npy")).unwrap()];
    fuzz("matrices", &corpus, |bytes, _, _| {
        fs::write(&matrix, bytes).unwrap();
        text::dense_dataset(&matrix, &labels, "|").is_ok_and(|(data, ..)| {
            assert_eq!(data.view().check_law(), Ok(()));
            true
        })
    });
}

#[test]
fn compressed_files() {
    let text = fs::read(fixtures().join("data/numbers-test.txt")).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &text).unwrap();
    let corpus = [gzip.finish().unwrap(), zstd::encode_all(&text[..], 1).unwrap()];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    fuzz("compressed", &corpus, |bytes, _, _| {
        fs::write(&path, bytes).unwrap();
        lookalike::data::Source::load(&path, &ReadOptions::default()).is_ok()
    });
}
