//! `top-k`: the classes with the highest scores of all.
//!
//! Negatives are the `budget` classes that score highest for the example, true
//! labels left out; nothing is random. Finding them scores every class, so this
//! is the paper's adaptive baseline without the speed: O(N · dim) an example.

use rayon::prelude::*;

use super::candidates::Slot;
use super::{Candidates, Request, Sampler, SamplerStats};
use crate::predict::{TopK, TopKScratch, top_k};

/// The sampler `top-k`.
#[derive(Debug)]
pub(super) struct TopKSampler {
    budget: usize,
    scratch: TopKScratch,
    best: Option<TopK>,
    stats: SamplerStats,
}

impl TopKSampler {
    pub(super) fn new(budget: usize) -> Self {
        Self { budget, scratch: TopKScratch::default(), best: None, stats: SamplerStats::default() }
    }
}

impl Sampler for TopKSampler {
    fn propose(&mut self, request: &Request<'_>, out: &mut Candidates) {
        // True labels may be among the best, so that many more are looked for.
        let wanted = self.budget + request.truths_max();
        let best = match &mut self.best {
            Some(best) if best.k() >= wanted => best,
            slot => slot.insert(TopK::new(wanted)),
        };
        top_k(
            request.cpu,
            request.class_vectors,
            request.class_bias,
            request.embeddings.rows(),
            None,
            &mut self.scratch,
            best,
        );
        out.reset(request.batch.len(), wanted);
        let (best, budget) = (&*best, self.budget);
        out.par_blocks_mut(16).for_each(|mut block| {
            let positions = block.positions();
            for (position, Slot { classes: slot, counts, .. }) in positions.zip(block.slots()) {
                let labels = request.examples.labels(request.batch[position] as usize);
                slot[..labels.len()].copy_from_slice(labels);
                let ranked = best.example(position).classes.iter();
                let negatives = ranked.filter(|class| labels.binary_search(class).is_err());
                let mut found = 0;
                for (place, &class) in slot[labels.len()..].iter_mut().zip(negatives.take(budget)) {
                    *place = class;
                    found += 1;
                }
                counts.truths = labels.len() as u32;
                counts.found = found;
            }
        });
        self.stats.count(self.budget, request.class_vectors.len(), out);
    }

    fn stats(&self) -> SamplerStats {
        self.stats
    }
}
