//! `lookalike bench`: what this machine can do at most, and how close each stage
//! of a training step comes to it.
//!
//! Contenders (samplers, numbers of threads) take turns, step by step, so that
//! whatever else the machine does slows all of them alike and ratios hold.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use lookalike::model::Storage;
use lookalike::sampling::SamplerKind;
use lookalike::train::TrainConfig;

use super::MachineArguments;
use super::train::SettingArguments;

mod answers;
mod contender;
mod figures;
mod lookalike_classes;
mod machine;
mod memory;
mod print;
mod scale;
mod shape;
mod targets;
mod work;

use contender::{Contender, WARM_UP_STEPS, take_turns, thread_pool};
use figures::{BenchReport, ContenderFigures, Ratio};
use machine::Machine;
use shape::{Epoch, ShapeArguments, Sizes};

/// Measures the machine, then every stage of a training step.
///
/// Examples of the wanted shape are generated in memory; nothing is read and
/// nothing is written. Figures are medians of --repeats steps, each on a batch of
/// its own. The share of the limit compares a stage with the least time that its
/// arithmetic and its memory traffic take at the rates measured first.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  lookalike bench
  lookalike bench --shape amazon-670k --budget 3900 --tables 50 --against uniform,full
  lookalike bench --classes 50000 --features 20000 --nonzeros 40 --labels 2 --batch 256 --json
  lookalike bench --sampler full --storage bf16
  lookalike bench scale --html scale.html
  lookalike bench answers model test.txt
  lookalike bench targets"
)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    command: Option<BenchCommand>,
    #[command(flatten)]
    stages: StageArguments,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Measure steps over ever more classes at a fixed budget
    Scale(Box<scale::ScaleArguments>),
    /// Measure how long one answer takes, exact and fast
    Answers(Box<answers::AnswerArguments>),
    /// Run every measurement that has a target and give the verdicts
    Targets(targets::TargetArguments),
}

#[derive(Args)]
struct StageArguments {
    /// Steps to measure
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeats: u32,
    /// Other samplers to measure in turns with the first, for a ratio
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    against: Vec<SamplerKind>,
    /// Measure on one thread too, for a ratio
    #[arg(long)]
    against_one_thread: bool,
    /// Measure with bf16 rows too, for a ratio
    #[arg(long)]
    against_bf16: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    shape: ShapeArguments,
    /// Classes, instead of the shape's
    #[arg(long, value_name = "N", help_heading = "Shape")]
    classes: Option<usize>,
    #[command(flatten)]
    settings: SettingArguments,
    #[command(flatten)]
    machine: MachineArguments,
}

pub(crate) fn run(arguments: BenchArguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        None => measure_stages(&arguments.stages)?,
        Some(BenchCommand::Scale(arguments)) => scale::run(&arguments)?,
        Some(BenchCommand::Answers(arguments)) => answers::run(&arguments)?,
        Some(BenchCommand::Targets(arguments)) => targets::run(&arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn measure_stages(arguments: &StageArguments) -> anyhow::Result<()> {
    let cpu = arguments.machine.cpu()?;
    let config = arguments.shape.config(&arguments.settings)?;
    let all_threads = thread_pool(arguments.machine)?;
    let one_thread = thread_pool(MachineArguments { threads: Some(1) })?;
    let machine = Machine::measure(cpu, &one_thread, &all_threads);

    let repeats = arguments.repeats as usize;
    let examples = (WARM_UP_STEPS + repeats) * config.batch;
    let data = all_threads.install(|| arguments.shape.generate(arguments.classes, examples))?;
    // What the measurements of the machine took is none of theirs.
    let memory = memory::Peak::reset();
    let mut contenders = vec![Contender::new(&config, &data, cpu, &all_threads)?];
    for &sampler in &arguments.against {
        let config = TrainConfig { sampler, ..config.clone() };
        contenders.push(Contender::new(&config, &data, cpu, &all_threads)?);
    }
    if arguments.against_bf16 {
        let config = TrainConfig { storage: Storage::Bf16, ..config.clone() };
        contenders.push(Contender::new(&config, &data, cpu, &all_threads)?);
    }
    if arguments.against_one_thread {
        contenders.push(Contender::new(&config, &data, cpu, &one_thread)?);
    }
    take_turns(&mut contenders, repeats)?;
    for contender in &mut contenders {
        contender.rebuild_tables(cpu, repeats)?;
    }
    // When all is done; of several contenders nobody can say whose memory it is.
    let peak_memory_bytes = memory.bytes().filter(|_| contenders.len() == 1);

    let epoch = Epoch::of(&arguments.shape, &config);
    let figures = |contender| ContenderFigures::of(contender, &machine, &epoch);
    let report = BenchReport {
        contenders: contenders.iter().map(figures).collect(),
        ratios: contenders[1..].iter().map(|other| Ratio::of(other, &contenders[0], &epoch)).collect(),
        sizes: Sizes::of(&data, &config),
        peak_memory_bytes,
        machine,
    };
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        write!(out, "{}", print::text(&report))?;
    }
    Ok(())
}
