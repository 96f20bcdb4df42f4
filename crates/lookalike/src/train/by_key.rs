//! A batch's pairs sorted by class: from *which classes has this example* to
//! *which examples has this class*.
//!
//! A training step visits each class once, with all of its examples, so that a
//! row is read and written once a batch and by one thread only. This module
//! sorts a batch's (example, key) pairs by key, where a key is a class or a
//! feature:
//!
//! 1. Blocks of keys are joined into parts of about equal work, as far as some of the
//!    examples tell. Bounds depend on the batch alone, never on the number of threads, so
//!    sums over parts always add up in the same order. No part reaches beyond one of the
//!    [`Ranges`], and what is in the others does not move its bounds: ranks, who have some
//!    ranges each, have the parts of one process.
//! 2. Chunks of examples count, in parallel, how many pairs fall in each block, and
//!    deal their pairs out: so many blocks that what a block holds fits the nearest
//!    caches, so few that the line each is written to does.
//! 3. Each part sorts its blocks by key: by counting where keys are dense, by
//!    comparison where they are sparse, so that the cost does not grow with the
//!    number of keys. Both give the same order: by key, then by example.
//!
//! Cost: O(pairs) time and 8 bytes a pair; buffers are kept between batches.
//!
//! Where examples have so many keys that they come as bits, [`bits`] transposes
//! them, with the same result.

mod bits;

pub(super) use lookalike_kernels::KeyGroup;
use lookalike_kernels::{Cpu, Element, prefetch};
use rayon::prelude::*;

use crate::collective::{Ranges, join_in_tree};
use crate::optim::RowsMut;
use crate::sampling::BitRows;
use crate::scratch::{grow, make_room};

/// Parts a batch is cut into, about; more than any machine we expect has threads.
const PARTS: usize = 32;
/// Examples, about, that say where.
const SAMPLED_EXAMPLES: usize = 64;
/// Shares of them that are counted in parallel.
const SAMPLES: usize = 8;
/// At least this many chunks of examples count and deal in parallel.
const CHUNKS_MIN: usize = 32;
/// Pairs in a chunk, about: half a megabyte, which stays in L2 while it is dealt.
const CHUNK_PAIRS: usize = 1 << 17;
/// Chunks from which a block's items are prefetched.
const CHUNKS_AHEAD: usize = 2;
const ITEMS_PER_LINE: usize = 16;
/// The pairs of a batch, by example.
pub(super) trait Pairs: Sync {
    /// The number of examples.
    fn num_examples(&self) -> usize;

    /// Calls `visit(key, entry)` for each pair of an example. Entries must rise
    /// with the example and within it.
    fn for_each(&self, example: usize, visit: impl FnMut(u32, u32));

    /// The keys of each example as bits, if they are known so. Entries are then
    /// the example's number, shifted for the flags that [`Pairs::for_each_flagged`]
    /// tells of.
    fn bits(&self) -> Option<BitRows<'_>> {
        None
    }

    /// Calls `visit(key, entry)` for those pairs of an example whose entry has flags.
    fn for_each_flagged(&self, _example: usize, _visit: impl FnMut(u32, u32)) {}
}

/// The pairs of a batch, by key.
#[derive(Debug, Default)]
pub(super) struct PairsByKey {
    chunks: Vec<Chunk>,
    /// Pairs of some examples in each block of keys; more of it than [`SAMPLES`] have counted.
    counts: Vec<u32>,
    /// Of bits: keys and entries of the pairs with flags, ascending.
    flagged: Vec<(u32, u32)>,
    /// Disjoint ranges of keys, ascending, that cover all keys.
    pub parts: Vec<Part>,
    num_parts: usize,
    /// Pairs and different keys, before any were left out.
    sizes: (usize, usize),
}

/// A range of keys with its pairs.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The first key of the range.
    pub first_key: usize,
    /// The number of keys in the range.
    pub num_keys: usize,
    /// Which of the [`Ranges`] it is in.
    pub range: usize,
    /// Keys that occur, ascending.
    pub groups: Vec<KeyGroup>,
    /// Entries of all groups, one after the other.
    pub entries: Vec<u32>,
    blocks: std::ops::Range<usize>,
    counts: Vec<u32>,
    /// A block of bits, transposed.
    columns: Vec<u64>,
}

impl Part {
    /// One of a range, without pairs.
    pub(super) fn of(first_key: usize, num_keys: usize, range: usize) -> Self {
        Self { first_key, num_keys, range, ..Self::default() }
    }

    /// Each key that occurs (counted from the part's first) with its entries' range.
    pub(super) fn groups(&self) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> + '_ {
        let ends = self.groups.iter().skip(1).map(|g| g.start).chain([self.entries.len() as u32]);
        let ranges = self.groups.iter().zip(ends);
        ranges.map(|(group, end)| (group.local_key as usize, group.start as usize..end as usize))
    }

    /// Where the entries of a group are.
    pub(super) fn range(&self, group: usize) -> std::ops::Range<usize> {
        let end = self.groups.get(group + 1).map_or(self.entries.len(), |next| next.start as usize);
        self.groups[group].start as usize..end
    }
}

#[derive(Debug, Default)]
struct Chunk {
    /// Pairs by block: the key within the block, shifted left, and the entry.
    items: Vec<u32>,
    /// Where each block's items start, and one more.
    starts: Vec<u32>,
}

impl PairsByKey {
    /// Sorts `pairs`, whose keys are those of `ranges` and entries below
    /// `2^entry_bits`. There are as many parts as `usual` pairs an example are worth, or
    /// what there is if nobody knows; ranks know only what is the same for all.
    ///
    /// # Panics
    /// If `entry_bits` leaves no room for keys; batches are limited before.
    pub(super) fn sort(
        &mut self,
        cpu: Cpu,
        pairs: &impl Pairs,
        (ranges, usual): (Ranges, Option<usize>),
        entry_bits: u32,
    ) {
        assert!(entry_bits < 32, "a batch has fewer than 2^31 pairs of examples and features");
        // A key within its block and an entry share 32 bits.
        let bits = ItemBits { block: ranges.block_bits().min(32 - entry_bits), entry: entry_bits };
        let num_blocks = ranges.keys().len().div_ceil(1 << bits.block).max(1);
        self.choose_parts(pairs, (ranges, usual), num_blocks, bits);
        if let Some(rows) = pairs.bits() {
            return self.transpose(cpu, pairs, rows);
        }
        // The last batch tells how many pairs to expect. Chunks never show in
        // the result.
        let num_chunks = (self.sizes.0 / CHUNK_PAIRS).next_power_of_two().max(CHUNKS_MIN);
        let chunk_len = pairs.num_examples().div_ceil(num_chunks).max(1);
        self.chunks.resize_with(num_chunks.max(self.chunks.len()), Chunk::default);

        let examples_of = |chunk: usize| {
            let start = (chunk * chunk_len).min(pairs.num_examples());
            start..(start + chunk_len).min(pairs.num_examples())
        };
        self.chunks.par_iter_mut().enumerate().for_each(|(i, chunk)| {
            chunk.count(pairs, examples_of(i), num_blocks, bits);
            chunk.deal(pairs, examples_of(i), bits);
        });
        let chunks = &self.chunks;
        self.parts[..self.num_parts].par_iter_mut().for_each(|part| part.sort(chunks, bits));
        self.count();
    }

    /// The parts of the last batch.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts[..self.num_parts]
    }

    /// The same, to leave pairs out.
    pub(super) fn parts_mut(&mut self) -> &mut [Part] {
        &mut self.parts[..self.num_parts]
    }

    /// The pairs of the last batch, those left out since among them.
    pub(super) fn num_pairs(&self) -> usize {
        self.sizes.0
    }

    /// The different keys among them.
    pub(super) fn num_keys(&self) -> usize {
        self.sizes.1
    }

    fn count(&mut self) {
        let sizes = |part: &Part| (part.entries.len(), part.groups.len());
        self.sizes = self.parts().iter().map(sizes).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    }

    /// Cuts the ranges into parts, between blocks.
    fn choose_parts(
        &mut self,
        pairs: &impl Pairs,
        (ranges, usual): (Ranges, Option<usize>),
        num_blocks: usize,
        bits: ItemBits,
    ) {
        let step = pairs.num_examples().div_ceil(SAMPLED_EXAMPLES).max(1);
        self.counts.clear();
        self.counts.resize(num_blocks * SAMPLES, 0);
        self.counts.par_chunks_exact_mut(num_blocks).enumerate().for_each(|(sample, counts)| {
            for example in (sample * step..pairs.num_examples()).step_by(SAMPLES * step) {
                pairs.for_each(example, |key, _| counts[bits.block_of(key)] += 1);
            }
        });
        join_in_tree(&mut self.counts, num_blocks, |a, b| a + b);
        let sum = |counts: &[u32]| counts.iter().map(|&count| count as usize).sum::<usize>();
        let total = match usual {
            Some(usual) => usual * pairs.num_examples().div_ceil(step),
            None => sum(&self.counts[..num_blocks]),
        };
        self.num_parts = 0;
        for (range, keys) in ranges.iter().enumerate().filter(|(_, keys)| !keys.is_empty()) {
            let blocks = keys.start >> bits.block..keys.end.div_ceil(1 << bits.block);
            let load = sum(&self.counts[blocks.clone()]);
            let parts = ((load * PARTS + total / 2) / total.max(1)).clamp(1, PARTS);
            let (mut part, mut first_block, mut sum) = (0, blocks.start, 0);
            for block in blocks.clone() {
                // Even quotas of the range's load; a part ends when it passes its own.
                if block > first_block && sum >= (part + 1) * load / parts && sum > 0 {
                    self.add_part(range, first_block..block, bits, keys.end);
                    part += 1;
                    first_block = block;
                }
                sum += self.counts[block] as usize;
            }
            self.add_part(range, first_block..blocks.end, bits, keys.end);
        }
    }

    fn add_part(&mut self, range: usize, blocks: std::ops::Range<usize>, bits: ItemBits, end: usize) {
        if self.parts.len() <= self.num_parts {
            self.parts.resize_with(self.num_parts + 1, Part::default);
        }
        let part = &mut self.parts[self.num_parts];
        self.num_parts += 1;
        part.range = range;
        part.first_key = blocks.start << bits.block;
        part.num_keys = (blocks.end << bits.block).min(end) - part.first_key;
        part.blocks = blocks;
    }
}

/// How the 32 bits of a key and its entry are shared.
#[derive(Clone, Copy)]
struct ItemBits {
    /// Of a key, those that count the keys within a block.
    block: u32,
    /// Of an entry.
    entry: u32,
}

impl ItemBits {
    fn block_of(self, key: u32) -> usize {
        (key >> self.block) as usize
    }

    fn item(self, key: u32, entry: u32) -> u32 {
        (key & ((1 << self.block) - 1)) << self.entry | entry
    }

    /// The key of an item, counted from its block's first.
    fn key_of(self, item: u32) -> usize {
        (item >> self.entry) as usize
    }

    fn entry_of(self, item: u32) -> u32 {
        item & ((1 << self.entry) - 1)
    }
}

impl Chunk {
    /// Finds where each block's items will start.
    fn count(
        &mut self,
        pairs: &impl Pairs,
        examples: std::ops::Range<usize>,
        num_blocks: usize,
        bits: ItemBits,
    ) {
        self.starts.clear();
        self.starts.resize(num_blocks + 1, 0);
        let starts = &mut self.starts[..];
        for example in examples {
            pairs.for_each(example, |key, _| starts[bits.block_of(key)] += 1);
        }
        let mut sum = 0;
        for start in starts {
            sum += std::mem::replace(start, sum);
        }
        renew(&mut self.items, sum as usize);
    }

    fn deal(&mut self, pairs: &impl Pairs, examples: std::ops::Range<usize>, bits: ItemBits) {
        // Slices, so that their places stay in registers.
        let (starts, items) = (&mut self.starts[..], &mut self.items[..]);
        for example in examples {
            pairs.for_each(example, |key, entry| {
                let at = &mut starts[bits.block_of(key)];
                items[*at as usize] = bits.item(key, entry);
                *at += 1;
            });
        }
        // Each start has moved to its block's end, which is the next one's start.
        self.starts.rotate_right(1);
        self.starts[0] = 0;
    }

    fn items_of(&self, block: usize) -> &[u32] {
        &self.items[self.starts[block] as usize..self.starts[block + 1] as usize]
    }
}

impl Part {
    fn sort(&mut self, chunks: &[Chunk], bits: ItemBits) {
        let len_of = |block| chunks.iter().map(|chunk| chunk.items_of(block).len()).sum::<usize>();
        make_room(&mut self.entries, self.blocks.clone().map(len_of).sum());
        self.groups.clear();
        for block in self.blocks.clone() {
            let range = self.entries.len()..self.entries.len() + len_of(block);
            // As in `renew`, and just before they are written.
            self.entries.resize(range.end, 0);
            let keys = (1 << bits.block).min(self.first_key + self.num_keys - (block << bits.block));
            if keys <= 2 * range.len() {
                self.sort_by_counting(block, range, keys, chunks, bits);
            } else {
                self.sort_by_comparing(block, range, chunks, bits);
            }
        }
    }

    /// A block's first key, counted from the part's.
    fn local_key(&self, block: usize, bits: ItemBits) -> u32 {
        ((block << bits.block) - self.first_key) as u32
    }

    fn sort_by_counting(
        &mut self,
        block: usize,
        range: std::ops::Range<usize>,
        keys: usize,
        chunks: &[Chunk],
        bits: ItemBits,
    ) {
        let first = self.local_key(block, bits);
        self.counts.clear();
        self.counts.resize(keys, 0);
        let (counts, entries) = (&mut self.counts[..], &mut self.entries[..]);
        for (i, chunk) in chunks.iter().enumerate() {
            if let Some(ahead) = chunks.get(i + CHUNKS_AHEAD) {
                let items = ahead.items_of(block);
                (0..items.len()).step_by(ITEMS_PER_LINE).for_each(|at| prefetch(items, at));
            }
            for &item in chunk.items_of(block) {
                counts[bits.key_of(item)] += 1;
            }
        }
        let mut start = range.start as u32;
        for (key, count) in (first..).zip(&mut *counts) {
            let here = start;
            if *count > 0 {
                self.groups.push(KeyGroup { local_key: key, start: here });
            }
            start += *count;
            *count = here;
        }
        for chunk in chunks {
            for &item in chunk.items_of(block) {
                let at = &mut counts[bits.key_of(item)];
                entries[*at as usize] = bits.entry_of(item);
                *at += 1;
            }
        }
    }

    fn sort_by_comparing(
        &mut self,
        block: usize,
        range: std::ops::Range<usize>,
        chunks: &[Chunk],
        bits: ItemBits,
    ) {
        let first = self.local_key(block, bits);
        let mut start = range.start as u32;
        let mut free = &mut self.entries[range.clone()];
        for items in chunks.iter().map(|chunk| chunk.items_of(block)) {
            let (place, rest) = free.split_at_mut(items.len());
            place.copy_from_slice(items);
            free = rest;
        }
        let items = &mut self.entries[range];
        items.sort_unstable();
        for group in items.chunk_by_mut(|&a, &b| bits.key_of(a) == bits.key_of(b)) {
            self.groups.push(KeyGroup { local_key: first + bits.key_of(group[0]) as u32, start });
            start += group.len() as u32;
            group.iter_mut().for_each(|item| *item = bits.entry_of(*item));
        }
    }
}

/// Zeroes, for writes in no order to come: written front to back they come into
/// the cache at full speed, where each of the others would wait for its line.
fn renew(buffer: &mut Vec<u32>, len: usize) {
    buffer.clear();
    grow(buffer, len);
}

/// Rows of consecutive keys, to be shared out among threads.
pub(super) trait SplitRows: Sized + Send {
    /// The rows before and from the one at `row`, counted from the first.
    fn split_at(self, row: usize) -> (Self, Self);
}

impl<T: Element> SplitRows for RowsMut<'_, T> {
    fn split_at(self, row: usize) -> (Self, Self) {
        self.split_at(row)
    }
}

/// Rows of two kinds that belong to the same keys.
impl<A: SplitRows, B: SplitRows> SplitRows for (A, Option<B>) {
    fn split_at(self, row: usize) -> (Self, Self) {
        let (first, second) = self.0.split_at(row);
        let (others, more) = self.1.map(|rows| rows.split_at(row)).unzip();
        ((first, others), (second, more))
    }
}

/// Gives each part the rows that belong to it, in parallel.
pub(super) fn for_each_part<R: SplitRows, W: Send>(
    rows: R,
    parts: &[Part],
    work: &mut [W],
    run: &(impl Fn(R, &Part, &mut W) + Sync),
) {
    match parts {
        [] => {}
        [part] => run(rows, part, &mut work[0]),
        _ => {
            let middle = parts.len() / 2;
            let (left, right) = parts.split_at(middle);
            let (left_work, right_work) = work.split_at_mut(middle);
            let (left_rows, right_rows) = rows.split_at(right[0].first_key - left[0].first_key);
            rayon::join(
                || for_each_part(left_rows, left, left_work, run),
                || for_each_part(right_rows, right, right_work, run),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Lists(Vec<Vec<u32>>);

    impl Pairs for Lists {
        fn num_examples(&self) -> usize {
            self.0.len()
        }
        fn for_each(&self, example: usize, mut visit: impl FnMut(u32, u32)) {
            for &key in &self.0[example] {
                visit(key, example as u32);
            }
        }
    }

    pub(super) fn listed(sorted: &PairsByKey) -> Vec<(u32, u32)> {
        let mut pairs = Vec::new();
        for part in sorted.parts() {
            for (local_key, range) in part.groups() {
                let key = (part.first_key + local_key) as u32;
                pairs.extend(part.entries[range].iter().map(|&e| (key, e)));
            }
        }
        pairs
    }

    fn check(sorted: &mut PairsByKey, lists: Vec<Vec<u32>>, num_keys: usize, entry_bits: u32) {
        let lists = Lists(lists);
        sorted.sort(Cpu::detect(), &lists, (Ranges::whole(num_keys), None), entry_bits);
        let mut expected: Vec<(u32, u32)> = Vec::new();
        for example in 0..lists.num_examples() {
            lists.for_each(example, |key, entry| expected.push((key, entry)));
        }
        expected.sort_unstable();
        assert_eq!(listed(sorted), expected);
        let keys: usize = sorted.parts().iter().map(|p| p.num_keys).sum();
        assert_eq!(keys, num_keys.max(1).min(num_keys.max(keys)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn equals_a_plain_sort(
            num_keys in 1usize..20_000,
            entry_bits in 8u32..31,
            lists in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..40), 0..200),
        ) {
            let lists = lists.into_iter().map(|mut keys| {
                keys.iter_mut().for_each(|key| *key %= num_keys as u32);
                keys.sort_unstable();
                keys.dedup();
                keys
            });
            check(&mut PairsByKey::default(), lists.collect(), num_keys, entry_bits);
        }
    }

    #[test]
    fn buffers_of_an_earlier_larger_batch_do_not_leak_into_a_smaller() {
        let mut sorted = PairsByKey::default();
        check(&mut sorted, (0..100).map(|e| (e..e + 50).collect()).collect(), 200, 8);
        check(&mut sorted, vec![vec![3], vec![], vec![1, 3]], 5, 8);
        check(&mut sorted, vec![], 5, 8);
    }

    #[test]
    fn one_crowded_key_does_not_disturb_the_rest() {
        let lists = (0..500u32).map(|e| if e == 0 { vec![0] } else { vec![0, e * 100] }).collect();
        check(&mut PairsByKey::default(), lists, 50_000, 9);
    }
}
