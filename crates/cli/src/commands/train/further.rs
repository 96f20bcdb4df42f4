//! `train --from`: going on with new data.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lookalike::artifact::{self, SavedModel};
use lookalike::data::{Dataset, Examples};
use lookalike::model::{Model, Neighbours, Normalise};
use lookalike::text::Vocabulary;
use lookalike::train::{
    FurtherData, TrainConfig, TrainError, Trainer, TrainingRecord, rehearsal_weights, rehearsed,
    sparse_rate_change,
};
use lookalike_kernels::Cpu;
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
    #[arg(conflicts_with_all = ["preset", "config", "print_config"])]
    pub(super) from: Option<PathBuf>,
    /// Whether n-grams of the new texts become features and count in the idf of old ones
    /// [default: grow]
    #[arg(long, value_enum, value_name = "NAME", requires = "from")]
    vocabulary: Option<VocabularyName>,
    /// Leave the rows of known features as they are
    #[arg(long, requires = "from")]
    freeze_input: bool,
    /// Train in each epoch on this share of the earlier examples again, others every time, so
    /// that old classes are not forgotten; they count more as they are shown less often
    /// [default: 0.35, or 0.5 of 10,000 new examples on with sparse weights, where the model
    /// keeps examples or --rehearse-from is given]
    #[arg(long, value_name = "SHARE", requires = "from", value_parser = share, allow_negative_numbers = true)]
    rehearse: Option<f64>,
    /// The earlier examples, where the model keeps none; may be given several times
    #[arg(long, value_name = "FILE", requires = "from")]
    pub(super) rehearse_from: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum VocabularyName {
    /// They do
    Grow,
    /// They do not
    Keep,
}

/// How often what is new is seen, and how much of what is old an epoch has: with both, about a
/// third of the time of one training on all (docs/notes/incremental.md).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pace {
    epochs: usize,
    rehearsed_share: f64,
}

impl Pace {
    const USUAL: Self = Self { epochs: 4, rehearsed_share: 0.35 };
    /// Sparse rows start from the mean of their examples and need fewer steps, which take
    /// longer with them; each old example has its turn once.
    const WITH_SPARSE: Self = Self { epochs: 2, rehearsed_share: 0.5 };
    /// New examples, at least, for so few epochs.
    const NEW_MIN: usize = 10_000;

    fn of(config: &TrainConfig, num_new: usize) -> Self {
        if config.sparse.is_some() && num_new >= Self::NEW_MIN { Self::WITH_SPARSE } else { Self::USUAL }
    }
}

/// Batches are large where an epoch has many examples.
const BATCH_LARGE: usize = 1024;
/// Steps of an epoch, at least, for a batch to be larger than the model's were.
const STEPS_MIN: usize = 25;

/// A model and the examples it is trained further on.
pub(super) struct Further {
    pub(super) start: FurtherStart,
    pub(super) data: Input,
}

/// What training further starts from, but for the examples.
pub(super) struct FurtherStart {
    model: Model,
    /// The settings of the model, with what flags override.
    config: TrainConfig,
    num_new: usize,
    rehearsed_an_epoch: usize,
}

impl FurtherStart {
    /// The trainer, before its first step.
    pub(super) fn trainer(self, examples: Examples<'_>, cpu: Cpu) -> Result<Trainer<'_>, TrainError> {
        let Self { model, config, num_new, rehearsed_an_epoch } = self;
        Trainer::further(model, config, FurtherData { examples, num_new, rehearsed_an_epoch }, cpu)
    }
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
        let SavedModel { model, record: TrainingRecord { mut config, .. } } = artifact::load(directory)?;
        config.frozen_features = if further.freeze_input { model.num_features() } else { 0 };
        arguments.settings.apply(&mut config);
        config.check_values()?;
        config = config.further_with(&model)?;
        further.check_rehearsed(&model)?;
        let new =
            input::for_further(&arguments.train, &model, vocabulary, &arguments.read, &arguments.weights)?;
        let num_new = new.view().len();
        let pace = Pace::of(&config, num_new);
        config.epochs = pace.epochs;
        if let Some(sparse) = &mut config.sparse {
            sparse.rate *= sparse_rate_change(&model, &new.view());
        }
        // What was given holds.
        arguments.settings.apply(&mut config);
        let share = further.rehearse.unwrap_or(pace.rehearsed_share);
        let (old, rehearsed_an_epoch) = further.rehearsed(share, &model, &config, &new, arguments)?;
        config.batch = config.batch.max(((num_new + rehearsed_an_epoch) / STEPS_MIN).min(BATCH_LARGE));
        arguments.settings.apply(&mut config);
        let mut data = Input::join(new, &old);
        if rehearsed_an_epoch > 0 && share < 1.0 {
            data.set_weights(rehearsal_weights(data.view(), num_new, rehearsed_an_epoch, share));
        }
        Ok(Self { start: FurtherStart { model, config, num_new, rehearsed_an_epoch }, data })
    }

    /// What comes, in words.
    pub(super) fn describe(&self) -> Vec<String> {
        let FurtherStart { model, config, num_new, rehearsed_an_epoch } = &self.start;
        let examples = self.data.view();
        let count = |n: usize| human::count(n as u64);
        let mut lines = vec![format!(
            "{} new examples; {} classes and {} features are new",
            count(*num_new),
            count(examples.num_classes - model.num_classes()),
            count(examples.num_features - model.num_features()),
        )];
        let rehearsed = examples.len() - num_new;
        lines.push(match rehearsed {
            0 => {
                "no earlier example is rehearsed: old classes may be forgotten (--rehearse, --rehearse-from)"
                    .into()
            }
            _ if config.epochs == 1 => format!("{} earlier examples are rehearsed", count(rehearsed)),
            _ => format!(
                "{} earlier examples are rehearsed, {} of them in each epoch",
                count(rehearsed),
                count(*rehearsed_an_epoch)
            ),
        });
        lines
    }
}

impl FurtherArguments {
    /// The earlier examples that are trained on again, a share of them in each epoch, and how
    /// many that is.
    fn rehearsed(
        &self,
        share: f64,
        model: &Model,
        config: &TrainConfig,
        new: &Input,
        arguments: &TrainArguments,
    ) -> anyhow::Result<(Vec<Dataset>, usize)> {
        if share == 0.0 {
            return Ok((Vec::new(), 0));
        }
        // Those that no epoch will have are not read.
        let read_share = (share * config.epochs as f64).min(1.0);
        let old = self.earlier(model, read_share, config.seed, new, arguments)?;
        let count: usize = old.iter().map(|part| part.view().len()).sum();
        Ok((old, (count as f64 * share / read_share).ceil() as usize))
    }

    /// A share of the earlier examples.
    fn earlier(
        &self,
        model: &Model,
        share: f64,
        seed: u64,
        new: &Input,
        arguments: &TrainArguments,
    ) -> anyhow::Result<Vec<Dataset>> {
        if !self.rehearse_from.is_empty() {
            let read = |path: &PathBuf| {
                let old = input::for_model(path, new, &arguments.read)?;
                Ok(rehearsed(old.view(), share, model, seed))
            };
            return self.rehearse_from.iter().map(read).collect();
        }
        let of_model =
            |kept: &Neighbours| rehearsed(kept.to_dataset(model.num_features()).view(), share, model, seed);
        Ok(kept(model).map(of_model).into_iter().collect())
    }

    /// Examples that are to be rehearsed must be somewhere.
    fn check_rehearsed(&self, model: &Model) -> anyhow::Result<()> {
        let wants = self.rehearse.is_some_and(|share| share > 0.0);
        if wants && self.rehearse_from.is_empty() && kept(model).is_none() {
            return Err(usage(
                "--rehearse: the model keeps no training examples; name the files it was trained on with \
                 --rehearse-from, or leave --rehearse out",
            ));
        }
        Ok(())
    }
}

/// The training examples that a model keeps as they were: what it keeps has length 1.
fn kept(model: &Model) -> Option<&Neighbours> {
    model.neighbours.as_ref().filter(|_| model.network.config.normalise == Normalise::L2)
}

fn share(text: &str) -> Result<f64, String> {
    let is_share = |share: &f64| (0.0..=1.0).contains(share);
    text.parse().ok().filter(is_share).ok_or_else(|| "expected a share from 0 to 1".into())
}

#[cfg(test)]
mod tests {
    use lookalike::train::SparseConfig;

    use super::*;

    #[test]
    fn sparse_weights_need_fewer_epochs_of_many_examples() {
        let alone = TrainConfig::default();
        let with_sparse = TrainConfig { sparse: Some(SparseConfig::default()), ..alone.clone() };
        assert_eq!(Pace::of(&alone, Pace::NEW_MIN), Pace::USUAL);
        assert_eq!(Pace::of(&with_sparse, Pace::NEW_MIN - 1), Pace::USUAL);
        assert_eq!(Pace::of(&with_sparse, Pace::NEW_MIN), Pace::WITH_SPARSE);
    }
}
