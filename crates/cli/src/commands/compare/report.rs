//! The report of a comparison: the paper's tables and figures, and what the
//! paper leaves out.

use lookalike::experiment::summary::{
    Group, MAIN_METRIC, Reached, Reference, Spread, default_time_budgets, groups, reference,
};
use lookalike::experiment::{CurvePoint, RunRecord};
use lookalike_report::{Axis, Chart, Column, Format, Page, Section, Series, Table, human};

use crate::commands::experiment::matrix::{MatrixReport, Results, negatives_given_column, precision_column};
use crate::commands::experiment::output::{LabelCharts, Output, reached, settings_section, spread};

/// What the report needs beside the results.
pub(super) struct Comparison<'a> {
    pub(super) labels: &'a LabelCharts,
    /// In seconds; empty for the default.
    pub(super) time_budgets: &'a [f64],
}

impl MatrixReport for Comparison<'_> {
    fn write(&self, results: &Results<'_>, output: &Output) -> anyhow::Result<()> {
        let groups = groups(results.runs);
        let tables = self.tables(&groups);
        let charts = Charts::of(&groups);
        let named: Vec<_> = tables.iter().map(|(name, table)| (*name, table)).collect();
        results.write(output, &named)?;
        output.write_charts(&charts.named())?;
        output.write_charts(&self.labels.named())?;
        output.write("report.html", &self.page(results, &groups, &tables, &charts).to_html())
    }

    fn to_text(&self, results: &Results<'_>) -> String {
        let tables = self.tables(&groups(results.runs));
        tables.iter().map(|(_, table)| table.to_text()).collect::<Vec<_>>().join("\n")
    }
}

impl Comparison<'_> {
    fn tables(&self, groups: &[Group<'_>]) -> Vec<(&'static str, Table)> {
        let Some(reference) = reference(groups, MAIN_METRIC) else { return Vec::new() };
        let budgets = match self.time_budgets {
            [] => default_time_budgets(groups),
            given => given.to_vec(),
        };
        vec![
            ("epochs", epochs_table(groups, &reference)),
            ("time", time_table(groups, &reference)),
            ("equal-time", equal_time_table(groups, &budgets)),
        ]
    }

    fn page(
        &self,
        results: &Results<'_>,
        groups: &[Group<'_>],
        tables: &[(&str, Table)],
        charts: &Charts,
    ) -> Page {
        let mut page = Page::new(format!("Which sampler for {}?", results.data.name));
        let reference = reference(groups, MAIN_METRIC);
        for sentence in reference.iter().flat_map(|reference| answer(groups, reference)) {
            page = page.lead(sentence);
        }
        let missing = results.planned_runs - results.runs.len();
        if missing > 0 {
            page = page.lead(format!("{missing} of {} runs are still to be done.", results.planned_runs));
        }
        let total: f64 = results.runs.iter().filter_map(RunRecord::total_seconds).sum();
        page = results
            .data
            .facts(page)
            .fact("Seeds", results.seeds.len().to_string())
            .fact("Training time, all runs", human::seconds(total));
        let table = |name: &str| tables.iter().find(|(n, _)| *n == name).map(|(_, table)| table.clone());
        let with = |section: Section, name: &str| match table(name) {
            Some(table) => section.table(table),
            None => section,
        };
        let accuracy = Section::new("Accuracy over time")
            .prose(
                "Every method trains the same network from the same weights with the same batches; \
                 only the choice of negative classes differs. Time spent on evaluation is not \
                 counted. A band goes from the lowest seed to the highest.",
            )
            .chart(charts.over_time.clone())
            .charts([charts.over_iterations.clone(), charts.epoch_time.clone()]);
        let epochs = Section::new("Epochs until it is good").prose("The paper's Table 2, on this data.");
        let time = Section::new("Time and accuracy").prose("The paper's Table 3, and the time to 90%.");
        let equal = Section::new("At equal times").prose(
            "P@1 of each method after the same training time: the last evaluation within the time, \
             without interpolation. A method that has done all its epochs keeps its final value.",
        );
        page = page
            .section(accuracy)
            .section(with(equal, "equal-time"))
            .section(with(epochs, "epochs"))
            .section(with(time, "time"))
            .section(self.labels.section())
            .section(settings_section(results.settings, &["sampler", "loss", "seed"]));
        results.origin.foot(page)
    }
}

/// The answer, before the evidence: who is best, who is good soonest.
fn answer(groups: &[Group<'_>], reference: &Reference) -> Vec<String> {
    let best = groups.iter().filter_map(|group| Some((group, group.final_value(MAIN_METRIC)?.mean)));
    let Some((best, value)) = best.max_by(|a, b| a.1.total_cmp(&b.1)) else { return Vec::new() };
    let mut sentences = vec![match best.name == reference.name {
        true => format!("{} has the highest P@1 in the end: {value:.2}%.", best.name),
        false => format!(
            "{} has the highest P@1 in the end: {value:.2}%, against {:.2}% with {}.",
            best.name, reference.final_value, reference.name
        ),
    }];
    let most = 0.9 * reference.final_value;
    let time = |group: &Group<'_>| group.seconds_to(MAIN_METRIC, most).when().map(|spread| spread.mean);
    let soonest = groups.iter().filter_map(|group| Some((group, time(group)?)));
    if let Some((soonest, seconds)) = soonest.min_by(|a, b| a.1.total_cmp(&b.1)) {
        let own = groups.iter().find(|group| group.name == reference.name).and_then(time);
        let against = match own.filter(|_| soonest.name != reference.name) {
            Some(own) => format!(", {} sooner than {} itself", human::times(own / seconds), reference.name),
            None => String::new(),
        };
        sentences.push(format!(
            "{} reaches 90% of the final P@1 of {} first, after {} of training{against}.",
            soonest.name,
            reference.name,
            human::seconds(seconds)
        ));
    }
    sentences
}

/// The charts over all methods.
struct Charts {
    over_time: Chart,
    over_iterations: Chart,
    epoch_time: Chart,
}

impl Charts {
    fn of(groups: &[Group<'_>]) -> Self {
        let seconds = Format::Seconds;
        let precision = || Axis::linear("P@1, %");
        let mut over_time =
            Chart::new("P@1 against training time", Axis::log("training time").format(seconds), precision());
        let mut over_iterations = Chart::new(
            "P@1 against iterations",
            Axis::linear("iterations").format(Format::Count),
            precision(),
        );
        for group in groups {
            let line = |x: fn(&CurvePoint) -> f64| {
                let runs: Vec<Vec<(f64, f64)>> =
                    group.records.iter().map(|record| curve(record, x)).collect();
                Series::over_seeds(group.name, &runs).style(group.method.place())
            };
            over_time.push(line(|point| point.train_seconds));
            over_iterations.push(line(|point| point.iteration as f64));
        }
        let timed = groups.iter().filter_map(|group| Some((group.name, group.seconds_per_epoch()?.mean)));
        let (names, times): (Vec<&str>, Vec<f64>) = timed.unzip();
        let epoch_time = Chart::new(
            "Training time an epoch",
            Axis::categories("", names),
            Axis::linear("time an epoch").format(seconds),
        )
        .series(Series::bars_by_category("time an epoch", times));
        Self { over_time, over_iterations, epoch_time }
    }

    fn named(&self) -> [(&'static str, &Chart); 3] {
        [
            ("precision-over-time", &self.over_time),
            ("precision-over-iterations", &self.over_iterations),
            ("epoch-time", &self.epoch_time),
        ]
    }
}

fn curve(record: &RunRecord, x: fn(&CurvePoint) -> f64) -> Vec<(f64, f64)> {
    record.curve.iter().filter_map(|point| Some((x(point), point.metric(MAIN_METRIC)?))).collect()
}

/// The paper's Table 2.
fn epochs_table(groups: &[Group<'_>], reference: &Reference) -> Table {
    let hint = |share: u32| {
        format!(
            "epochs until P@1 is first {share}% of the final {:.2}% of {}; Fail: never",
            reference.final_value, reference.name
        )
    };
    let column = |share: u32| {
        Column::number(format!("epochs to {share}%"), Format::Number).lowest_is_best().hint(hint(share))
    };
    let mut table = Table::new(format!("Epochs to reach the P@1 of {}", reference.name))
        .column(Column::text("Method"))
        .column(column(50))
        .column(column(90))
        .column(precision_column("final P@1"));
    let epochs = |epochs: f64| format!("E{}", human::number((100.0 * epochs).round() / 100.0));
    for group in groups {
        let to = |share: f64| match group.epochs_to(MAIN_METRIC, share * reference.final_value) {
            // A deviation is no epoch.
            Reached::Always(when) if when.count > 1 => {
                let deviation = human::number((100.0 * when.deviation).round() / 100.0);
                let text = format!("{} ± {deviation}", epochs(when.mean));
                lookalike_report::Cell::Shown { value: when.mean, text }
            }
            other => reached(other, epochs),
        };
        table.push_row([group.name.into(), to(0.5), to(0.9), spread(group.final_value(MAIN_METRIC))]);
    }
    table
}

/// The paper's Table 3, and the time to 90%.
fn time_table(groups: &[Group<'_>], reference: &Reference) -> Table {
    let mut table = Table::new("Training time and accuracy")
        .column(Column::text("Method"))
        .column(Column::number("time an epoch", Format::Seconds).lowest_is_best())
        .column(
            Column::number("speed", Format::Times)
                .highest_is_best()
                .hint(format!("time an epoch of {} divided by the method's own", reference.name)),
        )
        .column(precision_column("P@1"))
        .column(precision_column("P@5").hint("hits among the best 5, divided by 5"))
        .column(precision_column("capped P@5").hint(
            "hits among the best 5, divided by 5 or the number of true labels if less: the paper's P@5",
        ))
        .column(
            Column::number("time to 90%", Format::Seconds)
                .lowest_is_best()
                .hint(format!("training time until P@1 is first 90% of the final P@1 of {}", reference.name)),
        )
        .column(negatives_given_column());
    for group in groups {
        let epoch = group.seconds_per_epoch();
        let given = group.records.iter().map(|record| record.negatives_given_share);
        let given = Spread::of(given).map(|spread| spread.mean);
        table.push_row([
            group.name.into(),
            spread(epoch),
            epoch.map(|epoch| reference.seconds_per_epoch / epoch.mean).into(),
            spread(group.final_value("P@1")),
            spread(group.final_value("P@5")),
            spread(group.final_value("capped-P@5")),
            reached(group.seconds_to(MAIN_METRIC, 0.9 * reference.final_value), human::seconds),
            given.into(),
        ]);
    }
    table
}

/// P@1 at equal times, which the paper leaves out.
fn equal_time_table(groups: &[Group<'_>], budgets: &[f64]) -> Table {
    let mut table = Table::new("P@1 at equal training times").column(Column::text("Method"));
    for &seconds in budgets {
        let name = format!("after {}", human::seconds(seconds));
        table = table.column(precision_column(&name));
    }
    for group in groups {
        let values = budgets.iter().map(|&seconds| spread(group.value_at_time(MAIN_METRIC, seconds)));
        table.push_row(std::iter::once(group.name.into()).chain(values));
    }
    table
}
