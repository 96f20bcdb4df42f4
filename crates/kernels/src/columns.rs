//! Columns of bytes, sixteen side by side: rough scores of all rows for many queries.
//!
//! Where every class is scored for a batch, what [`codes`](crate::codes) does for lists would
//! spend as much time on adding up lanes as on products. Here a lane belongs to a class: a
//! register holds four numbers of each of sixteen classes, a query's four numbers are
//! repeated in all lanes, and nothing is left to be added up. Blocks of queries by classes have their
//! sums in registers.

use crate::simd::{Simd, load};
use crate::{CODE_VECTOR, COLUMN_BLOCK, CodedQueries, LANES};

/// Numbers of a column that lie side by side.
const TOGETHER: usize = CODE_VECTOR / LANES;

/// Columns of codes, whole blocks of [`COLUMN_BLOCK`].
#[derive(Clone, Copy, Debug)]
pub struct CodedColumns<'a> {
    /// As [`lay_column`] lays them.
    pub codes: &'a [i8],
    /// What each column's codes are multiplied with.
    pub scales: &'a [f32],
    /// What is too much in sums of products, because a query's codes are moved up, negative.
    pub starts: &'a [i32],
    /// What is added to each column's products.
    pub bias: &'a [f32],
}

/// Puts the codes of a row where [`dot_coded_columns`](crate::dot_coded_columns) finds them as
/// those of column `column`.
pub fn lay_column(row: &[i8], column: usize, codes: &mut [i8]) {
    assert!(row.len().is_multiple_of(TOGETHER), "columns have a multiple of {TOGETHER} numbers");
    let group = column / LANES * LANES * row.len();
    let places = codes[group..].chunks_exact_mut(CODE_VECTOR);
    for (numbers, place) in row.chunks_exact(TOGETHER).zip(places) {
        place[column % LANES * TOGETHER..][..TOGETHER].copy_from_slice(numbers);
    }
}

#[inline(always)]
pub(crate) fn dot_coded_columns<S: Simd>(
    simd: S,
    len: usize,
    queries: CodedQueries<'_>,
    columns: CodedColumns<'_>,
    out: &mut [f32],
    out_stride: usize,
) {
    let CodedColumns { codes, scales, starts, bias } = columns;
    let all = bias.len();
    assert!(len > 0 && len.is_multiple_of(TOGETHER), "columns have a multiple of {TOGETHER} numbers");
    assert!(all.is_multiple_of(COLUMN_BLOCK), "columns come in blocks of {COLUMN_BLOCK}");
    assert!(codes.len() == all * len && scales.len() == all && starts.len() == all, "parts of columns");
    assert_eq!(queries.codes.len(), queries.scales.len() * len, "a scale for each query");
    assert!(out_stride >= all, "rows of the output overlap");
    let product = Product { len: len / TOGETHER, queries, columns, out, out_stride };
    match S::REGISTERS {
        32 => product.fill::<S, 4, 4>(simd),
        8 => product.fill::<S, 2, 2>(simd),
        _ => product.fill::<S, 1, 1>(simd),
    }
}

/// The operands and the result; `len` in fours.
struct Product<'a> {
    len: usize,
    queries: CodedQueries<'a>,
    columns: CodedColumns<'a>,
    out: &'a mut [f32],
    out_stride: usize,
}

impl Product<'_> {
    /// Blocks of `M` queries by `V` vectors of columns; a block's columns stay near while all
    /// queries pass by.
    #[inline(always)]
    fn fill<S: Simd, const M: usize, const V: usize>(mut self, simd: S) {
        let queries = self.queries.scales.len();
        let whole = queries - queries % M;
        for first in (0..self.columns.bias.len()).step_by(COLUMN_BLOCK) {
            for column in (first..first + COLUMN_BLOCK).step_by(V * LANES) {
                for query in (0..whole).step_by(M) {
                    self.block::<S, M, V>(simd, query, column);
                }
                for query in whole..queries {
                    self.block::<S, 1, V>(simd, query, column);
                }
            }
        }
    }

    #[inline(always)]
    fn block<S: Simd, const M: usize, const V: usize>(&mut self, simd: S, query: usize, column: usize) {
        let Self { len, queries, columns, .. } = *self;
        let (codes, _) = columns.codes.as_chunks::<CODE_VECTOR>();
        let (numbers, _) = queries.codes.as_chunks::<TOGETHER>();
        let (mut of_columns, mut of_queries) = ([&codes[..0]; V], [&numbers[..0]; M]);
        for (v, codes_of) in of_columns.iter_mut().enumerate() {
            *codes_of = &codes[(column / LANES + v) * len..][..len];
        }
        for (m, numbers_of) in of_queries.iter_mut().enumerate() {
            *numbers_of = &numbers[(query + m) * len..][..len];
        }
        let (starts, _) = columns.starts[column..].as_chunks::<LANES>();
        let mut sums = [[simd.splat_ints(0); V]; M];
        for sums in &mut sums {
            for v in 0..V {
                sums[v] = simd.load_ints(bytemuck::cast_ref(&starts[v]));
            }
        }
        for i in 0..len {
            for m in 0..M {
                let four = simd.splat_ints(u32::from_le_bytes(of_queries[m][i].map(|code| code as u8)));
                for v in 0..V {
                    sums[m][v] = simd.dot_codes_of_lanes(four, &of_columns[v][i], sums[m][v]);
                }
            }
        }
        let (scales, _) = columns.scales[column..].as_chunks::<LANES>();
        let (bias, _) = columns.bias[column..].as_chunks::<LANES>();
        for (m, sums) in sums.into_iter().enumerate() {
            let scale = simd.splat(queries.scales[query + m]);
            let out = &mut self.out[(query + m) * self.out_stride + column..][..V * LANES];
            let (out, _) = out.as_chunks_mut::<LANES>();
            for v in 0..V {
                let factor = simd.mul(simd.load(&scales[v]), scale);
                let score = simd.mul_add(simd.ints_to_floats(sums[v]), factor, simd.load(&bias[v]));
                simd.store(score, &mut out[v]);
            }
        }
    }
}

#[inline(always)]
pub(crate) fn add_coded_rows<S: Simd>(simd: S, rows: &[(&[i8], f32)], sums: &mut [f32]) {
    const VECTORS: usize = COLUMN_BLOCK / LANES;
    assert!(sums.len().is_multiple_of(COLUMN_BLOCK), "sums come in blocks of {COLUMN_BLOCK}");
    assert!(rows.iter().all(|(row, _)| row.len() >= sums.len()), "a number for each sum");
    for (place, block) in sums.as_chunks_mut::<COLUMN_BLOCK>().0.iter_mut().enumerate() {
        let (block, _) = block.as_chunks_mut::<LANES>();
        let mut sums = [simd.zero(); VECTORS];
        for v in 0..VECTORS {
            sums[v] = load(simd, &block[v]);
        }
        for (row, factor) in rows {
            let (numbers, _) = row[place * COLUMN_BLOCK..][..COLUMN_BLOCK].as_chunks::<LANES>();
            let factor = simd.splat(*factor);
            for v in 0..VECTORS {
                let numbers = simd.ints_to_floats(simd.load_i8(&numbers[v]));
                sums[v] = simd.mul_add(numbers, factor, sums[v]);
            }
        }
        for v in 0..VECTORS {
            simd.store(sums[v], &mut block[v]);
        }
    }
}
