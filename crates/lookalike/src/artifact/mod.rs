//! The model directory: what training leaves behind and everything else reads.
//!
//! ```text
//! MODEL/
//!   config.json                  format version, network, training settings, checksums
//!   model.safetensors            weights, biases, training frequency of each class, sparse rows,
//!                                training examples
//!   training.safetensors         moments, for resuming (optional)
//!   model-00001-of-00002.safetensors, training-00001-of-00002.safetensors, …
//!                                what belongs to classes and features, where ranks wrote it
//!                                (optional)
//!   vectoriser.json, vocabulary.txt, labels.txt
//!                                from text to features and back to names (optional)
//! ```
//!
//! A directory is written beside its final place and exchanged for the old one
//! in one step, so a reader sees the old model or the new one, never half of
//! each, and a crash loses nothing. Loading checks the format version, every
//! file's length and checksum, and every tensor's name, type and shape.

mod checkpoints;
mod directory;
mod error;
mod keeper;
mod lock;
mod search;
mod shards;
mod snapshot;
mod tensor_file;
mod tensors;
#[cfg(test)]
mod tests;
mod writing;

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

pub use checkpoints::Checkpoints;
pub use directory::check_destination;
pub use error::ModelError;
pub use keeper::DirectoryKeeper;
pub use lock::DirectoryLock;

use crate::collective::{Alone, Collective, Shard};
use crate::data::DataFingerprint;
use crate::hashing::{FamilyShape, TableCodes};
use crate::model::{
    Calibration, ClassFrequencies, Model, Neighbours, NetworkConfig, SearchIndex, SparsePart, SparseStart,
};
use crate::text::{LabelNames, TextPipeline};
use crate::train::{
    BestScore, Checkpoint, LastRefresh, Progress, Rehearsal, TrainConfig, TrainingRecord, TrainingState,
};
use search::read_search;
use shards::{ShardHeader, ShardLayout};
use snapshot::Snapshot;
use tensor_file::TensorFile;
use tensors::{read_neighbours, read_sparse};
use writing::{State, Unfinished};

/// The version of the format that this code writes; it reads this and earlier ones.
pub const FORMAT_VERSION: u32 = 5;
/// From here on the priors of classes are not in the output layer's bias any more.
const PRIORS_APART_SINCE: u32 = 4;
/// From here on `config.json` has a checksum of itself.
const CHECKSUM_SINCE: u32 = 5;
const FORMAT_NAME: &str = "lookalike model";
const CONFIG_FILE: &str = "config.json";
const MODEL_FILE: &str = "model.safetensors";
const TRAINING_FILE: &str = "training.safetensors";

/// A model from the disk, with how it came about.
#[derive(Debug)]
pub struct SavedModel {
    /// What predicts.
    pub model: Model,
    /// How it was trained.
    pub record: TrainingRecord,
}

/// What `config.json` holds.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ConfigFile {
    format: String,
    format_version: u32,
    /// Of the whole file with zeroes in its place, since version 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
    network: NetworkConfig,
    #[serde(deserialize_with = "known_settings")]
    training: TrainConfig,
    progress: Progress,
    /// Training examples that have a label; until version 3 it stood in `progress`.
    #[serde(default)]
    examples: usize,
    text: bool,
    #[serde(default)]
    names: bool,
    /// The sparse part, since version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sparse: Option<SparseHeader>,
    /// The training examples that are kept, since version 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    neighbours: Option<NeighboursHeader>,
    /// How scores become probabilities, since version 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calibration: Option<Calibration>,
    /// The search index, since version 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    search: Option<SearchHeader>,
    /// The files of ranks that wrote it together, in the order of their classes; since
    /// version 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shards: Option<Vec<ShardHeader>>,
    /// What training needs besides, since version 4; the large part of it is in a file
    /// of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<StateHeader>,
    files: Vec<FileEntry>,
}

/// Settings as earlier builds wrote them, with what is gone.
fn known_settings<'de, D: Deserializer<'de>>(from: D) -> Result<TrainConfig, D::Error> {
    let mut settings = serde_json::Map::deserialize(from)?;
    // Where biases started; nothing once they have.
    settings.remove("class-bias");
    TrainConfig::deserialize(serde_json::Value::Object(settings)).map_err(serde::de::Error::custom)
}

/// What of the training state is no tensor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct StateHeader {
    data: Option<DataFingerprint>,
    /// Examples held out from training, if they were chosen.
    held_out: Option<usize>,
    /// Which examples are rehearsed, if the data has some; since version 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rehearsal: Option<Rehearsal>,
    best: BestScore,
    /// What the last refresh left, within an epoch; since version 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh: Option<RefreshHeader>,
}

/// What of the last refresh is no tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RefreshHeader {
    tables: Option<TablesHeader>,
    /// Entries of the lists of near classes.
    near: Option<usize>,
}

/// What hash functions are drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TablesHeader {
    seed: u64,
    shape: FamilyShape,
    /// Whether codes take four bytes.
    wide: bool,
    /// Numbers of the mean that class vectors were hashed less; 0 if none.
    mean: usize,
}

/// What of the sparse part is no tensor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SparseHeader {
    entries: usize,
    blend: f32,
    /// What the rows started from; training goes on accordingly. Not there in files
    /// from before the frequency of classes counted.
    #[serde(default)]
    start: Option<SparseStart>,
}

/// What of the kept training examples is no tensor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NeighboursHeader {
    examples: usize,
    /// Features of all examples.
    entries: usize,
    /// Examples of all classes.
    members: usize,
    weight: f32,
}

/// What of the search index is no tensor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchHeader {
    groups: usize,
    clusters: usize,
    effort: usize,
    recall: f32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FileEntry {
    name: String,
    bytes: u64,
    crc32: u32,
}

/// What stood elsewhere until version 3.
#[derive(Deserialize)]
struct EarlyConfig {
    progress: EarlyProgress,
}

#[derive(Deserialize)]
struct EarlyProgress {
    examples: usize,
}

/// Just enough of `config.json` to say which version it is.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct VersionHeader {
    format: String,
    format_version: u32,
    #[serde(default)]
    checksum: Option<String>,
}

/// Writes a model to `directory`, replacing a model that is there.
pub fn save_model(directory: &Path, model: &Model, record: &TrainingRecord) -> Result<(), ModelError> {
    save(directory, model, (&record.config, record.progress), None)
}

/// Writes a model with all that training needs to go on: three times the size.
pub fn save_checkpoint(directory: &Path, model: &Model, state: &TrainingState) -> Result<(), ModelError> {
    save(directory, model, (&state.config, state.progress), Some((state, state.refresh.as_ref())))
}

fn save(
    directory: &Path,
    model: &Model,
    record: (&TrainConfig, Progress),
    state: State<'_>,
) -> Result<(), ModelError> {
    Unfinished::write(directory, model, record, state)?.finish()
}

/// What stands for the checksum of `config.json` while it is taken.
const NO_CHECKSUM: &str = "00000000";

/// Puts the checksum of a text into it, where zeroes stand for it.
fn with_checksum(text: String) -> String {
    let checksum = format!("{:08x}", crc32fast::hash(text.as_bytes()));
    text.replacen(&checksum_entry(NO_CHECKSUM), &checksum_entry(&checksum), 1)
}

fn checksum_entry(checksum: &str) -> String {
    format!("\"checksum\": \"{checksum}\"")
}

impl SparseHeader {
    fn of(sparse: &SparsePart) -> Self {
        Self { entries: sparse.num_entries(), blend: sparse.blend(), start: Some(sparse.start()) }
    }
}

impl NeighboursHeader {
    fn of(neighbours: &Neighbours) -> Self {
        Self {
            examples: neighbours.num_examples(),
            entries: neighbours.entries().0.len(),
            members: neighbours.members().len(),
            weight: neighbours.weight(),
        }
    }
}

impl SearchHeader {
    fn of(search: &SearchIndex) -> Self {
        let SearchIndex { clusters, effort, recall, .. } = search;
        let (groups, clusters) = (clusters.groups.spread.len(), clusters.clusters.spread.len());
        Self { groups, clusters, effort: *effort, recall: *recall }
    }
}

impl StateHeader {
    fn of(state: &TrainingState, refresh: Option<&LastRefresh>) -> Self {
        let held_out = state.held_out.as_ref().map(Vec::len);
        let refresh = refresh.map(|refresh| RefreshHeader {
            tables: refresh.tables.as_ref().map(|tables| TablesHeader {
                seed: tables.seed,
                shape: tables.shape,
                wide: matches!(tables.codes, TableCodes::Wide(_)),
                mean: tables.mean.len(),
            }),
            near: refresh.near.as_ref().map(|near| near.classes.len()),
        });
        let (data, rehearsal, best) = (state.data.clone(), state.rehearsal, state.best);
        Self { data, held_out, rehearsal, best, refresh }
    }
}

/// Reads and checks the model in `directory`.
pub fn load(directory: &Path) -> Result<SavedModel, ModelError> {
    load_on(Arc::new(Alone), directory)
}

/// As [`load`], of the model what one rank of several holds, and without a search index.
/// However many ranks wrote it, any number opens it.
pub fn load_on(collective: Arc<dyn Collective>, directory: &Path) -> Result<SavedModel, ModelError> {
    let snapshot = &Snapshot::open(directory)?;
    let config = read_config(snapshot)?;
    let shard = Shard::new(collective, config.network.num_classes);
    let layout = ShardLayout::of(snapshot, &config, &shard)?;
    let model = read_model(snapshot, &config, &layout, &shard)?;
    Ok(SavedModel { model, record: TrainingRecord { config: config.training, progress: config.progress } })
}

/// Reads and checks a model with all that training needs to go on.
pub fn load_checkpoint(directory: &Path) -> Result<Checkpoint, ModelError> {
    load_checkpoint_on(Arc::new(Alone), directory)
}

/// As [`load_checkpoint`], what one rank of several holds.
pub fn load_checkpoint_on(
    collective: Arc<dyn Collective>,
    directory: &Path,
) -> Result<Checkpoint, ModelError> {
    let snapshot = &Snapshot::open(directory)?;
    let config = read_config(snapshot)?;
    if !config.files.iter().any(|entry| entry.name == TRAINING_FILE) {
        return Err(ModelError::NoTrainingState { directory: directory.into() });
    }
    let shard = Shard::new(collective, config.network.num_classes);
    let layout = ShardLayout::of(snapshot, &config, &shard)?;
    for entry in config.files.iter().filter(|entry| layout.is_for_training(&entry.name)) {
        directory::check(snapshot, entry)?;
    }
    let model = read_model(snapshot, &config, &layout, &shard)?;
    let file = TensorFile::open(snapshot, TRAINING_FILE)?;
    let features = layout.features(snapshot, TRAINING_FILE)?;
    let classes = layout.classes(snapshot, TRAINING_FILE)?;
    let header = config.state.unwrap_or_default();
    let refresh = header
        .refresh
        .map(|header| file.read_refresh(&header, model.num_features(), &classes))
        .transpose()?;
    let state = TrainingState {
        moments: file.read_moments(&model.network, &features, &classes)?,
        held_out: header.held_out.map(|count| file.read_held_out(count)).transpose()?,
        config: config.training,
        progress: config.progress,
        data: header.data,
        rehearsal: header.rehearsal,
        best: header.best,
        refresh,
    };
    check_state(file.path(), &state)?;
    Ok(Checkpoint { model, state })
}

/// Whether a directory holds a model, of whatever version.
pub fn is_model(directory: &Path) -> bool {
    let header = std::fs::read(directory.join(CONFIG_FILE)).ok();
    let header = header.and_then(|bytes| serde_json::from_slice::<VersionHeader>(&bytes).ok());
    header.is_some_and(|header| header.format == FORMAT_NAME)
}

fn read_model(
    snapshot: &Snapshot,
    config: &ConfigFile,
    layout: &ShardLayout,
    shard: &Shard,
) -> Result<Model, ModelError> {
    for entry in config.files.iter().filter(|entry| layout.is_for_model(&entry.name)) {
        directory::check(snapshot, entry)?;
    }
    check_shape(snapshot, &config.network, layout.bytes(snapshot)?)?;
    let file = TensorFile::open(snapshot, MODEL_FILE)?;
    let features = layout.features(snapshot, MODEL_FILE)?;
    let classes = layout.classes(snapshot, MODEL_FILE)?;
    let first_feature = shard.features(config.network.num_features).start;
    let network = file.read_network(&config.network, (first_feature, &features), &classes)?;
    let frequencies = ClassFrequencies {
        examples_of_class: file.read_class_counts(config.network.num_classes)?,
        num_examples: config.examples,
    };
    let counts = &frequencies.examples_of_class[shard.classes()];
    let sparse =
        config.sparse.map(|header| read_sparse(&classes, header, &config.network, counts)).transpose()?;
    let files = (&file, &classes);
    let neighbours =
        config.neighbours.map(|header| read_neighbours(files, header, &config.network)).transpose()?;
    let search = config.search.filter(|_| shard.is_whole());
    let search = search.map(|header| read_search(&file, header, &config.network)).transpose()?;
    let (directory, read) = (snapshot.directory(), |path: &Path| snapshot.read(path));
    let text = config.text.then(|| TextPipeline::load_by(directory, &read)).transpose()?;
    let names = config.names.then(|| LabelNames::load_by(directory, &read)).transpose()?;
    let calibration = config.calibration.clone();
    let mut model = Model { network, sparse, neighbours, search, frequencies, calibration, text, names };
    if config.format_version < PRIORS_APART_SINCE {
        take_priors_out(&mut model, config);
    }
    check_names(directory, &model)?;
    Ok(model)
}

/// Early versions added the priors of classes to the output layer's bias at the end
/// of each epoch and took them out again at the start of the next. The first of them
/// knew no priors, and answer as they did if their bias makes up for what is added now.
fn take_priors_out(model: &mut Model, config: &ConfigFile) {
    let knows_priors = config.sparse.is_some_and(|header| header.start.is_some());
    let is_at_end = config.progress.position == 0 && config.progress.epoch > 0;
    if let Some(sparse) = model.sparse.as_ref().filter(|_| is_at_end || !knows_priors) {
        for (bias, prior) in model.network.output.bias.iter_mut().zip(sparse.priors()) {
            *bias -= sparse.blend() * prior;
        }
    }
}

/// Held-out examples must exist and ascend: they are searched.
fn check_state(path: &Path, state: &TrainingState) -> Result<(), ModelError> {
    let held_out = state.held_out.as_deref().unwrap_or_default();
    let examples = state.data.as_ref().map_or(usize::MAX, |data| data.examples);
    let fits = held_out.last().is_none_or(|&last| (last as usize) < examples);
    if fits && held_out.is_sorted_by(|a, b| a < b) {
        return Ok(());
    }
    let expected = format!("ascending held-out examples below {examples}");
    Err(ModelError::Damaged { path: path.into(), expected, found: "others".into() })
}

fn read_config(snapshot: &Snapshot) -> Result<ConfigFile, ModelError> {
    let (path, bytes) = (snapshot.path(CONFIG_FILE), snapshot.config());
    let bad = |source| ModelError::Config { path: path.clone(), source };
    let header: VersionHeader = serde_json::from_slice(bytes).map_err(bad)?;
    let directory = snapshot.directory();
    if header.format != FORMAT_NAME {
        return Err(ModelError::NotAModel { directory: directory.into() });
    }
    if header.format_version > FORMAT_VERSION {
        let (found, newest) = (header.format_version, FORMAT_VERSION);
        return Err(ModelError::Newer { directory: directory.into(), found, newest });
    }
    check_config(&path, bytes, &header)?;
    let mut config: ConfigFile = serde_json::from_slice(bytes).map_err(bad)?;
    if header.format_version < PRIORS_APART_SINCE {
        let early: EarlyConfig = serde_json::from_slice(bytes).map_err(bad)?;
        config.examples = early.progress.examples;
    }
    Ok(config)
}

/// A file that has a checksum must agree with it, whatever version it claims to be.
fn check_config(path: &Path, bytes: &[u8], header: &VersionHeader) -> Result<(), ModelError> {
    let checksum = header.checksum.as_deref();
    if checksum.is_none() && header.format_version < CHECKSUM_SINCE {
        return Ok(());
    }
    let text = String::from_utf8_lossy(bytes);
    let summed = checksum.map(|found| text.replacen(&checksum_entry(found), &checksum_entry(NO_CHECKSUM), 1));
    let expected = format!("{:08x}", crc32fast::hash(summed.as_deref().unwrap_or_default().as_bytes()));
    if checksum == Some(expected.as_str()) {
        return Ok(());
    }
    let found = checksum.map_or("none".into(), |checksum| format!("{checksum:?}"));
    let expected = format!("the checksum {expected:?} of its content");
    Err(ModelError::Damaged { path: path.into(), expected, found })
}

/// Each part may be whole and still be another model's.
fn check_names(directory: &Path, model: &Model) -> Result<(), ModelError> {
    let NetworkConfig { num_features, num_classes, .. } = model.network.config;
    let features = model.text.as_ref().map(|text| text.vectoriser.num_features());
    let names = model.label_names().map(LabelNames::len);
    for (what, found, expected) in
        [("features of the vectoriser", features, num_features), ("label names", names, num_classes)]
    {
        if let Some(found) = found.filter(|&found| found != expected) {
            let (what, expected, found) = (what.into(), expected.to_string(), found.to_string());
            return Err(ModelError::Shape { path: directory.into(), what, expected, found });
        }
    }
    Ok(())
}

/// A configuration from outside must not make us reserve absurd memory.
fn check_shape(snapshot: &Snapshot, config: &NetworkConfig, bytes: u64) -> Result<(), ModelError> {
    let widths_fit = !config.hidden.is_empty() && config.hidden.iter().all(|&w| w > 0 && w <= 1 << 20);
    let ids_fit = config.num_features <= u32::MAX as usize && config.num_classes <= u32::MAX as usize;
    // No more numbers than the weights' files can hold.
    let first = config.hidden.first().copied().unwrap_or(0) as u64;
    let last = config.hidden.last().copied().unwrap_or(0) as u64;
    let numbers = (config.num_features as u64)
        .saturating_mul(first)
        .saturating_add((config.num_classes as u64).saturating_mul(last));
    let hidden = |pair: &[usize]| (pair[0] as u64).saturating_mul(pair[1] as u64);
    let hidden = config.hidden.windows(2).map(hidden).fold(0, u64::saturating_add);
    let least = numbers.saturating_mul(2).saturating_add(hidden.saturating_mul(4));
    if widths_fit && ids_fit && least <= bytes {
        return Ok(());
    }
    Err(ModelError::Shape {
        path: snapshot.path(CONFIG_FILE),
        what: "network".into(),
        expected: format!("a network whose weights fit into its files ({bytes} bytes)"),
        found: format!(
            "{} features, hidden {:?}, {} classes",
            config.num_features, config.hidden, config.num_classes
        ),
    })
}
