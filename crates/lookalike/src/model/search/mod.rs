//! The search index: which classes an example could mean, without scoring all.
//!
//! Each part of a model proposes classes in its own way: the class vectors by
//! [`Clusters`], the sparse weights by [`StrongClasses`], the nearest examples by their
//! classes ([`Near`](super::Near)). Who asks scores what they propose exactly
//! (`predict/fast.rs`), so the index decides which classes are found and never what a
//! class scores.

mod clusters;
mod codes;
mod kmeans;
mod strong;

use std::sync::OnceLock;

use lookalike_kernels::Cpu;

pub use clusters::{ClusterScratch, Clusters, Level};
pub use codes::CodedRows;
pub use strong::{StrongClasses, StrongScratch};

use super::{Model, SparsePart};

/// What finds classes, and how much of it to ask.
#[derive(Clone, Debug)]
pub struct SearchIndex {
    /// The class vectors.
    pub clusters: Clusters,
    /// How many classes to look at, as chosen when the model was trained.
    pub effort: usize,
    /// The share of the best classes that were found with it, measured then.
    pub recall: f32,
    /// By class: its place among those of the clusters.
    places: Vec<u32>,
    /// Of the sparse part; made on first use.
    strong: OnceLock<StrongClasses>,
}

impl SearchIndex {
    /// Over the class vectors of a model. The effort is to be chosen: all classes.
    /// O(classes · √clusters · width).
    pub fn build(cpu: Cpu, model: &Model) -> Self {
        let clusters = Clusters::build(cpu, model.network.output.view(), &model.class_bias());
        Self::from_parts(clusters, model.num_classes(), 1.0)
    }

    /// From what was saved.
    pub fn from_parts(clusters: Clusters, effort: usize, recall: f32) -> Self {
        let mut places = vec![0; clusters.num_classes()];
        (0..).zip(&clusters.members).for_each(|(place, &class)| places[class as usize] = place);
        Self { clusters, effort, recall, places, strong: OnceLock::new() }
    }

    /// Adds to `scores` about what some classes score for the embedding that clusters were
    /// last visited for.
    pub fn score_also(&self, cpu: Cpu, classes: &[u32], scratch: &ClusterScratch, scores: &mut Vec<f32>) {
        let place = |&class: &u32| self.places[class as usize] as usize;
        self.clusters.classes.score_each(cpu, &scratch.query, classes.iter().map(place), scores);
    }

    /// The classes that weigh each feature most.
    pub fn strong(&self, sparse: &SparsePart, num_features: usize) -> &StrongClasses {
        self.strong.get_or_init(|| StrongClasses::new(sparse, num_features))
    }
}
