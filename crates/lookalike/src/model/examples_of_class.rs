//! Examples by label.

use crate::data::Examples;

/// For each class, those of some examples that have it as a label.
pub(crate) struct ExamplesOfClass {
    offsets: Vec<usize>,
    examples: Vec<u32>,
}

impl ExamplesOfClass {
    pub(crate) fn new(examples: &Examples<'_>, chosen: &[u32]) -> Self {
        let mut offsets = vec![0; examples.num_classes + 1];
        let labels = |&example: &u32| examples.labels(example as usize);
        for &label in chosen.iter().flat_map(labels) {
            offsets[label as usize + 1] += 1;
        }
        for i in 0..examples.num_classes {
            offsets[i + 1] += offsets[i];
        }
        let mut next = offsets.clone();
        let mut list = vec![0; offsets[examples.num_classes]];
        for example in chosen {
            for &label in labels(example) {
                list[next[label as usize]] = *example;
                next[label as usize] += 1;
            }
        }
        Self { offsets, examples: list }
    }

    /// The examples of a class, in the order they were given.
    pub(crate) fn of(&self, class: usize) -> &[u32] {
        &self.examples[self.offsets[class]..self.offsets[class + 1]]
    }
}
