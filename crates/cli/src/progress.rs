//! What a person or a log file sees of a run.
//!
//! On a terminal: a bar with loss, examples a second, time left and the latest
//! P@1. Elsewhere: one plain line an interval, so that a log stays readable.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lookalike::predict::Evaluation;
use lookalike::train::tensorboard::EventWriter;
use lookalike::train::{Observer, StepReport, Trainer};
use lookalike_report::human;
use serde_json::json;

use crate::output::inform;
use crate::ranks;
use crate::signals;

/// The time between two plain lines.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);
/// Steps between two entries of the log.
const LOG_INTERVAL: u64 = 20;

/// Shows how far a command has come that reads or writes many examples.
pub(crate) struct Counting {
    bar: ProgressBar,
    what: &'static str,
    last: Cell<Instant>,
}

impl Counting {
    /// Counts what the words name.
    pub(crate) fn of(what: &'static str) -> Self {
        // On anything but a terminal nothing is drawn.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        let style = ProgressStyle::with_template("{msg}  {elapsed}");
        bar.set_style(style.unwrap_or(ProgressStyle::default_spinner()));
        Self { bar, what, last: Cell::new(Instant::now()) }
    }

    /// So many are done.
    pub(crate) fn tell(&self, count: u64) {
        let text = || format!("{} {}", human::count(count), self.what);
        if !self.bar.is_hidden() {
            self.bar.set_message(text());
            self.bar.tick();
        } else if self.last.get().elapsed() >= PLAIN_INTERVAL {
            self.last.set(Instant::now());
            inform!("{}", text());
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Shows a run and writes its logs.
pub(crate) struct RunProgress {
    display: Display,
    log: Option<BufWriter<File>>,
    events: Option<EventWriter>,
    /// Whether the best model is kept, so that it is worth telling.
    tells_best: bool,
    loss: SmoothLoss,
    latest: Option<(String, f64)>,
    examples: u64,
    /// Steps of this run, when it began, and the last one's end.
    steps: u64,
    started: Instant,
    last_step: (Instant, f64),
    ending: Ending,
    wire: Wire,
    /// The run's name where it is one of several.
    name: Option<String>,
}

/// What a run's steps sent to other ranks.
#[derive(Default)]
struct Wire {
    steps: u64,
    bytes: u64,
    seconds_at_start: f64,
}

/// What comes after the last step, as far as the evaluations so far tell.
#[derive(Default)]
struct Ending {
    /// What the last evaluation took, and what made the model ready for it.
    evaluation: f64,
    settling: f64,
    /// The examples that are measured at the end, as a multiple of those of an evaluation.
    measured: f64,
}

impl Ending {
    /// The seconds that it and so many steps take, where so many have taken so long.
    fn seconds_left(&self, steps: u64, (done, seconds): (u64, f64)) -> f64 {
        let of_steps = steps as f64 * seconds / done.max(1) as f64;
        of_steps + self.settling + self.measured * self.evaluation
    }
}

enum Display {
    Bar(ProgressBar),
    Plain { last: Instant },
    Silent,
}

/// An average that forgets: single batches jump too much to read.
#[derive(Default)]
struct SmoothLoss(Option<f64>);

impl SmoothLoss {
    fn take(&mut self, loss: f64) -> f64 {
        let smooth = self.0.map_or(loss, |old| 0.95 * old + 0.05 * loss);
        self.0 = Some(smooth);
        smooth
    }
}

impl RunProgress {
    /// For a run of `steps` steps.
    pub(crate) fn new(steps: u64, quiet: bool) -> Self {
        let display = if quiet {
            Display::Silent
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(5));
            let template = "{prefix}{bar:24} {percent:>3}%  {msg}";
            bar.set_style(ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar()));
            Display::Bar(bar)
        } else {
            Display::Plain { last: Instant::now() }
        };
        Self {
            display,
            log: None,
            events: None,
            tells_best: false,
            loss: SmoothLoss::default(),
            latest: None,
            examples: 0,
            steps: 0,
            started: Instant::now(),
            last_step: (Instant::now(), 0.0),
            ending: Ending::default(),
            wire: Wire { seconds_at_start: ranks::all().seconds_waited(), ..Wire::default() },
            name: None,
        }
    }

    /// One of several runs: the name stands before the bar, and evaluations show
    /// in the bar alone.
    pub(crate) fn named(mut self, name: &str) -> Self {
        if let Display::Bar(bar) = &self.display {
            bar.set_prefix(format!("{name:<16} "));
        }
        self.name = Some(name.into());
        self
    }

    /// Also writes JSON lines to a file, after what is there if the run goes on.
    pub(crate) fn with_log(mut self, path: &Path, goes_on: bool) -> anyhow::Result<Self> {
        let mut options = File::options();
        let file = match goes_on {
            true => options.create(true).append(true).open(path),
            false => File::create(path),
        };
        let file = file.with_context(|| format!("cannot write the log {}", path.display()))?;
        self.log = Some(BufWriter::new(file));
        Ok(self)
    }

    /// Also writes TensorBoard events to a folder.
    pub(crate) fn with_tensorboard(mut self, folder: &Path) -> anyhow::Result<Self> {
        self.events = Some(EventWriter::create(folder)?);
        Ok(self)
    }

    /// At the end so many times the examples of an evaluation are measured.
    pub(crate) fn measures_at_end(&mut self, times: f64) {
        self.ending.measured = times;
    }

    /// From here on it says which evaluations are the best: the run keeps its best model.
    pub(crate) fn tells_best(&mut self) {
        self.tells_best = true;
    }

    /// What went over the wire, if there are other ranks.
    pub(crate) fn wire(&self) -> Option<String> {
        let (ranks, steps) = (ranks::all(), self.wire.steps.max(1));
        (ranks.size() > 1).then(|| {
            let waited = ranks.seconds_waited() - self.wire.seconds_at_start;
            format!(
                "{} ranks: each step sent {} bytes from this rank to others; {} of all time went into sending and \
                 waiting for others",
                ranks.size(),
                human::count(self.wire.bytes / steps),
                human::seconds(waited),
            )
        })
    }

    /// Prints a line without disturbing the bar.
    pub(crate) fn say(&self, line: &str) {
        match &self.display {
            Display::Silent => {}
            _ => self.warn(line),
        }
    }

    /// Prints a line even to who asked for silence.
    fn warn(&self, line: &str) {
        match &self.display {
            Display::Bar(bar) => bar.suspend(|| inform!("{line}")),
            _ => inform!("{line}"),
        }
    }

    /// Removes the bar; tells why the best model could not be saved.
    pub(crate) fn finish(&mut self) {
        if let Display::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }

    /// A log that can't be written is given up: it is not worth a model.
    fn write_log(&mut self, entry: &serde_json::Value) {
        let Some(log) = &mut self.log else { return };
        if let Err(error) = writeln!(log, "{entry}").and_then(|()| log.flush()) {
            self.log = None;
            self.warn(&format!("lookalike: cannot write the log, training goes on without it: {error}"));
        }
    }

    /// See [`Self::write_log`].
    fn write_events(&mut self, step: u64, values: &[(&str, f32)]) {
        let Some(events) = &mut self.events else { return };
        if let Err(error) = events.scalars(step, values).and_then(|()| events.flush()) {
            self.events = None;
            self.warn(&format!("lookalike: {error}; training goes on without them"));
        }
    }

    fn show_step(&mut self, trainer: &Trainer<'_>, report: &StepReport, loss: f64) {
        let progress = report.progress;
        let speed = self.examples as f64 / progress.train_seconds.max(1e-9);
        let latest =
            self.latest.as_ref().map_or(String::new(), |(name, value)| format!("  {name} {value:.2}"));
        let left = trainer.planned_steps().saturating_sub(progress.iteration);
        // By the clock: evaluations take their time too.
        let left = self.ending.seconds_left(left, (self.steps, self.started.elapsed().as_secs_f64()));
        let text = format!(
            "loss {loss:.4}{latest}  {} examples/s  {} left",
            human::count(speed as u64),
            human::seconds(left)
        );
        match &mut self.display {
            Display::Silent => {}
            Display::Bar(bar) => {
                bar.set_position(progress.iteration);
                bar.set_message(text);
            }
            Display::Plain { last } => {
                if last.elapsed() >= PLAIN_INTERVAL {
                    *last = Instant::now();
                    // A step that ends an epoch belongs to it.
                    let epoch = progress.epoch + usize::from(progress.position > 0);
                    let step = progress.iteration;
                    let name = self.name.as_ref().map_or(String::new(), |name| format!("{name}  "));
                    inform!("{name}epoch {epoch}  step {step}  {text}");
                }
            }
        }
    }
}

impl Observer for RunProgress {
    fn on_step(&mut self, trainer: &Trainer<'_>, report: &StepReport) {
        self.examples += report.batch as u64;
        self.steps += 1;
        self.wire.steps += 1;
        self.wire.bytes += report.bytes_sent;
        let loss = self.loss.take(report.loss);
        self.show_step(trainer, report, loss);
        self.last_step = (Instant::now(), report.progress.train_seconds);
        let progress = report.progress;
        if !progress.iteration.is_multiple_of(LOG_INTERVAL) {
            return;
        }
        let entry = json!({
            "event": "step", "iteration": progress.iteration, "epoch": progress.epoch,
            "loss": report.loss, "smooth-loss": loss, "lr": report.rate,
            "train-seconds": progress.train_seconds,
        });
        self.write_log(&entry);
        self.write_events(progress.iteration, &[("loss", report.loss as f32), ("lr", report.rate)]);
    }

    fn on_evaluation(&mut self, trainer: &Trainer<'_>, evaluation: &Evaluation, is_best: bool) {
        let progress = trainer.state.progress;
        let (last_step, trained) = self.last_step;
        self.ending.settling = (progress.train_seconds - trained).max(0.0);
        self.ending.evaluation = (last_step.elapsed().as_secs_f64() - self.ending.settling).max(0.0);
        let known = |(name, value): (&str, Option<f64>)| value.map(|v| (name.to_owned(), v));
        let values: Vec<(String, f64)> = evaluation.values.iter().filter_map(known).collect();
        self.latest = values.first().cloned();
        let precisions = values.iter().filter(|(name, _)| name.starts_with("P@"));
        let text: Vec<String> = precisions.map(|(name, value)| format!("{name} {value:.2}")).collect();
        if self.name.is_none() {
            self.say(&format!(
                "epoch {:<3} step {:<7} {}  after {}{}",
                progress.epoch,
                progress.iteration,
                text.join("  "),
                human::seconds(progress.train_seconds),
                if is_best && self.tells_best { "  best so far" } else { "" },
            ));
        }
        let entry = json!({
            "event": "evaluation", "iteration": progress.iteration, "epoch": progress.epoch,
            "train-seconds": progress.train_seconds, "metrics": evaluation.values,
        });
        self.write_log(&entry);
        let scalars: Vec<(&str, f32)> = values.iter().map(|(n, v)| (n.as_str(), *v as f32)).collect();
        self.write_events(progress.iteration, &scalars);
    }

    fn should_stop(&mut self) -> bool {
        signals::interrupted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_includes_what_comes_after_the_last_step() {
        let ending = Ending { evaluation: 2.0, settling: 1.0, measured: 6.0 };
        assert_eq!(ending.seconds_left(30, (10, 5.0)), 15.0 + 1.0 + 12.0);
        assert_eq!(ending.seconds_left(0, (10, 5.0)), 13.0);
        assert_eq!(Ending::default().seconds_left(4, (0, 0.0)), 0.0);
    }
}
