//! Fast search: each part of the model proposes, and what it proposes is scored.
//!
//! For one example: clusters of class vectors give about `effort` classes with about what
//! they score, lists of the classes that weigh its features most give some hundred (with the
//! sums of those weights), and the nearest training examples give their classes. Those that
//! no cluster gave are scored as roughly as those of clusters are; with what is known of the
//! other parts by then, a few dozen are left, and those are scored exactly, as
//! [`super::few`] does it. So what is answered has the bits of an exact search; what is not
//! found is missing.
//!
//! `O(√classes + effort)` products an example.

use super::candidates::CandidateRanker;
use super::few::{FewClasses, ScoredExample};
use super::ranking::TopK;
use crate::best::Best;
use crate::data::Examples;
use crate::loss::RunningSum;
use crate::model::{
    ClusterScratch, Embeddings, Model, Near, NeighbourScratch, SearchIndex, SparsePart, StrongScratch,
};
use crate::scratch::PerThread;

/// Weights of classes that are added up for each class that is looked at.
const ADDITIONS_PER_CLASS: usize = 16;
/// How many times as many additions the sums over all weights may take: they are in the
/// order of classes, so that an addition costs less, and fewer classes have to be scored.
const WHOLE_TIMES: usize = 8;
/// As many additions they may take in any case.
const WHOLE_MIN: usize = 1 << 15;
/// Of the classes that are looked at, one in so many may come from lists of weights alone.
const LISTED_SHARE: usize = 4;
/// That many of them may in any case.
const LISTED_MIN: usize = 64;
/// Classes that are scored exactly: so many times those that are asked for, and so many
/// more, as the sums they are chosen by are not complete.
const SCORED_TIMES: usize = 2;
const SCORED_MORE: usize = 24;
/// Where sums hold the largest of many sparse weights alone, besides one in so many of the
/// classes that are looked at.
const SCORED_SHARE: usize = 4;

/// Working memory of [`FastSearch::rank`], reused between calls.
#[derive(Debug, Default)]
pub(super) struct FastScratch {
    workers: PerThread<FastWorker>,
}

#[derive(Debug, Default)]
struct FastWorker {
    neighbours: NeighbourScratch,
    proposals: Proposals,
    ranker: CandidateRanker,
}

/// A model with its index, and how much of it to ask.
#[derive(Clone, Copy)]
pub(super) struct FastSearch<'a> {
    pub(super) few: FewClasses<'a>,
    pub(super) index: &'a SearchIndex,
    /// Classes to look at, about.
    pub(super) effort: usize,
}

impl FastSearch<'_> {
    /// Ranks what is found for the examples in `batch`.
    pub(super) fn rank(
        &self,
        (examples, batch): (&Examples<'_>, &[u32]),
        embeddings: Embeddings<'_>,
        scratch: &mut FastScratch,
        out: &mut TopK,
    ) {
        scratch.workers.prepare();
        let (workers, model) = (&scratch.workers, self.few.model);
        if let Some(sparse) = sparse_of(model) {
            // Made in parallel, so not by whoever needs it first in what follows.
            self.index.strong(sparse, model.num_features());
        }
        let wants_sum = out.wants_log_sum_exp();
        out.fill_each(batch.len(), model.num_classes(), |position, slot| {
            workers.with(|FastWorker { neighbours, proposals, ranker }| {
                let query = ScoredExample::new(examples, batch, embeddings, position);
                let part = model.neighbours.as_ref();
                let near = part.map_or(Near::NONE, |part| part.near(query.features, neighbours));
                proposals.collect(self, query, near);
                if wants_sum {
                    *slot.log_sum_exp = proposals.log_sum_exp(self.few, near);
                }
                let more = if proposals.is_rough { self.effort / SCORED_SHARE } else { 0 };
                let scored = SCORED_TIMES * slot.k() + SCORED_MORE + more;
                let best = proposals.best(self.few.bias, near, scored);
                ranker.rank(self.few, query, best.iter(), |class| near.share(class), slot.k());
                slot.take(&mut ranker.best);
            });
        });
    }
}

/// The sparse part, where it counts.
fn sparse_of(model: &Model) -> Option<&SparsePart> {
    model.sparse.as_ref().filter(|sparse| sparse.blend() != 0.0)
}

/// What the parts of a model propose for one example.
#[derive(Debug, Default)]
struct Proposals {
    clusters: ClusterScratch,
    strong: StrongScratch,
    best: Best,
    /// By class: whether it is among `classes`.
    is_in: Vec<bool>,
    classes: Vec<u32>,
    /// Products and biases, about.
    dense: Vec<f32>,
    chosen: Vec<u32>,
    /// Whether sums over sparse weights hold the largest of them alone.
    is_rough: bool,
}

impl Proposals {
    fn collect(&mut self, search: &FastSearch<'_>, query: ScoredExample<'_>, near: Near<'_>) {
        let FastSearch { few, index, effort } = *search;
        let model = few.model;
        let Self { clusters, strong, is_in, classes, dense, best, chosen, is_rough } = self;
        // Where class vectors are all there is, no class comes twice.
        let sparse = sparse_of(model);
        let is_one_part = sparse.is_none() && model.neighbours.is_none();
        if !is_one_part {
            classes.iter().for_each(|&class| is_in[class as usize] = false);
            is_in.resize(model.num_classes(), false);
        }
        classes.clear();
        dense.clear();
        index.clusters.visit(few.cpu, query.embedding, effort, clusters, |found, scores| {
            classes.extend_from_slice(found);
            dense.extend_from_slice(scores);
        });
        if is_one_part {
            return;
        }
        classes.iter().for_each(|&class| is_in[class as usize] = true);
        let from_clusters = classes.len();
        let mut add = |class: u32| {
            let is_in = &mut is_in[class as usize];
            if !*is_in {
                *is_in = true;
                classes.push(class);
            }
        };
        near.classes().iter().copied().for_each(&mut add);
        if let Some(sparse) = sparse {
            let factor = sparse.blend() * model.network.config.normalise.factor(query.features.1);
            let lists = index.strong(sparse, model.num_features());
            let (postings, additions) = (sparse.postings(model.num_features()), ADDITIONS_PER_CLASS * effort);
            let additions = (additions, additions.saturating_mul(WHOLE_TIMES).max(WHOLE_MIN));
            lists.walk(few.cpu, postings, (query.features, factor), few.bias, additions, strong);
            best.reset((effort / LISTED_SHARE).max(LISTED_MIN));
            match strong.whole() {
                Some(sums) => best.offer_many(few.cpu, sums, 0, chosen),
                None => {
                    for &class in strong.met() {
                        best.offer(strong.sum(class, few.bias) + few.bias[class as usize], class);
                    }
                }
            }
            *is_rough = strong.whole().is_none();
            best.ranked().for_each(|(_, class)| add(class));
        }
        index.score_also(few.cpu, &classes[from_clusters..], clusters, dense);
    }

    /// What a proposed class scores, as far as is known.
    fn scores<'a>(&'a self, bias: &'a [f32], near: Near<'a>) -> impl Iterator<Item = (f32, u32)> + 'a {
        let whole = move |(&class, &dense): (&u32, &f32)| {
            (dense + self.strong.sum(class, bias) + near.share(class), class)
        };
        self.classes.iter().zip(&self.dense).map(whole)
    }

    /// The best `count` proposals.
    fn best(&mut self, bias: &[f32], near: Near<'_>, count: usize) -> &[u32] {
        let mut best = std::mem::take(&mut self.best);
        best.reset(count);
        self.scores(bias, near).for_each(|(score, class)| best.offer(score, class));
        self.chosen.clear();
        self.chosen.extend(best.ranked().map(|(_, class)| class));
        self.best = best;
        &self.chosen
    }

    /// The logarithm of the sum of `exp(score)` over what was proposed. Other classes
    /// score low, so they are left out: a probability is at least that of an exact search.
    fn log_sum_exp(&self, few: FewClasses<'_>, near: Near<'_>) -> f32 {
        let mut scores: Vec<f32> = self.scores(few.bias, near).map(|(score, _)| score).collect();
        let mut sum = RunningSum::default();
        sum.add(few.cpu, &mut scores);
        sum.log_sum_exp()
    }
}
