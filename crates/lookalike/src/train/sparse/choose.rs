//! What judges choose together of a model that has a sparse part.

use lookalike_kernels::Cpu;

use super::blend::{HeldOutScores, best_blend, best_weight};
use super::config::SparseConfig;
use crate::collective::Shard;
use crate::data::Examples;
use crate::model::{Model, Neighbours};
use crate::sampling::{FeatureIndex, NearClasses, Truths};
use crate::train::unseen::Unseen;

/// A model with examples that it has not seen: the one that is chosen for, or one that is
/// trained like it on most of its examples.
pub(in crate::train) struct Judge<'a> {
    pub(in crate::train) model: &'a mut Model,
    pub(in crate::train) trained_on: &'a [u32],
    pub(in crate::train) unseen: &'a Unseen,
}

/// How much parts of a model count.
#[derive(Clone, Copy, Debug)]
pub(in crate::train) struct Shares {
    blend: f32,
    /// Of the nearest examples; 0 where there are to be none.
    weight: f32,
}

/// Lets judges choose how much the sparse part counts, as their models are now, and, where
/// `with_nearest`, how much the nearest training examples; their models get what they chose.
/// None if nobody has anything to judge by. No step depends on it: training goes on as if
/// nobody had asked.
pub(in crate::train) fn choose<'a>(
    cpu: Cpu,
    config: &SparseConfig,
    shard: &Shard,
    examples: &Examples<'_>,
    judges: &mut Vec<Judge<'a>>,
    with_nearest: bool,
) -> Option<Shares> {
    judges.retain(|judge| judge.model.sparse.is_some() && !judge.unseen.is_empty());
    if judges.is_empty() {
        return None;
    }
    let scores: Vec<HeldOutScores<'_>> =
        judges.iter().map(|judge| judge.scores(cpu, config, shard)).collect();
    let blend = best_blend(scores.iter());
    let mut weight = 0.0;
    let mut kept = Vec::new();
    if config.neighbours && blend != 0.0 && with_nearest {
        kept = judges.iter_mut().map(|judge| judge.take_neighbours(shard, examples)).collect();
        weight = best_weight(scores.iter().zip(&kept), blend);
    }
    let choice = Shares { blend, weight };
    let mut kept = kept.into_iter();
    judges.iter_mut().for_each(|judge| choice.apply(shard, examples, judge, kept.next()));
    Some(choice)
}

impl Shares {
    /// To a model, perhaps with the nearest examples that were taken from it.
    pub(in crate::train) fn apply(
        self,
        shard: &Shard,
        examples: &Examples<'_>,
        judge: &mut Judge<'_>,
        kept: Option<Neighbours>,
    ) {
        let Self { blend, weight } = self;
        let kept = kept.or_else(|| (weight != 0.0).then(|| judge.take_neighbours(shard, examples)));
        let of_shard = |kept: Neighbours| match shard.is_whole() {
            true => kept,
            false => kept.of_shard(shard.classes()),
        };
        let kept = kept.filter(|_| weight != 0.0);
        judge.model.neighbours = kept.map(|kept| of_shard(kept.weighted(weight)));
        if let Some(sparse) = &mut judge.model.sparse {
            sparse.set_blend(blend);
        }
    }
}

impl<'a> Judge<'a> {
    /// What each part of the model scores the examples that it has not seen.
    fn scores(&self, cpu: Cpu, config: &SparseConfig, shard: &Shard) -> HeldOutScores<'a> {
        let examples = self.unseen.examples();
        let (mut index, mut near) = (FeatureIndex::default(), NearClasses::default());
        if let Some(part) = &self.model.sparse {
            let counts = &self.model.frequencies.examples_of_class;
            index.refresh_on(shard, part, examples.num_features, counts);
        }
        let (normalise, wanted) = (self.model.network.config.normalise, config.negatives);
        index.propose(cpu, (&examples, self.unseen.ids()), normalise, wanted, Truths::Kept, &mut near);
        HeldOutScores::new(cpu, (self.model, shard), (examples, self.unseen.ids()), &near)
    }

    /// The nearest examples of all classes.
    fn take_neighbours(&mut self, shard: &Shard, examples: &Examples<'_>) -> Neighbours {
        // Those that a rank kept are of its own classes, and all are to choose.
        let kept = self.model.neighbours.take().filter(|_| shard.is_whole());
        kept.unwrap_or_else(|| Neighbours::new(examples, self.trained_on))
    }
}
