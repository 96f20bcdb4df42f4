//! One example's set of different classes while it is gathered.

use std::ops::Range;

use lookalike_mapped::Buffer;
use rand_xoshiro::rand_core::Rng as _;

use super::candidates::CandidateBlock;
use crate::random::{Rng, below};

/// Which classes are in a set. One a thread, empty between examples; not used
/// where sets are kept as bits anyway ([`Slot::marks`](super::candidates::Slot)).
///
/// Where classes are few for the room in the set, a bit a class. Where they are
/// many, those bits are far apart and each costs a line of a distant cache; then
/// a hash table of the set's own size, which stays in the nearest one.
#[derive(Debug)]
pub(super) enum Marks {
    /// Classes come in no order, hence the huge pages.
    Bits(Buffer<u64>),
    /// Open addressing in a power of two of places.
    Table(Vec<u32>),
}

impl Default for Marks {
    fn default() -> Self {
        Self::Bits(Buffer::default())
    }
}

/// Places in the table for each class that may come: few collisions.
const PLACES_PER_CLASS: usize = 8;
/// The table is used where it is so many times smaller than the bits.
const TABLE_PAYS_FROM: usize = 2;
const WORDS_PER_LINE: usize = 8;
/// A place without a class; no class has this number.
const EMPTY: u32 = u32::MAX;

impl Marks {
    /// Makes room for the sets of a block, of `classes` classes.
    pub(super) fn prepare(&mut self, classes: usize, block: &CandidateBlock<'_>) {
        if !block.keeps_marks() {
            self.make_room(classes, block.room());
        }
    }

    /// Makes room for sets of up to `room` of `classes` classes.
    pub(super) fn make_room(&mut self, classes: usize, room: usize) {
        let words = classes.div_ceil(64);
        let places = (room * PLACES_PER_CLASS).next_power_of_two().max(2);
        // What is there stays if it will do: batches differ a little in room, and
        // must not change their marks from one to the next.
        match self {
            Self::Bits(bits) if bits.len() >= words => {}
            Self::Table(table) if table.len() >= places => {}
            _ if TABLE_PAYS_FROM * places * size_of::<u32>() < words * size_of::<u64>() => {
                *self = Self::Table(vec![EMPTY; places]);
            }
            _ => *self = Self::Bits(Buffer::zeroed(words)),
        }
    }

    /// The marks for an example whose slot has these: they are used, and stay,
    /// if there are any.
    pub(super) fn of<'a>(&'a mut self, kept: &'a mut [u64]) -> MarkSlices<'a> {
        match self {
            _ if !kept.is_empty() => {
                kept.fill(0);
                MarkSlices::Kept(kept)
            }
            Self::Bits(bits) => MarkSlices::Bits(bits),
            Self::Table(table) => MarkSlices::Table(table),
        }
    }
}

/// [`Marks`] while they are used: a set asks for them bucket after bucket, and
/// finding the slice in its buffer anew would take as long as a few classes.
pub(super) enum MarkSlices<'a> {
    /// A bit a class, cleared after each example.
    Bits(&'a mut [u64]),
    /// A bit a class, of one example.
    Kept(&'a mut [u64]),
    /// The classes themselves, cleared after each example.
    Table(&'a mut [u32]),
}

impl MarkSlices<'_> {
    fn contains(&self, class: u32) -> bool {
        match self {
            Self::Bits(bits) | Self::Kept(bits) => bits[class as usize / 64] >> (class % 64) & 1 == 1,
            Self::Table(table) => table[place_of(table, class)] == class,
        }
    }

    /// Takes the classes of a set out.
    fn clear(&mut self, classes: &[u32]) {
        match self {
            // From about a class for every line of marks, front to back is faster.
            Self::Bits(bits) if classes.len() >= bits.len() / WORDS_PER_LINE => bits.fill(0),
            Self::Bits(bits) => classes.iter().for_each(|&class| bits[class as usize / 64] = 0),
            Self::Kept(_) => {}
            Self::Table(table) => table.fill(EMPTY),
        }
    }
}

/// Sets a class's bit; 1 if it was clear, 0 otherwise.
#[inline]
fn mark_bit(bits: &mut [u64], class: u32) -> usize {
    let word = &mut bits[class as usize / 64];
    let fresh = !(*word >> (class % 64)) & 1;
    *word |= 1 << (class % 64);
    fresh as usize
}

/// Enters a class; 1 if it was new, 0 otherwise.
#[inline]
fn enter(table: &mut [u32], class: u32) -> usize {
    let place = place_of(table, class);
    usize::from(std::mem::replace(&mut table[place], class) != class)
}

/// Where a class stands, or would. There is always an empty place.
#[inline]
fn place_of(table: &[u32], class: u32) -> usize {
    let mask = table.len() - 1;
    // Fibonacci hashing: the high bits of the product depend on all of the class.
    let mut place = class.wrapping_mul(0x9E37_79B1) as usize >> (32 - table.len().trailing_zeros());
    while ![EMPTY, class].contains(&table[place & mask]) {
        place += 1;
    }
    place & mask
}

/// A growing set: the classes in their slot, and their marks. Neither to fill
/// nor to clear it costs more where there are more classes.
pub(super) struct Gather<'a> {
    slot: &'a mut [u32],
    len: usize,
    marks: MarkSlices<'a>,
}

impl<'a> Gather<'a> {
    /// A set with an example's true labels in it.
    pub(super) fn start(slot: &'a mut [u32], marks: MarkSlices<'a>, truths: &[u32]) -> Self {
        let mut set = Self { slot, len: 0, marks };
        set.take(truths, truths.len());
        set
    }

    /// Classes in the set.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The classes in the set, in the order they came in.
    pub(super) fn classes(&self) -> &[u32] {
        &self.slot[..self.len]
    }

    /// Adds the classes in order, until the set has `limit`.
    pub(super) fn take(&mut self, classes: &[u32], limit: usize) {
        let slot = &mut self.slot[..limit];
        self.len = match &mut self.marks {
            MarkSlices::Bits(bits) | MarkSlices::Kept(bits) => {
                append_new(slot, self.len, classes, bits, mark_bit)
            }
            MarkSlices::Table(table) => append_new(slot, self.len, classes, table, enter),
        };
    }

    /// Adds a bucket's classes until the set has `limit`. Of a bucket that may
    /// be too full, a random run, wrapping round, so that no class is favoured
    /// for where it stands.
    pub(super) fn take_bucket(&mut self, bucket: &[u32], limit: usize, rng: &mut Rng) {
        if bucket.len() <= limit - self.len {
            self.take(bucket, limit);
        } else {
            let (before, after) = bucket.split_at(below(rng.next_u64(), bucket.len() as u32) as usize);
            self.take(after, limit);
            self.take(before, limit);
        }
    }

    /// Adds classes drawn by `draw` until the set has `limit`, or `tries` draws
    /// were made.
    pub(super) fn draw(&mut self, limit: usize, tries: usize, mut draw: impl FnMut() -> u32) {
        let mut left = tries;
        while self.len < limit && left > 0 {
            self.take(&[draw()], limit);
            left -= 1;
        }
    }

    /// Adds classes drawn uniformly, without repetition, from those not in the
    /// set, until it has `limit` of the `classes` there are.
    pub(super) fn draw_uniform(&mut self, classes: usize, limit: usize, rng: &mut Rng) {
        let limit = limit.min(classes);
        let others = classes - self.len;
        let wanted = limit.saturating_sub(self.len);
        if wanted <= others / 2 && others >= classes / 4 {
            // To the end, at least one try in eight succeeds.
            return self.draw(limit, usize::MAX, || below(rng.next_u64(), classes as u32));
        }
        // Selection sampling (Knuth, volume 2, algorithm S): one pass, in which
        // each other class is taken with chance still wanted / still to come.
        let (mut wanted, mut others) = (wanted as u32, others as u32);
        for class in 0..classes as u32 {
            if wanted == 0 {
                break;
            }
            if !self.marks.contains(class) {
                if below(rng.next_u64(), others) < wanted {
                    self.take(&[class], limit);
                    wanted -= 1;
                }
                others -= 1;
            }
        }
    }

    /// Some of the classes in the set, to put them in another order.
    pub(super) fn classes_mut(&mut self, range: Range<usize>) -> &mut [u32] {
        &mut self.slot[..self.len][range]
    }

    /// Clears the marks for the next example, but not those of this one's own;
    /// the classes stay in the slot.
    pub(super) fn finish(mut self) {
        self.marks.clear(&self.slot[..self.len]);
    }
}

/// Writes the classes for which `mark` gives 1, not 0, to the slot from `len`
/// on, until it is full; gives its new length.
fn append_new<T>(
    slot: &mut [u32],
    mut len: usize,
    classes: &[u32],
    marks: &mut [T],
    mark: impl Fn(&mut [T], u32) -> usize,
) -> usize {
    for &class in classes {
        // Without a branch on whether the class is new, which is as good as
        // random: write it, and move on only if it was.
        let Some(place) = slot.get_mut(len) else {
            break;
        };
        *place = class;
        len += mark(marks, class);
    }
    len
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::random::{Stream, rng};

    #[test]
    fn classes_are_taken_once_and_marks_are_cleared() {
        let mut marks = Marks::default();
        marks.make_room(100, 6);
        let mut slot = [0; 6];
        let mut set = Gather::start(&mut slot, marks.of(&mut []), &[7, 70]);
        set.take(&[70, 3, 3, 7, 99, 1, 2], 5);
        assert_eq!(set.len(), 5);
        set.finish();
        assert_eq!(slot[..5], [7, 70, 3, 99, 1]);
        assert!((0..100).all(|class| !marks.of(&mut []).contains(class)));
    }

    #[test]
    fn marks_of_a_slot_are_cleared_first_and_stay() {
        let mut kept = [u64::MAX; 2];
        let mut slot = [0; 6];
        let mut unused = Marks::default();
        let mut set = Gather::start(&mut slot, unused.of(&mut kept), &[7, 70]);
        set.take(&[70, 3, 7, 99], 6);
        set.finish();
        assert_eq!(slot[..4], [7, 70, 3, 99]);
        assert_eq!(kept, [1 << 7 | 1 << 3, 1 << (70 - 64) | 1 << (99 - 64)]);
    }

    #[test]
    fn the_table_finds_the_same_sets_as_the_bits() {
        const ROOM: usize = 50;
        for classes in [100u32, 5_000, u32::MAX] {
            let table = &mut Marks::Table(vec![EMPTY; 64]);
            let mut random = rng(3, Stream::Sample, u64::from(classes), 0);
            for _ in 0..200 {
                let drawn: Vec<u32> = (0..80).map(|_| below(random.next_u64(), classes)).collect();
                let mut seen = HashSet::new();
                let expected: Vec<u32> =
                    drawn.iter().copied().filter(|&class| seen.insert(class)).take(ROOM).collect();
                let mut slot = [0; ROOM];
                let mut set = Gather::start(&mut slot, table.of(&mut []), &drawn[..1]);
                set.take(&drawn, ROOM);
                assert!(expected.iter().all(|&class| set.marks.contains(class)));
                let len = set.len();
                set.finish();
                assert_eq!(slot[..len], expected);
            }
        }
    }

    #[test]
    fn the_table_is_for_many_classes_and_few_candidates() {
        let is_table = |classes, room| {
            let mut marks = Marks::default();
            marks.make_room(classes, room);
            matches!(marks, Marks::Table(_))
        };
        assert!(is_table(1_000_000, 1_000));
        assert!(!is_table(100_000, 1_000));
        assert!(!is_table(670_091, 3_900));
        assert!(is_table(10_000_000, 3_900));
    }

    #[test]
    fn an_overfull_bucket_gives_every_class_the_same_chance() {
        let mut marks = Marks::default();
        marks.make_room(10, 3);
        let bucket: Vec<u32> = (0..10).collect();
        let mut counts = [0u32; 10];
        let draws = 20_000;
        for i in 0..draws {
            let mut slot = [0; 3];
            let mut set = Gather::start(&mut slot, marks.of(&mut []), &[]);
            set.take_bucket(&bucket, 3, &mut rng(1, Stream::Sample, i, 0));
            set.finish();
            slot.iter().for_each(|&class| counts[class as usize] += 1);
        }
        // 6,000 expected, standard deviation 65: five of them.
        assert!(counts.iter().all(|&c| c.abs_diff(6_000) < 325), "{counts:?}");
    }

    #[test]
    fn uniform_draws_are_uniform_whichever_way_they_are_made() {
        // 2 of 8 others by rejection, 6 of 8 by selection; class 4 is in already.
        for wanted in [2, 6] {
            let mut marks = Marks::default();
            marks.make_room(9, 9);
            let mut counts = [0u32; 9];
            for i in 0..20_000 {
                let mut slot = [0; 9];
                let mut set = Gather::start(&mut slot, marks.of(&mut []), &[4]);
                set.draw_uniform(9, 1 + wanted, &mut rng(2, Stream::Sample, i, 0));
                assert_eq!(set.len(), 1 + wanted);
                set.finish();
                slot[1..=wanted].iter().for_each(|&class| counts[class as usize] += 1);
            }
            let expected = 20_000 * wanted as u32 / 8;
            counts[4] += expected;
            // Standard deviation 61: five of them.
            assert!(counts.iter().all(|&c| c.abs_diff(expected) < 306), "{wanted}: {counts:?}");
        }
    }

    #[test]
    fn drawing_more_than_there_is_gives_all() {
        let mut marks = Marks::default();
        marks.make_room(5, 10);
        let mut slot = [0; 10];
        let mut set = Gather::start(&mut slot, marks.of(&mut []), &[4]);
        set.draw_uniform(5, 10, &mut rng(2, Stream::Sample, 0, 0));
        assert_eq!(set.len(), 5);
        set.finish();
        assert_eq!(slot[..5], [4, 0, 1, 2, 3]);
    }
}
