//! `lookalike compare`

use std::process::ExitCode;

use clap::Args;
use lookalike::experiment::{Method, PlannedRun};

use super::experiment::matrix::Matrix;
use super::experiment::output::LabelCharts;
use super::experiment::{ExperimentArguments, MatrixArguments, MatrixData};
use crate::exit::usage;
use crate::signals;

mod report;
use report::Comparison;

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
    let methods = read_methods(&arguments.methods)?;
    let settings = experiment.settings()?;
    let seeds = arguments.matrix.seeds(settings.seed);
    // Seed after seed, so that a first answer with all methods comes early.
    let runs: Vec<PlannedRun> = (seeds.iter())
        .flat_map(|&seed| methods.iter().map(move |&method| (method, seed)))
        .map(|(method, seed)| PlannedRun::of_method(method, &settings, seed))
        .collect();
    arguments.matrix.check(&runs)?;
    experiment.check_out("compare")?;
    let data = MatrixData::read(experiment, &arguments.matrix)?;
    let labels = LabelCharts::of(data.train.view());
    let report = Comparison { labels: &labels, time_budgets: &arguments.time_budgets };
    let matrix =
        Matrix { experiment, arguments: &arguments.matrix, settings: &settings, seeds: &seeds, runs, data };
    matrix.run("compare", &report)
}

fn read_methods(names: &[String]) -> anyhow::Result<Vec<Method>> {
    let mut methods: Vec<Method> = Vec::new();
    for name in names {
        let more = match name.as_str() {
            "paper" => Method::PAPER.to_vec(),
            "all" => Method::all(),
            name => vec![name.parse().map_err(|error| {
                usage(format!("--methods: {error}; besides paper or all for several at once"))
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
