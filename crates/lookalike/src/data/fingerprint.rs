//! Which data is it? Told by sizes and a checksum of all that is in it.

use serde::{Deserialize, Serialize};

use super::Examples;

/// What tells one data set from another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DataFingerprint {
    /// Examples.
    pub examples: usize,
    /// Features.
    pub features: usize,
    /// Classes.
    pub classes: usize,
    /// Checksum of all features, values, labels and weights.
    pub crc32: u32,
}

impl DataFingerprint {
    /// Reads all entries once.
    pub fn of(examples: &Examples<'_>) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(bytemuck::cast_slice(examples.feature_offsets));
        hasher.update(bytemuck::cast_slice(examples.feature_ids));
        hasher.update(bytemuck::cast_slice(examples.feature_values));
        hasher.update(bytemuck::cast_slice(examples.label_offsets));
        hasher.update(bytemuck::cast_slice(examples.label_ids));
        hasher.update(bytemuck::cast_slice(examples.weights));
        Self {
            examples: examples.len(),
            features: examples.num_features,
            classes: examples.num_classes,
            crc32: hasher.finalize(),
        }
    }
}
