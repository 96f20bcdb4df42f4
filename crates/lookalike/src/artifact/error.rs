//! What can be wrong with a model directory.

use std::path::{Path, PathBuf};

/// Why a model could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The operating system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// There is no model there.
    #[error("{} is not a model directory: it has no config.json of ours; give the directory that `lookalike train --model` wrote", directory.display())]
    NotAModel {
        /// The directory.
        directory: PathBuf,
    },
    /// Something else is there.
    #[error("{} is not empty and not a model directory of ours; it was left as it is: choose another --model, or remove it", directory.display())]
    WouldOverwrite {
        /// The directory.
        directory: PathBuf,
    },
    /// Another process trains into it.
    #[error("{} is being trained into by {holder}: wait until it ends, or choose another directory", directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// Who it is.
        holder: String,
    },
    /// Ranks write a directory together.
    #[error("{} can't be written by all ranks: this one does not see the folder that rank 0 has made beside it; choose a place on a file system that all machines share", directory.display())]
    NotShared {
        /// The directory.
        directory: PathBuf,
    },
    /// Another rank failed, and so do all.
    #[error("rank {rank}: {message}")]
    OtherRank {
        /// Which one.
        rank: usize,
        /// What it said.
        message: String,
    },
    /// No place for a directory.
    #[error("{}: no model can be saved there ({why}): choose another --model", directory.display())]
    Unsuitable {
        /// The directory.
        directory: PathBuf,
        /// What is there instead.
        why: &'static str,
    },
    /// The model is written, but the last step failed.
    #[error("{}: {source}; what is there was left as it is, and the new model is in {}", directory.display(), kept.display())]
    NotInPlace {
        /// Where it should be.
        directory: PathBuf,
        /// Where it is.
        kept: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file of the user's could not follow into the new directory.
    #[error("the model is saved, but {} could not be moved to {}: {source}; move it yourself", from.display(), to.display())]
    LeftAside {
        /// Where it is.
        from: PathBuf,
        /// Where it belongs.
        to: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Written by a later release.
    #[error("{} has model format {found}, and this release reads up to {newest}: update lookalike, or train again with this release", directory.display())]
    Newer {
        /// The directory.
        directory: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        newest: u32,
    },
    /// `config.json` does not parse.
    #[error("{}: {source}; the file is damaged or was edited by hand", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The parser's words.
        source: serde_json::Error,
    },
    /// A file is not the one that was saved.
    #[error("{}: expected {expected}, found {found}: the model is damaged, copy it again or train it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What `config.json` says.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A tensor or size does not fit the configuration.
    #[error("{}: {what}: expected {expected}, found {found}", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// Which part.
        what: String,
        /// What the configuration asks for.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The model was saved without moments.
    #[error("{} was saved without its training state (training.safetensors) and can't be resumed; it still evaluates and predicts", directory.display())]
    NoTrainingState {
        /// The directory.
        directory: PathBuf,
    },
    /// The text part is missing or damaged.
    #[error(transparent)]
    Text(#[from] crate::text::TextError),
}

impl ModelError {
    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.into(), source }
    }

    pub(super) fn encode(source: serde_json::Error) -> Self {
        Self::Config { path: "config.json".into(), source }
    }
}
