//! The loop: steps, evaluations, and when to stop.

use std::time::Duration;

use super::trainer::{StepReport, TrainError, Trainer};
use crate::data::Examples;
use crate::metrics::{MetricOptions, TrainingFrequencies};
use crate::predict::{Evaluation, evaluate};

/// How often to evaluate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Every {
    /// After so many steps.
    Iterations(u64),
    /// After so many epochs.
    Epochs(usize),
}

/// Examples to evaluate on, and when.
pub struct Validation<'a> {
    /// The examples.
    pub examples: Examples<'a>,
    /// True labels of an example that the model does not know.
    pub unknown_labels: &'a (dyn Fn(usize) -> usize + Sync),
    /// How often.
    pub every: Every,
    /// What to measure.
    pub metrics: MetricOptions,
    /// Stop after so many evaluations without a better first metric.
    pub patience: Option<usize>,
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

/// Trains until done. Evaluations are not counted in the time limit.
pub fn run(
    trainer: &mut Trainer<'_>,
    validation: Option<&Validation<'_>>,
    time_limit: Option<Duration>,
    observer: &mut dyn Observer,
) -> Result<Outcome, TrainError> {
    let mut best = Best::default();
    let started = trainer.model.progress.train_seconds;
    loop {
        if trainer.is_done() {
            return Ok(Outcome::Finished);
        }
        let report = trainer.step()?;
        observer.on_step(trainer, &report);
        let out_of_time =
            time_limit.is_some_and(|limit| report.progress.train_seconds - started >= limit.as_secs_f64());
        let stopping = observer.should_stop();
        if let Some(validation) = validation {
            let last = trainer.is_done() || out_of_time;
            if !stopping && (last || is_due(validation.every, &report)) {
                let evaluation = validate(trainer, validation);
                let is_best = best.take(&evaluation);
                observer.on_evaluation(trainer, &evaluation, is_best);
                if validation.patience.is_some_and(|patience| best.waited >= patience) {
                    return Ok(Outcome::NoProgress);
                }
            }
        }
        if stopping {
            return Ok(Outcome::Stopped);
        }
        if out_of_time {
            return Ok(Outcome::TimeLimit);
        }
    }
}

fn is_due(every: Every, report: &StepReport) -> bool {
    let progress = report.progress;
    match every {
        Every::Iterations(n) => progress.iteration.is_multiple_of(n.max(1)),
        Every::Epochs(n) => progress.position == 0 && progress.epoch.is_multiple_of(n.max(1)),
    }
}

fn validate(trainer: &Trainer<'_>, validation: &Validation<'_>) -> Evaluation {
    let model = &trainer.model;
    let frequencies =
        TrainingFrequencies { examples_of_class: &model.class_counts, num_examples: trainer.num_examples() };
    evaluate(
        trainer.cpu(),
        &model.network,
        &validation.examples,
        validation.unknown_labels,
        &validation.metrics,
        Some(frequencies),
    )
    .expect("metric options are checked before training starts")
}

#[derive(Default)]
struct Best {
    value: Option<f64>,
    waited: usize,
}

impl Best {
    fn take(&mut self, evaluation: &Evaluation) -> bool {
        let value = evaluation.values.iter().next().and_then(|(_, value)| value);
        let better = value.is_some() && self.value.is_none_or(|best| value > Some(best));
        if better {
            self.value = value;
            self.waited = 0;
        } else {
            self.waited += 1;
        }
        better
    }
}
