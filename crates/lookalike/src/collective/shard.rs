//! The classes and features of one rank.

use std::ops::Range;
use std::sync::Arc;

use super::{Alone, Collective, Ranges};

/// The classes of this rank, and how it talks to the others. Ranks hold consecutive
/// classes, about as many each ([`Ranges`]).
#[derive(Clone, Debug)]
pub struct Shard {
    collective: Arc<dyn Collective>,
    ranges: Ranges,
    num_classes: usize,
}

impl Shard {
    /// This rank's share of so many classes.
    pub fn new(collective: Arc<dyn Collective>, num_classes: usize) -> Self {
        let ranges = Ranges::of_rank(num_classes, collective.rank(), collective.size());
        Self { collective, ranges, num_classes }
    }

    /// All classes, on one process.
    pub fn whole(num_classes: usize) -> Self {
        Self::new(Arc::new(Alone), num_classes)
    }

    /// The features that are here, of so many: dealt out as classes are.
    pub fn features(&self, num_features: usize) -> Range<usize> {
        self.feature_ranges(num_features).keys()
    }

    /// Over what is summed where an example's features are, and how ranks add up what
    /// they have.
    pub fn sum_over_features(&self, num_features: usize) -> (Ranges, impl FnOnce(&mut [f32])) {
        (self.feature_ranges(num_features), |sums: &mut [f32]| self.collective.sum_f32(sums))
    }

    /// The ranges of features that are here.
    pub fn feature_ranges(&self, num_features: usize) -> Ranges {
        Ranges::of_rank(num_features, self.collective.rank(), self.collective.size())
    }

    /// The ranges of classes that are here.
    pub fn class_ranges(&self) -> Ranges {
        self.ranges
    }

    /// Whether all classes are here.
    pub fn is_whole(&self) -> bool {
        self.collective.size() == 1
    }

    /// The others.
    pub fn collective(&self) -> &dyn Collective {
        &*self.collective
    }

    /// The classes that are here.
    pub fn classes(&self) -> Range<usize> {
        self.ranges.keys()
    }

    /// The classes of all ranks.
    pub fn num_classes(&self) -> usize {
        self.num_classes
    }

    /// Those of some classes that are here, numbered from the first class here.
    pub fn own<'a>(&self, classes: &'a [u32]) -> impl Iterator<Item = u32> + use<'a> {
        let Range { start, end } = self.classes();
        classes
            .iter()
            .filter(move |&&class| (start..end).contains(&(class as usize)))
            .map(move |&class| class - start as u32)
    }
}
