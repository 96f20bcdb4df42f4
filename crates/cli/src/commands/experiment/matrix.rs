//! A matrix of runs from plan to report: what `compare` and `sweep` share.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use lookalike::data::DataFingerprint;
use lookalike::data::Examples;
use lookalike::experiment::{PlannedRun, RunFolder, RunRecord, run_matrix};
use lookalike::train::TrainConfig;
use lookalike_report::{Column, Format, Page, Table, human};
use serde::Serialize;

use super::output::{Origin, Output};
use super::progress::MatrixProgress;
use super::{ExperimentArguments, MatrixArguments, MatrixData, check};
use crate::exit::INTERRUPTED;

/// What a command makes of the runs.
pub(crate) trait MatrixReport: Sync {
    /// Writes the whole folder.
    fn write(&self, results: &Results<'_>, output: &Output) -> anyhow::Result<()>;

    /// The tables for the terminal.
    fn to_text(&self, results: &Results<'_>) -> String;
}

/// Planned runs and the data they are made on.
pub(crate) struct Matrix<'a> {
    pub(crate) experiment: &'a ExperimentArguments,
    pub(crate) arguments: &'a MatrixArguments,
    /// What all runs have in common.
    pub(crate) settings: &'a TrainConfig,
    pub(crate) seeds: &'a [u64],
    pub(crate) runs: Vec<PlannedRun>,
    pub(crate) data: MatrixData,
}

impl Matrix<'_> {
    /// Does what is not done yet and reports after every run; `command` names
    /// the folder where the user did not.
    pub(crate) fn run(&self, command: &str, report: &impl MatrixReport) -> anyhow::Result<ExitCode> {
        let experiment = self.experiment;
        let cpu = experiment.machine.cpu()?;
        check(&self.runs, &self.data.train.view())?;
        let output = Output::open(&experiment.out(command)?)?;
        let folder = RunFolder::open(&output.folder().join("runs"))?;
        let data = DataSummary::of(experiment.data_name()?, &self.data);
        experiment.say(&format!("{data}; {} runs", self.runs.len()));
        let origin = Origin::of_this_process(cpu);
        let nothing_yet = Results {
            origin: &origin,
            data: &data,
            settings: self.settings,
            seeds: self.seeds,
            planned_runs: self.runs.len(),
            runs: &[],
        };
        let (records, stopped) = self.data.with_arena(self.arguments, cpu, |arena| {
            let write = |records: &[RunRecord]| report.write(&nothing_yet.with(records), &output);
            let limit = arena.time_limit_seconds;
            let mut progress = MatrixProgress::new(&self.runs, limit, experiment.quiet, write);
            let outcome = run_matrix(&self.runs, arena, &folder, &mut progress);
            progress.finish()?;
            Ok(outcome?)
        })?;
        if !records.is_empty() {
            write!(std::io::stdout().lock(), "{}", report.to_text(&nothing_yet.with(&records)))?;
            experiment.say(&format!("\nthe report is {}", output.folder().join("report.html").display()));
        }
        if stopped {
            experiment.say("interrupted; start again with the same arguments to go on");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Everything a report is made from, and what `results.json` holds.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Results<'a> {
    pub(crate) origin: &'a Origin,
    pub(crate) data: &'a DataSummary,
    pub(crate) settings: &'a TrainConfig,
    pub(crate) seeds: &'a [u64],
    pub(crate) planned_runs: usize,
    /// Those that are done.
    pub(crate) runs: &'a [RunRecord],
}

impl Results<'_> {
    fn with<'r>(&'r self, runs: &'r [RunRecord]) -> Results<'r> {
        Results { runs, ..*self }
    }

    /// Writes what every matrix leaves: `results.json`, every evaluation, and
    /// the tables as CSV and Markdown.
    pub(crate) fn write(&self, output: &Output, tables: &[(&str, &Table)]) -> anyhow::Result<()> {
        output.write_json("results.json", self)?;
        output.write("curves.csv", &curves(self.runs).to_csv())?;
        output.write_tables(tables)?;
        let tables: Vec<String> = tables.iter().map(|(_, table)| table.to_markdown()).collect();
        let origin = self.origin.markdown(&self.data.to_string(), self.seeds);
        output.write("tables.md", &format!("{}\n{origin}", tables.join("\n")))
    }
}

/// The data in a few numbers.
#[derive(Serialize)]
pub(crate) struct DataSummary {
    pub(crate) name: String,
    train: DataFingerprint,
    test: DataFingerprint,
}

impl DataSummary {
    fn of(name: String, data: &MatrixData) -> Self {
        let of = |examples: Examples<'_>| DataFingerprint::of(&examples);
        Self { name, train: of(data.train.view()), test: of(data.test()) }
    }

    /// Puts the numbers to know first on a page.
    pub(crate) fn facts(&self, page: Page) -> Page {
        let count = |n: usize| human::count(n as u64);
        page.fact("Classes", count(self.train.classes))
            .fact("Training examples", count(self.train.examples))
            .fact("Test examples", count(self.test.examples))
            .fact("Features", count(self.train.features))
    }
}

impl fmt::Display for DataSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: usize| human::count(n as u64);
        write!(
            f,
            "{}: {} classes, {} features, {} training and {} test examples",
            self.name,
            count(self.train.classes),
            count(self.train.features),
            count(self.train.examples),
            count(self.test.examples)
        )
    }
}

/// A column of percentages.
pub(crate) fn precision_column(name: &str) -> Column {
    Column::number(name, Format::Fixed(2)).highest_is_best()
}

/// The column of the part of the budget that was filled.
pub(crate) fn negatives_given_column() -> Column {
    Column::number("negatives given", Format::Percent(0)).hint(
        "the part of the negatives asked for that the sampler gave; below 100% where hash tables give too few",
    )
}

/// Every evaluation of every run, for other programs.
fn curves(records: &[RunRecord]) -> Table {
    let points = records.iter().flat_map(|record| &record.curve);
    let mut metrics: Vec<&String> = points.flat_map(|point| point.metrics.keys()).collect();
    metrics.sort_unstable();
    metrics.dedup();
    let number = |name: &str| Column::number(name, Format::Number);
    let mut table = Table::new("Curves").column(Column::text("run")).column(number("seed"));
    for name in
        ["iteration", "epoch", "train seconds", "loss"].into_iter().chain(metrics.iter().map(|m| m.as_str()))
    {
        table = table.column(number(name));
    }
    for record in records {
        for point in &record.curve {
            let head = [
                record.run.name.as_str().into(),
                record.run.settings.seed.into(),
                point.iteration.into(),
                point.epoch.into(),
                point.train_seconds.into(),
                point.loss.into(),
            ];
            let values = metrics.iter().map(|metric| point.metric(metric).into());
            table.push_row(head.into_iter().chain(values));
        }
    }
    table
}
