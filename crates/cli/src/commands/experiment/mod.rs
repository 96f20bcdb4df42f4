//! What `compare`, `sweep` and `adapt` share: which data, which settings, where
//! to write, and how progress is shown.

pub(crate) mod matrix;
pub(crate) mod output;
pub(crate) mod progress;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use lookalike::data::{Dataset, Examples, write::check_folder};
use lookalike::experiment::{Arena, PlannedRun};
use lookalike::metrics::MetricOptions;
use lookalike::train::{Every, TrainConfig};
use lookalike_kernels::Cpu;

use super::MachineArguments;
use super::train::{SettingArguments, Settings};
use crate::exit::usage;
use crate::input::{self, Input, ReadArguments, TextArguments, WeightArguments};
use crate::output::inform;

/// The data, the settings and the output of an experiment.
#[derive(Args)]
pub(crate) struct ExperimentArguments {
    /// A folder with train.txt and test.txt (or other files named train.… and test.…)
    data: Option<PathBuf>,
    /// The training examples, instead of the folder's
    #[arg(long, value_name = "FILE")]
    train: Option<PathBuf>,
    /// The test examples, instead of the folder's
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    /// The folder to write [default: COMMAND-DATA]
    #[arg(long, short, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Start from a preset: see `lookalike train --help`
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Read settings from a TOML file
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    /// Print nothing but the result
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    settings: SettingArguments,
    #[command(flatten)]
    text: TextArguments,
    #[command(flatten)]
    read: ReadArguments,
    #[command(flatten)]
    pub(crate) machine: MachineArguments,
}

impl ExperimentArguments {
    /// Defaults, preset, file and flags, each overriding the one before.
    pub(crate) fn settings(&self) -> anyhow::Result<TrainConfig> {
        let mut config = self.all_settings()?.training;
        self.settings.apply(&mut config);
        Ok(config)
    }

    fn all_settings(&self) -> anyhow::Result<Settings> {
        let mut settings = Settings::base(self.preset.as_deref(), self.config.as_deref())?;
        self.text.apply(&mut settings.text);
        Ok(settings)
    }

    /// Says what is going on, unless told to be quiet.
    pub(crate) fn say(&self, line: &str) {
        if !self.quiet {
            inform!("{line}");
        }
    }

    /// Whether the output can be written must show before hours of training.
    pub(crate) fn check_out(&self, command: &str) -> anyhow::Result<()> {
        check_folder(&self.out(command)?).context("--out")
    }

    /// Where to write: what was given, or named after the data.
    pub(crate) fn out(&self, command: &str) -> anyhow::Result<PathBuf> {
        if let Some(out) = &self.out {
            return Ok(out.clone());
        }
        Ok(PathBuf::from(format!("{command}-{}", self.data_name()?)))
    }

    /// The last part of the data's path, for titles and folders.
    pub(crate) fn data_name(&self) -> anyhow::Result<String> {
        let train = self.path("train", &self.train)?;
        let named = self.data.as_deref().unwrap_or(&train);
        let whole = named.canonicalize().unwrap_or_else(|_| named.into());
        let name = whole.file_stem().or(whole.file_name()).map(|name| name.to_string_lossy().into_owned());
        Ok(name.unwrap_or_else(|| "data".into()))
    }

    /// Reads the training examples.
    pub(crate) fn read_train(&self) -> anyhow::Result<Input> {
        let path = self.path("train", &self.train)?;
        self.say(&format!("reading {}", path.display()));
        input::for_training(
            &path,
            &self.all_settings()?.text.options(),
            &self.read,
            &WeightArguments::default(),
        )
    }

    /// Reads the test examples, in the shape of the training examples.
    pub(crate) fn read_test(&self, train: &Input) -> anyhow::Result<Input> {
        let path = self.path("test", &self.test)?;
        self.say(&format!("reading {}", path.display()));
        input::for_model(&path, train, &self.read)
    }

    fn path(&self, stem: &str, given: &Option<PathBuf>) -> anyhow::Result<PathBuf> {
        match (given, &self.data) {
            (Some(path), _) => Ok(path.clone()),
            (None, Some(folder)) => find_file(folder, stem),
            (None, None) => {
                Err(usage(format!("no {stem} data: give a folder with {stem}.txt, or --{stem} FILE")))
            }
        }
    }
}

/// `STEM.txt`, or the only file of another kind with this stem.
fn find_file(folder: &Path, stem: &str) -> anyhow::Result<PathBuf> {
    let plain = folder.join(format!("{stem}.txt"));
    if plain.exists() {
        return Ok(plain);
    }
    let entries = std::fs::read_dir(folder)
        .map_err(|error| usage(format!("{} is no folder of data: {error}", folder.display())))?;
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        path.is_file() && name.split('.').next() == Some(stem)
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(named).collect();
    found.sort();
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => Err(usage(format!("{}: found no {stem}.txt, nor another {stem} file", folder.display()))),
        many => {
            let names: Vec<String> = many.iter().map(|path| path.display().to_string()).collect();
            Err(usage(format!("several {stem} files ({}): choose one with --{stem}", names.join(", "))))
        }
    }
}

/// How a matrix of runs is measured.
#[derive(Args)]
pub(crate) struct MatrixArguments {
    /// Runs of each method, with the seeds --seed, --seed + 1 and so on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Evaluate after this part of an epoch
    #[arg(long, value_name = "EPOCHS", default_value_t = 0.5, conflicts_with = "eval_iterations")]
    eval_every: f64,
    /// Evaluate after so many steps instead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    eval_iterations: Option<u64>,
    /// Evaluate on so many test examples, chosen at random, instead of all
    #[arg(long, value_name = "N")]
    test_examples: Option<usize>,
    /// End each run after so many seconds of training; evaluation is not counted
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<f64>,
}

impl MatrixArguments {
    /// The seeds of the runs.
    pub(crate) fn seeds(&self, first: u64) -> Vec<u64> {
        (0..self.seeds).map(|i| first.wrapping_add(i)).collect()
    }

    /// What is wrong with the plan must show before data is read.
    pub(crate) fn check(&self, runs: &[PlannedRun]) -> anyhow::Result<()> {
        self.every()?;
        self.time_limit()?;
        for run in runs {
            run.settings.check_values()?;
        }
        Ok(())
    }

    /// How often to evaluate.
    fn every(&self) -> anyhow::Result<Every> {
        match self.eval_iterations {
            Some(steps) => Ok(Every::Iterations(steps)),
            None if self.eval_every.is_finite() && self.eval_every > 0.0 => {
                Ok(Every::Epochs(self.eval_every))
            }
            None => Err(usage(format!("--eval-every is {}, but must be above 0", self.eval_every))),
        }
    }

    fn time_limit(&self) -> anyhow::Result<Option<f64>> {
        match self.time_limit {
            Some(limit) if !(limit.is_finite() && limit > 0.0) => {
                Err(usage(format!("--time-limit is {limit}, but must be above 0 seconds")))
            }
            limit => Ok(limit),
        }
    }
}

/// Training and test examples of a matrix.
pub(crate) struct MatrixData {
    pub(crate) train: Input,
    test: Input,
    /// The chosen test examples and where they stood, if not all are used.
    chosen: Option<(Dataset, Vec<usize>)>,
}

impl MatrixData {
    pub(crate) fn read(experiment: &ExperimentArguments, matrix: &MatrixArguments) -> anyhow::Result<Self> {
        let train = experiment.read_train()?;
        let test = experiment.read_test(&train)?;
        let all = test.view();
        let chosen = matrix.test_examples.filter(|&count| count < all.len()).map(|count| {
            // The same examples whatever the seeds of the runs.
            let inputs = lookalike::experiment::adapt::choose_inputs(&all, count, 0);
            let mut places: Vec<usize> = inputs.into_iter().map(|i| i as usize).collect();
            places.sort_unstable();
            (Dataset::select(all, &places), places)
        });
        Ok(Self { train, test, chosen })
    }

    /// The test examples in use.
    fn test(&self) -> Examples<'_> {
        self.chosen.as_ref().map_or_else(|| self.test.view(), |(data, _)| data.view())
    }

    /// True labels of a test example that training never saw.
    fn unknown_labels(&self, example: usize) -> usize {
        let place = self.chosen.as_ref().map_or(example, |(_, places)| places[example]);
        self.test.unknown_labels(place)
    }

    /// Calls `work` with everything the runs have in common.
    fn with_arena<R>(
        &self,
        matrix: &MatrixArguments,
        cpu: Cpu,
        work: impl FnOnce(&Arena<'_>) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let unknown = |example: usize| self.unknown_labels(example);
        let metrics = MetricOptions::default();
        work(&Arena {
            cpu,
            train: self.train.view(),
            test: self.test(),
            unknown_labels: &unknown,
            every: matrix.every()?,
            metrics: &metrics,
            time_limit_seconds: matrix.time_limit()?,
        })
    }
}

/// Settings that do not fit the data must show before hours of training.
fn check(runs: &[PlannedRun], examples: &Examples<'_>) -> anyhow::Result<()> {
    for run in runs {
        run.settings.check(examples)?;
    }
    Ok(())
}
