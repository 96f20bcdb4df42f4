//! The command line of lookalike.
#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lookalike::data::DataError;

/// Extreme classification on ordinary CPUs
#[derive(Parser)]
#[command(name = "lookalike", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look at, split, even out, generate and pack data sets
    #[command(subcommand)]
    Data(commands::data::DataCommand),
}

fn main() -> ExitCode {
    let Command::Data(command) = CommandLine::parse().command;
    match commands::data::run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error)
            if error
                .downcast_ref::<std::io::Error>()
                .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<DataError>() { 2 } else { 1 })
        }
    }
}
