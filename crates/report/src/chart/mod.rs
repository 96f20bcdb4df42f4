//! Charts of lines, dots and bars on linear, logarithmic or named axes.
//!
//! The SVG is written here by hand rather than by a plotting library. A page needs to find each
//! series again (to hide it, to light it up under the pointer) and to repaint it in dark mode;
//! a plotting library writes pixels with fixed colours and no names. What remains to be done by
//! hand, round ticks and straight paths, is small. One drawing serves both uses: a file's colours
//! stand in attributes, which any SVG reader follows, and a page's style sheet overrides them.
//!
//! Cost: O(points), and points less than half a pixel apart are drawn once, so that a curve over
//! all 670,091 labels stays a small file.

mod draw;
mod frame;
pub(crate) mod palette;
mod scale;

pub(crate) use draw::{Hover, embedded};
pub(crate) use frame::Size;

use crate::{Cell, Column, Format, Table};
use maud::Markup;
use palette::Style;

/// An axis: what it shows, and how values are placed along it.
#[derive(Clone, Debug)]
pub struct Axis {
    label: String,
    log: bool,
    categories: Vec<String>,
    format: Format,
    range: Option<(f64, f64)>,
}

impl Axis {
    /// Equal steps stand for equal differences.
    pub fn linear(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            log: false,
            categories: Vec::new(),
            format: Format::default(),
            range: None,
        }
    }

    /// Equal steps stand for equal factors. Values that are not positive have no place on it.
    pub fn log(label: impl Into<String>) -> Self {
        Self { log: true, ..Self::linear(label) }
    }

    /// Named places, for [`Series::bars_by_category`] on the x axis. The first name stands at 0,
    /// the next at 1, and so on.
    pub fn categories<N: Into<String>>(label: impl Into<String>, names: impl IntoIterator<Item = N>) -> Self {
        Self { categories: names.into_iter().map(Into::into).collect(), ..Self::linear(label) }
    }

    /// How values are written beside the axis and in tooltips.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Shows exactly this range, whatever the data; what lies outside is cut off.
    ///
    /// A range that cannot be drawn (empty, not finite, not positive on a log axis) is ignored.
    pub fn range(mut self, low: f64, high: f64) -> Self {
        let holds = |value| scale::is_drawable(value, self.log);
        self.range = (holds(low) && holds(high) && low < high).then_some((low, high));
        self
    }

    fn write(&self, value: f64) -> String {
        let named = (value >= 0.0).then(|| self.categories.get(value.round() as usize));
        match named.flatten() {
            Some(name) => crate::text::clean(name),
            None => self.format.write(value),
        }
    }
}

/// A point of a line, with the spread around it if known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where along the x axis.
    pub x: f64,
    /// How high. Where it is not finite, the line has a gap.
    pub y: f64,
    /// The lowest and highest value over the seeds, drawn as a band.
    pub band: Option<(f64, f64)>,
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Self {
        Self { x, y, band: None }
    }
}

/// `(x, y, low, high)`
impl From<(f64, f64, f64, f64)> for Point {
    fn from((x, y, low, high): (f64, f64, f64, f64)) -> Self {
        let band = Some((low, high));
        Self { x, y, band }
    }
}

/// A bar over a range of x, as in a histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// The left edge.
    pub from: f64,
    /// The right edge.
    pub to: f64,
    /// The height.
    pub value: f64,
}

/// How a series is drawn.
#[derive(Clone, Debug)]
enum Marks {
    Line(Vec<Point>),
    Dots(Vec<Point>),
    Bars(Vec<Bar>),
    /// One bar a category of the x axis; several such series stand side by side.
    Columns(Vec<f64>),
}

/// One line, cloud of dots or row of bars, with its name in the legend.
#[derive(Clone, Debug)]
pub struct Series {
    name: String,
    marks: Marks,
    style: Option<Style>,
}

impl Series {
    fn new(name: impl Into<String>, marks: Marks) -> Self {
        let name = name.into();
        Self { name, marks, style: None }
    }

    /// A line through points in the order given, from `(x, y)` or `(x, y, low, high)`.
    pub fn line<P: Into<Point>>(name: impl Into<String>, points: impl IntoIterator<Item = P>) -> Self {
        let points = points.into_iter().map(Into::into).collect();
        Self::new(name, Marks::Line(points))
    }

    /// A line through the means of several runs, in a band from the lowest run to the highest.
    ///
    /// The runs are matched point by point (the first evaluation with the first), and x is averaged
    /// like y, since no two runs take the same time. The line ends with the shortest run: a mean
    /// over fewer runs would jump without cause.
    pub fn over_seeds(name: impl Into<String>, runs: &[Vec<(f64, f64)>]) -> Self {
        let shortest = runs.iter().map(Vec::len).min().unwrap_or(0);
        let count = runs.len() as f64;
        Self::line(
            name,
            (0..shortest).map(|place| {
                let at = || runs.iter().map(move |run| run[place]);
                (
                    at().map(|(x, _)| x).sum::<f64>() / count,
                    at().map(|(_, y)| y).sum::<f64>() / count,
                    at().map(|(_, y)| y).fold(f64::INFINITY, f64::min),
                    at().map(|(_, y)| y).fold(f64::NEG_INFINITY, f64::max),
                )
            }),
        )
    }

    /// A dot at each point.
    pub fn scatter<P: Into<Point>>(name: impl Into<String>, points: impl IntoIterator<Item = P>) -> Self {
        let points = points.into_iter().map(Into::into).collect();
        Self::new(name, Marks::Dots(points))
    }

    /// A bar over each given range of x.
    pub fn bars(name: impl Into<String>, bars: impl IntoIterator<Item = Bar>) -> Self {
        Self::new(name, Marks::Bars(bars.into_iter().collect()))
    }

    /// A bar over each category of the x axis, in the order of [`Axis::categories`].
    pub fn bars_by_category(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        Self::new(name, Marks::Columns(values.into_iter().collect()))
    }

    /// How many labels are seen once, 2 to 3 times, 4 to 7 times and so on, for two log axes: the
    /// shape of a power law. Takes each label's number of examples; labels never seen have no place
    /// on a log axis and are left out.
    pub fn frequency_histogram(name: impl Into<String>, counts: impl IntoIterator<Item = u64>) -> Self {
        let mut labels = [0u64; 64];
        for count in counts.into_iter().filter(|&count| count > 0) {
            labels[count.ilog2() as usize] += 1;
        }
        let filled = labels.iter().enumerate().filter(|&(_, &count)| count > 0);
        Self::bars(
            name,
            filled.map(|(power, &count)| Bar {
                from: 2f64.powi(power as i32),
                to: 2f64.powi(power as i32 + 1),
                value: count as f64,
            }),
        )
    }

    /// Pins the colour and dash, so that a method looks the same in every chart of a page even where
    /// another is missing. Without it, a series looks according to its place in its chart.
    pub fn style(mut self, place: usize) -> Self {
        self.style = Some(Style(place));
        self
    }
}

/// A titled chart. See the [crate's example](crate).
#[derive(Clone, Debug)]
pub struct Chart {
    title: String,
    caption: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

impl Chart {
    /// An empty chart.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), caption: String::new(), x, y, series: Vec::new() }
    }

    /// Says under the chart what to see in it.
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = caption.into();
        self
    }

    /// Adds a series, for building a chart in one expression.
    pub fn series(mut self, series: Series) -> Self {
        self.push(series);
        self
    }

    /// Adds a series to a chart that is filled in a loop.
    pub fn push(&mut self, series: Series) {
        self.series.push(series);
    }

    /// The chart as an SVG file of its own, on white, with title and legend.
    pub fn to_svg(&self) -> String {
        draw::standalone(self)
    }

    /// The chart's numbers, a row a point, for a CSV file beside the SVG.
    pub fn to_table(&self) -> Table {
        let mut table = Table::new(&self.title)
            .column(Column::text("series"))
            .column(Column::number(&self.x.label, self.x.format))
            .column(Column::number(&self.y.label, self.y.format))
            .column(Column::number("low", self.y.format))
            .column(Column::number("high", self.y.format));
        for series in &self.series {
            let mut push = |x: Cell, y: f64, low: Option<f64>, high: Option<f64>| {
                table.push_row([series.name.as_str().into(), x, y.into(), low.into(), high.into()]);
            };
            match &series.marks {
                Marks::Line(points) | Marks::Dots(points) => {
                    for point in points {
                        let (low, high) = point.band.unzip();
                        push(point.x.into(), point.y, low, high);
                    }
                }
                Marks::Bars(bars) => {
                    for bar in bars {
                        push(bar.from.into(), bar.value, None, None);
                    }
                }
                Marks::Columns(values) => {
                    for (place, &value) in values.iter().enumerate() {
                        push(self.x.write(place as f64).into(), value, None, None);
                    }
                }
            }
        }
        table
    }

    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    pub(crate) fn explanation(&self) -> &str {
        &self.caption
    }

    /// Names and line samples for a legend.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (String, Markup)> {
        let all = self.series.iter().enumerate();
        all.map(|(place, series)| {
            let key = draw::key(series, self.style_of(place));
            (crate::text::clean(&series.name), key)
        })
    }

    fn style_of(&self, place: usize) -> Style {
        self.series[place].style.unwrap_or(Style(place))
    }
}

#[cfg(test)]
mod tests;
