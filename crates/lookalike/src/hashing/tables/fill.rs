//! Hashing classes and sorting them into tables (paper, algorithms 2 and 5).
//!
//! Codes are made chunk of classes by chunk (in parallel), then tables are
//! sorted table by table (in parallel). So that the codes of all classes in all
//! tables need not be in memory at once, tables are built in groups whose codes
//! take at most 128 MB. Where one group holds all tables, the codes
//! are there until the next refresh at no further cost, and a refresh may
//! re-hash only the classes that changed (algorithm 5).

use std::ops::Range;

use lookalike_kernels::{Cpu, LANES};
use rayon::prelude::*;

use super::HashTables;
use super::codes::{Code, CodeBuffer};
use crate::hashing::{Block, HashFamily, HashScratch};
use crate::model::RowsView;
use crate::scratch::PerThread;

/// Classes in a chunk: a multiple of [`LANES`], and an odd number of cache
/// lines of narrow codes, so that the same class's codes in different tables do
/// not compete for one set of the cache.
pub(super) const CHUNK: usize = 2016;

/// What one thread needs to hash.
#[derive(Debug, Default)]
pub(super) struct HashWorker {
    block: Block,
    scratch: HashScratch,
    codes: Vec<u32>,
}

impl HashTables {
    pub(super) fn fill(&mut self, cpu: Cpu, class_vectors: RowsView<'_>, changed: Option<&[u32]>) {
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
pub(super) fn counting_sort<'a, C: Code + 'a>(
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
