//! Training while Python looks on.
//!
//! The loop runs on a thread of its own, inside the pool and without the
//! interpreter's lock. The thread that called waits for its reports, hands them
//! to the callback, and looks for signals: Python delivers Ctrl-C to the main
//! thread only, and only when asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use lookalike::metrics::Reliability;
use lookalike::model::Model;
use lookalike::predict::Evaluation;
use lookalike::train::{
    Every, InMemory, Keeper, NothingKept, Observer, Outcome, Progress, RunPlan, StepReport, Trainer,
    TrainingRecord, Validation, run,
};
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rayon::ThreadPool;

use crate::arrays::{Features, Labels};
use crate::error;
use crate::settings::{parse_metrics, parse_time_limit};

/// How often signals are looked for while there is nothing to report.
const SIGNALS_INTERVAL: Duration = Duration::from_millis(50);
/// Reports that may wait to be heard before training waits too.
const REPORTS_WAITING_MAX: usize = 1024;

/// How a run is watched and ended: the items of a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct RunOptions<'py> {
    pub(crate) threads: Option<usize>,
    callback: Option<Py<PyAny>>,
    /// Features, labels, and how many labels of each example the model does not know.
    validation: Option<(Features<'py>, Labels<'py>, PyReadonlyArray1<'py, u32>)>,
    every_epochs: usize,
    metrics: String,
    patience: Option<usize>,
    time_limit: Option<f64>,
}

/// How a run ended.
pub(crate) struct Ended {
    /// The reason, by name.
    pub(crate) reason: &'static str,
    /// The model that is to be used instead of the last one, if it was better.
    pub(crate) best: Option<(Model, TrainingRecord)>,
}

/// Trains until done.
pub(crate) fn train(
    py: Python<'_>,
    pool: &ThreadPool,
    trainer: &mut Trainer<'_>,
    options: &RunOptions<'_>,
) -> PyResult<Ended> {
    let (metrics, limit) = (parse_metrics(&options.metrics)?, parse_time_limit(options.time_limit)?);
    let watched = match &options.validation {
        None => None,
        Some((features, labels, unknown)) => {
            let examples = features.examples(py, labels.slices()?, pool)?;
            check_shape(&trainer.model, &examples)?;
            Some((examples, unknown.as_slice()?))
        }
    };
    let unknown = |example: usize| {
        let counts = watched.map_or(&[][..], |(_, counts)| counts);
        counts.get(example).map_or(0, |&count| count as usize)
    };
    let validation = watched.map(|(examples, _)| Validation {
        examples,
        unknown_labels: &unknown,
        every: Every::Epochs(options.every_epochs.max(1) as f64),
        metrics,
        patience: options.patience,
    });
    let plan = RunPlan { validation, time_limit: limit, ..RunPlan::default() };
    let callback = options.callback.as_ref();
    let mut best = options.patience.map(|_| InMemory::default());
    let stop = AtomicBool::new(false);
    let (result, raised) = py.detach(|| {
        thread::scope(|scope| {
            let (reports, heard) = sync_channel(REPORTS_WAITING_MAX);
            let mut reporter = Reporter { reports, stop: &stop };
            let (trainer, best) = (&mut *trainer, &mut best);
            let work = scope.spawn(move || {
                let keeper: &mut dyn Keeper = match best {
                    Some(best) => best,
                    None => &mut NothingKept,
                };
                pool.install(|| run(trainer, &plan, keeper, &mut reporter))
            });
            let raised = listen(&heard, &stop, callback);
            let result = work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (result, raised)
        })
    });
    if let Some(error) = raised
        && !error.is_instance_of::<PyKeyboardInterrupt>(py)
    {
        return Err(error);
    }
    let outcome = result.map_err(|failure| error::training(&failure))?;
    let last = trainer.state.progress.iteration;
    let is_better = |(_, record): &(Model, TrainingRecord)| record.progress.iteration < last;
    let best = best.and_then(InMemory::into_best).filter(is_better);
    Ok(Ended {
        reason: match outcome {
            Outcome::Finished => "finished",
            Outcome::NoProgress => "no-progress",
            Outcome::TimeLimit => "time-limit",
            Outcome::Stopped => "interrupted",
        },
        best: best.filter(|_| outcome != Outcome::Stopped),
    })
}

fn check_shape(model: &Model, examples: &lookalike::data::Examples<'_>) -> PyResult<()> {
    for (what, found, expected) in [
        ("features", examples.num_features, model.num_features()),
        ("classes", examples.num_classes, model.num_classes()),
    ] {
        if found != expected {
            return Err(error::value(format!(
                "the examples have {found} {what}, but the model was trained with {expected}"
            )));
        }
    }
    Ok(())
}

/// What the caller is told.
enum Report {
    Step { report: StepReport, planned_steps: u64 },
    Evaluation { progress: Progress, evaluation: Box<Evaluation>, is_best: bool },
}

struct Reporter<'a> {
    reports: SyncSender<Report>,
    stop: &'a AtomicBool,
}

impl Observer for Reporter<'_> {
    fn on_step(&mut self, trainer: &Trainer<'_>, report: &StepReport) {
        // Nobody listens any more only after a panic, which is then told anyway.
        let _ = self.reports.send(Report::Step { report: *report, planned_steps: trainer.planned_steps() });
    }

    fn on_evaluation(&mut self, trainer: &Trainer<'_>, evaluation: &Evaluation, is_best: bool) {
        let progress = trainer.state.progress;
        let evaluation = Box::new(evaluation.clone());
        let _ = self.reports.send(Report::Evaluation { progress, evaluation, is_best });
    }

    fn should_stop(&mut self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Passes reports on until there are no more. The first exception stops the
/// training and is given back.
fn listen(heard: &Receiver<Report>, stop: &AtomicBool, callback: Option<&Py<PyAny>>) -> Option<PyErr> {
    let mut raised = None;
    loop {
        let report = match heard.recv_timeout(SIGNALS_INTERVAL) {
            Ok(report) => Some(report),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return raised,
        };
        if raised.is_some() {
            continue;
        }
        let told = Python::attach(|py| {
            py.check_signals()?;
            match (report, callback) {
                (Some(report), Some(callback)) => {
                    callback.call1(py, (report.to_dict(py)?,))?;
                    Ok(())
                }
                _ => Ok(()),
            }
        });
        if let Err(error) = told {
            stop.store(true, Ordering::Relaxed);
            raised = Some(error);
        }
    }
}

impl Report {
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let progress = match self {
            Self::Step { report, planned_steps } => {
                dict.set_item("event", "step")?;
                dict.set_item("loss", report.loss)?;
                dict.set_item("lr", report.rate)?;
                dict.set_item("examples", report.batch)?;
                dict.set_item("planned_steps", *planned_steps)?;
                report.progress
            }
            Self::Evaluation { progress, evaluation, is_best } => {
                dict.set_item("event", "evaluation")?;
                dict.set_item("metrics", metrics(py, evaluation)?)?;
                dict.set_item("is_best", *is_best)?;
                *progress
            }
        };
        dict.set_item("step", progress.iteration)?;
        dict.set_item("epoch", progress.epoch)?;
        dict.set_item("position", progress.position)?;
        dict.set_item("train_seconds", progress.train_seconds)?;
        Ok(dict)
    }
}

/// Metrics by name; `None` where there was nothing to measure them on.
///
/// The library speaks in percent, Python in shares of one, as scikit-learn does.
pub(crate) fn metrics<'py>(py: Python<'py>, evaluation: &Evaluation) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in evaluation.values.iter() {
        dict.set_item(name, value.map(|percent| percent / 100.0))?;
    }
    for (name, value) in evaluation.reliability.iter().filter_map(Reliability::values).flatten() {
        dict.set_item(name, value)?;
    }
    if let Some(recall) = evaluation.recall {
        dict.set_item("recall of search", recall.share())?;
    }
    Ok(dict)
}
