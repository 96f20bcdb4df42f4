//! One run: train with fixed settings, measure along the way, keep the curve.

use std::collections::BTreeMap;
use std::time::Instant;

use lookalike_kernels::Cpu;
use serde::{Deserialize, Serialize};

use super::{ExperimentError, MatrixObserver, Method};
use crate::data::Examples;
use crate::metrics::{MetricOptions, TrainingFrequencies};
use crate::predict::evaluate;
use crate::train::{TrainConfig, TrainError, Trainer};

/// How often a run is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvaluateEvery {
    /// After this part of an epoch, or so many epochs.
    Epochs(f64),
    /// After so many steps.
    Iterations(u64),
}

impl EvaluateEvery {
    /// Whether step number `iteration` (from 1) completes a period. Periods
    /// need not be whole steps: a step completes the multiples it passes.
    fn is_due(self, iteration: u64, steps_per_epoch: u64) -> bool {
        let period = match self {
            Self::Iterations(steps) => steps.max(1) as f64,
            Self::Epochs(epochs) => epochs * steps_per_epoch as f64,
        };
        // A small allowance: 0.1 epochs taken ten times is one epoch.
        let periods = |iteration: u64| (iteration as f64 / period + 1e-9).floor();
        periods(iteration) > periods(iteration - 1)
    }
}

/// What all runs of a matrix have in common.
#[derive(Clone, Copy)]
pub struct Arena<'a> {
    /// Instructions to use.
    pub cpu: Cpu,
    /// Examples to train on.
    pub train: Examples<'a>,
    /// Examples to measure on.
    pub test: Examples<'a>,
    /// True labels of a test example that the model does not know.
    pub unknown_labels: &'a (dyn Fn(usize) -> usize + Sync),
    /// How often to measure.
    pub every: EvaluateEvery,
    /// What to measure.
    pub metrics: &'a MetricOptions,
    /// Ends each run after so many seconds of training.
    pub time_limit_seconds: Option<f64>,
}

/// A run to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PlannedRun {
    /// What it is compared as: runs that differ only in their seed share it.
    pub name: String,
    /// The method.
    pub method: Method,
    /// What a sweep varies, by name; empty in a comparison of methods.
    #[serde(default)]
    pub varied: Vec<(String, f64)>,
    /// All that decides the outcome.
    pub settings: TrainConfig,
}

impl PlannedRun {
    /// The run of a method with otherwise the same settings.
    pub fn of_method(method: Method, base: &TrainConfig, seed: u64) -> Self {
        let mut settings = TrainConfig { seed, ..base.clone() };
        method.apply(&mut settings);
        Self { name: method.title().into(), method, varied: Vec::new(), settings }
    }
}

/// A measurement on the way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CurvePoint {
    /// Steps done.
    pub iteration: u64,
    /// Epochs done, with the part of the current one.
    pub epoch: f64,
    /// Time spent in steps.
    pub train_seconds: f64,
    /// Mean loss of the batches since the point before.
    pub loss: f64,
    /// Metrics by name, in percent.
    pub metrics: BTreeMap<String, f64>,
}

/// What a finished run leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RunRecord {
    /// Names settings, data and machine: the same key means the same run.
    pub key: String,
    /// What was run.
    pub run: PlannedRun,
    /// Measurements in the order of time; the last one is at the end.
    pub curve: Vec<CurvePoint>,
    /// The part of the negatives asked for that the sampler gave, if it samples.
    pub negatives_given_share: Option<f64>,
    /// Why it ended early, if the loss became infinite: then it has no final value.
    pub diverged: Option<String>,
    /// All the time it took, with evaluations.
    pub wall_seconds: f64,
}

/// Trains and measures; nothing if the observer asked to stop.
pub(super) fn train_run(
    run: &PlannedRun,
    key: String,
    arena: &Arena<'_>,
    observer: &mut dyn MatrixObserver,
) -> Result<Option<RunRecord>, ExperimentError> {
    let failed = |source| ExperimentError::Run {
        run: format!("{} with seed {}", run.name, run.settings.seed),
        source,
    };
    let started = Instant::now();
    let mut trainer = Trainer::new(run.settings.clone(), arena.train, arena.cpu).map_err(failed)?;
    let steps_per_epoch = trainer.steps_per_epoch();
    let mut record = RunRecord {
        key,
        run: run.clone(),
        curve: Vec::new(),
        negatives_given_share: None,
        diverged: None,
        wall_seconds: 0.0,
    };
    let mut losses = (0.0, 0u64);
    while !trainer.is_done() {
        let report = match trainer.step() {
            Ok(report) => report,
            // That a method diverges is a result of the experiment, not its end.
            Err(error @ TrainError::Diverged { .. }) => {
                record.diverged = Some(error.to_string());
                break;
            }
            Err(error) => return Err(failed(error)),
        };
        observer.on_step(&trainer, &report);
        if observer.should_stop() {
            return Ok(None);
        }
        losses = (losses.0 + report.loss, losses.1 + 1);
        let progress = report.progress;
        let out_of_time = arena.time_limit_seconds.is_some_and(|limit| progress.train_seconds >= limit);
        let due = arena.every.is_due(progress.iteration, steps_per_epoch);
        if due || out_of_time || trainer.is_done() {
            let point = measure(&trainer, arena, losses.0 / losses.1 as f64)?;
            losses = (0.0, 0);
            observer.on_evaluation(&point);
            record.curve.push(point);
        }
        if out_of_time {
            break;
        }
    }
    let stats = trainer.sampler_stats().filter(|stats| stats.wanted > 0);
    record.negatives_given_share = stats.map(|stats| stats.given as f64 / stats.wanted as f64);
    record.wall_seconds = started.elapsed().as_secs_f64();
    Ok(Some(record))
}

fn measure(trainer: &Trainer<'_>, arena: &Arena<'_>, loss: f64) -> Result<CurvePoint, ExperimentError> {
    let model = &trainer.model;
    let frequencies =
        TrainingFrequencies { examples_of_class: &model.class_counts, num_examples: trainer.num_examples() };
    let evaluation = evaluate(
        arena.cpu,
        &model.network,
        &arena.test,
        arena.unknown_labels,
        arena.metrics,
        Some(frequencies),
    )?;
    let progress = model.progress;
    let known = evaluation.values.iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Ok(CurvePoint {
        iteration: progress.iteration,
        epoch: progress.epoch as f64 + progress.position as f64 / trainer.num_examples() as f64,
        train_seconds: progress.train_seconds,
        loss,
        metrics: known.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluations_fall_due_where_a_period_ends() {
        let due = |every: EvaluateEvery| -> Vec<u64> { (1..=20).filter(|&i| every.is_due(i, 10)).collect() };
        assert_eq!(due(EvaluateEvery::Epochs(1.0)), [10, 20]);
        assert_eq!(due(EvaluateEvery::Epochs(0.25)), [3, 5, 8, 10, 13, 15, 18, 20]);
        assert_eq!(due(EvaluateEvery::Iterations(7)), [7, 14]);
        // More often than there are steps: at every step.
        assert_eq!(due(EvaluateEvery::Epochs(0.01)).len(), 20);
        let tenths: Vec<u64> = due(EvaluateEvery::Epochs(0.1));
        assert_eq!(tenths, (1..=20).collect::<Vec<_>>());
    }
}
