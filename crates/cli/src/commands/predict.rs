//! `lookalike predict`

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lookalike::artifact::Model;
use lookalike::predict::Ranker;

use super::MachineArguments;
use crate::input::{self, ReadArguments};

/// Prints the best classes of each example, best first.
#[derive(Args)]
#[command(after_help = "Examples:
  lookalike predict model new.txt
  lookalike predict model new.txt --top-k 10 --format jsonl
  generate | lookalike predict model - --probabilities

As TSV, a line an example: class, tab, score, tab, class, tab, score, … Classes are
names where the model was trained from text, numbers otherwise. Labels in the input
are ignored.")]
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
        input::stream(&arguments.input, &model, &arguments.read, BATCH, |examples, batch| {
            let best = ranker.rank(cpu, &model.network, examples, batch);
            for i in 0..batch.len() {
                let ranked = best.example(i);
                let shift = best.log_sum_exp(i);
                let score = |score: &f32| shift.map_or(*score, |shift| (score - shift).exp());
                let answers: Vec<(String, f32)> = ranked
                    .classes
                    .iter()
                    .map(|&c| model.class_name(c))
                    .zip(ranked.scores.iter().map(score))
                    .collect();
                write_answers(&mut out, arguments.format, &answers)?;
            }
            out.flush()?;
            Ok(())
        })
    })?
}

fn write_answers(
    out: &mut impl Write,
    format: OutputFormat,
    answers: &[(String, f32)],
) -> std::io::Result<()> {
    match format {
        OutputFormat::Tsv => {
            for (i, (class, score)) in answers.iter().enumerate() {
                let tab = if i == 0 { "" } else { "\t" };
                // A tab or line break in a name would break the table.
                let class = class.replace(['\t', '\n', '\r'], " ");
                write!(out, "{tab}{class}\t{score}")?;
            }
            writeln!(out)
        }
        OutputFormat::Jsonl => {
            let labels: Vec<&str> = answers.iter().map(|(class, _)| class.as_str()).collect();
            let scores: Vec<f32> = answers.iter().map(|&(_, score)| score).collect();
            writeln!(out, "{}", serde_json::json!({ "labels": labels, "scores": scores }))
        }
    }
}
