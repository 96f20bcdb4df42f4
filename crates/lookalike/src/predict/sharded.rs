//! The best of all ranks: each ranks its own classes, then all tell each other their best.
//!
//! A score belongs to one rank and is moved, not summed: of the same embeddings rankings
//! have the bits of one process. On the wire: eight bytes a place of the ranking, whatever the number of classes.

use super::ranking::TopK;
use crate::best::Best;
use crate::collective::Shard;

/// Makes rankings of a shard's classes, numbered from its first one, rankings of all
/// classes. All ranks have the same examples.
pub(crate) fn join_ranks(shard: &Shard, ranking: &mut TopK) {
    let (examples, k) = (ranking.len(), ranking.k().min(shard.num_classes()));
    let first_class = shard.classes().start as u32;
    let mut own = vec![[f32::NEG_INFINITY.to_bits(), 0]; examples * k];
    for (example, places) in own.chunks_exact_mut(k.max(1)).enumerate() {
        let ranked = ranking.example(example);
        for (place, (&class, score)) in places.iter_mut().zip(ranked.classes.iter().zip(ranked.scores)) {
            *place = [score.to_bits(), class + first_class];
        }
    }
    let collective = shard.collective();
    let all = collective.gather(&own);
    let sums = ranking.wants_log_sum_exp().then(|| collective.gather(&ranking.log_sum_exp));
    ranking.fill_each(examples, shard.num_classes(), |example, slot| {
        let mut best = Best::default();
        best.reset(slot.k());
        let of_ranks = all.chunks_exact(own.len()).flat_map(|of_rank| &of_rank[example * k..][..k]);
        of_ranks.for_each(|&[score, class]| best.offer(f32::from_bits(score), class));
        if let Some(sums) = &sums {
            *slot.log_sum_exp = log_sum_exp(sums.iter().skip(example).step_by(examples));
        }
        slot.take(&mut best);
    });
}

/// Of sums that are logarithms themselves, in the order of ranks.
fn log_sum_exp<'a>(sums: impl Iterator<Item = &'a f32> + Clone) -> f32 {
    let largest = sums.clone().copied().fold(f32::NEG_INFINITY, f32::max);
    if !largest.is_finite() {
        return largest;
    }
    let rest: f64 = sums.map(|&sum| f64::from(sum - largest).exp()).sum();
    (f64::from(largest) + rest.ln()) as f32
}
