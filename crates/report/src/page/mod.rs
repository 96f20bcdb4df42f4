//! One HTML file: words, charts and tables, readable on screen, in the dark and on paper.
//!
//! Style and script stand in the file itself, and a content policy forbids it to load anything, so
//! a report opens the same on a train, in ten years, or from a mail. Without the script everything
//! is still there to read; the script adds values under the pointer, legends that switch lines, and
//! tables that sort. All text is escaped by construction (`maud`), since names of methods, labels
//! and files are the user's.

use crate::chart::palette::COLOURS;
use crate::chart::{self, Hover, Size};
use crate::text::clean;
use crate::{Chart, Table};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Forbids every load and every connection; what is in the file is all there is.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// A report. See the [crate's example](crate).
///
/// In all prose, words between backticks are set as code.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    lead: Vec<String>,
    facts: Vec<(String, String)>,
    sections: Vec<Section>,
    foot: Vec<(String, String)>,
}

impl Page {
    /// An empty page.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            lead: Vec::new(),
            facts: Vec::new(),
            sections: Vec::new(),
            foot: Vec::new(),
        }
    }

    /// Adds a paragraph under the title: the answer, before the evidence.
    pub fn lead(mut self, paragraph: impl Into<String>) -> Self {
        self.lead.push(paragraph.into());
        self
    }

    /// Adds one of the few figures to know first, as `("Classes", "670,091")`.
    pub fn fact(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.facts.push((name.into(), value.into()));
        self
    }

    /// Adds a section at the end.
    pub fn section(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// Adds a line to the foot: the command line, machine, version, date.
    pub fn foot(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.foot.push((name.into(), value.into()));
        self
    }

    /// The whole file.
    pub fn to_html(&self) -> String {
        let mut charts = 0;
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    link rel="icon" href="data:,";
                    title { (clean(&self.title)) }
                    style { (PreEscaped(STYLE)) (PreEscaped(colours())) }
                }
                body {
                    header {
                        h1 { (clean(&self.title)) }
                        @for paragraph in &self.lead { p.lead { (prose(paragraph)) } }
                        (pairs("facts", &self.facts))
                        (self.contents())
                    }
                    main {
                        @for (place, section) in self.sections.iter().enumerate() {
                            (section.to_markup(place, &mut charts))
                        }
                    }
                    @if !self.foot.is_empty() { footer { (pairs("foot", &self.foot)) } }
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        };
        page.into_string()
    }

    /// Links to the sections, where there are enough to lose one's way.
    fn contents(&self) -> Markup {
        html! {
            @if self.sections.len() > 2 {
                nav aria-label="Contents" {
                    @for (place, section) in self.sections.iter().enumerate() {
                        a href={ "#section-" (place + 1) } { (clean(&section.heading)) }
                    }
                }
            }
        }
    }
}

/// A heading and what stands under it, in the order it is added.
#[derive(Clone, Debug)]
pub struct Section {
    heading: String,
    blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
enum Block {
    Prose(String),
    Charts(Vec<Chart>),
    Table(Table),
}

impl Section {
    /// A section without content.
    pub fn new(heading: impl Into<String>) -> Self {
        Self { heading: heading.into(), blocks: Vec::new() }
    }

    /// Adds a paragraph.
    pub fn prose(mut self, paragraph: impl Into<String>) -> Self {
        self.blocks.push(Block::Prose(paragraph.into()));
        self
    }

    /// Adds a chart over the whole width.
    pub fn chart(mut self, chart: Chart) -> Self {
        self.blocks.push(Block::Charts(vec![chart]));
        self
    }

    /// Adds charts side by side, to be compared (before and after, time and iterations).
    pub fn charts(mut self, charts: impl IntoIterator<Item = Chart>) -> Self {
        self.blocks.push(Block::Charts(charts.into_iter().collect()));
        self
    }

    /// Adds a table.
    pub fn table(mut self, table: Table) -> Self {
        self.blocks.push(Block::Table(table));
        self
    }

    fn to_markup(&self, place: usize, charts: &mut usize) -> Markup {
        html! {
            section id={ "section-" (place + 1) } {
                h2 { (clean(&self.heading)) }
                @for block in &self.blocks {
                    @match block {
                        Block::Prose(paragraph) => p { (prose(paragraph)) },
                        Block::Table(table) => (table.to_markup()),
                        Block::Charts(list) if list.len() == 1 => {
                            (figure(&list[0], Size::WIDE, charts))
                        },
                        Block::Charts(list) => div.beside {
                            @for chart in list { (figure(chart, Size::HALF, charts)) }
                        },
                    }
                }
            }
        }
    }
}

fn figure(chart: &Chart, size: Size, charts: &mut usize) -> Markup {
    *charts += 1;
    let id = format!("chart-{charts}");
    let (svg, hover) = chart::embedded(chart, size, &id);
    html! {
        figure.chart id=(id) {
            h3 { (clean(chart.title())) }
            @if hover.len() > 1 {
                div.legend role="group" aria-label="Series shown; press to hide or show" {
                    @for (place, (name, key)) in chart.keys().enumerate() {
                        button type="button" aria-pressed="true" data-series=(place) {
                            svg viewBox="0 0 28 12" width="28" height="12" aria-hidden="true" { (key) }
                            span { (name) }
                        }
                    }
                }
            }
            div.scroll { div.plot { (svg) div.tip role="status" hidden {} } }
            @if !chart.explanation().is_empty() { figcaption { (prose(chart.explanation())) } }
            script type="application/json" { (PreEscaped(json(&hover))) }
        }
    }
}

/// The points as JSON that cannot end the script element it stands in, whatever the names hold.
fn json(hover: &[Hover]) -> String {
    // Numbers and strings always serialize; an empty list would only switch the tooltips off.
    let written = serde_json::to_string(hover).unwrap_or_else(|_| "[]".into());
    written.replace('<', "\\u003c")
}

/// Named values, in the facts and the foot.
fn pairs(class: &str, list: &[(String, String)]) -> Markup {
    html! {
        @if !list.is_empty() {
            dl class=(class) {
                @for (name, value) in list {
                    div { dt { (clean(name)) } dd { (prose(value)) } }
                }
            }
        }
    }
}

/// Plain text in which words between backticks are code.
fn prose(text: &str) -> Markup {
    let text = clean(text);
    // An odd backtick at the end has no partner and stays as it is.
    let parts: Vec<&str> = text.split('`').collect();
    let last = parts.len() - 1;
    html! {
        @for (place, part) in parts.iter().enumerate() {
            @if place % 2 == 0 { (part) }
            @else if place == last { "`" (part) }
            @else { code { (part) } }
        }
    }
}

/// The palette as style rules; the dark one only on screens, since paper is white.
fn colours() -> String {
    let rules = |dark: bool| -> String {
        let rule = |(place, (on_white, on_dark)): (usize, &(&str, &str))| {
            let colour = if dark { on_dark } else { on_white };
            format!(".c{place}{{color:{colour}}}")
        };
        COLOURS.iter().enumerate().map(rule).collect()
    };
    format!("{}\n@media screen and (prefers-color-scheme:dark){{{}}}", rules(false), rules(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Column, Series};

    fn page_about(text: &str) -> String {
        let chart = Chart::new(text, Axis::linear(text), Axis::linear(text))
            .caption(text)
            .series(Series::line(text, [(0.0, 1.0), (1.0, 2.0)]))
            .series(Series::line(text, [(0.0, 2.0), (1.0, 1.0)]));
        let table = Table::new(text).column(Column::text(text).hint(text)).row([text.into()]);
        Page::new(text)
            .lead(text)
            .fact(text, text)
            .section(Section::new(text).prose(text).chart(chart).table(table))
            .foot(text, text)
            .to_html()
    }

    #[test]
    fn hostile_text_is_escaped_everywhere() {
        let tame = page_about("tame");
        let wild = page_about("</script></style></title>\"'><img src=x onerror=alert(1)>&\u{0}");
        for mark in ["<script", "</script>", "</style>", "</title>", "<img", "<h2"] {
            assert_eq!(tame.matches(mark).count(), wild.matches(mark).count(), "{mark}");
        }
        assert!(!wild.contains('\u{0}'));
    }

    #[test]
    fn a_page_needs_no_network() {
        let html = page_about("x");
        assert!(html.contains("default-src 'none'"));
        for load in ["src=\"", "@import", "url(http", "fetch(", "//cdn"] {
            assert!(!html.contains(load), "{load}");
        }
    }

    #[test]
    fn backticks_make_code() {
        let html = prose("run `lookalike <x>` and ` stay").into_string();
        assert_eq!(html, "run <code>lookalike &lt;x&gt;</code> and ` stay");
    }

    #[test]
    fn charts_have_their_own_ids_and_a_legend_where_needed() {
        let chart = |count: usize| {
            (0..count).fold(Chart::new("c", Axis::linear("x"), Axis::linear("y")), |chart, place| {
                chart.series(Series::line(format!("s{place}"), [(0.0, 1.0), (1.0, 2.0)]))
            })
        };
        let html = Page::new("t").section(Section::new("h").charts([chart(1), chart(3)])).to_html();
        assert!(html.contains("id=\"chart-1\"") && html.contains("id=\"chart-2-clip\""));
        assert_eq!(html.matches("aria-pressed=\"true\"").count(), 3);
        assert!(!html.contains("<nav"));
    }

    #[test]
    fn the_same_page_has_the_same_bytes() {
        assert_eq!(page_about("x"), page_about("x"));
    }
}
