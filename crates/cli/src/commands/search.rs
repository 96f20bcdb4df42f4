//! How classes are found: flags of every command that ranks them.

use clap::{Args, ValueEnum};
use lookalike::predict::Search;

use crate::exit::usage;
use crate::ranks;

/// How classes are found.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct SearchArguments {
    /// Score all classes, or only those that the model's index finds
    #[arg(long, value_enum, default_value_t = How::Exact)]
    search: How,
    /// Classes that a fast search looks at, about [default: chosen in training]
    #[arg(long, value_name = "CLASSES", value_parser = clap::value_parser!(u32).range(1..))]
    effort: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum How {
    Exact,
    Fast,
}

impl SearchArguments {
    /// Ranks have no index of all classes.
    pub(crate) fn check_on_ranks(self) -> anyhow::Result<()> {
        match (self.search, ranks::all().size()) {
            (How::Fast, 2..) => Err(usage("--search fast is for one process: several score all classes")),
            _ => Ok(()),
        }
    }

    pub(crate) fn search(self) -> Search {
        match self.search {
            How::Exact => Search::Exact,
            How::Fast => Search::Fast { effort: self.effort.map(|classes| classes as usize) },
        }
    }
}
