//! `lookalike adapt`

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use lookalike::data::DataFingerprint;
use lookalike::experiment::adapt::{AdaptOptions, Moment, choose_inputs, snapshot};
use lookalike::sampling::SamplerKind;
use lookalike::train::Trainer;
use lookalike_report::human;

use super::experiment::ExperimentArguments;
use super::experiment::output::{Origin, Output};
use crate::exit::{INTERRUPTED, usage};
use crate::signals;

mod report;
use report::Adaptation;

/// Measures how closely samplers follow the model while it learns.
///
/// Trains one model with the settings given. At chosen iterations, for some
/// training examples, the true softmax distribution over negatives is compared
/// with the negatives that each sampler would have trained on: the probability that
/// they cover, and the rank correlation.
#[derive(Args)]
#[command(after_help = "Examples:
  lookalike adapt data
  lookalike adapt data --sampler full --epochs 5 --at 0,100,1000 --budget 200
  lookalike adapt --train train.txt --samplers lsh-embedding,uniform --inputs 100

--sampler decides how the model is trained; --samplers are looked at.")]
pub(crate) struct AdaptArguments {
    /// The iterations to measure at [default: 0, 1/64, 1/16, 1/4 and all of the run]
    #[arg(long, value_name = "ITERATION,…", value_delimiter = ',')]
    at: Vec<u64>,
    /// The samplers to look at, separated by commas
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "top-k,lsh-embedding,lsh-label,mixed,log-uniform,frequency,uniform"
    )]
    samplers: Vec<SamplerKind>,
    /// Training examples to look at, chosen at random
    #[arg(long, value_name = "N", default_value_t = 32)]
    inputs: usize,
    /// How often each sampler is asked for each example [default: enough to draw
    /// every class four times, from 50 to 1000]
    #[arg(long, value_name = "N")]
    draws: Option<usize>,
    #[command(flatten)]
    experiment: ExperimentArguments,
}

pub(crate) fn run(arguments: AdaptArguments) -> anyhow::Result<ExitCode> {
    signals::catch();
    arguments.experiment.machine.install(|| adapt(&arguments))?
}

fn adapt(arguments: &AdaptArguments) -> anyhow::Result<ExitCode> {
    let experiment = &arguments.experiment;
    let cpu = experiment.machine.cpu()?;
    let config = experiment.settings()?;
    config.check_values()?;
    if arguments.samplers.contains(&SamplerKind::Full) {
        return Err(usage("--samplers: full softmax draws nothing; it is what the others are compared with"));
    }
    if arguments.inputs == 0 || arguments.draws == Some(0) {
        return Err(usage("--inputs and --draws must be at least 1"));
    }
    experiment.check_out("adapt")?;
    let data = experiment.read_train()?;
    let examples = data.view();
    let mut trainer = Trainer::new(config.clone(), examples, cpu)?;
    let budget = config.budget_for(examples.num_classes);
    let enough = (4 * examples.num_classes).div_ceil(budget).clamp(50, 1000);
    let options = AdaptOptions {
        samplers: arguments.samplers.clone(),
        inputs: arguments.inputs,
        draws: arguments.draws.unwrap_or(enough),
    };
    let inputs = choose_inputs(&examples, options.inputs, config.seed);
    let moments = moments(&arguments.at, trainer.planned_steps())?;
    let output = Output::open(&experiment.out("adapt")?)?;
    experiment.say(&trainer.describe_sampler());

    let mut snapshots: Vec<Moment> = Vec::new();
    for &moment in &moments {
        while trainer.state.progress.iteration < moment && !signals::interrupted() {
            trainer.step()?;
        }
        if signals::interrupted() {
            break;
        }
        let taken = snapshot(&trainer, &examples, &inputs, &options).context("cannot make a sampler")?;
        experiment.say(&format!(
            "measured at iteration {} of {}",
            human::count(moment),
            human::count(moments[moments.len() - 1])
        ));
        snapshots.push(taken);
    }
    let adaptation = Adaptation {
        name: experiment.data_name()?,
        data: DataFingerprint::of(&examples),
        origin: Origin::of_this_process(cpu),
        settings: &config,
        options: &options,
        snapshots: &snapshots,
    };
    if !snapshots.is_empty() {
        adaptation.write(&output)?;
        write!(std::io::stdout().lock(), "{}", adaptation.table().to_text())?;
        experiment.say(&format!("\nthe report is {}", output.folder().join("report.html").display()));
    }
    Ok(if signals::interrupted() { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// The iterations to measure at, ascending and distinct.
fn moments(given: &[u64], planned: u64) -> anyhow::Result<Vec<u64>> {
    if let Some(late) = given.iter().find(|&&moment| moment > planned) {
        return Err(usage(format!(
            "--at {late}: the run ends after {planned} iterations; give more --epochs"
        )));
    }
    let mut moments = match given {
        [] => vec![0, planned / 64, planned / 16, planned / 4, planned],
        given => given.to_vec(),
    };
    moments.sort_unstable();
    moments.dedup();
    Ok(moments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_sorted_distinct_and_within_the_run() {
        assert_eq!(moments(&[], 640).unwrap(), [0, 10, 40, 160, 640]);
        assert_eq!(moments(&[], 3).unwrap(), [0, 3]);
        assert_eq!(moments(&[5, 0, 5], 5).unwrap(), [0, 5]);
        assert!(moments(&[6], 5).unwrap_err().to_string().contains("--epochs"));
    }
}
