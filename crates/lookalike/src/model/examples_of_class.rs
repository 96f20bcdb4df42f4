//! Examples by class.

use crate::data::Examples;

/// For each class some examples: those that have it as a label, or what else was said.
#[derive(Debug)]
pub(crate) struct ExamplesOfClass {
    offsets: Vec<usize>,
    examples: Vec<u32>,
}

impl ExamplesOfClass {
    /// Of the examples `chosen`, those that have a class as a label.
    pub(crate) fn new(examples: &Examples<'_>, chosen: &[u32]) -> Self {
        Self::of_lists(examples.num_classes, chosen, |place| examples.labels(chosen[place] as usize))
    }

    /// Of the examples `chosen`, those for which `classes` of their place has a class.
    pub(crate) fn of_lists<'a>(
        num_classes: usize,
        chosen: &[u32],
        classes: impl Fn(usize) -> &'a [u32],
    ) -> Self {
        let mut offsets = vec![0; num_classes + 1];
        for &class in (0..chosen.len()).flat_map(&classes) {
            offsets[class as usize + 1] += 1;
        }
        for i in 0..num_classes {
            offsets[i + 1] += offsets[i];
        }
        let mut next = offsets.clone();
        let mut list = vec![0; offsets[num_classes]];
        for (place, &example) in chosen.iter().enumerate() {
            for &class in classes(place) {
                list[next[class as usize]] = example;
                next[class as usize] += 1;
            }
        }
        Self { offsets, examples: list }
    }

    /// The examples of a class, in the order they were given.
    pub(crate) fn of(&self, class: usize) -> &[u32] {
        &self.examples[self.offsets[class]..self.offsets[class + 1]]
    }
}
