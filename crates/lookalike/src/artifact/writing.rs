//! From a model to a directory: files first, then their checksums, then its place.
//!
//! Several ranks write one directory together. The first one makes the folder, writes
//! what all have in common and puts the directory in place; each writes the file of its own
//! classes and features, so that nobody needs more memory or sends more than a few lines. They need
//! to see the same file system, and say so where they do not.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::directory::{self, Replacement};
use super::shards::{ShardHeader, shard_name};
use super::tensors::{Which, write_model, write_state};
use super::{
    CONFIG_FILE, ConfigFile, FORMAT_NAME, FORMAT_VERSION, FileEntry, MODEL_FILE, ModelError, NO_CHECKSUM,
    NeighboursHeader, SearchHeader, SparseHeader, StateHeader, TRAINING_FILE, with_checksum,
};
use crate::collective::Collective;
use crate::disk;
use crate::model::Model;
use crate::train::{LastRefresh, Progress, TrainConfig, Trainer, TrainingState};

/// The training state, and what the last refresh left.
pub(super) type State<'a> = Option<(&'a TrainingState, Option<&'a LastRefresh>)>;

/// A model that is written and not yet in its place.
pub(super) struct Unfinished {
    replacement: Replacement,
    config: ConfigFile,
}

/// What a rank has written.
#[derive(Serialize, Deserialize)]
struct Written {
    shard: ShardHeader,
    files: Vec<FileEntry>,
}

impl Unfinished {
    /// A model in training, perhaps with all that it needs to go on. All ranks call it
    /// together; the first one gets what is to be finished.
    pub(super) fn of_trainer(
        directory: &Path,
        trainer: &Trainer<'_>,
        with_training_state: bool,
    ) -> Result<Option<Self>, ModelError> {
        let Trainer { model, state, .. } = trainer;
        let refresh = with_training_state.then(|| trainer.last_refresh()).flatten();
        let record = (&state.config, state.progress);
        let state = with_training_state.then_some((state, refresh.as_ref()));
        match trainer.shard().is_whole() {
            true => Self::write(directory, model, record, state).map(Some),
            false => Self::write_together(directory, trainer.shard().collective(), model, record, state),
        }
    }

    /// Writes all that needs the model: afterwards it may move on.
    pub(super) fn write(
        directory: &Path,
        model: &Model,
        record: (&TrainConfig, Progress),
        state: State<'_>,
    ) -> Result<Self, ModelError> {
        let replacement = Replacement::begin(directory)?;
        write_tensors(&replacement.folder(), model, state, Which::All)?;
        write_texts(&replacement.folder(), model)?;
        Ok(Self { config: ConfigFile::of(model, record, state), replacement })
    }

    fn write_together(
        directory: &Path,
        collective: &dyn Collective,
        model: &Model,
        record: (&TrainConfig, Progress),
        state: State<'_>,
    ) -> Result<Option<Self>, ModelError> {
        let is_first = collective.rank() == 0;
        let begun = is_first.then(|| Replacement::begin(directory)).transpose();
        let replacement = all_or_none(collective, begun)?;
        let name = replacement.as_ref().map_or(String::new(), Replacement::name);
        let name = collective.gather_texts(name.as_bytes()).swap_remove(0);
        let own = write_share(directory, &String::from_utf8_lossy(&name), collective, model, state);
        let own = all_or_none(collective, own)?;
        let own = serde_json::to_vec(&own).map_err(ModelError::encode)?;
        let all = collective.gather_texts(&own);
        let Some(replacement) = replacement else { return Ok(None) };
        let mut config = ConfigFile::of(model, record, state);
        let mut shards = Vec::new();
        for written in &all {
            let written: Written = serde_json::from_slice(written).map_err(ModelError::encode)?;
            shards.push(written.shard);
            config.files.extend(written.files);
        }
        let total = |of: fn(&ShardHeader) -> usize| shards.iter().map(of).sum();
        if let Some(sparse) = &mut config.sparse {
            sparse.entries = total(ShardHeader::sparse_entries);
        }
        if let Some(neighbours) = &mut config.neighbours {
            neighbours.members = total(ShardHeader::members);
        }
        config.shards = Some(shards);
        Ok(Some(Self { replacement, config }))
    }

    /// Sums up what was written, waits until it is on the disk, and puts it in place.
    pub(super) fn finish(mut self) -> Result<(), ModelError> {
        let folder = self.replacement.folder();
        self.config.files = directory::checksums(&folder, std::mem::take(&mut self.config.files))?;
        let text = serde_json::to_string_pretty(&self.config).map_err(ModelError::encode)?;
        let path = folder.join(CONFIG_FILE);
        disk::write(&path, with_checksum(text).as_bytes()).map_err(ModelError::io(&path))?;
        self.replacement.finish()
    }
}

/// What one rank writes: its classes and features, and the first one what all have in common.
fn write_share(
    directory: &Path,
    name: &str,
    collective: &dyn Collective,
    model: &Model,
    state: State<'_>,
) -> Result<Written, ModelError> {
    let folder = directory::folder_of(directory, name)?;
    if !folder.is_dir() {
        return Err(ModelError::NotShared { directory: directory.into() });
    }
    if collective.rank() == 0 {
        write_tensors(&folder, model, state, Which::Common)?;
        write_texts(&folder, model)?;
    }
    let named = |file: &str| folder.join(shard_name(file, collective.rank(), collective.size()));
    let mut paths: Vec<PathBuf> = vec![named(MODEL_FILE)];
    write_model(&paths[0], model, Which::OfRank)?;
    if let Some(state) = state {
        paths.push(named(TRAINING_FILE));
        write_state(&paths[1], model, state, Which::OfRank)?;
    }
    // Who puts it in place can only wait for its own machine's disk.
    let files = paths.iter().map(|path| directory::measured_and_synced(path));
    Ok(Written { shard: ShardHeader::of(model), files: files.collect::<Result<_, _>>()? })
}

fn write_tensors(folder: &Path, model: &Model, state: State<'_>, which: Which) -> Result<(), ModelError> {
    write_model(&folder.join(MODEL_FILE), model, which)?;
    state.map_or(Ok(()), |state| write_state(&folder.join(TRAINING_FILE), model, state, which))
}

fn write_texts(folder: &Path, model: &Model) -> Result<(), ModelError> {
    if let Some(text) = &model.text {
        text.save(folder)?;
    }
    if let Some(names) = &model.names {
        names.save(folder)?;
    }
    Ok(())
}

/// What this rank has, if no rank has failed; else everybody fails, and knows who it was.
pub(super) fn all_or_none<T>(
    collective: &dyn Collective,
    own: Result<T, ModelError>,
) -> Result<T, ModelError> {
    let message = own.as_ref().err().map_or(String::new(), ToString::to_string);
    let messages = collective.gather_texts(message.as_bytes());
    let failed = messages.iter().position(|message| !message.is_empty());
    match failed {
        Some(rank) if own.is_ok() => {
            let message = String::from_utf8_lossy(&messages[rank]).into_owned();
            Err(ModelError::OtherRank { rank, message })
        }
        _ => own,
    }
}

impl ConfigFile {
    fn of(model: &Model, (training, progress): (&TrainConfig, Progress), state: State<'_>) -> Self {
        Self {
            format: FORMAT_NAME.into(),
            format_version: FORMAT_VERSION,
            checksum: Some(NO_CHECKSUM.into()),
            network: model.network.config.clone(),
            training: training.clone(),
            progress,
            examples: model.frequencies.num_examples,
            text: model.text.is_some(),
            names: model.names.is_some(),
            sparse: model.sparse.as_ref().map(SparseHeader::of),
            neighbours: model.neighbours.as_ref().map(NeighboursHeader::of),
            calibration: model.calibration.clone(),
            search: model.search.as_ref().map(SearchHeader::of),
            shards: None,
            state: state.map(|(state, refresh)| StateHeader::of(state, refresh)),
            files: Vec::new(),
        }
    }
}
