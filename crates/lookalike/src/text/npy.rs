//! Dense embeddings made elsewhere: a `.npy` matrix beside a file of labels.
//!
//! The matrix (NumPy's format 1, 2 or 3; little-endian f32 or f16; C order) has
//! a row an example. The labels file has a line an example, its labels with a
//! separator between. Every size in the header is checked before it is used.

use std::io::{BufReader, Read};
use std::path::Path;

use half::f16;

use super::corpus::{Report, label_ids};
use super::records::split_labels;
use super::source::Rereadable;
use super::{Format, LabelNames, ReadOptions, TextError, TextFile};
use crate::data::Dataset;

/// A matrix and its labels as examples whose features are the matrix's columns
/// (zeros left out); label names are learnt.
pub fn dense_dataset(
    matrix: &Path,
    labels: &Path,
    label_separator: &str,
) -> Result<(Dataset, LabelNames, Report), TextError> {
    let rows = label_rows(labels, label_separator)?;
    let names = LabelNames::new(rows.iter().flatten().map(String::as_str))?;
    let (dataset, report) = read(matrix, labels, &rows, &names)?;
    Ok((dataset, names, report))
}

/// The same with names learnt before; new ones stand behind them, in the order they are
/// met.
pub fn dense_dataset_extended(
    matrix: &Path,
    labels: &Path,
    label_separator: &str,
    names: &LabelNames,
) -> Result<(Dataset, LabelNames, Report), TextError> {
    let rows = label_rows(labels, label_separator)?;
    let mut seen = std::collections::BTreeSet::new();
    let is_new = |name: &&str| names.id(name).is_none() && seen.insert(name.to_string());
    let unseen: Vec<&str> = rows.iter().flatten().map(String::as_str).filter(is_new).collect();
    let names = LabelNames::in_order(names.iter().chain(unseen))?;
    let (dataset, report) = read(matrix, labels, &rows, &names)?;
    Ok((dataset, names, report))
}

/// The same with names learnt before; labels that they do not know are counted
/// in the report.
pub fn dense_dataset_with_names(
    matrix: &Path,
    labels: &Path,
    label_separator: &str,
    names: &LabelNames,
) -> Result<(Dataset, Report), TextError> {
    read(matrix, labels, &label_rows(labels, label_separator)?, names)
}

/// A matrix alone: examples without labels, of a model with so many classes.
pub fn dense_dataset_without_labels(matrix: &Path, num_classes: usize) -> Result<Dataset, TextError> {
    let mut matrix = Matrix::open(matrix)?;
    let mut dataset = Dataset::empty(matrix.columns, num_classes);
    for line in 1..=matrix.rows {
        let values = matrix.next_row(line)?;
        dataset.push((0..).zip(values).filter(|&(_, value)| value != 0.0), &[]);
    }
    matrix.finish()?;
    Ok(dataset)
}

fn label_rows(labels: &Path, separator: &str) -> Result<Vec<Vec<String>>, TextError> {
    let options = ReadOptions { format: Some(Format::Lines), ..Default::default() };
    let file = TextFile::open(labels, &options)?;
    file.records()?.map(|record| Ok(split_labels(&record?.text, separator))).collect()
}

fn read(
    matrix: &Path,
    labels: &Path,
    rows: &[Vec<String>],
    names: &LabelNames,
) -> Result<(Dataset, Report), TextError> {
    let mut matrix = Matrix::open(matrix)?;
    if matrix.rows != rows.len() as u64 {
        return Err(TextError::RowsDiffer {
            labels_file: labels.display().to_string(),
            lines: rows.len() as u64,
            matrix_file: matrix.file,
            rows: matrix.rows,
        });
    }
    let mut dataset = Dataset::empty(matrix.columns, names.len());
    let mut report = Report { labels: names.len(), ..Default::default() };
    for (row, line) in rows.iter().zip(1..) {
        let values = matrix.next_row(line)?;
        let (ids, unseen) = label_ids(row, names);
        dataset.push((0..).zip(values).filter(|&(_, value)| value != 0.0), &ids);
        report.note_labels(row.len(), unseen, line);
    }
    matrix.finish()?;
    Ok((dataset, report))
}

/// A matrix read row by row.
struct Matrix {
    file: String,
    reader: Box<dyn Read>,
    rows: u64,
    columns: usize,
    is_half: bool,
    /// The bytes of one row.
    buffer: Vec<u8>,
}

impl Matrix {
    fn open(path: &Path) -> Result<Self, TextError> {
        let file = path.display().to_string();
        let mut reader = BufReader::with_capacity(1 << 20, Rereadable::Path(path.into()).open()?);
        let wrong = |found: String, expected: &str| TextError::Npy {
            file: file.clone(),
            found,
            expected: expected.into(),
        };
        let header = header(&mut reader).map_err(|found| wrong(found, "a file written by numpy.save"))?;
        let is_half = match entry(&header, "descr") {
            Some("'<f4'") => false,
            Some("'<f2'") => true,
            other => {
                let found = format!("the elements are {}", other.unwrap_or("of an unknown type"));
                return Err(wrong(found, "'<f4' or '<f2'; convert with array.astype('<f4')"));
            }
        };
        if entry(&header, "fortran_order") != Some("False") {
            let found = "the matrix is stored column by column".into();
            return Err(wrong(found, "C order; convert with numpy.ascontiguousarray(array)"));
        }
        let Some((rows, columns)) = entry(&header, "shape").and_then(two_sizes) else {
            let found = format!("the shape is {}", entry(&header, "shape").unwrap_or("unknown"));
            return Err(wrong(found, "two sizes, (examples, columns), columns from 1 to 2^20"));
        };
        let row_bytes = columns * if is_half { 2 } else { 4 };
        let (reader, buffer) = (Box::new(reader), vec![0; row_bytes]);
        Ok(Self { file, reader, rows, columns, is_half, buffer })
    }

    fn next_row(&mut self, row: u64) -> Result<Vec<f32>, TextError> {
        self.reader.read_exact(&mut self.buffer).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => TextError::Npy {
                file: self.file.clone(),
                found: format!("the file ends within row {row}"),
                expected: format!("{} rows as its header says; copy the file again", self.rows),
            },
            _ => TextError::io(self.file.as_str(), e),
        })?;
        let values: Vec<f32> = if self.is_half {
            let (pairs, _) = self.buffer.as_chunks::<2>();
            pairs.iter().map(|&pair| f16::from_le_bytes(pair).to_f32()).collect()
        } else {
            let (words, _) = self.buffer.as_chunks::<4>();
            words.iter().map(|&word| f32::from_le_bytes(word)).collect()
        };
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(values),
            Some(column) => Err(TextError::Npy {
                file: self.file.clone(),
                found: format!("row {row}, column {} is {}", column + 1, values[column]),
                expected: "finite numbers; replace it, for example with numpy.nan_to_num".into(),
            }),
        }
    }

    fn finish(mut self) -> Result<(), TextError> {
        match self.reader.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(TextError::Npy {
                file: self.file,
                found: "bytes follow the last row".into(),
                expected: format!("{} rows as its header says", self.rows),
            }),
            Err(e) => Err(TextError::io(self.file, e)),
        }
    }
}

/// The header's dictionary, or what is wrong with it.
fn header(reader: &mut impl Read) -> Result<String, String> {
    const LENGTH_MAX: u32 = 1 << 16;
    let mut start = [0; 8];
    let cut_short = |_| String::from("the file ends within its header");
    reader.read_exact(&mut start).map_err(cut_short)?;
    if &start[..6] != b"\x93NUMPY" {
        return Err("the file does not begin as a .npy file does".into());
    }
    let length = match start[6] {
        1 => {
            let mut length = [0; 2];
            reader.read_exact(&mut length).map_err(cut_short)?;
            u32::from(u16::from_le_bytes(length))
        }
        2 | 3 => {
            let mut length = [0; 4];
            reader.read_exact(&mut length).map_err(cut_short)?;
            u32::from_le_bytes(length)
        }
        version => return Err(format!("version {version} of the .npy format is unknown")),
    };
    if length > LENGTH_MAX {
        return Err(format!("the header claims {length} bytes"));
    }
    let mut text = vec![0; length as usize];
    reader.read_exact(&mut text).map_err(cut_short)?;
    String::from_utf8(text).map_err(|_| "the header is not text".into())
}

/// The value of a key in the header's Python dictionary.
fn entry<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{key}':"))?;
    let rest = rest.trim_start();
    let end = if rest.starts_with('(') { rest.find(')')? + 1 } else { rest.find([',', '}'])? };
    Some(rest[..end].trim())
}

/// `(rows, columns)` if there are just two and a row can be held in memory.
fn two_sizes(shape: &str) -> Option<(u64, usize)> {
    let inside = shape.strip_prefix('(')?.strip_suffix(')')?;
    let (rows, columns) = inside.split_once(',')?;
    let sizes = (rows.trim().parse().ok()?, columns.trim().parse().ok()?);
    (1..=1 << 20).contains(&sizes.1).then_some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(version: u8, descr: &str, order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let mut header = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}");
        header.push_str(&" ".repeat(63 - header.len() % 64));
        header.push('\n');
        let mut file = b"\x93NUMPY".to_vec();
        file.extend([version, 0]);
        if version == 1 {
            file.extend((header.len() as u16).to_le_bytes());
        } else {
            file.extend((header.len() as u32).to_le_bytes());
        }
        file.extend(header.as_bytes());
        file.extend(data);
        file
    }

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn load(matrix: &[u8], labels: &str) -> Result<(Dataset, LabelNames, Report), TextError> {
        let directory = tempfile::tempdir().unwrap();
        let (m, l) = (directory.path().join("m.npy"), directory.path().join("l.txt"));
        std::fs::write(&m, matrix).unwrap();
        std::fs::write(&l, labels).unwrap();
        dense_dataset(&m, &l, ";")
    }

    #[test]
    fn both_element_types_and_headers_give_the_same_rows() {
        let values = [1.5, 0.0, -2.0, 0.25, 3.0, 0.0];
        let halves: Vec<u8> = values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect();
        let files = [
            npy(1, "'<f4'", "False", "(2, 3)", &floats(&values)),
            npy(2, "'<f2'", "False", "(2, 3)", &halves),
        ];
        for file in files {
            let (dataset, names, report) = load(&file, "b; a\n\n").unwrap();
            assert_eq!(names.iter().collect::<Vec<_>>(), ["a", "b"]);
            assert_eq!((report.examples, report.unlabelled, report.unlabelled_line), (2, 1, Some(2)));
            let view = dataset.view();
            assert_eq!((view.num_features, view.num_classes), (3, 2));
            assert_eq!(view.features(0), (&[0, 2][..], &[1.5, -2.0][..]));
            assert_eq!(view.features(1), (&[0, 1][..], &[0.25, 3.0][..]));
            assert_eq!((view.labels(0), view.labels(1)), (&[0, 1][..], &[][..]));
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let data = floats(&[1.0, 2.0]);
        for (matrix, wanted) in [
            (npy(1, "'<f8'", "False", "(1, 2)", &data), "'<f8'"),
            (npy(1, "'>f4'", "False", "(1, 2)", &data), "'>f4'"),
            (npy(1, "'<f4'", "True", "(1, 2)", &data), "column by column"),
            (npy(1, "'<f4'", "False", "(2,)", &data), "(2,)"),
            (npy(1, "'<f4'", "False", "(1, 2, 1)", &data), "(1, 2, 1)"),
            (npy(1, "'<f4'", "False", "(1, 99999999999)", &data), "99999999999"),
            (npy(1, "'<f4'", "False", "(1, 3)", &data), "ends within row 1"),
            (npy(1, "'<f4'", "False", "(1, 1)", &data), "bytes follow"),
            (npy(1, "'<f4'", "False", "(1, 2)", &floats(&[1.0, f32::NAN])), "column 2 is NaN"),
            (npy(9, "'<f4'", "False", "(1, 2)", &data), "version 9"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(), "claims"),
            (b"PK\x03\x04....".to_vec(), "does not begin"),
            (b"\x93NU".to_vec(), "ends within its header"),
        ] {
            let message = load(&matrix, "x\n").unwrap_err().to_string();
            assert!(message.contains(wanted), "{message}");
        }
        let matrix = npy(1, "'<f4'", "False", "(2, 1)", &data);
        match load(&matrix, "x\ny\nz\n") {
            Err(TextError::RowsDiffer { lines: 3, rows: 2, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}
