//! Which classes have moved since the tables were last refreshed?

/// A set of classes with its members listed (for algorithm 5 of the paper).
#[derive(Debug)]
pub(super) struct ChangedClasses {
    is_member: Vec<bool>,
    members: Vec<u32>,
    /// Before the first refresh nothing is known, so everything counts as changed.
    complete: bool,
}

impl ChangedClasses {
    pub(super) fn new(num_classes: usize) -> Self {
        Self { is_member: vec![false; num_classes], members: Vec::new(), complete: false }
    }

    pub(super) fn add(&mut self, classes: impl Iterator<Item = u32>) {
        if self.is_member.is_empty() {
            return;
        }
        for class in classes {
            if !std::mem::replace(&mut self.is_member[class as usize], true) {
                self.members.push(class);
            }
        }
    }

    pub(super) fn list(&mut self) -> Option<&[u32]> {
        self.members.sort_unstable();
        (self.complete && !self.is_member.is_empty()).then_some(&self.members)
    }

    pub(super) fn clear(&mut self) {
        for class in self.members.drain(..) {
            self.is_member[class as usize] = false;
        }
        self.complete = true;
    }
}
