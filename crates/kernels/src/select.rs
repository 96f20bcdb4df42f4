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

/// Marks that are looked at together.
const MARKS: usize = 8;

#[inline(always)]
pub(crate) fn take_positive<S: Simd>(
    simd: S,
    sums: &mut [f32],
    marks: &mut [u8],
    added: &[f32],
    indices: &mut [u32],
    scores: &mut [f32],
) -> usize {
    assert_eq!(sums.len(), added.len(), "something is added to each sum");
    assert_eq!(marks.len(), sums.len().div_ceil(LANES), "a mark for each line of sums");
    assert!(u32::try_from(sums.len()).is_ok(), "indices have 32 bits");
    let (lanes, zero) = (simd.load_ints(&LANE_NUMBERS), simd.zero());
    let mut count = 0;
    for (group, marks) in marks.chunks_mut(MARKS).enumerate() {
        if marks.iter().all(|&mark| mark == 0) {
            continue;
        }
        for (line, mark) in (group * MARKS..).zip(marks) {
            if std::mem::take(mark) == 0 {
                continue;
            }
            let first = line * LANES;
            let (sums, added) = (&mut sums[first..], &added[first..]);
            let Some((sums, added)) = sums.first_chunk_mut::<LANES>().zip(added.first_chunk()) else {
                for (i, (sum, added)) in (first as u32..).zip(sums.iter_mut().zip(added)) {
                    let sum = std::mem::take(sum);
                    (indices[count], scores[count]) = (i, sum + added);
                    count += usize::from(sum > 0.0);
                }
                continue;
            };
            let sum = simd.load(sums);
            simd.store(zero, sums);
            let is_positive = simd.greater(sum, zero);
            if simd.mask_bits(is_positive) != 0 {
                let index = simd.add_ints(lanes, simd.splat_ints(first as u32));
                let (found, more) = simd.compress(index, is_positive);
                let bits = simd.floats_to_bits(simd.add(sum, simd.load(added)));
                let (bits, _) = simd.compress(bits, is_positive);
                // All lanes are written, since that is one store; the next go over the rest.
                indices[count..][..LANES].copy_from_slice(&found);
                scores[count..][..LANES].copy_from_slice(&bytemuck::cast::<_, [f32; LANES]>(bits));
                count += more;
            }
        }
    }
    count
}

/// Each lane's place.
const LANE_NUMBERS: [u32; LANES] = {
    let mut places = [0; LANES];
    let mut i = 0;
    while i < LANES {
        places[i] = i as u32;
        i += 1;
    }
    places
};

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
    let first = simd.load_ints(&LANE_NUMBERS);
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
