//! What was understood of a file of text, in words, and what looks wrong with it.
//!
//! Formats, columns and separators are guessed from the first line. A wrong guess
//! trains a model of nonsense without an error, so it is said aloud, with a sample,
//! and compared with how the first [`LOOKED_AT`] records look.

use std::collections::HashSet;

use super::records::Layout;
use super::{Record, TextError, TextFile};

/// Records that are looked at.
const LOOKED_AT: usize = 1000;
/// Fewer records than this say nothing about what is usual.
const FEW: usize = 10;
/// Characters of a sample.
const SAMPLE: usize = 60;
/// Separators of labels that people use.
const SEPARATORS: [&str; 3] = [";", ",", "|"];
/// What columns are called.
const COLUMN_NAMES: [&str; 24] = [
    "id",
    "text",
    "title",
    "name",
    "label",
    "labels",
    "category",
    "categories",
    "class",
    "tag",
    "tags",
    "target",
    "subject",
    "subjects",
    "topic",
    "topics",
    "description",
    "body",
    "content",
    "document",
    "sentence",
    "query",
    "keywords",
    "product",
];

/// What was understood of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Understanding {
    /// Format, columns and a sample, a line each.
    pub lines: Vec<String>,
    /// What looks wrong, a sentence each, with what to do.
    pub warnings: Vec<String>,
}

impl TextFile {
    /// What was understood of the file. Reads its beginning.
    pub fn understanding(&self) -> Result<Understanding, TextError> {
        let records: Vec<Record> = self.records()?.take(LOOKED_AT).collect::<Result<_, _>>()?;
        let mut lines = vec![self.layout().describe()];
        if let Some(first) = records.first() {
            let labels = if first.labels.is_empty() { "no label".into() } else { quoted(&first.labels) };
            lines.push(format!("its first text is {:?}, with {labels}", shortened(&first.text)));
        }
        Ok(Understanding { lines, warnings: warnings(self.layout(), &records) })
    }
}

fn warnings(layout: &Layout, records: &[Record]) -> Vec<String> {
    let mut warnings = Vec::new();
    if let (Layout::Delimited(columns), Some(first)) = (layout, records.first()) {
        let cells = std::iter::once(&first.text).chain(&first.labels);
        let is_name = |cell: &String| COLUMN_NAMES.contains(&cell.trim().to_lowercase().as_str());
        if !columns.has_header() && cells.into_iter().all(is_name) {
            warnings.push(format!(
                "line {} looks like a header ({:?}) and is taken as an example: say --header true",
                first.line, first.text
            ));
        }
    }
    if records.len() < FEW {
        return warnings;
    }
    let most = |count: usize| 10 * count > 9 * records.len();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if let (true, Some(first)) =
        (most(records.iter().filter(|r| is_number(r.text.trim())).count()), records.first())
    {
        warnings.push(format!(
            "the texts are numbers, such as {:?}: if they are ids, name the text's column with --text-column",
            first.text
        ));
    }
    let labels = || records.iter().flat_map(|record| &record.labels);
    let (count, distinct) = (labels().count(), labels().collect::<HashSet<_>>().len());
    if 2 * records.iter().filter(|record| record.labels.len() > 1).count() < records.len() {
        for separator in SEPARATORS {
            let with = labels().filter(|label| label.contains(separator)).count();
            if let (true, Some(label)) = (2 * with > count, labels().find(|l| l.contains(separator))) {
                warnings.push(format!(
                    "most labels contain {separator:?}, such as {:?}: if it stands between labels, say \
                     --label-separator {separator:?}",
                    shortened(label)
                ));
            }
        }
    }
    if records.len() >= 10 * FEW && 100 * distinct > 95 * count.max(records.len()) {
        warnings.push(
            "nearly every label occurs once: if it is not the labels' column, name that with --labels-column"
                .into(),
        );
    }
    warnings
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SAMPLE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

fn quoted(names: &[String]) -> String {
    let all: Vec<String> = names.iter().take(5).map(|name| format!("{:?}", shortened(name))).collect();
    let more = if names.len() > 5 { ", …" } else { "" };
    format!("the label{} {}{more}", if names.len() > 1 { "s" } else { "" }, all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::ReadOptions;

    fn understood(content: &str) -> Understanding {
        TextFile::from_bytes("m", content.as_bytes(), &ReadOptions::default())
            .unwrap()
            .understanding()
            .unwrap()
    }

    fn rows(row: impl Fn(usize) -> String) -> String {
        (0..200).map(row).collect()
    }

    #[test]
    fn format_columns_and_a_sample_are_said() {
        let found = understood("label,text\nMunich|Bavaria,\"München, Isar\"\n");
        assert_eq!(
            found.lines,
            [
                "columns separated by commas, named on line 1; the text is column 2, \"text\", labels are column 1, \
                 \"label\", separated by \"|\"",
                "its first text is \"München, Isar\", with the labels \"Munich\", \"Bavaria\"",
            ]
        );
        assert_eq!(found.warnings, Vec::<String>::new());
        let found = understood("{\"text\": \"a\", \"labels\": []}\n");
        assert_eq!(
            found.lines[0],
            "a JSON object a line; the text is \"text\", labels are \"labels\" or \"label\""
        );
        assert_eq!(found.lines[1], "its first text is \"a\", with no label");
        assert_eq!(
            understood("__label__a b\n").lines[0],
            "fastText's format; words that begin with \"__label__\" are labels"
        );
    }

    #[test]
    fn what_looks_wrong_is_said() {
        let warns = |content: &str, word: &str| {
            let found = understood(content).warnings;
            assert!(found.len() == 1 && found[0].contains(word), "{word}: {found:?}");
        };
        warns("title\tsubjects\nRed brick\tbrick\n", "--header true");
        warns(&rows(|i| format!("{i}\tlabel{}\n", i % 7)), "--text-column");
        warns(&rows(|i| format!("text {i}\ta{};b{}\n", i % 7, i % 3)), "--label-separator \";\"");
        warns(&rows(|i| format!("text {i}\tlabel{i}\n")), "--labels-column");
    }

    #[test]
    fn ordinary_files_are_not_warned_of() {
        assert!(understood(&rows(|i| format!("text {i}\tlabel{}|x\n", i % 7))).warnings.is_empty());
        assert!(
            understood(&rows(|i| format!("some, text {i}\tlabel, {}\n", i % 7 * (i % 2)))).warnings.len()
                <= 1
        );
        assert!(understood("text\tlabels\na\tb\n").warnings.is_empty());
    }
}
