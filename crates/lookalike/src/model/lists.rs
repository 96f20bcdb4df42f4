//! Lists of different lengths, one after the other in one array.

/// Where each list starts, and one more: where the last one ends.
pub(super) fn offsets(lengths: &[u32]) -> Vec<u64> {
    let mut end = 0;
    let ends = lengths.iter().map(|&length| {
        end += u64::from(length);
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// The lengths of the lists that start there.
pub(super) fn lengths(offsets: &[u64]) -> Vec<u32> {
    offsets.windows(2).map(|pair| (pair[1] - pair[0]) as u32).collect()
}
