//! `lookalike data …`: look at, split, even out, generate, pack and vectorise data sets.

mod streamed;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use lookalike::data::error::DataError;
use lookalike::data::open::STDIN;
use lookalike::data::split::{TestSize, split, split_places};
use lookalike::data::stats::Stats;
use lookalike::data::synth::{SynthOptions, synth};
use lookalike::data::uniform::{UniformOptions, UniformPlan};
use lookalike::data::write::atomically;
use lookalike::data::{Examples, write_text};
use lookalike::text::{Record, TextFile};
use lookalike_report::human;

use crate::input::{self, Content, Input, ReadArguments, TextArguments, TextSettings, WeightArguments};
use crate::output::inform;

/// Look at, split, even out, generate and pack data sets.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Print sizes, rows and label frequencies of a data set
    Stats(StatsArgs),
    /// Split a data set at random into train.txt and test.txt
    Split(SplitArgs),
    /// Down-sample frequent classes until label frequencies are near uniform
    Uniform(UniformArgs),
    /// Generate a learnable data set as train.txt and test.txt
    Synth(SynthArgs),
    /// Write a data set in the packed binary format, which opens at once
    Pack(PackArgs),
    /// Write text as examples of numbers, for other tools
    Vectorise(VectoriseArgs),
}

/// Print sizes, rows and label frequencies of a data set.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  lookalike data stats train.txt.gz
  zcat train.txt.gz | lookalike data stats - --json")]
pub(crate) struct StatsArgs {
    /// A file of any format that `train` reads, plain, .gz or .zst; - is standard input
    file: PathBuf,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    read: ReadArguments,
}

/// Split a data set at random into DIR/train.txt and DIR/test.txt.
///
/// Text with label names becomes DIR/train.jsonl and DIR/test.jsonl, an object a line
/// with `text` and `labels`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  lookalike data split all.txt --test-fraction 0.1 --out data
  lookalike data split all.txt --test-count 10000 --seed 7 --out data
  lookalike data split titles.csv --text-column title --labels-column subjects --out data")]
pub(crate) struct SplitArgs {
    /// The data set to split, or - for standard input
    file: PathBuf,
    /// The share of examples that go to the test set
    #[arg(long, default_value_t = 0.1, conflicts_with = "test_count")]
    test_fraction: f64,
    /// The number of examples that go to the test set
    #[arg(long)]
    test_count: Option<usize>,
    #[command(flatten)]
    output: RandomOutput,
    #[command(flatten)]
    read: ReadArguments,
}

/// Down-sample frequent classes until label frequencies are near uniform.
///
/// Classes that occur fewer than --min-count times in TRAIN are dropped; of the
/// others at most --cap label occurrences are kept, drawn at random. Examples
/// left without labels are dropped, and classes renumbered. DIR/classes.txt
/// holds the old id (of text: the name) of each new class, one a line. By default the cap is twice
/// the minimum, and the minimum is the one that keeps most labels.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  lookalike data uniform train.txt --test test.txt --out uniform
  lookalike data uniform train.txt --cap 20 --min-count 10 --out uniform")]
pub(crate) struct UniformArgs {
    /// The training set, whose label frequencies decide
    train: PathBuf,
    /// A test set to treat the same way
    #[arg(long)]
    test: Option<PathBuf>,
    /// The most occurrences of a class in the training set
    #[arg(long)]
    cap: Option<u64>,
    /// The fewest occurrences of a class in the training set
    #[arg(long)]
    min_count: Option<u64>,
    #[command(flatten)]
    output: RandomOutput,
    #[command(flatten)]
    read: ReadArguments,
}

/// Generate a learnable data set as DIR/train.txt and DIR/test.txt.
///
/// Classes stand in clusters that share features, so that hard negatives exist.
/// Sizes come from a preset (the shapes of the paper's Table 1) or from the
/// other options, which override the preset.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  lookalike data synth --preset amazon-670k --out amazon
  lookalike data synth --classes 20000 --features 40000 --train 400000 --test 20000 --out data
  lookalike data synth --classes 20000 --uniform-labels --seed 2 --out data")]
pub(crate) struct SynthArgs {
    /// The shape of a data set of the paper
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(lookalike::data::synth::PRESETS))]
    preset: Option<String>,
    /// Number of classes [default: 20000]
    #[arg(long)]
    classes: Option<usize>,
    /// Number of features [default: 40000]
    #[arg(long)]
    features: Option<usize>,
    /// Training examples [default: 400000]
    #[arg(long)]
    train: Option<usize>,
    /// Test examples [default: 20000]
    #[arg(long)]
    test: Option<usize>,
    /// Mean number of labels an example [default: 1.5]
    #[arg(long, value_name = "MEAN")]
    labels_per_example: Option<f64>,
    /// Mean number of features an example [default: 40]
    #[arg(long, value_name = "MEAN")]
    features_per_example: Option<f64>,
    /// How unevenly labels occur: 0 is uniform, towards 1 a steeper power law [default: 0.6]
    #[arg(long, value_name = "EXPONENT")]
    label_skew: Option<f64>,
    /// All classes equally often: the same as --label-skew 0
    #[arg(long, conflicts_with = "label_skew")]
    uniform_labels: bool,
    /// The share of examples that nobody can get right [default: 0.1]
    #[arg(long, value_name = "SHARE")]
    noise: Option<f64>,
    /// Classes that share features [default: 32]
    #[arg(long, value_name = "CLASSES")]
    classes_per_cluster: Option<usize>,
    #[command(flatten)]
    output: RandomOutput,
}

/// Where data goes that chance had a hand in.
#[derive(Args, Debug)]
struct RandomOutput {
    /// The folder to write to; made if need be
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Another seed, another choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Write a data set in the packed binary format, which opens at once.
///
/// Every command reads packed files wherever it reads text. Memory does not grow with the
/// file; a matrix is held, and so is text that comes through a pipe, since it is read twice.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  lookalike data pack train.txt.gz --out train.lkp")]
pub(crate) struct PackArgs {
    /// The data set to pack, or - for standard input
    file: PathBuf,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    read: ReadArguments,
}

/// Write text as examples of numbers, for other tools.
///
/// DIR/train.txt is the text in the Extreme Classification format, as `train` sees it;
/// DIR/vocabulary.txt has the name of each feature, DIR/labels.txt that of each class, a
/// line each, DIR/vectoriser.json how texts became features.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  lookalike data vectorise names.tsv --out data
  lookalike data vectorise names.tsv --test more.tsv --words 1-2 --out data")]
pub(crate) struct VectoriseArgs {
    /// The texts with their labels; - is standard input
    file: PathBuf,
    /// Texts that become DIR/test.txt, with the same features
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    /// The folder to write to; made if need be
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    text: TextArguments,
    #[command(flatten)]
    read: ReadArguments,
}

/// Runs a data command. Results go to standard output, the rest to standard
/// error.
pub(crate) fn run(command: DataCommand) -> Result<()> {
    match command {
        DataCommand::Stats(args) => run_stats(&args),
        DataCommand::Split(args) => run_split(&args),
        DataCommand::Uniform(args) => run_uniform(&args),
        DataCommand::Synth(args) => run_synth(&args),
        DataCommand::Pack(args) => streamed::run_pack(&args),
        DataCommand::Vectorise(args) => streamed::run_vectorise(&args),
    }
}

fn run_stats(args: &StatsArgs) -> Result<()> {
    let source = load(&args.file, &args.read)?;
    let stats = Stats::of(source.view());
    let text = if args.json { serde_json::to_string(&stats)? + "\n" } else { stats.to_string() };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn run_split(args: &SplitArgs) -> Result<()> {
    let size = match args.test_count {
        Some(count) => TestSize::Count(count),
        None => TestSize::Fraction(args.test_fraction),
    };
    let outputs = Outputs::in_folder(&args.output.out, &["train.txt", "test.txt"], &[&args.file])?;
    let source = match input::content(&args.file, &args.read)? {
        Content::Text(file) => return split_text(args, size, &file),
        Content::Examples(source) => source,
    };
    let (train, test) = split(source.view(), size, args.output.seed)?;
    outputs.write_text(0, train.view())?;
    outputs.write_text(1, test.view())
}

/// Texts stay texts: features are learnt from the training part alone, later.
fn split_text(args: &SplitArgs, size: TestSize, file: &TextFile) -> Result<()> {
    let outputs = Outputs::in_folder(&args.output.out, &["train.jsonl", "test.jsonl"], &[&args.file])?;
    let (records, skipped) = file.read()?;
    input::tell_skipped(&args.file, &skipped);
    let (train, test) = split_places(records.len(), size, args.output.seed)?;
    for (output, places) in [train, test].iter().enumerate() {
        outputs.write_with(output, |out| {
            places.iter().try_for_each(|&place| {
                let Record { text, labels, .. } = &records[place];
                writeln!(out, "{}", serde_json::json!({ "text": text, "labels": labels }))
            })
        })?;
    }
    Ok(())
}

fn run_uniform(args: &UniformArgs) -> Result<()> {
    let inputs: Vec<&Path> =
        [Some(&args.train), args.test.as_ref()].into_iter().flatten().map(|p| p.as_path()).collect();
    let outputs = Outputs::in_folder(&args.output.out, &["train.txt", "test.txt", "classes.txt"], &inputs)?;
    let train = load(&args.train, &args.read)?;
    let test = args.test.as_ref().map(|path| input::for_model(path, &train, &args.read)).transpose()?;
    let options = UniformOptions { cap: args.cap, min_count: args.min_count, seed: args.output.seed };
    let plan = UniformPlan::new(train.view(), &options)?;
    inform!(
        "{} of {} classes are kept, with {} to {} occurrences each",
        plan.old_classes.len(),
        train.view().num_classes,
        plan.min_count,
        plan.cap
    );
    outputs.write_text(0, plan.train_set(train.view()).view())?;
    if let Some(test) = test {
        outputs.write_text(1, plan.test_set(test.view()).view())?;
    }
    outputs.write_with(2, |out| {
        plan.old_classes.iter().try_for_each(|&class| match train.class_name(class) {
            Some(name) => writeln!(out, "{name}"),
            None => writeln!(out, "{class}"),
        })
    })
}

fn run_synth(args: &SynthArgs) -> Result<()> {
    let outputs = Outputs::in_folder(&args.output.out, &["train.txt", "test.txt"], &[])?;
    let base = args.preset.as_deref().and_then(SynthOptions::preset).unwrap_or_default();
    let label_skew = if args.uniform_labels { Some(0.0) } else { args.label_skew };
    let (train, test) = synth(&SynthOptions {
        classes: args.classes.unwrap_or(base.classes),
        features: args.features.unwrap_or(base.features),
        train: args.train.unwrap_or(base.train),
        test: args.test.unwrap_or(base.test),
        labels_per_example: args.labels_per_example.unwrap_or(base.labels_per_example),
        features_per_example: args.features_per_example.unwrap_or(base.features_per_example),
        label_skew: label_skew.unwrap_or(base.label_skew),
        noise: args.noise.unwrap_or(base.noise),
        classes_per_cluster: args.classes_per_cluster.unwrap_or(base.classes_per_cluster),
        seed: args.output.seed,
    })?;
    outputs.write_text(0, train.view())?;
    outputs.write_text(1, test.view())
}

/// Reads a data set of any format, text with the features that `train` gives it by
/// default.
fn load(path: &Path, read: &ReadArguments) -> Result<Input> {
    input::for_training(path, &TextSettings::default().options(), read, &WeightArguments::default())
}

/// The files of a folder that a command will write. The folder is made with
/// the first of them, when all input has been read and found good.
struct Outputs {
    folder: PathBuf,
    files: Vec<PathBuf>,
}

impl Outputs {
    fn in_folder(folder: &Path, names: &[&str], inputs: &[&Path]) -> Result<Self> {
        let files: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
        for file in &files {
            refuse_to_overwrite(file, inputs)?;
        }
        Ok(Self { folder: folder.to_owned(), files })
    }

    fn write_text(&self, file: usize, examples: Examples<'_>) -> Result<()> {
        self.make_folder()?;
        write_text(&self.files[file], examples)?;
        report_written(&self.files[file], examples);
        Ok(())
    }

    fn write_with(
        &self,
        file: usize,
        fill: impl FnOnce(&mut std::io::BufWriter<lookalike::data::write::Writer<'_>>) -> std::io::Result<()>,
    ) -> Result<()> {
        self.make_folder()?;
        atomically(&self.files[file], fill)?;
        inform!("wrote {}", self.files[file].display());
        Ok(())
    }

    fn make_folder(&self) -> Result<()> {
        std::fs::create_dir_all(&self.folder)
            .with_context(|| format!("{}: cannot make the folder", self.folder.display()))
    }
}

/// A command never replaces what it reads.
fn refuse_to_overwrite(output: &Path, inputs: &[&Path]) -> Result<()> {
    // Paths can name the same file in many ways; an output that does not exist
    // yet cannot be an input.
    let Ok(existing) = output.canonicalize() else {
        return Ok(());
    };
    for input in inputs.iter().filter(|input| **input != Path::new(STDIN)) {
        if input.canonicalize().is_ok_and(|input| input == existing) {
            return Err(DataError::Option(format!(
                "{}: would be read and overwritten; choose another output",
                output.display()
            ))
            .into());
        }
    }
    Ok(())
}

fn report_written(path: &Path, examples: Examples<'_>) {
    inform!(
        "wrote {}: {} examples, {} features, {} classes",
        path.display(),
        human::count(examples.len() as u64),
        human::count(examples.num_features as u64),
        human::count(examples.num_classes as u64)
    );
}
