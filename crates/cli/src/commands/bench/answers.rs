//! `lookalike bench answers`: how long one answer takes, exact and fast.
//!
//! One thread, one query at a time, in this process; exact and fast searches take turns of
//! some dozen queries, so that whatever else the machine does slows both alike.

use std::hint::black_box;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use lookalike::artifact;
use lookalike::data::Examples;
use lookalike::model::{Model, Numbers};
use lookalike::predict::{Ask, Predictor, Recall, Search, TopK, index};
use lookalike_kernels::Cpu;
use lookalike_kernels::measure::{FLOPS_PER_ITERATION, fma_burst, read_sum};
use lookalike_report::human;
use rayon::ThreadPool;
use serde::Serialize;

use super::contender::thread_pool;
use super::lookalike_classes::{Generated, generate};
use crate::commands::MachineArguments;
use crate::exit::usage;
use crate::input::{self, ReadArguments};

/// Measures how long one answer takes on one thread: exact, and fast with its recall.
///
/// With a model and a file, that model's answers to the file's first examples; without a
/// search index both are exact. With
/// --classes, those of a generated network without sparse weights: class vectors around
/// centres around centres, of different lengths, and queries near some of them.
#[derive(Args)]
#[command(after_help = "Examples:
  lookalike bench answers model test.txt
  lookalike bench answers model test.txt --effort 500 --json
  lookalike bench answers --classes 100000,1000000")]
pub(crate) struct AnswerArguments {
    /// The model's directory
    #[arg(requires = "data", required_unless_present = "classes")]
    model: Option<PathBuf>,
    /// Examples to ask for
    data: Option<PathBuf>,
    /// Numbers of classes of generated networks, instead of a model
    #[arg(long, value_name = "N,…", value_delimiter = ',', conflicts_with = "model")]
    classes: Vec<usize>,
    /// Width of generated class vectors
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    width: u32,
    /// Queries at most
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    queries: u32,
    /// Classes of an answer
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    top_k: u32,
    /// Classes that a fast search looks at, about [default: chosen in training]
    #[arg(long, value_name = "CLASSES", value_parser = clap::value_parser!(u32).range(1..))]
    effort: Option<u32>,
    /// Print a JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    read: ReadArguments,
    #[command(flatten)]
    machine: MachineArguments,
}

/// What was measured of one model.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct AnswerFigures {
    cpu: String,
    classes: usize,
    queries: usize,
    top_k: usize,
    /// Classes that a fast search looked at; none without an index.
    effort: Option<usize>,
    /// Share of the exact answers' classes that fast ones hold.
    recall: f64,
    exact: Latency,
    fast: Latency,
    /// Median of exact ÷ median of fast.
    ratio: f64,
    /// Bytes of class vectors over the exact median, as a share of what one thread reads.
    exact_of_bandwidth: f64,
    /// Products of a batch of exact answers, as a share of what one thread can multiply.
    batch_of_peak: f64,
    /// Of a generated network.
    #[serde(skip_serializing_if = "Option::is_none")]
    index_seconds: Option<f64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Latency {
    median_ms: f64,
    p99_ms: f64,
}

impl Latency {
    fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| 1e3 * seconds[((seconds.len() - 1) as f64 * share).round() as usize];
        Self { median_ms: at(0.5), p99_ms: at(0.99) }
    }
}

pub(super) fn run(arguments: &AnswerArguments) -> anyhow::Result<()> {
    let cpu = arguments.machine.cpu()?;
    let one_thread = thread_pool(MachineArguments { threads: Some(1) })?;
    if let (Some(path), Some(data)) = (&arguments.model, &arguments.data) {
        let model = artifact::load(path)?.model;
        let data = input::for_model(data, &model, &arguments.read)?;
        let figures = measure(arguments, cpu, &one_thread, &model, &data.view())?;
        return print(arguments, &figures);
    }
    let all_threads = thread_pool(arguments.machine)?;
    for &classes in &arguments.classes {
        let (width, queries) = (arguments.width as usize, arguments.queries as usize);
        let Generated { mut model, data, judges } = all_threads.install(|| generate(classes, width, queries));
        let start = Instant::now();
        all_threads.install(|| index(cpu, &mut model, &data.view(), &judges));
        let index_seconds = start.elapsed().as_secs_f64();
        let mut figures = measure(arguments, cpu, &one_thread, &model, &data.view())?;
        figures.index_seconds = Some(index_seconds);
        print(arguments, &figures)?;
    }
    Ok(())
}

fn measure(
    arguments: &AnswerArguments,
    cpu: Cpu,
    one_thread: &ThreadPool,
    model: &Model,
    examples: &Examples<'_>,
) -> anyhow::Result<AnswerFigures> {
    let queries = examples.len().min(arguments.queries as usize);
    if queries == 0 {
        return Err(usage("there is no example to ask for"));
    }
    let predictor = Predictor::new(model, cpu);
    let effort = arguments.effort.map(|effort| effort as usize);
    let exact = Ask::best(arguments.top_k as usize);
    let fast = Ask { search: Search::Fast { effort }, ..exact };
    // All on the one thread: asked from outside, it would be woken for each query.
    let (recall, exact, fast) = one_thread.install(|| {
        let (mut recall, mut exact_seconds, mut fast_seconds) = (Recall::default(), vec![], vec![]);
        let mut out = TopK::new(exact.k);
        let mut time = |query: u32, ask: Ask<'_>, seconds: &mut Vec<f64>| {
            let start = Instant::now();
            predictor.rank_into(examples, &[query], ask, &mut out);
            seconds.push(start.elapsed().as_secs_f64());
            out.clone()
        };
        // Once without a clock: working memory and lists are made on first use.
        for ask in [exact, fast] {
            black_box(time(0, ask, &mut vec![]));
        }
        let all: Vec<u32> = (0..queries as u32).collect();
        for turn in all.chunks(TURN) {
            let expected: Vec<TopK> =
                turn.iter().map(|&query| time(query, exact, &mut exact_seconds)).collect();
            for (&query, expected) in turn.iter().zip(&expected) {
                recall.add(Recall::of(&time(query, fast, &mut fast_seconds), expected));
            }
        }
        (recall, Latency::of(exact_seconds), Latency::of(fast_seconds))
    });
    let batch: Vec<u32> = (0..queries.min(BATCH) as u32).collect();
    let of_batch = best_of(3, || one_thread.install(|| predictor.rank(examples, &batch, Ask::best(5))));
    let output = &model.network.output;
    let products = 2.0 * (output.len * output.dim * batch.len()) as f64;
    let peak = (BURST * FLOPS_PER_ITERATION) as f64 / best_of(5, || fma_burst(cpu, BURST));
    let read_seconds = seconds_to_read(cpu, &output.weights);
    Ok(AnswerFigures {
        cpu: cpu.name().into(),
        classes: model.num_classes(),
        queries,
        top_k: arguments.top_k as usize,
        effort: model.search.as_ref().map(|index| effort.unwrap_or(index.effort)),
        recall: recall.share(),
        exact,
        fast,
        ratio: exact.median_ms / fast.median_ms,
        exact_of_bandwidth: read_seconds / (1e-3 * exact.median_ms),
        batch_of_peak: products / of_batch / peak,
        index_seconds: None,
    })
}

/// Queries that one way of searching answers before it is the other's turn: each finds the
/// caches as it leaves them itself.
const TURN: usize = 50;
/// Examples of a batch.
const BATCH: usize = 1024;
/// Iterations of arithmetic, some 10 ms.
const BURST: usize = 1_000_000;

/// Seconds of the fastest of some tries.
fn best_of<T>(tries: usize, mut work: impl FnMut() -> T) -> f64 {
    let seconds = (0..tries).map(|_| {
        let start = Instant::now();
        black_box(work());
        start.elapsed().as_secs_f64()
    });
    seconds.fold(f64::INFINITY, f64::min)
}

/// In how many seconds one thread reads all class vectors.
fn seconds_to_read(cpu: Cpu, weights: &Numbers) -> f64 {
    match weights {
        Numbers::F32(numbers) => best_of(5, || read_sum(cpu, numbers)),
        // As many bytes, as numbers of four.
        Numbers::Bf16(numbers) => {
            let floats = vec![1.0; numbers.len() / 2];
            best_of(5, || read_sum(cpu, &floats))
        }
    }
}

fn print(arguments: &AnswerArguments, figures: &AnswerFigures) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(figures)?)?;
        return Ok(());
    }
    let AnswerFigures { classes, queries, top_k, exact, fast, .. } = figures;
    let classes = human::count(*classes as u64);
    writeln!(
        out,
        "{classes} classes, {queries} queries one by one, best {top_k}, one thread, {}",
        figures.cpu
    )?;
    if let Some(seconds) = figures.index_seconds {
        writeln!(out, "index       {} to build and to choose the effort", human::seconds(seconds))?;
    }
    writeln!(out, "exact       {:.3} ms median, {:.3} ms p99", exact.median_ms, exact.p99_ms)?;
    let share = 100.0 * figures.exact_of_bandwidth;
    writeln!(out, "            {share:.0}% of the speed at which class vectors can be read")?;
    writeln!(out, "            {:.0}% of peak arithmetic in a batch", 100.0 * figures.batch_of_peak)?;
    match figures.effort {
        None => writeln!(out, "fast        no index: every class is scored")?,
        Some(effort) => {
            writeln!(out, "fast        {:.3} ms median, {:.3} ms p99", fast.median_ms, fast.p99_ms)?;
            let recall = 100.0 * figures.recall;
            let times = human::times(figures.ratio);
            writeln!(out, "            recall@{top_k} {recall:.2}% at effort {effort}, {times} faster")?;
        }
    }
    Ok(())
}
