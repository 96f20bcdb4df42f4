//! `lookalike train`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use lookalike::artifact::{Model, check_destination};
use lookalike::data::Examples;
use lookalike::data::write::{check_file, check_folder};
use lookalike::model::{Network, SparseStart};
use lookalike::predict::{Evaluation, evaluate};
use lookalike::train::{
    AUTO, Every, Outcome, PRESETS, TrainConfig, Trainer, Validation, run as run_training,
};
use lookalike_report::human;

use super::MachineArguments;
use super::evaluate::MetricArguments;
use crate::exit::{INTERRUPTED, usage};
use crate::input::{self, ReadArguments, TextArguments};
use crate::output::inform;
use crate::progress::RunProgress;
use crate::signals;

mod settings;
pub(crate) use settings::{SettingArguments, Settings};

/// Trains a model from a file.
///
/// Settings come, each overriding the one before, from a --preset (auto if neither
/// it nor --config is given), a --config file and the flags. The same settings,
/// data and seed give the same bits whatever the number of threads.
#[derive(Args)]
#[command(after_help = "Examples:
  lookalike train train.txt --test test.txt --model model
  lookalike train train.txt --model model --sampler lsh-label --budget 300 --epochs 5
  lookalike train train.txt --valid valid.txt --patience 3 --model model
  lookalike train train.txt --model model --resume --epochs 20
  lookalike train train.txt --preset paper --print-config > settings.toml
  lookalike train train.txt --config settings.toml --model model
  lookalike train names.tsv --test more.tsv --model model
  lookalike train articles.jsonl --text-column body --labels-column tags --words 1-2 --model model
  lookalike train embeddings.npy --labels-file labels.txt --model model

The input is examples of numbers (the Extreme Classification format, its packed
form, or a .npy matrix with a file of labels) or text with label names: TSV, CSV,
JSON lines or fastText's format, told from its content. Text is read twice: once
to learn n-grams and labels, once to turn it into features. All may be compressed
with gzip or zstd.

--test is only reported and never used to choose the model. --valid chooses: the
model that is saved is the one that was best on it.")]
pub(crate) struct TrainArguments {
    /// The training examples; - is standard input
    train: PathBuf,
    /// Where to save the model [default: not saved]
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Examples to report metrics on, during training and at the end
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    /// Examples that choose the best model and stop early
    #[arg(long, value_name = "FILE")]
    valid: Option<PathBuf>,
    /// Evaluate after so many epochs
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "eval_iterations")]
    eval_epochs: usize,
    /// Evaluate after so many steps instead
    #[arg(long, value_name = "N")]
    eval_iterations: Option<u64>,
    /// Stop after so many evaluations on --valid without a better P@k (the smallest k)
    #[arg(long, value_name = "N", requires = "valid")]
    patience: Option<usize>,
    /// Stop after so many seconds of training; evaluation is not counted
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<f64>,
    /// Go on with the model in --model; its settings hold where no flag is given
    #[arg(long, requires = "model")]
    resume: bool,
    /// Save without what --resume needs: a third of the size
    #[arg(long)]
    without_training_state: bool,
    /// Write metrics as JSON lines
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write TensorBoard events
    #[arg(long, value_name = "FOLDER")]
    tensorboard: Option<PathBuf>,
    /// Start from a preset: see `lookalike train --help`
    #[arg(long, value_name = "NAME", long_help = preset_help())]
    preset: Option<String>,
    /// Read settings from a TOML file
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    /// Print the settings as TOML and do nothing
    #[arg(long)]
    print_config: bool,
    /// Print nothing but the result
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    settings: SettingArguments,
    #[command(flatten)]
    metrics: MetricArguments,
    #[command(flatten)]
    text: TextArguments,
    #[command(flatten)]
    read: ReadArguments,
    #[command(flatten)]
    machine: MachineArguments,
}

fn preset_help() -> String {
    let lines: Vec<String> = PRESETS.iter().map(|(name, what)| format!("- {name}: {what}")).collect();
    format!("Start from a preset:\n{}", lines.join("\n"))
}

impl TrainArguments {
    /// Whether the data decides the settings that are not given. A file of
    /// settings is complete unless --preset says otherwise.
    fn is_auto(&self) -> bool {
        self.preset.as_deref().map_or(self.config.is_none(), |preset| preset == AUTO)
    }
}

pub(crate) fn run(arguments: TrainArguments) -> anyhow::Result<ExitCode> {
    // What the data decides comes when the data is there.
    let preset = arguments.preset.as_deref().filter(|&preset| preset != AUTO);
    let mut base = Settings::base(preset, arguments.config.as_deref())?;
    arguments.text.apply(&mut base.text);
    if arguments.print_config && !arguments.is_auto() && !arguments.resume {
        return print_settings(&arguments, base);
    }
    signals::catch();
    arguments.machine.install(|| train(&arguments, base))?
}

fn train(arguments: &TrainArguments, base: Settings) -> anyhow::Result<ExitCode> {
    let cpu = arguments.machine.cpu()?;
    let say = |line: String| {
        if !arguments.quiet {
            inform!("{line}");
        }
    };
    let previous = match (&arguments.model, arguments.resume) {
        (Some(directory), true) => Some(Model::load(directory, !arguments.print_config)?),
        _ => None,
    };
    if let (Some(model), true) = (&previous, arguments.print_config) {
        let text = model.text.as_ref().map(|text| text.vectoriser.options().into());
        let settings = Settings { training: model.training.clone(), text: text.unwrap_or(base.text) };
        return print_settings(arguments, settings);
    }
    if !arguments.print_config {
        check_outputs(arguments)?;
    }
    if previous.is_some() && arguments.text.any() {
        return Err(usage("--resume goes on with the model's features: they can't be changed"));
    }
    let mut data = match &previous {
        Some(model) => input::for_model(&arguments.train, model, &arguments.read)?,
        None => input::for_training(&arguments.train, &base.text.options(), &arguments.read)?,
    };
    let (text, names) = data.take_learnt();
    let examples = data.view();
    let mut trainer = match previous {
        Some(mut model) => {
            arguments.settings.apply(&mut model.training)?;
            Trainer::resume(model, examples, cpu)?
        }
        None => {
            let mut settings = base;
            if arguments.is_auto() {
                let (chosen, why) = TrainConfig::auto((&examples).into());
                let chosen = Settings { training: chosen, ..settings.clone() };
                settings.training = chosen.with(arguments.config.as_deref())?.training;
                why.into_iter().for_each(&say);
            }
            if arguments.print_config {
                return print_settings(arguments, settings);
            }
            arguments.settings.apply(&mut settings.training)?;
            let mut trainer = Trainer::new(settings.training, examples, cpu)?;
            (trainer.model.text, trainer.model.names) = (text, names);
            trainer
        }
    };
    describe(&trainer, &examples, &say);
    let test = open_other(arguments.test.as_deref(), &trainer, arguments)?;
    let valid = open_other(arguments.valid.as_deref(), &trainer, arguments)?;
    if let (Some(path), Some(valid)) = (&arguments.valid, &valid) {
        check_labels(path, valid)?;
    }
    let outcome = train_and_save(arguments, &mut trainer, test.as_ref(), valid.as_ref(), &say)?;

    if let Some(test) = &test {
        let evaluation = measure(arguments, &trainer, test)?;
        super::evaluate::print(&evaluation, test.unknown_labels_total(), false)?;
    }
    Ok(if outcome == Outcome::Stopped { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// The settings with what flags override, and nothing else.
fn print_settings(arguments: &TrainArguments, mut settings: Settings) -> anyhow::Result<ExitCode> {
    arguments.settings.apply(&mut settings.training)?;
    write!(std::io::stdout(), "{}", settings.to_toml()?)?;
    Ok(ExitCode::SUCCESS)
}

/// What can't be written must show before hours of training.
fn check_outputs(arguments: &TrainArguments) -> anyhow::Result<()> {
    if let Some(directory) = &arguments.model {
        check_destination(directory)?;
    }
    if let Some(file) = &arguments.log {
        check_file(file).context("--log")?;
    }
    if let Some(folder) = &arguments.tensorboard {
        check_folder(folder).context("--tensorboard")?;
    }
    Ok(())
}

/// Examples without labels choose nothing.
fn check_labels(path: &Path, valid: &input::Input) -> anyhow::Result<()> {
    let examples = valid.view();
    let has_label = |i: usize| !examples.labels(i).is_empty() || valid.unknown_labels(i) > 0;
    if (0..examples.len()).any(has_label) {
        return Ok(());
    }
    let (path, count) = (path.display(), human::count(examples.len() as u64));
    Err(usage(format!(
        "{path}: none of its {count} examples has a label, so --valid can't choose the best model"
    )))
}

fn open_other(
    path: Option<&Path>,
    trainer: &Trainer<'_>,
    arguments: &TrainArguments,
) -> anyhow::Result<Option<input::Input>> {
    path.map(|path| input::for_model(path, &trainer.model, &arguments.read)).transpose()
}

/// Runs the loop; afterwards `trainer.model` is the model that was saved.
fn train_and_save(
    arguments: &TrainArguments,
    trainer: &mut Trainer<'_>,
    test: Option<&input::Input>,
    valid: Option<&input::Input>,
    say: &dyn Fn(String),
) -> anyhow::Result<Outcome> {
    let keep_state = !arguments.without_training_state;
    let save = |model: &Model| match &arguments.model {
        Some(directory) => model
            .save(directory, keep_state)
            .with_context(|| format!("cannot save the model to {}", directory.display())),
        None => Ok(()),
    };
    let mut found_better = false;
    let mut progress = RunProgress::new(trainer.planned_steps(), arguments.quiet);
    if let Some(path) = &arguments.log {
        progress = progress.with_log(path, arguments.resume)?;
    }
    if let Some(folder) = &arguments.tensorboard {
        progress = progress.with_tensorboard(folder)?;
    }
    let chooses = valid.filter(|_| arguments.model.is_some());
    // A model that goes on is itself the best so far.
    let to_beat = match chooses.filter(|_| arguments.resume) {
        Some(valid) => measure(arguments, trainer, valid)?.values.iter().next().and_then(|(_, value)| value),
        None => None,
    };
    if chooses.is_some() {
        progress = progress.on_best(to_beat, |trainer| {
            save(&trainer.model)?;
            found_better = true;
            Ok(())
        });
    }
    let watched = valid.or(test);
    let unknown = |i: usize| watched.map_or(0, |input| input.unknown_labels(i));
    let validation = watched.map(|input| Validation {
        examples: input.view(),
        unknown_labels: &unknown,
        every: match arguments.eval_iterations {
            Some(steps) => Every::Iterations(steps),
            None => Every::Epochs(arguments.eval_epochs),
        },
        metrics: arguments.metrics.options(),
        patience: arguments.patience,
    });
    if let Some(validation) = &validation {
        // Bad metric options must show before hours of training.
        lookalike::metrics::Metrics::new(&validation.metrics, None)?;
    }
    let limit = arguments.time_limit.map(Duration::try_from_secs_f64).transpose();
    let limit = limit.map_err(|_| usage("--time-limit must be a number of seconds, 0 or more"))?;
    let had_sparse_part = trainer.model.network.sparse.is_some();
    let result = run_training(trainer, validation.as_ref(), limit, &mut progress);
    progress.finish()?;
    drop(progress);
    let outcome = result?;

    let told = trainer.model.progress;
    say(match outcome {
        Outcome::Finished => {
            format!("trained {} epochs in {}", told.epoch, human::seconds(told.train_seconds))
        }
        Outcome::NoProgress => {
            format!("stopped early: no better for {} evaluations", arguments.patience.unwrap_or(0))
        }
        Outcome::TimeLimit => format!("stopped by --time-limit in epoch {}", told.epoch + 1),
        Outcome::Stopped => format!("interrupted in epoch {}; go on with --resume", told.epoch + 1),
    });
    warn_of_shortfall(trainer, say);
    if had_sparse_part {
        say(describe_blend(&trainer.model.network));
    }
    if let Some(directory) = &arguments.model {
        // With --valid the best model is there already, unless none was evaluated.
        if found_better || to_beat.is_some() {
            trainer.model = Model::load(directory, false)?;
        } else {
            save(&trainer.model)?;
        }
        let (directory, chosen) = (directory.display(), trainer.model.progress);
        say(match (found_better, to_beat) {
            (true, _) => format!("saved to {directory}: the best on --valid, of step {}", chosen.iteration),
            (false, Some(_)) => format!("{directory} was the best on --valid and is left as it is"),
            (false, None) => format!("saved to {directory}"),
        });
    }
    Ok(outcome)
}

fn describe(trainer: &Trainer<'_>, examples: &Examples<'_>, say: &dyn Fn(String)) {
    let model = &trainer.model;
    let count = |n: usize| human::count(n as u64);
    say(format!(
        "{} examples, {} features, {} classes; {} parameters, {} on {} threads",
        count(examples.len()),
        count(examples.num_features),
        count(examples.num_classes),
        count(model.network.num_parameters()),
        trainer.cpu().name(),
        rayon::current_num_threads(),
    ));
    let labelled = model.progress.examples;
    let (unlabelled, held_out) = (examples.len() - labelled, labelled - trainer.num_examples());
    if unlabelled > 0 {
        say(format!("{} examples have no label and are left out", count(unlabelled)));
    }
    if held_out > 0 {
        say(format!(
            "{} examples are held out to choose how much sparse weights and nearest examples count",
            count(held_out)
        ));
    }
    say(trainer.describe_sampler());
    if model.progress.iteration > 0 {
        say(format!("going on after epoch {}, step {}", model.progress.epoch, model.progress.iteration));
    }
}

/// How much the sparse part and the nearest examples count, as chosen on held-out
/// examples.
fn describe_blend(network: &Network) -> String {
    match &network.sparse {
        Some(sparse) => {
            let start = match sparse.start() {
                SparseStart::Centroid => "centroids",
                SparseStart::LogMean => "logarithms of means",
            };
            let blend = sparse.blend();
            let nearest = network.neighbours.as_ref().map_or(String::new(), |neighbours| {
                let weight = human::number(f64::from(neighbours.weight()));
                format!(", the nearest training examples {weight} times")
            });
            format!("chosen on held-out examples: sparse weights, from {start}, count {blend} times{nearest}")
        }
        None => "sparse weights did not help on held-out examples and were dropped".into(),
    }
}

/// Tables that give too few candidates would quietly train a worse model.
fn warn_of_shortfall(trainer: &Trainer<'_>, say: &dyn Fn(String)) {
    if let Some(stats) = trainer.sampler_stats() {
        let share = stats.given as f64 / stats.wanted.max(1) as f64;
        if share < 0.9 {
            say(format!(
                "note: the hash tables gave {:.0}% of the negatives asked for; use more tables (--tables), fewer \
                 functions (--functions), or --fill",
                100.0 * share
            ));
        }
    }
}

fn measure(
    arguments: &TrainArguments,
    trainer: &Trainer<'_>,
    input: &input::Input,
) -> anyhow::Result<Evaluation> {
    let model = &trainer.model;
    let num_examples = trainer.num_examples();
    let frequencies =
        lookalike::metrics::TrainingFrequencies { examples_of_class: &model.class_counts, num_examples };
    let unknown = |i: usize| input.unknown_labels(i);
    let options = arguments.metrics.options();
    Ok(evaluate(trainer.cpu(), &model.network, &input.view(), &unknown, &options, Some(frequencies))?)
}
