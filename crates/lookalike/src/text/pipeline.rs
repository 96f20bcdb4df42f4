//! Both ends of a model trained from text: from text to features, and from
//! class numbers back to names.

use std::path::Path;

use super::{LabelNames, TextError, Vectoriser};

/// Gives the bytes of a file of a model directory, as of the moment it was opened.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>;

/// What a model directory keeps to take text in and give names out.
#[derive(Clone, Debug)]
pub struct TextPipeline {
    /// Turns text into features.
    pub vectoriser: Vectoriser,
    /// Turns class numbers into names.
    pub names: LabelNames,
}

impl TextPipeline {
    /// Writes both into a model directory.
    pub fn save(&self, directory: &Path) -> Result<(), TextError> {
        self.vectoriser.save(directory)?;
        self.names.save(directory)
    }

    /// Reads both from a model directory, whose files `read` gives.
    pub(crate) fn load_by(directory: &Path, read: ReadFile<'_>) -> Result<Self, TextError> {
        let vectoriser = Vectoriser::load_by(directory, read)?;
        Ok(Self { vectoriser, names: LabelNames::load_by(directory, read)? })
    }
}
