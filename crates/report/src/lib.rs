//! Tables, charts and one self-contained HTML page.
//!
//! A report is made from three things, and each can also stand alone:
//!
//! - a [`Table`] prints itself for the terminal, as Markdown, CSV or sortable HTML;
//! - a [`Chart`] of lines, dots or bars is an SVG file, or part of a page, where it answers the
//!   pointer and its legend switches lines off and on;
//! - a [`Page`] puts both between headings and prose, in one HTML file that needs no network.
//!
//! [`human`] writes numbers and durations as people read them, and is the only place that decides
//! how. Everything here is a pure function of its input: the same data gives the same bytes. The
//! date, the machine and the command line at the foot of a page are handed in by the caller.
//!
//! ```
//! use lookalike_report::{Axis, Chart, Column, Format, Page, Section, Series, Table};
//!
//! let table = Table::new("Precision after ten epochs")
//!     .column(Column::text("Method"))
//!     .column(Column::number("P@1", Format::Fixed(1)).highest_is_best())
//!     .row(["LSH Embedding".into(), 36.1.into()])
//!     .row(["Sampled softmax".into(), 32.4.into()]);
//! print!("{}", table.to_text());
//!
//! let chart = Chart::new(
//!     "P@1 against time",
//!     Axis::log("training time").format(Format::Seconds),
//!     Axis::linear("P@1, %"),
//! )
//! .series(Series::line("LSH Embedding", [(10.0, 12.5), (60.0, 30.2), (600.0, 36.1)]));
//!
//! let html = Page::new("Which sampler?")
//!     .section(Section::new("Accuracy").chart(chart).table(table))
//!     .foot("Command", "lookalike compare data.txt")
//!     .to_html();
//! assert!(html.starts_with("<!DOCTYPE html>"));
//! ```
#![forbid(unsafe_code)]

/// The example of the crate's front page is run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct FrontPage;

mod chart;
pub mod human;
mod page;
mod table;
mod text;

pub use chart::{Axis, Bar, Chart, Point, Series};
pub use human::Format;
pub use page::{Page, Section};
pub use table::{Align, Cell, Column, Table};
