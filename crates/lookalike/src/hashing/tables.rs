//! Flat hash tables over the class vectors (paper, algorithms 2 and 5).
//!
//! A table is two arrays: `ids`, all classes ordered by bucket and within a
//! bucket by id, and `offsets`, where each bucket starts. A counting sort makes
//! them from the classes' codes in O(N) a table, so nothing is wasted, nothing
//! races, and the result is the same whatever the number of threads.
//!
//! Ids ordered by code are ordered by the last functions first, where the code
//! has bits of its own for each function. The classes that agree with a query in all
//! but its first few functions then stand side by side too: one table can be asked
//! with K functions or with fewer ([`HashTables::wide_span`]).
//!
//! Tables may hash `w - mean(w)` instead of `w`. What all class vectors have in
//! common never changes which of them scores highest, but it can hide from winner-take-all
//! where they differ: with embeddings that are never negative (ReLU), all classes are
//! pushed the same way.

mod codes;
mod fill;
mod mean;
#[cfg(test)]
mod tests;

use std::ops::Range;

use lookalike_kernels::{Cpu, prefetch};
use lookalike_mapped::Buffer;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use self::codes::CodeBuffer;
pub use self::codes::TableCodes;
use self::fill::HashWorker;
use self::mean::ClassMean;
use super::{Block, HashFamily, Occupancy};
use crate::collective::Shard;
use crate::model::RowsView;
use crate::scratch::PerThread;

/// Codes in memory while tables are built, unless they are kept.
const CODES_BYTES_MAX: usize = 128 << 20;

/// Whether a refresh may re-hash only the classes that changed (algorithm 5),
/// for which the codes of all classes must stay in memory between refreshes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Incremental {
    /// If the codes fit in the memory that building takes anyway.
    #[default]
    Auto,
    /// Whatever they take: 2 bytes (4 beyond 65,536 buckets) a class and table.
    Always,
    /// Every refresh is a rebuild.
    Never,
}

/// L hash tables over N class vectors; immutable while queried.
#[derive(Debug)]
pub struct HashTables {
    family: Box<dyn HashFamily>,
    classes: usize,
    /// For each table, where each bucket starts in its ids, and where the last ends.
    offsets: Buffer<u32>,
    /// For each table, all classes by bucket.
    ids: Buffer<u32>,
    codes: CodeBuffer,
    /// Tables hashed at a time.
    group: usize,
    keep: bool,
    /// Whether `codes` are those of all tables as they stand.
    codes_are_current: bool,
    /// Where class vectors are hashed less their mean.
    mean: Option<ClassMean>,
    workers: PerThread<HashWorker>,
}

impl HashTables {
    /// Tables of `classes` classes with empty buckets, to be filled by
    /// [`rebuild`](Self::rebuild).
    pub fn new(family: Box<dyn HashFamily>, classes: usize, incremental: Incremental) -> Self {
        let (tables, buckets) = (family.tables(), family.buckets());
        let (codes, code_bytes) = if buckets <= 1 << 16 {
            (CodeBuffer::Narrow(Vec::new()), 2)
        } else {
            (CodeBuffer::Wide(Vec::new()), 4)
        };
        let affordable = (CODES_BYTES_MAX / (classes.max(1) * code_bytes)).max(1);
        let keep = match incremental {
            Incremental::Always => true,
            Incremental::Never => false,
            Incremental::Auto => affordable >= tables,
        };
        Self {
            classes,
            offsets: Buffer::zeroed(tables * (buckets + 1)),
            ids: Buffer::zeroed(tables * classes),
            codes,
            group: if keep { tables } else { affordable.min(tables) },
            keep,
            codes_are_current: false,
            mean: None,
            workers: PerThread::default(),
            family,
        }
    }

    /// The same, of class vectors less their mean. Every refresh is then a rebuild,
    /// since the mean moves with every class.
    pub fn centred(self) -> Self {
        Self { mean: Some(ClassMean::default()), ..self }
    }

    /// Tables of the classes of one rank: if they forget the mean, then that of all ranks.
    pub(crate) fn of_shard(mut self, shard: &Shard) -> Self {
        if let Some(mean) = &mut self.mean {
            mean.shard = Some(shard.clone());
        }
        self
    }

    /// Lays class vectors side by side as they are hashed.
    pub fn load_classes(&self, cpu: Cpu, class_vectors: RowsView<'_>, classes: &[u32], block: &mut Block) {
        block.load(cpu, class_vectors, classes);
        if let Some(mean) = &self.mean {
            block.subtract(&mean.mean);
        }
    }

    /// The family that hashes classes and queries.
    pub fn family(&self) -> &dyn HashFamily {
        &*self.family
    }

    /// N, the number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The classes in bucket `code` of a table, ascending.
    pub fn bucket(&self, table: usize, code: u32) -> &[u32] {
        &self.ids[self.span(table, code)]
    }

    /// Where in [`ids`](Self::ids) a bucket is. Asking for the spans of all
    /// tables before reading the first bucket lets the loads of the offsets,
    /// nearly all cache misses, overlap.
    pub fn span(&self, table: usize, code: u32) -> Range<usize> {
        let at = self.offset_at(table, code);
        let start = table * self.classes;
        start + self.offsets[at] as usize..start + self.offsets[at + 1] as usize
    }

    /// How many functions a query may do without; see [`wide_span`](Self::wide_span).
    pub fn functions_to_spare(&self) -> u32 {
        let shape = self.family.shape();
        let has_own_bits = shape.values_per_function() <= 1 << shape.shift();
        if has_own_bits { shape.k.saturating_sub(1) as u32 } else { 0 }
    }

    /// Where in [`ids`](Self::ids) the classes are that have the query's code but for its
    /// first `spared` functions, of [`functions_to_spare`](Self::functions_to_spare).
    pub fn wide_span(&self, table: usize, code: u32, spared: u32) -> Range<usize> {
        let codes = self.wide_codes(code, spared);
        let start = table * self.classes;
        let offset = |code: u32| start + self.offsets[self.offset_at(table, code)] as usize;
        offset(codes.start)..offset(codes.end)
    }

    /// The codes whose buckets stand in a [`wide_span`](Self::wide_span), one after the other.
    pub(crate) fn wide_codes(&self, code: u32, spared: u32) -> Range<u32> {
        let bits = spared * self.family.shape().shift();
        let first = code >> bits << bits;
        first..(first as usize + (1 << bits)).min(self.family.buckets()) as u32
    }

    /// Prefetches what [`span`](Self::span) reads.
    pub fn prefetch_span(&self, table: usize, code: u32) {
        prefetch(&self.offsets, self.offset_at(table, code));
    }

    fn offset_at(&self, table: usize, code: u32) -> usize {
        table * (self.family.buckets() + 1) + code as usize
    }

    /// The ids of all buckets of all tables.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Hashes every class and sorts every table.
    pub fn rebuild(&mut self, cpu: Cpu, class_vectors: RowsView<'_>) {
        self.fill(cpu, class_vectors, None);
    }

    /// Algorithm 5: re-hashes only the classes `changed` (ascending, distinct)
    /// since the last refresh. The tables become equal to rebuilt ones; they are
    /// rebuilt where codes are not kept.
    pub fn update(&mut self, cpu: Cpu, class_vectors: RowsView<'_>, changed: &[u32]) {
        debug_assert!(changed.is_sorted_by(|a, b| a < b));
        let is_enough = self.codes_are_current && self.mean.is_none();
        self.fill(cpu, class_vectors, is_enough.then_some(changed));
    }

    /// Rebuilds or updates, whichever costs less: hashing scattered rows stops
    /// paying when most of them changed.
    pub fn refresh(&mut self, cpu: Cpu, class_vectors: RowsView<'_>, changed: Option<&[u32]>) {
        match changed {
            Some(changed) if changed.len() < self.classes / 4 * 3 => {
                self.update(cpu, class_vectors, changed);
            }
            _ => self.rebuild(cpu, class_vectors),
        }
    }

    /// The classes in the fullest bucket.
    pub fn bucket_max(&self) -> usize {
        let of_table = |offsets: &[u32]| offsets.windows(2).map(|bucket| bucket[1] - bucket[0]).max();
        let tables = self.offsets.par_chunks_exact(self.family.buckets() + 1);
        tables.filter_map(of_table).max().unwrap_or(0) as usize
    }

    /// How full the buckets are.
    pub fn occupancy(&self) -> Occupancy {
        let (tables, buckets) = (self.family.tables(), self.family.buckets());
        let sizes = self
            .offsets
            .chunks_exact(buckets + 1)
            .flat_map(|offsets| offsets.windows(2).map(|bucket| (bucket[1] - bucket[0]) as usize));
        Occupancy::of(tables, buckets, sizes)
    }
}
