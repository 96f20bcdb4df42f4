//! Both ends of a model trained from text: from text to features, and from
//! class numbers back to names.

use std::path::Path;

use super::{LabelNames, TextError, Vectoriser};

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

    /// Reads both from a model directory.
    pub fn load(directory: &Path) -> Result<Self, TextError> {
        Ok(Self { vectoriser: Vectoriser::load(directory)?, names: LabelNames::load(directory)? })
    }
}
