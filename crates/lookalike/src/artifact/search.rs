//! The search index as tensors.
//!
//! How many clusters each group has and how many classes each cluster, the classes, cluster
//! after cluster, and of groups, clusters and classes the vectors in a byte a number, with
//! scales and biases. What lists sparse weights and examples by feature follows from those
//! and is not saved.

use std::path::Path;

use super::tensor_file::{Tensor, TensorFile, matrix, vector};
use super::tensors::check_sum;
use super::{ModelError, SearchHeader};
use crate::model::{Clusters, CodedRows, Level, NetworkConfig, Rows, SearchIndex, offsets};

const GROUPS: &str = "search.groups";
const CLUSTERS: &str = "search.clusters";
const CLASSES: &str = "search.classes";
const GROUP_LENGTHS: &str = "search.group_lengths";
const LENGTHS: &str = "search.lengths";
const MEMBERS: &str = "search.members";

/// Lengths of the lists of an index, as they are written.
pub(super) struct OffsetLengths {
    groups: Vec<u32>,
    clusters: Vec<u32>,
}

impl OffsetLengths {
    pub(super) fn of(clusters: &Clusters) -> Self {
        let lengths = |offsets: &[u32]| offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
        Self { groups: lengths(&clusters.group_offsets), clusters: lengths(&clusters.offsets) }
    }
}

/// What is written of an index over these class vectors.
pub(super) fn search_tensors<'a>(
    clusters: &'a Clusters,
    lengths: &'a OffsetLengths,
    output: &Rows,
) -> Vec<Tensor<'a>> {
    let mut tensors = vec![
        vector(GROUP_LENGTHS, &lengths.groups),
        vector(LENGTHS, &lengths.clusters),
        vector(MEMBERS, &clusters.members),
    ];
    let levels = [(GROUPS, &clusters.groups), (CLUSTERS, &clusters.clusters)];
    for (name, level) in levels {
        tensors.push(vector(&format!("{name}.spread"), &level.spread));
    }
    let coded = levels.map(|(name, level)| (name, &level.means));
    for (name, rows) in coded.into_iter().chain([(CLASSES, &clusters.classes)]) {
        let shape = (rows.len(), output.dim, output.stride);
        tensors.push(matrix(&format!("{name}.codes"), &rows.codes[..], shape));
        tensors.push(vector(&format!("{name}.scale"), &rows.scale));
        tensors.push(vector(&format!("{name}.bias"), &rows.bias));
    }
    tensors
}

/// Reads the index, and checks what a search relies on.
pub(super) fn read_search(
    file: &TensorFile<'_>,
    header: SearchHeader,
    network: &NetworkConfig,
) -> Result<SearchIndex, ModelError> {
    let (path, classes) = (file.path(), network.num_classes);
    let group_lengths: Vec<u32> = file.read_vector(GROUP_LENGTHS, header.groups)?;
    let lengths: Vec<u32> = file.read_vector(LENGTHS, header.clusters)?;
    let members: Vec<u32> = file.read_vector(MEMBERS, classes)?;
    check_sum(path, &group_lengths, header.clusters, "clusters of the search index")?;
    check_sum(path, &lengths, classes, "classes of the search index")?;
    check_classes(path, &members)?;
    let level = |name: &str, len: usize| {
        let spread = file.read_vector(&format!("{name}.spread"), len)?;
        Ok::<_, ModelError>(Level { means: read_codes(file, name, len, network)?, spread })
    };
    let clusters = Clusters {
        groups: level(GROUPS, header.groups)?,
        clusters: level(CLUSTERS, header.clusters)?,
        group_offsets: offsets(&group_lengths),
        offsets: offsets(&lengths),
        classes: read_codes(file, CLASSES, classes, network)?,
        members,
    };
    Ok(SearchIndex::from_parts(clusters, header.effort, header.recall))
}

fn read_codes(
    file: &TensorFile<'_>,
    name: &str,
    len: usize,
    network: &NetworkConfig,
) -> Result<CodedRows, ModelError> {
    let width = network.hidden.last().copied().unwrap_or(0);
    let shape = (len, width, lookalike_kernels::padded(width));
    Ok(CodedRows {
        codes: file.read_matrix(&format!("{name}.codes"), shape)?,
        scale: file.read_vector(&format!("{name}.scale"), len)?,
        bias: file.read_vector(&format!("{name}.bias"), len)?,
    })
}

/// Each class is there once.
fn check_classes(path: &Path, members: &[u32]) -> Result<(), ModelError> {
    let mut is_there = vec![false; members.len()];
    for &class in members {
        match is_there.get_mut(class as usize) {
            Some(is_there) if !*is_there => *is_there = true,
            _ => {
                let expected = format!("each of {} classes once in the search index", members.len());
                return Err(ModelError::Damaged { path: path.into(), expected, found: class.to_string() });
            }
        }
    }
    Ok(())
}
