//! The sparse part's settings.

use serde::{Deserialize, Serialize};

use crate::model::{MeanRows, SparseStart};

/// The sparse part's settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SparseConfig {
    /// The first so many epochs train it; unset, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<usize>,
    /// Learning rate, an example; falls to zero over those epochs. See also
    /// [`SparseStart::rate`](crate::model::SparseStart::rate).
    pub rate: f32,
    /// What a class scores at the start for an example that is its centroid.
    pub start: f32,
    /// Nearest classes that are negatives, for the sparse part and, within its
    /// budget, for a sampler with hash tables.
    pub negatives: usize,
    /// Weights a class at most.
    pub entries_max: usize,
    /// Examples that choose the blend, at most, each by a model that has not seen it: kept
    /// apart from training, but never more than one in twenty; or, where these would be
    /// fewer than both this and a thousand, left out by further models (folds) that are
    /// trained for it.
    pub held_out: usize,
    /// Whether the model keeps its training examples, if that ranks held-out ones
    /// better: see [`Neighbours`](crate::model::Neighbours).
    pub neighbours: bool,
}

impl Default for SparseConfig {
    fn default() -> Self {
        Self {
            epochs: None,
            rate: 10.0,
            start: 12.0,
            negatives: 50,
            entries_max: 2000,
            held_out: 2000,
            neighbours: true,
        }
    }
}

impl SparseConfig {
    /// How a sparse part starts.
    pub fn mean_rows(&self, start: SparseStart) -> MeanRows {
        MeanRows { start, length: self.start, entries_max: self.entries_max }
    }
}
