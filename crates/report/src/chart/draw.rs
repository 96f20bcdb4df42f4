//! A chart as SVG.

use super::frame::{Frame, LETTER, Size};
use super::palette::{COLOURS, Style};
use super::scale::Scale;
use super::{Bar, Chart, Marks, Point, Series};
use crate::text::{clean, width};
use maud::{Markup, html};
use serde::Serialize;
use std::fmt::Write;

/// What the page's script knows of a series: where its points are and what to say about them.
#[derive(Serialize)]
pub(crate) struct Hover {
    name: String,
    colour: usize,
    /// Bars answer anywhere above and below them, points only nearby.
    bars: bool,
    /// Pixel x and y, then x, y and spread as text.
    points: Vec<(f64, f64, String, String, String)>,
}

const AXIS_COLOUR: &str = "#5a5f66";
const GRID_COLOUR: &str = "#e3e5e8";
const INK: &str = "#1c1e21";

/// The chart as a file of its own.
pub(super) fn standalone(chart: &Chart) -> String {
    let size = Size::WIDE;
    let (legend, legend_height) = legend(chart, size.width);
    let title_height = 34.0;
    let header = title_height + legend_height;
    let full = Size { width: size.width, height: size.height + header };
    let frame = Frame::new(chart, full, header);
    let markup = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "-16 0 " (full.width + 16.0) " " (full.height) }
            width=(full.width + 16.0) height=(full.height) font-family="system-ui, sans-serif" font-size="13" {
            title { (clean(&chart.title)) }
            rect x="-16" width="100%" height="100%" fill="#ffffff" {}
            text x="0" y="26" font-size="16" font-weight="600" fill=(INK) { (clean(&chart.title)) }
            g transform={ "translate(0 " (title_height) ")" } { (legend) }
            (body(chart, &frame, "chart"))
        }
    };
    markup.into_string()
}

/// The chart as part of a page, without title and legend, and the points it can speak of.
pub(crate) fn embedded(chart: &Chart, size: Size, id: &str) -> (Markup, Vec<Hover>) {
    let frame = Frame::new(chart, size, 0.0);
    let label = format!(
        "Chart: {}. {} against {}.",
        clean(&chart.title),
        clean(&chart.y.label),
        clean(&chart.x.label)
    );
    let markup = html! {
        svg viewBox=(view_box(size)) role="img" aria-label=(label) font-size="13" {
            (body(chart, &frame, id))
        }
    };
    let hover = (0..chart.series.len()).map(|place| hover(chart, &frame, place));
    (markup, hover.collect())
}

/// The sample of a series' line (or square of its bars) in a legend.
pub(crate) fn key(series: &Series, style: Style) -> Markup {
    html! {
        g class={ "c" (style.colour()) } color=(COLOURS[style.colour()].0) {
            @match series.marks {
                Marks::Line(_) => line x1="1" y1="6" x2="27" y2="6" stroke="currentColor"
                    stroke-width="2.2" stroke-dasharray=(style.dash()) {},
                Marks::Dots(_) => circle cx="14" cy="6" r="3.5" fill="currentColor" {},
                Marks::Bars(_) | Marks::Columns(_) => rect x="8" y="0" width="12" height="12" rx="2"
                    fill="currentColor" fill-opacity="0.85" {},
            }
        }
    }
}

fn view_box(size: Size) -> String {
    format!("0 0 {} {}", size.width, size.height)
}

/// Keys and names in rows, as many as fit; a single series needs none.
fn legend(chart: &Chart, room: f64) -> (Markup, f64) {
    let (mut x, mut row) = (0.0, 0.0);
    let mut items = Vec::new();
    for (place, series) in chart.series.iter().enumerate() {
        let name = clean(&series.name);
        let wide = 34.0 + LETTER * width(&name) as f64 + 16.0;
        if x + wide > room && x > 0.0 {
            (x, row) = (0.0, row + 1.0);
        }
        items.push((x, row * 20.0, key(series, chart.style_of(place)), name));
        x += wide;
    }
    if items.len() < 2 {
        return (html! {}, 0.0);
    }
    let markup = html! {
        @for (x, y, key, name) in items {
            g transform={ "translate(" (round(x)) " " (y + 4.0) ")" } {
                (key)
                text x="34" y="10" fill=(INK) { (name) }
            }
        }
    };
    (markup, row * 20.0 + 26.0)
}

/// Axes and series; `id` keeps the clip paths of one page apart.
fn body(chart: &Chart, frame: &Frame, id: &str) -> Markup {
    let clip = format!("{id}-clip");
    let empty = (0..chart.series.len()).all(|place| hover(chart, frame, place).points.is_empty());
    html! {
        (axes(chart, frame))
        defs { clipPath id=(clip) {
            rect x=(round(frame.x.start - 3.0)) y=(round(frame.top - 3.0))
                width=(round(frame.x.end - frame.x.start + 6.0))
                height=(round(frame.y.start - frame.top + 6.0)) {}
        } }
        g clip-path={ "url(#" (clip) ")" } {
            @for (place, series) in chart.series.iter().enumerate() {
                (draw_series(chart, frame, series, place))
            }
        }
        @if empty {
            text x=(round((frame.x.start + frame.x.end) / 2.0)) y=(round((frame.y.start + frame.y.end) / 2.0))
                text-anchor="middle" fill=(AXIS_COLOUR) { "No data" }
        }
    }
}

fn axes(chart: &Chart, frame: &Frame) -> Markup {
    let Scale { start: left, end: right, .. } = frame.x;
    let (bottom, top) = (frame.y.start, frame.top);
    let label_y = frame.size.height - 7.0;
    html! {
        g.grid color=(GRID_COLOUR) stroke="currentColor" {
            @for y in frame.y_ticks.labelled.iter().filter_map(|&value| frame.y.place(value)) {
                line x1=(round(left)) x2=(round(right)) y1=(round(y)) y2=(round(y)) {}
            }
        }
        g.axis color=(AXIS_COLOUR) fill="currentColor" {
            path d=(tick_marks(frame)) stroke="currentColor" fill="none" {}
            @for &value in &frame.y_ticks.labelled {
                @if let Some(y) = frame.y.place(value) {
                    text x=(round(left - 8.0)) y=(round(y + 4.0)) text-anchor="end" {
                        (chart.y.format.write_tick(value))
                    }
                }
            }
            @for &value in &frame.x_ticks.labelled {
                @if let Some(x) = frame.x.place(value) { (x_label(chart, frame, value, x)) }
            }
            text.label x=(round((left + right) / 2.0)) y=(round(label_y)) text-anchor="middle" {
                (clean(&chart.x.label))
            }
            text.label x="0" y=(round(top - 14.0)) { (clean(&chart.y.label)) }
        }
        path.ground color=(AXIS_COLOUR) stroke="currentColor"
            d={ "M" (round(left)) " " (round(bottom)) "H" (round(right)) } {}
    }
}

fn x_label(chart: &Chart, frame: &Frame, value: f64, x: f64) -> Markup {
    let named = chart.x.categories.get(value.max(0.0) as usize);
    let label = named.map_or_else(|| chart.x.format.write_tick(value), |name| clean(name));
    let (x, y) = (round(x), round(frame.y.start + 20.0));
    html! {
        @if frame.slanted {
            text text-anchor="end" transform={ "translate(" (x) " " (y) ") rotate(-35)" } { (label) }
        } @else {
            text x=(x) y=(y) text-anchor="middle" { (label) }
        }
    }
}

/// Short strokes under the x axis, half as long where they carry no label.
fn tick_marks(frame: &Frame) -> String {
    let mut path = String::new();
    let lists = [(&frame.x_ticks.labelled, 6.0), (&frame.x_ticks.small, 3.0)];
    for (values, length) in lists {
        for x in values.iter().filter_map(|&value| frame.x.place(value)) {
            let _ = write!(path, "M{} {}v{length}", round(x), round(frame.y.start));
        }
    }
    path
}

fn draw_series(chart: &Chart, frame: &Frame, series: &Series, place: usize) -> Markup {
    let style = chart.style_of(place);
    html! {
        g class={ "series c" (style.colour()) } data-series=(place) color=(COLOURS[style.colour()].0) {
            @match &series.marks {
                Marks::Line(points) => (draw_line(frame, points, style)),
                Marks::Dots(points) => {
                    @for (x, y) in thinned(placed(frame, points)) {
                        circle cx=(round(x)) cy=(round(y)) r="3" fill="currentColor" fill-opacity="0.7" {}
                    }
                },
                Marks::Bars(_) | Marks::Columns(_) => {
                    path.bars d=(bars_path(chart, frame, place)) fill="currentColor" fill-opacity="0.85" {}
                },
            }
        }
    }
}

fn draw_line(frame: &Frame, points: &[Point], style: Style) -> Markup {
    // A point that cannot be placed is a gap: the line ends before it and begins again after.
    let runs: Vec<&[Point]> =
        points.split(|point| frame.place(point.x, point.y).is_none()).filter(|run| !run.is_empty()).collect();
    let band: String = runs.iter().map(|run| band_path(frame, run)).collect();
    html! {
        @if !band.is_empty() { path.band d=(band) fill="currentColor" fill-opacity="0.15" {} }
        path.line d=(runs.iter().map(|run| polyline(placed(frame, run))).collect::<String>())
            fill="none" stroke="currentColor" stroke-width="2.2" stroke-linejoin="round"
            stroke-dasharray=(style.dash()) {}
        // A line of one point has no length.
        @for (x, y) in runs.iter().filter(|run| run.len() == 1).flat_map(|run| placed(frame, run)) {
            circle cx=(round(x)) cy=(round(y)) r="3" fill="currentColor" {}
        }
    }
}

fn band_path(frame: &Frame, run: &[Point]) -> String {
    if run.iter().all(|point| point.band.is_none()) {
        return String::new();
    }
    // A band that reaches below what a log axis can show ends at its foot.
    let edge = |x: f64, y: f64| Some((frame.x.place(x)?, frame.y.place(y).unwrap_or(frame.y.start)));
    let high = run.iter().filter_map(|p| edge(p.x, p.band.map_or(p.y, |band| band.1)));
    let low = run.iter().filter_map(|p| edge(p.x, p.band.map_or(p.y, |band| band.0)));
    let outline = thinned(high).into_iter().chain(thinned(low).into_iter().rev());
    let points: Vec<String> = outline.map(|(x, y)| format!("{} {}", round(x), round(y))).collect();
    format!("M{}Z", points.join("L"))
}

fn polyline(points: impl Iterator<Item = (f64, f64)>) -> String {
    let points: Vec<String> =
        (thinned(points).into_iter()).map(|(x, y)| format!("{} {}", round(x), round(y))).collect();
    format!("M{}", points.join("L"))
}

fn placed(frame: &Frame, points: &[Point]) -> impl Iterator<Item = (f64, f64)> {
    points.iter().filter_map(|point| frame.place(point.x, point.y))
}

/// Leaves out points within half a pixel of the last one kept, which no eye can tell apart.
fn thinned(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut last = None;
    for (x, y) in points {
        let near = |&(a, b): &(f64, f64)| (x - a).abs() < 0.5 && (y - b).abs() < 0.5;
        last = kept.last().is_some_and(near).then_some((x, y));
        if last.is_none() {
            kept.push((x, y));
        }
    }
    kept.extend(last);
    kept
}

/// The bars of a series in data coordinates; categories share their place among the series.
fn bars_of(chart: &Chart, place: usize) -> Vec<Bar> {
    match &chart.series[place].marks {
        Marks::Bars(bars) => bars.clone(),
        Marks::Columns(values) => {
            let columns = |series: &&Series| matches!(series.marks, Marks::Columns(_));
            let all = chart.series.iter().filter(columns).count() as f64;
            let before = chart.series[..place].iter().filter(columns).count() as f64;
            let each = 0.72 / all;
            let bar = |(category, &value): (usize, &f64)| {
                let from = category as f64 - 0.36 + before * each;
                let to = from + each;
                Bar { from, to, value }
            };
            values.iter().enumerate().map(bar).collect()
        }
        Marks::Line(_) | Marks::Dots(_) => Vec::new(),
    }
}

fn bars_path(chart: &Chart, frame: &Frame, place: usize) -> String {
    let mut path = String::new();
    for bar in bars_of(chart, place) {
        let edges = (frame.x.place(bar.from), frame.x.place(bar.to), frame.y.place(bar.value));
        if let (Some(left), Some(right), Some(y)) = edges {
            // A pixel of air keeps neighbours apart.
            let (left, right) = (left + 0.5, (right - 0.5).max(left + 0.6));
            let ground = round(frame.ground());
            let _ = write!(path, "M{} {ground}V{}H{}V{ground}Z", round(left), round(y), round(right));
        }
    }
    path
}

fn hover(chart: &Chart, frame: &Frame, place: usize) -> Hover {
    let series = &chart.series[place];
    let mut points = Vec::new();
    let mut last: Option<(f64, f64)> = None;
    let mut push = |x: f64, y: f64, texts: [String; 3]| {
        let near = |(a, b): (f64, f64)| (x - a).abs() < 0.5 && (y - b).abs() < 0.5;
        if frame.shows(x, y) && !last.is_some_and(near) {
            let [x_text, y_text, spread] = texts;
            let x_text = named(&chart.x.label, &x_text);
            points.push((round(x), round(y), x_text, y_text, spread));
            last = Some((x, y));
        }
    };
    match &series.marks {
        Marks::Line(list) | Marks::Dots(list) => {
            for point in list {
                if let Some((x, y)) = frame.place(point.x, point.y) {
                    let spread = point.band.map_or_else(String::new, |(low, high)| {
                        format!("{} to {}", chart.y.write(low), chart.y.write(high))
                    });
                    push(x, y, [chart.x.write(point.x), chart.y.write(point.y), spread]);
                }
            }
        }
        Marks::Bars(_) | Marks::Columns(_) => {
            for (category, bar) in bars_of(chart, place).into_iter().enumerate() {
                let middle = frame.x.place(bar.from).zip(frame.x.place(bar.to));
                if let (Some((left, right)), Some(y)) = (middle, frame.y.place(bar.value)) {
                    let x_text = match series.marks {
                        Marks::Columns(_) => chart.x.write(category as f64),
                        _ => format!("{} to {}", chart.x.write(bar.from), chart.x.write(bar.to)),
                    };
                    let texts = [x_text, chart.y.write(bar.value), String::new()];
                    // A bar taller than the axis is still there to be asked.
                    let top = y.clamp(frame.y.end, frame.y.start);
                    push((left + right) / 2.0, top, texts);
                }
            }
        }
    }
    Hover {
        name: clean(&series.name),
        colour: chart.style_of(place).colour(),
        bars: series.has_bars(),
        points,
    }
}

/// "iterations: 2,000". What follows a comma in an axis' label (its unit, a remark) is left out.
fn named(label: &str, value: &str) -> String {
    match label.split(',').next() {
        Some(name) if !name.is_empty() => format!("{}: {value}", clean(name)),
        _ => value.into(),
    }
}

/// A tenth of a pixel is enough, and keeps files small and equal on every machine.
fn round(pixel: f64) -> f64 {
    let tenths = (pixel.clamp(-1e6, 1e6) * 10.0).round() / 10.0;
    tenths + 0.0
}
