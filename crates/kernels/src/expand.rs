//! Adding a row of which only some numbers are stored, with a bit for each that is.

use crate::LANES;
use crate::simd::{Simd, filled};

#[inline(always)]
pub(crate) fn add_expanded<S: Simd>(
    simd: S,
    factor: f32,
    masks: &[u16],
    weights: &[f32],
    sums: &mut [f32],
) -> usize {
    assert_eq!(masks.len(), sums.len().div_ceil(LANES), "a mask for each vector of sums");
    let factors = simd.splat(factor);
    let (vectors, rest) = sums.as_chunks_mut::<LANES>();
    let mut taken = 0;
    for (sums, &bits) in vectors.iter_mut().zip(masks) {
        let left = &weights[taken..];
        let sum = simd.load(sums);
        let sum = match left.first_chunk::<LANES>() {
            Some(next) => simd.add_expanded(sum, factors, next, bits),
            None => simd.add_expanded(sum, factors, &filled(left), bits),
        };
        simd.store(sum, sums);
        taken += bits.count_ones() as usize;
    }
    if let Some(&bits) = masks.get(vectors.len()) {
        let set = (0..LANES).filter(|i| bits >> i & 1 == 1);
        set.zip(&weights[taken..]).for_each(|(i, weight)| rest[i] += factor * weight);
        taken += bits.count_ones() as usize;
    }
    assert!(taken <= weights.len(), "a weight for each bit");
    taken
}
