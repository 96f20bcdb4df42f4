//! How classes are found and kept: flags of every command that ranks them.

use std::path::Path;

use clap::{Args, ValueEnum};
use lookalike::artifact::{self, ModelError};
use lookalike::model::{Model, Storage};
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
    #[command(flatten)]
    storage: StorageArguments,
}

/// How class vectors are kept in memory.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct StorageArguments {
    /// Keep class vectors in bf16, half the memory: scores change in the third digit
    /// [default: as the model was trained]
    #[arg(long, value_enum, value_name = "NAME")]
    storage: Option<Stored>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Stored {
    F32,
    Bf16,
}

impl StorageArguments {
    pub(crate) fn storage(self) -> Option<Storage> {
        self.storage.map(|stored| match stored {
            Stored::F32 => Storage::F32,
            Stored::Bf16 => Storage::Bf16,
        })
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum How {
    Exact,
    Fast,
}

impl SearchArguments {
    /// Reads a model to answer with.
    pub(crate) fn load(self, directory: &Path) -> Result<Model, ModelError> {
        let mut model = artifact::load_on(ranks::all(), directory)?.model;
        if let Some(storage) = self.storage.storage() {
            model.store_classes(storage);
        }
        Ok(model)
    }

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
