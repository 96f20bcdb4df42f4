//! `lookalike train`

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use lookalike::train::{AUTO, Every, PRESETS};

use super::MachineArguments;
use super::evaluate::MetricArguments;
use crate::input::{ReadArguments, TextArguments, WeightArguments};
use crate::signals;
use further::FurtherArguments;

mod describe;
mod further;
mod keep;
mod run;
mod settings;
mod times;
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
  lookalike train train.txt --model model --checkpoint saved --checkpoint-every 10m --resume
  lookalike train train.txt --preset paper --print-config > settings.toml
  lookalike train train.txt --config settings.toml --model model
  lookalike train names.tsv --test more.tsv --model model
  lookalike train articles.jsonl --text-column body --labels-column tags --words 1-2 --model model
  lookalike train embeddings.npy --labels-file labels.txt --model model
  lookalike train new.txt --from model --rehearse 0.25 --model larger
  lookalike train articles.jsonl --weight-column weight --class-weights classes.tsv --model model

The input is examples of numbers (the Extreme Classification format, its packed
form, or a .npy matrix with a file of labels) or text with label names: TSV, CSV,
JSON lines or fastText's format, told from its content. Text is read twice: once
to learn n-grams and labels, once to turn it into features. All may be compressed
with gzip or zstd.

--test is only reported, on a part of it while training and exactly at the end, and
never used to choose the model. --valid chooses: the
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
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "eval_iterations")]
    eval_epochs: NonZeroU32,
    /// Evaluate after so many steps instead
    #[arg(long, value_name = "N")]
    eval_iterations: Option<NonZeroU64>,
    /// Examples of --test that are looked at while training; all at the end. 0: always all
    #[arg(long, value_name = "N", default_value_t = 2000)]
    eval_examples: usize,
    /// Stop after so many evaluations on --valid without a better P@k (the smallest k)
    #[arg(long, value_name = "N", requires = "valid")]
    patience: Option<NonZeroUsize>,
    /// Stop after so many seconds of training; evaluation is not counted
    #[arg(long, value_name = "SECONDS", value_parser = run::seconds)]
    time_limit: Option<Duration>,
    /// Go on where the newest checkpoint in --checkpoint was written, to the bit, or from the
    /// beginning if there is none yet; without --checkpoint, go on with the model in --model. Its
    /// settings hold where no flag is given
    #[arg(long)]
    resume: bool,
    /// Write the whole state of training into this folder from time to time
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// How often: a time of training (30s, 10m, 2h), steps (1000steps) or epochs (1epoch, 0.5epochs)
    #[arg(long, value_name = "PERIOD", default_value = "10m", value_parser = run::period, requires = "checkpoint")]
    checkpoint_every: Every,
    /// How many checkpoints stay, the newest
    #[arg(long, value_name = "N", default_value = "2", requires = "checkpoint")]
    keep: NonZeroUsize,
    /// Of several ranks: one that is not heard of for so many seconds ends all
    #[arg(long, value_name = "SECONDS", default_value_t = crate::ranks::DEFAULT_SILENCE,
        value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) rank_timeout: u64,
    /// Look at every number after every step, and name the first tensor that is not finite
    #[arg(long)]
    detect_anomaly: bool,
    /// Replace the model that is in --model
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
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
    further: FurtherArguments,
    #[command(flatten)]
    weights: WeightArguments,
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

    /// Whether the model that training starts from is the one it replaces.
    fn replaces_its_start(&self) -> bool {
        let (Some(from), Some(model)) = (&self.further.from, &self.model) else { return false };
        match (from.canonicalize(), model.canonicalize()) {
            (Ok(from), Ok(model)) => from == model,
            _ => false,
        }
    }
}

pub(crate) fn run(arguments: TrainArguments) -> anyhow::Result<ExitCode> {
    // What the data decides comes when the data is there.
    let preset = arguments.preset.as_deref().filter(|&preset| preset != AUTO);
    let mut base = Settings::base(preset, arguments.config.as_deref())?;
    arguments.text.apply(&mut base.text);
    if arguments.print_config && !arguments.is_auto() && !arguments.resume {
        return run::print_settings(&arguments, base);
    }
    signals::catch();
    arguments.machine.install(|| run::train(&arguments, base))?
}
