//! The best model of a run, kept in memory.

use super::run::{KeepError, Keeper};
use super::state::TrainingRecord;
use super::trainer::Trainer;
use crate::model::Model;

/// Keeps a copy of the best model: its parameters once more, and not the moments,
/// which are twice as much. Whoever goes on training with it starts them anew.
#[derive(Debug, Default)]
pub struct InMemory {
    best: Option<(Model, TrainingRecord)>,
}

impl InMemory {
    /// The best model with how it came about; none if no evaluation found one.
    pub fn into_best(self) -> Option<(Model, TrainingRecord)> {
        self.best
    }
}

impl Keeper for InMemory {
    fn keep_best(&mut self, trainer: &Trainer<'_>) -> Result<(), KeepError> {
        self.best = Some((trainer.model.clone(), trainer.state.record()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lookalike_kernels::Cpu;

    use super::*;
    use crate::data::Dataset;
    use crate::metrics::MetricOptions;
    use crate::predict::{Ask, Evaluation, Predictor};
    use crate::train::{Every, Observer, RunPlan, TrainConfig, Validation, run};

    /// What each evaluation that was the best so far was made of.
    #[derive(Default)]
    struct Watch {
        best: Option<(u64, Vec<u32>)>,
    }

    fn scores(model: &Model, data: &Dataset) -> Vec<u32> {
        let batch: Vec<u32> = (0..data.view().len() as u32).collect();
        let ask = Ask::best(model.num_classes());
        let ranking = Predictor::new(model, Cpu::detect()).rank(&data.view(), &batch, ask);
        let scores = (0..ranking.len()).flat_map(|i| ranking.example(i).scores);
        scores.map(|score| score.to_bits()).collect()
    }

    impl Observer for Watch {
        fn on_evaluation(&mut self, trainer: &Trainer<'_>, _: &Evaluation, is_best: bool) {
            if is_best {
                let iteration = trainer.state.progress.iteration;
                self.best = Some((iteration, scores(&trainer.model, &data(1))));
            }
        }
    }

    /// Each example tells its class, but for a few that lie.
    fn data(seed: u32) -> Dataset {
        let mut data = Dataset::empty(20, 20);
        for i in 0..100u32 {
            let class = i % 20;
            let label = if (i + seed).is_multiple_of(7) { (class + 1) % 20 } else { class };
            data.push([(class, 1.0)], &[label]);
        }
        data
    }

    #[test]
    fn the_kept_model_is_the_one_that_was_best() {
        let (train, valid) = (data(1), data(2));
        let config =
            TrainConfig { epochs: 12, batch: 10, hidden: vec![8], lr: 0.5, ..TrainConfig::default() };
        let mut trainer = Trainer::new(config, train.view(), Cpu::detect()).unwrap();
        let validation = Validation {
            examples: valid.view(),
            unknown_labels: &|_| 0,
            every: Every::Iterations(1),
            metrics: MetricOptions::default(),
            patience: None,
        };
        let plan = RunPlan { validation: Some(validation), ..RunPlan::default() };
        let (mut keeper, mut watch) = (InMemory::default(), Watch::default());
        run(&mut trainer, &plan, &mut keeper, &mut watch).unwrap();
        let (model, record) = keeper.into_best().unwrap();
        let (iteration, expected) = watch.best.unwrap();
        assert!(iteration < trainer.state.progress.iteration, "the last model is the best here");
        assert_eq!(record.progress.iteration, iteration);
        assert_eq!(scores(&model, &train), expected);
        assert_ne!(scores(&trainer.model, &train), expected);
    }
}
