//! One example's set of different classes while it is gathered.

use lookalike_mapped::Buffer;
use rand_xoshiro::rand_core::Rng as _;

use crate::random::{Rng, below};

/// One bit a class: whether it is in the set. One a thread, all clear between
/// examples. Classes come in no order, hence the huge pages.
#[derive(Debug, Default)]
pub(super) struct Marks(Buffer<u64>);

impl Marks {
    /// Makes room for `classes` classes.
    pub(super) fn prepare(&mut self, classes: usize) {
        if self.0.len() < classes.div_ceil(64) {
            self.0 = Buffer::zeroed(classes.div_ceil(64));
        }
    }
}

const WORDS_PER_LINE: usize = 8;

/// Sets a class's bit; 1 if it was clear, 0 otherwise.
#[inline]
fn mark(marks: &mut [u64], class: u32) -> usize {
    let word = &mut marks[class as usize / 64];
    let fresh = !(*word >> (class % 64)) & 1;
    *word |= 1 << (class % 64);
    fresh as usize
}

/// A growing set: the classes in their slot, and their marks. The classes are
/// themselves the list by which [`finish`](Self::finish) clears the marks, so
/// the cost never depends on the number of classes.
pub(super) struct Gather<'a> {
    slot: &'a mut [u32],
    len: usize,
    marks: &'a mut [u64],
}

impl<'a> Gather<'a> {
    /// A set with an example's true labels in it.
    pub(super) fn start(slot: &'a mut [u32], marks: &'a mut Marks, truths: &[u32]) -> Self {
        let mut set = Self { slot, len: 0, marks: &mut marks.0 };
        set.take(truths, truths.len());
        set
    }

    /// Classes in the set.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds the classes in order, until the set has `limit`.
    pub(super) fn take(&mut self, classes: &[u32], limit: usize) {
        // Local names, so that the length stays in a register.
        let (slot, marks, mut len) = (&mut self.slot[..limit], &mut *self.marks, self.len);
        for &class in classes {
            // Without a branch on whether the class is new, which is as good as
            // random: write it, and move on only if it was.
            let Some(place) = slot.get_mut(len) else {
                break;
            };
            *place = class;
            len += mark(marks, class);
        }
        self.len = len;
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
            if self.marks[class as usize / 64] >> (class % 64) & 1 == 0 {
                if below(rng.next_u64(), others) < wanted {
                    self.take(&[class], limit);
                    wanted -= 1;
                }
                others -= 1;
            }
        }
    }

    /// Clears the marks for the next example; the classes stay in the slot.
    pub(super) fn finish(self) {
        // From about a class for every line of marks, front to back is faster.
        if self.len >= self.marks.len() / WORDS_PER_LINE {
            return self.marks.fill(0);
        }
        for &class in &self.slot[..self.len] {
            self.marks[class as usize / 64] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Stream, rng};

    #[test]
    fn classes_are_taken_once_and_marks_are_cleared() {
        let mut marks = Marks::default();
        marks.prepare(100);
        let mut slot = [0; 6];
        let mut set = Gather::start(&mut slot, &mut marks, &[7, 70]);
        set.take(&[70, 3, 3, 7, 99, 1, 2], 5);
        assert_eq!(set.len(), 5);
        set.finish();
        assert_eq!(slot[..5], [7, 70, 3, 99, 1]);
        assert!(marks.0.iter().all(|&word| word == 0));
    }

    #[test]
    fn an_overfull_bucket_gives_every_class_the_same_chance() {
        let mut marks = Marks::default();
        marks.prepare(10);
        let bucket: Vec<u32> = (0..10).collect();
        let mut counts = [0u32; 10];
        let draws = 20_000;
        for i in 0..draws {
            let mut slot = [0; 3];
            let mut set = Gather::start(&mut slot, &mut marks, &[]);
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
            marks.prepare(9);
            let mut counts = [0u32; 9];
            for i in 0..20_000 {
                let mut slot = [0; 9];
                let mut set = Gather::start(&mut slot, &mut marks, &[4]);
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
        marks.prepare(5);
        let mut slot = [0; 10];
        let mut set = Gather::start(&mut slot, &mut marks, &[4]);
        set.draw_uniform(5, 10, &mut rng(2, Stream::Sample, 0, 0));
        assert_eq!(set.len(), 5);
        set.finish();
        assert_eq!(slot[..5], [4, 0, 1, 2, 3]);
    }
}
