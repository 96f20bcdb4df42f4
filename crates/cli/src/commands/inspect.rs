//! `lookalike inspect`

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use lookalike::artifact::Model;
use lookalike::hashing::Occupancy;
use lookalike::predict::{TopK, TopKScratch, top_k};
use lookalike_kernels::Cpu;
use lookalike_report::human;
use serde_json::json;

use super::MachineArguments;
use crate::exit::usage;

/// Prints a model's shape, sizes and hash tables, or what lies near a class.
#[derive(Args)]
#[command(after_help = "Examples:
  lookalike inspect model
  lookalike inspect model --json
  lookalike inspect model --class 17")]
pub(crate) struct InspectArguments {
    /// The model's directory
    model: PathBuf,
    /// Print the classes most like this one: a number or a name
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// How many of them
    #[arg(long, default_value_t = 10, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    top_k: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    machine: MachineArguments,
}

pub(crate) fn run(arguments: InspectArguments) -> anyhow::Result<()> {
    let cpu = arguments.machine.cpu()?;
    let model = Model::load(&arguments.model, false)?;
    arguments.machine.install(|| match &arguments.class {
        Some(class) => print_neighbours(&model, class, &arguments, cpu),
        None => print_summary(&model, &arguments, cpu),
    })?
}

fn print_summary(model: &Model, arguments: &InspectArguments, cpu: Cpu) -> anyhow::Result<()> {
    let (shape, training) = (&model.network.config, &model.training);
    let tables = occupancy(model, cpu)?;
    let bytes: u64 = std::fs::read_dir(&arguments.model)?
        .flatten()
        .filter_map(|f| f.metadata().ok())
        .map(|m| m.len())
        .sum();
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let tables = tables.map(|(choice, occupancy)| {
            json!({ "k": choice.k, "l": choice.l, "expected-per-table": choice.expected_per_table,
                    "occupancy": occupancy })
        });
        let summary = json!({
            "network": shape, "training": training, "progress": model.progress, "tables": tables,
            "parameters": model.network.num_parameters(), "bytes-on-disk": bytes,
        });
        writeln!(out, "{summary}")?;
        return Ok(());
    }
    let count = |n: usize| human::count(n as u64);
    writeln!(out, "features    {}", count(shape.num_features))?;
    writeln!(out, "hidden      {:?}, {:?}", shape.hidden, shape.activation)?;
    writeln!(out, "classes     {}", count(shape.num_classes))?;
    writeln!(out, "parameters  {} ({:?})", count(model.network.num_parameters()), shape.storage)?;
    writeln!(out, "on disk     {}", human::bytes(bytes as f64))?;
    let progress = model.progress;
    writeln!(
        out,
        "trained     {} epochs, {} steps, {} with {}",
        progress.epoch,
        human::count(progress.iteration),
        human::seconds(progress.train_seconds),
        training.sampler
    )?;
    if let Some((choice, occupancy)) = tables {
        writeln!(out, "tables      {choice}")?;
        writeln!(out, "buckets     {occupancy:?}")?;
    }
    Ok(())
}

/// The hash tables as training would build them from the model's class vectors.
fn occupancy(model: &Model, cpu: Cpu) -> anyhow::Result<Option<(lookalike::hashing::Choice, Occupancy)>> {
    let training = &model.training;
    if !training.sampler.uses_tables() {
        return Ok(None);
    }
    let (classes, dim) = (model.network.output.len, model.network.output.dim);
    let choice = training.lsh.choose(training.budget_for(classes), classes, dim)?;
    let mut tables = training.lsh.tables(&choice, classes, dim, training.seed)?;
    tables.rebuild(cpu, model.network.output.view());
    Ok(Some((choice, tables.occupancy())))
}

fn print_neighbours(
    model: &Model,
    class: &str,
    arguments: &InspectArguments,
    cpu: Cpu,
) -> anyhow::Result<()> {
    let id = model.class_id(class).ok_or_else(|| {
        usage(format!("the model has no class {class:?}; it has {} classes", model.network.output.len))
    })?;
    let output = &model.network.output;
    let mut row = vec![0.0; output.stride];
    output.view().copy_row(id as usize, &mut row);
    let mut best = TopK::new(arguments.top_k as usize + 1);
    let no_bias = vec![0.0; output.len];
    top_k(cpu, output.view(), &no_bias, &row, &mut TopKScratch::default(), &mut best);
    let length = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>().sqrt();
    let mut other = vec![0.0; output.stride];
    let mut out = std::io::stdout().lock();
    let ranked = best.example(0);
    let neighbours = ranked.classes.iter().zip(ranked.scores).filter(|(c, _)| **c != id);
    for (&class, &score) in neighbours.take(arguments.top_k as usize) {
        output.view().copy_row(class as usize, &mut other);
        let cosine = score / (length(&row) * length(&other)).max(f32::MIN_POSITIVE);
        if arguments.json {
            writeln!(
                out,
                "{}",
                json!({ "class": model.class_name(class), "product": score, "cosine": cosine })
            )?;
        } else {
            writeln!(out, "{score:9.3}  {cosine:6.3}  {}", model.class_name(class))?;
        }
    }
    Ok(())
}
