//! `uniform`: every class is as likely as any other.

use rand_xoshiro::rand_core::Rng as _;

use super::gather::Gather;
use super::static_sampler::Distribution;
use crate::random::{Rng, below};

/// `P(class) = 1 / N`.
#[derive(Debug)]
pub(super) struct Uniform {
    classes: usize,
}

impl Uniform {
    pub(super) fn new(classes: usize) -> Self {
        Self { classes }
    }
}

impl Distribution for Uniform {
    fn classes(&self) -> usize {
        self.classes
    }

    fn probability(&self, _: u32) -> f64 {
        1.0 / self.classes as f64
    }

    fn draw(&self, rng: &mut Rng) -> u32 {
        below(rng.next_u64(), self.classes as u32)
    }

    fn fill(&self, set: &mut Gather<'_>, limit: usize, rng: &mut Rng) {
        set.draw_uniform(self.classes, limit, rng);
    }
}
