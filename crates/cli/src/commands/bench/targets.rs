//! `lookalike bench targets`: every measurement that has a target, with its
//! command and the verdict.
//!
//! Each command runs in a process of its own, so that memory and caches are its
//! own too; commands that several targets share run once. Targets and the times
//! of the paper's code are for two cores.

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::Context;
use clap::Args;
use lookalike_report::{Column, Format, Table};
use serde::Serialize;
use serde_json::Value;

use super::figures::BenchReport;
use super::scale::{ScaleReport, SizeFigures};
use crate::exit::usage;
use crate::output::inform;

/// Runs every measurement that has a target and gives the verdicts.
///
/// Takes some minutes on two cores, and 20 GB of memory for ten million classes.
#[derive(Args)]
#[command(after_help = "Examples:
  lookalike bench targets
  lookalike bench targets --only step-3900,refresh-50 --json
  lookalike bench targets --list")]
pub(crate) struct TargetArguments {
    /// Run only these
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Print names, targets and commands, and run nothing
    #[arg(long)]
    list: bool,
    /// Steps to measure in each run
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeats: u32,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

struct Target {
    name: &'static str,
    what: &'static str,
    /// What the paper's code takes, if it was measured.
    paper: &'static str,
    bound: Bound,
    format: Format,
    command: &'static str,
    reading: Reading,
}

#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// Where in a command's report the figure stands.
enum Reading {
    Stages(fn(&BenchReport) -> Option<f64>),
    Scale(fn(&ScaleReport) -> Option<f64>),
}

const STEP_3900: &str = "bench --shape amazon-670k --batch 1024 --budget 3900 --tables 50";
const STEP_30000: &str = "bench --shape amazon-670k --batch 1024 --budget 30000 --tables 400";
const SCALE: &str = "bench scale --batch 256 --budget 1000 --classes 10000,100000,1000000,10000000";
const GIBIBYTE: f64 = (1u64 << 30) as f64;

const TARGETS: &[Target] = &[
    Target {
        name: "step-3900",
        what: "step, 3,900 candidates an example",
        paper: "0.75–1.0 s",
        bound: Bound::AtMost(0.10),
        format: Format::Seconds,
        command: STEP_3900,
        reading: Reading::Stages(|report| Some(report.contenders[0].step_seconds.median)),
    },
    Target {
        name: "step-30000",
        what: "step, 30,000 candidates an example",
        paper: "6.2–6.8 s",
        bound: Bound::AtMost(0.6),
        format: Format::Seconds,
        command: STEP_30000,
        reading: Reading::Stages(|report| Some(report.contenders[0].step_seconds.median)),
    },
    Target {
        name: "step-30000-peak",
        what: "its share of the multiply-add peak",
        paper: "",
        bound: Bound::AtLeast(0.25),
        format: Format::Percent(1),
        command: STEP_30000,
        reading: Reading::Stages(|report| Some(report.contenders[0].step_share_of_peak)),
    },
    Target {
        name: "refresh-50",
        what: "refresh of all classes, L = 50",
        paper: "5.1–6.5 s",
        bound: Bound::AtMost(0.30),
        format: Format::Seconds,
        command: STEP_3900,
        reading: Reading::Stages(refresh_seconds),
    },
    Target {
        name: "refresh-400",
        what: "refresh of all classes, L = 400",
        paper: "59.6 s",
        bound: Bound::AtMost(2.5),
        format: Format::Seconds,
        command: STEP_30000,
        reading: Reading::Stages(refresh_seconds),
    },
    Target {
        name: "full-peak",
        what: "full softmax, share of the multiply-add peak",
        paper: "",
        bound: Bound::AtLeast(0.6),
        format: Format::Percent(1),
        command: "bench --shape amazon-670k --batch 1024 --sampler full",
        reading: Reading::Stages(|report| Some(report.contenders[0].step_share_of_peak)),
    },
    Target {
        name: "full-ratio-0.005",
        what: "epoch, full ÷ LSH, best 128 of 0.005·N",
        paper: "",
        bound: Bound::AtLeast(45.0),
        format: Format::Fixed(1),
        command: "bench --shape amazon-670k --batch 1024 --budget 128 --retrieve 3350 --tables 50 --against full",
        reading: Reading::Stages(|report| Some(report.ratios.first()?.epoch.median)),
    },
    Target {
        name: "full-ratio-0.05",
        what: "epoch, full ÷ LSH, best 300 of 0.05·N",
        paper: "",
        bound: Bound::AtLeast(10.0),
        format: Format::Fixed(1),
        command: "bench --shape amazon-670k --batch 1024 --budget 300 --retrieve 33500 --tables 400 --against full",
        reading: Reading::Stages(|report| Some(report.ratios.first()?.epoch.median)),
    },
    Target {
        name: "uniform-ratio",
        what: "step, LSH ÷ uniform",
        paper: "",
        bound: Bound::AtMost(1.3),
        format: Format::Fixed(2),
        command: "bench --shape amazon-670k --batch 1024 --budget 3900 --tables 50 --sampler uniform --against lsh-embedding",
        reading: Reading::Stages(|report| Some(report.ratios.first()?.step.median)),
    },
    Target {
        name: "growth-step",
        what: "step, 1M → 10M classes",
        paper: "",
        bound: Bound::AtMost(1.5),
        format: Format::Fixed(2),
        command: SCALE,
        reading: Reading::Scale(|report| {
            growth(report, 1_000_000, 10_000_000, |size| size.step_seconds.median)
        }),
    },
    Target {
        name: "growth-row",
        what: "time per distinct row, 100K → 10M classes",
        paper: "",
        bound: Bound::AtMost(2.0),
        format: Format::Fixed(2),
        command: SCALE,
        reading: Reading::Scale(|report| growth(report, 100_000, 10_000_000, |size| size.row_seconds.median)),
    },
    Target {
        name: "growth-query",
        what: "hashing and sampling a query, worst growth of any two sizes",
        paper: "",
        bound: Bound::AtMost(1.3),
        format: Format::Fixed(2),
        command: SCALE,
        reading: Reading::Scale(|report| {
            let mut fastest = f64::INFINITY;
            let growths = report.sizes.iter().map(|size| {
                fastest = fastest.min(size.query_seconds.median);
                size.query_seconds.median / fastest
            });
            growths.reduce(f64::max)
        }),
    },
    Target {
        name: "threads",
        what: "step, one thread ÷ two",
        paper: "",
        bound: Bound::AtLeast(1.8),
        format: Format::Fixed(2),
        command: "bench --shape amazon-670k --batch 1024 --budget 3900 --tables 50 --threads 2 --against-one-thread",
        reading: Reading::Stages(|report| Some(report.ratios.first()?.step.median)),
    },
    Target {
        name: "memory",
        what: "peak memory, L = 50, examples on disk",
        paper: "2.2 GB",
        bound: Bound::AtMost(1.9e9),
        format: Format::Bytes,
        command: STEP_3900,
        reading: Reading::Stages(|report| report.peak_memory_bytes.map(|bytes| bytes as f64)),
    },
    Target {
        name: "memory-bf16",
        what: "the same, stored as bf16",
        paper: "",
        bound: Bound::AtMost(1.2e9),
        format: Format::Bytes,
        command: "bench --shape amazon-670k --batch 1024 --budget 3900 --tables 50 --storage bf16",
        reading: Reading::Stages(|report| report.peak_memory_bytes.map(|bytes| bytes as f64)),
    },
    Target {
        name: "memory-10m",
        what: "peak memory, 10M classes × 128",
        paper: "",
        bound: Bound::AtMost(24.0 * GIBIBYTE),
        format: Format::Bytes,
        command: SCALE,
        reading: Reading::Scale(|report| {
            let size = report.sizes.iter().find(|size| size.classes == 10_000_000)?;
            size.peak_memory_bytes.map(|bytes| bytes as f64)
        }),
    },
];

fn refresh_seconds(report: &BenchReport) -> Option<f64> {
    Some(report.contenders[0].refresh.as_ref()?.seconds.median)
}

fn growth(report: &ScaleReport, from: usize, to: usize, of: fn(&SizeFigures) -> f64) -> Option<f64> {
    let at = |classes| report.sizes.iter().find(|size| size.classes == classes).map(of);
    Some(at(to)? / at(from)?)
}

/// A target with what was measured.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Verdict {
    name: &'static str,
    what: &'static str,
    target: String,
    measured: Option<f64>,
    verdict: &'static str,
    command: String,
}

pub(crate) fn run(arguments: &TargetArguments) -> anyhow::Result<()> {
    let chosen = choose(&arguments.only)?;
    let mut out = std::io::stdout().lock();
    let mut reports = HashMap::new();
    let mut verdicts = Vec::new();
    for target in chosen {
        let measured = match arguments.list {
            true => None,
            false => measure(target, arguments.repeats, &mut reports)?,
        };
        let verdict = target.verdict(measured, arguments.list);
        if arguments.json {
            writeln!(out, "{}", serde_json::to_string(&verdict)?)?;
            out.flush()?;
        }
        verdicts.push((target, verdict));
    }
    if !arguments.json {
        write!(out, "{}\n{}", table(&verdicts).to_text(), commands(&verdicts))?;
    }
    Ok(())
}

fn choose(names: &[String]) -> anyhow::Result<Vec<&'static Target>> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let find = |name: &String| {
        TARGETS.iter().find(|target| target.name == name).ok_or_else(|| {
            let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            usage(format!("there is no target {name:?}; targets are {}", known.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

/// Runs a target's command, unless another target's run has done so already.
fn measure(
    target: &Target,
    repeats: u32,
    reports: &mut HashMap<&'static str, Value>,
) -> anyhow::Result<Option<f64>> {
    if !reports.contains_key(target.command) {
        inform!("lookalike {}", target.command);
        reports.insert(target.command, run_command(target.command, repeats)?);
    }
    let report = reports[target.command].clone();
    Ok(match target.reading {
        Reading::Stages(read) => read(&serde_json::from_value(report)?),
        Reading::Scale(read) => read(&serde_json::from_value(report)?),
    })
}

fn run_command(command: &str, repeats: u32) -> anyhow::Result<Value> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let output = Command::new(program)
        .args(command.split(' '))
        .args(["--json", "--repeats", &repeats.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run lookalike {command}"))?;
    anyhow::ensure!(output.status.success(), "lookalike {command} failed: {}", output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("lookalike {command} printed no report"))
}

impl Target {
    fn wanted(&self) -> String {
        match self.bound {
            Bound::AtMost(bound) => format!("≤ {}", self.format.write(bound)),
            Bound::AtLeast(bound) => format!("≥ {}", self.format.write(bound)),
        }
    }

    fn verdict(&self, measured: Option<f64>, is_list: bool) -> Verdict {
        let is_met = |value: f64| match self.bound {
            Bound::AtMost(bound) => value <= bound,
            Bound::AtLeast(bound) => value >= bound,
        };
        let verdict = match measured.map(is_met) {
            Some(true) => "met",
            Some(false) => "missed",
            None if is_list => "",
            None => "not measurable here",
        };
        let command = format!("lookalike {}", self.command);
        Verdict { name: self.name, what: self.what, target: self.wanted(), measured, verdict, command }
    }
}

fn table(verdicts: &[(&Target, Verdict)]) -> Table {
    let mut table = Table::new("Targets, for two cores")
        .column(Column::text("name"))
        .column(Column::text("what"))
        .column(Column::text("target"))
        .column(Column::text("measured"))
        .column(Column::text("verdict"))
        .column(Column::text("the paper's code"));
    for (target, verdict) in verdicts {
        table.push_row([
            verdict.name.into(),
            verdict.what.into(),
            verdict.target.as_str().into(),
            verdict.measured.map(|value| target.format.write(value)).into(),
            verdict.verdict.into(),
            target.paper.into(),
        ]);
    }
    table
}

/// The commands in order, each with the targets that it measures.
fn commands(verdicts: &[(&Target, Verdict)]) -> String {
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for (_, verdict) in verdicts {
        match lines.iter_mut().find(|(command, _)| *command == verdict.command) {
            Some((_, names)) => names.push(verdict.name),
            None => lines.push((&verdict.command, vec![verdict.name])),
        }
    }
    let line = |(command, names): &(&str, Vec<&str>)| format!("{}:\n  {command}\n", names.join(", "));
    let run: String = lines.iter().map(line).collect();
    format!("{run}no heap allocation in a step:\n  cargo test --release -p lookalike --test allocation\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_met_up_to_its_edge() {
        let step = &TARGETS[0];
        assert_eq!(step.verdict(Some(0.1), false).verdict, "met");
        assert_eq!(step.verdict(Some(0.1001), false).verdict, "missed");
        assert_eq!(step.verdict(None, false).verdict, "not measurable here");
        let peak = choose(&["full-peak".into()]).unwrap()[0];
        assert_eq!(peak.verdict(Some(0.61), false).verdict, "met");
        assert_eq!(peak.wanted(), "≥ 60.0%");
        assert!(choose(&["full".into()]).is_err());
    }

    #[test]
    fn commands_parse_and_fit_their_readings() {
        use clap::Parser;
        for target in TARGETS {
            let words = ["lookalike"].into_iter().chain(target.command.split(' '));
            let parsed = crate::arguments::Cli::try_parse_from(words);
            assert!(parsed.is_ok(), "{}: {}", target.name, parsed.err().unwrap());
            let is_scale = matches!(target.reading, Reading::Scale(_));
            assert_eq!(target.command.starts_with("bench scale"), is_scale, "{}", target.name);
        }
    }
}
