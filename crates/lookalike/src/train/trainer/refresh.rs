//! Hash tables and lists of near classes: made anew, kept with a checkpoint, and brought
//! back. Within an epoch they are some steps older than the class vectors, so that a run
//! goes on to the bit only with those that it had.

use super::Trainer;
use crate::hashing::HashTables;
use crate::model::Model;
use crate::train::sparse::SparseTraining;
use crate::train::state::{Checkpoint, LastRefresh, SavedTables};
use crate::train::step::Proposer;

impl Trainer<'_> {
    pub(super) fn refresh(&mut self) {
        if let Proposer::Sampler(sampler) = &mut self.proposer {
            sampler.refresh(self.cpu, self.model.network.output.view(), self.changed.list());
            self.changed.clear();
        }
        if let Some(sparse) = &mut self.sparse {
            sparse.refresh(&self.model);
        }
        self.has_tables = true;
    }

    /// The model and all that training needs besides, as they are now.
    pub fn into_checkpoint(mut self) -> Checkpoint {
        self.state.refresh = self.last_refresh();
        Checkpoint { model: self.model, state: self.state }
    }

    /// What the last refresh left, if the next step needs it.
    pub fn last_refresh(&self) -> Option<LastRefresh> {
        if self.state.progress.position == 0 || !self.has_tables {
            return None;
        }
        let tables = match &self.proposer {
            Proposer::Sampler(sampler) => sampler.tables(),
            Proposer::All => None,
        };
        let seed = self.state.config.seed;
        let saved = |tables: &HashTables| {
            let (shape, codes, mean) = (*tables.family().shape(), tables.codes(), tables.mean().to_vec());
            SavedTables { seed, shape, codes, mean }
        };
        let near = self.sparse.as_ref().map(SparseTraining::lists);
        Some(LastRefresh { tables: tables.map(saved), near })
    }
}

/// Makes the tables those of the last refresh; false if they are not what was kept.
pub(super) fn restore(refresh: &LastRefresh, seed: u64, proposer: &mut Proposer) -> bool {
    let Proposer::Sampler(sampler) = proposer else { return true };
    let Some(shape) = sampler.tables().map(|tables| *tables.family().shape()) else { return true };
    refresh.tables.as_ref().is_some_and(|saved| {
        saved.seed == seed && saved.shape == shape && sampler.restore(&saved.codes, &saved.mean)
    })
}

/// The same for the lists of near classes.
pub(super) fn restore_near(
    refresh: &LastRefresh,
    sparse: Option<&mut SparseTraining>,
    model: &Model,
) -> bool {
    let Some(sparse) = sparse else { return true };
    refresh.near.as_ref().is_some_and(|lists| sparse.restore(lists, model))
}
