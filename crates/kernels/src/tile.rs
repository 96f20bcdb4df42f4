//! Rows against rows: the scores of some hundred classes for some hundred
//! examples, O(rows × columns × stride).
//!
//! Unlike in [`gemm`](crate::gemm) lanes run along a row and are added up at its
//! end, as [`gather_dot`](crate::gather_dot) does it, so that a product does not
//! depend on what is asked for beside it. The price are the sums over lanes, a
//! quarter of the time at 128 floats. Blocks of rows by columns have their sums in
//! registers, and some rows stay in L1 while all columns pass by. One row alone
//! takes the columns as fast as memory gives them.

use crate::rows::dots;
use crate::simd::{Simd, vectors};
use crate::{Element, LANES};

/// Rows that meet a column before the next one comes: 16 KiB of 128 floats.
const NEAR_ROWS: usize = 32;

/// Columns whose sums over lanes share their shuffles.
const COLUMNS: usize = 4;

#[inline(always)]
pub(crate) fn dot_rows<S: Simd, T: Element>(
    simd: S,
    stride: usize,
    rows: &[f32],
    columns: &[T],
    bias: &[f32],
    out: &mut [f32],
    out_stride: usize,
) {
    assert!(stride > 0 && stride.is_multiple_of(LANES), "rows must be padded to a multiple of {LANES}");
    assert!(out_stride >= bias.len(), "rows of the output overlap");
    assert_eq!(columns.len(), bias.len() * stride, "one bias for each column");
    let (rows, columns) = (vectors(rows), vectors(columns));
    Tile { stride: stride / LANES, rows, columns, bias, out, out_stride }.fill(simd);
}

/// The operands and the result; `stride` in vectors, `out_stride` in floats.
struct Tile<'a, T> {
    stride: usize,
    rows: &'a [[f32; LANES]],
    columns: &'a [[T; LANES]],
    bias: &'a [f32],
    out: &'a mut [f32],
    out_stride: usize,
}

impl<T: Element> Tile<'_, T> {
    #[inline(always)]
    fn fill<S: Simd>(mut self, simd: S) {
        // The sums of a block, its rows and a column must fit the registers.
        match S::REGISTERS {
            32 => self.fill_by::<S, 4, 4>(simd),
            8 => self.fill_by::<S, 2, 2>(simd),
            _ => self.fill_by::<S, 1, 4>(simd),
        }
    }

    /// Blocks of `M` rows by `N` columns, and what is left over. The loop over a row
    /// stays one: where it is unrolled, columns are loaded too early and do not fit.
    #[inline(always)]
    fn fill_by<S: Simd, const M: usize, const N: usize>(&mut self, simd: S) {
        let (rows, columns) = (self.rows.len() / self.stride, self.bias.len());
        let whole_columns = columns - columns % COLUMNS;
        for near in (0..rows).step_by(NEAR_ROWS) {
            let near = near..rows.min(near + NEAR_ROWS);
            let whole_rows = near.end - near.len() % M;
            for four in (0..whole_columns).step_by(COLUMNS) {
                for column in (four..four + COLUMNS).step_by(N) {
                    for row in (near.start..whole_rows).step_by(M) {
                        self.block::<S, M, N>(simd, row, column);
                    }
                }
                for row in whole_rows..near.end {
                    self.block::<S, 1, COLUMNS>(simd, row, four);
                }
            }
            for column in whole_columns..columns {
                for row in near.clone() {
                    let [[sum]] = dots(simd, [self.row(row)], [self.column(column)]);
                    self.put(row, column, [simd.reduce_sum(sum)]);
                }
            }
        }
    }

    #[inline(always)]
    fn block<S: Simd, const M: usize, const N: usize>(&mut self, simd: S, row: usize, column: usize) {
        let mut rows = [self.row(row); M];
        for (m, of_block) in rows.iter_mut().enumerate() {
            *of_block = self.row(row + m);
        }
        let mut columns = [self.column(column); N];
        for (n, of_block) in columns.iter_mut().enumerate() {
            *of_block = self.column(column + n);
        }
        let mut sums = [[simd.zero(); N]; M];
        if M == 1 {
            // One column after the other: memory gives three times as much where it is
            // read in order as with four columns side by side.
            for n in 0..N {
                [[sums[0][n]]] = dots(simd, [rows[0]], [columns[n]]);
            }
        } else {
            sums = dots(simd, rows, columns);
        }
        let mut products = [[0.0; N]; M];
        let (fours, _) = products.as_flattened_mut().as_chunks_mut::<4>();
        for (to, from) in fours.iter_mut().zip(sums.as_flattened().as_chunks::<4>().0) {
            *to = simd.reduce_sum_4(*from);
        }
        for (m, products) in products.into_iter().enumerate() {
            self.put(row + m, column, products);
        }
    }

    #[inline(always)]
    fn row(&self, row: usize) -> &[[f32; LANES]] {
        &self.rows[row * self.stride..][..self.stride]
    }

    #[inline(always)]
    fn column(&self, column: usize) -> &[[T; LANES]] {
        &self.columns[column * self.stride..][..self.stride]
    }

    #[inline(always)]
    fn put<const N: usize>(&mut self, row: usize, column: usize, products: [f32; N]) {
        let out = &mut self.out[row * self.out_stride + column..][..N];
        for ((out, product), bias) in out.iter_mut().zip(products).zip(&self.bias[column..][..N]) {
            *out = product + bias;
        }
    }
}
