//! `log-uniform`, the noise of TensorFlow's sampled softmax: classes ranked by
//! training frequency, `P(rank r) = ln((r + 2) / (r + 1)) / ln(N + 1)`, close to
//! Zipf's law. Blind to the input, and wrong where labels follow no power law
//! (paper, section 3.5).

use rand_xoshiro::rand_core::Rng as _;

use super::static_sampler::Distribution;
use crate::random::Rng;

/// See the module's description.
#[derive(Debug)]
pub(super) struct LogUniform {
    by_rank: Vec<u32>,
    ranks: Vec<u32>,
    /// `ln(N + 1)`.
    scale: f64,
}

impl LogUniform {
    /// Ranks classes by falling count, equal ones by id.
    pub(super) fn new(counts: &[u32]) -> Self {
        let mut by_rank: Vec<u32> = (0..counts.len() as u32).collect();
        by_rank.sort_by_key(|&class| std::cmp::Reverse(counts[class as usize]));
        let mut ranks = vec![0; counts.len()];
        for (rank, &class) in by_rank.iter().enumerate() {
            ranks[class as usize] = rank as u32;
        }
        Self { by_rank, ranks, scale: (counts.len() as f64 + 1.0).ln() }
    }
}

impl Distribution for LogUniform {
    fn classes(&self) -> usize {
        self.by_rank.len()
    }

    fn probability(&self, class: u32) -> f64 {
        let rank = f64::from(self.ranks[class as usize]);
        (1.0 / (rank + 1.0)).ln_1p() / self.scale
    }

    /// `P(rank < r) = ln(r + 1) / ln(N + 1)`, turned around.
    fn draw(&self, rng: &mut Rng) -> u32 {
        let unit = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let rank = (unit * self.scale).exp() as usize - 1;
        self.by_rank[rank.min(self.by_rank.len() - 1)]
    }
}
