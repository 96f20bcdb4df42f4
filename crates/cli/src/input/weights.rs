//! How much examples and classes count in training.

use std::path::PathBuf;

use clap::Args;
use lookalike::data::weights::{read_class_weights, read_weights, with_class_weights};
use lookalike::text::Column;

use super::Input;
use crate::exit::usage;

/// Flags about weights.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Weights")]
pub(crate) struct WeightArguments {
    /// The column or JSON field of text that says how much an example counts
    #[arg(long, value_name = "COLUMN", conflicts_with = "weights")]
    pub(super) weight_column: Option<Column>,
    /// How much each example counts: a file of a number a line; 0 leaves an example out
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// How much the examples of classes count: a file of a class, a tab and a number a
    /// line; others count 1
    #[arg(long, value_name = "FILE")]
    class_weights: Option<PathBuf>,
}

impl WeightArguments {
    /// Gives examples the weights that the files say.
    pub(super) fn weigh(&self, mut input: Input) -> anyhow::Result<Input> {
        if self.weight_column.is_some() && input.view().weights.is_empty() {
            return Err(usage("--weight-column is for text; use --weights with a number a line"));
        }
        if let Some(path) = &self.weights {
            let (weights, examples) = (read_weights(path)?, input.view().len());
            if weights.len() != examples {
                let (path, found) = (path.display(), weights.len());
                return Err(usage(format!(
                    "{path}: found {found} weights, expected one for each of {examples} examples"
                )));
            }
            input.weights = weights;
        }
        if let Some(path) = &self.class_weights {
            let mut of_class = vec![1.0; input.view().num_classes];
            for (class, weight) in read_class_weights(path)? {
                let id = input.class_id(&class).ok_or_else(|| {
                    usage(format!("{}: the training data has no class {class:?}", path.display()))
                })?;
                of_class[id as usize] = weight;
            }
            input.weights = with_class_weights(&input.view(), &of_class);
        }
        Ok(input)
    }
}
