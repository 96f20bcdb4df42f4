//! Scores of candidates, class by class.

use lookalike_kernels::{Cpu, Element, gather_dot, prefetch_row};

use super::super::by_key::Part;
use crate::optim::Divided;

/// How many rows ahead a row is prefetched where only the row itself is read: 8 lines.
const ROWS_AHEAD: usize = 8;

/// What a class's scores are made of.
#[derive(Clone, Copy)]
pub(super) struct Scorer<'a, T> {
    pub cpu: Cpu,
    /// Class vectors, `stride` apart.
    pub rows: &'a [T],
    pub shifts: Shifts<'a>,
    /// A row an example, as far apart.
    pub embeddings: &'a [f32],
    pub stride: usize,
}

/// What is added to the scores of a class.
#[derive(Clone, Copy)]
pub(super) struct Shifts<'a> {
    pub bias: &'a [f32],
    /// The logarithm of what a sampler expects of each class, if scores are corrected.
    pub class_log_q: Option<&'a [f32]>,
}

impl Shifts<'_> {
    pub(super) fn of(&self, class: usize) -> f32 {
        self.bias[class] - self.class_log_q.map_or(0.0, |log_q| log_q[class])
    }
}

impl<T: Element> Scorer<'_, T> {
    /// Each member's scores of a part's class, by the place of its group, for its examples.
    /// A member's scores of the part's pairs are together in `scores`.
    #[inline]
    pub(super) fn score(&self, part: &Part, group: usize, divided: Divided<'_, T>, scores: &mut [f32]) {
        let row_of =
            |local_key: u32| &self.rows[(part.first_key + local_key as usize) * self.stride..][..self.stride];
        if let Some(later) = part.groups.get(group + ROWS_AHEAD) {
            prefetch_row(row_of(later.local_key));
        }
        let local_key = part.groups[group].local_key;
        let entries = &part.entries[part.range(group)];
        let shift = self.shifts.of(part.first_key + local_key as usize);
        let (row, width) = (row_of(local_key), divided.width());
        for member in 0..divided.members() {
            let row = &row[member * width..][..width];
            let scores = &mut scores[member * part.entries.len()..][part.range(group)];
            gather_dot(self.cpu, row, divided.of(member), entries, scores);
            scores.iter_mut().for_each(|score| *score += shift);
        }
    }
}
