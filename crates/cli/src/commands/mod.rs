//! One file a command: it parses its arguments, calls the library and prints.

pub(crate) mod adapt;
pub(crate) mod bench;
pub(crate) mod classes;
pub(crate) mod compare;
pub(crate) mod data;
pub(crate) mod demo;
pub(crate) mod evaluate;
mod experiment;
pub(crate) mod inspect;
pub(crate) mod predict;
mod search;
pub(crate) mod serve;
pub(crate) mod shell;
pub(crate) mod sweep;
pub(crate) mod train;

use std::process::ExitCode;

use anyhow::Context;
use lookalike_kernels::Cpu;

use crate::arguments::{Cli, Command};
use crate::exit::usage;
use crate::ranks;

pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let done = |result: anyhow::Result<()>| result.map(|()| ExitCode::SUCCESS);
    match cli.command {
        Command::Demo(arguments) => demo::run(arguments),
        Command::Train(arguments) => train::run(*arguments),
        Command::Evaluate(arguments) => done(evaluate::run(arguments)),
        Command::Predict(arguments) => done(predict::run(arguments)),
        Command::Serve(arguments) => done(serve::run(arguments)),
        Command::Inspect(arguments) => done(inspect::run(arguments)),
        Command::Classes(command) => done(classes::run(command)),
        Command::Compare(arguments) => compare::run(*arguments),
        Command::Sweep(arguments) => sweep::run(*arguments),
        Command::Adapt(arguments) => adapt::run(*arguments),
        Command::Data(command) => done(data::run(command)),
        Command::Bench(arguments) => bench::run(*arguments),
        Command::Completions(arguments) => done(shell::completions(arguments)),
        Command::Man(arguments) => done(shell::man(arguments)),
    }
}

/// How much of the machine a command uses.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct MachineArguments {
    /// Threads to use [default: all cores; of several ranks on a machine each gets a share]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
}

impl MachineArguments {
    /// The instructions to use, or why `LOOKALIKE_CPU` can't be obeyed.
    pub(crate) fn cpu(self) -> anyhow::Result<Cpu> {
        Cpu::from_env().map_err(|error| usage(error.to_string()))
    }

    /// Runs `work` in a thread pool of its own.
    pub(crate) fn install<R: Send>(self, work: impl FnOnce() -> R + Send) -> anyhow::Result<R> {
        let threads = self.threads.map_or_else(ranks::threads, usize::from);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        Ok(pool.context("cannot start threads")?.install(work))
    }
}
