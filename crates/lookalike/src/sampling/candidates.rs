//! The candidate sets of a batch, in one allocation.

use rayon::prelude::*;

/// The classes to score for each example of a batch.
///
/// Law: within an example the true labels come first, then found negatives,
/// then drawn ones; all are different.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    stride: usize,
    classes: Vec<u32>,
    counts: Vec<Counts>,
}

/// How an example's candidates came about, in the order they stand in.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// True labels.
    pub truths: u32,
    /// Negatives that are certain to be here: hashed or searched.
    pub found: u32,
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
        let stride = self.stride;
        let slots = self.classes.par_chunks_mut(size * stride);
        let counts = self.counts.par_chunks_mut(size);
        slots.zip(counts).enumerate().map(move |(block, (classes, counts))| CandidateBlock {
            first: block * size,
            stride,
            classes,
            counts,
        })
    }
}

/// The sets of a few consecutive examples, to be filled.
#[derive(Debug)]
pub struct CandidateBlock<'a> {
    first: usize,
    stride: usize,
    classes: &'a mut [u32],
    counts: &'a mut [Counts],
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

    /// For each example of the block: room for its classes, and its counts.
    pub fn slots(&mut self) -> impl Iterator<Item = (&mut [u32], &mut Counts)> {
        self.classes.chunks_exact_mut(self.stride).zip(self.counts.iter_mut())
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
            for (position, (slot, counts)) in positions.zip(block.slots()) {
                slot[..2].fill(position as u32);
                *counts = Counts { truths: 1, found: 1, ..Counts::default() };
            }
        });
        for example in 0..5 {
            assert_eq!(candidates.of(example), [example as u32; 2]);
        }
        candidates.reset(2, 0);
        assert_eq!((candidates.len(), candidates.of(1)), (2, &[][..]));
    }
}
