//! `lookalike bench scale`: does a step stay flat in the number of classes?

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use lookalike::data::Dataset;
use lookalike::data::write::atomically;
use lookalike::train::{Stage, StageTimes, TrainConfig};
use lookalike_kernels::Cpu;
use lookalike_report::{Axis, Chart, Column, Format, Page, Section, Series, Table};
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

use super::contender::{Contender, StepSample, WARM_UP_STEPS, thread_pool};
use super::figures::Spread;
use super::memory;
use super::print::threads;
use super::shape::ShapeArguments;
use crate::commands::MachineArguments;
use crate::commands::train::SettingArguments;
use crate::exit::usage;

/// Measures steps over ever more classes at a fixed budget.
///
/// Batch 256 and 1,000 negatives an example unless told otherwise. Numbers of
/// classes are measured one after the other, the largest last: ten million of 128
/// dimensions take about 18 GB.
#[derive(Args)]
#[command(after_help = "Examples:
  lookalike bench scale
  lookalike bench scale --classes 10000,100000,1000000 --html scale.html
  lookalike bench scale --classes 10000000 --storage bf16 --json")]
pub(crate) struct ScaleArguments {
    /// Numbers of classes
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000, 10_000_000])]
    classes: Vec<usize>,
    /// Steps to measure at each size
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeats: u32,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the chart of times as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    shape: ShapeArguments,
    #[command(flatten)]
    settings: SettingArguments,
    #[command(flatten)]
    machine: MachineArguments,
}

/// All sizes, smallest first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ScaleReport {
    pub(crate) sampler: String,
    pub(crate) batch: usize,
    pub(crate) budget: usize,
    pub(crate) threads: usize,
    pub(crate) sizes: Vec<SizeFigures>,
}

/// One number of classes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct SizeFigures {
    pub(crate) classes: usize,
    pub(crate) candidates_per_example: f64,
    pub(crate) distinct_classes: f64,
    pub(crate) step_seconds: Spread,
    /// Hashing and sampling an example.
    pub(crate) query_seconds: Spread,
    /// The step's time for each different class in the batch.
    pub(crate) row_seconds: Spread,
    /// The first build of the tables.
    pub(crate) build_seconds: f64,
    pub(crate) peak_memory_bytes: Option<u64>,
    pub(crate) description: String,
}

pub(crate) fn run(arguments: &ScaleArguments) -> anyhow::Result<()> {
    let cpu = arguments.machine.cpu()?;
    let pool = thread_pool(arguments.machine)?;
    let mut config = TrainConfig { batch: 256, budget: Some(1_000), ..TrainConfig::default() };
    arguments.settings.apply(&mut config);
    let Some(budget) = config.budget else {
        return Err(usage("bench scale holds the budget fixed: give --budget instead of --sparsity"));
    };
    let mut report = ScaleReport {
        sampler: config.sampler.to_string(),
        batch: config.batch,
        budget,
        threads: pool.current_num_threads(),
        sizes: Vec::new(),
    };
    let mut sizes = arguments.classes.clone();
    sizes.sort_unstable();
    sizes.dedup();
    for classes in sizes {
        let examples = (WARM_UP_STEPS + arguments.repeats as usize) * config.batch;
        let data = pool.install(|| arguments.shape.generate(Some(classes), examples))?;
        report.sizes.push(measure(&config, &data, cpu, &pool, arguments.repeats)?);
    }
    if let Some(path) = &arguments.html {
        atomically(path, |out| out.write_all(page(&report).to_html().as_bytes()))?;
    }
    if let Some(path) = &arguments.svg {
        atomically(path, |out| out.write_all(time_chart(&report).to_svg().as_bytes()))?;
    }
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        write!(out, "{}\n{}", table(&report).to_text(), growth(&report))?;
    }
    Ok(())
}

fn measure(
    config: &TrainConfig,
    data: &Dataset,
    cpu: Cpu,
    pool: &ThreadPool,
    repeats: u32,
) -> anyhow::Result<SizeFigures> {
    let memory = memory::Peak::reset();
    let mut contender = Contender::new(config, data, cpu, pool)?;
    let first = contender.step()?;
    for _ in 1..WARM_UP_STEPS {
        contender.step()?;
    }
    for _ in 0..repeats {
        let step = contender.step()?;
        contender.steps.push(step);
    }
    let counts = contender.counts();
    let spread =
        |of: &dyn Fn(&StepSample) -> f64| Spread::of(contender.steps.iter().map(of)).unwrap_or(Spread::ZERO);
    let query = |times: &StageTimes| times.of(Stage::Hash) + times.of(Stage::Sample);
    Ok(SizeFigures {
        classes: data.num_classes,
        candidates_per_example: counts.pairs / counts.examples,
        distinct_classes: counts.classes,
        step_seconds: spread(&|step| step.seconds),
        query_seconds: spread(&|step| query(&step.times).as_secs_f64() / step.counts.examples),
        row_seconds: spread(&|step| step.seconds / step.counts.classes.max(1.0)),
        build_seconds: first.times.of(Stage::Refresh).as_secs_f64(),
        peak_memory_bytes: memory.bytes(),
        description: contender.describe(),
    })
}

fn table(report: &ScaleReport) -> Table {
    let title = format!(
        "{}, batch {}, budget {}, {}",
        report.sampler,
        report.batch,
        report.budget,
        threads(report.threads)
    );
    let mut table = Table::new(title)
        .column(Column::number("classes", Format::Count))
        .column(Column::number("step", Format::Seconds))
        .column(Column::number("from", Format::Seconds))
        .column(Column::number("to", Format::Seconds))
        .column(Column::number("query", Format::Seconds).hint("hashing and sampling, an example"))
        .column(Column::number("row", Format::Seconds).hint("step time for each different class in it"))
        .column(Column::number("rows", Format::Count).hint("different classes in a batch"))
        .column(Column::number("candidates", Format::Count).hint("an example, true labels included"))
        .column(Column::number("build", Format::Seconds).hint("the first build of the hash tables"))
        .column(Column::number("memory", Format::Bytes).hint("the most that was resident"));
    for size in &report.sizes {
        table.push_row([
            size.classes.into(),
            size.step_seconds.median.into(),
            size.step_seconds.low.into(),
            size.step_seconds.high.into(),
            size.query_seconds.median.into(),
            size.row_seconds.median.into(),
            size.distinct_classes.into(),
            size.candidates_per_example.into(),
            size.build_seconds.into(),
            size.peak_memory_bytes.into(),
        ]);
    }
    table
}

/// How much slower each size is than the one before.
fn growth(report: &ScaleReport) -> String {
    let mut out = String::new();
    for pair in report.sizes.windows(2) {
        let factor = |of: fn(&SizeFigures) -> f64| Format::Fixed(2).write(of(&pair[1]) / of(&pair[0]));
        let _ = writeln!(
            out,
            "{} → {} classes: step {}×, query {}×, row {}×",
            Format::Count.write(pair[0].classes as f64),
            Format::Count.write(pair[1].classes as f64),
            factor(|size| size.step_seconds.median),
            factor(|size| size.query_seconds.median),
            factor(|size| size.row_seconds.median),
        );
    }
    out
}

fn points(report: &ScaleReport, of: impl Fn(&SizeFigures) -> Spread) -> Vec<(f64, f64, f64, f64)> {
    let point = |size: &SizeFigures| {
        let Spread { median, low, high } = of(size);
        (size.classes as f64, median, low, high)
    };
    report.sizes.iter().map(point).collect()
}

fn time_chart(report: &ScaleReport) -> Chart {
    let batch = report.batch as f64;
    let of_batch = |spread: Spread| Spread {
        median: spread.median * batch,
        low: spread.low * batch,
        high: spread.high * batch,
    };
    Chart::new(
        "Time against the number of classes",
        Axis::log("classes").format(Format::Count),
        Axis::log("time").format(Format::Seconds),
    )
    .caption(format!(
        "Batch {}, {} negatives an example; bands from the fastest to the slowest step.",
        report.batch, report.budget
    ))
    .series(Series::line("whole step", points(report, |size| size.step_seconds)))
    .series(Series::line("hashing and sampling", points(report, |size| of_batch(size.query_seconds))))
}

fn row_chart(report: &ScaleReport) -> Chart {
    Chart::new(
        "Step time for each different class in the batch",
        Axis::log("classes").format(Format::Count),
        Axis::linear("time").format(Format::Seconds),
    )
    .caption("Fewer examples share a class as classes grow in number, so a batch meets more of them.")
    .series(Series::line("time a row", points(report, |size| size.row_seconds)))
}

fn memory_chart(report: &ScaleReport) -> Chart {
    let memory =
        report.sizes.iter().filter_map(|size| Some((size.classes as f64, size.peak_memory_bytes? as f64)));
    Chart::new(
        "Memory against the number of classes",
        Axis::log("classes").format(Format::Count),
        Axis::log("peak memory").format(Format::Bytes),
    )
    .caption("Class vectors with their moments, and hash tables.")
    .series(Series::line("peak", memory.collect::<Vec<_>>()))
}

fn page(report: &ScaleReport) -> Page {
    let tables = report.sizes.iter().fold(Section::new("Tables"), |section, size| {
        section.prose(format!("{}: {}", Format::Count.write(size.classes as f64), size.description))
    });
    Page::new("Training steps against the number of classes")
        .lead(format!(
            "`{}`: batch {}, {} negatives an example, {}.",
            report.sampler,
            report.batch,
            report.budget,
            threads(report.threads)
        ))
        .section(
            Section::new("Time")
                .chart(time_chart(report))
                .charts([row_chart(report), memory_chart(report)])
                .table(table(report)),
        )
        .section(tables)
        .foot("Command", std::env::args().collect::<Vec<_>>().join(" "))
}
