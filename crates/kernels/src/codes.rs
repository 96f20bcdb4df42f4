//! Rows of bytes: rough scores of very many rows.
//!
//! A byte a number is a quarter of what memory has to give, and whole numbers add up to
//! the same sum in whatever order, on every level of instructions.
//!
//! [`dot_codes`] has one query of sixteen bits for many rows. There is nothing to write by
//! hand: a loop over lists of known kinds becomes the instructions that multiply pairs and
//! add them. [`gather_dot_codes`] and [`keep_above_limits`] have rows with lists of queries,
//! which are bytes too: x86 has instructions that multiply four pairs of bytes and add them up, if those on one side are
//! not negative. So a query's numbers are moved up by [`QUERY_ZERO`], and what that adds is
//! taken off by the sum of the row's. Without VNNI two products are added in 16 bits first:
//! with seven bits a number of the query they fit.

use crate::rows::example;
use crate::simd::{Simd, load, prefetch, scores_of, vectors};
use crate::{
    CODE_VECTOR, CodedQueries, CodedRow, CodedRows, Element, FLAG_BITS, KeyGroup, LANES, Lists, ListsMut,
};

/// The usual row: its loop is unrolled, and the query stays in registers.
const USUAL: usize = 128;

/// The flags of an entry.
const FLAGS: u32 = (1 << FLAG_BITS) - 1;

/// How many lists ahead a row is prefetched: 3 lines each.
const LISTS_AHEAD: usize = 12;

/// The largest number of a row.
pub(crate) const ROW_MAX: u32 = 127;
/// What stands for zero in a query, and one more than its largest number.
pub(crate) const QUERY_ZERO: u32 = 64;

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

#[inline(always)]
pub(crate) fn code_row<S: Simd, T: Element>(simd: S, row: &[T], codes: &mut [i8]) -> CodedRow {
    let (scale, sum) = code::<S, T, ROW_MAX, 0>(simd, row, codes);
    CodedRow { scale, above: sum.wrapping_mul(QUERY_ZERO as i32) }
}

#[inline(always)]
pub(crate) fn code_query<S: Simd, T: Element>(simd: S, row: &[T], codes: &mut [i8]) -> f32 {
    code::<S, T, { QUERY_ZERO - 1 }, QUERY_ZERO>(simd, row, codes).0
}

/// Writes a row as whole numbers, at most `MOST` from `ZERO`; gives what they are to be
/// multiplied with, and their sum.
#[inline(always)]
fn code<S: Simd, T: Element, const MOST: u32, const ZERO: u32>(
    simd: S,
    row: &[T],
    codes: &mut [i8],
) -> (f32, i32) {
    assert!(row.len() <= codes.len(), "a code for each number");
    let row = vectors(row);
    let (codes, _) = codes.as_chunks_mut::<LANES>();
    let magnitude = simd.splat_ints(i32::MAX as u32);
    let mut largest = simd.zero();
    for numbers in row {
        let bits = simd.floats_to_bits(load(simd, numbers));
        largest = simd.max(simd.bits_to_floats(simd.and(bits, magnitude)), largest);
    }
    let mut lanes = [0; LANES];
    simd.store_ints(simd.floats_to_bits(largest), &mut lanes);
    // Positive numbers are in the order of their bits.
    let largest = f32::from_bits(lanes.iter().fold(0, |most, &bits| most.max(bits)));
    // A row of zeroes, or nearly so, has no inverse.
    let inverse = Some(MOST as f32 / largest).filter(|inverse| inverse.is_finite()).unwrap_or(0.0);
    let (factor, zero) = (simd.splat(inverse), simd.splat_ints(ZERO));
    let mut sums = simd.splat_ints(0);
    for (numbers, codes) in row.iter().zip(codes) {
        let code = simd.add_ints(simd.round_to_ints(simd.mul(load(simd, numbers), factor)), zero);
        sums = simd.add_ints(sums, code);
        simd.store_i8(code, codes);
    }
    simd.store_ints(sums, &mut lanes);
    let sum = lanes.iter().fold(0, |sum: u32, &lane| sum.wrapping_add(lane)) as i32;
    (largest / MOST as f32, sum)
}

#[inline(always)]
pub(crate) fn gather_dot_codes<S: Simd>(
    simd: S,
    rows: CodedRows<'_>,
    lists: Lists<'_>,
    queries: CodedQueries<'_>,
    out: &mut [f32],
) {
    assert_eq!(lists.entries.len(), out.len(), "one output for each entry");
    assert!(rows.stride.is_multiple_of(CODE_VECTOR), "rows of codes are padded to {CODE_VECTOR}");
    if rows.stride == USUAL {
        // With the length known, the loop over a row unrolls.
        gather_dot_codes_of(simd, rows, USUAL / CODE_VECTOR, lists, queries, out);
    } else {
        gather_dot_codes_of(simd, rows, rows.stride / CODE_VECTOR, lists, queries, out);
    }
}

#[inline(always)]
fn gather_dot_codes_of<S: Simd>(
    simd: S,
    rows: CodedRows<'_>,
    stride: usize,
    Lists { groups, entries }: Lists<'_>,
    queries: CodedQueries<'_>,
    out: &mut [f32],
) {
    let first = groups.first().map_or(0, |group| group.start);
    for (i, group) in groups.iter().enumerate() {
        let row = Row::of(rows, stride, groups, i);
        let end = groups.get(i + 1).map_or(entries.len(), |next| (next.start - first) as usize);
        // The last four of a list reach into the next one, whose turn comes: there is no rest
        // to be treated apart, but at the very end.
        let mut at = (group.start - first) as usize;
        while at < end {
            let (Some(&four), Some(place)) = (entries[at..].first_chunk(), out[at..].first_chunk_mut())
            else {
                break;
            };
            *place = row.scores(simd, queries, four);
            at += 4;
        }
        if at < end {
            let scores = row.scores(simd, queries, four_of(&entries[at..]));
            out[at..].iter_mut().zip(scores).for_each(|(out, score)| *out = score);
        }
    }
}

#[inline(always)]
pub(crate) fn keep_above_limits<S: Simd>(
    simd: S,
    rows: CodedRows<'_>,
    lists: ListsMut<'_>,
    queries: CodedQueries<'_>,
    limits: &[f32],
) -> (usize, usize) {
    assert!(rows.stride.is_multiple_of(CODE_VECTOR), "rows of codes are padded to {CODE_VECTOR}");
    assert_eq!(limits.len(), queries.scales.len(), "one limit for each example");
    if rows.stride == USUAL {
        keep_above_limits_of(simd, rows, USUAL / CODE_VECTOR, lists, queries, limits)
    } else {
        keep_above_limits_of(simd, rows, rows.stride / CODE_VECTOR, lists, queries, limits)
    }
}

#[inline(always)]
fn keep_above_limits_of<S: Simd>(
    simd: S,
    rows: CodedRows<'_>,
    stride: usize,
    ListsMut { groups, entries }: ListsMut<'_>,
    queries: CodedQueries<'_>,
    limits: &[f32],
) -> (usize, usize) {
    let first = groups.first().map_or(0, |group| group.start);
    let (mut kept_groups, mut kept) = (0, 0);
    for i in 0..groups.len() {
        let row = Row::of(rows, stride, groups, i);
        let KeyGroup { local_key, start } = groups[i];
        let end = groups.get(i + 1).map_or(entries.len(), |next| (next.start - first) as usize);
        let kept_before = kept;
        for at in ((start - first) as usize..end).step_by(4) {
            let four = match entries.get(at..at + 4) {
                Some(four) => [four[0], four[1], four[2], four[3]],
                None => four_of(&entries[at..]),
            };
            let mut stay = row.above(simd, queries, limits, four);
            // Few have flags.
            if (four[0] | four[1] | four[2] | four[3]) & FLAGS != 0 {
                (0..4).filter(|&lane| four[lane] & FLAGS != 0).for_each(|lane| stay |= 1 << lane);
            }
            // Those behind are the next list's, or none at all.
            stay &= (1 << (end - at).min(4)) - 1;
            // Few stay. Their places have been seen: no more are kept than were.
            while stay != 0 {
                entries[kept] = entries[at + stay.trailing_zeros() as usize];
                kept += 1;
                stay &= stay - 1;
            }
        }
        if kept > kept_before {
            groups[kept_groups] = KeyGroup { local_key, start: first + kept_before as u32 };
            kept_groups += 1;
        }
    }
    (kept_groups, kept)
}

/// Fewer than four entries, and the last of them again.
#[inline(always)]
fn four_of(entries: &[u32]) -> [u32; 4] {
    let last = entries[entries.len() - 1];
    std::array::from_fn(|i| entries.get(i).copied().unwrap_or(last))
}

/// A row of codes and what makes scores of it.
struct Row<'a> {
    codes: &'a [[i8; CODE_VECTOR]],
    coded: CodedRow,
    shift: f32,
}

impl<'a> Row<'a> {
    /// That of a group's key, of `stride` vectors; a later one is prefetched.
    #[inline(always)]
    fn of(rows: CodedRows<'a>, stride: usize, groups: &[KeyGroup], group: usize) -> Self {
        let (codes, _) = rows.codes.as_chunks::<CODE_VECTOR>();
        if let Some(later) = groups.get(group + LISTS_AHEAD) {
            let key = later.local_key as usize;
            prefetch(rows.coded, key);
            (0..stride).for_each(|line| prefetch(codes, key * stride + line));
        }
        let key = groups[group].local_key as usize;
        Self { codes: &codes[key * stride..][..stride], coded: rows.coded[key], shift: rows.shifts[key] }
    }

    /// The scores of four entries.
    #[inline(always)]
    fn scores<S: Simd>(&self, simd: S, queries: CodedQueries<'_>, entries: [u32; 4]) -> [f32; 4] {
        let (sums, scales) = dots_of_codes(simd, self.codes, queries, entries);
        scores_of(sums, self.coded, scales, self.shift)
    }

    /// Which of four entries have a score above the limit of their example, a bit each.
    #[inline(always)]
    fn above<S: Simd>(&self, simd: S, queries: CodedQueries<'_>, limits: &[f32], entries: [u32; 4]) -> u32 {
        let (sums, scales) = dots_of_codes(simd, self.codes, queries, entries);
        // SAFETY: there is a limit for each example that has a scale, and these have. Why it is
        // volatile is said where scales are read.
        let limits =
            entries.map(|entry| unsafe { std::ptr::read_volatile(limits.as_ptr().add(example(entry))) });
        simd.are_scores_above(sums, self.coded, scales, self.shift, limits)
    }
}

/// The sums of products of a row and four queries, and the queries' scales.
#[inline(always)]
fn dots_of_codes<S: Simd>(
    simd: S,
    row: &[[i8; CODE_VECTOR]],
    queries: CodedQueries<'_>,
    entries: [u32; 4],
) -> ([i32; 4], [f32; 4]) {
    let stride = row.len();
    let (codes, _) = queries.codes.as_chunks::<CODE_VECTOR>();
    let [a, b, c, d] = entries;
    // One question for all: eight, with two branches each, would take as long as the products.
    let last = example(a.max(b).max(c.max(d)));
    let is_inside = last < queries.scales.len() && (last + 1) * stride <= codes.len();
    assert!(is_inside, "example outside a batch of {}", queries.scales.len());
    let (mut others, mut scales) = ([&codes[..0]; 4], [0.0; 4]);
    for i in 0..4 {
        let example = example(entries[i]);
        // SAFETY: no example is above the last, which has a scale and a whole row of codes.
        // A volatile read is one that the compiler does not join with others: it would make a
        // gather of them, which takes several times as long.
        unsafe {
            others[i] = codes.get_unchecked(example * stride..(example + 1) * stride);
            scales[i] = std::ptr::read_volatile(queries.scales.as_ptr().add(example));
        }
    }
    let mut sums = [simd.splat_ints(0); 4];
    for (i, row) in row.iter().enumerate() {
        for n in 0..4 {
            sums[n] = simd.dot_codes(&others[n][i], row, sums[n]);
        }
    }
    (simd.reduce_sum_4_ints(sums), scales)
}
