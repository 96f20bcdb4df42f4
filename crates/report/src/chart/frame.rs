//! The layout of a chart: how large the plot is, what its axes span, where their ticks stand.

use super::scale::{Scale, Ticks, range, rounded, ticks};
use super::{Chart, Marks, Point, Series};
use crate::text::width;

/// The room a chart has, in SVG units (CSS pixels at full size).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Size {
    /// A chart over the whole width of a page.
    pub(crate) const WIDE: Self = Self { width: 880.0, height: 410.0 };
    /// One of two charts side by side.
    pub(crate) const HALF: Self = Self { width: 456.0, height: 330.0 };
}

/// The rectangle between the axes, and the mappings onto it.
pub(super) struct Frame {
    pub(super) size: Size,
    pub(super) top: f64,
    pub(super) x: Scale,
    pub(super) y: Scale,
    pub(super) x_ticks: Ticks,
    pub(super) y_ticks: Ticks,
    /// Whether the names of categories need to lean to have room.
    pub(super) slanted: bool,
}

/// Width of a letter at the 13 px of tick labels, that of the wider common sans-serif faces.
pub(super) const LETTER: f64 = 7.8;
/// The most labels beside the y axis.
const Y_TICKS: usize = 7;

impl Frame {
    pub(super) fn new(chart: &Chart, size: Size, header: f64) -> Self {
        let (x_low, x_high) = chart.x.range.unwrap_or_else(|| x_range(chart));
        let (y_low, y_high) = chart.y.range.unwrap_or_else(|| y_range(chart));

        let top = header + if chart.y.label.is_empty() { 12.0 } else { 30.0 };
        let y_ticks = ticks(y_low, y_high, chart.y.log, chart.y.format, Y_TICKS);
        let widest = (y_ticks.labelled.iter()).map(|&value| width(&chart.y.format.write_tick(value))).max();
        let left = 16.0 + LETTER * widest.unwrap_or(1) as f64;
        let right = size.width - 18.0;

        let names = &chart.x.categories;
        let longest = names.iter().map(|name| width(name)).max().unwrap_or(0) as f64 * LETTER;
        let slanted = longest + 8.0 > (right - left) / names.len().max(1) as f64;
        let below_ticks = if slanted { (longest * 0.6).min(110.0) } else { 0.0 };
        let bottom = size.height - 28.0 - below_ticks - if chart.x.label.is_empty() { 0.0 } else { 20.0 };

        let wanted = ((right - left) / 85.0) as usize;
        Self {
            size,
            top,
            x: Scale { log: chart.x.log, low: x_low, high: x_high, start: left, end: right },
            y: Scale { log: chart.y.log, low: y_low, high: y_high, start: bottom, end: top },
            x_ticks: match names.len() {
                0 => ticks(x_low, x_high, chart.x.log, chart.x.format, wanted),
                count => {
                    Ticks { labelled: (0..count).map(|place| place as f64).collect(), small: Vec::new() }
                }
            },
            y_ticks,
            slanted,
        }
    }

    /// The pixels of a point, where it has any.
    pub(super) fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        Some((self.x.place(x)?, self.y.place(y)?))
    }

    /// Whether a placed point lies between the axes, and not in what a fixed range cuts off.
    pub(super) fn shows(&self, x: f64, y: f64) -> bool {
        (self.x.start - 1.0..=self.x.end + 1.0).contains(&x)
            && (self.y.end - 1.0..=self.y.start + 1.0).contains(&y)
    }

    /// Where bars stand: at zero, or at the foot of an axis that has none.
    pub(super) fn ground(&self) -> f64 {
        let zero = if self.y.log { None } else { self.y.place(0.0) };
        zero.unwrap_or(self.y.start).clamp(self.y.end, self.y.start)
    }
}

fn x_range(chart: &Chart) -> (f64, f64) {
    match chart.x.categories.len() {
        0 => {
            let bars = chart.series.iter().any(Series::has_bars);
            range(chart.x_values(), chart.x.log, false, if bars { 0.01 } else { 0.02 })
        }
        count => (-0.5, count as f64 - 0.5),
    }
}

fn y_range(chart: &Chart) -> (f64, f64) {
    let bars = chart.series.iter().any(Series::has_bars);
    match chart.y.log {
        true => range(chart.y_values(), true, bars, 0.04),
        false => {
            let tight = range(chart.y_values(), false, bars, 0.0);
            rounded(tight, chart.y.format, Y_TICKS)
        }
    }
}

impl Chart {
    fn x_values(&self) -> impl Iterator<Item = f64> {
        self.series.iter().flat_map(|series| match &series.marks {
            Marks::Line(points) | Marks::Dots(points) => points.iter().map(|p| p.x).collect(),
            Marks::Bars(bars) => bars.iter().flat_map(|b| [b.from, b.to]).collect(),
            Marks::Columns(values) => (0..values.len()).map(|v| v as f64).collect::<Vec<_>>(),
        })
    }

    fn y_values(&self) -> impl Iterator<Item = f64> {
        let with_band = |p: &Point| {
            let (low, high) = p.band.unwrap_or((p.y, p.y));
            [p.y, low, high]
        };
        self.series.iter().flat_map(move |series| match &series.marks {
            Marks::Line(points) | Marks::Dots(points) => points.iter().flat_map(with_band).collect(),
            Marks::Bars(bars) => bars.iter().map(|b| b.value).collect(),
            Marks::Columns(values) => values.clone(),
        })
    }
}

impl Series {
    pub(super) fn has_bars(&self) -> bool {
        matches!(self.marks, Marks::Bars(_) | Marks::Columns(_))
    }
}
