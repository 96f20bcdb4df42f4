//! From measured steps to figures: what the JSON holds and the tables show.

use lookalike::model::Storage;
use lookalike::train::Stage;
use serde::{Deserialize, Serialize};

use super::contender::Contender;
use super::machine::Machine;
use super::shape::{Epoch, Sizes};

/// The middle of some measurements, and how far they lie apart.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// Of no measurement at all there is nothing to say.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Self { median, low, high })
    }

    pub(crate) const ZERO: Self = Self { median: 0.0, low: 0.0, high: 0.0 };
}

/// Everything that one run found out.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct BenchReport {
    pub(crate) machine: Machine,
    pub(crate) sizes: Sizes,
    /// The first is the one that was asked for, the others are what it is held against.
    pub(crate) contenders: Vec<ContenderFigures>,
    pub(crate) ratios: Vec<Ratio>,
    pub(crate) peak_memory_bytes: Option<u64>,
}

/// One sampler with one storage on one number of threads.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ContenderFigures {
    pub(crate) sampler: String,
    pub(crate) storage: Storage,
    pub(crate) threads: usize,
    pub(crate) description: String,
    pub(crate) candidates_per_example: f64,
    pub(crate) distinct_classes: f64,
    pub(crate) distinct_features: f64,
    pub(crate) step_seconds: Spread,
    pub(crate) step_gigaflops_per_second: f64,
    pub(crate) step_share_of_peak: f64,
    pub(crate) stages: Vec<StageFigures>,
    /// Rebuilding the tables of all classes.
    pub(crate) refresh: Option<StageFigures>,
    /// The first epoch of a data set of the shape's size, refreshes included.
    pub(crate) epoch_seconds: f64,
}

/// One stage of a step.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct StageFigures {
    pub(crate) name: String,
    pub(crate) seconds: Spread,
    pub(crate) gigaflops_per_second: Option<f64>,
    pub(crate) gigabytes_per_second: Option<f64>,
    pub(crate) limit: Option<String>,
    pub(crate) share_of_limit: Option<f64>,
}

/// One contender against the first: times divided turn by turn, then the median.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Ratio {
    pub(crate) sampler: String,
    pub(crate) storage: Storage,
    pub(crate) threads: usize,
    pub(crate) step: Spread,
    pub(crate) epoch: Spread,
}

impl ContenderFigures {
    pub(crate) fn of(contender: &Contender<'_>, machine: &Machine, epoch: &Epoch) -> Self {
        let counts = contender.counts();
        let workload = contender.workload();
        let step_seconds = step_seconds(contender);
        let arithmetic = [Stage::Embed, Stage::Score, Stage::Update, Stage::Input];
        let flops: f64 = arithmetic.map(|stage| workload.of(stage, &counts).operations).iter().sum();
        let flops_per_second = flops / step_seconds.median;
        let limits = machine.limits_of(contender.threads());
        let stage_figures = |stage: Stage, seconds: Spread| {
            let work = workload.of(stage, &counts);
            let rate = |amount: f64| (amount > 0.0).then(|| amount / seconds.median / 1e9);
            let (floor, limit) = work.floor(limits);
            let has_floor = floor > 0.0;
            StageFigures {
                name: stage.name().into(),
                seconds,
                gigaflops_per_second: rate(work.operations),
                gigabytes_per_second: rate(work.bytes),
                limit: has_floor.then(|| limit.name().into()),
                share_of_limit: has_floor.then(|| floor / seconds.median),
            }
        };
        let in_step = Stage::ALL.into_iter().filter(|&stage| stage != Stage::Refresh);
        let stages = in_step.filter_map(|stage| {
            let times = contender.steps.iter().map(|step| step.times.of(stage).as_secs_f64());
            let spread = Spread::of(times).filter(|times| times.high > 0.0)?;
            Some(stage_figures(stage, spread))
        });
        let other = contender.steps.iter().map(|step| {
            let in_stages = step.times.total() - step.times.of(Stage::Refresh);
            step.seconds - in_stages.as_secs_f64()
        });
        let other = Spread::of(other).map(|seconds| StageFigures::without_limit("other", seconds));
        let rebuild = Spread::of(contender.rebuilds.iter().copied());
        Self {
            sampler: contender.config().sampler.to_string(),
            storage: contender.config().storage,
            threads: contender.threads(),
            description: contender.describe(),
            candidates_per_example: counts.pairs / counts.examples,
            distinct_classes: counts.classes,
            distinct_features: counts.features,
            step_seconds,
            step_gigaflops_per_second: flops_per_second / 1e9,
            step_share_of_peak: flops_per_second / limits.flops,
            stages: stages.chain(other).collect(),
            refresh: rebuild.map(|seconds| stage_figures(Stage::Refresh, seconds)),
            epoch_seconds: epoch_seconds(contender, step_seconds.median, epoch),
        }
    }
}

impl StageFigures {
    fn without_limit(name: &str, seconds: Spread) -> Self {
        Self {
            name: name.into(),
            seconds,
            gigaflops_per_second: None,
            gigabytes_per_second: None,
            limit: None,
            share_of_limit: None,
        }
    }
}

impl Ratio {
    pub(crate) fn of(contender: &Contender<'_>, first: &Contender<'_>, epoch: &Epoch) -> Self {
        let turns = || contender.steps.iter().zip(&first.steps).map(|(a, b)| (a.seconds, b.seconds));
        let epochs =
            turns().map(|(a, b)| epoch_seconds(contender, a, epoch) / epoch_seconds(first, b, epoch));
        Self {
            sampler: contender.config().sampler.to_string(),
            storage: contender.config().storage,
            threads: contender.threads(),
            step: Spread::of(turns().map(|(a, b)| a / b)).unwrap_or(Spread::ZERO),
            epoch: Spread::of(epochs).unwrap_or(Spread::ZERO),
        }
    }
}

fn step_seconds(contender: &Contender<'_>) -> Spread {
    Spread::of(contender.steps.iter().map(|step| step.seconds)).unwrap_or(Spread::ZERO)
}

/// The first epoch, if every step took so long.
fn epoch_seconds(contender: &Contender<'_>, step_seconds: f64, epoch: &Epoch) -> f64 {
    let rebuild = Spread::of(contender.rebuilds.iter().copied()).unwrap_or(Spread::ZERO);
    epoch.steps as f64 * step_seconds + epoch.refreshes as f64 * rebuild.median
}

#[cfg(test)]
mod tests {
    use lookalike::data::synth::{SynthOptions, synth};
    use lookalike::train::TrainConfig;
    use lookalike_kernels::Cpu;

    use super::super::contender::{take_turns, thread_pool};
    use super::super::machine::Limits;
    use super::*;
    use crate::commands::MachineArguments;

    #[test]
    fn the_median_is_the_middle_and_the_spread_the_ends() {
        let spread = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.low, spread.high), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert!(Spread::of([]).is_none());
    }

    #[test]
    fn figures_of_a_small_run_hang_together() {
        let shape =
            SynthOptions { classes: 500, features: 800, train: 200, test: 0, ..SynthOptions::default() };
        let data = synth(&shape).unwrap().0;
        let pool = thread_pool(MachineArguments { threads: Some(2) }).unwrap();
        let config = TrainConfig { batch: 40, budget: Some(30), hidden: vec![16], ..TrainConfig::default() };
        let cpu = Cpu::detect();
        let contender = || Contender::new(&config, &data, cpu, &pool).unwrap();
        let mut contenders = [contender(), contender()];
        take_turns(&mut contenders, 3).unwrap();
        contenders[0].rebuild_tables(cpu, 3).unwrap();

        let limits = Limits { threads: 2, flops: 1e9, streamed_bytes: 1e9, random_bytes: 1e9 };
        let machine = Machine { cpu: "any".into(), buffer_bytes: 0, one_thread: limits, all_threads: limits };
        let epoch = Epoch { steps: 100, refreshes: 7 };
        let figures = ContenderFigures::of(&contenders[0], &machine, &epoch);
        let names: Vec<_> = figures.stages.iter().map(|stage| stage.name.as_str()).collect();
        let expected =
            ["embed", "hash", "sample", "sort", "score", "select", "loss", "update", "input", "other"];
        assert_eq!(names, expected);
        for step in &contenders[0].steps {
            assert!(step.times.total().as_secs_f64() <= step.seconds);
        }
        // Up to twenty times the budget are scored; there are 500 classes.
        assert!((2.0..=500.0).contains(&figures.candidates_per_example), "{figures:?}");
        assert!(figures.distinct_classes <= 500.0 && figures.distinct_features <= 800.0);
        let refresh = figures.refresh.as_ref().unwrap().seconds.median;
        let expected = 100.0 * figures.step_seconds.median + 7.0 * refresh;
        assert!((figures.epoch_seconds / expected - 1.0).abs() < 1e-9);

        let itself = Ratio::of(&contenders[1], &contenders[1], &epoch);
        assert_eq!((itself.step.low, itself.step.high, itself.epoch.median), (1.0, 1.0, 1.0));
    }
}
