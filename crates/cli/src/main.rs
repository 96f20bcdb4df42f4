//! The command line of lookalike: parses, calls the library, prints.
//!
//! Results go to standard output, everything else to standard error. Exit codes:
//! 0 done, 1 failed, 2 bad input or usage, 130 interrupted.
#![forbid(unsafe_code)]
// They panic where nobody reads any more: see `output`.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod arguments;
mod commands;
mod exit;
mod input;
mod output;
mod progress;
mod ranks;
mod signals;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = arguments::parse();
    let session = match ranks::join(&cli.command) {
        Ok(session) => session,
        Err(error) => return ExitCode::from(exit::report(&error)),
    };
    match commands::run(cli) {
        Ok(code) => code,
        Err(error) => session.fail(&error),
    }
}
