//! Models and training states as named tensors.
//!
//! Tensors hold the true widths, not the padded ones, so that any reader of
//! safetensors can use them: `input.weight` is features × hidden,
//! `hidden.N.weight` inputs × outputs, `output.weight` classes × hidden.

use std::path::Path;

use super::search::{OffsetLengths, search_tensors};
use super::shards::{RowFiles, ShardHeader};
use super::tensor_file::{Tensor, TensorFile, matrix, numbers, vector, write};
use super::{ModelError, NeighboursHeader, RefreshHeader, SparseHeader, TablesHeader};
use crate::hashing::TableCodes;
use crate::model::{Model, Neighbours, Network, NetworkConfig, Rows, SparsePart};
use crate::optim::{HiddenMoments, NetworkMoments, RowMoments, ScalarMoments};
use crate::sampling::FeatureLists;
use crate::train::{LastRefresh, SavedTables, TrainingState};

/// Which tensors go into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// All, where one process has all classes.
    All,
    /// What ranks have in common, which the first one writes.
    Common,
    /// What belongs to the classes and features of a rank.
    OfRank,
}

/// Writes what a model predicts with.
pub(super) fn write_model(path: &Path, model: &Model, which: Which) -> Result<(), ModelError> {
    let (sparse, neighbours) = (model.sparse.as_ref(), model.neighbours.as_ref());
    let lengths = sparse.map_or(vec![], SparsePart::lengths);
    let example_lengths = neighbours.map_or(vec![], Neighbours::lengths);
    let class_lengths = neighbours.map_or(vec![], Neighbours::class_lengths);
    let offsets = model.search.as_ref().map(|search| OffsetLengths::of(&search.clusters));
    let mut tensors = Vec::new();
    if which != Which::Common {
        tensors.extend(rank_weights_of(&model.network));
        if let Some(sparse) = sparse {
            tensors.push(vector(SPARSE[0], &lengths));
            tensors.push(vector(SPARSE[1], &sparse.features));
            tensors.push(vector(SPARSE[2], sparse.weights()));
        }
        if let Some(neighbours) = neighbours {
            tensors.push(vector(NEIGHBOURS[3], &class_lengths));
            tensors.push(vector(NEIGHBOURS[4], neighbours.members()));
        }
    }
    if which != Which::OfRank {
        tensors.extend(common_weights_of(&model.network));
        tensors.push(vector(CLASS_COUNTS, &model.frequencies.examples_of_class));
        if let Some(neighbours) = neighbours {
            let (features, values) = neighbours.entries();
            tensors.push(vector(NEIGHBOURS[0], &example_lengths));
            tensors.push(vector(NEIGHBOURS[1], features));
            tensors.push(vector(NEIGHBOURS[2], values));
        }
        if let (Some(search), Some(lengths)) = (&model.search, &offsets) {
            tensors.extend(search_tensors(&search.clusters, lengths, &model.network.output));
        }
    }
    write(path, tensors)
}

/// Writes what training needs besides and is large: moments, held-out examples, and what
/// the last refresh left.
pub(super) fn write_state(
    path: &Path,
    model: &Model,
    (state, refresh): (&TrainingState, Option<&LastRefresh>),
    which: Which,
) -> Result<(), ModelError> {
    let mut tensors = Vec::new();
    let tables = refresh.and_then(|refresh| refresh.tables.as_ref());
    if which != Which::Common {
        tensors.extend(row_moments_of("input", &model.network.input, &state.moments.input));
        tensors.extend(row_moments_of("output", &model.network.output, &state.moments.output));
        tensors.extend(scalar_moments_of("output.bias", &state.moments.output.bias));
        if let Some(SavedTables { shape, codes, .. }) = tables {
            let classes = model.network.output.len;
            let shape = (shape.l, classes, classes);
            tensors.push(match codes {
                TableCodes::Narrow(codes) => matrix(CODES, codes, shape),
                TableCodes::Wide(codes) => matrix(CODES, codes, shape),
            });
        }
    }
    if which != Which::OfRank {
        tensors.extend(common_moments_of(&model.network, &state.moments));
        tensors.extend(state.held_out.as_ref().map(|held_out| vector(HELD_OUT, held_out)));
        tensors.extend(tables.map(|tables| vector(MEAN, &tables.mean)));
        if let Some(near) = refresh.and_then(|refresh| refresh.near.as_ref()) {
            tensors.push(vector(NEAR[0], &near.lengths));
            tensors.push(vector(NEAR[1], &near.classes));
            tensors.push(vector(NEAR[2], &near.weights));
        }
    }
    write(path, tensors)
}

impl TensorFile<'_> {
    /// A network of this shape, with the rows of features and classes that these files have;
    /// the first feature is given.
    pub(super) fn read_network(
        &self,
        config: &NetworkConfig,
        (first_feature, features): (usize, &RowFiles<'_>),
        classes: &RowFiles<'_>,
    ) -> Result<Network, ModelError> {
        // Rows are made when it is known that the files have them.
        let mut network =
            Network::zeroed(NetworkConfig { num_features: 0, num_classes: 0, ..config.clone() });
        network.config = config.clone();
        let Rows { dim, stride, .. } = network.input;
        network.input.len = features.len();
        network.features = first_feature..first_feature + features.len();
        network.input.weights = features.numbers("input.weight", config.storage, (dim, stride))?;
        network.input_bias = self.read_vector("input.bias", config.hidden[0])?;
        for (i, layer) in network.hidden.iter_mut().enumerate() {
            let shape = (layer.inputs, layer.outputs, layer.stride);
            layer.w = self.read_matrix(&format!("hidden.{i}.weight"), shape)?;
            layer.bias = self.read_vector(&format!("hidden.{i}.bias"), layer.outputs)?;
        }
        let Rows { dim, stride, .. } = network.output;
        network.output.len = classes.len();
        network.output.weights = classes.numbers("output.weight", config.storage, (dim, stride))?;
        network.output.bias = classes.vector("output.bias")?;
        Ok(network)
    }

    /// How many training examples each class had.
    pub(super) fn read_class_counts(&self, num_classes: usize) -> Result<Vec<u32>, ModelError> {
        self.read_vector(CLASS_COUNTS, num_classes)
    }

    /// The examples held out from training.
    pub(super) fn read_held_out(&self, count: usize) -> Result<Vec<u32>, ModelError> {
        self.read_vector(HELD_OUT, count)
    }

    /// What the last refresh left, of a model with so many features.
    pub(super) fn read_refresh(
        &self,
        header: &RefreshHeader,
        features: usize,
        classes: &RowFiles<'_>,
    ) -> Result<LastRefresh, ModelError> {
        let tables = header.tables.map(|TablesHeader { seed, shape, wide, mean }| {
            let codes = match wide {
                true => TableCodes::Wide(classes.columns(CODES, shape.l)?),
                false => TableCodes::Narrow(classes.columns(CODES, shape.l)?),
            };
            let mean = self.read_vector(MEAN, mean)?;
            Ok::<_, ModelError>(SavedTables { seed, shape, codes, mean })
        });
        let near = header.near.map(|entries| {
            Ok::<_, ModelError>(FeatureLists {
                lengths: self.read_vector(NEAR[0], features)?,
                classes: self.read_vector(NEAR[1], entries)?,
                weights: self.read_vector(NEAR[2], entries)?,
            })
        });
        Ok(LastRefresh { tables: tables.transpose()?, near: near.transpose()? })
    }

    /// The moments of a network.
    pub(super) fn read_moments(
        &self,
        network: &Network,
        features: &RowFiles<'_>,
        classes: &RowFiles<'_>,
    ) -> Result<NetworkMoments, ModelError> {
        let hidden = network.hidden.iter().enumerate().map(|(i, layer)| {
            let shape = (layer.inputs, layer.outputs, layer.stride);
            Ok(HiddenMoments {
                m: self.read_matrix(&format!("hidden.{i}.weight.m"), shape)?,
                v: self.read_matrix(&format!("hidden.{i}.weight.v"), shape)?,
                bias: self.read_scalar_moments(&format!("hidden.{i}.bias"), layer.outputs)?,
            })
        });
        let (input, output) = (&network.input, &network.output);
        let storage = network.config.storage;
        Ok(NetworkMoments {
            input: RowMoments {
                m: features.numbers("input.weight.m", storage, (input.dim, input.stride))?,
                v: features.numbers("input.weight.v", storage, (input.dim, input.stride))?,
                last: features.vector("input.last")?,
                bias: ScalarMoments::default(),
            },
            input_bias: self.read_scalar_moments("input.bias", network.input_bias.len())?,
            hidden: hidden.collect::<Result<_, ModelError>>()?,
            output: RowMoments {
                m: classes.numbers("output.weight.m", storage, (output.dim, output.stride))?,
                v: classes.numbers("output.weight.v", storage, (output.dim, output.stride))?,
                last: classes.vector("output.last")?,
                bias: ScalarMoments {
                    m: classes.vector("output.bias.m")?,
                    v: classes.vector("output.bias.v")?,
                    last: classes.vector("output.bias.last")?,
                },
            },
        })
    }

    fn read_scalar_moments(&self, name: &str, len: usize) -> Result<ScalarMoments, ModelError> {
        Ok(ScalarMoments {
            m: self.read_vector(&format!("{name}.m"), len)?,
            v: self.read_vector(&format!("{name}.v"), len)?,
            last: self.read_vector(&format!("{name}.last"), len)?,
        })
    }
}

/// How many training examples each class had.
const CLASS_COUNTS: &str = "class_counts";
/// Examples held out from training.
const HELD_OUT: &str = "held_out";

/// The bucket of each class in each table.
const CODES: &str = "tables.codes";
/// The mean that class vectors were hashed less.
const MEAN: &str = "tables.mean";
/// Classes near each feature: how many, which, and their weights.
const NEAR: [&str; 3] = ["near.lengths", "near.classes", "near.weights"];

/// Entries of each class; feature and weight of each entry.
const SPARSE: [&str; 3] = ["sparse.lengths", "sparse.features", "sparse.weights"];

/// Reads the sparse part, and checks what prediction relies on.
pub(super) fn read_sparse(
    classes: &RowFiles<'_>,
    header: SparseHeader,
    network: &NetworkConfig,
    class_counts: &[u32],
) -> Result<SparsePart, ModelError> {
    let path = classes.path();
    let lists = classes.lists(SPARSE[0], "entries of the sparse part", ShardHeader::sparse_entries)?;
    let features: Vec<u32> = classes.entries(SPARSE[1], &lists)?;
    let weights: Vec<f32> = classes.entries(SPARSE[2], &lists)?;
    let damaged =
        |expected: String, found: String| ModelError::Damaged { path: path.into(), expected, found };
    if !header.blend.is_finite() {
        return Err(damaged("a finite blend of the sparse part".into(), header.blend.to_string()));
    }
    let sparse = SparsePart::from_parts(
        &lists.lengths,
        features,
        weights,
        (header.blend, header.start.unwrap_or_default()),
        class_counts,
    );
    for class in 0..sparse.num_classes() {
        let row = sparse.row(class).0;
        let fits = row.last().is_none_or(|&last| (last as usize) < network.num_features);
        if !fits || !row.is_sorted_by(|a, b| a < b) {
            let expected = format!("ascending features below {}", network.num_features);
            return Err(damaged(expected, format!("others in the sparse row of class {class}")));
        }
    }
    Ok(sparse)
}

/// Features of each example; feature and value of each; examples of each class;
/// each of them.
const NEIGHBOURS: [&str; 5] = [
    "neighbours.lengths",
    "neighbours.features",
    "neighbours.values",
    "neighbours.class_lengths",
    "neighbours.members",
];

/// Reads the kept training examples, and checks what prediction relies on.
pub(super) fn read_neighbours(
    (file, classes): (&TensorFile<'_>, &RowFiles<'_>),
    header: NeighboursHeader,
    network: &NetworkConfig,
) -> Result<Neighbours, ModelError> {
    let path = file.path();
    let lengths: Vec<u32> = file.read_vector(NEIGHBOURS[0], header.examples)?;
    let features: Vec<u32> = file.read_vector(NEIGHBOURS[1], header.entries)?;
    let values = file.read_vector(NEIGHBOURS[2], header.entries)?;
    let lists = classes.lists(NEIGHBOURS[3], "training examples of classes", ShardHeader::members)?;
    let members: Vec<u32> = classes.entries(NEIGHBOURS[4], &lists)?;
    check_sum(path, &lengths, header.entries, "features of training examples")?;
    for (what, ids, count) in [
        ("features of training examples", &features, network.num_features),
        ("training examples of classes", &members, header.examples),
    ] {
        if let Some(id) = ids.iter().find(|&&id| id as usize >= count) {
            let (expected, found) = (format!("{what} below {count}"), id.to_string());
            return Err(ModelError::Damaged { path: path.into(), expected, found });
        }
    }
    if !(header.weight.is_finite() && header.weight >= 0.0) {
        let expected = "a positive weight of the training examples".into();
        return Err(ModelError::Damaged { path: path.into(), expected, found: header.weight.to_string() });
    }
    let num_features = network.num_features;
    let weight = header.weight;
    Ok(Neighbours::from_parts(num_features, &lengths, features, values, &lists.lengths, members, weight))
}

/// Lengths of lists must add up to what is in them.
pub(super) fn check_sum(path: &Path, lengths: &[u32], expected: usize, what: &str) -> Result<(), ModelError> {
    let total: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
    if total == expected as u64 {
        return Ok(());
    }
    let expected = format!("{expected} {what}");
    Err(ModelError::Damaged { path: path.into(), expected, found: total.to_string() })
}

fn rank_weights_of(network: &Network) -> [Tensor<'_>; 3] {
    let shape = |rows: &Rows| (rows.len, rows.dim, rows.stride);
    let (input, output) = (&network.input, &network.output);
    [
        numbers("input.weight", &input.weights, shape(input)),
        numbers("output.weight", &output.weights, shape(output)),
        vector("output.bias", &output.bias),
    ]
}

fn common_weights_of(network: &Network) -> Vec<Tensor<'_>> {
    let mut list = vec![vector("input.bias", &network.input_bias)];
    for (i, layer) in network.hidden.iter().enumerate() {
        let shape = (layer.inputs, layer.outputs, layer.stride);
        list.push(matrix(&format!("hidden.{i}.weight"), &layer.w[..], shape));
        list.push(vector(&format!("hidden.{i}.bias"), &layer.bias));
    }
    list
}

fn row_moments_of<'a>(name: &str, rows: &Rows, moments: &'a RowMoments) -> [Tensor<'a>; 3] {
    let shape = (rows.len, rows.dim, rows.stride);
    [
        numbers(&format!("{name}.weight.m"), &moments.m, shape),
        numbers(&format!("{name}.weight.v"), &moments.v, shape),
        vector(&format!("{name}.last"), &moments.last),
    ]
}

fn common_moments_of<'a>(network: &Network, moments: &'a NetworkMoments) -> Vec<Tensor<'a>> {
    let mut list = Vec::new();
    for (i, (layer, moments)) in network.hidden.iter().zip(&moments.hidden).enumerate() {
        let shape = (layer.inputs, layer.outputs, layer.stride);
        list.push(matrix(&format!("hidden.{i}.weight.m"), &moments.m[..], shape));
        list.push(matrix(&format!("hidden.{i}.weight.v"), &moments.v[..], shape));
        list.extend(scalar_moments_of(&format!("hidden.{i}.bias"), &moments.bias));
    }
    list.extend(scalar_moments_of("input.bias", &moments.input_bias));
    list
}

fn scalar_moments_of<'a>(name: &str, moments: &'a ScalarMoments) -> [Tensor<'a>; 3] {
    [
        vector(&format!("{name}.m"), &moments.m),
        vector(&format!("{name}.v"), &moments.v),
        vector(&format!("{name}.last"), &moments.last),
    ]
}
