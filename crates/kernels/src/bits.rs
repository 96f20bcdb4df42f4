//! Rows of bits: turning them around, and reading off which are set.
//!
//! A batch in which every example has a few percent of all classes is sorted by
//! class faster as a matrix of bits than as lists: 64 × 64 bits change places in
//! some hundred instructions, however many of them are set.

use crate::simd::Simd;
use crate::{BIT_ROWS, BIT_WORDS, LANES};

#[inline(always)]
pub(crate) fn transpose_bits<S: Simd>(simd: S, rows: &mut [[u64; BIT_WORDS]; BIT_ROWS]) {
    // A register holds a row of all squares. Each round exchanges, between rows
    // some distance apart, the squares of that size that lie off the diagonal:
    // first the halves of words, then bits within them.
    let rows: &mut [[u32; LANES]; BIT_ROWS] = bytemuck::cast_mut(rows);
    let halves = simd.load_ints(&std::array::from_fn(|i| i as u32 % 2));
    let is_high = simd.equal_ints(halves, simd.splat_ints(1));
    exchange::<S, 32>(simd, rows, |upper, lower| {
        let upper_now = simd.select_ints(is_high, simd.swap_neighbours(lower), upper);
        (upper_now, simd.select_ints(is_high, lower, simd.swap_neighbours(upper)))
    });
    exchange_bits::<S, 16>(simd, rows);
    exchange_bits::<S, 8>(simd, rows);
    exchange_bits::<S, 4>(simd, rows);
    exchange_bits::<S, 2>(simd, rows);
    exchange_bits::<S, 1>(simd, rows);
}

#[inline(always)]
fn exchange_bits<S: Simd, const DISTANCE: usize>(simd: S, rows: &mut [[u32; LANES]; BIT_ROWS]) {
    // DISTANCE ones, DISTANCE zeroes, and so on.
    let mask = simd.splat_ints(u32::MAX / ((1 << DISTANCE) + 1));
    exchange::<S, DISTANCE>(simd, rows, |upper, lower| {
        let shifted = simd.shift_right(upper, DISTANCE as u32);
        let exchanged = simd.and(simd.xor(shifted, lower), mask);
        let back = simd.shift_left(exchanged, DISTANCE as u32);
        (simd.xor(upper, back), simd.xor(lower, exchanged))
    });
}

#[inline(always)]
fn exchange<S: Simd, const DISTANCE: usize>(
    simd: S,
    rows: &mut [[u32; LANES]; BIT_ROWS],
    exchanged: impl Fn(S::Ints, S::Ints) -> (S::Ints, S::Ints),
) {
    for rows in rows.chunks_exact_mut(2 * DISTANCE) {
        let (upper, lower) = rows.split_at_mut(DISTANCE);
        for (upper, lower) in upper.iter_mut().zip(lower) {
            let (upper_now, lower_now) = exchanged(simd.load_ints(upper), simd.load_ints(lower));
            simd.store_ints(upper_now, upper);
            simd.store_ints(lower_now, lower);
        }
    }
}

#[inline(always)]
pub(crate) fn count_ones<S: Simd>(_: S, words: &[u64]) -> usize {
    words.iter().map(|word| word.count_ones() as usize).sum()
}

#[inline(always)]
pub(crate) fn indices_of_ones<S: Simd>(simd: S, words: &[u64], shift: u32, out: &mut [u32]) -> usize {
    let mut len = 0;
    for (i, &word) in words.iter().enumerate() {
        let room = out[len..].first_chunk_mut().expect("room for a whole word's");
        simd.indices_of_ones(word, (i * BIT_ROWS) as u32, shift, room);
        len += word.count_ones() as usize;
    }
    len
}
