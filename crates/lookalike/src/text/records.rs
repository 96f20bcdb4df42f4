//! Records of a text file: a text, its label names, the line it stands on.
//!
//! One reader a format (`delimited`, `json_lines`, `fasttext`); this file says
//! what a user can choose and hands chunks of records, parsed in parallel, to
//! whoever asked, in the order of the file.

use std::path::Path;
use std::str::FromStr;

use memchr::memchr_iter;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::detect::layout;
use super::source::{Chunks, Framing, RecordChunk, Rereadable, first_record_end};
use super::{TextError, delimited, fasttext, json_lines};
use crate::data::xc::FIRST_ERRORS_MAX;

/// One text with its labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The text, as it stands in the file.
    pub text: String,
    /// Label names, trimmed, none empty; as they stand, so perhaps one twice.
    pub labels: Vec<String>,
    /// How much it counts in training, where the file says so: finite, 0 or more.
    pub weight: Option<f32>,
    /// The line on which the record begins, from 1.
    pub line: u64,
}

/// How a file writes its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Columns separated by tabs.
    Tsv,
    /// Columns separated by commas, or by semicolons where the first line has no comma.
    Csv,
    /// A JSON object a line.
    JsonLines,
    /// fastText's `__label__x __label__y some text`.
    FastText,
    /// A text a line, without labels.
    Lines,
}

impl FromStr for Format {
    type Err = TextError;

    fn from_str(name: &str) -> Result<Self, TextError> {
        Ok(match name {
            "tsv" => Self::Tsv,
            "csv" => Self::Csv,
            "json-lines" | "jsonl" => Self::JsonLines,
            "fasttext" => Self::FastText,
            "lines" => Self::Lines,
            _ => {
                return Err(TextError::Options(format!(
                    "unknown format {name:?}; expected tsv, csv, json-lines, fasttext or lines"
                )));
            }
        })
    }
}

/// A column, by its number from 1 or by its name in the header (in JSON lines:
/// the name of the field).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Column {
    /// By number, from 1.
    Number(usize),
    /// By name.
    Name(String),
}

impl FromStr for Column {
    type Err = TextError;

    /// Digits are a number, everything else a name.
    fn from_str(column: &str) -> Result<Self, TextError> {
        match column.parse() {
            Ok(0) => Err(TextError::Options("columns are numbered from 1, found 0".into())),
            Ok(number) => Ok(Self::Number(number)),
            Err(_) => Ok(Self::Name(column.into())),
        }
    }
}

/// What a user says about a file. The default detects all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadOptions {
    /// The format; detected from the first line if not given.
    pub format: Option<Format>,
    /// The text's column. If not given: the one called `text`, else the first.
    pub text: Option<Column>,
    /// The labels' column. If not given: the one called `labels` or `label`,
    /// else the second.
    pub labels: Option<Column>,
    /// The column of weights; without it every example counts 1.
    pub weight: Option<Column>,
    /// Whether the first row names the columns. If not given: when a column is
    /// asked for by name, or a cell of the first row is exactly `text`, `label`
    /// or `labels`.
    pub header: Option<bool>,
    /// What stands between several labels of a cell (not in JSON, which has
    /// arrays, nor in fastText's format).
    pub label_separator: String,
    /// Whether a field that begins with `"` is quoted, as RFC 4180 says.
    pub quotes: bool,
    /// What marks a label in fastText's format.
    pub label_prefix: String,
    /// Whether labels are read at all; a file to predict needs none.
    pub with_labels: bool,
    /// Leave out rows that cannot be read, and count them, instead of stopping at the
    /// first. The first row tells the format, so it must be a good one.
    pub skip_bad_rows: bool,
}

/// Rows that could not be read and were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedRows {
    /// How many.
    pub rows: u64,
    /// What was wrong with the first few of them.
    pub first_errors: Vec<String>,
}

impl SkippedRows {
    /// The rows that are records; notes the others.
    pub(super) fn sift(&mut self, rows: Vec<Result<Record, TextError>>) -> Vec<Record> {
        let mut note = |error: TextError| {
            self.append(Self { rows: 1, first_errors: vec![error.to_string()] });
        };
        rows.into_iter().filter_map(|row| row.map_err(&mut note).ok()).collect()
    }

    /// Adds what was left out behind it.
    pub fn append(&mut self, next: Self) {
        self.rows += next.rows;
        let room = FIRST_ERRORS_MAX - self.first_errors.len();
        self.first_errors.extend(next.first_errors.into_iter().take(room));
    }
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            format: None,
            text: None,
            labels: None,
            weight: None,
            header: None,
            label_separator: "|".into(),
            quotes: true,
            label_prefix: "__label__".into(),
            with_labels: true,
            skip_bad_rows: false,
        }
    }
}

/// Where a format keeps text and labels, once the head of the file is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Layout {
    Delimited(delimited::Columns),
    JsonLines(json_lines::Fields),
    FastText { prefix: String },
    Lines,
}

impl Layout {
    fn framing(&self) -> Framing {
        match self {
            Self::Delimited(layout) => layout.framing(),
            _ => Framing::Lines,
        }
    }

    /// What it is, in words.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Delimited(layout) => layout.describe(),
            Self::JsonLines(layout) => layout.describe(),
            Self::FastText { prefix } => {
                format!("fastText's format; words that begin with {prefix:?} are labels")
            }
            Self::Lines => "a text a line, without labels".into(),
        }
    }

    pub(super) fn parse(&self, chunk: &RecordChunk, file: &str) -> Result<Vec<Record>, TextError> {
        match self {
            Self::Delimited(layout) => layout.parse(chunk, file),
            Self::JsonLines(layout) => layout.parse(chunk, file),
            Self::FastText { prefix } => fasttext::parse(chunk, file, prefix),
            Self::Lines => Ok(lines(chunk.text(file)?, chunk.line)
                .map(|(line, text)| Record { text: text.into(), line, ..Record::default() })
                .collect()),
        }
    }

    /// Record by record: those that can be read, and what is wrong with the others.
    ///
    /// A bad row costs the line it begins on. Behind it nothing is certain, least of all
    /// which quote closes which, and the next line is the likeliest place for a good row.
    pub(super) fn parse_each(&self, chunk: &RecordChunk, file: &str) -> Vec<Result<Record, TextError>> {
        let mut found = Vec::new();
        let (mut rest, mut line) = (&chunk.bytes[..], chunk.line);
        while !rest.is_empty() {
            let mut end = first_record_end(rest, self.framing());
            match self.parse(&RecordChunk { bytes: rest[..end].into(), line }, file) {
                Ok(records) => found.extend(records.into_iter().map(Ok)),
                Err(error) => {
                    found.push(Err(error));
                    end = first_record_end(rest, Framing::Lines);
                }
            }
            line += memchr_iter(b'\n', &rest[..end]).count() as u64;
            rest = &rest[end..];
        }
        found
    }
}

/// The lines of a chunk with their numbers, without their ends.
pub(super) fn lines(text: &str, first: u64) -> impl Iterator<Item = (u64, &str)> {
    (first..).zip(text.lines())
}

/// Label names of one cell.
pub(super) fn split_labels(cell: &str, separator: &str) -> Vec<String> {
    let names: Box<dyn Iterator<Item = &str>> =
        if separator.is_empty() { Box::new(std::iter::once(cell)) } else { Box::new(cell.split(separator)) };
    names.map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect()
}

/// The weight that a cell or field says; an empty one says nothing.
pub(super) fn weight_of(cell: &str, file: &str, line: u64) -> Result<Option<f32>, TextError> {
    let cell = cell.trim();
    if cell.is_empty() {
        return Ok(None);
    }
    match cell.parse::<f32>() {
        Ok(weight) if weight.is_finite() && weight >= 0.0 => Ok(Some(weight)),
        _ => Err(TextError::Weight { file: file.into(), line, found: cell.into() }),
    }
}

/// A file of records that can be read as often as needed.
#[derive(Clone, Debug)]
pub struct TextFile {
    source: Rereadable,
    layout: Layout,
    skip_bad_rows: bool,
}

impl TextFile {
    /// A file on disk, plain or compressed (gzip, zstd). Reads its head to find
    /// format and columns.
    pub fn open(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Self, TextError> {
        Self::new(Rereadable::Path(path.as_ref().into()), options)
    }

    /// A file in memory, plain or compressed; `name` is for messages.
    pub fn from_bytes(name: &str, bytes: &[u8], options: &ReadOptions) -> Result<Self, TextError> {
        Self::new(Rereadable::Memory { name: name.into(), bytes: bytes.into() }, options)
    }

    fn new(source: Rereadable, options: &ReadOptions) -> Result<Self, TextError> {
        let layout = layout(&source, options)?;
        Ok(Self { source, layout, skip_bad_rows: options.skip_bad_rows })
    }

    /// The name used in messages.
    pub fn name(&self) -> String {
        self.source.name()
    }

    /// The format, given or detected.
    pub fn format(&self) -> Format {
        match &self.layout {
            Layout::Delimited(layout) if layout.delimiter == b'\t' => Format::Tsv,
            Layout::Delimited(_) => Format::Csv,
            Layout::JsonLines(_) => Format::JsonLines,
            Layout::FastText { .. } => Format::FastText,
            Layout::Lines => Format::Lines,
        }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether it says how much examples count.
    pub fn has_weights(&self) -> bool {
        match &self.layout {
            Layout::Delimited(layout) => layout.weight.is_some(),
            Layout::JsonLines(layout) => layout.weight.is_some(),
            Layout::FastText { .. } | Layout::Lines => false,
        }
    }

    /// Works on all records in parallel, a chunk of them at a time, and gives
    /// the results to `take` in the order of the file, a group at a time. The
    /// sizes of chunks and groups depend on the file alone. While a group is
    /// worked on, the next one is read.
    ///
    /// Stops at the first error in the order of the file, or of `take`, which may
    /// have seen earlier groups by then. Gives the rows that were left out, where they
    /// are.
    pub fn for_each_group<T: Send, E: From<TextError>>(
        &self,
        work: impl Fn(Vec<Record>) -> T + Sync,
        mut take: impl FnMut(Vec<T>) -> Result<(), E>,
    ) -> Result<SkippedRows, E> {
        let file = self.name();
        let mut skipped = SkippedRows::default();
        let mut chunks = Chunks::new(&self.source, self.layout.framing())?;
        let mut group = chunks.next_group()?;
        while !group.is_empty() {
            let parse = |chunk: &RecordChunk| {
                let (records, skipped) = self.parse(chunk, &file)?;
                Ok((work(records), skipped))
            };
            let (next, done) =
                rayon::join(|| chunks.next_group(), || group.par_iter().map(parse).collect::<Vec<_>>());
            let done: Vec<(T, SkippedRows)> = done.into_iter().collect::<Result<_, TextError>>()?;
            let give = |(worked, of_chunk)| {
                skipped.append(of_chunk);
                worked
            };
            take(done.into_iter().map(give).collect())?;
            group = next?;
        }
        Ok(skipped)
    }

    /// The records of a chunk, and the rows that were left out.
    fn parse(&self, chunk: &RecordChunk, file: &str) -> Result<(Vec<Record>, SkippedRows), TextError> {
        let mut skipped = SkippedRows::default();
        let records = match self.layout.parse(chunk, file) {
            Err(_) if self.skip_bad_rows => skipped.sift(self.layout.parse_each(chunk, file)),
            parsed => parsed?,
        };
        Ok((records, skipped))
    }

    /// All records, and the rows that were left out.
    pub fn read(&self) -> Result<(Vec<Record>, SkippedRows), TextError> {
        let mut records = Vec::new();
        let take = |group: Vec<Vec<Record>>| {
            records.extend(group.into_iter().flatten());
            Ok::<_, TextError>(())
        };
        let skipped = self.for_each_group(|records| records, take)?;
        Ok((records, skipped))
    }

    /// All records, one after the other, with one chunk in memory at a time; without the
    /// rows that are left out.
    pub fn records(&self) -> Result<impl Iterator<Item = Result<Record, TextError>> + use<'_>, TextError> {
        let file = self.name();
        let mut chunks = Chunks::new(&self.source, self.layout.framing())?;
        Ok(std::iter::from_fn(move || chunks.next_chunk().transpose()).flat_map(move |chunk| {
            match chunk.and_then(|chunk| self.parse(&chunk, &file)) {
                Ok((records, _)) => records.into_iter().map(Ok).collect(),
                Err(e) => vec![Err(e)],
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every format tells the same story.
    #[test]
    fn formats_are_detected_and_agree() {
        let expected = [("München, Isar", vec!["Munich", "Bavaria"]), ("wien", vec!["Vienna"])];
        let files = [
            (Format::Tsv, "München, Isar\tMunich|Bavaria\nwien\tVienna\n"),
            (Format::Csv, "labels,text\r\nMunich|Bavaria,\"München, Isar\"\r\nVienna,wien\r\n"),
            (
                Format::JsonLines,
                "{\"text\":\"München, Isar\",\"labels\":[\"Munich\",\"Bavaria\"]}\n\n\
                 {\"labels\":\"Vienna\",\"text\":\"wien\"}",
            ),
            (Format::FastText, "__label__Munich __label__Bavaria München, Isar\n__label__Vienna wien\n"),
        ];
        for (format, content) in files {
            let file = TextFile::from_bytes("memory", content.as_bytes(), &ReadOptions::default()).unwrap();
            assert_eq!(file.format(), format);
            let records: Vec<Record> = file.records().unwrap().map(Result::unwrap).collect();
            assert_eq!(records.len(), 2, "{format:?}");
            for (record, (text, labels)) in records.iter().zip(&expected) {
                assert_eq!(record.text, *text, "{format:?}");
                assert_eq!(record.labels, *labels, "{format:?}");
            }
        }
    }

    #[test]
    fn groups_come_in_the_order_of_the_file() {
        let content: String = (0..60_000).map(|i| format!("text number {i}\tlabel{i}\n")).collect();
        let file = TextFile::from_bytes("memory", content.as_bytes(), &ReadOptions::default()).unwrap();
        let mut grouped = Vec::new();
        let take = |group: Vec<Vec<Record>>| {
            grouped.extend(group.into_iter().flatten());
            Ok::<(), TextError>(())
        };
        file.for_each_group(|records| records, take).unwrap();
        let streamed: Vec<Record> = file.records().unwrap().map(Result::unwrap).collect();
        assert_eq!(grouped.len(), 60_000);
        assert_eq!(grouped, streamed);
        assert!(grouped.iter().zip(1..).all(|(record, line)| record.line == line));
    }

    #[test]
    fn invalid_utf8_is_placed() {
        let content = [b"ok\tx\n".repeat(100_000), b"M\xc3\xbcn\xfcchen\ty\n".to_vec()].concat();
        let file = TextFile::from_bytes("m", &content, &ReadOptions::default()).unwrap();
        match file.records().unwrap().find_map(Result::err) {
            Some(TextError::InvalidUtf8 { line: 100_001, column: 4, found: 0xfc, .. }) => {}
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bad_rows_are_left_out_and_counted() {
        let cases: [(&[u8], &[&str], &[&str]); 6] = [
            (b"a\tx\nb\nc\tz\nd\n", &["a", "c"], &["m:2: found 1 column", "m:4: found 1 column"]),
            (b"a\tx\nM\xfcnchen\ty\nc\tz\n", &["a", "c"], &["m:2:2: byte 0xfc"]),
            (b"a,x\n\"b,y\nc,z\n", &["a", "c"], &["m:2:1: this quote is never closed"]),
            (b"a,x\n\"b\"c,y\n\"d\ne\",z\n", &["a", "d\ne"], &["m:2:4: found 'c'"]),
            (
                b"{\"text\":\"a\",\"label\":1}\n{oops\n{\"text\":2,\"label\":1}\n{\"text\":\"d\",\"label\":1}\n",
                &["a", "d"],
                &["m:2:2: not a JSON", "m:3: field \"text\""],
            ),
            (b"__label__x a\n__label__x \xff\n__label__y c\n", &["a", "c"], &["m:2:12: byte 0xff"]),
        ];
        for (content, texts, errors) in cases {
            let strict = TextFile::from_bytes("m", content, &ReadOptions::default());
            assert!(strict.and_then(|file| file.read()).is_err());
            let options = ReadOptions { skip_bad_rows: true, ..Default::default() };
            let file = TextFile::from_bytes("m", content, &options).unwrap();
            let (records, skipped) = file.read().unwrap();
            assert_eq!(records.iter().map(|record| record.text.as_str()).collect::<Vec<_>>(), texts);
            assert_eq!(file.records().unwrap().collect::<Result<Vec<_>, _>>().unwrap(), records);
            assert_eq!((skipped.rows, skipped.first_errors.len()), (errors.len() as u64, errors.len()));
            for (found, expected) in skipped.first_errors.iter().zip(errors) {
                assert!(found.contains(expected), "{found}");
            }
        }
    }

    /// In many chunks, and more than are named.
    #[test]
    fn of_many_bad_rows_the_first_are_named() {
        let row =
            |i: u32| if i % 1000 == 7 { format!("broken{i}\n") } else { format!("text number {i}\tx{i}\n") };
        let content: String = (0..60_000).map(row).collect();
        let options = ReadOptions { skip_bad_rows: true, ..Default::default() };
        let file = TextFile::from_bytes("m", content.as_bytes(), &options).unwrap();
        let (records, skipped) = file.read().unwrap();
        assert_eq!((records.len(), skipped.rows), (59_940, 60));
        assert!(records.iter().all(|record| record.text == format!("text number {}", record.line - 1)));
        let lines = [8, 1008, 2008, 3008, 4008].map(|line| format!("m:{line}: found 1 column"));
        assert_eq!(skipped.first_errors.len(), lines.len());
        assert!(skipped.first_errors.iter().zip(&lines).all(|(found, line)| found.starts_with(line)));
    }

    #[test]
    fn plain_lines_keep_blank_ones() {
        let options = ReadOptions { with_labels: false, ..Default::default() };
        let file = TextFile::from_bytes("m", b"Hello, world\n\nbye\n", &options).unwrap();
        assert_eq!(file.format(), Format::Lines);
        let texts: Vec<_> = file.records().unwrap().map(|r| r.unwrap().text).collect();
        assert_eq!(texts, ["Hello, world", "", "bye"]);
    }
}
