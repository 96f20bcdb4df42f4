//! fastText's format: a line an example, words that begin with a prefix
//! (`__label__`) are labels wherever they stand, the other words are the text.
//! Blank lines are skipped.

use super::records::lines;
use super::source::RecordChunk;
use super::{Record, TextError};

/// The records of a chunk.
pub(super) fn parse(chunk: &RecordChunk, file: &str, prefix: &str) -> Result<Vec<Record>, TextError> {
    Ok(lines(chunk.text(file)?, chunk.line)
        .filter(|(_, content)| !content.trim().is_empty())
        .map(|(line, content)| record(content, prefix, line))
        .collect())
}

fn record(content: &str, prefix: &str, line: u64) -> Record {
    let mut record = Record { line, ..Default::default() };
    for word in content.split_whitespace() {
        match word.strip_prefix(prefix) {
            Some("") => {}
            Some(label) => record.labels.push(label.into()),
            None => {
                if !record.text.is_empty() {
                    record.text.push(' ');
                }
                record.text.push_str(word);
            }
        }
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stand_anywhere() {
        for (content, labels, text) in [
            ("__label__a __label__b some text", "a+b", "some text"),
            ("some __label__a  text", "a", "some text"),
            ("__label__only", "only", ""),
            ("no label", "", "no label"),
            ("__label__ empty", "", "empty"),
        ] {
            let record = record(content, "__label__", 1);
            assert_eq!((record.labels.join("+").as_str(), record.text.as_str()), (labels, text));
        }
    }
}
