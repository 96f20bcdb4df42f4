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
        Format::Csv => delimited::Columns::new(b',', options, &head, &file).map(Layout::Delimited),
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
    } else if line.contains(',') && (labelled || names_columns(line.split(','), options)) {
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
            ("a", None, Some(Format::Lines)),
            ("10 200 30", None, Some(Format::Lines)),
        ] {
            assert_eq!(detect(line, &labelled), with, "{line}");
            assert_eq!(detect(line, &unlabelled), without, "{line}");
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
