//! `lookalike sweep`

use std::process::ExitCode;

use clap::Args;
use lookalike::experiment::{Method, PlannedRun};
use lookalike::train::TrainConfig;

use super::experiment::matrix::Matrix;
use super::experiment::{ExperimentArguments, MatrixArguments, MatrixData};
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
    let settings = experiment.settings()?;
    let seeds = arguments.matrix.seeds(settings.seed);
    let methods = match &arguments.methods[..] {
        [] => vec![Method::of(&settings)],
        given => given.to_vec(),
    };
    let points = knob::points(&arguments.vary, arguments.one_at_a_time);
    let runs: Vec<PlannedRun> = (seeds.iter())
        .flat_map(|&seed| methods.iter().map(move |&method| (method, seed)))
        .flat_map(|(method, seed)| points.iter().map(move |point| (method, seed, point)))
        .map(|(method, seed, point)| planned(method, seed, point, &settings))
        .collect();
    let names: Vec<&str> = arguments.vary.iter().map(|varied| varied.knob.name()).collect();
    arguments.matrix.check(&runs)?;
    experiment.check_out("sweep")?;
    let data = MatrixData::read(experiment, &arguments.matrix)?;
    let matrix =
        Matrix { experiment, arguments: &arguments.matrix, settings: &settings, seeds: &seeds, runs, data };
    matrix.run("sweep", &Sweep { names: &names })
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
