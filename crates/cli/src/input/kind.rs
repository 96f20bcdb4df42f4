//! What a file is, told from its first bytes.
//!
//! - A matrix begins as `.npy` files do, packed examples begin as they do.
//! - The Extreme Classification format begins with three numbers, or most of its
//!   first lines are `labels feature:value feature:value …`.
//! - Everything else is text; which kind of text is for its reader to tell.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use lookalike::data::compression::Plain;
use lookalike::data::open::{Input as Bytes, STDIN};
use lookalike::data::packed::MAGIC;
use lookalike::data::{DataError, ReadOptions, ReadReport, Source, xc};
use lookalike::text::{self, Format, TextError, TextFile};

/// What a user can say about a file.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum InputFormat {
    /// The Extreme Classification format, plain or packed
    Xc,
    /// A NumPy matrix, its labels in --labels-file
    Npy,
    /// Columns separated by tabs
    Tsv,
    /// Columns separated by commas, or by semicolons where the first line has no comma
    Csv,
    /// A JSON object a line
    #[value(alias = "jsonl")]
    JsonLines,
    /// `__label__x some text`
    Fasttext,
    /// A text a line, without labels
    Lines,
}

/// The three kinds of files that are read in different ways.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Numbers,
    Matrix,
    Text,
}

impl InputFormat {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Xc => Kind::Numbers,
            Self::Npy => Kind::Matrix,
            _ => Kind::Text,
        }
    }

    pub(super) fn of_text(self) -> Option<Format> {
        match self {
            Self::Xc | Self::Npy => None,
            Self::Tsv => Some(Format::Tsv),
            Self::Csv => Some(Format::Csv),
            Self::JsonLines => Some(Format::JsonLines),
            Self::Fasttext => Some(Format::FastText),
            Self::Lines => Some(Format::Lines),
        }
    }
}

/// Bytes that decide what a file is.
pub(super) const HEAD_BYTES: u64 = 64 << 10;
/// Lines that are asked whether they are rows of numbers.
const HEAD_LINES: usize = 16;

/// A file that can be read again, or all that came through a pipe.
pub(super) enum Opened {
    File(PathBuf),
    Pipe(PathBuf, Bytes),
}

impl Opened {
    pub(super) fn new(path: &Path) -> Result<Self, DataError> {
        let is_file = path != Path::new(STDIN) && path.is_file();
        Ok(if is_file { Self::File(path.into()) } else { Self::Pipe(path.into(), Bytes::open(path)?) })
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Pipe(path, _) => path,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            // What can't be read is for the reader to say, with the place.
            Self::File(path) => head(path).map_or(Kind::Numbers, |head| kind_of(&head)),
            Self::Pipe(_, input) => kind_of(&input.bytes()[..input.bytes().len().min(HEAD_BYTES as usize)]),
        }
    }

    pub(super) fn numbers(&self, options: &ReadOptions) -> Result<(Source, ReadReport), DataError> {
        match self {
            Self::File(path) => Source::load(path, options),
            Self::Pipe(_, input) => {
                let (data, report) = xc::parse(&input.name, input.bytes(), options)?;
                Ok((Source::Parsed(data), report))
            }
        }
    }

    pub(super) fn text(&self, options: &text::ReadOptions) -> Result<TextFile, TextError> {
        match self {
            Self::File(path) => TextFile::open(path, options),
            Self::Pipe(_, input) => TextFile::from_bytes(&input.name, input.bytes(), options),
        }
    }
}

/// The first decompressed bytes of a file.
pub(super) fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    // Damage further on does not change what the beginning says.
    let _ = Plain::open(path)?.reader.take(HEAD_BYTES).read_to_end(&mut head);
    Ok(head)
}

pub(super) fn kind_of(head: &[u8]) -> Kind {
    if head.starts_with(b"\x93NUMPY") {
        return Kind::Matrix;
    }
    if head.starts_with(MAGIC) {
        return Kind::Numbers;
    }
    let head = String::from_utf8_lossy(head);
    let mut lines = head.trim_start_matches('\u{feff}').lines().filter(|line| !line.trim().is_empty());
    let Some(first) = lines.next() else {
        return Kind::Numbers;
    };
    if is_header(first) {
        return Kind::Numbers;
    }
    let votes = std::iter::once(first).chain(lines).take(HEAD_LINES).filter_map(is_row);
    let (rows, others): (Vec<bool>, Vec<bool>) = votes.partition(|&is_row| is_row);
    if rows.len() > others.len() { Kind::Numbers } else { Kind::Text }
}

/// Examples, features, classes.
fn is_header(line: &str) -> bool {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    words.len() == 3 && words.iter().all(|word| is_number(word))
}

/// Whether a line is, if perhaps a faulty one, `labels feature:value …`. Labels
/// alone say nothing.
fn is_row(line: &str) -> Option<bool> {
    let is_feature = |word: &&str| {
        word.split_once(':').is_some_and(|(id, _)| is_number(id.strip_prefix('-').unwrap_or(id)))
    };
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let first = words.first()?;
    let features = words.iter().filter(|word| is_feature(word)).count();
    if is_feature(first) {
        return Some(2 * features > words.len());
    }
    let starts_like_labels = first.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let labels_alone = words.len() == 1 && first.bytes().all(|b| b.is_ascii_digit() || b == b',');
    if labels_alone { None } else { Some(starts_like_labels && 2 * features > words.len() - 1) }
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_tells_numbers_from_text() {
        for numbers in [
            "",
            " \n",
            "3 10 20\nx\n",
            "\u{feff}3 10 20\n",
            "1,2 3:0.5 7:1\n",
            " 3:0.5 7:1\n",
            "3:0.5 7:1\r\n",
            "1,x 3:1\n",
            "1 4:x\n",
            "-1 4:1\n",
            "1 -4:2\n",
            "1 4:1 5:1 6\n",
            "4\n5\n1 4:1\n",
            "LOOKPACK and more",
        ] {
            assert_eq!(kind_of(numbers.as_bytes()), Kind::Numbers, "{numbers:?}");
        }
        for text in [
            "München\tMunich\n",
            "meet at 12:30\tlabel\n",
            "12:30\tlabel\n",
            "breakfast 8:00,meals\n",
            "{\"text\": \"1:2\"}\n",
            "__label__x 1 2:3 4\n",
            "text,labels\n1,2\n",
            "1,2\n3,4\n",
            "a\n",
        ] {
            assert_eq!(kind_of(text.as_bytes()), Kind::Text, "{text:?}");
        }
        assert_eq!(kind_of(b"\x93NUMPY\x01\x00"), Kind::Matrix);
    }

    #[test]
    fn compressed_files_are_looked_into() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, zstd::encode_all(&b"1 2:3\n"[..], 1).unwrap()).unwrap();
        assert_eq!(Opened::new(&path).unwrap().kind(), Kind::Numbers);
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut gz, b"a name\ta label\n").unwrap();
        std::fs::write(&path, gz.finish().unwrap()).unwrap();
        assert_eq!(Opened::new(&path).unwrap().kind(), Kind::Text);
    }
}
