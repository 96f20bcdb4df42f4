//! Reader of the Extreme Classification Repository's text format.
//!
//! An optional first line `examples features classes`, then one example a
//! line (see `row.rs` for what a row may look like). Rules for what the
//! format leaves open:
//!
//! - The first line is the header if it is exactly three whole numbers; no row
//!   looks like that. Without a header there are as many features and classes
//!   as the largest ids ask for.
//! - Lines end in `\n` or `\r\n`; the last one may lack it.
//! - An empty line is an example with neither labels nor features. At the end
//!   of the file empty lines count only as far as the header asks for them.
//!
//! The text is cut at line ends into pieces of a fixed size which are parsed in
//! parallel, then joined in order: O(bytes), and the result does not depend on
//! the number of threads. Lines and columns are only counted for an error.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::Dataset;
use super::error::{DataError, ID_LIMIT, LINE_BYTES_MAX, LimitOf, Place, RowProblem, excerpt};
use super::numbers::digits;
use super::row::{Fault, IdLimits, Limit, is_space, parse_row};

/// How to read a file of examples.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Leave out rows that cannot be read, and count them, instead of stopping
    /// at the first.
    pub skip_bad_rows: bool,
    /// The number of features of the model that will see the examples.
    pub num_features: Option<usize>,
    /// The number of classes of the model that will see the examples.
    pub num_classes: Option<usize>,
}

/// What reading met that did not stop it.
#[derive(Debug, Default)]
pub struct ReadReport {
    /// Rows left out.
    pub bad_rows: u64,
    /// What was wrong with the first few of them.
    pub first_errors: Vec<DataError>,
    /// Other things the user should know.
    pub notes: Vec<String>,
}

/// Errors kept in a [`ReadReport`].
pub const FIRST_ERRORS_MAX: usize = 5;

/// Parses the text of a file; `name` is for messages.
pub fn parse(name: &str, text: &[u8], options: &ReadOptions) -> Result<(Dataset, ReadReport), DataError> {
    let text = without_byte_order_mark(text);
    let header = SizesLine::detect(name, text)?;
    let mut report = ReadReport::default();
    let limits = limits(name, header.as_ref(), options, &mut report);
    let start = header.as_ref().map_or(0, |h| h.end);
    let (end, empty_rows_at_end) = without_empty_rows_at_end(text, start);
    let mut rows = ParsedRows::parse(text, start..end, &limits, options.skip_bad_rows);
    if let (false, Some(&fault)) = (options.skip_bad_rows, rows.faults.first()) {
        return Err(describe(name, text, fault));
    }
    if header.is_none() && rows.count() == 0 {
        return Err(DataError::Empty(Place::of(name, text, 0)));
    }
    report.bad_rows = rows.bad_rows;
    report.first_errors = rows.faults.iter().map(|&fault| describe(name, text, fault)).collect();
    if let Some(header) = &header {
        match header.check_row_count(Place::end(name, text), rows.count(), empty_rows_at_end) {
            Ok(missing) => rows.pieces.push(empty_examples(missing)),
            Err(error) if options.skip_bad_rows => report.notes.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    Ok((join(&rows, header.as_ref(), options), report))
}

/// All rows in one, with the sizes of the model, the header or the largest ids.
pub(super) fn join(rows: &ParsedRows, header: Option<&SizesLine>, options: &ReadOptions) -> Dataset {
    let mut data = Dataset::concat(&rows.pieces);
    let largest = |ids: &[u32]| ids.par_iter().max().map_or(0, |&id| id as usize + 1);
    data.num_features = options
        .num_features
        .or(header.map(|h| h.features as usize))
        .unwrap_or_else(|| largest(&data.feature_ids));
    data.num_classes = options
        .num_classes
        .or(header.map(|h| h.classes as usize))
        .unwrap_or_else(|| largest(&data.label_ids));
    data
}

/// Some editors put one before the first line.
pub(super) fn without_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}

/// The first line, if it tells the sizes.
#[derive(Clone, Debug)]
pub(super) struct SizesLine {
    pub(super) examples: u64,
    features: u64,
    classes: u64,
    /// Where the rows start.
    pub(super) end: usize,
}

impl SizesLine {
    pub(super) fn detect(name: &str, text: &[u8]) -> Result<Option<Self>, DataError> {
        let (line_end, next_line) = line_at(text, 0);
        let mut numbers = [0; 3];
        let mut at = 0;
        for number in &mut numbers {
            while at < line_end && is_space(text[at]) {
                at += 1;
            }
            let next;
            (*number, next) = digits(text, at);
            if next == at || (next < line_end && !is_space(text[next])) {
                return Ok(None);
            }
            at = next;
        }
        if !text[at..line_end].iter().all(|&b| is_space(b)) {
            return Ok(None);
        }
        let [examples, features, classes] = numbers;
        if features > ID_LIMIT || classes > ID_LIMIT || examples == u64::MAX {
            let found = excerpt(text, 0, |b| b == b'\n' || b == b'\r');
            return Err(DataError::Header { place: Place::of(name, text, 0), found });
        }
        Ok(Some(Self { examples, features, classes, end: next_line }))
    }

    /// What to say of a file with more rows than this, before its end is known.
    pub(super) fn too_many(&self, file: &str) -> DataError {
        let place = Place { file: file.into(), line: self.examples + 2, column: 1 };
        let found = format!("example {} and others", self.examples + 1);
        DataError::RowCount { place, found, declared: self.examples }
    }

    /// How many empty lines at the end are examples, if the rest fits. `end` is
    /// where the file ends.
    pub(super) fn check_row_count(&self, end: Place, rows: u64, empty_at_end: u64) -> Result<u64, DataError> {
        let (place, found) = if rows > self.examples {
            // Every line is a row, and the header is the first line.
            let place = Place { line: self.examples + 2, column: 1, ..end };
            (place, format!("example {} of {rows}", self.examples + 1))
        } else if rows + empty_at_end < self.examples {
            (end, format!("the end of the file after {} examples", rows + empty_at_end))
        } else {
            return Ok(self.examples - rows);
        };
        Err(DataError::RowCount { place, found, declared: self.examples })
    }
}

/// The strictest of what the header, the model and the format allow.
pub(super) fn limits(
    name: &str,
    header: Option<&SizesLine>,
    options: &ReadOptions,
    report: &mut ReadReport,
) -> IdLimits {
    let mut limit = |declared: Option<u64>, of_model: Option<usize>, what: &str| {
        let declared = declared.unwrap_or(ID_LIMIT);
        let of_header = if header.is_some() { LimitOf::Header } else { LimitOf::Format };
        match of_model.map(|n| n as u64) {
            Some(model) if model < declared => {
                if header.is_some() {
                    report.notes.push(format!(
                        "{name}, line 1: the header declares {declared} {what}, the model has {model}; \
                         rows that use more are errors"
                    ));
                }
                Limit { below: model, of: LimitOf::Model }
            }
            _ => Limit { below: declared, of: of_header },
        }
    };
    IdLimits {
        features: limit(header.map(|h| h.features), options.num_features, "features"),
        classes: limit(header.map(|h| h.classes), options.num_classes, "classes"),
    }
}

/// The rows of a stretch of text.
pub(super) struct ParsedRows {
    /// What could be read, in order.
    pub(super) pieces: Vec<Dataset>,
    /// How many rows could not.
    pub(super) bad_rows: u64,
    /// Why, for the first few.
    pub(super) faults: Vec<Fault>,
}

/// Text that one task parses: small against any file worth splitting, large
/// against the cost of a task.
const PIECE_BYTES: usize = 1 << 20;

impl ParsedRows {
    /// Parses whole lines. Unless bad rows are skipped, what follows the first
    /// is not parsed.
    pub(super) fn parse(
        text: &[u8],
        range: std::ops::Range<usize>,
        limits: &IdLimits,
        skip_bad_rows: bool,
    ) -> Self {
        let cuts = cut_at_line_ends(text, range);
        let first_bad_piece = AtomicUsize::new(usize::MAX);
        let pieces: Vec<Self> = cuts
            .par_windows(2)
            .enumerate()
            .map(|(i, cut)| {
                // Everything before the first bad piece is always parsed, so
                // the first fault is the same whatever the threads do.
                if first_bad_piece.load(Ordering::Relaxed) < i {
                    return Self { pieces: Vec::new(), bad_rows: 0, faults: Vec::new() };
                }
                let piece = Self::parse_piece(text, cut[0]..cut[1], limits, skip_bad_rows);
                if piece.bad_rows > 0 && !skip_bad_rows {
                    first_bad_piece.fetch_min(i, Ordering::Relaxed);
                }
                piece
            })
            .collect();
        let mut all = Self { pieces: Vec::with_capacity(pieces.len()), bad_rows: 0, faults: Vec::new() };
        for piece in pieces {
            all.pieces.extend(piece.pieces);
            all.bad_rows += piece.bad_rows;
            all.faults.extend(piece.faults);
        }
        all.faults.truncate(FIRST_ERRORS_MAX);
        all
    }

    fn parse_piece(
        text: &[u8],
        range: std::ops::Range<usize>,
        limits: &IdLimits,
        skip_bad_rows: bool,
    ) -> Self {
        let mut data = Dataset::empty(0, 0);
        // Two digits, a colon, a value of four and a space: rarely more.
        data.feature_ids.reserve(range.len() / 8);
        data.feature_values.reserve(range.len() / 8);
        let (mut bad_rows, mut faults) = (0, Vec::new());
        let mut at = range.start;
        while at < range.end {
            let (line_end, next_line) = line_at(text, at);
            let result = if line_end - at > LINE_BYTES_MAX {
                Err(Fault { at: at + LINE_BYTES_MAX, problem: RowProblem::LineTooLong })
            } else {
                parse_row(text, at, line_end, limits, &mut data)
            };
            if let Err(fault) = result {
                bad_rows += 1;
                if faults.len() < FIRST_ERRORS_MAX {
                    faults.push(fault);
                }
                if !skip_bad_rows {
                    break;
                }
            }
            at = next_line;
        }
        Self { pieces: vec![data], bad_rows, faults }
    }

    /// Rows that are all good.
    pub(super) fn of(data: Dataset) -> Self {
        Self { pieces: vec![data], bad_rows: 0, faults: Vec::new() }
    }

    pub(super) fn count(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.view().len() as u64).sum::<u64>() + self.bad_rows
    }
}

/// Where the line that starts at `at` ends, and where the next one starts.
#[inline]
fn line_at(text: &[u8], at: usize) -> (usize, usize) {
    let (end, next) = match memchr::memchr(b'\n', &text[at..]) {
        Some(length) => (at + length, at + length + 1),
        None => (text.len(), text.len()),
    };
    let carriage_return = end > at && text[end - 1] == b'\r';
    (end - usize::from(carriage_return), next)
}

fn cut_at_line_ends(text: &[u8], range: std::ops::Range<usize>) -> Vec<usize> {
    let mut cuts = vec![range.start];
    let mut at = range.start;
    while at < range.end {
        let wanted = (at + PIECE_BYTES).min(range.end);
        at = match memchr::memchr(b'\n', &text[wanted - 1..range.end]) {
            Some(length) => wanted + length,
            None => range.end,
        };
        cuts.push(at);
    }
    cuts
}

/// Where the last row that is not empty ends, and how many empty ones follow.
pub(super) fn without_empty_rows_at_end(text: &[u8], start: usize) -> (usize, u64) {
    let (mut end, mut empty_rows) = (text.len(), 0);
    loop {
        let body = &text[start..end];
        let Some(line) = body.strip_suffix(b"\n") else {
            break;
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !(line.is_empty() || line.ends_with(b"\n")) {
            break;
        }
        end = start + line.len();
        empty_rows += 1;
    }
    (end, empty_rows)
}

pub(super) fn empty_examples(count: u64) -> Dataset {
    let mut data = Dataset::empty(0, 0);
    for _ in 0..count {
        data.push([], &[]);
    }
    data
}

/// The words for a fault.
pub(super) fn describe(name: &str, text: &[u8], fault: Fault) -> DataError {
    let found = match fault.problem {
        RowProblem::LineTooLong => "no line end".to_owned(),
        _ => excerpt(text, fault.at, |byte| fault.is_end_of_word(byte)),
    };
    DataError::Row { place: Place::of(name, text, fault.at), found, problem: fault.problem }
}

#[cfg(test)]
mod tests;
