//! Classes by where their vectors are: clusters, and groups of clusters.
//!
//! A class scores `w · E + b`, which is no cosine: long vectors and large biases win. So
//! classes are clustered as they are, vector and bias together, and a cluster is worth
//! what its best class may score: its centre's score and as many times the spread of its
//! classes' scores as the best of some dozen independent ones lies above their mean. That
//! spread grows with the length of `E` and with how far the vectors are from the centre,
//! so clusters of long, different vectors are looked at earlier than their centres
//! deserve.
//!
//! A query scores the centres of all groups, those of the clusters of the best groups,
//! and gives the classes of the best clusters. About [`CLUSTER_CLASSES`] classes make a
//! cluster and there are about as many groups as clusters in a group, so a query costs
//! `O(√classes / 4 + effort)` products. Memory: 1/16 of the class vectors, 4 bytes a class.

use lookalike_kernels::{Cpu, dot_rows};
use rayon::prelude::*;

use super::kmeans::{self, Centres, Points};
use crate::model::RowsView;

/// Classes in a cluster, about.
const CLUSTER_CLASSES: usize = 16;
/// Classes that choose the centre of a group, about.
const GROUP_SAMPLE: usize = 256;
/// Rounds of k-means.
const ROUNDS: usize = 6;
/// Groups are opened until they hold so many times the classes that are wanted.
const OPENED_TIMES: usize = 8;
/// How far above the mean the best class of a cluster lies, in spreads.
const SPREADS: f32 = 2.0;

/// Centres with how much the scores of what belongs to them differ.
#[derive(Clone, Debug, Default)]
pub struct Level {
    /// A row a centre, padded as class vectors are.
    pub rows: Vec<f32>,
    /// The mean bias.
    pub bias: Vec<f32>,
    /// The root of the mean square distance from the centre, a coordinate.
    pub spread: Vec<f32>,
}

/// All classes, cluster by cluster.
#[derive(Clone, Debug, Default)]
pub struct Clusters {
    /// The groups.
    pub groups: Level,
    /// Their clusters, group after group.
    pub clusters: Level,
    /// Where each group's clusters start, and one more.
    pub group_offsets: Vec<u32>,
    /// Where each cluster's classes start, and one more.
    pub offsets: Vec<u32>,
    /// The classes, cluster after cluster.
    pub members: Vec<u32>,
}

/// Working memory of [`Clusters::visit`], reused between calls.
#[derive(Debug, Default)]
pub struct ClusterScratch {
    worth: Vec<f32>,
    groups: Vec<(f32, u32)>,
    clusters: Vec<(f32, u32)>,
}

impl Clusters {
    /// Puts the classes with these vectors and biases into clusters; the same for any
    /// number of threads.
    pub fn build(cpu: Cpu, vectors: RowsView<'_>, bias: &[f32]) -> Self {
        let points = Points { vectors, bias };
        let all: Vec<u32> = (0..bias.len() as u32).collect();
        let clusters = bias.len().div_ceil(CLUSTER_CLASSES);
        let groups = (clusters as f64).sqrt().ceil() as usize;
        let step = (all.len() / (groups * GROUP_SAMPLE).max(1)).max(1);
        let sample: Vec<u32> = all.iter().copied().step_by(step).collect();
        let centres = kmeans::centres(cpu, points, &sample, groups, ROUNDS);
        let of_group = by_centre(&all, &kmeans::nearest(cpu, points, &all, &centres), centres.len());
        let split = |members: &Vec<u32>| {
            let count = members.len().div_ceil(CLUSTER_CLASSES);
            let centres = kmeans::centres(cpu, points, members, count, ROUNDS);
            by_centre(members, &kmeans::nearest(cpu, points, members, &centres), count)
        };
        let split: Vec<Vec<Vec<u32>>> = of_group.par_iter().map(split).collect();
        let group_lengths: Vec<u32> = split.iter().map(|clusters| clusters.len() as u32).collect();
        let clusters: Vec<Vec<u32>> = split.into_iter().flatten().collect();
        let lengths: Vec<u32> = clusters.iter().map(|members| members.len() as u32).collect();
        Self {
            groups: Level::of(points, &of_group),
            clusters: Level::of(points, &clusters),
            group_offsets: starts(&group_lengths),
            offsets: starts(&lengths),
            members: clusters.into_iter().flatten().collect(),
        }
    }

    /// The number of classes.
    pub fn num_classes(&self) -> usize {
        self.members.len()
    }

    /// Gives `found` about `wanted` classes that may score high for an embedding, all
    /// different, cluster by cluster.
    pub fn visit(
        &self,
        cpu: Cpu,
        embedding: &[f32],
        wanted: usize,
        scratch: &mut ClusterScratch,
        mut found: impl FnMut(&[u32]),
    ) {
        let ClusterScratch { worth, groups, clusters } = scratch;
        let length = embedding.iter().map(|x| x * x).sum::<f32>().sqrt();
        groups.clear();
        self.groups.worth(cpu, embedding, length, 0..self.groups.bias.len(), worth, groups);
        groups.sort_unstable_by(best_first);
        clusters.clear();
        let mut opened = 0;
        for &(_, group) in groups.iter() {
            let range =
                self.group_offsets[group as usize] as usize..self.group_offsets[group as usize + 1] as usize;
            opened += (self.offsets[range.end] - self.offsets[range.start]) as usize;
            self.clusters.worth(cpu, embedding, length, range, worth, clusters);
            if opened >= OPENED_TIMES * wanted {
                break;
            }
        }
        // The best clusters hold enough; the others need no order.
        let enough = (4 * wanted).div_ceil(CLUSTER_CLASSES).min(clusters.len());
        if enough < clusters.len() {
            clusters.select_nth_unstable_by(enough, best_first);
            clusters[..enough].sort_unstable_by(best_first);
        } else {
            clusters.sort_unstable_by(best_first);
        }
        let mut left = wanted;
        for &(_, cluster) in clusters.iter() {
            let members = &self.members
                [self.offsets[cluster as usize] as usize..self.offsets[cluster as usize + 1] as usize];
            let members = &members[..members.len().min(left)];
            found(members);
            left -= members.len();
            if left == 0 {
                return;
            }
        }
    }
}

impl Level {
    fn of(points: Points<'_>, members: &[Vec<u32>]) -> Self {
        let level: Vec<(Centres, f32)> = members
            .par_iter()
            .map(|members| {
                let centre = kmeans::means(points, members, &vec![0; members.len()], 1);
                let spread = spread(points, members, &centre);
                (centre, spread)
            })
            .collect();
        Self {
            rows: level.iter().flat_map(|(centre, _)| &centre.rows).copied().collect(),
            bias: level.iter().map(|(centre, _)| centre.bias[0]).collect(),
            spread: level.iter().map(|&(_, spread)| spread).collect(),
        }
    }

    /// What the best class of each of some centres may score.
    fn worth(
        &self,
        cpu: Cpu,
        embedding: &[f32],
        length: f32,
        range: std::ops::Range<usize>,
        worth: &mut Vec<f32>,
        out: &mut Vec<(f32, u32)>,
    ) {
        let stride = embedding.len();
        worth.clear();
        worth.resize(range.len(), 0.0);
        let rows = &self.rows[range.start * stride..range.end * stride];
        dot_rows(cpu, stride, embedding, rows, &self.bias[range.clone()], worth, range.len());
        let with_spread =
            |(score, centre): (&f32, usize)| (score + SPREADS * length * self.spread[centre], centre as u32);
        out.extend(worth.iter().zip(range).map(with_spread));
    }
}

/// How far the vectors of some classes are from their centre, a coordinate.
fn spread(points: Points<'_>, members: &[u32], centre: &Centres) -> f32 {
    let mut row = vec![0.0; points.vectors.stride];
    let mut squares = 0.0;
    for &class in members {
        points.vectors.copy_row(class as usize, &mut row);
        squares += row.iter().zip(&centre.rows).map(|(x, c)| (x - c) * (x - c)).sum::<f32>();
    }
    (squares / (members.len().max(1) * points.vectors.dim.max(1)) as f32).sqrt()
}

/// The classes of each centre that has any.
fn by_centre(classes: &[u32], centre_of: &[u32], count: usize) -> Vec<Vec<u32>> {
    let mut members = vec![Vec::new(); count];
    for (&class, &centre) in classes.iter().zip(centre_of) {
        members[centre as usize].push(class);
    }
    members.retain(|members| !members.is_empty());
    members
}

fn starts(lengths: &[u32]) -> Vec<u32> {
    let mut end = 0;
    let ends = lengths.iter().map(|&length| {
        end += length;
        end
    });
    std::iter::once(0).chain(ends).collect()
}

fn best_first(a: &(f32, u32), b: &(f32, u32)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}
