//! Examples as they come, for `predict`: whatever whole lines one read gives are
//! a block, so a program that writes line by line is answered line by line, and
//! memory does not grow with the length of the input.

use std::path::Path;

use lookalike::data::open::STDIN;
use lookalike::data::packed::MAGIC;
use lookalike::data::{Blocks, Examples, ReadReport};
use lookalike::model::Model;
use lookalike::text::{Record, RecordBlocks, TextBlocks};
use lookalike_report::human;

use super::blocks::add;
use super::kind::{self, Kind};
use super::{ReadArguments, Target, for_model, matrix_to_predict, tell, tell_skipped};
use crate::output::inform;

/// Calls `use_block` with the examples for a model, some at a time.
pub(crate) fn stream(
    path: &Path,
    model: &Model,
    read: &ReadArguments,
    mut use_block: impl FnMut(&Examples<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let is_pipe = path == Path::new(STDIN) || !path.is_file();
    let head = if is_pipe { Vec::new() } else { kind::head(path).unwrap_or_default() };
    let target = Target::from(model);
    // Nothing is known yet of what comes through a pipe.
    let detect = || if head.is_empty() { Kind::Text } else { kind::kind_of(&head) };
    match (read.kind_for(&target, detect)?, target.text) {
        (Kind::Text, Some(text)) => {
            let blocks = TextBlocks::open(path, read.of_text(false), &text.vectoriser)?;
            stream_text(path, blocks, use_block)
        }
        (Kind::Numbers, _) if !head.starts_with(MAGIC) => stream_numbers(path, &target, read, use_block),
        (Kind::Matrix, _) => use_block(&matrix_to_predict(path, model, read)?.view()),
        // A packed file is mapped, so it costs no memory either; a matrix is read whole.
        _ => use_block(&for_model(path, model, read)?.view()),
    }
}

/// Calls `use_block` with texts as they stand, some at a time.
pub(crate) fn stream_records(
    path: &Path,
    read: &ReadArguments,
    mut use_block: impl FnMut(Vec<Record>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut blocks = RecordBlocks::open(path, read.of_text(false))?;
    blocks.by_ref().try_for_each(|block| use_block(block?))?;
    tell_skipped(path, blocks.skipped());
    Ok(())
}

/// Calls `use_block` with rows of numbers for a model of this shape, some at a time.
pub(crate) fn stream_rows(
    path: &Path,
    (num_features, num_classes): (usize, usize),
    read: &ReadArguments,
    use_block: impl FnMut(&Examples<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    stream_numbers(path, &Target { num_features, num_classes, text: None, names: None }, read, use_block)
}

fn stream_numbers(
    path: &Path,
    target: &Target<'_>,
    read: &ReadArguments,
    mut use_block: impl FnMut(&Examples<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut total = ReadReport::default();
    for block in Blocks::open(path, &read.of_numbers(Some(target)))? {
        let (data, report) = block?;
        use_block(&data.view())?;
        add(&mut total, report);
    }
    tell(path, &total);
    Ok(())
}

fn stream_text(
    path: &Path,
    mut blocks: TextBlocks<'_>,
    mut use_block: impl FnMut(&Examples<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut featureless = 0;
    for block in blocks.by_ref() {
        let block = block?;
        for line in block.featureless_lines() {
            featureless += 1;
            if featureless == 1 {
                inform!(
                    "{}:{line}: this text has no known feature; the prediction is the prior, the model's answer \
                     to an empty text",
                    path.display(),
                );
            }
        }
        use_block(&block.data.view())?;
    }
    tell_skipped(path, blocks.skipped());
    if featureless > 1 {
        let count = human::count(featureless);
        inform!("{}: {count} texts have no known feature and got the prior", path.display());
    }
    Ok(())
}
