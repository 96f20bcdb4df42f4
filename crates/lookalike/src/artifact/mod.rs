//! The model directory: what training leaves behind and everything else reads.
//!
//! ```text
//! MODEL/
//!   config.json                  format version, network, training settings, checksums
//!   model.safetensors            weights, biases, training frequency of each class, sparse rows,
//!                                training examples
//!   training.safetensors         moments, for resuming (optional)
//!   vectoriser.json, vocabulary.txt, labels.txt
//!                                from text to features and back to names (optional)
//! ```
//!
//! A directory is written beside its final place and exchanged for the old one
//! in one step, so a reader sees the old model or the new one, never half of
//! each, and a crash loses nothing. Loading checks the format version, every
//! file's length and checksum, and every tensor's name, type and shape.

mod directory;
mod error;
mod keeper;
mod tensors;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use directory::{check_destination, replace_directory};
pub use error::ModelError;
pub use keeper::DirectoryKeeper;

use crate::data::DataFingerprint;
use crate::model::{
    Calibration, ClassFrequencies, Model, Neighbours, NetworkConfig, SparsePart, SparseStart,
};
use crate::text::{LabelNames, TextPipeline};
use crate::train::{BestScore, Checkpoint, Progress, TrainConfig, TrainingRecord, TrainingState};
use tensors::{TensorFile, read_neighbours, read_sparse, write_model, write_state};

/// The version of the format that this code writes; it reads this and earlier ones.
pub const FORMAT_VERSION: u32 = 5;
/// From here on the priors of classes are not in the output layer's bias any more.
const PRIORS_APART_SINCE: u32 = 4;
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
#[serde(rename_all = "kebab-case")]
struct ConfigFile {
    format: String,
    format_version: u32,
    network: NetworkConfig,
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
    /// What training needs besides, since version 4; the large part of it is in a file
    /// of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<StateHeader>,
    files: Vec<FileEntry>,
}

/// What of the training state is no tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct StateHeader {
    data: Option<DataFingerprint>,
    /// Examples held out from training, if they were chosen.
    held_out: Option<usize>,
    best: BestScore,
}

/// What of the sparse part is no tensor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
struct NeighboursHeader {
    examples: usize,
    /// Features of all examples.
    entries: usize,
    /// Examples of all classes.
    members: usize,
    weight: f32,
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
struct Header {
    format: String,
    format_version: u32,
}

/// Writes a model to `directory`, replacing a model that is there.
pub fn save_model(directory: &Path, model: &Model, record: &TrainingRecord) -> Result<(), ModelError> {
    save(directory, model, (&record.config, record.progress), None)
}

/// Writes a model with all that training needs to go on: three times the size.
pub fn save_checkpoint(directory: &Path, model: &Model, state: &TrainingState) -> Result<(), ModelError> {
    save(directory, model, (&state.config, state.progress), Some(state))
}

fn save(
    directory: &Path,
    model: &Model,
    (training, progress): (&TrainConfig, Progress),
    state: Option<&TrainingState>,
) -> Result<(), ModelError> {
    replace_directory(directory, |folder| {
        write_model(&folder.join(MODEL_FILE), model)?;
        if let Some(TrainingState { moments, held_out, .. }) = state {
            write_state(&folder.join(TRAINING_FILE), &model.network, moments, held_out.as_deref())?;
        }
        if let Some(text) = &model.text {
            text.save(folder)?;
        }
        if let Some(names) = &model.names {
            names.save(folder)?;
        }
        let config = ConfigFile {
            format: FORMAT_NAME.into(),
            format_version: FORMAT_VERSION,
            network: model.network.config.clone(),
            training: training.clone(),
            progress,
            examples: model.frequencies.num_examples,
            text: model.text.is_some(),
            names: model.names.is_some(),
            sparse: model.sparse.as_ref().map(SparseHeader::of),
            neighbours: model.neighbours.as_ref().map(NeighboursHeader::of),
            calibration: model.calibration.clone(),
            state: state.map(StateHeader::of),
            files: directory::checksums(folder)?,
        };
        let text = serde_json::to_string_pretty(&config).map_err(ModelError::encode)?;
        directory::write_file(&folder.join(CONFIG_FILE), text.as_bytes())
    })
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

impl StateHeader {
    fn of(state: &TrainingState) -> Self {
        let held_out = state.held_out.as_ref().map(Vec::len);
        Self { data: state.data.clone(), held_out, best: state.best }
    }
}

/// Reads and checks the model in `directory`.
pub fn load(directory: &Path) -> Result<SavedModel, ModelError> {
    let config = read_config(directory)?;
    let model = read_model(directory, &config)?;
    Ok(SavedModel { model, record: TrainingRecord { config: config.training, progress: config.progress } })
}

/// Reads and checks a model with all that training needs to go on.
pub fn load_checkpoint(directory: &Path) -> Result<Checkpoint, ModelError> {
    let config = read_config(directory)?;
    let Some(entry) = config.files.iter().find(|entry| entry.name == TRAINING_FILE) else {
        return Err(ModelError::NoTrainingState { directory: directory.into() });
    };
    directory::check(directory, entry)?;
    let model = read_model(directory, &config)?;
    let path = directory.join(TRAINING_FILE);
    let file = TensorFile::open(&path)?;
    let header =
        config.state.unwrap_or(StateHeader { data: None, held_out: None, best: BestScore::default() });
    let state = TrainingState {
        moments: file.read_moments(&model.network)?,
        held_out: header.held_out.map(|count| file.read_held_out(count)).transpose()?,
        config: config.training,
        progress: config.progress,
        data: header.data,
        best: header.best,
    };
    check_state(&path, &state)?;
    Ok(Checkpoint { model, state })
}

/// Whether a directory holds a model, of whatever version.
pub fn is_model(directory: &Path) -> bool {
    let header = std::fs::read(directory.join(CONFIG_FILE)).ok();
    let header = header.and_then(|bytes| serde_json::from_slice::<Header>(&bytes).ok());
    header.is_some_and(|header| header.format == FORMAT_NAME)
}

fn read_model(directory: &Path, config: &ConfigFile) -> Result<Model, ModelError> {
    for entry in config.files.iter().filter(|entry| entry.name != TRAINING_FILE) {
        directory::check(directory, entry)?;
    }
    check_shape(directory, &config.network)?;
    let path = directory.join(MODEL_FILE);
    let file = TensorFile::open(&path)?;
    let network = file.read_network(&config.network)?;
    let frequencies = ClassFrequencies {
        examples_of_class: file.read_class_counts(config.network.num_classes)?,
        num_examples: config.examples,
    };
    let counts = &frequencies.examples_of_class;
    let sparse =
        config.sparse.map(|header| read_sparse(&file, header, &config.network, counts)).transpose()?;
    let neighbours =
        config.neighbours.map(|header| read_neighbours(&file, header, &config.network)).transpose()?;
    let text = if config.text { Some(TextPipeline::load(directory)?) } else { None };
    let names = if config.names { Some(LabelNames::load(directory)?) } else { None };
    let calibration = config.calibration.clone();
    let mut model = Model { network, sparse, neighbours, frequencies, calibration, text, names };
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

fn read_config(directory: &Path) -> Result<ConfigFile, ModelError> {
    let path = directory.join(CONFIG_FILE);
    if !directory.exists() {
        directory::restore(directory);
    }
    let bytes = std::fs::read(&path).map_err(|source| {
        if source.kind() == std::io::ErrorKind::NotFound {
            ModelError::NotAModel { directory: directory.into() }
        } else {
            ModelError::Io { path: path.clone(), source }
        }
    })?;
    let bad = |source| ModelError::Config { path: path.clone(), source };
    let header: Header = serde_json::from_slice(&bytes).map_err(bad)?;
    if header.format != FORMAT_NAME {
        return Err(ModelError::NotAModel { directory: directory.into() });
    }
    if header.format_version > FORMAT_VERSION {
        return Err(ModelError::Newer {
            directory: directory.into(),
            found: header.format_version,
            newest: FORMAT_VERSION,
        });
    }
    let mut config: ConfigFile = serde_json::from_slice(&bytes).map_err(bad)?;
    if header.format_version < PRIORS_APART_SINCE {
        let early: EarlyConfig = serde_json::from_slice(&bytes).map_err(bad)?;
        config.examples = early.progress.examples;
    }
    Ok(config)
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
fn check_shape(directory: &Path, config: &NetworkConfig) -> Result<(), ModelError> {
    let widths_fit = !config.hidden.is_empty() && config.hidden.iter().all(|&w| w > 0 && w <= 1 << 20);
    let ids_fit = config.num_features <= u32::MAX as usize && config.num_classes <= u32::MAX as usize;
    // No more numbers than the weights' file can hold.
    let bytes = std::fs::metadata(directory.join(MODEL_FILE)).map_or(0, |m| m.len());
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
        path: directory.join(CONFIG_FILE),
        what: "network".into(),
        expected: format!("a network whose weights fit into {MODEL_FILE} ({bytes} bytes)"),
        found: format!(
            "{} features, hidden {:?}, {} classes",
            config.num_features, config.hidden, config.num_classes
        ),
    })
}
