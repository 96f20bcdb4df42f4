//! Files of examples, written and read back in every form, whole and damaged.

use std::io::Write;
use std::path::PathBuf;

use lookalike::data::packed::to_packed;
use lookalike::data::synth::{SynthOptions, synth};
use lookalike::data::write::to_text;
use lookalike::data::{Blocks, DataError, Dataset, Packed, ReadOptions, Source, write_packed, write_text};
use proptest::prelude::*;

const FEATURES: usize = 50;
const CLASSES: usize = 30;

fn any_finite() -> impl Strategy<Value = f32> {
    prop_oneof![
        any::<u32>().prop_map(f32::from_bits).prop_filter("finite", |value| value.is_finite()),
        (0u32..100_000).prop_map(|n| n as f32 / 10_000.0),
    ]
}

/// Any lawful data set, with rows of every shape.
fn any_dataset() -> impl Strategy<Value = Dataset> {
    let features = prop::collection::btree_map(0..FEATURES as u32, any_finite(), 0..8);
    let labels = prop::collection::btree_set(0..CLASSES as u32, 0..5);
    prop::collection::vec((features, labels), 0..40).prop_map(|rows| {
        let mut data = Dataset::empty(FEATURES, CLASSES);
        for (features, labels) in rows {
            data.push(features, &labels.into_iter().collect::<Vec<_>>());
        }
        data
    })
}

fn text_of(data: &Dataset) -> Vec<u8> {
    let mut out = Vec::new();
    to_text(data.view(), &mut out).unwrap();
    out
}

fn packed_of(data: &Dataset) -> Vec<u8> {
    let mut out = Vec::new();
    to_packed(data.view(), &mut out).unwrap();
    out
}

fn gzip_of(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd_of(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// A file that lives as long as its folder.
struct OnDisk {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn on_disk(bytes: &[u8]) -> OnDisk {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    OnDisk { _folder: folder, path }
}

fn load(bytes: &[u8]) -> Result<Dataset, DataError> {
    let file = on_disk(bytes);
    let (source, report) = Source::load(&file.path, &ReadOptions::default())?;
    assert_eq!(report.bad_rows, 0);
    let view = source.view();
    Ok(Dataset::select(view, &(0..view.len()).collect::<Vec<_>>()))
}

/// Equality to the last bit: `==` would let -0 pass for 0.
fn same(a: &Dataset, b: &Dataset) -> bool {
    let bits = |d: &Dataset| d.feature_values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    a == b && bits(a) == bits(b)
}

proptest! {
    #[test]
    fn every_form_reads_back_to_the_last_bit(data in any_dataset()) {
        let text = text_of(&data);
        let crlf = String::from_utf8(text.clone()).unwrap().replace('\n', "\r\n").into_bytes();
        let forms = [gzip_of(&text), zstd_of(&text), crlf, packed_of(&data), text];
        for (i, form) in forms.iter().enumerate() {
            prop_assert!(same(&load(form).unwrap(), &data), "form {}", i);
        }
    }

    #[test]
    fn blocks_read_back_what_was_written(data in any_dataset()) {
        let file = on_disk(&zstd_of(&text_of(&data)));
        let blocks: Vec<Dataset> = Blocks::open(&file.path, &ReadOptions::default())
            .unwrap()
            .map(|block| block.unwrap().0)
            .collect();
        prop_assert!(same(&Dataset::concat(&blocks), &data));
    }
}

/// One change to a file: a byte set, a stretch removed or put in, or a cut.
#[derive(Clone, Debug)]
enum Damage {
    Set(usize, u8),
    Flip(usize, u8),
    Remove(usize, usize),
    Insert(usize, Vec<u8>),
    Cut(usize),
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        match self {
            Self::Set(at, value) => bytes[at % length] = *value,
            Self::Flip(at, bit) => bytes[at % length] ^= 1 << (bit % 8),
            Self::Remove(at, count) => drop(bytes.drain(at % length..(at % length + count).min(length))),
            Self::Insert(at, new) => drop(bytes.splice(at % length..at % length, new.iter().copied())),
            Self::Cut(at) => bytes.truncate(at % length),
        }
    }
}

fn any_damage() -> impl Strategy<Value = Vec<Damage>> {
    // Bytes that mean something in one of the formats come more often.
    let byte = || prop_oneof![any::<u8>(), prop::sample::select(b" ,:.-\n\r0123456789eE\0\xFF".to_vec())];
    // Headers are short, so small positions come more often too.
    let at = || prop_oneof![any::<usize>(), 0usize..200];
    let one = prop_oneof![
        (at(), byte()).prop_map(|(at, value)| Damage::Set(at, value)),
        (at(), any::<u8>()).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (at(), 0usize..40).prop_map(|(at, count)| Damage::Remove(at, count)),
        (at(), prop::collection::vec(byte(), 0..20)).prop_map(|(at, new)| Damage::Insert(at, new)),
        at().prop_map(Damage::Cut),
    ];
    prop::collection::vec(one, 1..4)
}

fn sample() -> Dataset {
    let shape = SynthOptions {
        classes: 40,
        features: 200,
        train: 30,
        test: 0,
        features_per_example: 6.0,
        ..Default::default()
    };
    synth(&shape).unwrap().0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn damage_gives_an_error_or_lawful_examples(damage in any_damage(), skip_bad_rows: bool) {
        let data = sample();
        let text = text_of(&data);
        for original in [&text, &packed_of(&data), &gzip_of(&text), &zstd_of(&text)] {
            let mut bytes = original.clone();
            damage.iter().for_each(|d| d.apply(&mut bytes));
            let file = on_disk(&bytes);
            let options = ReadOptions { skip_bad_rows, ..Default::default() };
            match Source::load(&file.path, &options) {
                Ok((source, _)) => prop_assert_eq!(source.view().check_law(), Ok(())),
                Err(error) => {
                    let message = error.to_string();
                    prop_assert!(message.starts_with(&file.path.display().to_string()), "{}", message);
                }
            }
            for (data, _) in Blocks::open(&file.path, &options).unwrap().flatten() {
                prop_assert_eq!(data.view().check_law(), Ok(()));
            }
        }
    }

    #[test]
    fn no_damage_of_a_packed_file_escapes_its_checksums(damage in any_damage()) {
        let original = packed_of(&sample());
        let mut bytes = original.clone();
        damage.iter().for_each(|d| d.apply(&mut bytes));
        let file = on_disk(&bytes);
        if let Ok(packed) = Packed::open(&file.path) {
            // What no checksum covers, the zeroes between sections, has no meaning.
            let original = on_disk(&original);
            let original = Packed::open(&original.path).unwrap();
            let equal = format!("{:?}", packed.view()) == format!("{:?}", original.view());
            prop_assert_eq!(packed.verify().is_ok(), equal);
        }
    }
}

#[test]
fn files_written_to_disk_are_what_the_library_reads() {
    let data = sample();
    let folder = tempfile::tempdir().unwrap();
    let (text, packed) = (folder.path().join("a.txt"), folder.path().join("a.lkp"));
    write_text(&text, data.view()).unwrap();
    write_packed(&packed, data.view()).unwrap();
    for path in [text, packed] {
        let (source, _) = Source::load(&path, &ReadOptions::default()).unwrap();
        assert_eq!(format!("{:?}", source.view()), format!("{:?}", data.view()));
    }
}
