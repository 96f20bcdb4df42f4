//! `lookalike predict`

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use lookalike::collective::Shard;
use lookalike::data::Examples;
use lookalike::model::Model;
use lookalike::predict::{Ask, NamedClass, Predictor};

use super::MachineArguments;
use super::search::SearchArguments;
use crate::exit::usage;
use crate::input::{self, ReadArguments};
use crate::output::inform;
use crate::ranks;

mod remote;

/// Prints the best classes of each example, best first.
///
/// Lines are answered as they arrive, in memory that does not grow with the
/// input. Labels in the input are ignored.
#[derive(Args)]
#[command(
    allow_missing_positional = true,
    after_help = "Examples:
  lookalike predict model new.txt
  lookalike predict model new.txt --top-k 10 --format jsonl
  echo Muenchen | lookalike predict model -
  generate | lookalike predict model - --probabilities
  lookalike predict --server http://127.0.0.1:7300 new.txt
  lookalike predict model new.txt --search fast
  lookalike predict model new.txt --only classes.txt --probabilities --threshold 0.2

As TSV, a line an example: class, tab, score, tab, class, tab, score, … Classes are
names where the model knows names, numbers otherwise.

A model trained from text reads text. The first line that is not blank decides:
JSON lines if it begins with {, fastText's format if it holds __label__, TSV if it
holds a tab, CSV if it names a column `text`, else plain lines, a text a line, blank
ones too. --input-format decides otherwise. A text without any known feature gets the
prior: the model's answer to an empty text, with the classes' shares of the training
examples as probabilities. JSON lines then say \"prior\": true.

Calibrated probabilities are fitted on examples that a model had not seen: of the
answers given 0.8, four in five are right. Where every training example had one
label they add up to one over all classes; else each is the probability that the class
is among the labels."
)]
pub(crate) struct PredictArguments {
    /// The model's directory; none with --server
    #[arg(required_unless_present = "server")]
    model: Option<PathBuf>,
    /// The examples; - is standard input
    input: PathBuf,
    /// Ask a service that `lookalike serve` runs, with the token in LOOKALIKE_TOKEN if it has one
    #[arg(long, value_name = "URL", conflicts_with = "model")]
    server: Option<String>,
    /// Classes to print for each example
    #[arg(long, default_value_t = 5, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    top_k: u32,
    /// How to print them
    #[arg(long, value_enum, default_value_t = OutputFormat::Tsv)]
    format: OutputFormat,
    /// Print probabilities instead of scores: calibrated where the model knows how
    /// (`train` says so), else a softmax over all classes
    #[arg(long)]
    probabilities: bool,
    /// Print only classes named in this file, one a line
    #[arg(long, value_name = "FILE")]
    only: Option<PathBuf>,
    /// Print only classes with at least this score, or probability with --probabilities
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    threshold: Option<f32>,
    #[command(flatten)]
    search: SearchArguments,
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

pub(crate) fn run(arguments: PredictArguments) -> anyhow::Result<()> {
    let directory = match (&arguments.server, &arguments.model) {
        (Some(url), _) => return remote::run(url, &arguments),
        (None, model) => model.as_deref().unwrap_or(Path::new("")),
    };
    let cpu = arguments.machine.cpu()?;
    if let Some(threshold) = arguments.threshold.filter(|threshold| !(0.0..=1.0).contains(threshold))
        && arguments.probabilities
    {
        return Err(usage(format!("--threshold is {threshold}, but must be a probability, from 0 to 1")));
    }
    arguments.search.check_on_ranks()?;
    if (arguments.only.is_some() || arguments.input == Path::new("-")) && ranks::all().size() > 1 {
        return Err(usage("--only and standard input are for one process: start one, or give a file"));
    }
    let model = arguments.search.load(directory)?;
    let shard = Shard::new(ranks::all(), model.num_classes());
    if ranks::is_first() && arguments.probabilities && model.calibration.is_none() {
        inform!("note: this model's probabilities are not calibrated: they are surer than they should be");
    }
    let only = arguments.only.as_deref().map(|path| classes_in(path, &model)).transpose()?;
    arguments.machine.install(|| {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let predictor = Predictor::on(&shard, &model, cpu);
        let ask = Ask {
            k: arguments.top_k as usize,
            probabilities: arguments.probabilities,
            search: arguments.search.search(),
            only: only.as_deref(),
            threshold: arguments.threshold,
        };
        input::stream(&arguments.input, &model, &arguments.read, |examples| {
            answer(examples, &predictor, ask, arguments.format, &mut out)?;
            Ok(out.flush()?)
        })
    })?
}

/// The classes that a file names, one a line.
fn classes_in(path: &Path, model: &Model) -> anyhow::Result<Vec<u32>> {
    let class = |(number, line): (usize, String)| {
        let unknown = || format!("--only {}, line {number}: the model has no class {line:?}", path.display());
        model.class_id(&line).ok_or_else(|| usage(unknown()))
    };
    names_in(path)?.into_iter().map(class).collect()
}

/// The names in a file with the numbers of their lines.
fn names_in(path: &Path) -> anyhow::Result<Vec<(usize, String)>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--only {}", path.display()))?;
    let lines = (1..).zip(text.lines().map(str::to_owned));
    let names: Vec<(usize, String)> = lines.filter(|(_, line)| !line.is_empty()).collect();
    if names.is_empty() {
        return Err(usage(format!("--only {}: expected the names of classes, found none", path.display())));
    }
    Ok(names)
}

fn answer(
    examples: &Examples<'_>,
    predictor: &Predictor<&Model>,
    ask: Ask<'_>,
    format: OutputFormat,
    out: &mut impl Write,
) -> std::io::Result<()> {
    predictor.rank_all(examples, ask, |first, ranking| {
        for place in 0..ranking.len() {
            if !ranks::is_first() {
                continue;
            }
            let is_prior = examples.features(first + place).0.is_empty();
            write_answer(out, format, &predictor.named(ranking, place), is_prior)?;
        }
        Ok(())
    })
}

fn write_answer(
    out: &mut impl Write,
    format: OutputFormat,
    answer: &[NamedClass],
    is_prior: bool,
) -> std::io::Result<()> {
    match format {
        OutputFormat::Tsv => {
            for (i, NamedClass { name, score, .. }) in answer.iter().enumerate() {
                let tab = if i == 0 { "" } else { "\t" };
                // A tab or line break in a name would break the table.
                let name = name.replace(['\t', '\n', '\r'], " ");
                write!(out, "{tab}{name}\t{score}")?;
            }
            writeln!(out)
        }
        OutputFormat::Jsonl => {
            let labels: Vec<&str> = answer.iter().map(|class| class.name.as_str()).collect();
            let scores: Vec<f32> = answer.iter().map(|class| class.score).collect();
            let mut object = serde_json::json!({ "labels": labels, "scores": scores });
            if is_prior {
                object["prior"] = true.into();
            }
            writeln!(out, "{object}")
        }
    }
}
