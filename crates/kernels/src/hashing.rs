//! Winner-take-all hashes of 16 vectors at once (paper, appendix A).
//!
//! With 16 vectors transposed, one register holds one dimension of all of them,
//! and the position of the largest value in a bin takes `bin - 1` comparisons
//! and blends for all 16 together: O(bins × bin) for 16 vectors.

use crate::simd::{Simd, load};
use crate::{Element, LANES};

/// The paper's bin: kernels are compiled specially for it.
const USUAL_BIN: usize = 8;

#[inline(always)]
pub(crate) fn transpose_rows<S: Simd, T: Element>(
    simd: S,
    rows: &[&[T]; LANES],
    dim: usize,
    out: &mut [f32],
) {
    assert!(out.len() >= dim * LANES, "the output holds {LANES} rows");
    let (out, _) = out.as_chunks_mut::<LANES>();
    let mut vectors = [&rows[0].as_chunks::<LANES>().0[..0]; LANES];
    for (vectors, row) in vectors.iter_mut().zip(rows) {
        *vectors = row[..dim].as_chunks().0;
    }
    let whole = dim / LANES;
    for j in 0..whole {
        let mut block = [simd.zero(); LANES];
        for (lane, vectors) in block.iter_mut().zip(vectors) {
            *lane = load(simd, &vectors[j]);
        }
        let block = simd.transpose(block);
        let out = &mut out[j * LANES..][..LANES];
        for i in 0..LANES {
            simd.store(block[i], &mut out[i]);
        }
    }
    for j in whole * LANES..dim {
        for (out, row) in out[j].iter_mut().zip(rows) {
            *out = row[j].to_f32();
        }
    }
}

#[inline(always)]
pub(crate) fn dwta_codes<S: Simd>(
    simd: S,
    transposed: &[f32],
    dims: &[u32],
    bin: usize,
    k: usize,
    shift: u32,
    out: &mut [u32],
) {
    assert!(bin > 0, "a bin has at least one dimension");
    assert!(
        k == 0 || u64::from(shift) * (k as u64 - 1) < 32,
        "codes have 32 bits: {k} hashes of {shift} bits do not fit"
    );
    let (transposed, _) = transposed.as_chunks::<LANES>();
    let (codes, rest) = out.as_chunks_mut::<LANES>();
    assert!(rest.is_empty(), "the output holds {LANES} codes for each table");
    assert!(
        dims.len() >= codes.len() * k * bin,
        "{} dimensions for {} tables of {k} bins of {bin}",
        dims.len(),
        codes.len()
    );
    if bin == USUAL_BIN {
        // With the size known, the loop over a bin unrolls.
        codes_of(simd, transposed, dims, USUAL_BIN, k, shift, codes);
    } else {
        codes_of(simd, transposed, dims, bin, k, shift, codes);
    }
}

#[inline(always)]
fn codes_of<S: Simd>(
    simd: S,
    transposed: &[[f32; LANES]],
    dims: &[u32],
    bin: usize,
    k: usize,
    shift: u32,
    out: &mut [[u32; LANES]],
) {
    let mut bins = dims.chunks_exact(bin);
    for codes in out {
        let mut code = simd.splat_ints(0);
        for (function, dims) in bins.by_ref().take(k).enumerate() {
            let hash = winners(simd, transposed, &dims[..bin]);
            let place = shift * function as u32;
            code = simd.add_ints(code, simd.shift_left(hash, place));
        }
        simd.store_ints(code, codes);
    }
}

/// The position of the largest value among `dims`, the first if there are
/// several.
#[inline(always)]
fn winners<S: Simd>(simd: S, transposed: &[[f32; LANES]], dims: &[u32]) -> S::Ints {
    let mut best = simd.load(&transposed[dims[0] as usize]);
    let mut winner = simd.splat_ints(0);
    for (position, &dim) in dims.iter().enumerate().skip(1) {
        let value = simd.load(&transposed[dim as usize]);
        let better = simd.greater(value, best);
        best = simd.select(better, value, best);
        winner = simd.select_ints(better, simd.splat_ints(position as u32), winner);
    }
    winner
}
