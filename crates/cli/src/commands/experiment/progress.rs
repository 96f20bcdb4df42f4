//! The progress of a whole matrix of runs, with the time that is left.
//!
//! A run's time is not known before it was run: it is that of the same method
//! with another seed, or else the mean of the runs that were.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lookalike::experiment::summary::MAIN_METRIC;
use lookalike::experiment::{CurvePoint, MatrixObserver, PlannedRun, RunRecord};
use lookalike::train::{StepReport, Trainer};
use lookalike_report::human;

use crate::output::inform;
use crate::signals;

/// The time between two plain lines.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);
/// Places on the bar for each run.
const RUN_PARTS: u64 = 1000;

type OnRecord<'a> = Box<dyn FnMut(&[RunRecord]) -> anyhow::Result<()> + Send + 'a>;

/// Shows a matrix, and passes finished runs on.
pub(crate) struct MatrixProgress<'a> {
    names: Vec<String>,
    display: Display,
    /// Wall-clock seconds of finished runs, by name.
    finished: Vec<(String, f64)>,
    current: Option<Current>,
    time_limit_seconds: Option<f64>,
    on_record: OnRecord<'a>,
    /// The first thing that went wrong while reporting; ends the matrix.
    failure: Option<anyhow::Error>,
}

enum Display {
    Bar(ProgressBar),
    Plain { last: Instant },
    Silent,
}

struct Current {
    index: usize,
    title: String,
    started: Instant,
    done: f64,
    latest: Option<f64>,
}

impl<'a> MatrixProgress<'a> {
    /// For these runs, each of which may end at a time limit; `on_record` is
    /// called with all records after each run.
    pub(crate) fn new(
        runs: &[PlannedRun],
        time_limit_seconds: Option<f64>,
        quiet: bool,
        on_record: impl FnMut(&[RunRecord]) -> anyhow::Result<()> + Send + 'a,
    ) -> Self {
        let display = if quiet {
            Display::Silent
        } else if std::io::stderr().is_terminal() {
            let target = ProgressDrawTarget::stderr_with_hz(5);
            let bar = ProgressBar::with_draw_target(Some(RUN_PARTS * runs.len() as u64), target);
            let style = ProgressStyle::with_template("{bar:24} {percent:>3}%  {msg}");
            bar.set_style(style.unwrap_or(ProgressStyle::default_bar()));
            Display::Bar(bar)
        } else {
            Display::Plain { last: Instant::now() }
        };
        Self {
            names: runs.iter().map(|run| run.name.clone()).collect(),
            display,
            finished: Vec::new(),
            current: None,
            time_limit_seconds,
            on_record: Box::new(on_record),
            failure: None,
        }
    }

    /// Removes the bar; gives what went wrong.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        if let Display::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
        self.failure.map_or(Ok(()), Err)
    }

    fn say(&self, line: &str) {
        match &self.display {
            Display::Bar(bar) => bar.suspend(|| inform!("{line}")),
            Display::Plain { .. } => inform!("{line}"),
            Display::Silent => {}
        }
    }

    /// Seconds until all runs are done, once anything is known.
    fn seconds_left(&self) -> Option<f64> {
        let current = self.current.as_ref()?;
        let elapsed = current.started.elapsed().as_secs_f64();
        let expected = (current.done > 0.0).then(|| elapsed / current.done);
        let left = time_left(&self.names, current.index, expected, &self.finished)?;
        Some((left - elapsed).max(0.0))
    }

    fn show(&mut self) {
        let Some(current) = &self.current else { return };
        let value = current.latest.map_or(String::new(), |value| format!("  {MAIN_METRIC} {value:.2}"));
        let left =
            self.seconds_left().map_or(String::new(), |left| format!("  {} left", human::seconds(left)));
        let text = format!(
            "run {} of {}: {}, {:.0}%{value}{left}",
            current.index + 1,
            self.names.len(),
            current.title,
            100.0 * current.done
        );
        match &mut self.display {
            Display::Silent => {}
            Display::Bar(bar) => {
                bar.set_position(((current.index as f64 + current.done) * RUN_PARTS as f64) as u64);
                bar.set_message(text);
            }
            Display::Plain { last } => {
                if last.elapsed() >= PLAIN_INTERVAL {
                    *last = Instant::now();
                    inform!("{text}");
                }
            }
        }
    }
}

/// Seconds of the current run, `expected` in all, and of the runs after it.
fn time_left(
    names: &[String],
    current: usize,
    expected: Option<f64>,
    finished: &[(String, f64)],
) -> Option<f64> {
    let mean = |times: Vec<f64>| (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64);
    let of_name = |name: &str| mean(finished.iter().filter(|(n, _)| n == name).map(|(_, t)| *t).collect());
    let current_time = expected.or_else(|| of_name(&names[current]));
    let overall = mean(finished.iter().map(|(_, time)| *time).chain(current_time).collect())?;
    let later = names[current + 1..].iter().map(|name| of_name(name).unwrap_or(overall));
    Some(current_time.unwrap_or(overall) + later.sum::<f64>())
}

impl MatrixObserver for MatrixProgress<'_> {
    fn on_start(&mut self, index: usize, run: &PlannedRun) {
        self.current = Some(Current {
            index,
            title: format!("{}, seed {}", run.name, run.settings.seed),
            started: Instant::now(),
            done: 0.0,
            latest: None,
        });
    }

    fn on_step(&mut self, trainer: &Trainer<'_>, report: &StepReport) {
        if let Some(current) = &mut self.current {
            let by_steps = report.progress.iteration as f64 / trainer.planned_steps().max(1) as f64;
            let by_time = self.time_limit_seconds.map_or(0.0, |limit| report.progress.train_seconds / limit);
            current.done = by_steps.max(by_time).min(1.0);
        }
        self.show();
    }

    fn on_evaluation(&mut self, point: &CurvePoint) {
        if let Some(current) = &mut self.current {
            current.latest = point.metric(MAIN_METRIC);
        }
        self.show();
    }

    fn on_record(&mut self, index: usize, all: &[RunRecord], was_there: bool) {
        let Some(record) = all.last() else { return };
        self.finished.push((record.run.name.clone(), record.wall_seconds));
        let value = match (record.final_value(MAIN_METRIC), &record.diverged) {
            (Some(value), _) => format!("{MAIN_METRIC} {value:.2}"),
            (None, Some(_)) => "diverged".into(),
            (None, None) => "no test example has a label".into(),
        };
        let line = format!(
            "{:>3} of {}  {}, seed {}: {value} after {}{}",
            index + 1,
            self.names.len(),
            record.run.name,
            record.run.settings.seed,
            human::seconds(record.total_seconds().unwrap_or(0.0)),
            if was_there { " (from an earlier start)" } else { "" },
        );
        self.say(&line);
        // Records that were there have been reported, but perhaps not together.
        let due = !was_there || index + 1 == self.names.len();
        if due && let (Err(error), None) = ((self.on_record)(all), &self.failure) {
            self.failure = Some(error);
        }
    }

    fn should_stop(&mut self) -> bool {
        self.failure.is_some() || signals::interrupted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_like_runs() {
        let names = ["full", "lsh", "nce", "full", "lsh"].map(String::from);
        assert_eq!(time_left(&names, 0, None, &[]), None);
        // The first run will take 100 s; so may the other four.
        assert_eq!(time_left(&names, 0, Some(100.0), &[]), Some(500.0));
        let finished = [("full".to_owned(), 90.0), ("lsh".to_owned(), 10.0)];
        // This one 20 s, the unknown is done; then full 90 s and lsh 10 s.
        assert_eq!(time_left(&names, 2, Some(20.0), &finished), Some(120.0));
        // Nothing known of nce yet: the mean of the others, 50 s.
        assert_eq!(time_left(&names, 2, None, &finished), Some(150.0));
    }
}
