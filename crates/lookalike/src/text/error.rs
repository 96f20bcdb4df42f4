//! What can be wrong with text, its file, or what was saved from it.

use std::path::Path;

/// An error of the text reader or the vectoriser. Lines and columns count from
/// 1; columns count characters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The operating system, or the decompressor, refused.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The first line fits no format.
    #[error(
        "{file}:{line}: cannot tell the format from the first line, {found:?}; expected columns \
         separated by tabs, commas or semicolons, a JSON object, or words among which some begin \
         with `__label__`; name the format if it is one of these"
    )]
    UnknownFormat {
        /// The file.
        file: String,
        /// The line looked at.
        line: u64,
        /// The start of that line.
        found: String,
    },
    /// A file of another kind.
    #[error("{file}: this is {found}; {advice}")]
    Foreign {
        /// The file.
        file: String,
        /// What it is.
        found: &'static str,
        /// What to make of it.
        advice: &'static str,
    },
    /// A file without a single record.
    #[error("{file}: no record found, the file is empty; expected at least one line of text")]
    NoRecord {
        /// The file.
        file: String,
    },
    /// Between two passes over a file it became another one.
    #[error("{file}: the file was changed while it was read; leave it alone until this is done")]
    Changed {
        /// The file.
        file: String,
    },
    /// A column asked for by name is not in the header.
    #[error(
        "{file}:{line}: no column is called {wanted:?}; the header has {found}; \
         name one of these, or give the column's number"
    )]
    MissingColumn {
        /// The file.
        file: String,
        /// The header's line.
        line: u64,
        /// The name asked for.
        wanted: String,
        /// The names found.
        found: String,
    },
    /// A weight that is none.
    #[error("{file}:{line}: found the weight {found:?}, expected a finite number, 0 or more")]
    Weight {
        /// The file.
        file: String,
        /// The record's first line.
        line: u64,
        /// What stands there.
        found: String,
    },
    /// A row has too few columns.
    #[error(
        "{file}:{line}: found {found} column(s), expected at least {expected}; \
         check the separator of columns and the number of the column"
    )]
    TooFewColumns {
        /// The file.
        file: String,
        /// The row's first line.
        line: u64,
        /// Columns found.
        found: usize,
        /// Columns needed.
        expected: usize,
    },
    /// A quote that is never closed.
    #[error(
        "{file}:{line}:{column}: this quote is never closed; write a quote inside a quoted field \
         twice (\"\"), or read the file without quoting if its quotes are plain text"
    )]
    UnbalancedQuote {
        /// The file.
        file: String,
        /// Where the quote opens.
        line: u64,
        /// Where the quote opens.
        column: u64,
    },
    /// Something other than a separator follows a closing quote.
    #[error(
        "{file}:{line}:{column}: found {found:?} after a closing quote, expected the end of the \
         field; write a quote inside a quoted field twice (\"\"), or read the file without quoting"
    )]
    AfterQuote {
        /// The file.
        file: String,
        /// Where it stands.
        line: u64,
        /// Where it stands.
        column: u64,
        /// What was found.
        found: char,
    },
    /// Bytes that are not UTF-8.
    #[error(
        "{file}:{line}:{column}: byte 0x{found:02x} is not UTF-8; \
         convert the file, for example with `iconv -f latin1 -t utf-8`"
    )]
    InvalidUtf8 {
        /// The file.
        file: String,
        /// Where it stands.
        line: u64,
        /// Where it stands.
        column: u64,
        /// The byte.
        found: u8,
    },
    /// A line that is not a JSON object.
    #[error("{file}:{line}:{column}: not a JSON object on one line: {message}")]
    Json {
        /// The file.
        file: String,
        /// The line.
        line: u64,
        /// The column where the parser stopped.
        column: u64,
        /// What the parser said.
        message: String,
    },
    /// A JSON object without a wanted field, or with one of another type.
    #[error("{file}:{line}: field {field:?} is {found}, expected {expected}{advice}")]
    JsonField {
        /// The file.
        file: String,
        /// The line.
        line: u64,
        /// The field.
        field: String,
        /// What was found.
        found: String,
        /// What was expected.
        expected: &'static str,
        /// Which fields there are, where it is missing.
        advice: String,
    },
    /// A record beyond any sensible length.
    #[error(
        "{file}:{line}: a record of more than {limit_bytes} bytes begins here; \
         expected a line a record: check that this is a text file"
    )]
    TooLong {
        /// The file.
        file: String,
        /// The record's first line.
        line: u64,
        /// The longest record allowed.
        limit_bytes: usize,
    },
    /// A `.npy` matrix that cannot be read.
    #[error("{file}: {found}; expected {expected}")]
    Npy {
        /// The file.
        file: String,
        /// What was found.
        found: String,
        /// What was expected, and what to do.
        expected: String,
    },
    /// A matrix and its labels have different lengths.
    #[error(
        "{labels_file} has {lines} line(s) but {matrix_file} has {rows} row(s); \
         expected a line of labels for each row"
    )]
    RowsDiffer {
        /// The labels.
        labels_file: String,
        /// Their lines.
        lines: u64,
        /// The matrix.
        matrix_file: String,
        /// Its rows.
        rows: u64,
    },
    /// Options that contradict themselves or the input.
    #[error("{0}")]
    Options(String),
    /// A saved file that is not what was written.
    #[error("{file}:{line}: {found}; the file is damaged or was edited: restore it, or train again")]
    Corrupted {
        /// The file.
        file: String,
        /// The line, 0 if it is about the whole file.
        line: u64,
        /// What is wrong with it.
        found: String,
    },
    /// More features or labels than ids can number.
    #[error("more than {limit} distinct {what}; use `max_features` or `hash_bits` to bound them")]
    TooMany {
        /// What is too many.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
}

impl TextError {
    /// An error of the operating system on a file.
    pub(super) fn io(file: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { file: file.into(), source }
    }

    /// A saved file that is not what was written.
    pub(super) fn corrupted(file: &Path, line: usize, found: impl Into<String>) -> Self {
        Self::Corrupted { file: file.display().to_string(), line: line as u64, found: found.into() }
    }
}

/// The start of a text, short enough for a message.
pub(super) fn excerpt(text: &str) -> String {
    const LENGTH: usize = 60;
    let mut short: String = text.chars().take(LENGTH).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
