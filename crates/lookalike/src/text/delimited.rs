//! Columns separated by tabs, commas or semicolons, quoted as RFC 4180 says.
//!
//! A field that begins with `"` ends at the next `"` that is not doubled; it
//! may hold separators and line ends. A quote elsewhere is a plain character.
//! Blank lines are skipped.

use std::borrow::Cow;

use memchr::{memchr_iter, memchr2};

use super::detect::names_columns;
use super::records::{split_labels, weight_of};
use super::source::{Framing, RecordChunk, closing_quote, position};
use super::{Column, ReadOptions, Record, TextError};

/// Which columns matter, and what stands between them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Columns {
    pub(super) delimiter: u8,
    quotes: bool,
    /// The line of the header, which is no record.
    header_line: Option<u64>,
    /// Column of the text, from 0.
    text: usize,
    /// Column of the labels, from 0.
    labels: Option<usize>,
    /// Column of the weights, from 0.
    pub(super) weight: Option<usize>,
    label_separator: String,
    /// What the header calls the columns.
    names: Vec<String>,
}

/// A row: its fields and the line it begins on.
struct DelimitedRow<'a> {
    fields: Vec<Cow<'a, str>>,
    line: u64,
}

impl Columns {
    /// Resolves the columns against the first row of the file.
    pub(super) fn new(
        delimiter: u8,
        options: &ReadOptions,
        head: &RecordChunk,
        file: &str,
    ) -> Result<Self, TextError> {
        let mut layout = Self {
            delimiter,
            quotes: options.quotes,
            header_line: None,
            text: 0,
            labels: None,
            weight: None,
            label_separator: options.label_separator.clone(),
            names: Vec::new(),
        };
        let first = layout.rows(head, file)?.next().transpose()?;
        let first = first.ok_or_else(|| TextError::NoRecord { file: file.into() })?;
        let names: Vec<&str> = first.fields.iter().map(|cell| cell.trim()).collect();
        let has_header = names_columns(names.iter().copied(), options);
        layout.header_line = has_header.then_some(first.line);

        let find = |column: &Option<Column>, usual: &[&str], otherwise: usize| match column {
            Some(Column::Number(number)) => Ok(number.saturating_sub(1)),
            Some(Column::Name(name)) => {
                names.iter().position(|cell| cell == name).ok_or_else(|| TextError::MissingColumn {
                    file: file.into(),
                    line: first.line,
                    wanted: name.clone(),
                    found: names.join(", "),
                })
            }
            None => {
                let named = names.iter().position(|cell| has_header && usual.contains(cell));
                Ok(named.unwrap_or(otherwise))
            }
        };
        layout.text = find(&options.text, &["text"], 0)?;
        if options.with_labels {
            // The other one of the first two columns, if the text is one of them.
            let otherwise = usize::from(layout.text != 1);
            layout.labels = Some(find(&options.labels, &["labels", "label"], otherwise)?);
            if layout.labels == Some(layout.text) {
                return Err(TextError::Options(format!(
                    "{file}: text and labels are both column {}; name two different columns",
                    layout.text + 1
                )));
            }
        }
        if options.weight.is_some() {
            layout.weight = Some(find(&options.weight, &[], 0)?);
        }
        let names = names.into_iter().map(String::from).collect();
        layout.names = if has_header { names } else { Vec::new() };
        Ok(layout)
    }

    pub(super) fn has_header(&self) -> bool {
        self.header_line.is_some()
    }

    /// What it is, in words.
    pub(super) fn describe(&self) -> String {
        let column = |at: usize| match self.names.get(at) {
            Some(name) => format!("column {}, {name:?}", at + 1),
            None => format!("column {}", at + 1),
        };
        let separated = match self.delimiter {
            b'\t' => "tabs",
            b';' => "semicolons",
            _ => "commas",
        };
        let header = match self.header_line {
            Some(line) => format!("named on line {line}"),
            None => "without a header".into(),
        };
        let labels = self.labels.map_or(String::new(), |at| {
            format!(", labels are {}, separated by {:?}", column(at), self.label_separator)
        });
        format!("columns separated by {separated}, {header}; the text is {}{labels}", column(self.text))
    }

    pub(super) fn framing(&self) -> Framing {
        if self.quotes { Framing::Quoted { delimiter: self.delimiter } } else { Framing::Lines }
    }

    pub(super) fn parse(&self, chunk: &RecordChunk, file: &str) -> Result<Vec<Record>, TextError> {
        let expected = self.text.max(self.labels.unwrap_or(0)).max(self.weight.unwrap_or(0)) + 1;
        let mut records = Vec::new();
        for row in self.rows(chunk, file)? {
            let DelimitedRow { mut fields, line } = row?;
            if self.header_line == Some(line) {
                continue;
            }
            if fields.len() < expected {
                let (file, found) = (file.into(), fields.len());
                return Err(TextError::TooFewColumns { file, line, found, expected });
            }
            let labels = self.labels.map(|at| split_labels(&fields[at], &self.label_separator));
            let weight = self.weight.map(|at| weight_of(&fields[at], file, line)).transpose()?.flatten();
            let text = std::mem::take(&mut fields[self.text]).into_owned();
            records.push(Record { text, labels: labels.unwrap_or_default(), weight, line });
        }
        Ok(records)
    }

    /// The rows of a chunk; blank lines are none.
    fn rows<'s, 'c>(
        &'s self,
        chunk: &'c RecordChunk,
        file: &'s str,
    ) -> Result<impl Iterator<Item = Result<DelimitedRow<'c>, TextError>> + use<'s, 'c>, TextError> {
        let text = chunk.text(file)?;
        let (mut at, mut line) = (0, chunk.line);
        Ok(std::iter::from_fn(move || {
            while at < text.len() {
                let row = self.row(text, at, line, chunk.line, file);
                let (row, end) = match row {
                    Ok(found) => found,
                    Err(e) => {
                        at = text.len();
                        return Some(Err(e));
                    }
                };
                line += memchr_iter(b'\n', &text.as_bytes()[at..end]).count() as u64;
                at = end;
                if row.fields.len() > 1 || !row.fields[0].trim().is_empty() {
                    return Some(Ok(row));
                }
            }
            None
        }))
    }

    /// The row at `at`, and where the next one begins.
    fn row<'a>(
        &self,
        text: &'a str,
        mut at: usize,
        line: u64,
        chunk_line: u64,
        file: &str,
    ) -> Result<(DelimitedRow<'a>, usize), TextError> {
        let bytes = text.as_bytes();
        let mut fields = Vec::with_capacity(2);
        loop {
            let quoted = self.quotes && bytes.get(at) == Some(&b'"');
            let content = if quoted {
                let Some(close) = closing_quote(bytes, at) else {
                    let (line, column) = position(bytes, at, chunk_line);
                    return Err(TextError::UnbalancedQuote { file: file.into(), line, column });
                };
                let inside = &text[at + 1..close];
                at = close + 1;
                Some(inside)
            } else {
                None
            };
            let rest = memchr2(self.delimiter, b'\n', &bytes[at..]);
            let end = rest.map_or(bytes.len(), |length| at + length);
            let ends_row = rest.is_none() || bytes[end] == b'\n';
            let mut plain = &text[at..end];
            if ends_row {
                plain = plain.strip_suffix('\r').unwrap_or(plain);
            }
            match (content, plain.chars().next()) {
                (None, _) => fields.push(Cow::Borrowed(plain)),
                (Some(inside), None) if inside.contains('"') => {
                    fields.push(Cow::Owned(inside.replace("\"\"", "\"")));
                }
                (Some(inside), None) => fields.push(Cow::Borrowed(inside)),
                (Some(_), Some(found)) => {
                    let (line, column) = position(bytes, at, chunk_line);
                    return Err(TextError::AfterQuote { file: file.into(), line, column, found });
                }
            }
            at = (end + 1).min(bytes.len());
            if ends_row {
                return Ok((DelimitedRow { fields, line }, at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Format, TextFile};

    fn read(content: &str, options: &ReadOptions) -> Result<Vec<Record>, TextError> {
        TextFile::from_bytes("m", content.as_bytes(), options)?.records()?.collect()
    }

    fn csv() -> ReadOptions {
        ReadOptions { format: Some(Format::Csv), ..Default::default() }
    }

    #[test]
    fn quotes_hold_separators_line_ends_and_quotes() {
        let content = "\"a, \"\"b\"\"\nc\",x|y\r\n\nd \"e\",\"z\"\nlast,";
        let records = read(content, &csv()).unwrap();
        let seen: Vec<_> = records.iter().map(|r| (r.line, r.text.as_str(), r.labels.join("+"))).collect();
        assert_eq!(
            seen,
            [(1, "a, \"b\"\nc", "x+y".into()), (4, "d \"e\"", "z".into()), (5, "last", String::new())]
        );
    }

    #[test]
    fn semicolons_separate_where_the_first_line_has_no_comma() {
        let content = "text;labels\n\"a; b\";x|y\nc, d;z\n";
        for options in [csv(), ReadOptions::default()] {
            let records = read(content, &options).unwrap();
            let seen: Vec<_> = records.iter().map(|r| (r.text.as_str(), r.labels.join("+"))).collect();
            assert_eq!(seen, [("a; b", "x+y".into()), ("c, d", "z".to_string())]);
        }
        assert_eq!(read("a;b,c\n", &csv()).unwrap()[0].text, "a;b");
    }

    #[test]
    fn columns_by_name_number_and_header() {
        let content = "id,Label,Name\n1,x y,alpha\n2,y,beta\n";
        let named = ReadOptions {
            text: Some(Column::Name("Name".into())),
            labels: Some("Label".parse().unwrap()),
            label_separator: " ".into(),
            ..Default::default()
        };
        let records = read(content, &named).unwrap();
        assert_eq!((records.len(), records[0].text.as_str(), records[0].line), (2, "alpha", 2));
        assert_eq!(records[0].labels, ["x", "y"]);

        let numbered = ReadOptions {
            text: Some("3".parse().unwrap()),
            labels: Some("2".parse().unwrap()),
            header: Some(true),
            ..Default::default()
        };
        assert_eq!(read(content, &numbered).unwrap()[1].text, "beta");
        let headless = ReadOptions { header: Some(false), ..numbered };
        assert_eq!(read(content, &headless).unwrap()[0].text, "Name");
    }

    #[test]
    fn mistakes_are_placed() {
        let wrong_name = ReadOptions { text: Some(Column::Name("title".into())), ..csv() };
        match read("text,labels\na,b\n", &wrong_name) {
            Err(TextError::MissingColumn { line: 1, found, .. }) => {
                assert_eq!(found, "text, labels");
            }
            other => panic!("{other:?}"),
        }
        let wrong_number = ReadOptions { labels: Some(Column::Number(7)), ..csv() };
        match read("a,b\nc,d\n", &wrong_number) {
            Err(TextError::TooFewColumns { line: 1, found: 2, expected: 7, .. }) => {}
            other => panic!("{other:?}"),
        }
        match read("a,b\nc\n", &csv()) {
            Err(TextError::TooFewColumns { line: 2, found: 1, expected: 2, .. }) => {}
            other => panic!("{other:?}"),
        }
        match read("a,b\nc,\"d\ne,f\n", &csv()) {
            Err(TextError::UnbalancedQuote { line: 2, column: 3, .. }) => {}
            other => panic!("{other:?}"),
        }
        match read("a,b\n\"c\"x,d\n", &csv()) {
            Err(TextError::AfterQuote { line: 2, column: 4, found: 'x', .. }) => {}
            other => panic!("{other:?}"),
        }
        let same = ReadOptions { labels: Some(Column::Number(1)), ..csv() };
        assert!(matches!(read("a,b\n", &same), Err(TextError::Options(_))));
        let plain = ReadOptions { quotes: false, ..csv() };
        assert_eq!(read("a,b\nc,\"d\n", &plain).unwrap()[1].labels, ["\"d"]);
    }
}
