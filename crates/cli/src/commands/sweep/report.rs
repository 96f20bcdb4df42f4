//! The report of a sweep: one table, and for each setting P@1 and time against it.

use lookalike::experiment::RunRecord;
use lookalike::experiment::summary::{Group, MAIN_METRIC, Spread, groups};
use lookalike_report::{Axis, Cell, Chart, Column, Format, Page, Section, Series, Table, human};

use crate::commands::experiment::matrix::{MatrixReport, Results, negatives_given_column, precision_column};
use crate::commands::experiment::output::{Output, settings_section, spread};

/// What the report needs beside the results.
pub(super) struct Sweep<'a> {
    /// The settings that are varied.
    pub(super) names: &'a [&'a str],
}

impl MatrixReport for Sweep<'_> {
    fn write(&self, results: &Results<'_>, output: &Output) -> anyhow::Result<()> {
        let groups = groups(results.runs);
        let table = self.table(&groups);
        results.write(output, &[("sweep", &table)])?;
        let mut page =
            Page::new(format!("The effect of {} on {}", self.names.join(" and "), results.data.name))
                .lead("All runs share data, network and batches; only what is varied differs.");
        page = results.data.facts(page).fact("Seeds", results.seeds.len().to_string());
        let without: Vec<&str> = ["sampler", "loss", "seed"].iter().chain(self.names).copied().collect();
        for name in self.names {
            let (precision, time) = charts(&groups, name);
            output.write_charts(&[
                (&format!("precision-by-{name}"), &precision),
                (&format!("epoch-time-by-{name}"), &time),
            ])?;
            page = page.section(Section::new(format!("By {name}")).charts([precision, time]));
        }
        page = page
            .section(Section::new("All runs").table(table))
            .section(settings_section(results.settings, &without));
        output.write("report.html", &results.origin.foot(page).to_html())
    }

    fn to_text(&self, results: &Results<'_>) -> String {
        self.table(&groups(results.runs)).to_text()
    }
}

impl Sweep<'_> {
    fn table(&self, groups: &[Group<'_>]) -> Table {
        let mut table =
            Table::new(format!("Impact of {}", self.names.join(", "))).column(Column::text("Method"));
        for name in self.names {
            table = table.column(Column::number(*name, Format::Number));
        }
        table =
            table
                .column(precision_column("P@1"))
                .column(precision_column("P@5"))
                .column(precision_column("capped P@5"))
                .column(Column::number("time an epoch", Format::Seconds).lowest_is_best())
                .column(Column::number("speed", Format::Times).hint(
                    "time an epoch of the first row divided by the row's own, as in the paper's tables",
                ))
                .column(negatives_given_column());
        let first = groups.first().and_then(|group| Some(group.seconds_per_epoch()?.mean));
        for group in groups {
            let time = group.seconds_per_epoch();
            let given = Spread::of(group.records.iter().map(|record| record.negatives_given_share));
            let speed = first.zip(time).map(|(first, time)| first / time.mean);
            // A setting that this row leaves as it is has no value here.
            let values = self.names.iter().map(|name| Cell::from(value_of(group, name)));
            let head = std::iter::once(group.method.title().into()).chain(values);
            table.push_row(head.chain([
                spread(group.final_value("P@1")),
                spread(group.final_value("P@5")),
                spread(group.final_value("capped-P@5")),
                spread(time),
                speed.into(),
                given.map(|spread| spread.mean).into(),
            ]));
        }
        table
    }
}

fn value_of(group: &Group<'_>, name: &str) -> Option<f64> {
    group.varied.iter().find(|(n, _)| n == name).map(|(_, value)| *value)
}

/// P@1 and time an epoch against one setting: a line for each method and each
/// combination of the other settings.
fn charts(groups: &[Group<'_>], name: &str) -> (Chart, Chart) {
    let values: Vec<f64> = groups.iter().filter_map(|group| value_of(group, name)).collect();
    let (low, high) = values.iter().fold((f64::INFINITY, 0f64), |(l, h), &x| (l.min(x), h.max(x)));
    // Budgets are doubled, functions are counted: equal steps should look equal.
    let axis = || if low > 0.0 && high / low >= 8.0 { Axis::log(name) } else { Axis::linear(name) };
    let mut precision = Chart::new(format!("P@1 by {name}"), axis(), Axis::linear("P@1, %"));
    let time_axis = Axis::linear("time an epoch").format(Format::Seconds);
    let mut time = Chart::new(format!("Time an epoch by {name}"), axis(), time_axis);
    for (title, members) in lines(groups, name) {
        let line = |value: &dyn Fn(&RunRecord) -> Option<f64>| {
            let mut points: Vec<(f64, f64, f64, f64)> =
                members.iter().filter_map(|group| point(group, name, value)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series::line(title.clone(), points)
        };
        precision.push(line(&|record| record.final_value(MAIN_METRIC)));
        time.push(line(&RunRecord::seconds_per_epoch));
    }
    (precision, time)
}

/// Groups that differ in nothing but the setting `name`, with their title.
fn lines<'g, 'r>(groups: &'g [Group<'r>], name: &str) -> Vec<(String, Vec<&'g Group<'r>>)> {
    let mut lines: Vec<(String, Vec<&Group<'_>>)> = Vec::new();
    for group in groups.iter().filter(|group| value_of(group, name).is_some()) {
        let others = group.varied.iter().filter(|(n, _)| n != name);
        let others = others.map(|(n, value)| format!(", {n} {}", human::number(*value)));
        let title = std::iter::once(group.method.title().to_owned()).chain(others).collect::<String>();
        match lines.iter_mut().find(|(t, _)| *t == title) {
            Some((_, members)) => members.push(group),
            None => lines.push((title, vec![group])),
        }
    }
    lines
}

/// The setting, and mean, lowest and highest value over seeds.
fn point(
    group: &Group<'_>,
    name: &str,
    value: &dyn Fn(&RunRecord) -> Option<f64>,
) -> Option<(f64, f64, f64, f64)> {
    let values: Vec<f64> = group.records.iter().map(|record| value(record)).collect::<Option<_>>()?;
    let (low, high) =
        values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &x| (l.min(x), h.max(x)));
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    Some((value_of(group, name)?, mean, low, high))
}
