//! What can be wrong with a file of examples, in words a person can act on.
//!
//! Every message says where (file, line, column), what was found, what was
//! expected and what to do. Columns count bytes from 1, as editors do for
//! plain text.

use std::fmt;
use std::io;

use thiserror::Error;

use super::law::BrokenLaw;

/// The longest line that is read, in bytes: 64 MiB. The largest rows of
/// published data sets are below one; a longer line is a file without line
/// ends, or no text at all.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// More than that without a line end, and nobody reads on: a device, or a bomb.
pub const ENDLESS_BYTES: usize = 16 * LINE_BYTES_MAX;

/// Ids are stored in 32 bits, and the last one is left free as a marker.
pub const ID_LIMIT: u64 = u32::MAX as u64;

/// A place in a text file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's path, or `<stdin>`.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The byte within the line, from 1.
    pub column: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}, column {}", self.file, self.line, self.column)
    }
}

impl Place {
    /// The line after the last line end of `text`.
    pub(crate) fn end(file: &str, text: &[u8]) -> Self {
        Self { column: 1, ..Self::of(file, text, text.len()) }
    }

    /// The place of byte `offset` of `text`. O(offset): only called for errors.
    pub(crate) fn of(file: &str, text: &[u8], offset: usize) -> Self {
        let before = &text[..offset.min(text.len())];
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
        Self {
            file: file.to_owned(),
            line: 1 + memchr::memchr_iter(b'\n', before).count() as u64,
            column: 1 + (before.len() - line_start) as u64,
        }
    }
}

/// Who sets the largest id that a row may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOf {
    /// The header of the file itself.
    Header,
    /// The model that the file is read for.
    Model,
    /// The width of an id.
    Format,
}

impl LimitOf {
    fn because(self, limit: u64, what: &str) -> String {
        match self {
            Self::Header => {
                format!("the header declares {limit} {what}: correct the header or the row")
            }
            Self::Model => {
                format!("the model has {limit} {what}: prepare the file with the model's ids, or train on it")
            }
            Self::Format => format!("ids have 32 bits: renumber the {what}"),
        }
    }
}

/// What is wrong with one row of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowProblem {
    /// No label where one must stand.
    Label,
    /// No `feature:value` where one must stand.
    Feature,
    /// No number after the colon.
    Value,
    /// A label below zero.
    NegativeLabel,
    /// A feature below zero.
    NegativeFeature,
    /// A value that is NaN, infinite or too large.
    NotFinite,
    /// A label at or past the limit.
    LabelBeyond(u64, LimitOf),
    /// A feature at or past the limit.
    FeatureBeyond(u64, LimitOf),
    /// A feature that stands twice in the row.
    DuplicateFeature,
    /// More than [`LINE_BYTES_MAX`] bytes without a line end.
    LineTooLong,
}

impl fmt::Display for RowProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Label => f.write_str(
                "expected a label, a whole number from 0 (a row is `label,label,… feature:value feature:value …`): \
                 correct the row",
            ),
            Self::Feature => f.write_str(
                "expected `feature:value`, the feature a whole number from 0 \
                 (a row is `label,label,… feature:value feature:value …`): correct the row",
            ),
            Self::Value => f.write_str("expected a decimal number after the colon: correct the value"),
            Self::NegativeLabel => f.write_str("expected a label from 0: renumber the labels"),
            Self::NegativeFeature => f.write_str("expected a feature from 0: renumber the features"),
            Self::NotFinite => f.write_str(
                "expected a finite number between -3.4e38 and 3.4e38: remove or replace the value",
            ),
            Self::LabelBeyond(limit, of) => {
                write!(f, "expected a label below {limit}, because {}", of.because(limit, "classes"))
            }
            Self::FeatureBeyond(limit, of) => {
                write!(f, "expected a feature below {limit}, because {}", of.because(limit, "features"))
            }
            Self::DuplicateFeature => f.write_str(
                "the second time in this row; expected every feature once: remove one or add up their values",
            ),
            Self::LineTooLong => write!(
                f,
                "expected a line end within {} MiB: is this a text file with one example a line?",
                LINE_BYTES_MAX >> 20
            ),
        }
    }
}

/// What is wrong with a packed file.
#[derive(Debug, Error)]
pub enum PackedProblem {
    /// Not the first bytes of a packed file.
    #[error("expected a packed file, found other content: make one with `lookalike data pack`")]
    Magic,
    /// A version this program does not know.
    #[error("found format version {found}, expected {expected}: pack the text again with this program")]
    Version {
        /// The file's version.
        found: u64,
        /// The version this program writes.
        expected: u64,
    },
    /// The header's checksum does not match.
    #[error("the header is damaged (its checksum does not match): copy or pack the file again")]
    Header,
    /// The file is not as long as its header says.
    #[error(
        "found {found} bytes, expected {expected}: the file was cut off or changed; copy or pack it again"
    )]
    Length {
        /// The file's length.
        found: u64,
        /// The length that its header tells.
        expected: u64,
    },
    /// A section's checksum does not match.
    #[error("the section of {section} is damaged (its checksum does not match): copy or pack the file again")]
    Section {
        /// What the section holds.
        section: &'static str,
    },
    /// The content breaks the law of examples.
    #[error("{0}; the file was damaged or not written by this program: pack the text again")]
    Law(#[from] BrokenLaw),
    /// Ids beyond those of the model.
    #[error("{0}: the file was packed for a larger model")]
    BeyondModel(BrokenLaw),
    /// Packed, but not a plain file.
    #[error(
        "expected a plain file, found packed examples in a pipe or compressed: write them to a file as they are"
    )]
    NotPlain,
}

/// Why examples could not be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file that is missing, a folder, or may not be read.
    #[error("{file}: expected a readable file, found: {reason}; check the path and its permissions")]
    Unreadable {
        /// The file.
        file: String,
        /// What the operating system says.
        reason: io::Error,
    },
    /// A file that cannot be written.
    #[error("{file}: cannot be written: {reason}; check the folder, its permissions and the free space")]
    Unwritable {
        /// The file.
        file: String,
        /// What the operating system says.
        reason: io::Error,
    },
    /// Nothing but white space.
    #[error(
        "{0}: the file is empty; expected one example a line, `label,label,… feature:value feature:value …`"
    )]
    Empty(Place),
    /// A line without end.
    #[error(
        "{0}: the line goes on for more than {ENDLESS_BYTES} bytes: this is no text; name a file of examples"
    )]
    Endless(Place),
    /// Compressed data that ends in the middle or is damaged.
    #[error(
        "{place}: the {format} data is cut off or damaged here ({reason}), expected it to go on: copy or compress the file again"
    )]
    Damaged {
        /// Where the readable text ends.
        place: Place,
        /// The compression.
        format: &'static str,
        /// What the decompressor says.
        reason: io::Error,
    },
    /// A row that cannot be read.
    #[error("{place}: found {found}; {problem}")]
    Row {
        /// Where.
        place: Place,
        /// What stands there.
        found: String,
        /// What should.
        problem: RowProblem,
    },
    /// A header with impossible sizes.
    #[error(
        "{place}: found a header of {found}; expected `examples features classes` with at most {ID_LIMIT} features and classes: correct the header"
    )]
    Header {
        /// Where.
        place: Place,
        /// The header.
        found: String,
    },
    /// More or fewer rows than the header says.
    #[error(
        "{place}: found {found}, expected {declared} as the header declares: correct the header, or restore the missing rows"
    )]
    RowCount {
        /// The first row too many, or the end of the file.
        place: Place,
        /// What stands there.
        found: String,
        /// The header's number of examples.
        declared: u64,
    },
    /// A packed file that cannot be used.
    #[error("{file}: {problem}")]
    Packed {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: PackedProblem,
    },
    /// Options that cannot be met.
    #[error("{0}")]
    Option(String),
}

/// At most 40 characters of what stands at `at`, up to a delimiter, in quotes.
pub(crate) fn excerpt(text: &[u8], at: usize, is_end: impl Fn(u8) -> bool) -> String {
    const CHARACTERS_MAX: usize = 40;
    let rest = &text[at.min(text.len())..];
    let window = &rest[..rest.len().min(4 * CHARACTERS_MAX)];
    let end = window.iter().position(|&b| is_end(b)).unwrap_or(window.len());
    if end == 0 {
        return match rest.first() {
            None | Some(b'\n' | b'\r') => "the end of the line".to_owned(),
            Some(b' ' | b'\t') => "a space".to_owned(),
            Some(&b) => format!("`{}`", (b as char).escape_debug()),
        };
    }
    let words = String::from_utf8_lossy(&window[..end]);
    let shown: String = words.chars().take(CHARACTERS_MAX).flat_map(char::escape_debug).collect();
    let more = if words.chars().count() > CHARACTERS_MAX || end == 4 * CHARACTERS_MAX { "…" } else { "" };
    format!("`{shown}{more}`")
}
