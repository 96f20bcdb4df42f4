//! What a model has a row of for each class, in one file or over several.
//!
//! Ranks that train together write a file each, of their own classes
//! (`model-00001-of-00002.safetensors`), beside those of what they have in common. Whoever
//! reads asks for a range of classes, and the files that hold some of them are put
//! together: any number of ranks, one process among them, opens what any other number
//! wrote. A directory of one process is the case of one file.

use std::ops::Range;

use lookalike_mapped::Buffer;
use serde::{Deserialize, Serialize};

use super::snapshot::Snapshot;
use super::tensor_file::{Number, Shape, TensorFile};
use super::tensors::check_sum;
use super::{ConfigFile, MODEL_FILE, ModelError, TRAINING_FILE};
use crate::model::{Model, Numbers, SparsePart, Storage};

/// More shards than any machine room has ranks.
const SHARDS_MAX: usize = 99_999;

/// What one file of a sharded model holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ShardHeader {
    pub(super) classes: usize,
    /// Entries of its sparse rows.
    #[serde(default)]
    sparse_entries: usize,
    /// Kept training examples of its classes.
    #[serde(default)]
    members: usize,
}

impl ShardHeader {
    /// Of the classes that a model has here.
    pub(super) fn of(model: &Model) -> Self {
        Self {
            classes: model.network.output.len,
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

/// Which file holds which classes: `(name, header, those of its classes that are wanted)`.
pub(super) struct Layout {
    shards: Vec<(ShardHeader, Range<usize>)>,
    is_sharded: bool,
}

impl Layout {
    /// Of a directory, for whoever wants these classes.
    pub(super) fn of(
        snapshot: &Snapshot,
        config: &ConfigFile,
        wanted: &Range<usize>,
    ) -> Result<Self, ModelError> {
        let whole = ShardHeader {
            classes: config.network.num_classes,
            sparse_entries: config.sparse.map_or(0, |sparse| sparse.entries),
            members: config.neighbours.map_or(0, |neighbours| neighbours.members),
        };
        let headers = config.shards.as_deref().unwrap_or(std::slice::from_ref(&whole));
        let total = |of: fn(&ShardHeader) -> usize| {
            headers.iter().try_fold(0usize, |sum, header| sum.checked_add(of(header)))
        };
        let found =
            [|header: &ShardHeader| header.classes, ShardHeader::sparse_entries, ShardHeader::members]
                .map(total);
        let expected = [whole.classes, whole.sparse_entries, whole.members].map(Some);
        if found != expected || headers.len() > SHARDS_MAX {
            return Err(ModelError::Shape {
                path: snapshot.path(super::CONFIG_FILE),
                what: "shards (classes, sparse entries, members)".into(),
                expected: format!("{expected:?} in all"),
                found: format!("{found:?}"),
            });
        }
        let mut start = 0;
        let shards = headers.iter().map(|header| {
            let classes = start..start + header.classes;
            start = classes.end;
            let place = |class: usize| class.clamp(classes.start, classes.end) - classes.start;
            (*header, place(wanted.start)..place(wanted.end))
        });
        Ok(Self { shards: shards.collect(), is_sharded: config.shards.is_some() })
    }

    /// The names of the shards' files beside a file; those that are wanted, or all.
    fn names(&self, file: &str, all: bool) -> Vec<String> {
        let is_named = |(_, (_, wanted)): &(usize, &(ShardHeader, Range<usize>))| all || !wanted.is_empty();
        let shards = self.shards.iter().enumerate().filter(is_named);
        match self.is_sharded {
            true => shards.map(|(i, _)| shard_name(file, i, self.shards.len())).collect(),
            false => vec![file.to_owned()],
        }
    }

    /// Files that a reader of the model has no use for: of training, and of other classes.
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
    pub(super) fn open<'a>(&self, snapshot: &'a Snapshot, file: &str) -> Result<ClassFiles<'a>, ModelError> {
        let wanted = self.shards.iter().filter(|(_, wanted)| !wanted.is_empty() || !self.is_sharded);
        let files = wanted.zip(self.names(file, false)).map(|((header, wanted), name)| {
            let file = TensorFile::open(snapshot, &name)?;
            Ok(ClassFile { file, header: *header, wanted: wanted.clone() })
        });
        Ok(ClassFiles(files.collect::<Result<_, ModelError>>()?))
    }
}

/// A file with rows of some classes.
struct ClassFile<'a> {
    file: TensorFile<'a>,
    header: ShardHeader,
    /// Those of its rows that are wanted.
    wanted: Range<usize>,
}

/// The files that hold the wanted classes, in their order.
pub(super) struct ClassFiles<'a>(Vec<ClassFile<'a>>);

/// Lists of the wanted classes: how long each is, and where they lie in each file.
pub(super) struct ClassLists {
    pub(super) lengths: Vec<u32>,
    /// Entries of a file in all, and the wanted ones.
    entries: Vec<(usize, Range<usize>)>,
}

impl ClassFiles<'_> {
    /// How many classes are wanted.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|part| part.wanted.len()).sum()
    }

    /// A matrix with a row a class.
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
        let shape = |part: &ClassFile<'_>| -> Shape { (part.header.classes, dim, stride) };
        for part in &self.0 {
            part.file.expect::<T>(name, &[part.header.classes, dim])?;
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

    /// A number a class.
    pub(super) fn vector<T: Number>(&self, name: &str) -> Result<Vec<T>, ModelError> {
        let parts = self.0.iter();
        let parts = parts.map(|part| part.file.read_part(name, part.header.classes, part.wanted.clone()));
        Ok(parts.collect::<Result<Vec<Vec<T>>, _>>()?.concat())
    }

    /// A matrix with a column a class.
    pub(super) fn columns<T: Number>(&self, name: &str, rows: usize) -> Result<Vec<T>, ModelError> {
        for part in &self.0 {
            part.file.expect::<T>(name, &[rows, part.header.classes])?;
        }
        let stride = self.len();
        let mut columns = vec![T::zeroed(); rows * stride];
        let mut start = 0;
        for part in self.0.iter().filter(|part| !part.wanted.is_empty()) {
            let (size, wanted) = ((rows, part.header.classes), part.wanted.clone());
            part.file.read_columns_into(name, size, wanted, (&mut columns[start..], stride))?;
            start += part.wanted.len();
        }
        Ok(columns)
    }

    /// A list a class: their lengths, which must add up.
    pub(super) fn lists(
        &self,
        name: &str,
        what: &str,
        entries: fn(&ShardHeader) -> usize,
    ) -> Result<ClassLists, ModelError> {
        let mut lists = ClassLists { lengths: Vec::new(), entries: Vec::new() };
        for part in &self.0 {
            let all: Vec<u32> = part.file.read_vector(name, part.header.classes)?;
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

    /// The entries of lists, class after class.
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
