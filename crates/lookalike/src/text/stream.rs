//! Texts as they come, as examples: whatever whole lines one read gives are a
//! block, so a program that writes line by line is answered line by line, and
//! memory does not grow with the length of the input.

use std::io::{self, Read};
use std::path::Path;

use super::detect::layout;
use super::records::Layout;
use super::source::{BYTE_ORDER_MARK, RECORD_BYTES_MAX, RecordChunk, Rereadable};
use super::{ReadOptions, Record, SkippedRows, TextError, Vectoriser};
use crate::data::Dataset;
use crate::data::compression::Plain;
use crate::data::open::STDIN;

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// The texts of a file or pipe, some at a time. The last item may be an error.
pub struct TextBlocks<'a> {
    records: RecordBlocks,
    vectoriser: &'a Vectoriser,
}

/// Some texts that came together.
#[derive(Clone, Debug)]
pub struct TextBlock {
    /// An example a text, without labels.
    pub data: Dataset,
    /// The line of the input on which each text begins, from 1.
    pub lines: Vec<u64>,
}

impl<'a> TextBlocks<'a> {
    /// Opens a file, plain or compressed, or with `-` the standard input. Labels are
    /// not read.
    pub fn open(path: &Path, options: ReadOptions, vectoriser: &'a Vectoriser) -> Result<Self, TextError> {
        Ok(Self { records: RecordBlocks::open(path, options)?, vectoriser })
    }

    /// The rows left out so far.
    pub fn skipped(&self) -> &SkippedRows {
        self.records.skipped()
    }
}

impl Iterator for TextBlocks<'_> {
    type Item = Result<TextBlock, TextError>;

    fn next(&mut self) -> Option<Self::Item> {
        let block = self.records.next()?;
        Some(block.map(|records| {
            let texts: Vec<&str> = records.iter().map(|record| record.text.as_str()).collect();
            let data = self.vectoriser.transform_all(&texts);
            TextBlock { data, lines: records.iter().map(|record| record.line).collect() }
        }))
    }
}

impl TextBlock {
    /// The lines of texts that have no known feature.
    pub fn featureless_lines(&self) -> impl Iterator<Item = u64> {
        let examples = self.data.view();
        let places = (0..examples.len()).filter(move |&i| examples.features(i).0.is_empty());
        places.map(|i| self.lines[i])
    }
}

/// Records as they come.
///
/// The first block tells format and columns; a block that ends within quotes waits for
/// the rest.
pub struct RecordBlocks {
    name: String,
    reader: Box<dyn Read + Send>,
    options: ReadOptions,
    /// Bytes read and not yet used.
    pending: Vec<u8>,
    /// The line on which they begin.
    line: u64,
    /// Known once the first row is.
    layout: Option<Layout>,
    skipped: SkippedRows,
    ended: bool,
}

impl Iterator for RecordBlocks {
    type Item = Result<Vec<Record>, TextError>;

    fn next(&mut self) -> Option<Self::Item> {
        let block = self.next_block().transpose();
        // There is nothing to be had behind an error.
        self.ended |= matches!(block, Some(Err(_)));
        block
    }
}

impl RecordBlocks {
    /// Opens a file, plain or compressed, or with `-` the standard input. Labels are
    /// not read.
    pub fn open(path: &Path, options: ReadOptions) -> Result<Self, TextError> {
        let name = if path == Path::new(STDIN) { "<stdin>".into() } else { path.display().to_string() };
        let reader = Plain::open(path).map_err(|e| failed(&name, e))?.reader;
        Ok(Self::new(name, reader, ReadOptions { with_labels: false, ..options }))
    }

    fn new(name: String, reader: Box<dyn Read + Send>, options: ReadOptions) -> Self {
        let (pending, skipped) = (Vec::new(), SkippedRows::default());
        Self { name, reader, options, pending, line: 1, layout: None, skipped, ended: false }
    }

    /// The rows left out so far.
    pub fn skipped(&self) -> &SkippedRows {
        &self.skipped
    }

    /// The next records, or none at the end.
    fn next_block(&mut self) -> Result<Option<Vec<Record>>, TextError> {
        while !self.ended {
            self.read_more()?;
            let end = if self.ended { self.pending.len() } else { after_last_line_end(&self.pending) };
            let is_huge = self.pending.len() > RECORD_BYTES_MAX;
            if is_huge && end == 0 {
                let (file, line) = (self.name.clone(), self.line);
                return Err(TextError::TooLong { file, line, limit_bytes: RECORD_BYTES_MAX });
            }
            // Blank lines tell no format.
            let tells = self.layout.is_some() || !self.pending[..end].trim_ascii().is_empty();
            if !(self.ended || is_huge || (end > 0 && tells)) {
                continue;
            }
            let may_go_on = !self.ended && !is_huge;
            match self.parse(end, may_go_on) {
                // The quote may be closed by what is still to come.
                Err(TextError::UnbalancedQuote { .. }) if may_go_on => {}
                parsed => {
                    let records = parsed?;
                    let used = self.pending.drain(..end);
                    self.line += used.filter(|&byte| byte == b'\n').count() as u64;
                    return Ok(Some(records));
                }
            }
        }
        Ok(None)
    }

    fn read_more(&mut self) -> Result<(), TextError> {
        let old = self.pending.len();
        self.pending.resize(old + READ_BYTES, 0);
        let read = loop {
            match self.reader.read(&mut self.pending[old..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.pending.truncate(old + *read.as_ref().unwrap_or(&0));
        self.ended = read.map_err(|e| failed(&self.name, e))? == 0;
        Ok(())
    }

    /// The records of the first bytes that are pending. Where bad rows are left out, one
    /// with an open quote is not yet bad if it may go on.
    fn parse(&mut self, end: usize, may_go_on: bool) -> Result<Vec<Record>, TextError> {
        let bytes = &self.pending[..end];
        let is_start = self.line == 1;
        let bytes = bytes.strip_prefix(&BYTE_ORDER_MARK).filter(|_| is_start).unwrap_or(bytes);
        let layout = match &mut self.layout {
            Some(known) => known,
            unknown => {
                let source = Rereadable::Memory { name: self.name.clone(), bytes: bytes.into() };
                unknown.insert(layout(&source, &self.options)?)
            }
        };
        let chunk = RecordChunk { bytes: bytes.into(), line: self.line };
        match layout.parse(&chunk, &self.name) {
            Err(_) if self.options.skip_bad_rows => {
                let rows = layout.parse_each(&chunk, &self.name);
                let is_open = |row: &_| matches!(row, Err(TextError::UnbalancedQuote { .. }));
                match rows.iter().position(is_open).filter(|_| may_go_on) {
                    Some(open) => rows.into_iter().skip(open).collect(),
                    None => Ok(self.skipped.sift(rows)),
                }
            }
            parsed => parsed,
        }
    }
}

fn after_last_line_end(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1)
}

fn failed(file: &str, source: io::Error) -> TextError {
    TextError::Io { file: file.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{TextFile, TextOptions, fit_dataset};

    /// Gives a few bytes at a time, as a slow pipe does.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(self.0.len()).min(out.len());
            out[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    fn read(content: &'static [u8], bytes: usize) -> Result<Vec<Record>, TextError> {
        let options = ReadOptions { with_labels: false, ..ReadOptions::default() };
        let mut blocks = RecordBlocks::new("m".into(), Box::new(Drip(content, bytes)), options);
        let all: Result<Vec<Vec<Record>>, TextError> = blocks.by_ref().collect();
        assert!(blocks.next().is_none(), "nothing comes after the end or an error");
        Ok(all?.concat())
    }

    #[test]
    fn however_it_drips_the_records_are_those_of_the_whole_file() {
        let contents: [&[u8]; 7] = [
            b"one\n\ntwo, three\n\n\nfour",
            b"\n\none\ntwo\n",
            b"a\tx\nb\ty\n\nc\tz\n",
            b"label,text\nx,\"a\nb\"\ny,c\n\nz,\"d\"\"\"\n",
            b"id\ttext\n1\tone\n2\ttwo\n",
            b"{\"text\":\"one\"}\n\n{\"text\":\"two\"}\n",
            b"__label__x one\n__label__y two\n",
        ];
        for content in contents {
            let whole = read(content, usize::MAX).unwrap();
            assert!(whole.len() >= 2);
            for bytes in [1, 2, 3, 5, 11] {
                assert_eq!(
                    read(content, bytes).unwrap(),
                    whole,
                    "{bytes} {:?}",
                    content.escape_ascii().to_string()
                );
            }
        }
    }

    /// More texts than one task takes, and two of them without a known feature.
    #[test]
    fn examples_and_lines_are_those_of_the_whole_file() {
        let texts: Vec<String> = (0..200).map(|i| format!("the {i} cats of {}", i % 7)).collect();
        let labelled: String = texts.iter().map(|text| format!("{text}\tcat\n")).collect();
        let options = TextOptions { characters: None, min_documents: 2, ..TextOptions::default() };
        let file = TextFile::from_bytes("m", labelled.as_bytes(), &ReadOptions::default()).unwrap();
        let fitted = fit_dataset(&file, &options).unwrap();
        let mut content = texts.join("\n");
        content.insert_str(0, "?\n\n");
        content.push_str("\nzebra");
        let content: &'static [u8] = content.leak().as_bytes();
        for bytes in [40, usize::MAX] {
            let options = ReadOptions { with_labels: false, ..ReadOptions::default() };
            let records = RecordBlocks::new("m".into(), Box::new(Drip(content, bytes)), options);
            let blocks: Vec<TextBlock> =
                TextBlocks { records, vectoriser: &fitted.vectoriser }.collect::<Result<_, _>>().unwrap();
            let featureless: Vec<u64> = blocks.iter().flat_map(TextBlock::featureless_lines).collect();
            assert_eq!(featureless, [1, 2, 203]);
            let parts: Vec<Dataset> = blocks.into_iter().map(|block| block.data).collect();
            let all = Dataset::concat(&parts);
            let known: Vec<usize> = (2..202).collect();
            let mut expected = fitted.dataset.clone();
            (expected.label_ids, expected.label_offsets, expected.num_classes) = (vec![], vec![0; 201], 0);
            assert_eq!(Dataset::select(all.view(), &known), expected);
        }
    }

    #[test]
    fn bad_rows_are_left_out_however_it_drips() {
        let content: &[u8] =
            b"id,text\n1,one\n2\n3,\"thr\nee\"\n4,f\xffour\n5,\"five\"x\n6,six\n7,\"seven\n8,eight\n";
        for bytes in [1, 2, 3, 7, usize::MAX] {
            let options = ReadOptions { skip_bad_rows: true, with_labels: false, ..ReadOptions::default() };
            let mut blocks = RecordBlocks::new("m".into(), Box::new(Drip(content, bytes)), options);
            let all: Result<Vec<Vec<Record>>, TextError> = blocks.by_ref().collect();
            let found: Vec<(u64, String)> =
                all.unwrap().into_iter().flatten().map(|record| (record.line, record.text)).collect();
            let expected = [(2, "one"), (4, "thr\nee"), (8, "six"), (10, "eight")];
            assert_eq!(found, expected.map(|(line, text)| (line, text.to_string())), "{bytes}");
            let places = ["m:3: found 1", "m:6:4: byte 0xff", "m:7:9: found 'x'", "m:9:3: this quote"];
            assert_eq!(blocks.skipped().rows, 4, "{bytes}");
            for (error, place) in blocks.skipped().first_errors.iter().zip(places) {
                assert!(error.starts_with(place), "{error}");
            }
        }
    }

    #[test]
    fn errors_have_the_place_in_the_whole_input() {
        let cases: [(&[u8], &str); 5] = [
            (b"ok\nok\nM\xfcnchen\n", "m:3:2: byte 0xfc is not UTF-8"),
            (b"text\tx\none\t1\ntwo\t2\n\"three\t3\n", "m:4:1: this quote is never closed"),
            (b"id\ttext\n1\tone\n2\n", "m:3: found 1 column(s)"),
            (b"{\"text\":\"one\"}\n{\"text\":2}\n", "m:2: field \"text\" is"),
            (b"", "m: no record found"),
        ];
        for (content, expected) in cases {
            for bytes in [1, 4, usize::MAX] {
                let error = read(content, bytes).unwrap_err().to_string();
                assert!(error.contains(expected), "{bytes}: {error}");
            }
        }
    }
}
