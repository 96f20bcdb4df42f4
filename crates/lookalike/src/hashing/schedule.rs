//! When to refresh the tables (paper, section 3.3): the first period is 50
//! iterations, each further one longer by a factor, because class vectors move
//! less and less.

/// Refreshes fall due after `first` iterations, then after `first · growth`
/// more, then after `first · growth²` more, and so on, each period rounded to
/// whole iterations. A pure function of the iteration: a resumed run refreshes
/// where the unbroken one would.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RefreshSchedule {
    first: u64,
    growth: f64,
}

impl RefreshSchedule {
    /// The paper's first period.
    pub const FIRST: u64 = 50;

    /// The paper does not print its rate. With 1.1 the periods are 50, 55, 61,
    /// …: 7 refreshes in the first 500 iterations, 25 in the first 5,000, 46 in
    /// the first 40,000.
    pub const GROWTH: f64 = 1.1;

    /// A schedule. `first` is at least 1 and `growth` at least 1.0 (a constant
    /// period); smaller or undefined values are raised to these.
    pub fn new(first: u64, growth: f64) -> Self {
        Self { first: first.max(1), growth: growth.max(1.0) }
    }

    /// The first iteration after `iteration` at which a refresh is due.
    pub fn next_after(&self, iteration: u64) -> u64 {
        if self.growth == 1.0 {
            return (iteration / self.first + 1).saturating_mul(self.first);
        }
        let mut due = 0u64;
        let mut period = self.first as f64;
        while due <= iteration && due < u64::MAX {
            due = due.saturating_add(period.round() as u64);
            period *= self.growth;
        }
        due
    }

    /// Whether a refresh is due before `iteration` (counted from 0). Every epoch
    /// starts with fresh tables, whatever the schedule says: the first because
    /// there are none yet, the others because a period may by then be longer
    /// than an epoch.
    pub fn is_due(&self, iteration: u64, starts_epoch: bool) -> bool {
        starts_epoch || iteration > 0 && self.next_after(iteration - 1) == iteration
    }
}

impl Default for RefreshSchedule {
    fn default() -> Self {
        Self::new(Self::FIRST, Self::GROWTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due_until(schedule: RefreshSchedule, end: u64) -> Vec<u64> {
        (0..end).filter(|&i| schedule.is_due(i, false)).collect()
    }

    #[test]
    fn periods_grow_exponentially() {
        assert_eq!(due_until(RefreshSchedule::new(50, 2.0), 800), [50, 150, 350, 750]);
        assert_eq!(due_until(RefreshSchedule::default(), 240), [50, 105, 166, 233]);
        assert_eq!(due_until(RefreshSchedule::default(), 500).len(), 7);
        assert_eq!(due_until(RefreshSchedule::default(), 5_000).len(), 25);
        assert_eq!(due_until(RefreshSchedule::default(), 40_000).len(), 46);
    }

    #[test]
    fn growth_of_one_is_a_constant_period() {
        assert_eq!(due_until(RefreshSchedule::new(7, 1.0), 30), [7, 14, 21, 28]);
        assert_eq!(due_until(RefreshSchedule::new(0, f64::NAN), 4), [1, 2, 3]);
    }

    #[test]
    fn epochs_start_with_fresh_tables() {
        let schedule = RefreshSchedule::default();
        assert!(schedule.is_due(0, true) && schedule.is_due(77, true));
        assert!(!schedule.is_due(0, false) && !schedule.is_due(77, false));
    }

    #[test]
    fn far_iterations_do_not_overflow() {
        assert!(RefreshSchedule::default().next_after(u64::MAX - 1) > u64::MAX - 1);
    }
}
