//! Label names and their ids.
//!
//! Ids follow the order of the names' code points, so the same labels have the
//! same ids whatever the order of the lines they were found in. On disk a name
//! stands on a line of `labels.txt`, its id being the number of lines before;
//! backslash, tab and line ends within a name are written `\\`, `\t`, `\n`, `\r`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::TextError;
use super::interner::{Interner, Keyed};
use super::pipeline::ReadFile;
use super::vectoriser::check_count;
use crate::disk;

const FILE: &str = "labels.txt";

/// A two-way map of label names and ids `0..len`.
#[derive(Clone, Debug, Default)]
pub struct LabelNames {
    names: Interner,
}

impl LabelNames {
    /// Numbers distinct names in order.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, TextError> {
        let sorted: BTreeSet<&str> = names.into_iter().collect();
        check_count("labels", sorted.len())?;
        let mut names = Interner::default();
        for name in sorted {
            names.insert(Keyed::new(name.as_bytes()));
        }
        Ok(Self { names })
    }

    /// Numbers names in the order given; each may stand there once.
    pub fn in_order<'a>(list: impl IntoIterator<Item = &'a str>) -> Result<Self, TextError> {
        let mut names = Interner::default();
        for name in list {
            check_count("labels", names.len() + 1)?;
            if name.is_empty() {
                return Err(TextError::Options(
                    "found an empty label name, expected a character at least".into(),
                ));
            }
            if !names.insert(Keyed::new(name.as_bytes())).1 {
                return Err(TextError::Options(format!(
                    "found the label name {name:?} twice, expected it once"
                )));
            }
        }
        Ok(Self { names })
    }

    /// The number of labels.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no label.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id of a name.
    pub fn id(&self, name: &str) -> Option<u32> {
        self.names.find(Keyed::new(name.as_bytes()))
    }

    /// The name of an id.
    pub fn name(&self, id: u32) -> Option<&str> {
        let is_known = (id as usize) < self.len();
        // Names come in as `str`, so they are UTF-8.
        is_known.then(|| std::str::from_utf8(self.names.get(id)).unwrap_or_default())
    }

    /// All names in the order of ids.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len() as u32).filter_map(|id| self.name(id))
    }

    /// Writes the names into a directory.
    pub fn save(&self, directory: &Path) -> Result<(), TextError> {
        let mut content = String::new();
        for name in self.iter() {
            escape(name, &mut content);
            content.push('\n');
        }
        let path = directory.join(FILE);
        disk::write(&path, content.as_bytes()).map_err(|e| TextError::io(path.to_string_lossy(), e))
    }

    /// Reads what [`Self::save`] wrote, and checks it.
    ///
    /// Names in any order are accepted, so that a file written by hand, or from
    /// another data set's list of labels, serves as well; each name only once.
    pub fn load(directory: &Path) -> Result<Self, TextError> {
        Self::load_by(directory, &|path| fs::read(path))
    }

    pub(crate) fn load_by(directory: &Path, read_file: ReadFile<'_>) -> Result<Self, TextError> {
        let path = directory.join(FILE);
        let bytes = read_file(&path).map_err(|e| TextError::io(path.to_string_lossy(), e))?;
        let mut names = Interner::default();
        let content = String::from_utf8(bytes).map_err(|_| TextError::corrupted(&path, 0, "not UTF-8"))?;
        if !content.is_empty() && !content.ends_with('\n') {
            let line = content.split('\n').count();
            return Err(TextError::corrupted(&path, line, "the last line is cut short"));
        }
        for (line, number) in content.split_terminator('\n').zip(1..) {
            let wrong = |found: String| TextError::corrupted(&path, number, found);
            let name = unescape(line).ok_or_else(|| wrong("an unknown escape".into()))?;
            if name.is_empty() {
                return Err(wrong("an empty name".into()));
            }
            if !names.insert(Keyed::new(name.as_bytes())).1 {
                return Err(wrong(format!("the name {name:?} stands here a second time")));
            }
        }
        Ok(Self { names })
    }
}

const ESCAPES: [(char, char); 4] = [('\\', '\\'), ('\t', 't'), ('\n', 'n'), ('\r', 'r')];

fn escape(name: &str, out: &mut String) {
    for c in name.chars() {
        match ESCAPES.iter().find(|&&(plain, _)| plain == c) {
            Some(&(_, letter)) => out.extend(['\\', letter]),
            None => out.push(c),
        }
    }
}

fn unescape(line: &str) -> Option<String> {
    let mut name = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        if c == '\\' {
            let letter = characters.next()?;
            name.push(ESCAPES.iter().find(|&&(_, l)| l == letter)?.0);
        } else {
            name.push(c);
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_follow_the_order_of_names() {
        let names = LabelNames::new(["b", "ä", "a", "b"]).unwrap();
        assert_eq!(names.iter().collect::<Vec<_>>(), ["a", "b", "ä"]);
        assert_eq!((names.id("ä"), names.id("c")), (Some(2), None));
        assert_eq!((names.name(1), names.name(3)), (Some("b"), None));
    }

    #[test]
    fn a_given_order_is_kept_and_names_stand_once() {
        let names = LabelNames::in_order(["10", "9", "ä"]).unwrap();
        assert_eq!((names.id("9"), names.name(0)), (Some(1), Some("10")));
        assert!(LabelNames::in_order(["a", "b", "a"]).unwrap_err().to_string().contains("twice"));
        assert!(LabelNames::in_order(["a", ""]).is_err());
    }

    proptest! {
        #[test]
        fn names_survive_the_disk(list in vec("[a\\\\\t\r\n|é ]{1,6}|.{1,8}", 0..20)) {
            let names = LabelNames::new(list.iter().map(String::as_str)).unwrap();
            let directory = tempfile::tempdir().unwrap();
            names.save(directory.path()).unwrap();
            let loaded = LabelNames::load(directory.path()).unwrap();
            prop_assert_eq!(loaded.iter().collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
            for (name, id) in names.iter().zip(0..) {
                prop_assert_eq!(loaded.id(name), Some(id));
            }
        }
    }

    #[test]
    fn damage_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        for (content, line) in
            [(&b"a\nb\na\n"[..], 3), (b"a\n\\x\n", 2), (b"a\nb", 2), (b"a\n\nb\n", 2), (b"\xff\n", 0)]
        {
            std::fs::write(directory.path().join(FILE), content).unwrap();
            match LabelNames::load(directory.path()) {
                Err(TextError::Corrupted { line: found, .. }) => assert_eq!(found, line),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(LabelNames::load(Path::new("nowhere")), Err(TextError::Io { .. })));
    }
}
