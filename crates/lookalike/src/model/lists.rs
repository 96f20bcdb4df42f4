//! Lists of different lengths, one after the other in one array.

use std::ops::AddAssign;

/// Where each list starts, and one more: where the last one ends.
pub(crate) fn offsets<N: Copy + Default + From<u32> + AddAssign>(lengths: &[u32]) -> Vec<N> {
    let mut end = N::default();
    let ends = lengths.iter().map(|&length| {
        end += length.into();
        end
    });
    std::iter::once(N::default()).chain(ends).collect()
}

/// The lengths of the lists that start there.
pub(super) fn lengths(offsets: &[u64]) -> Vec<u32> {
    offsets.windows(2).map(|pair| (pair[1] - pair[0]) as u32).collect()
}
