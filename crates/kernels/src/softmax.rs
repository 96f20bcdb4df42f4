//! Softmax over scores that lie class by class while maxima and sums belong to
//! examples: O(scores), a vector at a time, with an exponential of our own.

use crate::rows::example;
use crate::simd::{Simd, filled};
use crate::{FLAG_BITS, LANES};

/// Below this the result would lack digits or be zero: it becomes zero.
const EXP_LOWEST: f32 = -87.336_54;
/// Above this the result is infinite.
const EXP_HIGHEST: f32 = 88.722_83;

/// `exp(x)` within 2 units in the last place; 0 where the true value is below
/// the smallest normal number.
///
/// `x = n ln 2 + r` with `|r| ≤ ln 2 / 2`; a polynomial gives `exp(r)`, and `n`
/// is added to its exponent.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::Floats) -> S::Floats {
    // ln 2 in two parts: the product of n with the first has no rounding error.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // exp(r) = 1 + r + r² (…), fitted for the smallest largest error.
    const POLYNOMIAL: [f32; 6] =
        [1.987_569_2e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let (lowest, highest) = (simd.splat(EXP_LOWEST), simd.splat(EXP_HIGHEST));
    // NaN passes through both, and through all that follows.
    let inside = simd.min(highest, simd.max(lowest, x));
    let n = simd.round_to_ints(simd.mul(inside, simd.splat(std::f32::consts::LOG2_E)));
    let whole = simd.ints_to_floats(n);
    let r = simd.mul_add(whole, simd.splat(-LN_2_HIGH), inside);
    let r = simd.mul_add(whole, simd.splat(-LN_2_LOW), r);
    let mut sum = simd.splat(POLYNOMIAL[0]);
    for coefficient in &POLYNOMIAL[1..] {
        sum = simd.mul_add(sum, r, simd.splat(*coefficient));
    }
    let sum = simd.add(simd.mul_add(sum, simd.mul(r, r), r), simd.splat(1.0));
    let scaled = simd.bits_to_floats(simd.add_ints(simd.floats_to_bits(sum), simd.shift_left(n, 23)));
    let scaled = simd.select(simd.greater(lowest, x), simd.zero(), scaled);
    simd.select(simd.greater(x, highest), simd.splat(f32::INFINITY), scaled)
}

/// The examples of sixteen entries.
#[inline(always)]
fn examples<S: Simd>(simd: S, entries: &[u32; LANES]) -> S::Ints {
    simd.shift_right(simd.load_ints(entries), FLAG_BITS)
}

#[inline(always)]
pub(crate) fn scatter_max<S: Simd>(simd: S, scores: &[f32], entries: &[u32], max: &mut [f32]) {
    assert_eq!(scores.len(), entries.len(), "one score for each entry");
    let (score_vectors, score_rest) = scores.as_chunks::<LANES>();
    let (entry_vectors, entry_rest) = entries.as_chunks::<LANES>();
    for (scores, entries) in score_vectors.iter().zip(entry_vectors) {
        let old = simd.gather(max, examples(simd, entries));
        // Once a few scores are in, a new maximum is rare: find them together,
        // write them one by one.
        let mut higher = simd.mask_bits(simd.greater(simd.load(scores), old));
        while higher != 0 {
            let lane = higher.trailing_zeros() as usize;
            let slot = &mut max[example(entries[lane])];
            *slot = slot.max(scores[lane]);
            higher &= higher - 1;
        }
    }
    for (&score, &entry) in score_rest.iter().zip(entry_rest) {
        let slot = &mut max[example(entry)];
        *slot = slot.max(score);
    }
}

#[inline(always)]
pub(crate) fn scatter_exp<S: Simd>(
    simd: S,
    scores: &mut [f32],
    entries: &[u32],
    max: &[f32],
    sum: &mut [f32],
) {
    assert_eq!(scores.len(), entries.len(), "one score for each entry");
    let (score_vectors, score_rest) = scores.as_chunks_mut::<LANES>();
    let (entry_vectors, entry_rest) = entries.as_chunks::<LANES>();
    for (scores, entries) in score_vectors.iter_mut().zip(entry_vectors) {
        exp_below(simd, scores, entries, max);
        // One by one, because two entries may be of the same example.
        for (&score, &entry) in scores.iter().zip(entries) {
            sum[example(entry)] += score;
        }
    }
    if !entry_rest.is_empty() {
        let mut full = filled(score_rest);
        exp_below(simd, &mut full, &filled(entry_rest), max);
        for ((score, value), &entry) in score_rest.iter_mut().zip(full).zip(entry_rest) {
            *score = value;
            sum[example(entry)] += value;
        }
    }
}

#[inline(always)]
fn exp_below<S: Simd>(simd: S, scores: &mut [f32; LANES], entries: &[u32; LANES], max: &[f32]) {
    let max = simd.gather(max, examples(simd, entries));
    let value = exp(simd, simd.sub(simd.load(scores), max));
    simd.store(value, scores);
}

#[inline(always)]
pub(crate) fn gather_scale<S: Simd>(simd: S, scores: &mut [f32], entries: &[u32], factor: &[f32]) {
    assert_eq!(scores.len(), entries.len(), "one score for each entry");
    let (score_vectors, score_rest) = scores.as_chunks_mut::<LANES>();
    let (entry_vectors, entry_rest) = entries.as_chunks::<LANES>();
    for (scores, entries) in score_vectors.iter_mut().zip(entry_vectors) {
        let factor = simd.gather(factor, examples(simd, entries));
        simd.store(simd.mul(simd.load(scores), factor), scores);
    }
    for (score, &entry) in score_rest.iter_mut().zip(entry_rest) {
        *score *= factor[example(entry)];
    }
}

#[inline(always)]
pub(crate) fn exp_sum<S: Simd>(simd: S, scores: &mut [f32], max: f32) -> f32 {
    let (vectors, rest) = scores.as_chunks_mut::<LANES>();
    let highest = simd.splat(max);
    let mut sum = simd.zero();
    for scores in vectors {
        let value = exp(simd, simd.sub(simd.load(scores), highest));
        simd.store(value, scores);
        sum = simd.add(sum, value);
    }
    // What is missing of the last vector counts as exp(-∞) = 0.
    let mut last = [f32::NEG_INFINITY; LANES];
    last[..rest.len()].copy_from_slice(rest);
    let value = exp(simd, simd.sub(simd.load(&last), highest));
    simd.store(value, &mut last);
    rest.copy_from_slice(&last[..rest.len()]);
    simd.reduce_sum(simd.add(sum, value))
}
