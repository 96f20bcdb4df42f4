//! `lookalike sweep`

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use lookalike::experiment::{Method, PlannedRun, RunFolder, run_matrix};
use lookalike::train::TrainConfig;

use super::compare::DataSummary;
use super::experiment::output::{Origin, Output};
use super::experiment::progress::MatrixProgress;
use super::experiment::{ExperimentArguments, MatrixArguments, MatrixData, check};
use crate::exit::INTERRUPTED;
use crate::signals;

mod knob;
mod report;
use knob::Varied;
use report::Sweep;

/// Trains with several values of a setting and compares them: the paper's ablations.
///
/// Writes the same kind of folder as `compare`, and goes on in the same way
/// after an interruption.
#[derive(Args)]
#[command(after_help = "Examples:
  lookalike sweep data --vary budget=50,100,200,400
  lookalike sweep data --vary tables=50,100,200 --vary functions=4,5,6 --methods lsh-embedding,lsh-label
  lookalike sweep data --vary budget=100,400 --vary refresh=10,50,250 --one-at-a-time --seeds 3")]
pub(crate) struct SweepArguments {
    /// A setting and its values: budget, sparsity, tables, functions, refresh,
    /// refresh-growth, hashed-share, lr, batch or hidden; may be given several times
    #[arg(long, value_name = "NAME=VALUE,…", required = true)]
    vary: Vec<Varied>,
    /// Vary one setting at a time and leave the others as they are, instead of
    /// all combinations
    #[arg(long)]
    one_at_a_time: bool,
    /// The methods, separated by commas [default: --sampler]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    methods: Vec<Method>,
    #[command(flatten)]
    matrix: MatrixArguments,
    #[command(flatten)]
    experiment: ExperimentArguments,
}

pub(crate) fn run(arguments: SweepArguments) -> anyhow::Result<ExitCode> {
    signals::catch();
    arguments.experiment.machine.install(|| sweep(&arguments))?
}

fn sweep(arguments: &SweepArguments) -> anyhow::Result<ExitCode> {
    let experiment = &arguments.experiment;
    let cpu = experiment.machine.cpu()?;
    let config = experiment.settings()?;
    let seeds = arguments.matrix.seeds(config.seed);
    let methods = match &arguments.methods[..] {
        [] => vec![Method::of(&config)],
        given => given.to_vec(),
    };
    let points = knob::points(&arguments.vary, arguments.one_at_a_time);
    let runs: Vec<PlannedRun> = (seeds.iter())
        .flat_map(|&seed| methods.iter().map(move |&method| (method, seed)))
        .flat_map(|(method, seed)| points.iter().map(move |point| (method, seed, point)))
        .map(|(method, seed, point)| planned(method, seed, point, &config))
        .collect();

    let data = MatrixData::read(experiment, &arguments.matrix)?;
    check(&runs, &data.train.view())?;
    let output = Output::open(&experiment.out("sweep")?)?;
    let folder = RunFolder::open(&output.folder().join("runs"))?;
    let summary = DataSummary::of(experiment.data_name()?, &data);
    experiment.say(&format!("{summary}; {} runs", runs.len()));
    let origin = Origin::of_this_process(cpu);
    let names: Vec<&str> = arguments.vary.iter().map(|varied| varied.knob.name()).collect();
    let made = |records: &[_]| Sweep {
        data: &summary,
        origin: &origin,
        settings: &config,
        seeds: &seeds,
        names: &names,
        planned_runs: runs.len(),
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
        write!(std::io::stdout().lock(), "{}", made(&records).to_text())?;
        experiment.say(&format!("\nthe report is {}", output.folder().join("report.html").display()));
    }
    if stopped {
        experiment.say("interrupted; start again with the same arguments to go on");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

/// The run of a method with some settings changed.
fn planned(method: Method, seed: u64, point: &knob::Point, base: &TrainConfig) -> PlannedRun {
    let mut run = PlannedRun::of_method(method, base, seed);
    for &(knob, value) in point {
        knob.set(&mut run.settings, value);
        run.name += &format!(", {} {value}", knob.name());
        run.varied.push((knob.name().into(), value));
    }
    run
}
