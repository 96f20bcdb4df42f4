//! Sorting by key where keys come as bits, a row an example.
//!
//! Squares of 64 × 64 bits are transposed, then each key's examples are read off:
//! O(examples · keys / 64), however many bits are set. The order is that of the
//! lists, by key, then by example.

use lookalike_kernels::{BIT_ROWS, BIT_WORDS, Cpu, FLAG_BITS, count_ones, indices_of_ones, transpose_bits};
use rayon::prelude::*;

use super::{KeyGroup, Pairs, PairsByKey, Part};
use crate::sampling::{BLOCK_WORDS, BitRows};
use crate::scratch::{extend, grow};

/// Keys whose bits are transposed together.
const BLOCK_OF_BITS: usize = BIT_ROWS * BLOCK_WORDS;
/// Stripes of examples whose bits lie side by side then.
const STRIPES: usize = BIT_WORDS / BLOCK_WORDS;

impl PairsByKey {
    /// [`PairsByKey::sort`] by squares of bits.
    pub(super) fn transpose(&mut self, cpu: Cpu, pairs: &impl Pairs, rows: BitRows<'_>) {
        self.flagged.clear();
        for example in 0..pairs.num_examples() {
            pairs.for_each_flagged(example, |key, entry| self.flagged.push((key, entry)));
        }
        self.flagged.sort_unstable();
        let flagged = &self.flagged[..];
        self.parts[..self.num_parts].par_iter_mut().for_each(|part| {
            part.read_off(cpu, rows);
            part.flag(flagged);
        });
        self.count();
    }
}

impl Part {
    /// Groups and entries from bits, block by block. Parts may share one.
    fn read_off(&mut self, cpu: Cpu, rows: BitRows<'_>) {
        let Self { first_key, num_keys, groups, entries, columns, .. } = self;
        let (first_key, end_key) = (*first_key, *first_key + *num_keys);
        let blocks = first_key / BLOCK_OF_BITS..end_key.div_ceil(BLOCK_OF_BITS);
        let stripes = rows.num_examples().div_ceil(BIT_ROWS).next_multiple_of(STRIPES);
        grow(columns, BLOCK_OF_BITS * stripes);
        groups.clear();
        entries.clear();
        for block in blocks.clone() {
            let mut examples = rows.block(block);
            for stripe in (0..stripes).step_by(STRIPES) {
                let mut squares = [[0; BIT_WORDS]; BIT_ROWS];
                for place in (0..BIT_WORDS).step_by(BLOCK_WORDS) {
                    for (row, words) in squares.iter_mut().zip(&mut examples) {
                        row[place..][..BLOCK_WORDS].copy_from_slice(words);
                    }
                }
                transpose_bits(cpu, &mut squares);
                for (i, row) in squares.iter().enumerate() {
                    for (place, &column) in row.iter().enumerate() {
                        let key = place % BLOCK_WORDS * BIT_ROWS + i;
                        columns[key * stripes + stripe + place / BLOCK_WORDS] = column;
                    }
                }
                if block + 1 < blocks.end {
                    rows.prefetch(block + 1, stripe * BIT_ROWS..(stripe + STRIPES) * BIT_ROWS);
                }
            }
            let ones = count_ones(cpu, columns);
            let mut end = entries.len();
            extend(entries, end + ones + BIT_ROWS);
            let first_of_block = block * BLOCK_OF_BITS;
            let keys = first_of_block.max(first_key)..end_key.min(first_of_block + BLOCK_OF_BITS);
            let columns = columns.chunks_exact(stripes).skip(keys.start - first_of_block);
            for (key, column) in keys.zip(columns) {
                let found = indices_of_ones(cpu, column, FLAG_BITS, &mut entries[end..]);
                if found > 0 {
                    groups.push(KeyGroup { local_key: (key - first_key) as u32, start: end as u32 });
                }
                end += found;
            }
            entries.truncate(end);
        }
    }

    /// Adds the flags of those pairs that have some; `flagged` may tell of other
    /// parts' pairs too.
    fn flag(&mut self, flagged: &[(u32, u32)]) {
        let place = |key: usize| flagged.partition_point(|&(flagged, _)| (flagged as usize) < key);
        let mine = place(self.first_key)..place(self.first_key + self.num_keys);
        for &(key, entry) in &flagged[mine] {
            let local_key = key - self.first_key as u32;
            let group = self.groups.partition_point(|group| group.local_key < local_key);
            let start = self.groups[group].start as usize;
            let end = self.groups.get(group + 1).map_or(self.entries.len(), |next| next.start as usize);
            let entries = &mut self.entries[start..end];
            let plain = entry >> FLAG_BITS << FLAG_BITS;
            let at = entries.partition_point(|&other| other < plain);
            entries[at] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::listed;
    use super::*;
    use crate::collective::Ranges;

    /// The same pairs as lists and as bits, some of them flagged.
    struct Marked {
        lists: Vec<Vec<u32>>,
        bits: Option<Vec<u64>>,
        words: usize,
    }

    impl Marked {
        fn is_flagged(key: u32, example: usize) -> bool {
            (key as usize * 7 + example).is_multiple_of(5)
        }
    }

    impl Pairs for Marked {
        fn num_examples(&self) -> usize {
            self.lists.len()
        }
        fn for_each(&self, example: usize, mut visit: impl FnMut(u32, u32)) {
            for &key in &self.lists[example] {
                visit(key, (example as u32) << FLAG_BITS | u32::from(Self::is_flagged(key, example)));
            }
        }
        fn bits(&self) -> Option<BitRows<'_>> {
            self.bits.as_ref().map(|bits| BitRows { bits, words: self.words })
        }
        fn for_each_flagged(&self, example: usize, mut visit: impl FnMut(u32, u32)) {
            self.for_each(example, |key, entry| {
                if Self::is_flagged(key, example) {
                    visit(key, entry);
                }
            });
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn bits_give_what_lists_give(
            num_keys in 1usize..3_000,
            lists in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..200), 1..300),
        ) {
            let words = num_keys.div_ceil(64).next_multiple_of(BLOCK_WORDS);
            let mut pairs = Marked { lists, bits: None, words };
            let mut bits = vec![0; pairs.lists.len() * words];
            for (keys, row) in pairs.lists.iter_mut().zip(bits.chunks_exact_mut(words)) {
                keys.iter_mut().for_each(|key| *key %= num_keys as u32);
                keys.sort_unstable();
                keys.dedup();
                keys.iter().for_each(|&key| row[key as usize / 64] |= 1 << (key % 64));
            }
            let sort = |pairs: &Marked| {
                let mut sorted = PairsByKey::default();
                sorted.sort(Cpu::detect(), pairs, (Ranges::whole(num_keys), None), 12);
                let keys: usize = sorted.parts().iter().map(|part| part.num_keys).sum();
                assert_eq!(keys, num_keys);
                listed(&sorted)
            };
            let by_lists = sort(&pairs);
            pairs.bits = Some(bits);
            prop_assert_eq!(sort(&pairs), by_lists);
        }
    }
}
