//! Rows of bytes against one query: rough scores of very many rows.
//!
//! A byte a number is a quarter of what memory has to give, and whole numbers add up to
//! the same sum in whatever order, on every level of instructions. There is nothing to
//! write by hand: a loop over lists of known kinds becomes the instructions that multiply
//! pairs and add them.

use crate::simd::Simd;

/// The usual row: its loop is unrolled, and the query stays in registers.
const USUAL: usize = 128;

#[inline(always)]
pub(crate) fn dot_codes<S: Simd>(_: S, query: &[i16], codes: &[i8], out: &mut [i32]) {
    assert_eq!(codes.len(), out.len() * query.len(), "a row of codes for each output");
    match <&[i16; USUAL]>::try_from(query) {
        Ok(query) => {
            let (rows, _) = codes.as_chunks::<USUAL>();
            rows.iter().zip(out).for_each(|(row, out)| *out = dot(query, row));
        }
        Err(_) => {
            let rows = codes.chunks_exact(query.len().max(1));
            rows.zip(out).for_each(|(row, out)| *out = dot(query, row));
        }
    }
}

#[inline(always)]
fn dot(query: &[i16], row: &[i8]) -> i32 {
    query.iter().zip(row).map(|(&a, &b)| i32::from(a) * i32::from(b)).fold(0, i32::wrapping_add)
}
