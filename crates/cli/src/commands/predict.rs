//! `lookalike predict`

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lookalike::artifact::Model;
use lookalike::data::Examples;
use lookalike::predict::{Ranker, TopK};
use lookalike_kernels::Cpu;

use super::MachineArguments;
use crate::input::{self, ReadArguments};

/// Prints the best classes of each example, best first.
///
/// Lines are answered as they arrive, in memory that does not grow with the
/// input. Labels in the input are ignored.
#[derive(Args)]
#[command(after_help = "Examples:
  lookalike predict model new.txt
  lookalike predict model new.txt --top-k 10 --format jsonl
  echo Muenchen | lookalike predict model -
  generate | lookalike predict model - --probabilities

As TSV, a line an example: class, tab, score, tab, class, tab, score, … Classes are
names where the model knows names, numbers otherwise.

A model trained from text reads text. The first line that is not blank decides:
JSON lines if it begins with {, fastText's format if it holds __label__, TSV if it
holds a tab, CSV if it names a column `text`, else plain lines, a text a line, blank
ones too. --input-format decides otherwise. A text without any known feature gets the
prior, the model's answer to an empty text; JSON lines then say \"prior\": true.")]
pub(crate) struct PredictArguments {
    /// The model's directory
    model: PathBuf,
    /// The examples; - is standard input
    input: PathBuf,
    /// Classes to print for each example
    #[arg(long, default_value_t = 5, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    top_k: u32,
    /// How to print them
    #[arg(long, value_enum, default_value_t = OutputFormat::Tsv)]
    format: OutputFormat,
    /// Print softmax probabilities instead of scores
    #[arg(long)]
    probabilities: bool,
    #[command(flatten)]
    read: ReadArguments,
    #[command(flatten)]
    machine: MachineArguments,
}

#[derive(Clone, Copy, ValueEnum)]
enum OutputFormat {
    Tsv,
    Jsonl,
}

/// Examples that are ranked at a time.
const BATCH: usize = 1024;

pub(crate) fn run(arguments: PredictArguments) -> anyhow::Result<()> {
    let cpu = arguments.machine.cpu()?;
    let model = Model::load(&arguments.model, false)?;
    arguments.machine.install(|| {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let mut ranker = Ranker::new(arguments.top_k as usize);
        if arguments.probabilities {
            ranker = ranker.with_log_sum_exp();
        }
        input::stream(&arguments.input, &model, &arguments.read, |examples| {
            answer(examples, &model, cpu, &mut ranker, arguments.format, &mut out)?;
            Ok(out.flush()?)
        })
    })?
}

fn answer(
    examples: &Examples<'_>,
    model: &Model,
    cpu: Cpu,
    ranker: &mut Ranker,
    format: OutputFormat,
    out: &mut impl Write,
) -> std::io::Result<()> {
    for first in (0..examples.len()).step_by(BATCH) {
        let batch: Vec<u32> = (first..examples.len().min(first + BATCH)).map(|i| i as u32).collect();
        let best = ranker.rank(cpu, &model.network, examples, &batch);
        for place in 0..batch.len() {
            let is_prior = examples.features(first + place).0.is_empty();
            write_answer(out, format, &named(model, best, place), is_prior)?;
        }
    }
    Ok(())
}

fn named(model: &Model, best: &TopK, place: usize) -> Vec<(String, f32)> {
    let ranked = best.example(place);
    let shift = best.log_sum_exp(place);
    let score = |score: &f32| shift.map_or(*score, |shift| (score - shift).exp());
    ranked.classes.iter().map(|&class| model.class_name(class)).zip(ranked.scores.iter().map(score)).collect()
}

fn write_answer(
    out: &mut impl Write,
    format: OutputFormat,
    answer: &[(String, f32)],
    is_prior: bool,
) -> std::io::Result<()> {
    match format {
        OutputFormat::Tsv => {
            for (i, (class, score)) in answer.iter().enumerate() {
                let tab = if i == 0 { "" } else { "\t" };
                // A tab or line break in a name would break the table.
                let class = class.replace(['\t', '\n', '\r'], " ");
                write!(out, "{tab}{class}\t{score}")?;
            }
            writeln!(out)
        }
        OutputFormat::Jsonl => {
            let labels: Vec<&str> = answer.iter().map(|(class, _)| class.as_str()).collect();
            let scores: Vec<f32> = answer.iter().map(|&(_, score)| score).collect();
            let mut object = serde_json::json!({ "labels": labels, "scores": scores });
            if is_prior {
                object["prior"] = true.into();
            }
            writeln!(out, "{object}")
        }
    }
}
