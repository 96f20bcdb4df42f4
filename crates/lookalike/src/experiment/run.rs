//! One run: train with fixed settings, measure along the way, keep the curve.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lookalike_kernels::Cpu;
use serde::{Deserialize, Serialize};

use super::{ExperimentError, MatrixObserver, Method};
use crate::data::Examples;
use crate::metrics::{MetricOptions, Metrics};
use crate::predict::Evaluation;
use crate::train::{
    Every, NothingKept, Observer, Outcome, RunPlan, StepReport, TrainConfig, TrainError, Trainer, Validation,
    run as run_training,
};

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
    pub every: Every,
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
    Metrics::new(arena.metrics, None)?;
    let mut trainer = Trainer::new(run.settings.clone(), arena.train, arena.cpu).map_err(failed)?;
    let plan = RunPlan {
        validation: Some(Validation {
            examples: arena.test,
            unknown_labels: arena.unknown_labels,
            every: arena.every,
            metrics: arena.metrics.clone(),
            patience: None,
        }),
        time_limit: arena.time_limit_seconds.and_then(|limit| Duration::try_from_secs_f64(limit).ok()),
        ..RunPlan::default()
    };
    let mut recorder = Recorder { observer, curve: Vec::new(), loss_sum: 0.0, steps: 0 };
    let diverged = match run_training(&mut trainer, &plan, &mut NothingKept, &mut recorder) {
        Ok(Outcome::Stopped) => return Ok(None),
        Ok(_) => None,
        // That a method diverges is a result of the experiment, not its end.
        Err(error @ TrainError::Diverged { .. }) => Some(error.to_string()),
        Err(error) => return Err(failed(error)),
    };
    let stats = trainer.sampler_stats().filter(|stats| stats.wanted > 0);
    Ok(Some(RunRecord {
        key,
        run: run.clone(),
        curve: recorder.curve,
        negatives_given_share: stats.map(|stats| stats.given as f64 / stats.wanted as f64),
        diverged,
        wall_seconds: started.elapsed().as_secs_f64(),
    }))
}

/// Keeps the curve of a run, and tells whoever watches the matrix.
struct Recorder<'a> {
    observer: &'a mut dyn MatrixObserver,
    curve: Vec<CurvePoint>,
    /// Of the batches since the last point.
    loss_sum: f64,
    steps: u64,
}

impl Observer for Recorder<'_> {
    fn on_step(&mut self, trainer: &Trainer<'_>, report: &StepReport) {
        self.observer.on_step(trainer, report);
        self.loss_sum += report.loss;
        self.steps += 1;
    }

    fn on_evaluation(&mut self, trainer: &Trainer<'_>, evaluation: &Evaluation, _is_best: bool) {
        let known = evaluation.values.iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let progress = trainer.state.progress;
        let point = CurvePoint {
            iteration: progress.iteration,
            epoch: trainer.epochs_done(),
            train_seconds: progress.train_seconds,
            loss: self.loss_sum / self.steps as f64,
            metrics: known.collect(),
        };
        (self.loss_sum, self.steps) = (0.0, 0);
        self.observer.on_evaluation(&point);
        self.curve.push(point);
    }

    fn should_stop(&mut self) -> bool {
        self.observer.should_stop()
    }
}
