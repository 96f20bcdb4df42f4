//! The one way in: a path to examples, whatever the file is.

use std::path::Path;

use super::error::{DataError, PackedProblem};
use super::open::{Content, Input};
use super::packed::{MAGIC, Packed};
use super::xc::{ReadOptions, ReadReport, parse};
use super::{Dataset, Examples};

/// Examples, parsed from text or mapped from a packed file.
#[derive(Debug)]
pub enum Source {
    /// Text, parsed into memory.
    Parsed(Dataset),
    /// A packed file, used in place.
    Packed(Packed),
}

impl Source {
    /// Reads `path` (or standard input for `-`): a packed file if it starts
    /// like one, else text, which may be compressed.
    pub fn load(path: &Path, options: &ReadOptions) -> Result<(Self, ReadReport), DataError> {
        let input = Input::open(path)?;
        if !input.bytes().starts_with(MAGIC) {
            let (data, report) = parse(&input.name, input.bytes(), options)?;
            return Ok((Self::Parsed(data), report));
        }
        match input.content {
            Content::Mapped(map) => {
                let packed = Packed::from_map(input.name, map, options)?;
                Ok((Self::Packed(packed), ReadReport::default()))
            }
            Content::Read(_) => Err(DataError::Packed { file: input.name, problem: PackedProblem::NotPlain }),
        }
    }

    /// The examples.
    pub fn view(&self) -> Examples<'_> {
        match self {
            Self::Parsed(data) => data.view(),
            Self::Packed(packed) => packed.view(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::packed::write_packed;

    #[test]
    fn packed_files_are_told_by_content_and_fit_the_model() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.txt");
        let mut data = Dataset::empty(10, 5);
        data.push([(1, 0.5), (7, -1.0)], &[0, 3]);
        write_packed(&path, data.view()).unwrap();
        let load = |num_features, num_classes| {
            let options = ReadOptions { num_features, num_classes, ..Default::default() };
            Source::load(&path, &options).map(|(source, _)| {
                let view = source.view();
                assert!(matches!(source, Source::Packed(_)));
                assert_eq!(view.check_law(), Ok(()));
                (view.num_features, view.num_classes)
            })
        };
        assert_eq!(load(None, None).unwrap(), (10, 5));
        assert_eq!(load(Some(8), Some(4)).unwrap(), (8, 4));
        assert_eq!(load(Some(80), None).unwrap(), (80, 5));
        let error = load(Some(7), None).unwrap_err().to_string();
        assert!(
            error.contains("found feature 7, expected one below 7: the file was packed for a larger model"),
            "{error}"
        );
        assert!(load(None, Some(3)).is_err());

        let compressed = folder.path().join("compressed");
        std::fs::write(&compressed, zstd::encode_all(&std::fs::read(&path).unwrap()[..], 1).unwrap())
            .unwrap();
        let error = Source::load(&compressed, &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains("expected a plain file"), "{error}");
    }
}
