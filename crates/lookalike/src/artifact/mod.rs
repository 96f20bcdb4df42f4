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
mod tensors;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use directory::{check_destination, replace_directory};
pub use error::ModelError;

use crate::model::{Network, NetworkConfig, SparseStart};
use crate::text::{LabelNames, TextPipeline};
use crate::train::{Progress, TrainConfig};
use tensors::{Group, read_neighbours, read_sparse, read_tensors, write_tensors};

/// The version of the format that this code writes; it reads this and earlier ones.
pub const FORMAT_VERSION: u32 = 3;
const FORMAT_NAME: &str = "lookalike model";
const CONFIG_FILE: &str = "config.json";
const MODEL_FILE: &str = "model.safetensors";
const TRAINING_FILE: &str = "training.safetensors";

/// A trained network with all that is needed to use it.
#[derive(Debug)]
pub struct Model {
    /// The parameters.
    pub network: Network,
    /// How they were trained.
    pub training: TrainConfig,
    /// How far.
    pub progress: Progress,
    /// How many training examples each class had.
    pub class_counts: Vec<u32>,
    /// How text becomes features and classes become names, if trained from text.
    pub text: Option<TextPipeline>,
    /// The classes' names, if they have names without being trained from text.
    pub names: Option<LabelNames>,
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
    text: bool,
    #[serde(default)]
    names: bool,
    /// The sparse part, since version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sparse: Option<SparseHeader>,
    /// The training examples that are kept, since version 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    neighbours: Option<NeighboursHeader>,
    files: Vec<FileEntry>,
}

/// What of the sparse part is no tensor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct SparseHeader {
    entries: usize,
    blend: f32,
    /// What the rows started from; training goes on accordingly.
    #[serde(default)]
    start: SparseStart,
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

/// Just enough of `config.json` to say which version it is.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Header {
    format: String,
    format_version: u32,
}

impl Model {
    /// Writes the model to `directory`, replacing a model that is there.
    /// `with_training_state` adds what resuming needs: twice the network's size.
    pub fn save(&self, directory: &Path, with_training_state: bool) -> Result<(), ModelError> {
        replace_directory(directory, |folder| {
            let Network { sparse, neighbours, .. } = &self.network;
            write_tensors(&folder.join(MODEL_FILE), self, Group::Weights)?;
            if with_training_state {
                write_tensors(&folder.join(TRAINING_FILE), self, Group::Moments)?;
            }
            if let Some(text) = &self.text {
                text.save(folder)?;
            }
            if let Some(names) = &self.names {
                names.save(folder)?;
            }
            let config = ConfigFile {
                format: FORMAT_NAME.into(),
                format_version: FORMAT_VERSION,
                network: self.network.config.clone(),
                training: self.training.clone(),
                progress: self.progress,
                text: self.text.is_some(),
                names: self.names.is_some(),
                sparse: sparse.as_ref().map(|sparse| SparseHeader {
                    entries: sparse.num_entries(),
                    blend: sparse.blend(),
                    start: sparse.start(),
                }),
                neighbours: neighbours.as_ref().map(|neighbours| NeighboursHeader {
                    examples: neighbours.num_examples(),
                    entries: neighbours.entries().0.len(),
                    members: neighbours.members().len(),
                    weight: neighbours.weight(),
                }),
                files: directory::checksums(folder)?,
            };
            let text = serde_json::to_string_pretty(&config).map_err(ModelError::encode)?;
            directory::write_file(&folder.join(CONFIG_FILE), text.as_bytes())
        })
    }

    /// The classes' names, if they have names.
    pub fn label_names(&self) -> Option<&LabelNames> {
        self.text.as_ref().map(|text| &text.names).or(self.names.as_ref())
    }

    /// A class's name: its own where it has one, else its number.
    pub fn class_name(&self, class: u32) -> String {
        let name = self.label_names().and_then(|names| names.name(class));
        name.map_or_else(|| class.to_string(), str::to_owned)
    }

    /// The class of a name, or of a number where classes have no names.
    pub fn class_id(&self, name: &str) -> Option<u32> {
        match self.label_names() {
            Some(names) => names.id(name),
            None => name.parse().ok().filter(|&id: &u32| (id as usize) < self.network.config.num_classes),
        }
    }

    /// Reads and checks the model in `directory`. `for_training` also reads what
    /// resuming needs.
    pub fn load(directory: &Path, for_training: bool) -> Result<Self, ModelError> {
        let config = read_config(directory)?;
        for entry in &config.files {
            if for_training || entry.name != TRAINING_FILE {
                directory::check(directory, entry)?;
            }
        }
        check_shape(directory, &config.network)?;
        let has_state = config.files.iter().any(|f| f.name == TRAINING_FILE);
        if for_training && !has_state {
            return Err(ModelError::NoTrainingState { directory: directory.into() });
        }
        let text = if config.text { Some(TextPipeline::load(directory)?) } else { None };
        let names = if config.names { Some(LabelNames::load(directory)?) } else { None };
        let mut model = Self {
            class_counts: vec![0; config.network.num_classes],
            network: Network::zeroed(config.network),
            training: config.training,
            progress: config.progress,
            text,
            names,
        };
        check_names(directory, &model)?;
        read_tensors(&directory.join(MODEL_FILE), &mut model, Group::Weights)?;
        if let Some(header) = config.sparse {
            model.network.sparse =
                Some(read_sparse(&directory.join(MODEL_FILE), header, &model.network.config)?);
        }
        if let Some(header) = config.neighbours {
            model.network.neighbours =
                Some(read_neighbours(&directory.join(MODEL_FILE), header, &model.network.config)?);
        }
        if for_training {
            model.network.prepare_training();
            read_tensors(&directory.join(TRAINING_FILE), &mut model, Group::Moments)?;
        }
        Ok(model)
    }
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
    serde_json::from_slice(&bytes).map_err(bad)
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
    if widths_fit && ids_fit && numbers.saturating_mul(2) <= bytes {
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
