//! Negatives from a distribution that never changes.
//!
//! Classes are drawn from the distribution, one after the other; true labels and
//! repetitions are passed over until the budget is full. The expected count of
//! each class, for the log-q correction, is that of drawing without passing over
//! true labels; see [`super::inclusion`].

use rayon::prelude::*;

use super::candidates::Slot;
use super::gather::{Gather, Marks};
use super::inclusion::log_inclusion;
use super::{Candidates, Counts, Request, Sampler, SamplerStats};
use crate::random::{Rng, Stream, rng};
use crate::scratch::PerThread;

/// Examples a task; their number must not depend on that of threads.
const BLOCK: usize = 16;

/// Draws before giving up, for each negative wanted. Reached only where the
/// budget is nearly all classes of a skewed distribution; what is missing then
/// shows as shortfall.
const TRIES: usize = 64;

/// A distribution over the classes `0..classes()`.
pub(super) trait Distribution: Send + Sync + std::fmt::Debug {
    /// The number of classes.
    fn classes(&self) -> usize;

    /// The chance of a class in one draw.
    fn probability(&self, class: u32) -> f64;

    /// Draws a class. Never one of probability zero.
    fn draw(&self, rng: &mut Rng) -> u32;

    /// Adds different classes to the set until it has `limit`.
    fn fill(&self, set: &mut Gather<'_>, limit: usize, rng: &mut Rng) {
        let tries = (limit - set.len()) * TRIES;
        set.draw(limit, tries, || self.draw(rng));
    }
}

/// Draws from a fixed distribution; see the module's description.
#[derive(Debug)]
pub(super) struct StaticSampler<D> {
    distribution: D,
    budget: usize,
    /// The classes that can be drawn, if they are no more than the budget: then
    /// all are taken and nothing is left to chance.
    all: Option<Vec<u32>>,
    log_q: Vec<f32>,
    workers: PerThread<Marks>,
    stats: SamplerStats,
}

impl<D: Distribution> StaticSampler<D> {
    pub(super) fn new(distribution: D, budget: usize) -> Self {
        let probability = |class| distribution.probability(class);
        let possible = (0..distribution.classes() as u32).filter(|&class| probability(class) > 0.0);
        let all: Vec<u32> = possible.take(budget + 1).collect();
        Self {
            log_q: log_inclusion(distribution.classes(), budget, probability),
            distribution,
            budget,
            all: (all.len() <= budget).then_some(all),
            workers: PerThread::default(),
            stats: SamplerStats::default(),
        }
    }

    /// The candidates of one example.
    fn gather(&self, request: &Request<'_>, position: usize, slot: Slot<'_>, marks: &mut Marks) {
        let example = request.batch[position];
        let truths = request.examples.labels(example as usize);
        let mut rng = rng(request.seed, Stream::Sample, request.iteration, u64::from(example));
        let mut set = Gather::start(slot.classes, marks.of(slot.marks), truths);
        let limit = truths.len() + self.budget;
        match &self.all {
            Some(all) => set.take(all, limit),
            None => self.distribution.fill(&mut set, limit, &mut rng),
        }
        let drawn = set.len() - truths.len();
        set.finish();
        *slot.counts = Counts { truths: truths.len() as u32, drawn: drawn as u32, ..Counts::default() };
    }
}

impl<D: Distribution> Sampler for StaticSampler<D> {
    fn propose(&mut self, request: &Request<'_>, out: &mut Candidates) {
        let classes = self.distribution.classes();
        out.reset_marked(request.batch.len(), self.budget + request.truths_max(), classes);
        self.workers.prepare();
        let this = &*self;
        out.par_blocks_mut(BLOCK).for_each(|mut block| {
            this.workers.with(|marks| {
                marks.prepare(classes, &block);
                for (position, slot) in block.positions().zip(block.slots()) {
                    this.gather(request, position, slot, marks);
                }
            });
        });
        self.stats.count(self.budget, classes, out);
    }

    fn class_log_q(&self) -> Option<&[f32]> {
        Some(&self.log_q)
    }

    fn stats(&self) -> SamplerStats {
        self.stats
    }
}
