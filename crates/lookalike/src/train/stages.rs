//! Where the time of a training step goes.
//!
//! The clock is read once at the end of each stage of a batch, never inside a
//! loop over examples or rows, so measuring is always on.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// A stage of a training step, in the order they run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Hash tables rebuilt or brought up to date, when the schedule says so.
    Refresh,
    /// Classes near the examples by sparse weights.
    Near,
    /// Examples to embeddings.
    Embed,
    /// Queries to bucket codes.
    Hash,
    /// Candidates from buckets, or drawn.
    Sample,
    /// Pairs of examples and classes turned around.
    Sort,
    /// Dot products.
    Score,
    /// The best of the scored classes chosen.
    Select,
    /// Scores to gradients of scores.
    Loss,
    /// Gradients of class vectors and embeddings, and the class vectors' update.
    Update,
    /// The layers below the embedding: gradients and updates.
    Input,
    /// Sparse weights: scores, loss and update.
    Sparse,
}

impl Stage {
    /// All of them, in the order they run in.
    pub const ALL: [Self; 12] = [
        Self::Refresh,
        Self::Near,
        Self::Embed,
        Self::Hash,
        Self::Sample,
        Self::Sort,
        Self::Score,
        Self::Select,
        Self::Loss,
        Self::Update,
        Self::Input,
        Self::Sparse,
    ];

    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refresh => "refresh",
            Self::Near => "near",
            Self::Embed => "embed",
            Self::Hash => "hash",
            Self::Sample => "sample",
            Self::Sort => "sort",
            Self::Score => "score",
            Self::Select => "select",
            Self::Loss => "loss",
            Self::Update => "update",
            Self::Input => "input",
            Self::Sparse => "sparse",
        }
    }
}

/// Time spent in each stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes([Duration; Stage::ALL.len()]);

impl StageTimes {
    /// Time spent in one stage.
    pub fn of(&self, stage: Stage) -> Duration {
        self.0[stage as usize]
    }

    /// Time spent in all stages.
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }
}

impl AddAssign for StageTimes {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, time)| *sum += time);
    }
}

/// A stopwatch that charges each lap to the stage that it ends.
#[derive(Debug)]
pub(super) struct StageClock {
    lap_start: Instant,
    times: StageTimes,
}

impl StageClock {
    pub(super) fn start() -> Self {
        Self { lap_start: Instant::now(), times: StageTimes::default() }
    }

    /// Ends a stage: the time since the last end was its.
    pub(super) fn end(&mut self, stage: Stage) {
        let lap = self.lap();
        self.times.0[stage as usize] += lap;
    }

    /// Ends two stages that ran interleaved, the first of which took `share` of
    /// the time.
    pub(super) fn end_both(&mut self, stages: [Stage; 2], share: f64) {
        let both = self.lap();
        let first = both.mul_f64(share.clamp(0.0, 1.0));
        self.times.0[stages[0] as usize] += first;
        self.times.0[stages[1] as usize] += both.saturating_sub(first);
    }

    /// Ends stages that were measured on the way.
    pub(super) fn end_measured(&mut self, measured: StageTimes) {
        self.lap();
        self.times += measured;
    }

    pub(super) fn times(&self) -> StageTimes {
        self.times
    }

    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.lap_start, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_has_a_place_of_its_own() {
        for (place, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, place, "{}", stage.name());
        }
    }

    #[test]
    fn laps_are_charged_once_and_shares_add_up() {
        let begin = Instant::now();
        let mut clock = StageClock::start();
        clock.end(Stage::Embed);
        clock.end_both([Stage::Hash, Stage::Sample], 0.25);
        let mut times = clock.times();
        assert!(times.total() <= begin.elapsed());
        assert_eq!(times.of(Stage::Score), Duration::ZERO);

        clock.end_measured(StageTimes([Duration::from_secs(1); Stage::ALL.len()]));
        times += StageTimes([Duration::from_secs(1); Stage::ALL.len()]);
        assert_eq!(clock.times(), times);
    }
}
