//! A model in training that is measured, alone or in turns with others.

use std::time::Instant;

use anyhow::Context;
use lookalike::data::Dataset;
use lookalike::hashing::Choice;
use lookalike::train::{Stage, StageTimes, TrainConfig, Trainer};
use lookalike_kernels::Cpu;
use rayon::ThreadPool;

use super::work::{Counts, Workload};
use crate::commands::MachineArguments;

/// Steps before the first that is measured: tables are built, buffers grow and
/// pages are touched.
pub(crate) const WARM_UP_STEPS: usize = 2;

/// A pool of the wanted number of threads.
pub(crate) fn thread_pool(machine: MachineArguments) -> anyhow::Result<ThreadPool> {
    let threads = machine.threads.map_or(0, usize::from);
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().context("cannot start threads")
}

pub(crate) struct Contender<'a> {
    trainer: Trainer<'a>,
    pool: &'a ThreadPool,
    choice: Option<Choice>,
    values_per_example: f64,
    /// The measured steps.
    pub(crate) steps: Vec<StepSample>,
    /// Seconds of each measured rebuild of all tables.
    pub(crate) rebuilds: Vec<f64>,
}

/// One measured step.
pub(crate) struct StepSample {
    /// Wall clock, without a refresh.
    pub(crate) seconds: f64,
    pub(crate) times: StageTimes,
    pub(crate) counts: Counts,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(
        config: &TrainConfig,
        data: &'a Dataset,
        cpu: Cpu,
        pool: &'a ThreadPool,
    ) -> anyhow::Result<Self> {
        let trainer = pool.install(|| Trainer::new(config.clone(), data.view(), cpu))?;
        let output = &trainer.model.network.output;
        let choice = match config.sampler.uses_tables() {
            true => Some(config.lsh.choose(config.retrieve_for(output.len), output.len, output.dim)?),
            false => None,
        };
        let values_per_example = data.feature_ids.len() as f64 / data.view().len().max(1) as f64;
        Ok(Self { trainer, pool, choice, values_per_example, steps: Vec::new(), rebuilds: Vec::new() })
    }

    pub(crate) fn config(&self) -> &TrainConfig {
        &self.trainer.state.config
    }

    pub(crate) fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// The sampler and its tables, in a sentence.
    pub(crate) fn describe(&self) -> String {
        self.trainer.describe_sampler()
    }

    /// What decides the work of its stages.
    pub(crate) fn workload(&self) -> Workload<'_> {
        Workload {
            config: self.config(),
            num_classes: self.trainer.model.network.output.len as f64,
            functions_and_tables: self.choice.map(|choice| (choice.k, choice.l)),
        }
    }

    /// The mean counts of the measured steps.
    pub(crate) fn counts(&self) -> Counts {
        let mean = |of: fn(&Counts) -> f64| {
            self.steps.iter().map(|step| of(&step.counts)).sum::<f64>() / self.steps.len().max(1) as f64
        };
        Counts {
            examples: mean(|counts| counts.examples),
            values: mean(|counts| counts.values),
            features: mean(|counts| counts.features),
            pairs: mean(|counts| counts.pairs),
            classes: mean(|counts| counts.classes),
            trained_pairs: mean(|counts| counts.trained_pairs),
            trained_classes: mean(|counts| counts.trained_classes),
        }
    }

    /// Trains on one batch.
    pub(crate) fn step(&mut self) -> anyhow::Result<StepSample> {
        let start = Instant::now();
        let report = self.pool.install(|| self.trainer.step())?;
        let wall = start.elapsed();
        let times = self.trainer.stage_times();
        let (step, num_classes) = (self.trainer.last_step(), self.trainer.model.network.output.len);
        let examples = report.batch as f64;
        let is_full = self.config().sampler == lookalike::sampling::SamplerKind::Full;
        let of = |pairs: usize, classes: usize| match is_full {
            true => (examples * num_classes as f64, num_classes as f64),
            false => (pairs as f64, classes as f64),
        };
        let (pairs, classes) = of(step.num_pairs(), step.num_scored_classes());
        let (trained_pairs, trained_classes) = of(step.num_trained_pairs(), step.touched_classes().count());
        let counts = Counts {
            examples,
            values: examples * self.values_per_example,
            features: step.num_touched_features() as f64,
            pairs,
            classes,
            trained_pairs,
            trained_classes,
        };
        let seconds = wall.saturating_sub(times.of(Stage::Refresh)).as_secs_f64();
        Ok(StepSample { seconds, times, counts })
    }

    /// Measures the refresh of all classes, on tables of its own.
    pub(crate) fn rebuild_tables(&mut self, cpu: Cpu, repeats: usize) -> anyhow::Result<()> {
        let Some(choice) = &self.choice else { return Ok(()) };
        let config = &self.trainer.state.config;
        let output = &self.trainer.model.network.output;
        let mut tables = config.lsh.tables(choice, output.len, output.dim, config.seed)?;
        self.pool.install(|| {
            // The first time, pages are touched.
            tables.rebuild(cpu, output.view());
            for _ in 0..repeats {
                let start = Instant::now();
                tables.rebuild(cpu, output.view());
                self.rebuilds.push(start.elapsed().as_secs_f64());
            }
        });
        Ok(())
    }
}

/// Measures contenders in turns, a step each.
pub(crate) fn take_turns(contenders: &mut [Contender<'_>], repeats: usize) -> anyhow::Result<()> {
    for round in 0..WARM_UP_STEPS + repeats {
        for contender in contenders.iter_mut() {
            let step = contender.step()?;
            if round >= WARM_UP_STEPS {
                contender.steps.push(step);
            }
        }
    }
    Ok(())
}
