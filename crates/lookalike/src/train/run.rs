//! The loop: steps, evaluations, the best model, and when to stop.

use std::time::Duration;

use super::error::TrainError;
use super::state::Progress;
use super::trainer::{StepReport, Trainer};
use crate::data::Examples;
use crate::metrics::MetricOptions;
use crate::predict::Evaluation;

/// How often to evaluate, or to write a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Every {
    /// After this part of an epoch, or so many epochs.
    Epochs(f64),
    /// After so many steps.
    Iterations(u64),
    /// After so many seconds of training.
    Seconds(f64),
}

/// How far a run has come, in each unit of [`Every`].
#[derive(Clone, Copy)]
struct Moment {
    epochs: f64,
    steps: u64,
    seconds: f64,
}

impl Moment {
    fn of(trainer: &Trainer<'_>) -> Self {
        let Progress { iteration, train_seconds, .. } = trainer.state.progress;
        Self { epochs: trainer.epochs_done(), steps: iteration, seconds: train_seconds }
    }
}

impl Every {
    /// Whether a period was completed between two moments. Periods need not be whole
    /// steps: a step completes the multiples it passes.
    fn is_due(self, before: Moment, now: Moment) -> bool {
        // A small allowance: 0.1 epochs taken ten times is one epoch.
        let periods = |done: f64, period: f64| (done / period + 1e-9).floor();
        match self {
            Self::Epochs(period) => periods(now.epochs, period) > periods(before.epochs, period),
            Self::Seconds(period) => periods(now.seconds, period) > periods(before.seconds, period),
            Self::Iterations(period) => {
                let period = period.max(1) as f64;
                periods(now.steps as f64, period) > periods(before.steps as f64, period)
            }
        }
    }
}

/// Examples to evaluate on, and when.
pub struct Validation<'a> {
    /// The examples.
    pub examples: Examples<'a>,
    /// True labels of an example that the model does not know.
    pub unknown_labels: &'a (dyn Fn(usize) -> usize + Sync),
    /// How often.
    pub every: Every,
    /// What to measure; the first metric decides which model is best.
    pub metrics: MetricOptions,
    /// Stop after so many evaluations without a better first metric.
    pub patience: Option<usize>,
}

impl Validation<'_> {
    /// Measures the model as it is now.
    pub fn evaluate(&self, trainer: &Trainer<'_>) -> Evaluation {
        trainer
            .evaluate(&self.examples, self.unknown_labels, &self.metrics)
            .expect("metric options are checked before training starts")
    }
}

/// What a run is to do besides the steps that the settings plan.
#[derive(Default)]
pub struct RunPlan<'a> {
    /// What to evaluate on.
    pub validation: Option<Validation<'a>>,
    /// Stop after so much training; evaluations are not counted.
    pub time_limit: Option<Duration>,
    /// How often the keeper is given the whole state; at the end it is in any case.
    pub checkpoint_every: Option<Every>,
    /// Look for numbers that are not finite after every step.
    pub detect_anomaly: bool,
    /// Whoever runs it measures the model that it ends with: no evaluation at the last step.
    pub leaves_end: bool,
}

/// Who is told about a run, and may end it.
pub trait Observer: Send {
    /// A step is done.
    fn on_step(&mut self, _: &Trainer<'_>, _: &StepReport) {}
    /// An evaluation is done; `is_best` if its first metric beats all before.
    fn on_evaluation(&mut self, _: &Trainer<'_>, _: &Evaluation, _is_best: bool) {}
    /// Asked after every step: whether to end here.
    fn should_stop(&mut self) -> bool {
        false
    }
}

/// Keeps the best model of a run, and its last moments: in a directory, in memory, or
/// nowhere. What it is given is finite.
pub trait Keeper: Send {
    /// The model as it is now is the best so far. Where it can't be kept the run ends.
    fn keep_best(&mut self, trainer: &Trainer<'_>) -> Result<(), KeepError>;

    /// The run as it is now, for going on after a crash.
    fn keep_last(&mut self, _: &Trainer<'_>) -> Result<(), KeepError> {
        Ok(())
    }
}

/// Why a model could not be kept.
pub type KeepError = Box<dyn std::error::Error + Send + Sync>;

/// Whoever does not care which model was best.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingKept;

impl Keeper for NothingKept {
    fn keep_best(&mut self, _: &Trainer<'_>) -> Result<(), KeepError> {
        Ok(())
    }
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The planned epochs are done.
    Finished,
    /// No better for too long.
    NoProgress,
    /// Time is up.
    TimeLimit,
    /// The observer wished it.
    Stopped,
}

/// Trains until done. However it ends, the model is complete, with a search index.
pub fn run(
    trainer: &mut Trainer<'_>,
    plan: &RunPlan<'_>,
    keeper: &mut dyn Keeper,
    observer: &mut dyn Observer,
) -> Result<Outcome, TrainError> {
    let outcome = run_steps(trainer, plan, keeper, observer)?;
    trainer.settle();
    trainer.index();
    Ok(outcome)
}

fn run_steps(
    trainer: &mut Trainer<'_>,
    plan: &RunPlan<'_>,
    keeper: &mut dyn Keeper,
    observer: &mut dyn Observer,
) -> Result<Outcome, TrainError> {
    let started = trainer.state.progress.train_seconds;
    let mut last_kept = None;
    let outcome = loop {
        if trainer.is_done() {
            break Outcome::Finished;
        }
        let before = Moment::of(trainer);
        // The tensor says more than the loss that came of it.
        let report = trainer.step().map_err(|error| match plan.detect_anomaly {
            true => trainer.detect_anomaly().err().unwrap_or(error),
            false => error,
        })?;
        if plan.detect_anomaly {
            trainer.detect_anomaly()?;
        }
        observer.on_step(trainer, &report);
        let now = Moment::of(trainer);
        let out_of_time = plan.time_limit.is_some_and(|limit| now.seconds - started >= limit.as_secs_f64());
        let checkpoint_due = plan.checkpoint_every.is_some_and(|every| every.is_due(before, now));
        // Ranks have clocks and users of their own, and must do the same at the same step.
        let checkpoint_due = checkpoint_due && trainer.shard().collective().rank() == 0;
        let wishes = [out_of_time, observer.should_stop(), checkpoint_due];
        let [out_of_time, is_stopped, checkpoint_due] = trainer.wishes_of_all(wishes);
        if is_stopped {
            break Outcome::Stopped;
        }
        if let Some(validation) = &plan.validation {
            let is_last = trainer.is_done() || out_of_time;
            let is_due = if is_last { !plan.leaves_end } else { validation.every.is_due(before, now) };
            if is_due {
                evaluate(trainer, validation, keeper, observer)?;
                if validation.patience.is_some_and(|patience| trainer.state.best.waited >= patience) {
                    break Outcome::NoProgress;
                }
            }
        }
        if out_of_time {
            break Outcome::TimeLimit;
        }
        // After the evaluation, so that it knows how good the best is.
        if checkpoint_due {
            keep_last(trainer, keeper)?;
            last_kept = Some(now.steps);
        }
    };
    if plan.checkpoint_every.is_some() && last_kept != Some(trainer.state.progress.iteration) {
        keep_last(trainer, keeper)?;
    }
    if matches!(outcome, Outcome::Stopped | Outcome::TimeLimit) {
        trainer.settle();
    }
    trainer.check_finite()?;
    Ok(outcome)
}

fn keep_last(trainer: &Trainer<'_>, keeper: &mut dyn Keeper) -> Result<(), TrainError> {
    trainer.check_finite()?;
    keeper.keep_last(trainer).map_err(TrainError::CheckpointNotKept)
}

fn evaluate(
    trainer: &mut Trainer<'_>,
    validation: &Validation<'_>,
    keeper: &mut dyn Keeper,
    observer: &mut dyn Observer,
) -> Result<(), TrainError> {
    trainer.settle();
    let evaluation = validation.evaluate(trainer);
    let is_best = trainer.state.best.take(evaluation.first());
    observer.on_evaluation(trainer, &evaluation, is_best);
    if is_best {
        trainer.check_finite()?;
        trainer.index();
        keeper.keep_best(trainer).map_err(TrainError::NotKept)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_need_not_be_whole_steps() {
        // Seven steps an epoch.
        let moment =
            |step: u64| Moment { epochs: step as f64 / 7.0, steps: step, seconds: step as f64 * 0.4 };
        let due = |every: Every| -> Vec<u64> {
            (1..=21).filter(|&step| every.is_due(moment(step - 1), moment(step))).collect()
        };
        assert_eq!(due(Every::Epochs(1.0)), [7, 14, 21]);
        assert_eq!(due(Every::Epochs(0.5)), [4, 7, 11, 14, 18, 21]);
        assert_eq!(due(Every::Epochs(2.0)), [14]);
        assert_eq!(due(Every::Iterations(5)), [5, 10, 15, 20]);
        assert_eq!(due(Every::Iterations(0)).len(), 21);
        assert_eq!(due(Every::Seconds(2.0)), [5, 10, 15, 20]);
        // More often than there are steps: at every step.
        assert_eq!(due(Every::Epochs(0.01)).len(), 21);
        // A seventh, taken seven times, is one.
        assert_eq!(due(Every::Epochs(1.0 / 7.0)).len(), 21);
    }
}
