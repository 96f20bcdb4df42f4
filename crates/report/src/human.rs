//! Numbers and durations as people read them: `670,091`, `1.2 s`, `3.4 min`, `11×`.
//!
//! The one place that decides how a number looks, for tables, axes, tooltips and the command line.

use std::time::Duration;

/// How a number is written in a table's column, on an axis and in a tooltip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Four significant digits, as [`number`].
    #[default]
    Number,
    /// A whole number with thousands separators: `670,091`.
    Count,
    /// A fixed number of decimals: `36.10`.
    Fixed(u8),
    /// A fraction of one as a percentage with this many decimals: 0.361 is `36.1%`.
    Percent(u8),
    /// A factor: `11×`, `1.2×`.
    Times,
    /// A duration given in seconds: `3.4 min`.
    Seconds,
    /// A size in bytes: `1.6 GB`.
    Bytes,
}

impl Format {
    /// Writes one value; what is not a finite number becomes a dash.
    pub fn write(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".into();
        }
        match self {
            Self::Number => number(value),
            Self::Count => grouped(value, 0),
            Self::Fixed(decimals) => grouped(value, decimals),
            Self::Percent(decimals) => grouped(value * 100.0, decimals) + "%",
            Self::Times => times(value),
            Self::Seconds => seconds(value),
            Self::Bytes => bytes(value),
        }
    }

    /// Writes a round value beside an axis: as short as it can be without being wrong.
    pub(crate) fn write_tick(self, value: f64) -> String {
        match self {
            Self::Percent(_) => short(value * 100.0) + "%",
            Self::Times => short(value) + "×",
            Self::Seconds => trim_unit(&seconds(value)),
            Self::Bytes => trim_unit(&bytes(value)),
            Self::Number | Self::Count | Self::Fixed(_) => short(value),
        }
    }
}

/// A whole number with thousands separators: `670,091`.
pub fn count(value: u64) -> String {
    separate_thousands(&value.to_string())
}

/// So many of what a word names, which gets an s for more than one: `1 epoch`, `12 epochs`.
pub fn counted(value: u64, what: &str) -> String {
    format!("{} {what}{}", count(value), if value == 1 { "" } else { "s" })
}

/// Four significant digits, thousands separated, no trailing zeros: `0.1235`, `36.1`, `670,091`.
/// The very large and the very small are written as `1.23e-7`.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        "–".into()
    } else if value == 0.0 {
        "0".into()
    } else if !(1e-4..1e15).contains(&size) {
        format!("{value:.2e}")
    } else {
        let decimals = (3 - size.log10().floor() as i32).clamp(0, 7) as u8;
        trim_zeros(&grouped(value, decimals))
    }
}

/// A big number in little space, for axes: `1,000`, `100,000`, `1M`, `2.5M`, `3B`.
///
/// The letter is used only where at most two decimals are needed, so 1,000,200 stays as it is.
pub fn short(value: f64) -> String {
    for (unit, letter) in [(1e9, "B"), (1e6, "M")] {
        let hundredths = value / unit * 100.0;
        if (unit..unit * 1e3).contains(&value.abs()) && (hundredths - hundredths.round()).abs() < 1e-6 {
            return trim_zeros(&grouped(value / unit, 2)) + letter;
        }
    }
    // Round ticks such as 0.30000000000000004 have few digits; ten hide the rounding.
    if (1e-6..1e15).contains(&value.abs()) {
        let decimals = (9 - value.abs().log10().floor() as i32).clamp(0, 9) as u8;
        trim_zeros(&grouped(value, decimals))
    } else {
        number(value)
    }
}

/// A factor with two significant digits below ten: `1.2×`, `11×`, `0.26×`.
pub fn times(value: f64) -> String {
    let decimals = match value.abs() {
        size if size < 0.995 => 2,
        size if size < 9.95 => 1,
        _ => 0,
    };
    grouped(value, decimals) + "×"
}

/// A duration in the unit that suits it: `350 µs`, `1.2 s`, `3.4 min`, `2.5 h`, `1.3 days`.
pub fn duration(value: Duration) -> String {
    seconds(value.as_secs_f64())
}

/// A duration in seconds, as [`duration`]; negative durations keep their sign.
pub fn seconds(value: f64) -> String {
    const UNITS: [(f64, &str); 7] = [
        (1e-9, "ns"),
        (1e-6, "µs"),
        (1e-3, "ms"),
        (1.0, "s"),
        (60.0, "min"),
        (3600.0, "h"),
        (86400.0, "days"),
    ];
    if value == 0.0 {
        return "0 s".into();
    }
    in_units(value, &UNITS)
}

/// A size in decimal units, as disks are sold and memory is budgeted: `512 B`, `1.6 GB`.
pub fn bytes(value: f64) -> String {
    const UNITS: [(f64, &str); 5] = [(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")];
    if value.abs() < 1e3 {
        return grouped(value, 0) + " B";
    }
    in_units(value, &UNITS)
}

/// The value in the largest unit that leaves at least one whole, one decimal below a hundred.
fn in_units(value: f64, units: &[(f64, &str)]) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let written = |unit: f64| {
        let decimals = u8::from((value / unit).abs() < 99.95);
        ((value / unit * 10.0).round().abs() / 10.0, decimals)
    };
    let mut chosen = 0;
    for next in 1..units.len() {
        // Compare what will be printed, so that 59.97 s becomes "1.0 min" and never "60.0 s".
        let (shown, decimals) = written(units[chosen].0);
        let shown = if decimals == 0 { shown.round() } else { shown };
        if shown * units[chosen].0 < units[next].0 * (1.0 - 1e-9) {
            break;
        }
        chosen = next;
    }
    let (unit, name) = units[chosen];
    let (_, decimals) = written(unit);
    grouped(value / unit, decimals) + " " + name
}

fn grouped(value: f64, decimals: u8) -> String {
    let written = format!("{value:.*}", usize::from(decimals));
    match written.strip_prefix('-') {
        // "-0.0" says less than "0.0".
        Some(digits) if digits.chars().all(|c| c == '0' || c == '.') => digits.into(),
        Some(digits) => format!("-{}", separate_thousands(digits)),
        None => separate_thousands(&written),
    }
}

fn separate_thousands(digits: &str) -> String {
    let whole = digits.find('.').unwrap_or(digits.len());
    let mut out = String::with_capacity(digits.len() + whole / 3);
    for (place, c) in digits.char_indices() {
        if place > 0 && place < whole && (whole - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

fn trim_zeros(written: &str) -> String {
    match written.contains('.') {
        true => written.trim_end_matches('0').trim_end_matches('.').into(),
        false => written.into(),
    }
}

fn trim_unit(written: &str) -> String {
    match written.split_once(' ') {
        Some((digits, "days")) if trim_zeros(digits) == "1" => "1 day".into(),
        Some((digits, unit)) => format!("{} {unit}", trim_zeros(digits)),
        None => written.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_has_a_plural() {
        let counted = [0, 1, 2000].map(|value| counted(value, "row"));
        assert_eq!(counted, ["0 rows", "1 row", "2,000 rows"]);
    }

    #[test]
    fn durations_use_the_unit_that_suits_them() {
        for (value, expected) in [
            (0.0, "0 s"),
            (3.2e-7, "320 ns"),
            (0.00035, "350 µs"),
            (0.0123, "12.3 ms"),
            (0.99996, "1.0 s"),
            (1.24, "1.2 s"),
            (59.94, "59.9 s"),
            (59.97, "1.0 min"),
            (204.0, "3.4 min"),
            (3599.0, "1.0 h"),
            (9000.0, "2.5 h"),
            (112_320.0, "1.3 days"),
            (864_000_000.0, "10,000 days"),
            (-1.5, "-1.5 s"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(seconds(value), expected, "{value}");
        }
        assert_eq!(duration(Duration::from_millis(1234)), "1.2 s");
    }

    #[test]
    fn numbers_keep_four_digits_and_separate_thousands() {
        for (value, expected) in [
            (0.0, "0"),
            (0.123_456, "0.1235"),
            (36.1, "36.1"),
            (-1234.56, "-1,235"),
            (670_091.0, "670,091"),
            (1.234e-7, "1.23e-7"),
            (f64::INFINITY, "–"),
        ] {
            assert_eq!(number(value), expected, "{value}");
        }
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn short_numbers_stay_true() {
        for (value, expected) in [
            (0.1 + 0.2, "0.3"),
            (100_000.0, "100,000"),
            (1e6, "1M"),
            (2.5e6, "2.5M"),
            (1_000_200.0, "1,000,200"),
            (3e9, "3B"),
            (-2e6, "-2M"),
        ] {
            assert_eq!(short(value), expected, "{value}");
        }
    }

    #[test]
    fn each_format_writes_its_unit() {
        assert_eq!(Format::Times.write(11.04), "11×");
        assert_eq!(Format::Times.write(1.18), "1.2×");
        assert_eq!(Format::Times.write(0.26), "0.26×");
        assert_eq!(Format::Percent(1).write(0.3614), "36.1%");
        assert_eq!(Format::Fixed(2).write(-0.001), "0.00");
        assert_eq!(Format::Bytes.write(1.6e9), "1.6 GB");
        assert_eq!(Format::Bytes.write(999_960.0), "1.0 MB");
        assert_eq!(Format::Count.write(f64::NAN), "–");
        assert_eq!(Format::Seconds.write_tick(60.0), "1 min");
        assert_eq!(Format::Seconds.write_tick(86400.0), "1 day");
        assert_eq!(Format::Percent(0).write_tick(0.2), "20%");
    }
}
