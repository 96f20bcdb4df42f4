//! `lookalike compare`

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use lookalike::experiment::{Method, PlannedRun, RunFolder, run_matrix};

use super::experiment::output::{LabelCharts, Origin, Output};
use super::experiment::progress::MatrixProgress;
use super::experiment::{ExperimentArguments, MatrixArguments, MatrixData, check};
use crate::exit::{INTERRUPTED, usage};
use crate::signals;

mod report;
use report::Comparison;
pub(crate) use report::{DataSummary, Results, curves, settings_section};

/// Trains several methods on the same data and compares them.
///
/// All methods train the same network with the same optimizer, from the same
/// weights and on the same batches; only the choice of negatives differs.
/// Writes a folder: report.html, results.json, tables as CSV and Markdown,
/// charts as SVG. Interrupted, it goes on where it stopped when it is started
/// again with the same arguments; finished runs are kept in DIR/runs.
#[derive(Args)]
#[command(after_help = "Examples:
  lookalike compare data
  lookalike compare data --methods full,lsh-embedding,log-uniform --seeds 3 --epochs 10
  lookalike compare --train train.txt --test test.txt --eval-every 0.25 --out comparison
  lookalike compare data --epochs 1000 --time-limit 600

Every setting of `lookalike train` applies to all methods; --sampler and --loss
are set by --methods.")]
pub(crate) struct CompareArguments {
    /// The methods, separated by commas; all, or the paper's seven: full,
    /// lsh-embedding, lsh-label, top-k, frequency, log-uniform, nce; besides
    /// mixed and uniform
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "paper")]
    methods: Vec<String>,
    /// Compare P@1 after these times [default: 1/16, 1/8, 1/4, 1/2 and all of the slowest method's]
    #[arg(long, value_name = "SECONDS,…", value_delimiter = ',')]
    time_budgets: Vec<f64>,
    #[command(flatten)]
    matrix: MatrixArguments,
    #[command(flatten)]
    experiment: ExperimentArguments,
}

pub(crate) fn run(arguments: CompareArguments) -> anyhow::Result<ExitCode> {
    signals::catch();
    arguments.experiment.machine.install(|| compare(&arguments))?
}

fn compare(arguments: &CompareArguments) -> anyhow::Result<ExitCode> {
    let experiment = &arguments.experiment;
    let cpu = experiment.machine.cpu()?;
    let methods = read_methods(&arguments.methods)?;
    let config = experiment.settings()?;
    let seeds = arguments.matrix.seeds(config.seed);
    // Seed after seed, so that a first answer with all methods comes early.
    let runs: Vec<PlannedRun> = (seeds.iter())
        .flat_map(|&seed| methods.iter().map(move |&method| (method, seed)))
        .map(|(method, seed)| PlannedRun::of_method(method, &config, seed))
        .collect();

    let data = MatrixData::read(experiment, &arguments.matrix)?;
    check(&runs, &data.train.view())?;
    let output = Output::open(&experiment.out("compare")?)?;
    let folder = RunFolder::open(&output.folder().join("runs"))?;
    let summary = DataSummary::of(experiment.data_name()?, &data);
    experiment.say(&format!("{summary}; {} runs", runs.len()));
    let labels = LabelCharts::of(data.train.view());
    let origin = Origin::of_this_process(cpu);
    let made = |records: &[_]| Comparison {
        data: &summary,
        labels: &labels,
        origin: &origin,
        settings: &config,
        seeds: &seeds,
        planned_runs: runs.len(),
        time_budgets: &arguments.time_budgets,
        records: records.to_vec(),
    };

    let (records, stopped) = data.with_arena(&arguments.matrix, cpu, |arena| {
        let limit = arena.time_limit_seconds;
        let report = |records: &[_]| made(records).write(&output);
        let mut progress = MatrixProgress::new(&runs, limit, experiment.quiet, report);
        let result = run_matrix(&runs, arena, &folder, &mut progress);
        progress.finish()?;
        Ok(result?)
    })?;
    if !records.is_empty() {
        let mut out = std::io::stdout().lock();
        write!(out, "{}", made(&records).to_text())?;
        experiment.say(&format!("\nthe report is {}", output.folder().join("report.html").display()));
    }
    if stopped {
        experiment.say("interrupted; start again with the same arguments to go on");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

fn read_methods(names: &[String]) -> anyhow::Result<Vec<Method>> {
    let mut methods: Vec<Method> = Vec::new();
    for name in names {
        let more = match name.as_str() {
            "paper" => Method::PAPER.to_vec(),
            "all" => Method::ALL.to_vec(),
            name => vec![name.parse().map_err(|error| {
                usage(format!("--methods: {error}; besides nce, and paper or all for several at once"))
            })?],
        };
        for method in more {
            if !methods.contains(&method) {
                methods.push(method);
            }
        }
    }
    Ok(methods)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_named_one_by_one_or_together() {
        let read = |names: &[&str]| read_methods(&names.iter().map(|n| n.to_string()).collect::<Vec<_>>());
        assert_eq!(read(&["paper"]).unwrap(), Method::PAPER);
        assert_eq!(read(&["nce", "all"]).unwrap().len(), 9);
        assert_eq!(read(&["full", "full"]).unwrap(), [Method::FULL]);
        let error = read(&["lsh"]).unwrap_err().to_string();
        assert!(
            error.contains("\"lsh\"") && error.contains("lsh-embedding") && error.contains("nce"),
            "{error}"
        );
    }
}
