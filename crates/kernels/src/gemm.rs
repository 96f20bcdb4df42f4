//! Matrix product, for the full softmax: `2 m n k` operations, near the
//! machine's peak.
//!
//! The usual three levels. A tile of `c` stays in registers while it runs
//! through `k`: what it reads of `b` is a *panel*, a few vectors wide and
//! [`DEPTH`] deep, that stays in L1, and what it reads of `a` is broadcast.
//! Panels are packed once for a block of `b` that stays in L2, rows of `a` once
//! for each such block; packing turns any strides and either format into dense
//! floats, costs O(mk + kn) beside O(mnk), and lets the inner loop meet one
//! layout only. Scratch memory belongs to the thread and is allocated once.

use std::cell::RefCell;

use crate::simd::{Simd, dispatch, load};
use crate::{AlignedVec, Cpu, Element, LANES};

/// A strided view of a matrix operand for [`gemm`]: element `(i, j)` is
/// `data[i * row_stride + j * column_stride]`.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a, T> {
    /// The elements.
    pub data: &'a [T],
    /// Distance between rows.
    pub row_stride: usize,
    /// Distance between columns.
    pub column_stride: usize,
}

/// Steps of `k` taken at once: a panel of 4 vectors is then 32 KiB.
const DEPTH: usize = 128;
/// Rows of `a` packed at once, a multiple of every tile's rows and of [`LANES`]:
/// 72 KiB.
const BLOCK_ROWS: usize = 144;
/// Vectors of `b`'s columns packed at once, a multiple of every tile's: 256 KiB.
const BLOCK_VECTORS: usize = 32;

struct Scratch {
    a: AlignedVec<f32>,
    b: AlignedVec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        a: AlignedVec::zeroed(BLOCK_ROWS * DEPTH),
        b: AlignedVec::zeroed(BLOCK_VECTORS * LANES * DEPTH),
    });
}

/// `c += a · b`: `a` is `m × k` and `b` is `k × n`, both with any strides
/// (fastest where one of the two is 1), `c` is `m × n` with rows contiguous and
/// `c_stride` apart.
#[expect(clippy::too_many_arguments, reason = "three operands, three sizes")]
pub fn gemm<A: Element, B: Element>(
    cpu: Cpu,
    m: usize,
    n: usize,
    k: usize,
    a: Strided<'_, A>,
    b: Strided<'_, B>,
    c: &mut [f32],
    c_stride: usize,
) {
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    assert!(m == 1 || c_stride >= n, "rows of c overlap");
    let c = &mut c[..(m - 1) * c_stride + n];
    // The closure must do no arithmetic: it is not compiled for the CPU's level.
    SCRATCH.with_borrow_mut(|scratch| {
        gemm_blocks(cpu, [m, n, k], a, b, c, c_stride, scratch);
    });
}

dispatch! {
    fn gemm_blocks<A: Element, B: Element>(
        sizes: [usize; 3],
        a: Strided<'_, A>,
        b: Strided<'_, B>,
        c: &mut [f32],
        c_stride: usize,
        scratch: &mut Scratch,
    ) = blocks;
}

#[inline(always)]
fn blocks<S: Simd, A: Element, B: Element>(
    simd: S,
    sizes: [usize; 3],
    a: Strided<'_, A>,
    b: Strided<'_, B>,
    c: &mut [f32],
    c_stride: usize,
    scratch: &mut Scratch,
) {
    // The tile's sums, a row of the panel and a broadcast must fit the registers.
    match S::REGISTERS {
        32 => tiled::<S, A, B, 6, 4>(simd, sizes, a, b, c, c_stride, scratch),
        8 => tiled::<S, A, B, 6, 1>(simd, sizes, a, b, c, c_stride, scratch),
        _ => tiled::<S, A, B, 2, 1>(simd, sizes, a, b, c, c_stride, scratch),
    }
}

/// Blocks of `b`, then of `a`, then panels, then tiles of `ROWS` by `VECTORS`.
#[inline(always)]
fn tiled<S: Simd, A: Element, B: Element, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    [m, n, k]: [usize; 3],
    a: Strided<'_, A>,
    b: Strided<'_, B>,
    c: &mut [f32],
    c_stride: usize,
    scratch: &mut Scratch,
) {
    let width = VECTORS * LANES;
    let packed_a: &mut [f32] = &mut scratch.a;
    let packed_b: &mut [f32] = &mut scratch.b;
    for p in (0..k).step_by(DEPTH) {
        let depth = DEPTH.min(k - p);
        for j in (0..n).step_by(BLOCK_VECTORS * LANES) {
            let columns = (n - j).min(BLOCK_VECTORS * LANES);
            for (at, panel) in (0..columns).step_by(width).zip(panels(packed_b, width)) {
                let place = Block { row: p, column: j + at, rows: depth, columns: width.min(columns - at) };
                pack(simd, b, place, panel, width);
            }
            for i in (0..m).step_by(BLOCK_ROWS) {
                let rows = BLOCK_ROWS.min(m - i);
                let place = Block { row: i, column: p, rows, columns: depth };
                pack(simd, a, place, packed_a, DEPTH);
                for (at, panel) in (0..columns).step_by(width).zip(panels(packed_b, width)) {
                    let valid = width.min(columns - at);
                    let (panel, _) = panel.as_chunks::<LANES>();
                    let (a_rows, _) = packed_a.as_chunks::<DEPTH>();
                    let (tiles, _) = a_rows.as_chunks::<ROWS>();
                    for (tile, row) in tiles.iter().zip((0..rows).step_by(ROWS)) {
                        let sums = multiply::<S, ROWS, VECTORS>(simd, depth, tile, panel);
                        let c = &mut c[(i + row) * c_stride + j + at..];
                        add_tile(simd, sums, c, c_stride, ROWS.min(rows - row), valid);
                    }
                }
            }
        }
    }
}

/// The inner loop: the product of `ROWS` rows of `a` with a panel of `b`.
#[inline(always)]
fn multiply<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    depth: usize,
    a: &[[f32; DEPTH]; ROWS],
    panel: &[[f32; LANES]],
) -> [[S::Floats; VECTORS]; ROWS] {
    let mut sums = [[simd.zero(); VECTORS]; ROWS];
    let (panel, _) = panel.as_chunks::<VECTORS>();
    for p in 0..depth.min(DEPTH).min(panel.len()) {
        let mut b = [simd.zero(); VECTORS];
        for (b, vector) in b.iter_mut().zip(&panel[p]) {
            *b = simd.load(vector);
        }
        for row in 0..ROWS {
            let x = simd.splat(a[row][p]);
            for v in 0..VECTORS {
                sums[row][v] = simd.mul_add(x, b[v], sums[row][v]);
            }
        }
    }
    sums
}

/// Adds the first `rows` and `columns` of a tile to the matrix at `c`.
#[inline(always)]
fn add_tile<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    sums: [[S::Floats; VECTORS]; ROWS],
    c: &mut [f32],
    c_stride: usize,
    rows: usize,
    columns: usize,
) {
    if rows == ROWS && columns == VECTORS * LANES {
        for (row, sums) in sums.iter().enumerate() {
            let (c, _) = c[row * c_stride..][..VECTORS * LANES].as_chunks_mut();
            for v in 0..VECTORS {
                simd.store(simd.add(simd.load(&c[v]), sums[v]), &mut c[v]);
            }
        }
        return;
    }
    let mut tile = [[[0.0; LANES]; VECTORS]; ROWS];
    for (tile, sums) in tile.iter_mut().zip(&sums) {
        for v in 0..VECTORS {
            simd.store(sums[v], &mut tile[v]);
        }
    }
    for (row, sums) in tile[..rows].iter().enumerate() {
        let c = &mut c[row * c_stride..][..columns];
        for (c, sum) in c.iter_mut().zip(sums.as_flattened()) {
            *c += sum;
        }
    }
}

/// Part of a matrix.
#[derive(Clone, Copy)]
struct Block {
    row: usize,
    column: usize,
    rows: usize,
    columns: usize,
}

/// Copies a block into dense rows `stride` apart. What lies outside the block
/// keeps old values, which end in sums that are never written to `c`.
#[inline(always)]
fn pack<S: Simd, T: Element>(simd: S, from: Strided<'_, T>, block: Block, to: &mut [f32], stride: usize) {
    let Strided { data, row_stride, column_stride } = from;
    let data = &data[block.row * row_stride + block.column * column_stride..];
    if column_stride == 1 {
        for (r, to) in to.chunks_exact_mut(stride).take(block.rows).enumerate() {
            copy_row(simd, &data[r * row_stride..][..block.columns], to);
        }
        return;
    }
    // Sixteen columns that lie along memory are turned around at a time.
    let whole = |len: usize| {
        if row_stride == 1 { len / LANES * LANES } else { 0 }
    };
    let (whole_rows, whole_columns) = (whole(block.rows), whole(block.columns));
    for c in (0..whole_columns).step_by(LANES) {
        for r in (0..whole_rows).step_by(LANES) {
            let mut square = [simd.zero(); LANES];
            for (i, column) in square.iter_mut().enumerate() {
                let (vector, _) = data[r + (c + i) * column_stride..].as_chunks();
                *column = load(simd, &vector[0]);
            }
            for (i, row) in simd.transpose(square).into_iter().enumerate() {
                let (vector, _) = to[(r + i) * stride + c..].as_chunks_mut();
                simd.store(row, &mut vector[0]);
            }
        }
    }
    for r in 0..block.rows {
        let done = if r < whole_rows { whole_columns } else { 0 };
        for c in done..block.columns {
            to[r * stride + c] = data[r * row_stride + c * column_stride].to_f32();
        }
    }
}

#[inline(always)]
fn copy_row<S: Simd, T: Element>(simd: S, from: &[T], to: &mut [f32]) {
    let (from_vectors, from_rest) = from.as_chunks();
    let (to_vectors, to_rest) = to[..from.len()].as_chunks_mut();
    for (from, to) in from_vectors.iter().zip(to_vectors) {
        simd.store(load(simd, from), to);
    }
    for (from, to) in from_rest.iter().zip(to_rest) {
        *to = from.to_f32();
    }
}

/// The packed panels of a block, each [`DEPTH`] rows of `width`.
#[inline(always)]
fn panels(packed: &mut [f32], width: usize) -> impl Iterator<Item = &mut [f32]> {
    packed.chunks_exact_mut(width * DEPTH)
}
