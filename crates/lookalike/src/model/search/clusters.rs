//! Classes by where their vectors are: clusters, and groups of clusters.
//!
//! A class scores `w · E + b`, which is no cosine: long vectors and large biases win.
//! Classes are clustered by the direction of vector and bias together
//! ([`kmeans`](super::kmeans)), and lengths count where a cluster is judged: it is worth what its best class may score, the score of
//! its classes' mean (vectors as long as they are, and biases) and as many times the spread
//! of its classes' scores as the best of some dozen independent ones lies above their mean.
//! That spread grows with the length of `E` and with how far the vectors are from the mean,
//! so clusters of long, different vectors are looked at earlier than their means deserve.
//!
//! Trained class vectors keep away from each other, so the best classes of a query may lie
//! in many clusters. Looking at a class must therefore be cheap: vectors lie cluster by
//! cluster in a byte a number ([`CodedRows`]), and reading them in order costs a tenth of
//! fetching class vectors from all over memory.
//!
//! A query scores the centres of all groups, those of the clusters of the best groups,
//! and the classes of the best clusters. About [`CLUSTER_CLASSES`] classes make a cluster,
//! and there are [`GROUPS_TIMES`]² times as many groups as clusters in a group, as long as a
//! group has no more than [`GROUP_CLUSTERS_MAX`]: one that holds too much is like none of it.
//! So a query costs `O(√classes + effort)` products up to some hundred thousand classes, and
//! from there on one more for every [`GROUP_CLUSTERS_MAX`] · [`CLUSTER_CLASSES`] classes.
//! Memory: a byte a number, and 17 bytes a class.

use std::ops::Range;

use lookalike_kernels::Cpu;
use rayon::prelude::*;

use super::codes::{CodedQuery, CodedRows};
use super::kmeans::{self, Points};
use crate::best::Best;
use crate::model::RowsView;
use crate::model::lists::offsets;

/// Classes in a cluster, about.
const CLUSTER_CLASSES: usize = 16;
/// So many times the root of the number of clusters is the number of groups at least.
const GROUPS_TIMES: usize = 4;
/// Clusters in a group at most, about: a group that holds more is like none of it.
const GROUP_CLUSTERS_MAX: usize = 48;
/// Classes that choose the centre of a group, about.
const GROUP_SAMPLE: usize = 64;
/// Rounds of k-means for groups, and for the clusters of a group.
const GROUP_ROUNDS: usize = 12;
const ROUNDS: usize = 6;
/// Groups are opened until they hold so many times the classes that are wanted.
const OPENED_TIMES: usize = 8;
/// Groups and clusters that may be looked at in any case, as they differ in size.
const CHOSEN_MIN: usize = 8;
/// How far above the mean the best class of a cluster lies, in spreads.
const SPREADS: f32 = 2.0;

/// Mean class vectors with how much the scores of what belongs to them differ.
#[derive(Clone, Debug, Default)]
pub struct Level {
    /// The means.
    pub means: CodedRows,
    /// The root of the mean square distance from the mean, a coordinate.
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
    /// Their vectors and biases, in the same order.
    pub classes: CodedRows,
}

/// Working memory of [`Clusters::visit`], reused between calls.
#[derive(Debug, Default)]
pub struct ClusterScratch {
    pub(super) query: CodedQuery,
    sums: Vec<i32>,
    scores: Vec<f32>,
    found: Vec<u32>,
    groups: Best,
    clusters: Best,
    /// The clusters that are looked at, best first.
    chosen: Vec<u32>,
}

impl Clusters {
    /// Puts the classes with these vectors and biases into clusters; the same for any
    /// number of threads.
    pub fn build(cpu: Cpu, vectors: RowsView<'_>, bias: &[f32]) -> Self {
        let points = Points { vectors, bias };
        let all: Vec<u32> = (0..bias.len() as u32).collect();
        let clusters = bias.len().div_ceil(CLUSTER_CLASSES);
        let groups = (GROUPS_TIMES * (clusters as f64).sqrt().ceil() as usize)
            .max(clusters / GROUP_CLUSTERS_MAX)
            .min(clusters);
        let step = (all.len() / (groups * GROUP_SAMPLE).max(1)).max(1);
        let sample: Vec<u32> = all.iter().copied().step_by(step).collect();
        let centres = kmeans::centres(cpu, points, &sample, groups, GROUP_ROUNDS);
        let of_group = by_centre(&all, &kmeans::nearest(cpu, points, &all, &centres), groups);
        let split = |members: &Vec<u32>| {
            let count = members.len().div_ceil(CLUSTER_CLASSES);
            let centres = kmeans::centres(cpu, points, members, count, ROUNDS);
            by_centre(members, &kmeans::nearest(cpu, points, members, &centres), count)
        };
        let split: Vec<Vec<Vec<u32>>> = of_group.par_iter().map(split).collect();
        let group_lengths: Vec<u32> = split.iter().map(|clusters| clusters.len() as u32).collect();
        let clusters: Vec<Vec<u32>> = split.into_iter().flatten().collect();
        let lengths: Vec<u32> = clusters.iter().map(|members| members.len() as u32).collect();
        let members: Vec<u32> = clusters.iter().flatten().copied().collect();
        let class = |i: usize, row: &mut [f32]| {
            vectors.copy_row(members[i] as usize, row);
            bias[members[i] as usize]
        };
        Self {
            groups: Level::of(vectors, bias, &of_group),
            clusters: Level::of(vectors, bias, &clusters),
            group_offsets: offsets(&group_lengths),
            offsets: offsets(&lengths),
            classes: CodedRows::build(members.len(), vectors.stride, class),
            members,
        }
    }

    /// The number of classes.
    pub fn num_classes(&self) -> usize {
        self.members.len()
    }

    /// Gives `found` about `wanted` classes that may score high for an embedding, all
    /// different, cluster by cluster, with about what they score.
    pub fn visit(
        &self,
        cpu: Cpu,
        embedding: &[f32],
        wanted: usize,
        scratch: &mut ClusterScratch,
        mut found: impl FnMut(&[u32], &[f32]),
    ) {
        scratch.query.set(embedding);
        let length = embedding.iter().map(|x| x * x).sum::<f32>().sqrt();
        self.choose(cpu, length, wanted, scratch);
        let ClusterScratch { query, sums, scores, chosen, .. } = scratch;
        let range = |cluster: u32| {
            self.offsets[cluster as usize] as usize..self.offsets[cluster as usize + 1] as usize
        };
        let mut left = wanted;
        for (i, &cluster) in chosen.iter().enumerate() {
            if let Some(&next) = chosen.get(i + 1) {
                self.classes.ask_for(query, range(next));
            }
            let range = range(cluster);
            let range = range.start..range.start + left.min(range.len());
            self.classes.score(cpu, query, range.clone(), sums, scores);
            left -= range.len();
            found(&self.members[range], scores);
            if left == 0 {
                return;
            }
        }
    }

    /// Leaves the best clusters of the best groups, best first, with classes enough.
    fn choose(&self, cpu: Cpu, length: f32, wanted: usize, scratch: &mut ClusterScratch) {
        let ClusterScratch { query, sums, scores, found, groups, clusters, chosen } = scratch;
        let mut judge = |level: &Level, range: Range<usize>, best: &mut Best| {
            level.means.score(cpu, query, range.clone(), sums, scores);
            let spreads = &level.spread[range.clone()];
            scores.iter_mut().zip(spreads).for_each(|(score, spread)| *score += SPREADS * length * spread);
            best.offer_many(cpu, scores, range.start as u32, found);
        };
        // Groups differ in size: twice as many as there would be of the mean size.
        let (all, to_open) = (self.num_classes().max(1), OPENED_TIMES.saturating_mul(wanted));
        let num_groups = self.groups.spread.len();
        groups.reset((2 * to_open.min(all) * num_groups).div_ceil(all) + CHOSEN_MIN);
        judge(&self.groups, 0..num_groups, groups);
        clusters.reset(wanted.saturating_mul(4) / CLUSTER_CLASSES + CHOSEN_MIN);
        let mut opened = 0;
        for (_, group) in groups.ranked() {
            let group = group as usize;
            let range = self.group_offsets[group] as usize..self.group_offsets[group + 1] as usize;
            opened += (self.offsets[range.end] - self.offsets[range.start]) as usize;
            judge(&self.clusters, range, clusters);
            if opened >= to_open {
                break;
            }
        }
        chosen.clear();
        chosen.extend(clusters.ranked().map(|(_, cluster)| cluster));
    }
}

impl Level {
    /// The means of the classes of each cluster.
    fn of(vectors: RowsView<'_>, bias: &[f32], clusters: &[Vec<u32>]) -> Self {
        let means =
            CodedRows::build(clusters.len(), vectors.stride, |i, row| mean(vectors, bias, &clusters[i], row));
        let spread = clusters.par_iter().map(|members| spread(vectors, bias, members)).collect();
        Self { means, spread }
    }
}

/// The mean vector of some classes, and their mean bias.
fn mean(vectors: RowsView<'_>, bias: &[f32], members: &[u32], mean: &mut [f32]) -> f32 {
    let count = members.len().max(1) as f32;
    mean.fill(0.0);
    members.iter().for_each(|&class| vectors.add_row(class as usize, mean));
    mean.iter_mut().for_each(|sum| *sum /= count);
    members.iter().map(|&class| bias[class as usize]).sum::<f32>() / count
}

/// How far the vectors of some classes are from their mean, a coordinate.
fn spread(vectors: RowsView<'_>, bias: &[f32], members: &[u32]) -> f32 {
    let (mut centre, mut row) = (vec![0.0; vectors.stride], vec![0.0; vectors.stride]);
    mean(vectors, bias, members, &mut centre);
    let mut squares = 0.0;
    for &class in members {
        vectors.copy_row(class as usize, &mut row);
        squares += row.iter().zip(&centre).map(|(x, mean)| (x - mean) * (x - mean)).sum::<f32>();
    }
    (squares / (members.len().max(1) * vectors.dim.max(1)) as f32).sqrt()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Stream, mix};
    use lookalike_kernels::LANES;

    const WIDTH: usize = 32;

    fn number(a: u64, b: u64) -> f32 {
        (mix(3, Stream::Data, a, b) % 2001) as f32 / 1000.0 - 1.0
    }

    /// `places` directions, the classes of each close together.
    fn classes(places: u64, of_each: u64) -> (Vec<f32>, Vec<f32>) {
        let class =
            |i: u64| (0..WIDTH as u64).map(move |j| number(i % places, j) + 0.05 * number(1000 + i, j));
        let bias = (0..places * of_each).map(|i| 0.1 * number(i, 999)).collect();
        ((0..places * of_each).flat_map(class).collect(), bias)
    }

    fn visited(clusters: &Clusters, embedding: &[f32], wanted: usize) -> Vec<(u32, f32)> {
        let mut all = Vec::new();
        let mut scratch = ClusterScratch::default();
        clusters.visit(Cpu::detect(), embedding, wanted, &mut scratch, |found, scores| {
            all.extend(found.iter().copied().zip(scores.iter().copied()));
        });
        all
    }

    #[test]
    fn a_query_meets_what_is_near_with_about_what_it_scores() {
        let (places, of_each) = (60, 40);
        let (vectors, bias) = classes(places, of_each);
        let clusters = Clusters::build(Cpu::detect(), RowsView::f32(&vectors, WIDTH), &bias);
        let mut near = 0;
        for place in 0..places {
            let embedding: Vec<f32> = (0..WIDTH as u64).map(|j| number(place, j)).collect();
            let found = visited(&clusters, &embedding, of_each as usize);
            assert_eq!(found.len(), of_each as usize);
            near += found.iter().filter(|(class, _)| u64::from(*class) % places == place).count();
            for (class, score) in found {
                let vector = &vectors[class as usize * WIDTH..][..WIDTH];
                let exact: f32 = vector.iter().zip(&embedding).map(|(w, x)| w * x).sum();
                assert!((score - exact - bias[class as usize]).abs() < 0.1, "{score} {exact}");
            }
        }
        assert!(near > (places * of_each) as usize * 9 / 10, "{near}");
    }

    #[test]
    fn all_classes_are_met_once_if_all_are_wanted() {
        let (vectors, bias) = classes(20, 30);
        let clusters = Clusters::build(Cpu::detect(), RowsView::f32(&vectors, WIDTH), &bias);
        for wanted in [600, 601, usize::MAX] {
            let mut found: Vec<u32> =
                visited(&clusters, &vectors[..WIDTH], wanted).into_iter().map(|(class, _)| class).collect();
            found.sort_unstable();
            assert_eq!(found, (0..600).collect::<Vec<_>>());
        }
    }

    /// Two groups whose means score alike: the best class is where vectors differ more.
    #[test]
    fn what_differs_more_is_looked_at_first() {
        let level = |spread: Vec<f32>| Level {
            means: CodedRows::build(2, LANES, |_, row| {
                row.fill(1.0);
                0.0
            }),
            spread,
        };
        let clusters = Clusters {
            groups: level(vec![0.1, 0.2]),
            clusters: level(vec![0.1, 0.2]),
            group_offsets: vec![0, 1, 2],
            offsets: vec![0, 2, 4],
            members: vec![0, 1, 2, 3],
            classes: CodedRows::build(4, LANES, |i, row| {
                row.fill(i as f32);
                0.5
            }),
        };
        let found = visited(&clusters, &[1.0; LANES], 3);
        assert_eq!(found.iter().map(|found| found.0).collect::<Vec<_>>(), [2, 3, 0]);
    }
}
