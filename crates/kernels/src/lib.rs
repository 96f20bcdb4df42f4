//! The arithmetic of lookalike.
//!
//! This crate answers one question: *how is a row of numbers turned into
//! another as fast as this CPU can?* It knows nothing of classes, examples or
//! training. Every kernel is a safe function that checks its slices, takes a
//! [`Cpu`] value saying which instructions may be used, and has a scalar twin
//! in [`mod@reference`] that tests compare it to.
//!
//! Rows are padded with zeroes to a multiple of [`LANES`] floats, so kernels
//! never meet a ragged end; padding stays zero because its gradient is zero.
//! Rows may lie anywhere, but the kernels on rows are two to three times faster
//! where they begin on a cache line, as in an [`AlignedVec`].
//! Slices of wrong lengths and indices out of bounds panic: they are mistakes
//! of the caller, never of the user's data.

/// The example of the crate's front page is run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct FrontPage;

mod aligned;
mod bits;
mod codes;
mod columns;
mod cpu;
mod element;
mod expand;
mod gemm;
mod hashing;
pub mod measure;
pub mod reference;
mod rows;
mod select;
mod simd;
mod softmax;
mod sorted;
mod tile;

pub use aligned::AlignedVec;
pub use columns::{CodedColumns, lay_column};
pub use cpu::{Cpu, CpuError};
pub use element::{Element, bf16};
pub use gemm::{Strided, gemm};
pub use sorted::{Common, SortedIds};

use simd::dispatch;

/// Floats in the widest register we use; rows are padded to a multiple of it.
pub const LANES: usize = 16;

/// `len` rounded up to whole registers.
pub const fn padded(len: usize) -> usize {
    len.div_ceil(LANES) * LANES
}

/// An entry of a class's (or feature's) list: the example's number in the batch
/// shifted left by this, with flags of the caller's in the low bits.
pub const FLAG_BITS: u32 = 2;

/// Rows of bits that [`transpose_bits`] turns around at once: as many as a word has.
pub const BIT_ROWS: usize = 64;

/// Words of each of them, side by side: what the widest register holds.
pub const BIT_WORDS: usize = 8;

/// Rows of codes are padded with zeroes to a multiple of this: what the widest register
/// holds.
pub const CODE_VECTOR: usize = 64;

/// What makes numbers of a row's codes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CodedRow {
    /// What codes are multiplied with.
    pub scale: f32,
    /// What is too much in a sum of products with a query, because its codes are moved up.
    pub above: i32,
}

/// Rows in a byte a number, of [`code_row`].
#[derive(Clone, Copy, Debug)]
pub struct CodedRows<'a> {
    /// Row after row.
    pub codes: &'a [i8],
    /// Distance between rows.
    pub stride: usize,
    /// What makes numbers of each row's codes.
    pub coded: &'a [CodedRow],
    /// What is added to each row's products.
    pub shifts: &'a [f32],
}

/// Rows in a byte a number, of [`code_query`], as far apart as those they are multiplied
/// with.
#[derive(Clone, Copy, Debug)]
pub struct CodedQueries<'a> {
    /// Row after row.
    pub codes: &'a [i8],
    /// What each row's codes are multiplied with.
    pub scales: &'a [f32],
}

/// Columns of codes come in whole blocks of so many.
pub const COLUMN_BLOCK: usize = 64;

/// Keys that occur, each with a list of entries.
#[derive(Clone, Copy, Debug)]
pub struct Lists<'a> {
    /// The keys, and where their entries start, counted from the first group's.
    pub groups: &'a [KeyGroup],
    /// Entries of all groups, one after the other.
    pub entries: &'a [u32],
}

/// [`Lists`] of which some entries are to be left out.
#[derive(Debug)]
pub struct ListsMut<'a> {
    /// The keys, and where their entries start, counted from the first group's.
    pub groups: &'a mut [KeyGroup],
    /// Entries of all groups, one after the other.
    pub entries: &'a mut [u32],
}

/// A key that has entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyGroup {
    /// The key, counted from the first of its part.
    pub local_key: u32,
    /// Where its entries start; they end where the next group's start.
    pub start: u32,
}

/// One step of Adam, everything that is the same for all rows.
///
/// `w -= rate · m / (sqrt(v) + epsilon)` after `m` and `v` took in the
/// gradient; `rate` and `epsilon` carry the bias corrections.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    /// Learning rate with both bias corrections folded in.
    pub rate: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Epsilon with the second moment's bias correction folded in.
    pub epsilon: f32,
}

/// A row of weights with its moments.
#[derive(Debug)]
pub struct Moments<'a, T> {
    /// The weights.
    pub w: &'a mut [T],
    /// First moments.
    pub m: &'a mut [T],
    /// Second moments.
    pub v: &'a mut [T],
    /// How many elements further on lies the row that memory is asked for, with its
    /// moments, while this one is worked on; 0 if none. Any number is harmless.
    pub ahead: usize,
}

/// Asks for a row to be brought near while other work goes on. A row from main
/// memory takes some 100 ns to come; asked for a few rows ahead, it costs
/// nothing.
#[inline]
pub fn prefetch_row<T: Element>(row: &[T]) {
    for line in (0..row.len()).step_by(CACHE_LINE_BYTES / size_of::<T>()) {
        simd::prefetch(row, line);
    }
}

/// Asks for the cache line of `data[at]`. Harmless whatever `at` is.
#[inline]
pub fn prefetch<T>(data: &[T], at: usize) {
    simd::prefetch(data, at);
}

const CACHE_LINE_BYTES: usize = 64;

dispatch! {
    /// `out[i] = row · rows[entries[i] >> FLAG_BITS]`: one class against the
    /// embeddings of its examples. `rows` has the stride of `row`.
    ///
    /// Where both are bf16, products are of the stored numbers and sums are
    /// f32; on AVX-512 BF16 they are taken two by two (`vdpbf16ps`, which takes
    /// numbers below 2^-126 for zero).
    pub fn gather_dot<A: Element, B: Element>(
        row: &[A],
        rows: &[B],
        entries: &[u32],
        out: &mut [f32],
    ) = rows::gather_dot;

    /// `out[i * out_stride + j] = rows[i] · columns[j] + bias[j]`: embeddings against
    /// classes, rows of `stride` both. Every product is that of [`gather_dot`], to the
    /// bit, whatever stands beside it.
    pub fn dot_rows<T: Element>(
        stride: usize,
        rows: &[f32],
        columns: &[T],
        bias: &[f32],
        out: &mut [f32],
        out_stride: usize,
    ) = tile::dot_rows;

    /// `out[i] = query · codes[i]`, rows of bytes as long as the query. The same on every
    /// level. Sums beyond i32 wrap around.
    pub fn dot_codes(query: &[i16], codes: &[i8], out: &mut [i32]) = codes::dot_codes;

    /// Writes a row as whole numbers of at most 127: each number is within half of the
    /// scale, which is the largest of them over 127. On every level the same, for finite
    /// numbers.
    pub fn code_row<T: Element>(row: &[T], codes: &mut [i8]) -> CodedRow = codes::code_row;

    /// Writes a query for [`gather_dot_codes`] as whole numbers of at most 63, moved up by
    /// 64, and gives what they are multiplied with.
    pub fn code_query<T: Element>(row: &[T], codes: &mut [i8]) -> f32 = codes::code_query;

    /// About `rows[key] · queries[e] + shift` for every entry of each key's list, with
    /// `e = entry >> FLAG_BITS`, from codes. Products and sums of codes are exact, so every
    /// level gives the same bits. Sums beyond i32 wrap around.
    pub fn gather_dot_codes(
        rows: CodedRows<'_>,
        lists: Lists<'_>,
        queries: CodedQueries<'_>,
        out: &mut [f32],
    ) = codes::gather_dot_codes;

    /// About `queries[i] · columns[j] + bias[j]`, as `out[i * out_stride + j]`, from codes:
    /// each level within a rounding of the other. Rows and columns have `len` numbers, a
    /// multiple of four; sums beyond i32 wrap around.
    pub fn dot_coded_columns(
        len: usize,
        queries: CodedQueries<'_>,
        columns: CodedColumns<'_>,
        out: &mut [f32],
        out_stride: usize,
    ) = columns::dot_coded_columns;

    /// `sums[i] += Σ factor · row[i]` over some rows of whole numbers, each as long as the
    /// sums at least, of which there are a multiple of [`COLUMN_BLOCK`].
    pub fn add_coded_rows(rows: &[(&[i8], f32)], sums: &mut [f32]) = columns::add_coded_rows;

    /// Leaves those entries of each key's list whose score, that of [`gather_dot_codes`], is
    /// above the limit of its example, `limits[entry >> FLAG_BITS]`, or that have flags. What
    /// stays, and the keys of which something stays, are moved to the front in their order;
    /// what is behind is left open. Gives how many keys and how many entries stay.
    pub fn keep_above_limits(
        rows: CodedRows<'_>,
        lists: ListsMut<'_>,
        queries: CodedQueries<'_>,
        limits: &[f32],
    ) -> (usize, usize) = codes::keep_above_limits;

    /// One Adam step of a row, of any length. `noise` seeds the stochastic
    /// rounding of bf16 storage and is ignored for f32.
    pub fn adam_row<T: Element>(
        step: &AdamStep,
        grad: &[f32],
        w: &mut [T],
        m: &mut [T],
        v: &mut [T],
        noise: u64,
    ) = rows::adam_row;

    /// Both directions of a class's gradient, `Σ g[i] · rows[e_i]` for the class and
    /// `d_rows[e_i] += g[i] · row` for the examples, with `e_i = entries[i] >> FLAG_BITS`,
    /// and [`adam_row`] with the former, which never leaves the registers.
    #[expect(clippy::too_many_arguments, reason = "the operands of both")]
    pub fn backward_adam_row<A: Element, B: Element>(
        step: &AdamStep,
        row: Moments<'_, A>,
        rows: &[B],
        d_rows: &mut [f32],
        entries: &[u32],
        g: &[f32],
        noise: u64,
    ) = rows::backward_adam_row;

    /// `out += Σ weights[i] · rows[ids[i]]`, rows of `out.len()` each. Rows beyond the last
    /// weight come next: they are asked for ahead.
    pub fn sum_rows<T: Element>(
        rows: &[T],
        ids: &[u32],
        weights: &[f32],
        out: &mut [f32],
    ) = rows::sum_rows;

    /// `max[e] = max(max[e], scores[i])` with `e = entries[i] >> FLAG_BITS`.
    pub fn scatter_max(scores: &[f32], entries: &[u32], max: &mut [f32]) = softmax::scatter_max;

    /// `scores[i] = exp(scores[i] - max[e])`, and `sum[e]` grows by it.
    pub fn scatter_exp(
        scores: &mut [f32],
        entries: &[u32],
        max: &[f32],
        sum: &mut [f32],
    ) = softmax::scatter_exp;

    /// `scores[i] *= factor[e]`.
    pub fn gather_scale(
        scores: &mut [f32],
        entries: &[u32],
        factor: &[f32],
    ) = softmax::gather_scale;

    /// `scores[i] = exp(scores[i] - max)`; returns their sum.
    pub fn exp_sum(scores: &mut [f32], max: f32) -> f32 = softmax::exp_sum;

    /// Lays 16 rows side by side: `out[j * LANES + r] = rows[r][j]` for
    /// `j < dim`.
    pub fn transpose_rows<T: Element>(
        rows: &[&[T]; LANES],
        dim: usize,
        out: &mut [f32],
    ) = hashing::transpose_rows;

    /// Winner-take-all codes of 16 transposed rows (see [`transpose_rows`]).
    ///
    /// `dims` lists the dimensions of every bin one after the other, `bin`
    /// each; a hash is the position of the largest value in its bin, the first
    /// one if there are several. A table's code is `Σ hash_k << (shift · k)`
    /// over its `k` consecutive bins; `out[t * LANES + r]` is the code of row
    /// `r` in table `t`.
    pub fn dwta_codes(
        transposed: &[f32],
        dims: &[u32],
        bin: usize,
        k: usize,
        shift: u32,
        out: &mut [u32],
    ) = hashing::dwta_codes;

    /// Turns squares of bits around that lie side by side: bit `c` of word `w` of
    /// row `r` becomes bit `r` of word `w` of row `c`.
    pub fn transpose_bits(rows: &mut [[u64; BIT_WORDS]; BIT_ROWS]) = bits::transpose_bits;

    /// How many bits are set.
    pub fn count_ones(words: &[u64]) -> usize = bits::count_ones;

    /// Writes the index of every bit that is set, counted through all words from
    /// the first one's lowest bit and shifted left by `shift`, and gives their
    /// number. `out` needs 64 places more than that; what it holds behind is left open.
    pub fn indices_of_ones(
        words: &[u64],
        shift: u32,
        out: &mut [u32],
    ) -> usize = bits::indices_of_ones;

    /// Appends to `out` the index of every score above `threshold`, in order.
    pub fn indices_above(
        scores: &[f32],
        threshold: f32,
        out: &mut Vec<u32>,
    ) = select::indices_above;

    /// Appends to `out` the index of every entry that has the bit `flag`, in
    /// order.
    pub fn indices_flagged(
        entries: &[u32],
        flag: u32,
        out: &mut Vec<u32>,
    ) = select::indices_flagged;

    /// Takes out the sums of the lines that are marked, [`LANES`] numbers each: writes the
    /// index of every sum above 0, in order, and as its score what it has with `added`,
    /// and gives their number. Sums and marks of these lines are 0 afterwards. `indices`
    /// and `scores` need [`LANES`] places more than that; what they hold behind is left open.
    pub fn take_positive(
        sums: &mut [f32],
        marks: &mut [u8],
        added: &[f32],
        indices: &mut [u32],
        scores: &mut [f32],
    ) -> usize = select::take_positive;

    /// `sums[i] += factor · weight` for every set bit, which take the weights in turn: bit
    /// `j` of mask `m` stands for `sums[m · LANES + j]`. Gives the number of set bits; none
    /// may stand for a sum that there is not. The same bits on every level.
    pub fn add_expanded(
        factor: f32,
        masks: &[u16],
        weights: &[f32],
        sums: &mut [f32],
    ) -> usize = expand::add_expanded;

    /// Writes where the ids stand that an ascending `list` has in common with the row, in
    /// order, and gives their number. `out` is as long as the list at least; what it holds
    /// behind is left open.
    pub fn common_ids(row: SortedIds<'_>, list: &[u32], out: &mut [Common]) -> usize = sorted::common_ids;
}
