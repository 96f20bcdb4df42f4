//! The mean of the class vectors, which tables may hash without.

use rayon::prelude::*;

use super::fill::CHUNK;
use crate::collective::{RangeSums, Ranges, Shard};
use crate::model::RowsView;

/// The mean of the class vectors, as it was at the last refresh.
#[derive(Debug, Default)]
pub(super) struct ClassMean {
    pub(super) mean: Vec<f32>,
    /// Sums of [`CHUNK`]s of a range's classes, which are added up in their order.
    sums: Vec<f32>,
    /// Means of ranges.
    means: RangeSums<f32>,
    /// Where other ranks have more classes.
    pub(super) shard: Option<Shard>,
}

impl ClassMean {
    pub(super) fn take(&mut self, class_vectors: RowsView<'_>) {
        let (classes, dim) = (class_vectors.len(), class_vectors.dim);
        let of_all = self.shard.as_ref().map_or(classes, Shard::num_classes);
        let ranges = self.shard.as_ref().map_or_else(|| Ranges::whole(classes), Shard::class_ranges);
        self.means.start(ranges.len(), dim);
        for (i, range) in ranges.iter().enumerate() {
            self.sums.clear();
            self.sums.resize(range.len().div_ceil(CHUNK) * dim, 0.0);
            self.sums.par_chunks_exact_mut(dim).enumerate().for_each(|(chunk, sum)| {
                let first = range.start + chunk * CHUNK;
                (first..range.end.min(first + CHUNK)).for_each(|class| class_vectors.add_row(class, sum));
            });
            for sum in self.sums.chunks_exact(dim) {
                self.means.of(i).iter_mut().zip(sum).for_each(|(mean, x)| *mean += x / of_all as f32);
            }
        }
        self.mean.clear();
        self.mean.extend_from_slice(self.means.join());
        if let Some(shard) = &self.shard {
            shard.collective().sum_f32(&mut self.mean);
        }
    }
}
