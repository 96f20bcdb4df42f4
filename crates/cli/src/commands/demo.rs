//! `lookalike demo`: names of cities, learnt in four ways.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use lookalike::artifact::{self, check_destination};
use lookalike::data::{Examples, write::check_folder};
use lookalike::metrics::MetricOptions;
use lookalike::model::Model;
use lookalike::predict::{Ask, Evaluation, Predictor};
use lookalike::sampling::SamplerKind;
use lookalike::text::{
    ReadOptions, TextDataset, TextFile, TextOptions, TextPipeline, fit_dataset, transform_dataset,
};
use lookalike::train::{
    Every, NothingKept, Observer, Outcome, RateSchedule, RunPlan, StepReport, TrainConfig, Trainer,
    TrainingRecord, Validation, run as run_training,
};
use lookalike_kernels::Cpu;
use lookalike_report::human;

use super::MachineArguments;
use crate::exit::INTERRUPTED;
use crate::output::inform;
use crate::progress::RunProgress;
use crate::signals;

mod show;

/// Learns which city a name means, in four ways, and compares them.
///
/// 6,000 cities with their names in all languages and scripts; a tenth of the
/// names is held out. Trains with the paper's two samplers, with sampled softmax
/// and with full softmax, prints what they reach and how fast, saves the better
/// of the paper's two and writes a report. Takes about a minute on two cores.
#[derive(Args)]
#[command(after_help = "The names are from GeoNames (geonames.org), licensed under CC BY 4.0.")]
pub(crate) struct DemoArguments {
    /// Where to write the model and the report
    #[arg(long, value_name = "FOLDER", default_value = "lookalike-demo")]
    out: PathBuf,
    /// Passes over the names
    #[arg(long, value_name = "E", default_value_t = 4)]
    epochs: usize,
    #[command(flatten)]
    machine: MachineArguments,
}

const TRAIN: &[u8] = include_bytes!("../../assets/cities-train.tsv.zst");
const TEST: &[u8] = include_bytes!("../../assets/cities-test.tsv.zst");

/// The four ways, in the order they run and are printed.
const METHODS: [(&str, SamplerKind); 4] = [
    ("LSH Embedding", SamplerKind::LshEmbedding),
    ("LSH Label", SamplerKind::LshLabel),
    ("Sampled softmax", SamplerKind::LogUniform),
    ("Full softmax", SamplerKind::Full),
];

/// What all four share; found by trying, for a good answer within two minutes.
fn settings(sampler: SamplerKind, epochs: usize) -> TrainConfig {
    TrainConfig {
        sampler,
        // 3% of the classes.
        budget: Some(200),
        hidden: vec![128],
        epochs,
        batch: 512,
        lr: 1e-2,
        lr_schedule: RateSchedule::Linear,
        seed: 1,
        ..TrainConfig::default()
    }
}

/// Evaluations an epoch: enough to see when a method gets where.
const EVALUATIONS_PER_EPOCH: u64 = 3;

/// What came of one way.
struct Run {
    name: &'static str,
    model: Model,
    record: TrainingRecord,
    curve: Vec<Point>,
}

/// An evaluation on the held-out names.
#[derive(Clone, Copy)]
struct Point {
    train_seconds: f64,
    p1: f64,
    p5: f64,
}

impl Run {
    fn last(&self) -> Point {
        self.curve.last().copied().unwrap_or(Point { train_seconds: 0.0, p1: 0.0, p5: 0.0 })
    }

    fn epoch_seconds(&self) -> f64 {
        self.record.progress.train_seconds / self.record.progress.epoch.max(1) as f64
    }

    /// When P@1 first came to a value, on the straight line between evaluations.
    fn seconds_until(&self, p1: f64) -> Option<f64> {
        let mut before = Point { train_seconds: 0.0, p1: 0.0, p5: 0.0 };
        for &point in &self.curve {
            if point.p1 >= p1 {
                let share = (p1 - before.p1) / (point.p1 - before.p1).max(f64::MIN_POSITIVE);
                return Some(before.train_seconds + share * (point.train_seconds - before.train_seconds));
            }
            before = point;
        }
        None
    }
}

pub(crate) fn run(arguments: DemoArguments) -> anyhow::Result<ExitCode> {
    signals::catch();
    arguments.machine.install(|| demo(&arguments))?
}

fn demo(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    let cpu = arguments.machine.cpu()?;
    check_folder(&arguments.out).context("--out")?;
    check_destination(&arguments.out.join("model"))?;
    let cities = Cities::read()?;
    let train = cities.train.dataset.view();
    inform!(
        "{} names of {} cities to learn from, {} held-out names to test on; {} features",
        human::count(train.len() as u64),
        human::count(train.num_classes as u64),
        human::count(cities.test.view().len() as u64),
        human::count(train.num_features as u64),
    );
    let mut runs = Vec::new();
    for (name, sampler) in METHODS {
        match train_one(name, settings(sampler, arguments.epochs), &cities, cpu)? {
            Some(run) => runs.push(run),
            None => {
                inform!("interrupted: nothing was saved");
                return Ok(ExitCode::from(INTERRUPTED));
            }
        }
    }
    let best = better_of_the_papers_two(&runs);
    let TextDataset { vectoriser, names, .. } = &cities.train;
    runs[best].model.text = Some(TextPipeline { vectoriser: vectoriser.clone(), names: names.clone() });
    let answers = held_out_answers(&runs[best].model, &cities, cpu);
    save(arguments, &runs, best, &answers, &cities)?;
    Ok(ExitCode::SUCCESS)
}

/// The names, as examples.
struct Cities {
    train: TextDataset,
    test: lookalike::data::Dataset,
    /// The held-out names themselves.
    test_names: Vec<String>,
}

impl Cities {
    fn read() -> anyhow::Result<Self> {
        let open = |name, bytes| TextFile::from_bytes(name, bytes, &ReadOptions::default());
        let train = fit_dataset(&open("cities-train.tsv.zst", TRAIN)?, &TextOptions::default())?;
        let file = open("cities-test.tsv.zst", TEST)?;
        let (test, _) = transform_dataset(&file, &train.vectoriser, &train.names)?;
        let test_names = file.records()?.map(|record| Ok(record?.text)).collect::<anyhow::Result<_>>()?;
        Ok(Self { train, test, test_names })
    }
}

/// Trains one way; none if the user ended it.
fn train_one(
    name: &'static str,
    config: TrainConfig,
    cities: &Cities,
    cpu: Cpu,
) -> anyhow::Result<Option<Run>> {
    let mut trainer = Trainer::new(config, cities.train.dataset.view(), cpu)?;
    let validation = Validation {
        examples: cities.test.view(),
        unknown_labels: &|_| 0,
        every: Every::Iterations(trainer.steps_per_epoch().div_ceil(EVALUATIONS_PER_EPOCH)),
        metrics: MetricOptions { k: vec![1, 5], ..MetricOptions::default() },
        patience: None,
    };
    let progress = RunProgress::new(trainer.planned_steps(), false).named(name);
    let mut recorder = Recorder { progress, curve: Vec::new() };
    let plan = RunPlan { validation: Some(validation), ..RunPlan::default() };
    let outcome = run_training(&mut trainer, &plan, &mut NothingKept, &mut recorder);
    recorder.progress.finish();
    if outcome? == Outcome::Stopped {
        return Ok(None);
    }
    let record = trainer.state.record();
    let run = Run { name, curve: recorder.curve, model: trainer.model, record };
    let seconds = human::seconds(run.record.progress.train_seconds);
    inform!("{name:<16} {} epochs in {seconds}, P@1 {:.1}", run.record.progress.epoch, run.last().p1);
    Ok(Some(run))
}

/// Shows a run and remembers how it went.
struct Recorder {
    progress: RunProgress,
    curve: Vec<Point>,
}

impl Observer for Recorder {
    fn on_step(&mut self, trainer: &Trainer<'_>, report: &StepReport) {
        self.progress.on_step(trainer, report);
    }

    fn on_evaluation(&mut self, trainer: &Trainer<'_>, evaluation: &Evaluation, is_best: bool) {
        self.progress.on_evaluation(trainer, evaluation, is_best);
        let value = |name| evaluation.values.get(name).unwrap_or(0.0);
        let train_seconds = trainer.state.progress.train_seconds;
        self.curve.push(Point { train_seconds, p1: value("P@1"), p5: value("P@5") });
    }

    fn should_stop(&mut self) -> bool {
        self.progress.should_stop()
    }
}

/// The place of the better LSH scheme.
fn better_of_the_papers_two(runs: &[Run]) -> usize {
    let is_lsh = |run: &Run| run.record.config.sampler.uses_tables();
    let p1 = |place: &usize| runs[*place].last().p1;
    let mut places: Vec<usize> = (0..runs.len()).filter(|&place| is_lsh(&runs[place])).collect();
    places.sort_by(|a, b| p1(b).total_cmp(&p1(a)));
    places[0]
}

/// A held-out name, its cities and what the model says.
struct Answer {
    name: String,
    truth: Vec<String>,
    predictions: Vec<(String, f32)>,
}

impl Answer {
    fn is_right(&self) -> bool {
        self.predictions.first().is_some_and(|(first, _)| self.truth.contains(first))
    }
}

/// Five held-out names that a reader of this can check: in plain letters, spread
/// evenly over those of the 500 cities with the most names.
fn held_out_answers(model: &Model, cities: &Cities, cpu: Cpu) -> Vec<Answer> {
    const SHOWN: usize = 5;
    const CITIES: usize = 500;
    let names = &cities.train.names;
    let mut counts: Vec<u32> = model.frequencies.examples_of_class.clone();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let many = counts.get(CITIES).copied().unwrap_or(0);
    let test: Examples<'_> = cities.test.view();
    let can_be_checked = |&example: &usize| {
        let is_known = |&city: &u32| model.frequencies.examples_of_class[city as usize] > many;
        cities.test_names[example].is_ascii() && test.labels(example).iter().any(is_known)
    };
    let known: Vec<usize> = (0..test.len()).filter(can_be_checked).collect();
    let chosen: Vec<u32> = (0..SHOWN)
        .filter_map(|i| known.get((2 * i + 1) * known.len() / (2 * SHOWN)))
        .map(|&example| example as u32)
        .collect();
    let name = |class: u32| names.name(class).unwrap_or_default().to_owned();
    let predictor = Predictor::new(model, cpu);
    let best = predictor.rank(&test, &chosen, Ask { probabilities: true, ..Ask::best(3) });
    (chosen.iter().enumerate())
        .map(|(place, &example)| Answer {
            name: cities.test_names[example as usize].clone(),
            truth: test.labels(example as usize).iter().map(|&class| name(class)).collect(),
            predictions: predictor.named(&best, place).into_iter().map(|c| (c.name, c.score)).collect(),
        })
        .collect()
}

fn save(
    arguments: &DemoArguments,
    runs: &[Run],
    best: usize,
    answers: &[Answer],
    cities: &Cities,
) -> anyhow::Result<()> {
    let (folder, report) = (&arguments.out, arguments.out.join("report.html"));
    let model = folder.join("model");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&report, show::page(runs, best, answers, cities).to_html()))
        .with_context(|| format!("cannot write {}", report.display()))?;
    artifact::save_model(&model, &runs[best].model, &runs[best].record).context("cannot save the model")?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}\n{}\n", show::table(runs).to_text(), show::TABLE_NOTE)?;
    writeln!(out, "{}", show::answers_table(&runs[best], answers).to_text())?;
    writeln!(out, "model   {}  ({})", model.display(), runs[best].name)?;
    writeln!(out, "report  {}", report.display())?;
    write!(out, "{}", show::what_next(&model))?;
    Ok(())
}
