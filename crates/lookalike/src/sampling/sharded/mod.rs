//! Samplers of a shard: of the classes of one rank, they propose those that a
//! process with all classes would propose.
//!
//! | sampler | what crosses the wire, an example |
//! |---|---|
//! | `lsh-embedding` | two counts a hash table ([`lsh`]) |
//! | `lsh-label` | the same, and the vector of the label that asks |
//! | `mixed` | the same for each query, and a bit or two a draw ([`draws`]) |
//! | `top-k` | the scores of each rank's best |
//! | `log-uniform`, `frequency`, `uniform` | nothing: every rank draws for all ranks and keeps its own |
//!
//! Candidates are numbered from the shard's first class, as its rows are. All ranks
//! propose for the same batches in the same order.

mod draws;
mod lsh;
mod runs;
mod top_k;

use rayon::prelude::*;

use self::lsh::ShardedLsh;
use self::top_k::ShardedTopK;
use super::config::{SamplerError, SamplerKind, Setup, build};
use super::lsh::{Plan, Query};
use super::mixed::mixed;
use super::{Candidates, Counts, Request, Sampler, SamplerStats};
use crate::collective::Shard;

/// Makes the sampler of a shard. One that uses tables has to be refreshed, with the
/// shard's class vectors, before it proposes.
pub fn build_sharded(
    kind: SamplerKind,
    setup: &Setup<'_>,
    shard: &Shard,
) -> Result<Box<dyn Sampler>, SamplerError> {
    let hashed = |setup: &Setup<'_>, plan: Plan| -> Result<Box<dyn Sampler>, SamplerError> {
        Ok(Box::new(ShardedLsh::new(setup.tables(shard.classes().len())?, plan, shard.clone())))
    };
    let setup = &setup.checked()?;
    match kind {
        SamplerKind::LshEmbedding => hashed(setup, Plan::of(setup, Query::Embedding)),
        SamplerKind::LshLabel => hashed(setup, Plan::of(setup, Query::Label)),
        SamplerKind::Mixed => hashed(setup, mixed(setup)?),
        SamplerKind::TopK => Ok(Box::new(ShardedTopK::new(setup.budget, shard.clone()))),
        kind => Ok(Box::new(OwnClasses::new(build(kind, setup)?, shard.clone()))),
    }
}

/// A sampler that asks nobody: it proposes of all classes, and those of the shard are
/// kept. Costs each rank as much as it would cost one process.
#[derive(Debug)]
struct OwnClasses {
    sampler: Box<dyn Sampler>,
    shard: Shard,
    all: Candidates,
}

impl OwnClasses {
    fn new(sampler: Box<dyn Sampler>, shard: Shard) -> Self {
        Self { sampler, shard, all: Candidates::new() }
    }
}

impl Sampler for OwnClasses {
    fn propose(&mut self, request: &Request<'_>, out: &mut Candidates) {
        self.sampler.propose(request, &mut self.all);
        let (all, shard) = (&self.all, &self.shard);
        out.reset(all.len(), all.stride());
        out.par_blocks_mut(16).for_each(|mut block| {
            for (position, slot) in block.positions().zip(block.slots()) {
                let (classes, counts) = (all.of(position), all.counts(position));
                let (truths, negatives) = classes.split_at(counts.truths as usize);
                let (found, drawn) = negatives.split_at(counts.found as usize);
                let mut places = slot.classes.iter_mut();
                let mut keep = |classes: &[u32]| {
                    let own = shard.own(classes).zip(places.by_ref());
                    own.map(|(class, place)| *place = class).count() as u32
                };
                let (truths, found, drawn) = (keep(truths), keep(found), keep(drawn));
                *slot.counts = Counts { truths, found, drawn, ..counts };
            }
        });
    }

    fn class_log_q(&self) -> Option<&[f32]> {
        self.sampler.class_log_q().map(|log_q| &log_q[self.shard.classes()])
    }

    fn stats(&self) -> SamplerStats {
        self.sampler.stats()
    }
}
