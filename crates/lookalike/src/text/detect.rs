//! Format, header and columns, told from the head of a file.

use super::error::excerpt;
use super::records::Layout;
use super::source::{Chunks, Framing, RecordChunk, Rereadable};
use super::{Column, Format, ReadOptions, TextError, delimited, json_lines};

/// Finds the layout of a file: what the options say, and from its first line
/// what they do not.
pub(super) fn layout(source: &Rereadable, options: &ReadOptions) -> Result<Layout, TextError> {
    let file = source.name();
    let head = head(source)?;
    if let Some((found, advice)) = foreign(&head.bytes) {
        return Err(TextError::Foreign { file, found, advice });
    }
    // Some row of it may be one of those to be left out.
    let head = if options.skip_bad_rows { head.lossy() } else { head };
    let text = head.text(&file)?;
    let Some((index, first)) = text.lines().enumerate().find(|(_, l)| !l.trim().is_empty()) else {
        return Err(TextError::NoRecord { file });
    };
    let format = match options.format.or_else(|| detect(first, options)) {
        Some(format) => format,
        None => {
            let (line, found) = (index as u64 + 1, excerpt(first));
            return Err(TextError::UnknownFormat { file, line, found });
        }
    };
    if options.weight.is_some() && matches!(format, Format::FastText | Format::Lines) {
        return Err(TextError::Options(format!(
            "{file}: this format has no column of weights; use TSV, CSV or JSON lines"
        )));
    }
    match format {
        Format::Tsv => delimited::Columns::new(b'\t', options, &head, &file).map(Layout::Delimited),
        Format::Csv => {
            delimited::Columns::new(csv_delimiter(first), options, &head, &file).map(Layout::Delimited)
        }
        Format::JsonLines => json_lines::Fields::new(options).map(Layout::JsonLines),
        Format::FastText => Ok(Layout::FastText { prefix: options.label_prefix.clone() }),
        Format::Lines => Ok(Layout::Lines),
    }
}

/// The first chunk, cut after a whole line. It serves detection alone, so a
/// quoted field that runs beyond it does no harm unless it is in the header.
fn head(source: &Rereadable) -> Result<RecordChunk, TextError> {
    let chunk = Chunks::new(source, Framing::Lines)?.next_chunk()?;
    chunk.ok_or_else(|| TextError::NoRecord { file: source.name() })
}

/// What people have that is no text with a record a line, told from its first bytes, and
/// what to make of it.
fn foreign(head: &[u8]) -> Option<(&'static str, &'static str)> {
    let array = || {
        let text = head.trim_ascii_start().strip_prefix(b"[")?.trim_ascii_start();
        text.first().filter(|&&byte| byte == b'{')
    };
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        Some(("text in UTF-16", "convert it to UTF-8, for example with `iconv -f utf-16 -t utf-8`"))
    } else if head.starts_with(b"PK\x03\x04") {
        Some(("a ZIP archive, as .xlsx and .npz are", "save a sheet as CSV, an array as .npy"))
    } else if head.starts_with(b"\x93NUMPY") {
        Some((
            "a NumPy array",
            "text is expected here; write labels a line a row, as `numpy.savetxt(…, fmt=\"%s\")` does",
        ))
    } else if head.starts_with(b"PAR1") {
        Some(("a Parquet file", "save it as CSV or JSON lines"))
    } else if array().is_some() {
        Some(("an array in JSON", "write an object a line, as `jq -c '.[]'` does"))
    } else {
        None
    }
}

/// What stands between the columns of a CSV file: where a comma is the decimal mark,
/// spreadsheets write semicolons.
fn csv_delimiter(first_line: &str) -> u8 {
    if !first_line.contains(',') && first_line.contains(';') { b';' } else { b',' }
}

/// The format of a first line. A comma is common in plain text, so where labels
/// are not needed only a header makes it a separator.
fn detect(line: &str, options: &ReadOptions) -> Option<Format> {
    let labelled = options.with_labels;
    let is_marked = |word: &str| word.starts_with(options.label_prefix.as_str());
    if line.trim_start().starts_with('{') {
        Some(Format::JsonLines)
    } else if line.split_whitespace().any(is_marked) {
        Some(Format::FastText)
    } else if line.contains('\t') {
        Some(Format::Tsv)
    } else if line.contains([',', ';'])
        && (labelled || names_columns(line.split(char::from(csv_delimiter(line))), options))
    {
        Some(Format::Csv)
    } else if labelled {
        None
    } else {
        Some(Format::Lines)
    }
}

/// Whether a first row names the columns: see [`ReadOptions::header`].
pub(super) fn names_columns<'a>(mut cells: impl Iterator<Item = &'a str>, options: &ReadOptions) -> bool {
    let by_name = |column: &Option<Column>| matches!(column, Some(Column::Name(_)));
    let asked_by_name = by_name(&options.text)
        || by_name(&options.weight)
        || (options.with_labels && by_name(&options.labels));
    let known = |cell: &str| matches!(cell.trim().trim_matches('"'), "text" | "label" | "labels");
    options.header.unwrap_or_else(|| asked_by_name || cells.any(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_line_tells_the_format() {
        let labelled = ReadOptions::default();
        let unlabelled = ReadOptions { with_labels: false, ..Default::default() };
        for (line, with, without) in [
            ("{\"text\": \"a\"}", Some(Format::JsonLines), Some(Format::JsonLines)),
            ("__label__a b", Some(Format::FastText), Some(Format::FastText)),
            ("a, b\tc", Some(Format::Tsv), Some(Format::Tsv)),
            ("a, b", Some(Format::Csv), Some(Format::Lines)),
            ("text,labels", Some(Format::Csv), Some(Format::Csv)),
            ("a; b", Some(Format::Csv), Some(Format::Lines)),
            ("text;labels", Some(Format::Csv), Some(Format::Csv)),
            ("[a] b", None, Some(Format::Lines)),
            ("a", None, Some(Format::Lines)),
            ("10 200 30", None, Some(Format::Lines)),
        ] {
            assert_eq!(detect(line, &labelled), with, "{line}");
            assert_eq!(detect(line, &unlabelled), without, "{line}");
        }
    }

    #[test]
    fn what_is_no_text_is_named() {
        let utf16: Vec<u8> = "\u{feff}a\tb\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (content, word) in [
            (&utf16[..], "utf-16"),
            (b"PK\x03\x04\x14\0", "CSV"),
            (b"\x93NUMPY\x01\0", "savetxt"),
            (b"PAR1\x15", "JSON lines"),
            (b"\n[\n  {\"text\": \"a\"}]", "jq"),
        ] {
            let source = Rereadable::Memory { name: "m".into(), bytes: content.into() };
            for skip_bad_rows in [false, true] {
                let options = ReadOptions { skip_bad_rows, ..Default::default() };
                match layout(&source, &options) {
                    Err(error @ TextError::Foreign { .. }) => {
                        assert!(error.to_string().contains(word), "{error}")
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn nothing_and_riddles_are_refused() {
        for content in [&b""[..], b"\n \n"] {
            let source = Rereadable::Memory { name: "m".into(), bytes: content.into() };
            assert!(matches!(layout(&source, &ReadOptions::default()), Err(TextError::NoRecord { .. })));
        }
        let source = Rereadable::Memory { name: "m".into(), bytes: b"\nriddle\n"[..].into() };
        match layout(&source, &ReadOptions::default()) {
            Err(TextError::UnknownFormat { line: 2, found, .. }) => assert_eq!(found, "riddle"),
            other => panic!("{other:?}"),
        }
    }
}
