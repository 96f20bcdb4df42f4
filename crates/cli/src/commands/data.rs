//! stub
/// stub
#[derive(clap::Subcommand)]
pub(crate) enum DataCommand { /// stub
 Stub }
pub(crate) fn run(_: DataCommand) -> anyhow::Result<()> { Ok(()) }
