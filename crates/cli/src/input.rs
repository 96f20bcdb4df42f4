//! From what the user names to examples, for training and for a trained model.

use std::path::Path;

use clap::Args;
use lookalike::artifact::Model;
use lookalike::data::{Examples, ReadOptions, ReadReport, Source};
use lookalike::text::TextPipeline;
use lookalike_report::human;

/// How input is read.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Input")]
pub(crate) struct ReadArguments {
    /// Leave out rows that can't be read, and say how many
    #[arg(long)]
    skip_bad_rows: bool,
}

/// How text becomes features.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Text")]
pub(crate) struct TextArguments {}

/// Examples from a file.
pub(crate) struct Input {
    source: Source,
}

impl Input {
    /// The examples.
    pub(crate) fn view(&self) -> Examples<'_> {
        self.source.view()
    }

    /// How many true labels of an example the model does not know.
    pub(crate) fn unknown_labels(&self, _example: usize) -> usize {
        0
    }

    /// How text became features, if it was text.
    pub(crate) fn text(&self) -> Option<TextPipeline> {
        None
    }
}

/// Reads examples to train on; their shape is the model's.
pub(crate) fn for_training(path: &Path, _: &TextArguments, read: &ReadArguments) -> anyhow::Result<Input> {
    load(path, &ReadOptions { skip_bad_rows: read.skip_bad_rows, ..ReadOptions::default() })
}

/// Reads examples for a model, whose shape they must fit.
pub(crate) fn for_model(path: &Path, model: &Model, read: &ReadArguments) -> anyhow::Result<Input> {
    let shape = &model.network.config;
    let options = ReadOptions {
        skip_bad_rows: read.skip_bad_rows,
        num_features: Some(shape.num_features),
        num_classes: Some(shape.num_classes),
    };
    load(path, &options)
}

/// Calls `use_batch` with the examples for a model, some at a time.
pub(crate) fn stream(
    path: &Path,
    model: &Model,
    read: &ReadArguments,
    batch: usize,
    mut use_batch: impl FnMut(&Examples<'_>, &[u32]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let input = for_model(path, model, read)?;
    let examples = input.view();
    let all: Vec<u32> = (0..examples.len() as u32).collect();
    all.chunks(batch).try_for_each(|batch| use_batch(&examples, batch))
}

fn load(path: &Path, options: &ReadOptions) -> anyhow::Result<Input> {
    let (source, report) = Source::load(path, options)?;
    tell_bad_rows(path, &report);
    Ok(Input { source })
}

fn tell_bad_rows(path: &Path, report: &ReadReport) {
    if report.bad_rows > 0 {
        eprintln!("{}: {} bad rows left out, the first:", path.display(), human::count(report.bad_rows));
        for error in &report.first_errors {
            eprintln!("  {error}");
        }
    }
}
