//! How much examples count: from files, and from how much classes count.

use std::path::Path;

use super::open::Input;
use super::{DataError, Examples};

/// The weights in a file: a number a line, an example each.
pub fn read_weights(path: &Path) -> Result<Vec<f32>, DataError> {
    lines(path)?.iter().map(|(line, text)| weight(path, *line, text)).collect()
}

/// The weights of classes in a file: a class, a tab and a number a line.
pub fn read_class_weights(path: &Path) -> Result<Vec<(String, f32)>, DataError> {
    let pair = |(line, text): &(usize, String)| match text.rsplit_once('\t') {
        Some((class, number)) => Ok((class.to_owned(), weight(path, *line, number)?)),
        None => Err(DataError::Option(format!(
            "{}, line {line}: found {text:?}, expected a class, a tab and its weight",
            path.display()
        ))),
    };
    lines(path)?.iter().map(pair).collect()
}

/// What each example weighs where its classes weigh: its own weight times the mean of
/// those of its labels.
pub fn with_class_weights(examples: &Examples<'_>, of_class: &[f32]) -> Vec<f32> {
    let weight = |example: usize| {
        let labels = examples.labels(example);
        let sum: f32 = labels.iter().map(|&label| of_class[label as usize]).sum();
        examples.weight(example) * if labels.is_empty() { 1.0 } else { sum / labels.len() as f32 }
    };
    (0..examples.len()).map(weight).collect()
}

/// The lines of a file that are not blank, with their numbers.
fn lines(path: &Path) -> Result<Vec<(usize, String)>, DataError> {
    let input = Input::open(path)?;
    let text = String::from_utf8_lossy(input.bytes()).into_owned();
    let numbered = text.lines().enumerate().map(|(i, line)| (i + 1, line.to_owned()));
    Ok(numbered.filter(|(_, line)| !line.trim().is_empty()).collect())
}

fn weight(path: &Path, line: usize, text: &str) -> Result<f32, DataError> {
    match text.trim().parse::<f32>() {
        Ok(weight) if weight.is_finite() && weight >= 0.0 => Ok(weight),
        _ => Err(DataError::Option(format!(
            "{}, line {line}: found the weight {:?}, expected a finite number, 0 or more",
            path.display(),
            text.trim()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;

    fn file(content: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w");
        std::fs::write(&path, content).unwrap();
        (folder, path)
    }

    #[test]
    fn numbers_are_read_and_others_are_named() {
        let (_folder, path) = file("1\n 0.5\r\n\n0\n2e1\n");
        assert_eq!(read_weights(&path).unwrap(), [1.0, 0.5, 0.0, 20.0]);
        for bad in ["-1", "nan", "inf", "x", "1 2", "1e39"] {
            let (_folder, path) = file(&format!("1\n{bad}\n"));
            let error = read_weights(&path).unwrap_err().to_string();
            assert!(error.contains("line 2") && error.contains(bad), "{error}");
        }
        let (_folder, path) = file("a class\t2\n7\t0.5\n");
        assert_eq!(read_class_weights(&path).unwrap(), [("a class".into(), 2.0), ("7".into(), 0.5)]);
        let (_folder, path) = file("7 0.5\n");
        assert!(read_class_weights(&path).unwrap_err().to_string().contains("a tab"));
    }

    #[test]
    fn an_example_weighs_the_mean_of_its_classes() {
        let mut data = Dataset::empty(1, 3);
        data.push([], &[0]);
        data.push([], &[1, 2]);
        data.push([], &[]);
        assert_eq!(with_class_weights(&data.view(), &[2.0, 1.0, 4.0]), [2.0, 2.5, 1.0]);
        data.weights = vec![0.5, 2.0, 3.0];
        assert_eq!(with_class_weights(&data.view(), &[2.0, 1.0, 4.0]), [1.0, 5.0, 3.0]);
    }
}
