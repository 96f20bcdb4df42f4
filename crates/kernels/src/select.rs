//! Picking the few high scores out of many: O(scores), a comparison for 16.

use crate::LANES;
use crate::simd::Simd;

#[inline(always)]
pub(crate) fn indices_above<S: Simd>(simd: S, scores: &[f32], threshold: f32, out: &mut Vec<u32>) {
    assert!(u32::try_from(scores.len()).is_ok(), "indices have 32 bits");
    let (vectors, rest) = scores.as_chunks::<LANES>();
    let limit = simd.splat(threshold);
    let mut first = [0; LANES];
    for (i, index) in first.iter_mut().enumerate() {
        *index = i as u32;
    }
    let first = simd.load_ints(&first);
    for (i, scores) in vectors.iter().enumerate() {
        let above = simd.greater(simd.load(scores), limit);
        // Nearly always nothing is above a good threshold.
        if simd.mask_bits(above) != 0 {
            let index = simd.add_ints(first, simd.splat_ints((i * LANES) as u32));
            let (indices, count) = simd.compress(index, above);
            out.extend_from_slice(&indices[..count]);
        }
    }
    for (i, &score) in rest.iter().enumerate() {
        if score > threshold {
            out.push((vectors.len() * LANES + i) as u32);
        }
    }
}
