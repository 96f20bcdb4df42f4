//! The settings of a run as flags and as a file.

use std::path::Path;

use anyhow::Context;
use clap::Args;
use lookalike::experiment::Method;
use lookalike::loss::Loss;
use lookalike::sampling::SamplerKind;
use lookalike::train::TrainConfig;
use serde::de::DeserializeOwned;

use crate::exit::usage;
use crate::input::TextSettings;

fn samplers() -> String {
    let names: Vec<_> = SamplerKind::ALL.map(SamplerKind::name).into();
    format!("Who proposes negatives: {}, nce", names.join(", "))
}

/// Flags that override the settings; none has a default of its own, so that a
/// preset or a file shows through.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Settings")]
pub(crate) struct SettingArguments {
    #[arg(long, value_name = "NAME", help = samplers())]
    sampler: Option<Method>,
    /// Negatives an example; chooses the tables' K and L unless they are given
    #[arg(long, value_name = "N")]
    budget: Option<usize>,
    /// Classes that the hash tables may give an example; the best --budget of them are
    /// trained on, all with 0, as in the paper
    #[arg(long, value_name = "N")]
    retrieve: Option<usize>,
    /// Negatives as a share of all classes, instead of --budget
    #[arg(long, value_name = "SHARE", conflicts_with = "budget")]
    sparsity: Option<f64>,
    /// Correct scores by the logarithm of the sampling probability: true or false
    #[arg(long, value_name = "BOOL")]
    log_q: Option<bool>,
    /// The loss: softmax, softmax-each (each label against negatives alone), logistic or nce
    #[arg(long, value_name = "NAME", value_parser = named::<Loss>)]
    loss: Option<Loss>,
    /// Labels of an example that count, at most: it counts once for each
    #[arg(long, value_name = "N")]
    labels_counted: Option<usize>,
    /// Members of the committee that the last hidden layer is divided among, each with a loss
    /// of its own; their mean answers
    #[arg(long, value_name = "N")]
    members: Option<usize>,
    /// The mixed sampler's share of negatives from the tables, 0 to 1
    #[arg(long, value_name = "SHARE")]
    hashed_share: Option<f64>,
    /// What the mixed sampler asks its tables with: embedding, label or both
    #[arg(long, value_name = "NAME", value_parser = named::<lookalike::sampling::MixedQuery>)]
    hashed_query: Option<lookalike::sampling::MixedQuery>,
    /// Passes over the training data
    #[arg(long, value_name = "E")]
    epochs: Option<usize>,
    /// Shuffle only so many examples at a time, in blocks, for data larger than memory
    #[arg(long, value_name = "N")]
    shuffle_window: Option<usize>,
    /// Cut each example's gradient of its embedding to this length
    #[arg(long, value_name = "LENGTH")]
    clip: Option<f32>,
    /// Examples a step
    #[arg(long, value_name = "B")]
    batch: Option<usize>,
    /// Width of the hidden layer; several, separated by commas, for several layers
    #[arg(long, value_name = "D,…", value_delimiter = ',')]
    hidden: Option<Vec<usize>>,
    /// What hidden units do: relu or linear
    #[arg(long, value_name = "NAME", value_parser = named::<lookalike::model::Activation>)]
    activation: Option<lookalike::model::Activation>,
    /// What is done to an example's values first: l2 or none
    #[arg(long, value_name = "NAME", value_parser = named::<lookalike::model::Normalise>)]
    normalise: Option<lookalike::model::Normalise>,
    /// Spread of initial input weights, times 1/sqrt(hidden)
    #[arg(long, value_name = "S")]
    input_scale: Option<f32>,
    /// Spread of initial class vectors, times 1/sqrt(hidden)
    #[arg(long, value_name = "S")]
    output_scale: Option<f32>,
    /// Where vectors of classes start: examples (the mean embedding of a class's own) or random
    #[arg(long, value_name = "NAME", value_parser = named::<lookalike::train::ClassStart>)]
    class_start: Option<lookalike::train::ClassStart>,
    /// How parameters are stored: f32, or bf16 at half the memory
    #[arg(long, value_name = "NAME", value_parser = named::<lookalike::model::Storage>)]
    storage: Option<lookalike::model::Storage>,
    /// Learning rate
    #[arg(long, value_name = "R")]
    lr: Option<f32>,
    /// How the learning rate moves: constant, linear or cosine
    #[arg(long, value_name = "NAME", value_parser = named::<lookalike::train::RateSchedule>)]
    lr_schedule: Option<lookalike::train::RateSchedule>,
    /// Steps over which the learning rate first rises
    #[arg(long, value_name = "STEPS")]
    warmup: Option<u64>,
    /// Moments of untouched rows: lazy or exact
    #[arg(long, value_name = "NAME", value_parser = named::<lookalike::optim::Decay>)]
    adam: Option<lookalike::optim::Decay>,
    /// Decides all that is random
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// The hash family: dwta or simhash
    #[arg(long, value_name = "NAME", value_parser = named::<lookalike::hashing::Family>)]
    hash: Option<lookalike::hashing::Family>,
    /// K: hash functions a table
    #[arg(long, value_name = "K")]
    functions: Option<usize>,
    /// L: hash tables
    #[arg(long, value_name = "L")]
    tables: Option<usize>,
    /// Dimensions in a bin of DWTA
    #[arg(long, value_name = "N")]
    bin: Option<usize>,
    /// How bucket codes are put together: clean, or overlapped as in the paper's code
    #[arg(long, value_name = "NAME", value_parser = named::<lookalike::hashing::Codes>)]
    codes: Option<lookalike::hashing::Codes>,
    /// Steps until the tables are first refreshed
    #[arg(long, value_name = "STEPS")]
    refresh: Option<u64>,
    /// Each further period is this much longer
    #[arg(long, value_name = "FACTOR")]
    refresh_growth: Option<f64>,
    /// Re-hash only what changed: never, always or auto
    #[arg(long, value_name = "NAME", value_parser = named::<lookalike::hashing::Incremental>)]
    incremental: Option<lookalike::hashing::Incremental>,
    /// Hold out examples so that probabilities mean what they say: true or false
    #[arg(long, value_name = "BOOL")]
    calibrate: Option<bool>,
    /// How queries walk the tables: once, widening (again with fewer functions where they give
    /// too few; the default where the best of many are selected), or paper (its algorithm 3 to
    /// the letter: tables in order, whole buckets)
    #[arg(long, value_name = "NAME", value_parser = named::<lookalike::sampling::Walk>)]
    walk: Option<lookalike::sampling::Walk>,
    /// Hash class vectors less their mean, which helps with ReLU where all that the tables
    /// give is trained on: true or false
    #[arg(long, value_name = "BOOL")]
    centre: Option<bool>,
    /// Draw uniformly what the tables do not give
    #[arg(long)]
    fill: bool,
    /// Give classes sparse weights on the features of their own examples: true or false
    #[arg(long, value_name = "BOOL")]
    sparse: Option<bool>,
    /// The first epochs, so many, that train the sparse weights; by default all
    #[arg(long, value_name = "E")]
    sparse_epochs: Option<usize>,
    /// Learning rate of the sparse weights; a fiftieth of it if they start from logarithms
    #[arg(long, value_name = "R")]
    sparse_lr: Option<f32>,
    /// Nearest classes by sparse weights that are negatives
    #[arg(long, value_name = "N")]
    sparse_negatives: Option<usize>,
    /// Keep the training examples in a model with sparse weights, if classes are
    /// then ranked better by the nearest of them: true or false
    #[arg(long, value_name = "BOOL")]
    neighbours: Option<bool>,
}

/// Reads a value by the name it has in configuration files.
fn named<T: DeserializeOwned>(name: &str) -> Result<T, String> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

impl SettingArguments {
    /// Overrides what was given; whether it means something, the library says.
    pub(crate) fn apply(&self, config: &mut TrainConfig) {
        fn set<T: Clone>(slot: &mut T, value: &Option<T>) {
            if let Some(value) = value {
                *slot = value.clone();
            }
        }
        if let Some(method) = self.sampler {
            method.apply(config);
        }
        if self.loss.is_some() {
            config.loss = self.loss;
        }
        set(&mut config.labels_counted, &self.labels_counted);
        set(&mut config.members, &self.members);
        if self.budget.is_some() || self.sparsity.is_some() {
            (config.budget, config.sparsity) = (self.budget, self.sparsity);
        }
        if self.retrieve.is_some() {
            config.retrieve = self.retrieve;
        }
        if self.log_q.is_some() {
            config.log_q = self.log_q;
        }
        set(&mut config.mixed.hashed_share, &self.hashed_share);
        set(&mut config.mixed.query, &self.hashed_query);
        set(&mut config.epochs, &self.epochs);
        set(&mut config.batch, &self.batch);
        set(&mut config.hidden, &self.hidden);
        set(&mut config.activation, &self.activation);
        set(&mut config.normalise, &self.normalise);
        set(&mut config.init.input_scale, &self.input_scale);
        set(&mut config.init.output_scale, &self.output_scale);
        set(&mut config.class_start, &self.class_start);
        set(&mut config.storage, &self.storage);
        set(&mut config.lr, &self.lr);
        set(&mut config.lr_schedule, &self.lr_schedule);
        set(&mut config.warmup, &self.warmup);
        if self.shuffle_window.is_some() {
            config.shuffle_window = self.shuffle_window;
        }
        if self.clip.is_some() {
            config.clip = self.clip;
        }
        set(&mut config.adam.decay, &self.adam);
        set(&mut config.calibrate, &self.calibrate);
        set(&mut config.seed, &self.seed);
        let lsh = &mut config.lsh;
        set(&mut lsh.family, &self.hash);
        set(&mut lsh.k, &self.functions.map(Some));
        set(&mut lsh.l, &self.tables.map(Some));
        set(&mut lsh.bin, &self.bin);
        set(&mut lsh.codes, &self.codes);
        set(&mut lsh.refresh_first, &self.refresh);
        set(&mut lsh.refresh_growth, &self.refresh_growth);
        set(&mut lsh.incremental, &self.incremental);
        set(&mut lsh.walk, &self.walk.map(Some));
        set(&mut lsh.centre, &self.centre);
        lsh.fill |= self.fill;
        if let Some(wanted) = self.sparse {
            config.sparse = wanted.then(|| config.sparse.unwrap_or_default());
        }
        if let Some(sparse) = &mut config.sparse {
            set(&mut sparse.epochs, &self.sparse_epochs.map(Some));
            set(&mut sparse.rate, &self.sparse_lr);
            set(&mut sparse.negatives, &self.sparse_negatives);
            set(&mut sparse.neighbours, &self.neighbours);
        }
    }
}

/// All that a settings file holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// How the model is trained.
    pub(crate) training: TrainConfig,
    /// How text becomes features: the table `[text]`.
    pub(crate) text: TextSettings,
}

const TEXT: &str = "text";

impl Settings {
    /// Defaults, preset and file, each overriding the one before; flags come after.
    pub(crate) fn base(preset: Option<&str>, file: Option<&Path>) -> anyhow::Result<Self> {
        let training = preset.map(TrainConfig::preset).transpose()?.unwrap_or_default();
        Self { training, ..Self::default() }.with(file)
    }

    /// With what a file overrides, if there is one.
    pub(crate) fn with(self, file: Option<&Path>) -> anyhow::Result<Self> {
        file.map_or_else(|| Ok(self.clone()), |path| self.with_file(path))
    }

    /// Reads a TOML file; what it does not name stays as in `self`.
    fn with_file(&self, path: &Path) -> anyhow::Result<Self> {
        let content = std::fs::read_to_string(path)
            .map_err(|error| usage(format!("cannot read the settings {}: {error}", path.display())))?;
        let parse = || -> anyhow::Result<Self> {
            let mut table = self.to_table()?;
            merge(&mut table, content.parse::<toml::Table>()?);
            let text = table.remove(TEXT).unwrap_or_else(|| toml::Table::new().into()).try_into()?;
            Ok(Self { training: table.try_into()?, text })
        };
        parse().map_err(|error| usage(format!("{}: {error}", path.display()))).context("bad settings")
    }

    /// As a TOML file.
    pub(crate) fn to_toml(&self) -> anyhow::Result<String> {
        Ok(toml::to_string(&self.to_table()?)?)
    }

    fn to_table(&self) -> anyhow::Result<toml::Table> {
        let mut table = toml::Table::try_from(&self.training)?;
        table.insert(TEXT.into(), toml::Value::try_from(&self.text)?);
        table.iter_mut().for_each(|(_, value)| as_people_write(value));
        Ok(table)
    }
}

/// Numbers of 32 bits as the shortest decimals that mean them: 0.01, not
/// 0.009999999776482582.
fn as_people_write(value: &mut toml::Value) {
    match value {
        toml::Value::Float(number) => {
            let narrow = *number as f32;
            if f64::from(narrow) == *number {
                *number = narrow.to_string().parse().unwrap_or(*number);
            }
        }
        toml::Value::Array(values) => values.iter_mut().for_each(as_people_write),
        toml::Value::Table(table) => table.iter_mut().for_each(|(_, value)| as_people_write(value)),
        _ => {}
    }
}

fn merge(into: &mut toml::Table, from: toml::Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(toml::Value::Table(old)), toml::Value::Table(new)) => merge(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}
