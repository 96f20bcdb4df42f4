//! From what the user names to examples, for training and for a trained model.
//!
//! A file holds numbers (the Extreme Classification format or its packed form),
//! a `.npy` matrix, or text. What it is is told from its content; see [`kind`].
//! A model trained from text always reads text, one trained from numbers never.

mod blocks;
mod kind;
mod stream;
mod vocabulary;
mod weights;

use std::path::{Path, PathBuf};

use clap::Args;
use lookalike::data::{self, Examples, ReadReport, Source};
use lookalike::model::Model;
use lookalike::text::{
    self, Column, LabelNames, Report, SkippedRows, TextDataset, TextOptions, TextPipeline, Vocabulary,
};
use lookalike_report::human;

use crate::exit::usage;
use crate::output::inform_once;
pub(crate) use blocks::TrainingBlocks;
use kind::{InputFormat, Kind, Opened};
pub(crate) use stream::{stream, stream_records, stream_rows};
pub(crate) use vocabulary::{TextArguments, TextSettings};
pub(crate) use weights::WeightArguments;

/// How input is read.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Input")]
pub(crate) struct ReadArguments {
    /// The format of the input [default: told from its content]
    #[arg(long, value_enum, value_name = "NAME")]
    input_format: Option<InputFormat>,
    /// The text's column or JSON field, by name or number from 1 [default: `text`, or the first]
    #[arg(long, value_name = "COLUMN")]
    text_column: Option<Column>,
    /// The labels' column or JSON field [default: `labels` or `label`, or the second]
    #[arg(long, value_name = "COLUMN")]
    labels_column: Option<Column>,
    /// What stands between several labels of a cell
    #[arg(long, value_name = "STRING", default_value = "|")]
    label_separator: String,
    /// What marks a label in fastText's format
    #[arg(long, value_name = "STRING", default_value = "__label__")]
    label_prefix: String,
    /// Whether the first row names the columns: true or false [default: true if a column is asked
    /// for by name or called `text`, `label` or `labels`]
    #[arg(long, value_name = "BOOL")]
    header: Option<bool>,
    /// Quotes are plain characters, not the ends of a field
    #[arg(long)]
    no_quotes: bool,
    /// The labels of a .npy matrix, a line for each of its rows
    #[arg(long, value_name = "FILE")]
    labels_file: Option<PathBuf>,
    /// Leave out rows that can't be read, and say how many; the first row of a text file tells its
    /// format and must be good
    #[arg(long)]
    skip_bad_rows: bool,
}

impl ReadArguments {
    fn of_numbers(&self, target: Option<&Target<'_>>) -> data::ReadOptions {
        data::ReadOptions {
            skip_bad_rows: self.skip_bad_rows,
            num_features: target.map(|target| target.num_features),
            // Where classes have names, a number in a file is a name and no place.
            num_classes: target.filter(|target| target.names.is_none()).map(|target| target.num_classes),
        }
    }

    fn of_text(&self, with_labels: bool) -> text::ReadOptions {
        text::ReadOptions {
            format: self.input_format.and_then(InputFormat::of_text),
            text: self.text_column.clone(),
            labels: self.labels_column.clone(),
            weight: None,
            header: self.header,
            label_separator: self.label_separator.clone(),
            quotes: !self.no_quotes,
            label_prefix: self.label_prefix.clone(),
            with_labels,
            skip_bad_rows: self.skip_bad_rows,
        }
    }

    fn of_text_with(&self, weights: &WeightArguments) -> text::ReadOptions {
        text::ReadOptions { weight: weights.weight_column.clone(), ..self.of_text(true) }
    }

    fn labels_of_matrix(&self, matrix: &Path) -> anyhow::Result<&Path> {
        self.labels_file.as_deref().ok_or_else(|| {
            usage(format!("{} is a matrix: name its labels with --labels-file", matrix.display()))
        })
    }

    /// What a file for a model is: the model's own kind, unless it is a matrix
    /// or the user says otherwise.
    fn kind_for(&self, target: &Target<'_>, detect: impl FnOnce() -> Kind) -> anyhow::Result<Kind> {
        match (self.input_format.map(InputFormat::kind), target.text) {
            (Some(Kind::Text), None) => {
                Err(usage("the model was trained from numbers and can't read text: train it from text"))
            }
            (Some(kind), _) => Ok(kind),
            (None, Some(_)) => {
                if detect() == Kind::Numbers {
                    inform_once!(
                        "note: this looks like rows of numbers, but the model was trained from text and reads it so"
                    );
                }
                Ok(Kind::Text)
            }
            (None, None) => Ok(if detect() == Kind::Matrix { Kind::Matrix } else { Kind::Numbers }),
        }
    }
}

/// Examples from a file.
pub(crate) struct Input {
    source: Source,
    /// How much each example counts, where files of their own say so.
    weights: Vec<f32>,
    /// For each example, its labels that the model does not know; empty if none has any.
    unknown_labels: Vec<u32>,
    text: Option<TextPipeline>,
    names: Option<LabelNames>,
    /// What was understood of a file of text.
    understood: Vec<String>,
}

/// What examples must fit: a model, or the training examples.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    num_features: usize,
    num_classes: usize,
    text: Option<&'a TextPipeline>,
    names: Option<&'a LabelNames>,
}

impl<'a> From<&'a Model> for Target<'a> {
    fn from(model: &'a Model) -> Self {
        let (num_features, num_classes) = (model.num_features(), model.num_classes());
        Self { num_features, num_classes, text: model.text.as_ref(), names: model.names.as_ref() }
    }
}

impl<'a> From<&'a TextPipeline> for Target<'a> {
    fn from(text: &'a TextPipeline) -> Self {
        let (num_features, num_classes) = (text.vectoriser.num_features(), text.names.len());
        Self { num_features, num_classes, text: Some(text), names: None }
    }
}

impl<'a> From<&'a Input> for Target<'a> {
    fn from(input: &'a Input) -> Self {
        let Examples { num_features, num_classes, .. } = input.view();
        Self { num_features, num_classes, text: input.text.as_ref(), names: input.names.as_ref() }
    }
}

impl Input {
    /// The examples.
    pub(crate) fn view(&self) -> Examples<'_> {
        let view = self.source.view();
        if self.weights.is_empty() { view } else { Examples { weights: &self.weights, ..view } }
    }

    /// Whether it was text.
    pub(crate) fn is_text(&self) -> bool {
        !self.understood.is_empty()
    }

    /// How many true labels of an example the model does not know.
    pub(crate) fn unknown_labels(&self, example: usize) -> usize {
        self.unknown_labels.get(example).map_or(0, |&count| count as usize)
    }

    /// How many there are in all.
    pub(crate) fn unknown_labels_total(&self) -> u64 {
        self.unknown_labels.iter().copied().map(u64::from).sum()
    }

    /// What was learnt from the file besides its examples: how text becomes
    /// features, and the names of labels without text.
    pub(crate) fn take_learnt(&mut self) -> (Option<TextPipeline>, Option<LabelNames>) {
        (self.text.take(), self.names.take())
    }

    /// The name of a class, where classes have names.
    pub(crate) fn class_name(&self, class: u32) -> Option<&str> {
        let names = self.text.as_ref().map(|text| &text.names).or(self.names.as_ref());
        names.and_then(|names| names.name(class))
    }

    /// What was understood of the file, a line each.
    pub(crate) fn understood(&self) -> &[String] {
        &self.understood
    }

    /// The examples of several inputs in order, with what was learnt from the first.
    pub(crate) fn join(first: Self, others: &[data::Dataset]) -> Self {
        let all: Vec<usize> = (0..first.view().len()).collect();
        let mut parts = vec![data::Dataset::select(first.view(), &all)];
        parts.extend_from_slice(others);
        let source = Source::Parsed(data::Dataset::concat(&parts));
        Self { source, weights: Vec::new(), ..first }
    }

    /// Gives the examples other weights, one each.
    pub(crate) fn set_weights(&mut self, weights: Vec<f32>) {
        self.weights = weights;
    }

    /// The class of a name, or of a number where classes have no names.
    fn class_id(&self, class: &str) -> Option<u32> {
        let names = self.text.as_ref().map(|text| &text.names).or(self.names.as_ref());
        match names {
            Some(names) => names.id(class),
            None => class.parse().ok().filter(|&id: &u32| (id as usize) < self.view().num_classes),
        }
    }

    fn new(dataset: data::Dataset, report: Report) -> Self {
        let source = Source::Parsed(dataset);
        let (weights, understood) = (Vec::new(), Vec::new());
        Self { source, weights, unknown_labels: report.unseen_labels, text: None, names: None, understood }
    }

    fn of_numbers(file: &Opened, options: &data::ReadOptions) -> anyhow::Result<Self> {
        let (source, report) = file.numbers(options)?;
        tell(file.path(), &report);
        let (weights, unknown_labels, understood) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { source, weights, unknown_labels, text: None, names: None, understood })
    }
}

/// Whether there is a file to read, which may be a pipe: it is not opened.
pub(crate) fn check_file(path: &Path) -> anyhow::Result<()> {
    let problem = match std::fs::metadata(path) {
        _ if path == Path::new("-") => return Ok(()),
        Ok(found) if !found.is_dir() => return Ok(()),
        Ok(_) => "it is a folder".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(usage(format!("cannot read {}: {problem}", path.display())))
}

/// Reads examples to train on; their shape is the model's.
pub(crate) fn for_training(
    path: &Path,
    options: &TextOptions,
    read: &ReadArguments,
    weights: &WeightArguments,
) -> anyhow::Result<Input> {
    training_examples(&Opened::new(path)?, path, options, read, weights)
}

fn training_examples(
    file: &Opened,
    path: &Path,
    options: &TextOptions,
    read: &ReadArguments,
    weights: &WeightArguments,
) -> anyhow::Result<Input> {
    let input = match read.input_format.map_or_else(|| file.kind(), InputFormat::kind) {
        Kind::Numbers => Input::of_numbers(file, &read.of_numbers(None)),
        Kind::Matrix => {
            let labels = read.labels_of_matrix(path)?;
            let (dataset, names, report) = text::dense_dataset(path, labels, &read.label_separator)?;
            check_names(labels, &names, &report)?;
            Ok(Input { names: Some(names), ..Input::new(dataset, report) })
        }
        Kind::Text => {
            let file = file.text(&read.of_text_with(weights))?;
            let understood = file.understanding()?;
            understood.warnings.iter().for_each(|warning| inform_once!("{}: {warning}", path.display()));
            let TextDataset { dataset, vectoriser, names, report } = text::fit_dataset(&file, options)?;
            check_names(path, &names, &report)?;
            check_features(path, dataset.num_features, options)?;
            let text = Some(TextPipeline { vectoriser, names });
            Ok(Input { text, understood: understood.lines, ..Input::new(dataset, report) })
        }
    };
    weights.weigh(input?)
}

/// Texts as such, or examples of numbers.
pub(crate) enum Content {
    Text(text::TextFile),
    Examples(Box<Input>),
}

/// Reads a file whose texts are not to become numbers.
pub(crate) fn content(path: &Path, read: &ReadArguments) -> anyhow::Result<Content> {
    let file = Opened::new(path)?;
    match read.input_format.map_or_else(|| file.kind(), InputFormat::kind) {
        Kind::Text => Ok(Content::Text(file.text(&read.of_text(true))?)),
        _ => Ok(Content::Examples(Box::new(training_examples(
            &file,
            path,
            &TextOptions::default(),
            read,
            &WeightArguments::default(),
        )?))),
    }
}

/// Reads examples that fit a model.
pub(crate) fn for_model<'a>(
    path: &Path,
    target: impl Into<Target<'a>>,
    read: &ReadArguments,
) -> anyhow::Result<Input> {
    for_resuming(path, target, read, &WeightArguments::default())
}

/// Reads examples that fit a model, and how much they count.
pub(crate) fn for_resuming<'a>(
    path: &Path,
    target: impl Into<Target<'a>>,
    read: &ReadArguments,
    weights: &WeightArguments,
) -> anyhow::Result<Input> {
    let (file, target) = (Opened::new(path)?, target.into());
    let input = match (read.kind_for(&target, || file.kind())?, target.text) {
        (Kind::Text, Some(text)) => {
            let file = file.text(&read.of_text_with(weights))?;
            let (dataset, report) = text::transform_dataset(&file, &text.vectoriser, &text.names)?;
            warn(path, &report);
            Ok(Input::new(dataset, report))
        }
        (Kind::Matrix, _) => matrix_for_model(path, &target, read, true),
        _ => {
            let input = Input::of_numbers(&file, &read.of_numbers(Some(&target)))?;
            Ok(match target.names {
                Some(names) => {
                    let (dataset, unknown_labels) = text::by_name(input.view(), names);
                    Input { source: Source::Parsed(dataset), unknown_labels, ..input }
                }
                None => input,
            })
        }
    };
    weights.weigh(input?)
}

/// Reads examples to train a model further: of its shape or of more features and classes,
/// with what was learnt of them.
pub(crate) fn for_further(
    path: &Path,
    model: &Model,
    vocabulary: Vocabulary,
    read: &ReadArguments,
    weights: &WeightArguments,
) -> anyhow::Result<Input> {
    let (file, target) = (Opened::new(path)?, Target::from(model));
    let input = match (read.kind_for(&target, || file.kind())?, target.text, target.names) {
        (Kind::Text, Some(text), _) => {
            let file = file.text(&read.of_text_with(weights))?;
            let TextDataset { dataset, vectoriser, names, report } =
                text::extend_dataset(&file, text, vocabulary)?;
            warn(path, &report);
            Input { text: Some(TextPipeline { vectoriser, names }), ..Input::new(dataset, report) }
        }
        (Kind::Matrix, _, Some(names)) => {
            let labels = read.labels_of_matrix(path)?;
            let (dataset, names, report) =
                text::dense_dataset_extended(path, labels, &read.label_separator, names)?;
            check_columns(path, &dataset, &target)?;
            Input { names: Some(names), ..Input::new(dataset, report) }
        }
        (Kind::Matrix, ..) => return matrix_for_model(path, &target, read, true),
        (_, _, names) => {
            let input = Input::of_numbers(&file, &read.of_numbers(None))?;
            let (mut dataset, names) = match names {
                Some(names) => {
                    let (dataset, names) = text::by_name_growing(input.view(), names)?;
                    (dataset, Some(names))
                }
                None => {
                    (data::Dataset::select(input.view(), &(0..input.view().len()).collect::<Vec<_>>()), None)
                }
            };
            dataset.num_features = dataset.num_features.max(target.num_features);
            dataset.num_classes = dataset.num_classes.max(target.num_classes);
            Input { names, ..Input::new(dataset, Report::default()) }
        }
    };
    weights.weigh(input)
}

/// Reads a matrix to predict, which needs no labels.
fn matrix_to_predict(path: &Path, model: &Model, read: &ReadArguments) -> anyhow::Result<Input> {
    matrix_for_model(path, &model.into(), read, false)
}

fn matrix_for_model(
    path: &Path,
    target: &Target<'_>,
    read: &ReadArguments,
    needs_labels: bool,
) -> anyhow::Result<Input> {
    let names =
        target.names.ok_or_else(|| usage("the model was not trained from a matrix and can't read one"))?;
    let labels = if needs_labels { Some(read.labels_of_matrix(path)?) } else { read.labels_file.as_deref() };
    let (dataset, report) = match labels {
        Some(labels) => text::dense_dataset_with_names(path, labels, &read.label_separator, names)?,
        None => (text::dense_dataset_without_labels(path, names.len())?, Report::default()),
    };
    check_columns(path, &dataset, target)?;
    warn(labels.unwrap_or(path), &report);
    Ok(Input::new(dataset, report))
}

fn check_columns(path: &Path, dataset: &data::Dataset, target: &Target<'_>) -> anyhow::Result<()> {
    let (found, expected) = (dataset.num_features, target.num_features);
    if found == expected {
        return Ok(());
    }
    let path = path.display();
    Err(usage(format!("{path}: found {found} columns, expected the model's {expected}")))
}

/// A classifier that knows one answer is none.
fn check_names(path: &Path, names: &LabelNames, report: &Report) -> anyhow::Result<()> {
    let path = path.display();
    match (names.len(), names.name(0)) {
        (0, _) => Err(usage(format!("{path}: none of its {} examples has a label", report.examples))),
        (1, Some(name)) => Err(usage(format!(
            "{path}: {name:?} is the only label of its {} examples; training needs at least two",
            report.examples
        ))),
        _ => {
            warn(Path::new(&path.to_string()), report);
            Ok(())
        }
    }
}

fn check_features(path: &Path, num_features: usize, options: &TextOptions) -> anyhow::Result<()> {
    if num_features > 0 {
        return Ok(());
    }
    Err(usage(format!(
        "{}: no n-gram occurs in {} texts or more; give more texts, or a smaller --min-documents",
        path.display(),
        options.min_documents
    )))
}

fn warn(path: &Path, report: &Report) {
    tell_skipped(path, &report.skipped);
    for warning in report.warnings() {
        inform_once!("{}: {warning}", path.display());
    }
}

fn tell(path: &Path, report: &ReadReport) {
    for note in &report.notes {
        inform_once!("{note}");
    }
    let first_errors = report.first_errors.iter().map(ToString::to_string).collect();
    tell_skipped(path, &SkippedRows { rows: report.bad_rows, first_errors });
}

/// Says which rows were left out, if any was.
pub(crate) fn tell_skipped(path: &Path, skipped: &SkippedRows) {
    if skipped.rows > 0 {
        inform_once!("{}: {} left out, the first:", path.display(), human::counted(skipped.rows, "bad row"));
        for error in &skipped.first_errors {
            inform_once!("  {error}");
        }
    }
}
