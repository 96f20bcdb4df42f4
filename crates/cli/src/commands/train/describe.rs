//! What `train` tells of a run, in words.

use lookalike::data::Examples;
use lookalike::model::{Model, SparseStart};
use lookalike::train::{Outcome, Trainer};
use lookalike_report::human;

/// The data, the model and the sampler, before training.
pub(super) fn start(trainer: &Trainer<'_>, examples: &Examples<'_>, say: &dyn Fn(String)) {
    let (model, progress) = (&trainer.model, trainer.state.progress);
    let count = |n: usize| human::count(n as u64);
    say(format!(
        "{} examples, {} features, {} classes; {} parameters, {} on {} threads",
        count(examples.len()),
        count(examples.num_features),
        count(examples.num_classes),
        count(model.num_parameters()),
        trainer.cpu().name(),
        rayon::current_num_threads(),
    ));
    let labelled = (0..examples.len()).filter(|&example| examples.teaches(example)).count();
    let (unlabelled, (judging, further_models)) = (examples.len() - labelled, trainer.judges());
    if unlabelled > 0 {
        say(format!("{} examples have no label or no weight and are left out", count(unlabelled)));
    }
    if judging > 0 {
        let who = match further_models {
            0 => format!("{} examples are held out", count(judging)),
            models => format!(
                "{models} further models, each without some of {} examples, are trained",
                count(judging)
            ),
        };
        say(format!("{who} to choose how much parts of the model count and what scores mean"));
    }
    let (shard, ranks) = (trainer.shard(), trainer.shard().collective().size());
    if ranks > 1 {
        let here = count(shard.classes().len());
        say(format!("{ranks} ranks share the classes: {here} of them and their hash tables are on this one"));
    }
    say(trainer.describe_sampler());
    if progress.iteration > 0 {
        say(format!("going on after epoch {}, step {}", progress.epoch, progress.iteration));
    }
}

/// How a run ended.
pub(super) fn end(trainer: &Trainer<'_>, outcome: Outcome, had_sparse_part: bool, say: &dyn Fn(String)) {
    let progress = trainer.state.progress;
    let (epoch, waited) = (progress.epoch, trainer.state.best.waited);
    say(match outcome {
        Outcome::Finished => {
            let epochs = human::counted(epoch as u64, "epoch");
            format!("trained {epochs} in {}", human::seconds(progress.train_seconds))
        }
        Outcome::NoProgress => {
            format!("stopped early: no better for {}", human::counted(waited as u64, "evaluation"))
        }
        Outcome::TimeLimit => format!("stopped by --time-limit in epoch {}", epoch + 1),
        Outcome::Stopped => format!("interrupted in epoch {}; go on with --resume", epoch + 1),
    });
    warn_of_shortfall(trainer, say);
    if had_sparse_part {
        say(match trainer.sparse_diverged_at() {
            Some(step) => format!(
                "warning: sparse weights diverged at step {step} and were dropped; try a smaller --sparse-lr"
            ),
            None => blend(&trainer.model),
        });
    }
    say(match &trainer.model.calibration {
        Some(calibration) => {
            format!(
                "probabilities are calibrated on {} held-out examples",
                human::count(calibration.examples as u64)
            )
        }
        None => {
            "probabilities are not calibrated: they will be surer than they should (--calibrate true takes \
                 20 examples or more)"
                .into()
        }
    });
    if let Some(index) = &trainer.model.search {
        let (effort, found) = (human::count(index.effort as u64), 100.0 * index.recall);
        say(format!(
            "search index: {effort} classes looked at find {found:.1}% of the best five (--search fast)"
        ));
    }
}

/// How much the sparse part and the nearest examples count, as chosen on held-out
/// examples.
fn blend(model: &Model) -> String {
    let Some(sparse) = &model.sparse else {
        return "sparse weights did not help on held-out examples and were dropped".into();
    };
    let start = match sparse.start() {
        SparseStart::Centroid => "centroids",
        SparseStart::LogMean => "logarithms of means",
    };
    let blend = sparse.blend();
    let nearest = model.neighbours.as_ref().map_or(String::new(), |neighbours| {
        let weight = human::number(f64::from(neighbours.weight()));
        format!(", the nearest training examples {weight} times")
    });
    format!("chosen on held-out examples: sparse weights, from {start}, count {blend} times{nearest}")
}

/// Tables that give too few candidates would quietly train a worse model.
fn warn_of_shortfall(trainer: &Trainer<'_>, say: &dyn Fn(String)) {
    if let Some(stats) = trainer.sampler_stats() {
        let share = stats.given as f64 / stats.wanted.max(1) as f64;
        if share < 0.9 {
            say(format!(
                "note: the hash tables gave {:.0}% of the negatives asked for; use more tables (--tables), fewer \
                 functions (--functions), or --fill",
                100.0 * share
            ));
        }
    }
}
