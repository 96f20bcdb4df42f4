//! Picking the few out of many: O(numbers), a comparison for 16.

use crate::LANES;
use crate::simd::Simd;

#[inline(always)]
pub(crate) fn indices_above<S: Simd>(simd: S, scores: &[f32], threshold: f32, out: &mut Vec<u32>) {
    let limit = simd.splat(threshold);
    indices_where(
        simd,
        scores,
        |scores| simd.greater(simd.load(scores), limit),
        |score| score > threshold,
        out,
    );
}

#[inline(always)]
pub(crate) fn indices_flagged<S: Simd>(simd: S, entries: &[u32], flag: u32, out: &mut Vec<u32>) {
    let flags = simd.splat_ints(flag);
    indices_where(
        simd,
        entries,
        |entries| simd.equal_ints(simd.and(simd.load_ints(entries), flags), flags),
        |entry| entry & flag == flag,
        out,
    );
}

/// Appends the indices at which a test holds; `test_16` is the same test of a
/// vector.
#[inline(always)]
fn indices_where<S: Simd, T: Copy>(
    simd: S,
    values: &[T],
    test_16: impl Fn(&[T; LANES]) -> S::Mask,
    test: impl Fn(T) -> bool,
    out: &mut Vec<u32>,
) {
    assert!(u32::try_from(values.len()).is_ok(), "indices have 32 bits");
    let (vectors, rest) = values.as_chunks::<LANES>();
    let mut first = [0; LANES];
    for (i, index) in first.iter_mut().enumerate() {
        *index = i as u32;
    }
    let first = simd.load_ints(&first);
    for (i, values) in vectors.iter().enumerate() {
        let found = test_16(values);
        // Nearly always there is none.
        if simd.mask_bits(found) != 0 {
            let index = simd.add_ints(first, simd.splat_ints((i * LANES) as u32));
            let (indices, count) = simd.compress(index, found);
            out.extend_from_slice(&indices[..count]);
        }
    }
    for (i, &value) in rest.iter().enumerate() {
        if test(value) {
            out.push((vectors.len() * LANES + i) as u32);
        }
    }
}
