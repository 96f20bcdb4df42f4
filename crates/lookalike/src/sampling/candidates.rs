//! The candidate sets of a batch, in one allocation.

use lookalike_kernels::prefetch;
use lookalike_mapped::Buffer;
use rayon::prelude::*;

/// Sets are also kept as bits where each word of 64 would have so many or more
/// of them set: the step that follows then turns the bits around, which is
/// faster than sorting lists.
const MARKED_FROM_ONES_A_WORD: usize = 1;

/// Words of bits that are turned around together.
pub(crate) const BLOCK_WORDS: usize = 4;

/// The classes to score for each example of a batch.
///
/// Law: within an example the true labels come first, then found negatives,
/// then drawn ones; all are different.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    stride: usize,
    classes: Vec<u32>,
    counts: Vec<Counts>,
    /// The same sets as bits, a row an example; rows of no words if they are not kept.
    bits: Buffer<u64>,
    words: usize,
}

/// How an example's candidates came about, in the order they stand in.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// True labels.
    pub truths: u32,
    /// Negatives that are certain to be here: hashed or searched.
    pub found: u32,
    /// The first so many of the found ones stay even if they are not among the best
    /// (`mixed`), and count like drawn ones then.
    pub spared: u32,
    /// Negatives drawn at random.
    pub drawn: u32,
    /// The logarithm of a drawn class's expected count in this example's set
    /// where the sampler corrects by example (`mixed`), 0 otherwise.
    pub drawn_log_q: f32,
}

impl Counts {
    /// All candidates.
    pub fn total(&self) -> usize {
        (self.truths + self.found + self.drawn) as usize
    }
}

impl Candidates {
    /// No batch yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for `stride` candidates in each of `batch` examples; all sets
    /// are empty afterwards.
    pub fn reset(&mut self, batch: usize, stride: usize) {
        self.stride = stride.max(1);
        self.classes.resize(batch * self.stride, 0);
        self.counts.clear();
        self.counts.resize(batch, Counts::default());
        self.words = 0;
    }

    /// As [`Candidates::reset`], with room for marks of `classes` classes too if
    /// sets are so large that these pay. What they hold is left open: whoever
    /// fills a slot clears its marks first.
    pub(super) fn reset_marked(&mut self, batch: usize, stride: usize, classes: usize) {
        self.reset(batch, stride);
        if stride * u64::BITS as usize >= classes * MARKED_FROM_ONES_A_WORD {
            self.words = classes.div_ceil(u64::BITS as usize).next_multiple_of(BLOCK_WORDS);
            if self.bits.len() < batch * self.words {
                self.bits = Buffer::zeroed(batch * self.words);
            }
        }
    }

    /// The sets as bits, if they are kept so.
    pub(crate) fn bits(&self) -> Option<BitRows<'_>> {
        (self.words > 0).then(|| BitRows { bits: &self.bits[..self.len() * self.words], words: self.words })
    }

    /// The number of examples.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether there is no example.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The room for each example's candidates.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// An example's candidates, by its place in the batch.
    pub fn of(&self, example: usize) -> &[u32] {
        &self.classes[example * self.stride..][..self.counts[example].total()]
    }

    /// How an example's candidates came about.
    pub fn counts(&self, example: usize) -> Counts {
        self.counts[example]
    }

    /// The counts of all examples.
    pub fn all_counts(&self) -> &[Counts] {
        &self.counts
    }

    /// Blocks of `size` consecutive examples, each with its first example's
    /// place in the batch, to be filled in parallel.
    pub fn par_blocks_mut(&mut self, size: usize) -> impl IndexedParallelIterator<Item = CandidateBlock<'_>> {
        let Self { stride, words, .. } = *self;
        let slots = self.classes.par_chunks_mut(size * stride);
        let counts = self.counts.par_chunks_mut(size);
        let bits: &mut [u64] = if words > 0 { &mut self.bits } else { &mut [] };
        let rows = bits.par_chunks_mut((size * words).max(1)).map(Some);
        let no_rows = rayon::iter::repeat_n((), if words > 0 { 0 } else { counts.len() });
        let rows = rows.chain(no_rows.map(|()| None));
        slots.zip(counts).zip(rows).enumerate().map(move |(block, ((classes, counts), bits))| {
            CandidateBlock {
                first: block * size,
                stride,
                words,
                classes,
                counts,
                bits: bits.unwrap_or_default(),
            }
        })
    }
}

/// The sets of a batch as bits: bit `class % 64` of word `class / 64` of an
/// example's row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitRows<'a> {
    /// All rows, one after the other.
    pub bits: &'a [u64],
    /// Words of a row: a multiple of [`BLOCK_WORDS`].
    pub words: usize,
}

impl BitRows<'_> {
    /// The number of rows.
    pub(crate) fn num_examples(&self) -> usize {
        self.bits.len() / self.words
    }

    /// Of each row, the words of a block of classes.
    pub(crate) fn block(&self, block: usize) -> impl Iterator<Item = &[u64; BLOCK_WORDS]> {
        let (blocks, _) = self.bits.as_chunks();
        blocks.iter().skip(block).step_by(self.words / BLOCK_WORDS)
    }

    /// Prefetches some of them.
    pub(crate) fn prefetch(&self, block: usize, examples: std::ops::Range<usize>) {
        examples.for_each(|example| prefetch(self.bits, example * self.words + block * BLOCK_WORDS));
    }
}

/// The sets of a few consecutive examples, to be filled.
#[derive(Debug)]
pub struct CandidateBlock<'a> {
    first: usize,
    stride: usize,
    words: usize,
    classes: &'a mut [u32],
    counts: &'a mut [Counts],
    bits: &'a mut [u64],
}

/// Room for the set of one example.
#[derive(Debug)]
pub struct Slot<'a> {
    /// Its classes.
    pub classes: &'a mut [u32],
    /// How they came about.
    pub counts: &'a mut Counts,
    /// A bit for each class, if sets are kept so; no word otherwise.
    pub(super) marks: &'a mut [u64],
}

impl CandidateBlock<'_> {
    /// Places in the batch of the block's examples.
    pub fn positions(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.counts.len()
    }

    /// The room for an example's classes.
    pub fn room(&self) -> usize {
        self.stride
    }

    /// Whether sets are kept as bits too.
    pub(super) fn keeps_marks(&self) -> bool {
        self.words > 0
    }

    /// The room of each example of the block.
    pub fn slots(&mut self) -> impl Iterator<Item = Slot<'_>> {
        let mut rows = self.bits.chunks_exact_mut(self.words.max(1));
        let slots = self.classes.chunks_exact_mut(self.stride).zip(self.counts.iter_mut());
        slots.map(move |(classes, counts)| Slot { classes, counts, marks: rows.next().unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_reach_every_example_once() {
        let mut candidates = Candidates::new();
        candidates.reset(5, 3);
        candidates.par_blocks_mut(2).for_each(|mut block| {
            let positions = block.positions();
            for (position, slot) in positions.zip(block.slots()) {
                slot.classes[..2].fill(position as u32);
                *slot.counts = Counts { truths: 1, found: 1, ..Counts::default() };
            }
        });
        for example in 0..5 {
            assert_eq!(candidates.of(example), [example as u32; 2]);
        }
        assert!(candidates.bits().is_none());
        candidates.reset(2, 0);
        assert_eq!((candidates.len(), candidates.of(1)), (2, &[][..]));
    }

    #[test]
    fn large_sets_have_marks_of_their_own() {
        let mut candidates = Candidates::new();
        candidates.reset_marked(5, 10, 700);
        assert!(candidates.bits().is_none());
        candidates.reset_marked(5, 11, 700);
        candidates.par_blocks_mut(2).for_each(|mut block| {
            for (position, slot) in block.positions().zip(block.slots()) {
                slot.marks.fill(position as u64);
            }
        });
        let rows = candidates.bits().unwrap();
        assert_eq!((rows.num_examples(), rows.words), (5, 12));
        for block in 0..3 {
            let words: Vec<u64> = rows.block(block).map(|words| words[3]).collect();
            assert_eq!(words, [0, 1, 2, 3, 4]);
        }
    }
}
