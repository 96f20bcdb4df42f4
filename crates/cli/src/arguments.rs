//! What can be typed.

use clap::{Command as Grammar, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands;

/// Extreme classification: softmax over millions of classes on ordinary CPUs.
///
/// Trains by scoring, for each example, only the classes that look like the
/// truth; hash tables over the class vectors find them in time that does not
/// grow with the number of classes.
#[derive(Parser)]
#[command(name = "lookalike", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What was typed; ends the program where it means nothing.
pub(crate) fn parse() -> Cli {
    let mut grammar = with_negative_numbers(Cli::command());
    let matches = grammar.get_matches_mut();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut grammar).exit())
}

/// A negative number after a flag is its value, which is refused in words, and no flag.
fn with_negative_numbers(grammar: Grammar) -> Grammar {
    grammar
        .mut_args(|argument| {
            let takes_value = argument.get_action().takes_values() && !argument.is_positional();
            argument.allow_negative_numbers(takes_value)
        })
        .mut_subcommands(with_negative_numbers)
}

const EXAMPLES: &str = "Examples:
  lookalike demo                                             see it work
  lookalike data stats train.txt                             look at a data set
  lookalike train train.txt --test test.txt --model model    train and evaluate
  lookalike evaluate model test.txt --k 1,3,5 --json         measure a model
  lookalike predict model new.txt --top-k 5                  use it
  lookalike serve model                                      answer over HTTP, with a page to try it";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Train a small model, see what it does and what to type next
    Demo(commands::demo::DemoArguments),
    /// Train a model from a file
    Train(Box<commands::train::TrainArguments>),
    /// Measure a model on a file
    Evaluate(commands::evaluate::EvaluateArguments),
    /// Print the best classes of each example
    Predict(commands::predict::PredictArguments),
    /// Answer questions over HTTP
    Serve(commands::serve::ServeArguments),
    /// Look into a model
    Inspect(commands::inspect::InspectArguments),
    /// List, remove and rename the classes of a model
    #[command(subcommand)]
    Classes(commands::classes::ClassesCommand),
    /// Compare methods on a data set: the paper's tables and figures
    Compare(Box<commands::compare::CompareArguments>),
    /// Vary settings: budget, tables, functions, refresh period
    Sweep(Box<commands::sweep::SweepArguments>),
    /// Measure how closely samplers follow the model
    Adapt(Box<commands::adapt::AdaptArguments>),
    /// Look at data sets, make and change them
    #[command(subcommand)]
    Data(commands::data::DataCommand),
    /// Measure this machine and every stage of a training step
    Bench(Box<commands::bench::BenchArguments>),
    /// Print a completion script for a shell
    Completions(commands::shell::CompletionsArguments),
    /// Write the manual pages into a folder
    Man(commands::shell::ManArguments),
}
