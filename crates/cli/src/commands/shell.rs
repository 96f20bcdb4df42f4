//! `lookalike completions` and `lookalike man`.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};

use crate::arguments::Cli;

/// `lookalike completions`
#[derive(Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    shell: clap_complete::Shell,
}

/// `lookalike man`
#[derive(Args)]
pub(crate) struct ManArguments {
    /// Where to write the pages
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub(crate) fn completions(arguments: CompletionsArguments) -> anyhow::Result<()> {
    // Into memory first: clap panics where a pipe is closed.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "lookalike", &mut script);
    Ok(std::io::Write::write_all(&mut std::io::stdout(), &script)?)
}

pub(crate) fn man(arguments: ManArguments) -> anyhow::Result<()> {
    let folder = &arguments.folder;
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
        .with_context(|| format!("cannot write manual pages to {}", folder.display()))
}
