//! `train --from`: going on with new data.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lookalike::artifact::{self, SavedModel};
use lookalike::data::Dataset;
use lookalike::model::{Model, Normalise};
use lookalike::text::Vocabulary;
use lookalike::train::{FurtherData, Trainer, rehearsed};
use lookalike_report::human;

use super::TrainArguments;
use crate::exit::usage;
use crate::input::{self, Input};

/// Flags of going on with new data.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Going on with new data")]
pub(crate) struct FurtherArguments {
    /// Train this model further, with a new training state; classes and features it does
    /// not know get rows of their own. Its settings hold where no flag is given
    #[arg(long, value_name = "MODEL", requires = "model")]
    #[arg(conflicts_with_all = ["resume", "preset", "config", "print_config"])]
    pub(super) from: Option<PathBuf>,
    /// Whether n-grams of the new texts become features and count in the idf of old ones
    /// [default: grow]
    #[arg(long, value_enum, value_name = "NAME", requires = "from")]
    vocabulary: Option<VocabularyName>,
    /// Leave the rows of known features as they are
    #[arg(long, requires = "from")]
    freeze_input: bool,
    /// Train on this share of the earlier examples again, so that old classes are not
    /// forgotten [default: 0.25 where the model keeps examples or --rehearse-from is given]
    #[arg(long, value_name = "SHARE", requires = "from")]
    rehearse: Option<f64>,
    /// The earlier examples, where the model keeps none; may be given several times
    #[arg(long, value_name = "FILE", requires = "from")]
    rehearse_from: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum VocabularyName {
    /// They do
    Grow,
    /// They do not
    Keep,
}

const REHEARSED_SHARE: f64 = 0.25;

/// A model and the examples it is trained further on.
pub(super) struct Further {
    model: SavedModel,
    pub(super) data: Input,
    num_new: usize,
}

impl Further {
    /// Reads model, new and rehearsed examples.
    pub(super) fn read(arguments: &TrainArguments, directory: &std::path::Path) -> anyhow::Result<Self> {
        if arguments.text.any() {
            return Err(usage("--from goes on with the model's features: they can't be changed"));
        }
        let further = &arguments.further;
        let vocabulary = match further.vocabulary {
            Some(VocabularyName::Keep) => Vocabulary::Keep,
            _ => Vocabulary::Grow,
        };
        let model = artifact::load(directory)?;
        let new = input::for_further(
            &arguments.train,
            &model.model,
            vocabulary,
            &arguments.read,
            &arguments.weights,
        )?;
        let num_new = new.view().len();
        let old = further.rehearsed(&model.model, &new, arguments)?;
        let data = Input::join(new, &old);
        Ok(Self { model, data, num_new })
    }

    /// The trainer, before its first step.
    pub(super) fn trainer<'a>(
        arguments: &TrainArguments,
        model: SavedModel,
        data: FurtherData<'a>,
    ) -> anyhow::Result<Trainer<'a>> {
        let SavedModel { model, record } = model;
        let mut config = record.config;
        config.frozen_features = if arguments.further.freeze_input { model.num_features() } else { 0 };
        arguments.settings.apply(&mut config)?;
        Ok(Trainer::further(model, config, data, arguments.machine.cpu()?)?)
    }

    /// The model, the data and how many of its examples are new.
    pub(super) fn into_parts(self) -> (SavedModel, Input, usize) {
        (self.model, self.data, self.num_new)
    }

    /// What comes, in words.
    pub(super) fn describe(&self) -> Vec<String> {
        let (examples, model) = (self.data.view(), &self.model.model);
        let count = |n: usize| human::count(n as u64);
        let mut lines = vec![format!(
            "{} new examples; {} classes and {} features are new",
            count(self.num_new),
            count(examples.num_classes - model.num_classes()),
            count(examples.num_features - model.num_features()),
        )];
        let rehearsed = examples.len() - self.num_new;
        lines.push(match rehearsed {
            0 => {
                "no earlier example is rehearsed: old classes may be forgotten (--rehearse, --rehearse-from)"
                    .into()
            }
            _ => format!("{} earlier examples are rehearsed", count(rehearsed)),
        });
        lines
    }
}

impl FurtherArguments {
    /// The earlier examples that are trained on again.
    fn rehearsed(
        &self,
        model: &Model,
        new: &Input,
        arguments: &TrainArguments,
    ) -> anyhow::Result<Vec<Dataset>> {
        let share = self.rehearse.unwrap_or(REHEARSED_SHARE);
        if !(0.0..=1.0).contains(&share) {
            return Err(usage(format!("--rehearse is {share}, but must be a share from 0 to 1")));
        }
        if share == 0.0 {
            return Ok(Vec::new());
        }
        let seed = arguments.settings.seed().unwrap_or(1);
        if !self.rehearse_from.is_empty() {
            let read = |path: &PathBuf| {
                let old = input::for_model(path, new, &arguments.read)?;
                Ok(rehearsed(old.view(), share, model, seed))
            };
            return self.rehearse_from.iter().map(read).collect();
        }
        // What is kept has length 1.
        let kept = model.neighbours.as_ref().filter(|_| model.network.config.normalise == Normalise::L2);
        match kept {
            Some(kept) => {
                Ok(vec![rehearsed(kept.to_dataset(model.num_features()).view(), share, model, seed)])
            }
            None if self.rehearse.is_none() => Ok(Vec::new()),
            None => Err(usage(
                "--rehearse: the model keeps no training examples; name the files it was trained on with \
                 --rehearse-from, or leave --rehearse out",
            )),
        }
    }
}
