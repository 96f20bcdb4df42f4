//! The classes and features of one rank.

use std::ops::Range;
use std::sync::Arc;

use super::{Alone, Collective};

/// The classes of this rank, and how it talks to the others. Ranks hold consecutive
/// ranges whose lengths differ by one at most.
#[derive(Clone, Debug)]
pub struct Shard {
    collective: Arc<dyn Collective>,
    classes: Range<usize>,
    num_classes: usize,
}

impl Shard {
    /// This rank's share of so many classes.
    pub fn new(collective: Arc<dyn Collective>, num_classes: usize) -> Self {
        let classes = share(&*collective, num_classes);
        Self { collective, classes, num_classes }
    }

    /// All classes, on one process.
    pub fn whole(num_classes: usize) -> Self {
        Self::new(Arc::new(Alone), num_classes)
    }

    /// The features that are here, of so many: dealt out as classes are.
    pub fn features(&self, num_features: usize) -> Range<usize> {
        share(&*self.collective, num_features)
    }

    /// Whether all classes are here.
    pub fn is_whole(&self) -> bool {
        self.collective.size() == 1
    }

    /// The others.
    pub fn collective(&self) -> &dyn Collective {
        &*self.collective
    }

    /// The others, to keep.
    pub fn shared_collective(&self) -> Arc<dyn Collective> {
        self.collective.clone()
    }

    /// The classes that are here.
    pub fn classes(&self) -> Range<usize> {
        self.classes.clone()
    }

    /// The classes of all ranks.
    pub fn num_classes(&self) -> usize {
        self.num_classes
    }

    /// Those of some classes that are here, numbered from the first class here.
    pub fn own<'a>(&self, classes: &'a [u32]) -> impl Iterator<Item = u32> + use<'a> {
        let Range { start, end } = self.classes;
        classes
            .iter()
            .filter(move |&&class| (start..end).contains(&(class as usize)))
            .map(move |&class| class - start as u32)
    }
}

/// What of `count` is here.
fn share(collective: &dyn Collective, count: usize) -> Range<usize> {
    let start = |rank: usize| (count as u128 * rank as u128 / collective.size() as u128) as usize;
    start(collective.rank())..start(collective.rank() + 1)
}
