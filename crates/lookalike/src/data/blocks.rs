//! Examples as they come: a file or a pipe read block by block, in memory that
//! does not grow with its length.
//!
//! A block is whatever whole lines one read gives, so a program that writes
//! line by line into a pipe is answered line by line; whoever does not answer
//! asks for larger blocks, which are parsed in parallel. Rules and messages are
//! those of [`super::xc`].

use std::path::Path;

use super::Dataset;
use super::compression::Plain;
use super::error::{DataError, PackedProblem, Place};
use super::open::ByteStream;
use super::packed::MAGIC;
use super::row::IdLimits;
use super::xc::{self, ParsedRows, ReadOptions, ReadReport, SizesLine};

/// An iterator over blocks of examples.
///
/// Without a header and without sizes in the options, a block has the sizes of
/// its own largest ids.
pub struct Blocks {
    stream: ByteStream,
    options: ReadOptions,
    /// Bytes that a block is made of at least, as far as there are so many.
    block_bytes: usize,
    /// Bytes read and not yet parsed: at most a line beyond a block.
    text: Vec<u8>,
    start: Option<Start>,
    /// Examples that are empty lines, and come before anything else.
    owed: u64,
    /// What comes behind them, and the empty ones behind that.
    parsed: Option<(Dataset, ReadReport, u64)>,
    /// Lines in the blocks before this one.
    lines: u64,
    rows: u64,
    /// Empty lines that are examples if anything follows them.
    empty_rows: u64,
    ended: bool,
}

/// Empty examples in a block at most: a few bytes may stand for any number of them.
const EMPTY_MAX: u64 = 1 << 18;

/// What the first line decides.
struct Start {
    header: Option<SizesLine>,
    limits: IdLimits,
}

impl Blocks {
    /// Opens text at `path`, or standard input for `-`; it may be compressed.
    /// Packed files are not streamed: use [`super::Source::load`].
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self, DataError> {
        Ok(Self::new(ByteStream::open(path)?, options))
    }

    /// Reads what was opened already; `name` is for messages.
    pub fn of(name: String, plain: Plain, options: &ReadOptions) -> Self {
        Self::new(ByteStream::of(name, plain), options)
    }

    /// With blocks of at least so many bytes of text, but for the last.
    pub fn of_bytes(self, block_bytes: usize) -> Self {
        Self { block_bytes, ..self }
    }

    fn new(stream: ByteStream, options: &ReadOptions) -> Self {
        Self {
            stream,
            options: options.clone(),
            block_bytes: 0,
            text: Vec::new(),
            start: None,
            owed: 0,
            parsed: None,
            lines: 0,
            rows: 0,
            empty_rows: 0,
            ended: false,
        }
    }

    /// Reads until there is a whole line and enough of them, or the end; gives all whole
    /// lines.
    fn next_lines(&mut self) -> Result<Vec<u8>, DataError> {
        let mut searched = 0;
        let end = loop {
            if self.text.len() >= self.block_bytes {
                if let Some(end) = memchr::memrchr(b'\n', &self.text[searched..]) {
                    break searched + end + 1;
                }
                searched = self.text.len();
            }
            if !self.stream.read_more(&mut self.text)? {
                self.ended = true;
                break self.text.len();
            }
        };
        let rest = self.text.split_off(end);
        Ok(std::mem::replace(&mut self.text, rest))
    }

    /// What the first line decides, and where the rows start after it.
    fn begin(&self, text: &[u8], report: &mut ReadReport) -> Result<(Start, usize), DataError> {
        let name = &self.stream.name;
        if text.starts_with(MAGIC) {
            return Err(DataError::Packed { file: name.clone(), problem: PackedProblem::NotPlain });
        }
        let header = SizesLine::detect(name, text)?;
        let first_row = header.as_ref().map_or(0, |h| h.end);
        let limits = xc::limits(name, header.as_ref(), &self.options, report);
        Ok((Start { header, limits }, first_row))
    }

    /// Parses the next lines.
    fn parse_block(&mut self) -> Result<(), DataError> {
        let lines = self.next_lines()?;
        let mut report = ReadReport::default();
        let (start, text, first_row) = match self.start.take() {
            Some(start) => (start, &lines[..], 0),
            None => {
                let text = xc::without_byte_order_mark(&lines);
                let (start, first_row) = self.begin(text, &mut report)?;
                (start, text, first_row)
            }
        };
        let (end, empty_rows) = xc::without_empty_rows_at_end(text, first_row);
        let rows = ParsedRows::parse(text, first_row..end, &start.limits, self.options.skip_bad_rows);
        self.report_faults(text, &rows, &mut report)?;
        if rows.count() > 0 {
            self.owed = std::mem::take(&mut self.empty_rows);
            self.rows += self.owed;
        }
        self.empty_rows += empty_rows;
        self.rows += rows.count();
        self.lines += memchr::memchr_iter(b'\n', text).count() as u64;
        // Not after all the empty lines of a file that is wrong anyway.
        if let Some(header) = &start.header
            && header.examples < self.rows
            && !(self.ended || self.options.skip_bad_rows)
        {
            return Err(header.too_many(&self.stream.name));
        }
        let mut owed_behind = 0;
        if self.ended {
            owed_behind = self.finish(start.header.as_ref(), &mut report)?;
        }
        let data = xc::join(&rows, start.header.as_ref(), &self.options);
        self.start = Some(start);
        self.parsed = Some((data, report, owed_behind));
        Ok(())
    }

    /// What is known and was not given yet, in order: some of the empty examples, or what
    /// was parsed behind them.
    fn take_known(&mut self) -> Option<(Dataset, ReadReport)> {
        if self.owed > 0 {
            let count = self.owed.min(EMPTY_MAX);
            self.owed -= count;
            let header = self.start.as_ref().and_then(|start| start.header.as_ref());
            let data = xc::join(&ParsedRows::of(xc::empty_examples(count)), header, &self.options);
            return Some((data, ReadReport::default()));
        }
        let (data, report, owed_behind) = self.parsed.take()?;
        self.owed = owed_behind;
        Some((data, report))
    }

    fn report_faults(
        &self,
        text: &[u8],
        rows: &ParsedRows,
        report: &mut ReadReport,
    ) -> Result<(), DataError> {
        let mut errors = rows.faults.iter().map(|&fault| {
            let mut error = xc::describe(&self.stream.name, text, fault);
            if let DataError::Row { place, .. } = &mut error {
                place.line += self.lines;
            }
            error
        });
        if !self.options.skip_bad_rows
            && let Some(error) = errors.next()
        {
            return Err(error);
        }
        report.first_errors = errors.collect();
        report.bad_rows = rows.bad_rows;
        Ok(())
    }

    /// Checks what can only be known at the end; gives how many of the empty lines there
    /// are examples.
    fn finish(&self, header: Option<&SizesLine>, report: &mut ReadReport) -> Result<u64, DataError> {
        let end = Place { file: self.stream.name.clone(), line: self.lines + 1, column: 1 };
        let Some(header) = header else {
            return if self.rows == 0 { Err(DataError::Empty(Place { line: 1, ..end })) } else { Ok(0) };
        };
        match header.check_row_count(end, self.rows, self.empty_rows) {
            Ok(missing) => Ok(missing),
            Err(error) if self.options.skip_bad_rows => {
                report.notes.push(error.to_string());
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }
}

impl Iterator for Blocks {
    type Item = Result<(Dataset, ReadReport), DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(known) = self.take_known() {
            return Some(Ok(known));
        }
        if self.ended {
            return None;
        }
        if let Err(error) = self.parse_block() {
            self.ended = true;
            return Some(Err(error));
        }
        self.take_known().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_of(path: &Path, options: &ReadOptions, bytes: usize) -> Result<(Dataset, u64), DataError> {
        let mut parts = Vec::new();
        let mut bad_rows = 0;
        for block in Blocks::open(path, options)?.of_bytes(bytes) {
            let (data, report) = block?;
            assert_eq!(data.view().check_law(), Ok(()));
            bad_rows += report.bad_rows;
            parts.push(data);
        }
        Ok((Dataset::concat(&parts), bad_rows))
    }

    /// Lines without anything on them are examples where something follows them; however
    /// many they are, a block has a bounded number: of those that waited, or of one read.
    #[test]
    fn empty_lines_come_in_bounded_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let read_max = 4 * EMPTY_MAX;
        let count = 3 * read_max + 5;
        for (head, tail) in [(String::new(), "1 3:1\n"), (format!("{count} 9 9\n"), "")] {
            let text = head + &"\n".repeat(count as usize) + tail;
            std::fs::write(&path, &text).unwrap();
            let mut examples = 0;
            for block in Blocks::open(&path, &ReadOptions::default()).unwrap() {
                let length = block.unwrap().0.view().len() as u64;
                assert!(length <= read_max);
                examples += length;
            }
            assert_eq!(examples, count + u64::from(!tail.is_empty()));
        }
    }

    #[test]
    fn rows_beyond_the_header_are_met_before_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, format!("3 9 9\n1 0:1\n{}", "2 3:1\n".repeat(1 << 20))).unwrap();
        let error = blocks_of(&path, &ReadOptions::default(), 0).unwrap_err().to_string();
        assert!(error.contains("line 5, column 1: found example 4 and others, expected 3"), "{error}");
    }

    #[test]
    fn blocks_join_to_what_the_whole_file_gives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let skip = ReadOptions { skip_bad_rows: true, ..Default::default() };
        let many: String = (0..200_000u32)
            .map(|i| if i % 1000 == 9 { "\n".into() } else { format!("{} {i}:0.5\n", i % 7) })
            .collect();
        let mut cases = vec![
            "3 9 9\n1 0:1\n\n2 3:1".to_owned(),
            "4 9 9\n1 0:1\n\n2 3:1\n\n\n".to_owned(),
            "1 0:1\n\n2 3:1\n\n\n".to_owned(),
            "1 0:1\nbad\n2 3:1\n".to_owned(),
            "5 9 9\n1 0:1\n".to_owned(),
            String::new(),
            " \n".to_owned(),
            many.clone(),
            many.replace("123456:0.5", "123456:?"),
            format!("200000 200000 7\n{many}\n\n"),
        ];
        cases.push(cases[0].replace('\n', "\r\n"));
        for text in &cases {
            std::fs::write(&path, text).unwrap();
            let ways = [(&ReadOptions::default(), 0), (&skip, 0), (&skip, 3 << 20), (&skip, 1 << 30)];
            for (options, bytes) in ways {
                let whole = xc::parse(&path.display().to_string(), text.as_bytes(), options);
                let blocks = blocks_of(&path, options, bytes);
                match (whole, blocks) {
                    (Ok((data, report)), Ok((joined, bad_rows))) => {
                        assert!(joined == data && bad_rows == report.bad_rows);
                    }
                    (Err(whole), Err(blocks)) => assert_eq!(whole.to_string(), blocks.to_string()),
                    (whole, blocks) => panic!("{:?}: {whole:?} but {blocks:?}", &text[..text.len().min(50)]),
                }
            }
        }
    }
}
