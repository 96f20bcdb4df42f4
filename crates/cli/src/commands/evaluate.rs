//! `lookalike evaluate`

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use lookalike::collective::Shard;
use lookalike::data::write::atomically;
use lookalike::metrics::{MetricOptions, Reliability};
use lookalike::predict::{Evaluation, Predictor};

use super::MachineArguments;
use super::search::SearchArguments;
use crate::exit::usage;
use crate::input::{self, ReadArguments};
use crate::output::inform;
use crate::ranks;

mod page;

/// Measures a model on a file.
///
/// Exact, over all classes, unless --search fast is given: then every answer is also
/// compared with the exact one, and the share of its classes that were found is printed.
#[derive(Args)]
#[command(after_help = "Examples:
  lookalike evaluate model test.txt
  lookalike evaluate model test.txt --k 1,3,5 --json
  lookalike evaluate model names.tsv
  lookalike evaluate model test.txt --page report.html
  lookalike evaluate model test.txt --search fast

A label that the model does not know can't be predicted, but counts among the true
labels of its example; how many there are is printed.

ECE (expected calibration error), log-loss and Brier say what the probabilities of
first answers are worth; models without calibration have none.")]
pub(crate) struct EvaluateArguments {
    /// The model's directory
    model: PathBuf,
    /// The examples, with labels; - is standard input
    test: PathBuf,
    #[command(flatten)]
    metrics: MetricArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Also write a page with a reliability chart: are probabilities true?
    #[arg(long, value_name = "FILE.html")]
    page: Option<PathBuf>,
    #[command(flatten)]
    search: SearchArguments,
    #[command(flatten)]
    read: ReadArguments,
    #[command(flatten)]
    machine: MachineArguments,
}

/// What is measured.
#[derive(Args, Clone, Debug)]
pub(crate) struct MetricArguments {
    /// Numbers of predictions to measure at
    #[arg(long, value_delimiter = ',', default_values_t = [1, 3, 5], value_name = "K,…")]
    k: Vec<usize>,
    /// A of the propensity model behind PSP@k (Jain et al. 2016)
    #[arg(long, default_value_t = 0.55, value_name = "A")]
    propensity_a: f64,
    /// B of the propensity model
    #[arg(long, default_value_t = 1.5, value_name = "B")]
    propensity_b: f64,
    /// Classes with at most so many training examples are the tail
    #[arg(long, default_value_t = 5, value_name = "N")]
    tail: u32,
}

impl MetricArguments {
    pub(crate) fn options(&self) -> MetricOptions {
        MetricOptions {
            k: self.k.clone(),
            propensity_a: self.propensity_a,
            propensity_b: self.propensity_b,
            tail_examples_max: self.tail,
        }
    }
}

pub(crate) fn run(arguments: EvaluateArguments) -> anyhow::Result<()> {
    let cpu = arguments.machine.cpu()?;
    arguments.search.check_on_ranks()?;
    if arguments.test == Path::new("-") && ranks::all().size() > 1 {
        return Err(usage("standard input is for one process: start one, or give a file"));
    }
    let model = arguments.search.load(&arguments.model)?;
    let shard = Shard::new(ranks::all(), model.num_classes());
    arguments.machine.install(|| {
        let test = input::for_model(&arguments.test, &model, &arguments.read)?;
        let unknown = |i: usize| test.unknown_labels(i);
        let options = arguments.metrics.options();
        let search = arguments.search.search();
        let predictor = Predictor::on(&shard, &model, cpu);
        let evaluation = predictor.evaluate(&test.view(), &unknown, &options, search)?;
        if !ranks::is_first() {
            return Ok(());
        }
        if let Some(file) = &arguments.page {
            let name = |path: &Path| path.file_name().unwrap_or(path.as_os_str()).display().to_string();
            let page = page::page(&evaluation, &name(&arguments.model), &name(&arguments.test));
            atomically(file, |out| out.write_all(page.to_html().as_bytes()))?;
            inform!("wrote {}", file.display());
        }
        print(&evaluation, test.unknown_labels_total(), arguments.json)
    })?
}

/// What the probabilities of first answers are worth, with the bins of a reliability chart.
fn calibration(reliability: &Reliability) -> Option<serde_json::Value> {
    let mut object = serde_json::Map::new();
    for (name, value) in reliability.values()? {
        object.insert(name.into(), value.into());
    }
    let bins = reliability.bins().iter().filter(|bin| bin.answers > 0).map(|bin| {
        serde_json::json!({ "answers": bin.answers, "probability": bin.probability(), "right": bin.share_right() })
    });
    object.insert("bins".into(), bins.collect());
    Some(object.into())
}

pub(crate) fn print(evaluation: &Evaluation, unknown_labels: u64, json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        let mut object = serde_json::Map::new();
        for (name, value) in evaluation.values.iter() {
            object.insert(name.into(), value.into());
        }
        if let Some(calibration) = evaluation.reliability.as_ref().and_then(calibration) {
            object.insert("calibration".into(), calibration);
        }
        if let Some(recall) = evaluation.recall {
            object.insert("recall-of-search".into(), (100.0 * recall.share()).into());
        }
        object.insert("examples".into(), evaluation.examples.into());
        object.insert("examples-without-labels".into(), evaluation.skipped.into());
        object.insert("unknown-labels".into(), unknown_labels.into());
        writeln!(out, "{}", serde_json::Value::Object(object))?;
    } else {
        for (name, value) in evaluation.values.iter() {
            match value {
                Some(value) => writeln!(out, "{name:<18} {value:>7.2}")?,
                None => writeln!(out, "{name:<18} {:>7}", "-")?,
            }
        }
        match evaluation.reliability.as_ref().map(Reliability::values) {
            Some(Some(values)) => {
                for (name, value) in values {
                    writeln!(out, "{name:<18} {value:>7.4}")?;
                }
            }
            Some(None) => {}
            None => writeln!(out, "{:<18} {:>7}", "ECE", "-")?,
        }
        if let Some(recall) = evaluation.recall {
            writeln!(out, "{:<18} {:>7.2}", "recall of search", 100.0 * recall.share())?;
        }
        writeln!(out, "{:<18} {:>7}", "examples", evaluation.examples)?;
        if evaluation.skipped > 0 {
            writeln!(out, "{:<18} {:>7}", "without labels", evaluation.skipped)?;
        }
        if unknown_labels > 0 {
            writeln!(out, "{:<18} {:>7}", "unknown labels", unknown_labels)?;
        }
    }
    Ok(())
}
