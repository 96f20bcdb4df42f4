//! What this machine can do at most: the limits other measurements are held
//! against.

use crate::LANES;
use crate::simd::{Simd, dispatch};

/// Floating-point operations in one iteration of [`fma_burst`], at every level:
/// 24 vectors, each multiplied and added.
pub const FLOPS_PER_ITERATION: usize = 24 * LANES * 2;

dispatch! {
    /// Independent multiply-adds on registers alone: timing it gives the peak
    /// rate of one core, [`FLOPS_PER_ITERATION`] · `iterations` / time. The
    /// result means nothing, but must be used, lest the loop be left out. At
    /// the portable level it is what the compiler makes of the loop, and no
    /// upper limit.
    pub fn fma_burst(iterations: usize) -> f32 = burst;

    /// The sum of all numbers, read front to back: timing it on an array much
    /// larger than the caches gives the bandwidth of one core.
    pub fn read_sum(data: &[f32]) -> f32 = sum;
}

#[inline(always)]
fn burst<S: Simd>(simd: S, iterations: usize) -> f32 {
    // Enough chains to hide the latency (4 cycles, two a cycle), few enough to
    // stay in registers.
    match S::REGISTERS {
        32 => burst_of::<S, 12>(simd, iterations),
        8 => burst_of::<S, 6>(simd, iterations),
        _ => burst_of::<S, 3>(simd, iterations),
    }
}

#[inline(always)]
fn burst_of<S: Simd, const CHAINS: usize>(simd: S, iterations: usize) -> f32 {
    let factor = simd.splat(std::hint::black_box(0.5));
    let term = simd.splat(std::hint::black_box(1.0));
    let mut chains = [simd.splat(1.0); CHAINS];
    for (i, chain) in chains.iter_mut().enumerate() {
        *chain = simd.splat(i as f32);
    }
    for _ in 0..iterations {
        for _ in 0..24 / CHAINS {
            for chain in &mut chains {
                *chain = simd.mul_add(*chain, factor, term);
            }
        }
    }
    let mut total = simd.zero();
    for chain in chains {
        total = simd.add(total, chain);
    }
    simd.reduce_sum(total)
}

#[inline(always)]
fn sum<S: Simd>(simd: S, data: &[f32]) -> f32 {
    let (blocks, rest) = data.as_chunks::<{ 4 * LANES }>();
    let mut sums = [simd.zero(); 4];
    for block in blocks {
        let (vectors, _) = block.as_chunks::<LANES>();
        for (sum, vector) in sums.iter_mut().zip(vectors) {
            *sum = simd.add(*sum, simd.load(vector));
        }
    }
    let total = simd.add(simd.add(sums[0], sums[1]), simd.add(sums[2], sums[3]));
    simd.reduce_sum(total) + rest.iter().sum::<f32>()
}
