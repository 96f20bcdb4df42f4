//! What a model has a row of for each class or feature, in one file or over several.
//!
//! Ranks that train together write a file each, of their own classes and features
//! (`model-00001-of-00002.safetensors`), beside those of what they have in common. Whoever
//! reads asks for a range of each, and the files that hold some of them are put
//! together: any number of ranks, one process among them, opens what any other number
//! wrote. A directory of one process is the case of one file.

use std::ops::Range;

use lookalike_mapped::Buffer;
use serde::{Deserialize, Serialize};

use super::snapshot::Snapshot;
use super::tensor_file::{Number, Shape, TensorFile};
use super::tensors::check_sum;
use super::{ConfigFile, MODEL_FILE, ModelError, TRAINING_FILE};
use crate::collective::Shard;
use crate::model::{Model, Numbers, SparsePart, Storage};

/// More shards than any machine room has ranks.
const SHARDS_MAX: usize = 99_999;

/// What one file of a sharded model holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ShardHeader {
    classes: usize,
    /// Rows of its input layer; earlier ranks had the whole layer in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    features: Option<usize>,
    /// Entries of its sparse rows.
    #[serde(default)]
    sparse_entries: usize,
    /// Kept training examples of its classes.
    #[serde(default)]
    members: usize,
}

impl ShardHeader {
    /// Of the classes and features that a model has here.
    pub(super) fn of(model: &Model) -> Self {
        Self {
            classes: model.network.output.len,
            features: Some(model.network.input.len),
            sparse_entries: model.sparse.as_ref().map_or(0, SparsePart::num_entries),
            members: model.neighbours.as_ref().map_or(0, |neighbours| neighbours.members().len()),
        }
    }

    pub(super) fn sparse_entries(&self) -> usize {
        self.sparse_entries
    }

    pub(super) fn members(&self) -> usize {
        self.members
    }
}

/// The name of a shard's file beside the file of what all have in common.
pub(super) fn shard_name(file: &str, shard: usize, shards: usize) -> String {
    let stem = file.strip_suffix(".safetensors").unwrap_or(file);
    format!("{stem}-{:05}-of-{shards:05}.safetensors", shard + 1)
}

/// Which file holds which classes and features.
pub(super) struct ShardLayout {
    shards: Vec<ShardPart>,
    is_sharded: bool,
    /// Where all features are in the file of what ranks have in common: how many, and those
    /// that are wanted.
    common_features: Option<(usize, Range<usize>)>,
}

/// A file, and those of its rows that are wanted.
struct ShardPart {
    header: ShardHeader,
    classes: Range<usize>,
    features: Range<usize>,
}

impl ShardPart {
    fn is_wanted(&self) -> bool {
        !(self.classes.is_empty() && self.features.is_empty())
    }
}

impl ShardLayout {
    /// Of a directory, for whoever wants the rows of a shard.
    pub(super) fn of(snapshot: &Snapshot, config: &ConfigFile, wanted: &Shard) -> Result<Self, ModelError> {
        let num_features = config.network.num_features;
        let is_sharded = config.shards.is_some();
        let whole = ShardHeader {
            classes: config.network.num_classes,
            features: None,
            sparse_entries: config.sparse.map_or(0, |sparse| sparse.entries),
            members: config.neighbours.map_or(0, |neighbours| neighbours.members),
        };
        let headers = config.shards.as_deref().unwrap_or(std::slice::from_ref(&whole));
        let has_features = headers.iter().any(|header| header.features.is_some());
        let total = |of: fn(&ShardHeader) -> usize| {
            headers.iter().try_fold(0usize, |sum, header| sum.checked_add(of(header)))
        };
        let found = [
            |header: &ShardHeader| header.classes,
            |header: &ShardHeader| header.features.unwrap_or(0),
            ShardHeader::sparse_entries,
            ShardHeader::members,
        ]
        .map(total);
        let features = if has_features { num_features } else { 0 };
        let expected = [whole.classes, features, whole.sparse_entries, whole.members].map(Some);
        if found != expected || headers.len() > SHARDS_MAX {
            return Err(ModelError::Shape {
                path: snapshot.path(super::CONFIG_FILE),
                what: "shards (classes, features, sparse entries, members)".into(),
                expected: format!("{expected:?} in all"),
                found: format!("{found:?}"),
            });
        }
        let (classes, features) = (wanted.classes(), wanted.features(num_features));
        let (mut first_class, mut first_feature) = (0, 0);
        let shards = headers.iter().map(|header| ShardPart {
            header: *header,
            classes: overlap(&mut first_class, header.classes, &classes),
            features: overlap(&mut first_feature, header.features.unwrap_or(0), &features),
        });
        let shards = shards.collect();
        let common_features = (!has_features).then_some((num_features, features));
        Ok(Self { shards, is_sharded, common_features })
    }

    /// The name of a shard's file beside a file.
    fn name(&self, file: &str, shard: usize) -> String {
        match self.is_sharded {
            true => shard_name(file, shard, self.shards.len()),
            false => file.to_owned(),
        }
    }

    /// The names of the shards' files beside a file; those that are wanted, or all.
    fn names(&self, file: &str, all: bool) -> Vec<String> {
        let is_named = |shard: &usize| all || !self.is_sharded || self.shards[*shard].is_wanted();
        (0..self.shards.len()).filter(is_named).map(|shard| self.name(file, shard)).collect()
    }

    /// Files that a reader of the model has no use for: of training, and of other ranks.
    pub(super) fn is_for_model(&self, name: &str) -> bool {
        let is_shard = self.names(MODEL_FILE, true).iter().any(|shard| shard == name);
        name != TRAINING_FILE
            && !self.names(TRAINING_FILE, true).iter().any(|shard| shard == name)
            && (!is_shard || self.names(MODEL_FILE, false).iter().any(|shard| shard == name))
    }

    /// Files that a reader of the training state needs.
    pub(super) fn is_for_training(&self, name: &str) -> bool {
        name == TRAINING_FILE || self.names(TRAINING_FILE, false).iter().any(|shard| shard == name)
    }

    /// Bytes of all files that have weights.
    pub(super) fn bytes(&self, snapshot: &Snapshot) -> Result<u64, ModelError> {
        let mut names = self.names(MODEL_FILE, true);
        names.extend(self.is_sharded.then(|| MODEL_FILE.to_owned()));
        let lengths = names.iter().map(|name| Ok(snapshot.file(name)?.metadata().map_or(0, |f| f.len())));
        lengths.sum()
    }

    /// The files beside `file` that hold wanted classes, open.
    pub(super) fn classes<'a>(&self, snapshot: &'a Snapshot, file: &str) -> Result<RowFiles<'a>, ModelError> {
        self.open(snapshot, file, |part| (part.header.classes, part.classes.clone()))
    }

    /// The files beside `file` that hold wanted features, or `file` itself if it does.
    pub(super) fn features<'a>(
        &self,
        snapshot: &'a Snapshot,
        file: &str,
    ) -> Result<RowFiles<'a>, ModelError> {
        match &self.common_features {
            Some((rows, wanted)) => {
                let header = ShardHeader::default();
                let (file, wanted) = (TensorFile::open(snapshot, file)?, wanted.clone());
                Ok(RowFiles(vec![RowFile { file, header, rows: *rows, wanted }]))
            }
            None => {
                let rows = |part: &ShardPart| (part.header.features.unwrap_or(0), part.features.clone());
                self.open(snapshot, file, rows)
            }
        }
    }

    /// Files with their number of rows and those that are wanted of them.
    fn open<'a>(
        &self,
        snapshot: &'a Snapshot,
        file: &str,
        rows_of: impl Fn(&ShardPart) -> (usize, Range<usize>),
    ) -> Result<RowFiles<'a>, ModelError> {
        let mut files = Vec::new();
        for (shard, part) in self.shards.iter().enumerate() {
            let (rows, wanted) = rows_of(part);
            if !wanted.is_empty() || !self.is_sharded {
                let file = TensorFile::open(snapshot, &self.name(file, shard))?;
                files.push(RowFile { file, header: part.header, rows, wanted });
            }
        }
        Ok(RowFiles(files))
    }
}

/// Those of the next `count` rows that are wanted, numbered from the first of them.
fn overlap(first: &mut usize, count: usize, wanted: &Range<usize>) -> Range<usize> {
    let rows = *first..*first + count;
    *first = rows.end;
    let place = |row: usize| row.clamp(rows.start, rows.end) - rows.start;
    place(wanted.start)..place(wanted.end)
}

/// A file with rows of some classes or features.
struct RowFile<'a> {
    file: TensorFile<'a>,
    header: ShardHeader,
    rows: usize,
    /// Those of its rows that are wanted.
    wanted: Range<usize>,
}

/// The files that hold the wanted rows, in their order.
pub(super) struct RowFiles<'a>(Vec<RowFile<'a>>);

/// Lists of the wanted rows: how long each is, and where they lie in each file.
pub(super) struct ClassLists {
    pub(super) lengths: Vec<u32>,
    /// Entries of a file in all, and the wanted ones.
    entries: Vec<(usize, Range<usize>)>,
}

impl RowFiles<'_> {
    /// How many rows are wanted.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|part| part.wanted.len()).sum()
    }

    /// A matrix of them.
    pub(super) fn numbers(
        &self,
        name: &str,
        storage: Storage,
        (dim, stride): (usize, usize),
    ) -> Result<Numbers, ModelError> {
        Ok(match storage {
            Storage::F32 => Numbers::F32(self.matrix(name, dim, stride)?),
            Storage::Bf16 => Numbers::Bf16(self.matrix(name, dim, stride)?),
        })
    }

    fn matrix<T: Number>(&self, name: &str, dim: usize, stride: usize) -> Result<Buffer<T>, ModelError> {
        let shape = |part: &RowFile<'_>| -> Shape { (part.rows, dim, stride) };
        for part in &self.0 {
            part.file.expect::<T>(name, &[part.rows, dim])?;
        }
        let mut rows = Buffer::<T>::zeroed(self.len() * stride);
        let mut rest = &mut rows[..];
        for part in &self.0 {
            let (here, after) = rest.split_at_mut(part.wanted.len() * stride);
            part.file.read_rows_into(name, shape(part), part.wanted.clone(), here)?;
            rest = after;
        }
        Ok(rows)
    }

    /// A number a row.
    pub(super) fn vector<T: Number>(&self, name: &str) -> Result<Vec<T>, ModelError> {
        let parts = self.0.iter();
        let parts = parts.map(|part| part.file.read_part(name, part.rows, part.wanted.clone()));
        Ok(parts.collect::<Result<Vec<Vec<T>>, _>>()?.concat())
    }

    /// A matrix with a column for each.
    pub(super) fn columns<T: Number>(&self, name: &str, rows: usize) -> Result<Vec<T>, ModelError> {
        for part in &self.0 {
            part.file.expect::<T>(name, &[rows, part.rows])?;
        }
        let stride = self.len();
        let mut columns = vec![T::zeroed(); rows * stride];
        let mut start = 0;
        for part in self.0.iter().filter(|part| !part.wanted.is_empty()) {
            let (size, wanted) = ((rows, part.rows), part.wanted.clone());
            part.file.read_columns_into(name, size, wanted, (&mut columns[start..], stride))?;
            start += part.wanted.len();
        }
        Ok(columns)
    }

    /// A list for each: their lengths, which must add up.
    pub(super) fn lists(
        &self,
        name: &str,
        what: &str,
        entries: fn(&ShardHeader) -> usize,
    ) -> Result<ClassLists, ModelError> {
        let mut lists = ClassLists { lengths: Vec::new(), entries: Vec::new() };
        for part in &self.0 {
            let all: Vec<u32> = part.file.read_vector(name, part.rows)?;
            let total = entries(&part.header);
            check_sum(part.file.path(), &all, total, what)?;
            let sum = |lengths: &[u32]| lengths.iter().map(|&length| length as usize).sum::<usize>();
            let start = sum(&all[..part.wanted.start]);
            let wanted = &all[part.wanted.clone()];
            lists.entries.push((total, start..start + sum(wanted)));
            lists.lengths.extend_from_slice(wanted);
        }
        Ok(lists)
    }

    /// The entries of lists, row after row.
    pub(super) fn entries<T: Number>(&self, name: &str, lists: &ClassLists) -> Result<Vec<T>, ModelError> {
        let parts = self.0.iter().zip(&lists.entries);
        let parts = parts.map(|(part, (total, wanted))| part.file.read_part(name, *total, wanted.clone()));
        Ok(parts.collect::<Result<Vec<Vec<T>>, _>>()?.concat())
    }

    /// Where the first of them is, for messages.
    pub(super) fn path(&self) -> &std::path::Path {
        self.0.first().map_or(std::path::Path::new(MODEL_FILE), |part| part.file.path())
    }
}
