//! A JSON object a line: a text field, and a label field that is a string, a
//! number or an array of these. Blank lines are skipped.

use serde_json::{Map, Value};

use super::records::{lines, weight_of};
use super::source::RecordChunk;
use super::{Column, ReadOptions, Record, TextError};

/// So many fields of an object are named where one is missing.
const FIELDS_NAMED: usize = 10;

/// The fields that matter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fields {
    text: String,
    /// Names the label field may have; none if labels are not read.
    labels: Vec<String>,
    /// The field of weights, if they are read.
    pub(super) weight: Option<String>,
}

impl Fields {
    pub(super) fn new(options: &ReadOptions) -> Result<Self, TextError> {
        let field = |column: &Option<Column>, usual: &[&str]| match column {
            Some(Column::Name(name)) => Ok(vec![name.clone()]),
            None => Ok(usual.iter().map(|&name| name.into()).collect()),
            Some(Column::Number(number)) => Err(TextError::Options(format!(
                "JSON fields have names, not numbers; found {number}, expected the field's name"
            ))),
        };
        let labels = if options.with_labels { field(&options.labels, &["labels", "label"])? } else { vec![] };
        let weight = if options.weight.is_some() { field(&options.weight, &[])?.pop() } else { None };
        Ok(Self { text: field(&options.text, &["text"])?.swap_remove(0), labels, weight })
    }

    /// What it is, in words.
    pub(super) fn describe(&self) -> String {
        let names: Vec<String> = self.labels.iter().map(|name| format!("{name:?}")).collect();
        let labels =
            if names.is_empty() { String::new() } else { format!(", labels are {}", names.join(" or ")) };
        format!("a JSON object a line; the text is {:?}{labels}", self.text)
    }

    pub(super) fn parse(&self, chunk: &RecordChunk, file: &str) -> Result<Vec<Record>, TextError> {
        lines(chunk.text(file)?, chunk.line)
            .filter(|(_, content)| !content.trim().is_empty())
            .map(|(line, content)| self.record(content, line, file))
            .collect()
    }

    fn record(&self, content: &str, line: u64, file: &str) -> Result<Record, TextError> {
        let mut object: Map<String, Value> = serde_json::from_str(content).map_err(|e| {
            // The parser says "... at line 1 column c"; the place is ours to say.
            let message = e.to_string();
            let message = message.split(" at line ").next().unwrap_or_default().into();
            TextError::Json { file: file.into(), line, column: e.column().max(1) as u64, message }
        })?;
        let wrong = |object: &Map<String, Value>, field: &str, found: Option<&Value>, expected| {
            TextError::JsonField {
                file: file.into(),
                line,
                field: field.into(),
                found: kind(found).into(),
                expected,
                advice: if found.is_none() { others(object) } else { String::new() },
            }
        };
        let labels = match self.labels.iter().find_map(|name| object.get_key_value(name)) {
            Some((name, value)) => names(value)
                .map_err(|bad| wrong(&object, name, Some(bad), "a string, a number or an array of these"))?,
            None if self.labels.is_empty() => Vec::new(),
            None => {
                return Err(wrong(&object, &self.labels[0], None, "a string, a number or an array of these"));
            }
        };
        let weight = match self.weight.as_ref().and_then(|name| object.get_key_value(name)) {
            None | Some((_, Value::Null)) => None,
            Some((_, Value::Number(number))) => weight_of(&number.to_string(), file, line)?,
            Some((name, other)) => return Err(wrong(&object, name, Some(other), "a number, 0 or more")),
        };
        match object.remove(&self.text) {
            Some(Value::String(text)) => Ok(Record { text, labels, weight, line }),
            other => Err(wrong(&object, &self.text, other.as_ref(), "a string")),
        }
    }
}

/// The fields that an object has where one is missing.
fn others(object: &Map<String, Value>) -> String {
    let names: Vec<String> = object.keys().take(FIELDS_NAMED).map(|name| format!("{name:?}")).collect();
    if names.is_empty() { String::new() } else { format!("; found {}: name the right one", names.join(", ")) }
}

/// Label names of a value, or the part of it that is none.
fn names(value: &Value) -> Result<Vec<String>, &Value> {
    let all: Result<Vec<String>, &Value> = match value {
        Value::Array(values) => values.iter().map(name).collect(),
        Value::Null => Ok(Vec::new()),
        other => name(other).map(|name| vec![name]),
    };
    all.map(|names| names.into_iter().filter(|name| !name.is_empty()).collect())
}

fn name(value: &Value) -> Result<String, &Value> {
    match value {
        Value::String(name) => Ok(name.trim().to_string()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(other),
    }
}

fn kind(value: Option<&Value>) -> &'static str {
    match value {
        None => "missing",
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "true or false",
        Some(Value::Number(_)) => "a number",
        Some(Value::String(_)) => "a string",
        Some(Value::Array(_)) => "an array",
        Some(Value::Object(_)) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::TextFile;

    fn read(content: &str, options: &ReadOptions) -> Result<Vec<Record>, TextError> {
        TextFile::from_bytes("m", content.as_bytes(), options)?.records()?.collect()
    }

    #[test]
    fn labels_are_strings_numbers_or_arrays() {
        let content = concat!(
            "{\"q\": \"a\\n\\u00fc\", \"to\": \"x|y\"}\n",
            "{\"q\": \"b\", \"to\": 7}\n\n",
            "{\"q\": \"\", \"to\": [\"x\", 2, \" \"]}\n",
            "{\"q\": \"c\", \"to\": null}\n",
        );
        let options = ReadOptions {
            text: Some(Column::Name("q".into())),
            labels: Some(Column::Name("to".into())),
            ..Default::default()
        };
        let records = read(content, &options).unwrap();
        let seen: Vec<_> = records.iter().map(|r| (r.line, r.text.as_str(), r.labels.join("+"))).collect();
        let expected = [(1, "a\nü", "x|y"), (2, "b", "7"), (4, "", "x+2"), (5, "c", "")];
        assert_eq!(seen, expected.map(|(line, text, labels)| (line, text, labels.to_string())));
    }

    #[test]
    fn mistakes_are_placed() {
        let options = ReadOptions::default();
        let good = "{\"text\":\"a\",\"label\":\"b\"}\n";
        match read(&format!("{good}{{\"text\": oops}}\n"), &options) {
            Err(TextError::Json { line: 2, column: 10, message, .. }) => {
                assert!(!message.contains("line"), "{message}");
            }
            other => panic!("{other:?}"),
        }
        for (bad, field, found) in [
            ("{\"text\":\"a\"}", "labels", "missing"),
            ("{\"label\":\"a\"}", "text", "missing"),
            ("{\"label\":\"a\",\"text\":1}", "text", "a number"),
            ("{\"label\":[true],\"text\":\"a\"}", "label", "true or false"),
        ] {
            match read(&format!("{good}\n{bad}\n"), &options) {
                Err(error @ TextError::JsonField { line: 3, .. }) => {
                    let (said, is_missing) = (error.to_string(), found == "missing");
                    assert!(said.contains(&format!("field {field:?} is {found}, expected")), "{said}");
                    assert_eq!(said.ends_with(": name the right one"), is_missing, "{said}");
                }
                other => panic!("{bad}: {other:?}"),
            }
        }
        let numbered = ReadOptions { text: Some(Column::Number(1)), ..options };
        assert!(matches!(read(good, &numbered), Err(TextError::Options(_))));
    }
}
