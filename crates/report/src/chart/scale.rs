//! From values to places on paper, and where the ticks stand.

use crate::Format;

/// Values beyond this cannot be drawn: their differences would overflow.
const LARGEST: f64 = 1e100;

/// One axis' mapping from values in `low..=high` to pixels in `start..=end`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) log: bool,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) start: f64,
    pub(crate) end: f64,
}

impl Scale {
    /// The pixel of a value, or nothing where it has no place (not finite; zero on a log axis).
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        let along = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        is_drawable(value, self.log).then_some(self.start + along * (self.end - self.start))
    }
}

/// Whether a value has a place on a linear or logarithmic axis.
pub(crate) fn is_drawable(value: f64, log: bool) -> bool {
    let size = value.abs();
    size <= LARGEST && (!log || (value > 0.0 && size >= 1.0 / LARGEST))
}

/// A range that holds all drawable values with air around them.
///
/// `from_zero` starts a linear axis at zero (bars must, or their lengths lie). Other linear axes
/// do where zero is near. Without any value the range is 0..1, or 1..10 on a log axis.
pub(crate) fn range(values: impl Iterator<Item = f64>, log: bool, from_zero: bool, air: f64) -> (f64, f64) {
    let (low, high) = values
        .filter(|&value| is_drawable(value, log))
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    match (low <= high, log) {
        (false, false) => (0.0, 1.0),
        (false, true) => (1.0, 10.0),
        (true, true) => log_range(low, high, from_zero, air),
        (true, false) => linear_range(low, high, from_zero, air),
    }
}

fn log_range(low: f64, high: f64, from_zero: bool, air: f64) -> (f64, f64) {
    let grow = (high / low).powf(air).max(if low == high { 2.0 } else { 1.0 });
    match from_zero {
        // A bar that stands for one thing must be seen: leave it half a unit of height.
        true => (low / 2.0, high * grow.max(1.2)),
        false => (low / grow, high * grow),
    }
}

fn linear_range(mut low: f64, mut high: f64, from_zero: bool, air: f64) -> (f64, f64) {
    if from_zero || (low > 0.0 && low < 0.3 * high) {
        low = low.min(0.0);
        high = high.max(0.0);
    }
    let span = high - low;
    if span <= 1e-9 * high.abs().max(low.abs()) || span == 0.0 {
        let around = if high == 0.0 { 1.0 } else { 0.1 * high.abs() };
        return (low - around, high + around);
    }
    let below = if low == 0.0 { 0.0 } else { air * span };
    let above = if high == 0.0 { 0.0 } else { air * span };
    (low - below, high + above)
}

/// A linear range grown outward to whole steps, so that the axis begins and ends at a label.
pub(crate) fn rounded((low, high): (f64, f64), format: Format, wanted: usize) -> (f64, f64) {
    let step = step(high - low, format, wanted);
    let slack = 1e-9 * (high - low);
    let below = ((low + slack) / step).floor() * step;
    let above = ((high - slack) / step).ceil() * step;
    (below.min(low), above.max(high))
}

/// Ticks with labels, and the small ones between them without.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Ticks {
    pub(crate) labelled: Vec<f64>,
    pub(crate) small: Vec<f64>,
}

/// About `wanted` round values in the range.
pub(crate) fn ticks(low: f64, high: f64, log: bool, format: Format, wanted: usize) -> Ticks {
    let decades = (high / low).log10();
    match (log, format) {
        (true, Format::Seconds) if decades > 1.5 => durations(low, high, wanted),
        (true, _) if decades >= 1.0 => powers_of_ten(low, high, wanted),
        _ => Ticks { labelled: multiples(low, high, step(high - low, format, wanted)), small: Vec::new() },
    }
}

/// The round step that gives at most `wanted` ticks: 1, 2 or 5 times a power of ten, and for
/// durations of minutes and hours what a clock would show.
fn step(span: f64, format: Format, wanted: usize) -> f64 {
    let least = span / wanted.max(1) as f64;
    const CLOCK: [f64; 15] = [
        15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10800.0, 21600.0, 43200.0,
        86400.0, 172_800.0,
    ];
    if format == Format::Seconds && (10.0..=172_800.0).contains(&least) {
        return *CLOCK.iter().find(|&&step| step >= least).unwrap_or(&172_800.0);
    }
    let power = 10f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= least);
    let step = factor.unwrap_or(10.0) * power;
    if format == Format::Count { step.max(1.0) } else { step }
}

fn multiples(low: f64, high: f64, step: f64) -> Vec<f64> {
    let tolerance = 1e-9 * (high - low);
    let first = ((low - tolerance) / step).ceil();
    // Bounded: a step that vanishes beside its values must not loop for ever.
    (0..100)
        .map(|place| (first + f64::from(place)) * step)
        .take_while(|&value| value <= high + tolerance)
        .collect()
}

fn powers_of_ten(low: f64, high: f64, wanted: usize) -> Ticks {
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    let inside = |value: &f64| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(value);
    let all = |factors: &'static [f64]| {
        let power = (first..=last).map(|exponent| 10f64.powi(exponent));
        let values = power.flat_map(|power| factors.iter().map(move |factor| factor * power));
        values.filter(inside).collect::<Vec<f64>>()
    };
    let decades = all(&[1.0]);
    let fine = all(&[1.0, 2.0, 5.0]);
    // Powers of ten are short labels, and a missing one is missed: they may stand closer.
    let every = decades.len().div_ceil(wanted.max(1) * 3 / 2).max(1);
    if fine.len() <= wanted {
        Ticks { labelled: fine, small: all(&[3.0, 4.0, 6.0, 7.0, 8.0, 9.0]) }
    } else if every == 1 {
        Ticks { labelled: decades, small: all(&[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]) }
    } else {
        Ticks { small: decades.clone(), labelled: decades.into_iter().step_by(every).collect() }
    }
}

/// Round durations on a log axis: a clock's units rather than powers of ten seconds.
fn durations(low: f64, high: f64, wanted: usize) -> Ticks {
    const ROUND: [f64; 14] =
        [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 86_400.0, 864_000.0];
    const FINE: [f64; 17] = [
        0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 3600.0,
        10_800.0, 36_000.0,
    ];
    let inside = |list: &[f64]| -> Vec<f64> {
        let holds = |value: &&f64| (low..=high).contains(*value);
        list.iter().filter(holds).copied().collect()
    };
    let fine = inside(&FINE);
    let labelled = match fine.len() <= wanted && fine.len() > inside(&ROUND).len() {
        true => fine,
        false => inside(&ROUND),
    };
    Ticks { labelled, small: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_inside() {
        let found = ticks(0.0, 37.5, false, Format::Number, 6);
        assert_eq!(found.labelled, [0.0, 10.0, 20.0, 30.0]);
        let found = ticks(0.0, 1.0, false, Format::Number, 5);
        assert_eq!(found.labelled.len(), 6);
        let found = ticks(0.0, 400.0, false, Format::Seconds, 5);
        assert_eq!(found.labelled, [0.0, 120.0, 240.0, 360.0]);
    }

    #[test]
    fn a_rounded_range_ends_at_ticks() {
        assert_eq!(rounded((0.0, 37.5), Format::Number, 7), (0.0, 40.0));
        assert_eq!(rounded((-3.0, 11.0), Format::Number, 7), (-4.0, 12.0));
        assert_eq!(rounded((0.0, 40.0), Format::Number, 7), (0.0, 40.0));
    }

    #[test]
    fn whole_things_have_no_half_ticks() {
        let found = ticks(0.0, 2.0, false, Format::Count, 10);
        assert_eq!(found.labelled, [0.0, 1.0, 2.0]);
    }

    #[test]
    fn log_ticks_are_decades_with_small_ones_between() {
        let found = ticks(0.5, 20_000.0, true, Format::Count, 6);
        assert_eq!(found.labelled, [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        assert!(found.small.contains(&0.5) && found.small.contains(&20_000.0));
        let found = ticks(1.0, 60.0, true, Format::Number, 6);
        assert_eq!(found.labelled, [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        let found = ticks(1e-12, 1e12, true, Format::Number, 6);
        assert!(found.labelled.len() <= 9);
    }

    #[test]
    fn log_durations_follow_the_clock() {
        let found = ticks(2.0, 8_000.0, true, Format::Seconds, 5);
        assert_eq!(found.labelled, [10.0, 60.0, 600.0, 3600.0]);
    }

    #[test]
    fn every_range_has_an_extent_and_every_tick_lies_in_it() {
        let odd = [
            0.0,
            -0.0,
            1.0,
            -5.0,
            1e-300,
            1e99,
            -1e100,
            1e300,
            1e15,
            1e15 + 1.0,
            f64::NAN,
            f64::INFINITY,
            0.3,
            100.0,
        ];
        for a in odd {
            for b in odd {
                for (log, from_zero) in [(false, false), (false, true), (true, false), (true, true)] {
                    let (low, high) = range([a, b].into_iter(), log, from_zero, 0.03);
                    assert!(low < high, "{a} {b} {log}: {low} {high}");
                    let (below, above) = rounded((low, high), Format::Number, 7);
                    assert!(below <= low && high <= above && above.is_finite());
                    for format in [Format::Number, Format::Count, Format::Seconds] {
                        let found = ticks(low, high, log, format, 6);
                        let slack = 1e-8 * (high - low);
                        for value in found.labelled.iter().chain(&found.small) {
                            assert!(
                                (low - slack..=high + slack).contains(value),
                                "{a} {b} {log} {format:?}: {value} outside {low}..{high}"
                            );
                        }
                        assert!(found.labelled.len() < 20, "{a} {b} {log} {format:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn places_run_from_start_to_end() {
        let scale = Scale { log: true, low: 1.0, high: 100.0, start: 0.0, end: 50.0 };
        assert_eq!(scale.place(1.0), Some(0.0));
        assert!((scale.place(10.0).unwrap_or(0.0) - 25.0).abs() < 1e-9);
        assert_eq!(scale.place(0.0), None);
        assert_eq!(scale.place(f64::NAN), None);
    }
}
