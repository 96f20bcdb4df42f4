//! Sparse scores of a batch: what the features of its examples weigh in each class, added
//! to scores of the network, of all classes or tile by tile.

use std::ops::Range;

use lookalike_kernels::Cpu;

use super::tile::Tile;
use crate::data::Examples;
use crate::model::{Model, Normalise, Postings};

/// The examples behind the embeddings and the sparse weights to score them with.
#[derive(Clone, Copy, Debug)]
pub struct SparseQueries<'a> {
    /// The weights by feature.
    pub postings: &'a Postings,
    /// What a sparse score is multiplied with.
    pub blend: f32,
    /// What is done to an example's values first.
    pub normalise: Normalise,
    /// All examples.
    pub examples: Examples<'a>,
    /// The example of each embedding.
    pub batch: &'a [u32],
}

impl<'a> SparseQueries<'a> {
    /// With the sparse weights of a model, if it has any that count.
    pub(super) fn of(model: &'a Model, examples: &Examples<'a>, batch: &'a [u32]) -> Option<Self> {
        let sparse = model.sparse.as_ref().filter(|sparse| sparse.blend() != 0.0)?;
        Some(Self {
            postings: sparse.postings(model.num_features()),
            blend: sparse.blend(),
            normalise: model.network.config.normalise,
            examples: *examples,
            batch,
        })
    }

    /// The features of an example of the batch, with the factor of their values.
    pub(super) fn features(&self, position: usize) -> (impl Iterator<Item = (u32, f32)> + use<'_>, f32) {
        let (ids, values) = self.examples.features(self.batch[position] as usize);
        let factor = self.blend * self.normalise.factor(values);
        (ids.iter().copied().zip(values.iter().copied()), factor)
    }

    /// Adds the sparse scores of an example of the batch to the scores of all classes.
    pub(super) fn add_to_all(&self, cpu: Cpu, position: usize, scores: &mut [f32]) {
        let (features, factor) = self.features(position);
        for (id, value) in features {
            self.postings.add_to_all(cpu, (id, factor * value), scores);
        }
    }

    /// Puts a cursor for each feature of some examples at its first posting of
    /// a class from `class` on.
    pub(super) fn start(&self, examples: Range<usize>, class: usize, cursors: &mut Vec<u32>) {
        cursors.clear();
        for &example in &self.batch[examples] {
            let (ids, _) = self.examples.features(example as usize);
            cursors.extend(ids.iter().map(|&id| {
                self.postings.of(id).0.partition_point(|&posted| (posted as usize) < class) as u32
            }));
        }
    }

    /// Adds the sparse scores of a tile; tiles come in the order of classes.
    pub(super) fn add(
        &self,
        cpu: Cpu,
        examples: Range<usize>,
        classes: Range<usize>,
        cursors: &mut [u32],
        tile: &mut Tile,
    ) {
        let mut cursors = cursors.iter_mut();
        for (row, position) in examples.enumerate() {
            let (features, factor) = self.features(position);
            let scores = tile.scores(row);
            for ((id, value), cursor) in features.zip(cursors.by_ref()) {
                self.postings.add(cpu, (id, factor * value), classes.clone(), cursor, scores);
            }
        }
    }
}
