//! Examples as they come, for `predict`: whatever whole lines one read gives are
//! a block, so a program that writes line by line is answered line by line, and
//! memory does not grow with the length of the input.

use std::io::{self, Read};
use std::path::Path;

use lookalike::artifact::Model;
use lookalike::data::compression::Plain;
use lookalike::data::open::STDIN;
use lookalike::data::packed::MAGIC;
use lookalike::data::xc::FIRST_ERRORS_MAX;
use lookalike::data::{Blocks, Dataset, Examples, ReadReport};
use lookalike::text::{Format, ReadOptions, Record, Scratch, TextError, TextFile, Vectoriser};
use lookalike_report::human;
use rayon::prelude::*;

use super::kind::{self, Kind};
use super::{ReadArguments, Target, for_model, tell};
use crate::output::inform;

/// Calls `use_block` with the examples for a model, some at a time.
pub(crate) fn stream(
    path: &Path,
    model: &Model,
    read: &ReadArguments,
    mut use_block: impl FnMut(&Examples<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let is_pipe = path == Path::new(STDIN) || !path.is_file();
    let head = if is_pipe { Vec::new() } else { kind::head(path).unwrap_or_default() };
    let target = Target::from(model);
    match (read.kind_for(&target, || kind::kind_of(&head))?, target.text) {
        (Kind::Text, Some(text)) => {
            let blocks = TextBlocks::open(path, read.of_text(false)?)?;
            stream_text(path, blocks, &text.vectoriser, use_block)
        }
        (Kind::Numbers, _) if !head.starts_with(MAGIC) => stream_numbers(path, model, read, use_block),
        // A packed file is mapped, so it costs no memory either; a matrix is read whole.
        _ => use_block(&for_model(path, model, read)?.view()),
    }
}

fn stream_numbers(
    path: &Path,
    model: &Model,
    read: &ReadArguments,
    mut use_block: impl FnMut(&Examples<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut total = ReadReport::default();
    for block in Blocks::open(path, &read.of_numbers(Some(&Target::from(model))))? {
        let (data, report) = block?;
        use_block(&data.view())?;
        total.bad_rows += report.bad_rows;
        let room = FIRST_ERRORS_MAX - total.first_errors.len();
        total.first_errors.extend(report.first_errors.into_iter().take(room));
        total.notes.extend(report.notes);
    }
    tell(path, &total);
    Ok(())
}

fn stream_text(
    path: &Path,
    mut blocks: TextBlocks,
    vectoriser: &Vectoriser,
    mut use_block: impl FnMut(&Examples<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut featureless = 0;
    while let Some(records) = blocks.next()? {
        let rows: Vec<(Vec<u32>, Vec<f32>)> = records
            .par_iter()
            .map_init(Scratch::default, |scratch, record| {
                let (ids, values) = vectoriser.transform(&record.text, scratch);
                (ids.to_vec(), values.to_vec())
            })
            .collect();
        let mut data = Dataset::empty(vectoriser.num_features(), 0);
        for ((ids, values), record) in rows.into_iter().zip(&records) {
            if ids.is_empty() {
                featureless += 1;
                if featureless == 1 {
                    inform!(
                        "{}:{}: this text has no known feature; the prediction is the prior, the model's \
                         answer to an empty text",
                        path.display(),
                        record.line
                    );
                }
            }
            data.push(ids.into_iter().zip(values), &[]);
        }
        use_block(&data.view())?;
    }
    if featureless > 1 {
        let count = human::count(featureless);
        inform!("{}: {count} texts have no known feature and got the prior", path.display());
    }
    Ok(())
}

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;
/// A record that is still open after so many bytes is not waited for: the
/// reader of records then says what is wrong with it.
const RECORD_BYTES_MAX: usize = 48 << 20;

/// Records as they come.
///
/// The first block tells format and columns. Later blocks are read as files of
/// their own in that format, each with the first one's header before it; a block
/// that ends within quotes waits for the rest.
struct TextBlocks {
    name: String,
    reader: Box<dyn Read + Send>,
    options: ReadOptions,
    /// Bytes read and not yet used.
    pending: Vec<u8>,
    /// The rows above the first record.
    header: Vec<u8>,
    /// Lines that are used up.
    lines: u64,
    has_started: bool,
    ended: bool,
}

impl TextBlocks {
    fn open(path: &Path, options: ReadOptions) -> Result<Self, TextError> {
        let name = if path == Path::new(STDIN) { "<stdin>".into() } else { path.display().to_string() };
        let reader = Plain::open(path).map_err(|e| failed(&name, e))?.reader;
        Ok(Self {
            name,
            reader,
            options,
            pending: Vec::new(),
            header: Vec::new(),
            lines: 0,
            has_started: false,
            ended: false,
        })
    }

    /// The next records, or none at the end.
    fn next(&mut self) -> Result<Option<Vec<Record>>, TextError> {
        let mut end = 0;
        while !self.ended {
            self.read_more()?;
            end = if self.ended { self.pending.len() } else { after_last_line_end(&self.pending) };
            let is_huge = self.pending.len() > RECORD_BYTES_MAX;
            // Blank lines tell no format.
            let tells = self.has_started || !self.pending[..end].trim_ascii().is_empty();
            if !(self.ended || is_huge || (end > 0 && tells)) {
                continue;
            }
            if is_huge && end == 0 {
                end = self.pending.len();
            }
            match self.parse(&self.pending[..end]) {
                // The quote may be closed by what is still to come.
                Err(TextError::UnbalancedQuote { .. }) if !self.ended && !is_huge => {}
                Err(error) => return Err(shifted(error, self.lines.saturating_sub(self.header_lines()))),
                Ok((format, records)) => return Ok(Some(self.take(end, format, records))),
            }
        }
        debug_assert_eq!(end, self.pending.len());
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

    fn parse(&self, block: &[u8]) -> Result<(Option<Format>, Vec<Record>), TextError> {
        let format = self.options.format;
        if self.has_started && block.trim_ascii().is_empty() {
            // Only where every line is a text does a blank one count.
            let blank = if format == Some(Format::Lines) {
                block.split_inclusive(|&b| b == b'\n').count()
            } else {
                0
            };
            return Ok((
                format,
                (1..=blank as u64).map(|line| Record { line, ..Record::default() }).collect(),
            ));
        }
        let content = [&self.header[..], block].concat();
        let file = TextFile::from_bytes(&self.name, &content, &self.options)?;
        let records = file.records()?.collect::<Result<_, _>>()?;
        Ok((Some(file.format()), records))
    }

    /// Takes a parsed block off what is pending.
    fn take(&mut self, end: usize, format: Option<Format>, mut records: Vec<Record>) -> Vec<Record> {
        let block: Vec<u8> = self.pending.drain(..end).collect();
        let before = self.lines.saturating_sub(self.header_lines());
        records.iter_mut().for_each(|record| record.line += before);
        if !self.has_started {
            self.has_started = true;
            self.options.format = format;
            if matches!(format, Some(Format::Tsv | Format::Csv)) {
                let lines = records.first().map_or(usize::MAX, |first| first.line as usize - 1);
                self.header = block.split_inclusive(|&b| b == b'\n').take(lines).collect::<Vec<_>>().concat();
                if self.header.trim_ascii().is_empty() {
                    self.header.clear();
                }
                self.options.header = Some(!self.header.is_empty());
            }
        }
        self.lines += line_ends(&block);
        records
    }

    fn header_lines(&self) -> u64 {
        line_ends(&self.header)
    }
}

fn line_ends(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&b| b == b'\n').count() as u64
}

fn after_last_line_end(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1)
}

fn failed(file: &str, source: io::Error) -> TextError {
    TextError::Io { file: file.into(), source }
}

/// An error in a block as one in the whole input.
fn shifted(mut error: TextError, lines: u64) -> TextError {
    use TextError::{
        AfterQuote, InvalidUtf8, Json, JsonField, MissingColumn, TooFewColumns, TooLong, UnbalancedQuote,
        UnknownFormat,
    };
    match &mut error {
        UnknownFormat { line, .. }
        | MissingColumn { line, .. }
        | TooFewColumns { line, .. }
        | UnbalancedQuote { line, .. }
        | AfterQuote { line, .. }
        | InvalidUtf8 { line, .. }
        | Json { line, .. }
        | JsonField { line, .. }
        | TooLong { line, .. } => *line += lines,
        _ => {}
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut blocks = TextBlocks {
            name: "m".into(),
            reader: Box::new(Drip(content, bytes)),
            options: ReadOptions { with_labels: false, ..ReadOptions::default() },
            pending: Vec::new(),
            header: Vec::new(),
            lines: 0,
            has_started: false,
            ended: false,
        };
        let mut all = Vec::new();
        while let Some(records) = blocks.next()? {
            all.extend(records);
        }
        Ok(all)
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
