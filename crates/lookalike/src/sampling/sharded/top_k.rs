//! `top-k` over several ranks: each finds the best of its own classes, and all learn
//! how high the others' best score.

use rayon::prelude::*;

use super::super::candidates::Slot;
use super::super::{Candidates, Request, Sampler, SamplerStats};
use crate::collective::Shard;
use crate::predict::{TopK, TopKScratch, top_k};

/// The sampler `top-k` of a shard.
#[derive(Debug)]
pub(super) struct ShardedTopK {
    budget: usize,
    shard: Shard,
    scratch: TopKScratch,
    best: Option<TopK>,
    stats: SamplerStats,
}

impl ShardedTopK {
    pub(super) fn new(budget: usize, shard: Shard) -> Self {
        let (scratch, stats) = (TopKScratch::default(), SamplerStats::default());
        Self { budget, shard, scratch, best: None, stats }
    }
}

impl Sampler for ShardedTopK {
    fn propose(&mut self, request: &Request<'_>, out: &mut Candidates) {
        let (batch, budget) = (request.batch.len(), self.budget);
        // True labels may be among the best, so that many more are looked for.
        let wanted = budget + request.truths_max();
        let best = match &mut self.best {
            Some(best) if best.k() >= wanted => best,
            slot => slot.insert(TopK::new(wanted)),
        };
        let (vectors, embeddings) = (request.class_vectors, request.embeddings.rows());
        top_k(request.cpu, vectors, request.class_bias, embeddings, None, &mut self.scratch, best);
        let truths: Vec<Vec<u32>> = (0..batch)
            .map(|i| self.shard.own(request.examples.labels(request.batch[i] as usize)).collect())
            .collect();
        let (best, truths) = (&*best, &truths);
        let negatives = |position: usize| {
            let ranked = best.example(position);
            let is_negative = move |class: &u32| truths[position].binary_search(class).is_err();
            let ranked = ranked.classes.iter().copied().zip(ranked.scores.iter().copied());
            ranked.filter(move |(class, _)| is_negative(class)).take(budget)
        };
        let mut scores = vec![f32::NEG_INFINITY; batch * budget];
        for (position, row) in scores.chunks_exact_mut(budget).enumerate() {
            row.iter_mut().zip(negatives(position)).for_each(|(place, (_, score))| *place = score);
        }
        let all = self.shard.collective().gather(&scores);
        let rank = self.shard.collective().rank();
        let kept: Vec<(usize, usize)> =
            (0..batch).into_par_iter().map(|i| kept(&all, batch, budget, i, rank)).collect();
        out.reset(batch, wanted);
        out.par_blocks_mut(16).for_each(|mut block| {
            for (position, Slot { classes, counts, .. }) in block.positions().zip(block.slots()) {
                let own = truths[position].iter().copied();
                let found = negatives(position).map(|(class, _)| class).take(kept[position].0);
                classes.iter_mut().zip(own.chain(found)).for_each(|(place, class)| *place = class);
                (counts.truths, counts.found) = (truths[position].len() as u32, kept[position].0 as u32);
            }
        });
        for (position, &(_, given)) in kept.iter().enumerate() {
            let labels = request.examples.labels(request.batch[position] as usize).len();
            self.stats.queries += 1;
            self.stats.wanted += budget.min(self.shard.num_classes() - labels) as u64;
            self.stats.given += given as u64;
        }
    }

    fn stats(&self) -> SamplerStats {
        self.stats
    }
}

/// How many of a rank's best are among the best of all, and how many those are. Of
/// equal scores the lower class comes first, which is that of the lower rank.
fn kept(all: &[f32], batch: usize, budget: usize, position: usize, rank: usize) -> (usize, usize) {
    let rows = all.chunks_exact(batch * budget).map(|scores| &scores[position * budget..][..budget]);
    let mut scores: Vec<(f32, usize)> = rows
        .enumerate()
        .flat_map(|(rank, row)| row.iter().map(move |&score| (score, rank)))
        .filter(|&(score, _)| score > f32::NEG_INFINITY)
        .collect();
    // A stable sort; and adding zero makes one of the two zeroes.
    scores.sort_by(|a, b| (b.0 + 0.0).total_cmp(&(a.0 + 0.0)));
    scores.truncate(budget);
    (scores.iter().filter(|&&(_, of)| of == rank).count(), scores.len())
}
