//! `lookalike demo`

use std::process::ExitCode;

use clap::Args;

/// Trains small models side by side.
#[derive(Args)]
pub(crate) struct DemoArguments {}

pub(crate) fn run(_: DemoArguments) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
