//! The vectoriser on disk, for machines to check and people to read.
//!
//! `vectoriser.json` has the options and the numbers that the other file must
//! agree with. `vocabulary.txt` has a line a feature, in the order of ids: in how
//! many texts it occurs, a tab, `w` or `c`, a tab, the words or characters. With
//! the hashing trick a line is the number of texts alone. The idf values are
//! computed again on loading, so what is loaded is what was saved, bit by bit.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::interner::{Interner, Keyed};
use super::pipeline::ReadFile;
use super::tokens::WORD_MARK;
use super::vectoriser::Vectoriser;
use super::{Feature, TextError, TextOptions};
use crate::disk;

const HEADER_FILE: &str = "vectoriser.json";
const VOCABULARY_FILE: &str = "vocabulary.txt";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    version: u32,
    documents: u64,
    features: usize,
    /// CRC-32 of the vocabulary file.
    vocabulary_crc32: u32,
    options: TextOptions,
}

impl Vectoriser {
    /// Writes the vectoriser into a directory.
    pub fn save(&self, directory: &Path) -> Result<(), TextError> {
        let path = directory.join(VOCABULARY_FILE);
        let crc = self.save_vocabulary(&path).map_err(|e| TextError::io(path.to_string_lossy(), e))?;
        let header = Header {
            version: VERSION,
            documents: self.documents,
            features: self.num_features(),
            vocabulary_crc32: crc,
            options: self.options.clone(),
        };
        let path = directory.join(HEADER_FILE);
        let json = serde_json::to_string_pretty(&header).map_err(std::io::Error::from);
        json.and_then(|json| disk::write(&path, (json + "\n").as_bytes()))
            .map_err(|e| TextError::io(path.to_string_lossy(), e))
    }

    fn save_vocabulary(&self, path: &Path) -> std::io::Result<u32> {
        let file = disk::create(path)?;
        let mut out = Summed { inner: disk::Writer::new(&file, path), crc: crc32fast::Hasher::new() };
        let mut lines = BufWriter::with_capacity(1 << 20, &mut out);
        for (count, id) in self.document_counts.iter().zip(0..) {
            match self.feature(id) {
                Some(Feature::Words(words)) => writeln!(lines, "{count}\tw\t{words}")?,
                Some(Feature::Characters(text)) => writeln!(lines, "{count}\tc\t{text}")?,
                _ => writeln!(lines, "{count}")?,
            }
        }
        lines.flush()?;
        drop(lines);
        Ok(out.crc.finalize())
    }

    /// Reads what [`Self::save`] wrote, and checks it.
    pub fn load(directory: &Path) -> Result<Self, TextError> {
        Self::load_by(directory, &|path| fs::read(path))
    }

    pub(crate) fn load_by(directory: &Path, read_file: ReadFile<'_>) -> Result<Self, TextError> {
        let path = directory.join(HEADER_FILE);
        let json = read(&path, read_file)?;
        let header: Header =
            serde_json::from_str(&json).map_err(|e| TextError::corrupted(&path, e.line(), e.to_string()))?;
        if header.version != VERSION {
            return Err(TextError::corrupted(
                &path,
                0,
                format!("version {} found, version {VERSION} expected", header.version),
            ));
        }
        header.options.check()?;
        let path = directory.join(VOCABULARY_FILE);
        let content = read(&path, read_file)?;
        if crc32fast::hash(content.as_bytes()) != header.vocabulary_crc32 {
            return Err(TextError::corrupted(&path, 0, "the checksum is wrong"));
        }
        load_vocabulary(&path, &content, header)
    }
}

fn read(path: &Path, read_file: ReadFile<'_>) -> Result<String, TextError> {
    let bytes = read_file(path).map_err(|e| TextError::io(path.to_string_lossy(), e))?;
    String::from_utf8(bytes).map_err(|_| TextError::corrupted(path, 0, "not UTF-8"))
}

fn load_vocabulary(path: &Path, content: &str, header: Header) -> Result<Vectoriser, TextError> {
    let hashed = header.options.hash_bits;
    let mut vocabulary = Interner::default();
    let mut counts = Vec::new();
    for (content, line) in content.split_terminator('\n').zip(1..) {
        let wrong = |found: &str| TextError::corrupted(path, line, found);
        let (count, ngram) = match content.split_once('\t') {
            Some((count, ngram)) if hashed.is_none() => (count, Some(ngram)),
            None if hashed.is_some() => (content, None),
            _ => return Err(wrong("wrong number of columns")),
        };
        let count: u32 = count.parse().map_err(|_| wrong("the count is not a number"))?;
        if u64::from(count) > header.documents {
            return Err(wrong("a count beyond the number of texts"));
        }
        counts.push(count);
        if let Some(ngram) = ngram {
            let ngram = stored_ngram(ngram).ok_or_else(|| wrong("neither words nor characters"))?;
            // In the order of code points at first; those of later texts stand behind.
            if !vocabulary.insert(Keyed::new(&ngram)).1 {
                return Err(wrong("an n-gram stands here a second time"));
            }
        }
    }
    let expected = hashed.map_or(header.features, |bits| 1 << bits);
    if counts.len() != header.features || counts.len() != expected {
        let found = format!("{} lines found, {expected} expected", counts.len());
        return Err(TextError::corrupted(path, counts.len(), found));
    }
    Ok(Vectoriser::new(header.options, vocabulary, header.documents, counts))
}

/// The bytes of an n-gram as the vocabulary keeps them.
fn stored_ngram(column: &str) -> Option<Vec<u8>> {
    match column.split_once('\t')? {
        ("w", words) => {
            let marked = words.split(' ').flat_map(|word| [&[WORD_MARK][..], word.as_bytes()]);
            Some(marked.collect::<Vec<_>>().concat())
        }
        ("c", characters) if !characters.starts_with(char::from(WORD_MARK)) => {
            Some(characters.as_bytes().to_vec())
        }
        _ => None,
    }
}

/// Passes bytes on and sums them.
struct Summed<W> {
    inner: W,
    crc: crc32fast::Hasher,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.crc.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::{ReadOptions, Scratch, Sizes, TextFile, fit_dataset};

    fn fitted(hash_bits: Option<u32>) -> Vectoriser {
        let content = "München an der Isar\tx\nMünster Σίσυφος\ty\n\u{1}\\ ab 北京市\tx\n";
        let file = TextFile::from_bytes("m", content.as_bytes(), &ReadOptions::default()).unwrap();
        let options =
            TextOptions { words: Some(Sizes::new(1, 2)), min_documents: 1, hash_bits, ..Default::default() };
        fit_dataset(&file, &options).unwrap().vectoriser
    }

    fn reloaded(vectoriser: &Vectoriser) -> Vectoriser {
        let directory = tempfile::tempdir().unwrap();
        vectoriser.save(directory.path()).unwrap();
        Vectoriser::load(directory.path()).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        /// No text panics, and none tells the loaded vectoriser from the saved.
        #[test]
        fn any_text_gives_the_same_row_after_loading(text in "\\PC{0,20}|(?s:.{0,30})|[münchenISAR \\\\\t]{0,30}") {
            thread_local! {
                static BOTH: Vec<(Vectoriser, Vectoriser)> = [None, Some(8)]
                    .map(fitted)
                    .into_iter()
                    .map(|saved| (reloaded(&saved), saved))
                    .collect();
            }
            BOTH.with(|both| {
                for (loaded, saved) in both {
                    let (mut a, mut b) = (Scratch::default(), Scratch::default());
                    let (ids, values) = saved.transform(&text, &mut a);
                    prop_assert_eq!((ids, values), loaded.transform(&text, &mut b));
                    prop_assert!(ids.is_sorted_by(|a, b| a < b));
                    prop_assert!(values.iter().all(|value| value.is_finite()));
                    let length: f32 = values.iter().map(|value| value * value).sum();
                    prop_assert!(ids.is_empty() || (length - 1.0).abs() < 1e-5);
                }
                Ok(())
            })?;
        }
    }

    #[test]
    fn names_survive_the_disk() {
        let saved = fitted(None);
        let loaded = reloaded(&saved);
        assert_eq!(saved.num_features(), loaded.num_features());
        let names =
            |v: &Vectoriser| (0..v.num_features() as u32).map(|id| v.feature_name(id)).collect::<Vec<_>>();
        assert_eq!(names(&saved), names(&loaded));
        for name in ["isar", "an der", "' mün'", "'\u{1}\\ '", "'京市 '"] {
            assert!(names(&loaded).iter().any(|found| found == name), "{name}");
        }
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        fitted(None).save(directory.path()).unwrap();
        let path = directory.path().join(VOCABULARY_FILE);
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, &bad).unwrap();
            let loaded = Vectoriser::load(directory.path());
            assert!(matches!(loaded, Err(TextError::Corrupted { .. })), "byte {at}");
        }
        fs::write(&path, &good[..good.len() / 2]).unwrap();
        assert!(Vectoriser::load(directory.path()).is_err());
        fs::write(&path, &good).unwrap();
        assert!(Vectoriser::load(directory.path()).is_ok());

        let path = directory.path().join(HEADER_FILE);
        let good = fs::read_to_string(&path).unwrap();
        for (from, to) in
            [("\"version\": 1", "\"version\": 7"), ("\"features\": ", "\"features\": 1"), ("{", "")]
        {
            fs::write(&path, good.replacen(from, to, 1)).unwrap();
            let loaded = Vectoriser::load(directory.path());
            assert!(matches!(loaded, Err(TextError::Corrupted { .. })), "{from}");
        }
    }

    /// A vocabulary whose checksum is right but whose content is not.
    #[test]
    fn content_is_checked_beyond_the_checksum() {
        let header = |features, hash_bits| Header {
            version: VERSION,
            documents: 5,
            features,
            vocabulary_crc32: 0,
            options: TextOptions { hash_bits, ..Default::default() },
        };
        for (content, features, hash_bits) in [
            ("1\tc\ta\n1\tc\ta\n", 2, None),
            ("6\tc\ta\n", 1, None),
            ("x\tc\ta\n", 1, None),
            ("1\tz\ta\n", 1, None),
            ("1\n", 1, None),
            ("1\tc\ta\n", 2, None),
            ("1\n2\n3\n", 3, Some(1)),
            ("1\tc\ta\n2\n", 2, Some(1)),
        ] {
            let loaded = load_vocabulary(Path::new("v"), content, header(features, hash_bits));
            assert!(matches!(loaded, Err(TextError::Corrupted { .. })), "{content:?}");
        }
        assert!(load_vocabulary(Path::new("v"), "1\n2\n", header(2, Some(1))).is_ok());
        // N-grams of later texts stand behind those of the first.
        assert!(load_vocabulary(Path::new("v"), "1\tc\tb\n1\tc\ta\n", header(2, None)).is_ok());
    }
}
