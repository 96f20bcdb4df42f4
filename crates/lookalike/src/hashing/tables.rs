//! Flat hash tables over the class vectors (paper, algorithms 2 and 5).
//!
//! A table is two arrays: `ids`, all classes ordered by bucket and within a
//! bucket by id, and `offsets`, where each bucket starts. A counting sort makes
//! them from the classes' codes in O(N) a table, so nothing is wasted, nothing
//! races, and the result is the same whatever the number of threads.
//!
//! Codes are made chunk of classes by chunk (in parallel), then tables are
//! sorted table by table (in parallel). So that the codes of all classes in all
//! tables need not be in memory at once, tables are built in groups whose codes
//! take at most 128 MB. Where one group holds all tables, the codes
//! are there until the next refresh at no further cost, and a refresh may
//! re-hash only the classes that changed (algorithm 5).
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

use std::ops::Range;

use lookalike_kernels::{Cpu, LANES, prefetch};
use lookalike_mapped::Buffer;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Block, HashFamily, HashScratch, Occupancy};
use crate::collective::Shard;
use crate::model::RowsView;
use crate::scratch::PerThread;

/// Codes in memory while tables are built, unless they are kept.
const CODES_BYTES_MAX: usize = 128 << 20;

/// Classes in a chunk: a multiple of [`LANES`], and an odd number of cache
/// lines of narrow codes, so that the same class's codes in different tables do
/// not compete for one set of the cache.
const CHUNK: usize = 2016;

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

/// Codes by chunk of classes, in it by table, in it by class.
#[derive(Debug)]
enum CodeBuffer {
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

/// The bucket of every class in every table, table after table: all that tables are
/// made of, in half their size or less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableCodes {
    /// Up to 65,536 buckets.
    Narrow(Vec<u16>),
    /// More.
    Wide(Vec<u32>),
}

/// What one thread needs to hash.
#[derive(Debug, Default)]
struct HashWorker {
    block: Block,
    scratch: HashScratch,
    codes: Vec<u32>,
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

    /// Asks memory for what [`span`](Self::span) reads.
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

    /// The bucket of every class in every table, as the last refresh left them.
    pub fn codes(&self) -> TableCodes {
        match self.codes {
            CodeBuffer::Narrow(_) => TableCodes::Narrow(self.collect_codes()),
            CodeBuffer::Wide(_) => TableCodes::Wide(self.collect_codes()),
        }
    }

    fn collect_codes<C: Code>(&self) -> Vec<C> {
        let mut codes = vec![C::default(); self.ids.len()];
        if self.classes > 0 {
            let tables = codes.par_chunks_exact_mut(self.classes).enumerate();
            tables.for_each(|(table, codes)| {
                for code in 0..self.family.buckets() as u32 {
                    for &class in self.bucket(table, code) {
                        codes[class as usize] = C::store(code);
                    }
                }
            });
        }
        codes
    }

    /// The mean that class vectors were hashed less at the last refresh; empty if none.
    pub fn mean(&self) -> &[f32] {
        self.mean.as_ref().map_or(&[], |mean| &mean.mean)
    }

    /// Makes the tables what they were when [`codes`](Self::codes) and [`mean`](Self::mean)
    /// were taken of them. False, and nothing is changed, if these are not of such tables.
    pub fn restore(&mut self, codes: &TableCodes, mean: &[f32]) -> bool {
        let expected = if self.mean.is_some() { self.family.dim() } else { 0 };
        let is_restored = mean.len() == expected
            && match (codes, &self.codes) {
                (TableCodes::Narrow(codes), CodeBuffer::Narrow(_)) => self.restore_from(codes),
                (TableCodes::Wide(codes), CodeBuffer::Wide(_)) => self.restore_from(codes),
                _ => false,
            };
        if let Some(own) = self.mean.as_mut().filter(|_| is_restored) {
            own.mean = mean.to_vec();
        }
        is_restored
    }

    fn restore_from<C: Code>(&mut self, codes: &[C]) -> bool {
        let buckets = self.family.buckets();
        let fits = codes.len() == self.ids.len() && self.classes > 0;
        if !fits || codes.par_iter().any(|code| code.index() >= buckets) {
            return false;
        }
        let tables =
            self.offsets.par_chunks_exact_mut(buckets + 1).zip(self.ids.par_chunks_exact_mut(self.classes));
        tables.zip(codes.par_chunks_exact(self.classes)).for_each(|((offsets, ids), codes)| {
            counting_sort(std::iter::once(codes), offsets, ids);
        });
        self.codes_are_current = false;
        true
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

    fn fill(&mut self, cpu: Cpu, class_vectors: RowsView<'_>, changed: Option<&[u32]>) {
        assert_eq!(class_vectors.len(), self.classes, "tables are made for a number of classes");
        if self.classes == 0 {
            return;
        }
        self.workers.prepare();
        if let Some(mean) = &mut self.mean {
            mean.take(class_vectors);
        }
        let hashing = Hashing {
            cpu,
            family: &*self.family,
            mean: self.mean.as_ref().map(|mean| &mean.mean[..]),
            class_vectors,
            classes: self.classes,
            workers: &self.workers,
        };
        let (buckets, tables) = (self.family.buckets(), self.family.tables());
        for start in (0..tables).step_by(self.group) {
            let group = start..(start + self.group).min(tables);
            let offsets = &mut self.offsets[group.start * (buckets + 1)..group.end * (buckets + 1)];
            let ids = &mut self.ids[group.start * self.classes..group.end * self.classes];
            match &mut self.codes {
                CodeBuffer::Narrow(codes) => hashing.fill_group(codes, group, changed, offsets, ids),
                CodeBuffer::Wide(codes) => hashing.fill_group(codes, group, changed, offsets, ids),
            }
        }
        self.codes_are_current = self.keep;
    }
}

/// The mean of the class vectors.
#[derive(Debug, Default)]
struct ClassMean {
    mean: Vec<f32>,
    /// Sums of [`CHUNK`]s of classes, which are added up in their order.
    sums: Vec<f32>,
    /// Where other ranks have more classes.
    shard: Option<Shard>,
}

impl ClassMean {
    fn take(&mut self, class_vectors: RowsView<'_>) {
        let (classes, dim) = (class_vectors.len(), class_vectors.dim);
        let of_all = self.shard.as_ref().map_or(classes, Shard::num_classes);
        self.sums.clear();
        self.sums.resize(classes.div_ceil(CHUNK) * dim, 0.0);
        self.sums.par_chunks_exact_mut(dim).enumerate().for_each(|(chunk, sum)| {
            for class in chunk * CHUNK..((chunk + 1) * CHUNK).min(classes) {
                class_vectors.add_row(class, sum);
            }
        });
        self.mean.clear();
        self.mean.resize(dim, 0.0);
        for sum in self.sums.chunks_exact(dim) {
            self.mean.iter_mut().zip(sum).for_each(|(mean, x)| *mean += x / of_all as f32);
        }
        if let Some(shard) = &self.shard {
            shard.collective().sum_f32(&mut self.mean);
        }
    }
}

/// A stored code.
trait Code: Copy + Default + Send + Sync {
    fn store(code: u32) -> Self;
    fn index(self) -> usize;
}

impl Code for u16 {
    fn store(code: u32) -> Self {
        code as u16
    }
    fn index(self) -> usize {
        usize::from(self)
    }
}

impl Code for u32 {
    fn store(code: u32) -> Self {
        code
    }
    fn index(self) -> usize {
        self as usize
    }
}

/// One refresh: everything that stays the same from group to group.
struct Hashing<'a> {
    cpu: Cpu,
    family: &'a dyn HashFamily,
    class_vectors: RowsView<'a>,
    mean: Option<&'a [f32]>,
    classes: usize,
    workers: &'a PerThread<HashWorker>,
}

impl Hashing<'_> {
    fn fill_group<C: Code>(
        &self,
        codes: &mut Vec<C>,
        tables: Range<usize>,
        changed: Option<&[u32]>,
        offsets: &mut [u32],
        ids: &mut [u32],
    ) {
        let chunk_len = tables.len() * CHUNK;
        codes.resize(self.classes.div_ceil(CHUNK) * chunk_len, C::default());
        codes.par_chunks_exact_mut(chunk_len).enumerate().for_each(|(chunk, codes)| {
            self.workers.with(|worker| match changed {
                None => self.hash_chunk(chunk, tables.clone(), worker, codes),
                Some(changed) => self.rehash_chunk(chunk, tables.clone(), changed, worker, codes),
            });
        });
        let codes = &codes[..];
        let group = offsets
            .par_chunks_exact_mut(self.family.buckets() + 1)
            .zip(ids.par_chunks_exact_mut(self.classes));
        group.enumerate().for_each(|(table, (offsets, ids))| {
            let of_table = codes.chunks_exact(chunk_len).enumerate().map(|(chunk, codes)| {
                let len = (self.classes - chunk * CHUNK).min(CHUNK);
                &codes[table * CHUNK..][..len]
            });
            counting_sort(of_table, offsets, ids);
        });
    }

    fn hash_chunk<C: Code>(
        &self,
        chunk: usize,
        tables: Range<usize>,
        worker: &mut HashWorker,
        codes: &mut [C],
    ) {
        let first = chunk * CHUNK;
        for start in (first..(first + CHUNK).min(self.classes)).step_by(LANES) {
            let len = (self.classes - start).min(LANES);
            let ids: [u32; LANES] = std::array::from_fn(|lane| (start + lane) as u32);
            self.hash_block(&ids[..len], tables.clone(), worker);
            for (hashed, codes) in worker.codes.chunks_exact(LANES).zip(codes.chunks_exact_mut(CHUNK)) {
                let codes = &mut codes[start - first..][..LANES];
                for (code, &hashed) in codes.iter_mut().zip(hashed) {
                    *code = C::store(hashed);
                }
            }
        }
    }

    fn rehash_chunk<C: Code>(
        &self,
        chunk: usize,
        tables: Range<usize>,
        changed: &[u32],
        worker: &mut HashWorker,
        codes: &mut [C],
    ) {
        let first = chunk * CHUNK;
        let from = changed.partition_point(|&id| (id as usize) < first);
        let to = changed.partition_point(|&id| (id as usize) < first + CHUNK);
        for ids in changed[from..to].chunks(LANES) {
            self.hash_block(ids, tables.clone(), worker);
            for (hashed, codes) in worker.codes.chunks_exact(LANES).zip(codes.chunks_exact_mut(CHUNK)) {
                for (&id, &hashed) in ids.iter().zip(hashed) {
                    codes[id as usize - first] = C::store(hashed);
                }
            }
        }
    }

    fn hash_block(&self, ids: &[u32], tables: Range<usize>, worker: &mut HashWorker) {
        worker.codes.resize(tables.len() * LANES, 0);
        worker.block.load(self.cpu, self.class_vectors, ids);
        if let Some(mean) = self.mean {
            worker.block.subtract(mean);
        }
        let HashWorker { block, scratch, codes } = worker;
        self.family.hash_block(self.cpu, block, tables, scratch, codes);
    }
}

/// Orders the ids `0..ids.len()` by code, keeping their order where codes are
/// equal; `offsets` becomes the start of every code's ids, and the end. `codes`
/// come in pieces, in the order of the ids.
fn counting_sort<'a, C: Code + 'a>(
    codes: impl Iterator<Item = &'a [C]> + Clone,
    offsets: &mut [u32],
    ids: &mut [u32],
) {
    offsets.fill(0);
    for codes in codes.clone() {
        for code in codes {
            offsets[code.index()] += 1;
        }
    }
    let mut total = 0;
    for offset in offsets.iter_mut() {
        (*offset, total) = (total, total + *offset);
    }
    let mut id = 0;
    for codes in codes {
        for code in codes {
            let place = &mut offsets[code.index()];
            ids[*place as usize] = id;
            *place += 1;
            id += 1;
        }
    }
    // Each offset has moved on to the start of the next bucket.
    offsets.copy_within(..offsets.len() - 1, 1);
    offsets[0] = 0;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hashing::{Codes, Family, FamilyShape};
    use crate::random::{Stream, mix};

    const DIM: usize = 20;

    fn vectors(classes: usize, seed: u64) -> Vec<f32> {
        let stride = lookalike_kernels::padded(DIM);
        let mut data = vec![0.0; classes * stride];
        for (class, row) in data.chunks_mut(stride).enumerate() {
            fill_row(&mut row[..DIM], seed, class as u64);
        }
        data
    }

    fn fill_row(row: &mut [f32], seed: u64, class: u64) {
        for (j, x) in row.iter_mut().enumerate() {
            *x = (mix(seed, Stream::Data, class, j as u64) >> 40) as f32 - 8e6;
        }
    }

    fn family(k: usize, family: Family) -> Box<dyn HashFamily> {
        FamilyShape { family, dim: DIM, k, l: 5, bin: 8, codes: Codes::Clean }.draw(7).unwrap()
    }

    fn in_pool<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
    }

    fn assert_equal(a: &HashTables, b: &HashTables) {
        assert!(a.offsets == b.offsets && a.ids == b.ids);
    }

    /// A wide span has the classes whose codes agree in all functions but the first few.
    #[test]
    fn wide_spans_are_buckets_of_fewer_functions() {
        for (k, kind) in [(3, Family::Dwta), (5, Family::Simhash)] {
            let data = vectors(700, 1);
            let rows = RowsView::f32(&data, DIM);
            let mut tables = HashTables::new(family(k, kind), 700, Incremental::Never);
            tables.rebuild(Cpu::detect(), rows);
            assert_eq!(tables.functions_to_spare(), k as u32 - 1);
            let mut codes = vec![0; 700 * 5];
            let ids: Vec<u32> = (0..700).collect();
            tables.family().hash_rows(Cpu::detect(), rows, &ids, 0..5, &mut codes);
            let bits = tables.family().shape().shift();
            for (table, query) in [(0, 3), (4, 699)] {
                let code = codes[query * 5 + table];
                assert_eq!(tables.wide_span(table, code, 0), tables.span(table, code));
                for spared in 1..k as u32 {
                    let mut found = tables.ids()[tables.wide_span(table, code, spared)].to_vec();
                    found.sort_unstable();
                    let agrees = |id: &u32| {
                        codes[*id as usize * 5 + table] >> (bits * spared) == code >> (bits * spared)
                    };
                    assert_eq!(found, ids.iter().copied().filter(agrees).collect::<Vec<u32>>());
                }
            }
        }
        let overlapped =
            FamilyShape { family: Family::Dwta, dim: DIM, k: 3, l: 5, bin: 8, codes: Codes::Overlapped };
        let tables = HashTables::new(overlapped.draw(7).unwrap(), 9, Incremental::Never);
        assert_eq!(tables.functions_to_spare(), 0, "their codes do not tell functions apart");
    }

    /// Centred tables are tables of centred vectors, after a rebuild and after an update.
    #[test]
    fn centred_tables_forget_what_all_classes_have_in_common() {
        let (mut data, classes) = (vectors(CHUNK + 300, 1), CHUNK + 300);
        let stride = lookalike_kernels::padded(DIM);
        let mut tables = HashTables::new(family(2, Family::Dwta), classes, Incremental::Always).centred();
        tables.rebuild(Cpu::detect(), RowsView::f32(&data, DIM));
        for class in [5, CHUNK + 1] {
            fill_row(&mut data[class * stride..][..DIM], 3, class as u64);
        }
        tables.update(Cpu::detect(), RowsView::f32(&data, DIM), &[5, CHUNK as u32 + 1]);
        let mut centred = data.clone();
        for j in 0..DIM {
            let column = || (0..classes).map(|class| class * stride + j);
            let mean = column().map(|at| f64::from(data[at])).sum::<f64>() / classes as f64;
            column().for_each(|at| centred[at] -= mean as f32);
        }
        let ids: Vec<u32> = (0..classes as u32).collect();
        let mut codes = vec![0; classes * 5];
        tables.family().hash_rows(Cpu::detect(), RowsView::f32(&centred, DIM), &ids, 0..5, &mut codes);
        let is_elsewhere = |place: &usize| {
            let (class, table) = ((place / 5) as u32, place % 5);
            tables.bucket(table, codes[*place]).binary_search(&class).is_err()
        };
        // Means are summed in another order: a near tie may fall the other way.
        let elsewhere = (0..codes.len()).filter(is_elsewhere).count();
        assert!(elsewhere < codes.len() / 1000, "{elsewhere} of {}", codes.len());
        let mut block = Block::default();
        tables.load_classes(Cpu::detect(), RowsView::f32(&data, DIM), &[7], &mut block);
        assert!((block.values()[0] - centred[7 * stride]).abs() < 10.0, "of numbers up to 8e6");
    }

    #[test]
    fn every_class_is_in_its_bucket_of_every_table() {
        for (k, kind) in [(2, Family::Dwta), (6, Family::Dwta), (4, Family::Simhash)] {
            let classes = CHUNK * 2 + 5;
            let data = vectors(classes, 1);
            let rows = RowsView::f32(&data, DIM);
            let mut tables = HashTables::new(family(k, kind), classes, Incremental::Auto);
            tables.rebuild(Cpu::detect(), rows);
            let ids: Vec<u32> = (0..classes as u32).collect();
            let mut codes = vec![0; classes * 5];
            tables.family().hash_rows(Cpu::detect(), rows, &ids, 0..5, &mut codes);
            for table in 0..5 {
                let mut buckets = vec![Vec::new(); tables.family().buckets()];
                for &id in &ids {
                    buckets[codes[id as usize * 5 + table] as usize].push(id);
                }
                for (code, bucket) in buckets.iter().enumerate() {
                    assert_eq!(tables.bucket(table, code as u32), bucket);
                }
            }
            let occupancy = tables.occupancy();
            let mean = classes as f64 / tables.family().buckets() as f64;
            assert!((occupancy.mean - mean).abs() < 1e-9);
        }
    }

    #[test]
    fn codes_make_the_same_tables_again() {
        for (k, kind) in [(2, Family::Dwta), (6, Family::Dwta), (4, Family::Simhash)] {
            let classes = CHUNK + 5;
            let data = vectors(classes, 1);
            let mut tables = HashTables::new(family(k, kind), classes, Incremental::Auto);
            tables.rebuild(Cpu::detect(), RowsView::f32(&data, DIM));
            let codes = tables.codes();
            let mut restored = HashTables::new(family(k, kind), classes, Incremental::Auto);
            assert!(restored.restore(&codes, &[]));
            assert_equal(&tables, &restored);
            // Those of centred vectors know what queries are less by.
            let mut centred = HashTables::new(family(k, kind), classes, Incremental::Auto).centred();
            centred.rebuild(Cpu::detect(), RowsView::f32(&data, DIM));
            let mut restored_centred = HashTables::new(family(k, kind), classes, Incremental::Auto).centred();
            assert!(!restored_centred.restore(&centred.codes(), &[]));
            assert!(restored_centred.restore(&centred.codes(), centred.mean()));
            assert_equal(&centred, &restored_centred);
            assert!(centred.mean().iter().any(|&x| x != 0.0) && restored_centred.mean() == centred.mean());
            // Refreshed, they are no older than others.
            let other = vectors(classes, 2);
            restored.refresh(Cpu::detect(), RowsView::f32(&other, DIM), Some(&[1]));
            tables.rebuild(Cpu::detect(), RowsView::f32(&other, DIM));
            assert_equal(&tables, &restored);
            // Codes of other tables.
            let before = restored.codes();
            for bad in [TableCodes::Narrow(vec![0; 7]), TableCodes::Wide(vec![u32::MAX; classes * 5])] {
                assert!(!restored.restore(&bad, &[]));
                assert!(!restored.restore(&before, &[0.0; DIM]));
            }
            assert_eq!(restored.codes(), before);
        }
    }

    #[test]
    fn groups_do_not_change_the_tables() {
        let data = vectors(3_000, 2);
        let mut at_once = HashTables::new(family(3, Family::Dwta), 3_000, Incremental::Always);
        let mut in_groups = HashTables::new(family(3, Family::Dwta), 3_000, Incremental::Never);
        in_groups.group = 2;
        at_once.rebuild(Cpu::detect(), RowsView::f32(&data, DIM));
        in_groups.rebuild(Cpu::detect(), RowsView::f32(&data, DIM));
        assert_equal(&at_once, &in_groups);
    }

    #[test]
    fn one_thread_and_many_build_the_same() {
        let data = vectors(10_000, 3);
        let build = |threads| {
            in_pool(threads, || {
                let mut tables = HashTables::new(family(3, Family::Dwta), 10_000, Incremental::Auto);
                tables.rebuild(Cpu::detect(), RowsView::f32(&data, DIM));
                tables
            })
        };
        let one = build(1);
        for threads in [2, 3, 7] {
            assert_equal(&one, &build(threads));
        }
    }

    #[test]
    fn no_classes_are_no_trouble() {
        let mut tables = HashTables::new(family(3, Family::Dwta), 0, Incremental::Auto);
        tables.rebuild(Cpu::detect(), RowsView::f32(&[], DIM));
        assert!(tables.bucket(4, 100).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Algorithm 5 against algorithm 2.
        #[test]
        fn updates_equal_a_rebuild(
            k in prop_oneof![Just(3usize), Just(6)], // narrow and wide codes
            keep in prop_oneof![Just(Incremental::Always), Just(Incremental::Never), Just(Incremental::Auto)],
            threads in 1usize..4,
            steps in prop::collection::vec(
                prop::collection::btree_set(0u32..4_500, 0..300), 1..5),
        ) {
            let mut data = vectors(4_500, 5);
            let mut updated = HashTables::new(family(k, Family::Dwta), 4_500, keep);
            let mut rebuilt = HashTables::new(family(k, Family::Dwta), 4_500, Incremental::Never);
            updated.rebuild(Cpu::detect(), RowsView::f32(&data, DIM));
            for (step, changed) in steps.iter().enumerate() {
                let stride = lookalike_kernels::padded(DIM);
                for &id in changed {
                    let row = &mut data[id as usize * stride..][..DIM];
                    fill_row(row, 6 + step as u64, u64::from(id));
                }
                let rows = RowsView::f32(&data, DIM);
                let changed: Vec<u32> = changed.iter().copied().collect();
                in_pool(threads, || updated.refresh(Cpu::detect(), rows, Some(&changed)));
                rebuilt.rebuild(Cpu::detect(), rows);
                assert_equal(&updated, &rebuilt);
            }
        }
    }
}
