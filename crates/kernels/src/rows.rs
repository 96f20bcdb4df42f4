//! A row against many rows: scores, gradients, updates and weighted sums.
//!
//! All of them cost O(rows × stride) and touch each row once. What bounds them
//! is the way of the data, not arithmetic: 128 floats are 8 fused
//! multiply-adds, done in 4 cycles, and 8 cache lines, which take 10 or more to
//! come from L2. So the row that stays is held in registers, and rows that come
//! from far away are asked for ahead. Rows in L2 are not: out-of-order execution
//! sees far enough, and prefetching them made [`gather_dot`] a fifth slower.

use crate::reference::NOISE_MULTIPLIERS;
use crate::simd::{Simd, filled, load, prefetch, store_stochastic, vectors, vectors_mut};
use crate::{AdamStep, CACHE_LINE_BYTES, Element, FLAG_BITS, LANES, Moments, bf16};

/// The usual row, 128 floats: kernels are compiled specially for it.
const USUAL_VECTORS: usize = 8;

/// Rows that [`sum_rows`] asks for before they are needed: enough to cover the
/// latency of memory, few enough to stay in L1.
const ROWS_AHEAD: usize = 6;

/// Runs a body for blocks of columns that together are `$count` vectors, the
/// block's width a constant: so wide that two blocks fit the registers, then
/// what is left over in ever narrower blocks.
macro_rules! column_blocks {
    ($simd:ident, $count:expr, |$column:ident, $WIDTH:ident| $body:block) => {{
        let count = $count;
        let mut $column = 0;
        column_blocks!(@width 8, $simd, count, $column, $WIDTH, $body);
        column_blocks!(@width 4, $simd, count, $column, $WIDTH, $body);
        column_blocks!(@width 2, $simd, count, $column, $WIDTH, $body);
        column_blocks!(@width 1, $simd, count, $column, $WIDTH, $body);
    }};
    (@width $width:literal, $simd:ident, $count:ident, $column:ident, $WIDTH:ident, $body:block) => {
        if $simd::REGISTERS >= 2 * $width {
            const $WIDTH: usize = $width;
            while $count - $column >= $WIDTH {
                $body
                $column += $WIDTH;
            }
        }
    };
}

#[inline(always)]
pub(crate) fn example(entry: u32) -> usize {
    (entry >> FLAG_BITS) as usize
}

#[inline(always)]
pub(crate) fn gather_dot<S: Simd, A: Element, B: Element>(
    simd: S,
    row: &[A],
    rows: &[B],
    entries: &[u32],
    out: &mut [f32],
) {
    assert_eq!(entries.len(), out.len(), "one output for each entry");
    let row = vectors(row);
    let (rows, _) = rows.as_chunks();
    if row.len() == USUAL_VECTORS {
        // With the length known, the loops unroll and the row stays in registers.
        gather_dot_of(simd, &row[..USUAL_VECTORS], rows, entries, out);
    } else {
        gather_dot_of(simd, row, rows, entries, out);
    }
}

#[inline(always)]
fn gather_dot_of<S: Simd, A: Element, B: Element>(
    simd: S,
    row: &[[A; LANES]],
    rows: &[[B; LANES]],
    entries: &[u32],
    out: &mut [f32],
) {
    let stride = row.len();
    // Four at once: independent sums hide the latency of the additions, and the
    // sums over lanes share their shuffles.
    let (fours, rest) = entries.as_chunks::<4>();
    let (out_fours, out_rest) = out.as_chunks_mut::<4>();
    for (entries, out) in fours.iter().zip(out_fours) {
        let mut others = [&rows[..0]; 4];
        for (other, &entry) in others.iter_mut().zip(entries) {
            *other = &rows[example(entry) * stride..][..stride];
        }
        let [sums] = dots(simd, [row], others);
        *out = simd.reduce_sum_4(sums);
    }
    for (&entry, out) in rest.iter().zip(out_rest) {
        let other = &rows[example(entry) * stride..][..stride];
        let [[sum]] = dots(simd, [row], [other]);
        *out = simd.reduce_sum(sum);
    }
}

/// The dot products of each of some rows with each of the others, lanes not yet
/// added up. Every score is summed here: it has the same bits however many are asked
/// for at once.
#[inline(always)]
pub(crate) fn dots<S: Simd, A: Element, B: Element, const M: usize, const N: usize>(
    simd: S,
    rows: [&[[A; LANES]]; M],
    others: [&[[B; LANES]]; N],
) -> [[S::Floats; N]; M] {
    let mut sums = [[simd.zero(); N]; M];
    let len = rows[0].len();
    let mut first = 0;
    if !A::IS_F32 && !B::IS_F32 {
        // Two vectors of bf16 fill one register.
        while first + 2 <= len {
            for m in 0..M {
                for n in 0..N {
                    let (row, other) = (pair(&rows[m][first..]), pair(&others[n][first..]));
                    sums[m][n] = simd.dot_bf16(row, other, sums[m][n]);
                }
            }
            first += 2;
        }
    }
    for i in first..len {
        let mut vectors = [simd.zero(); M];
        for m in 0..M {
            vectors[m] = load(simd, &rows[m][i]);
        }
        for n in 0..N {
            let other = load(simd, &others[n][i]);
            for m in 0..M {
                sums[m][n] = simd.mul_add(vectors[m], other, sums[m][n]);
            }
        }
    }
    sums
}

/// The first two vectors of a row of bf16.
#[inline(always)]
fn pair<T: Element>(row: &[[T; LANES]]) -> &[[bf16; LANES]; 2] {
    let two: &[[T; LANES]; 2] = row[..2].try_into().expect("two vectors");
    bytemuck::cast_ref(two)
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the operands of a gradient and of adam_row")]
pub(crate) fn backward_adam_row<S: Simd, A: Element, B: Element>(
    simd: S,
    step: &AdamStep,
    row: Moments<'_, A>,
    rows: &[B],
    d_rows: &mut [f32],
    entries: &[u32],
    g: &[f32],
    noise: u64,
) {
    assert_eq!(entries.len(), g.len(), "one gradient for each entry");
    let mut ahead = RowAhead::new(row.ahead, row.w.len());
    let (w, m, v) = (vectors_mut(row.w), vectors_mut(row.m), vectors_mut(row.v));
    assert_eq!(w.len(), m.len(), "first moments have the row's length");
    assert_eq!(w.len(), v.len(), "second moments have the row's length");
    let (rows, _) = rows.as_chunks();
    let (d_rows, _) = d_rows.as_chunks_mut();
    let mut noise = Noise::new(simd, noise);
    column_blocks!(S, w.len(), |column, WIDTH| {
        let meanwhile = || ahead.ask([&*w, &*m, &*v]);
        let sums = backward_columns::<S, A, B, WIDTH>(simd, column, w, rows, d_rows, entries, g, meanwhile);
        for (i, &grad) in (column..).zip(&sums) {
            adam_vector(simd, step, grad, &mut w[i], &mut m[i], &mut v[i], &mut noise);
        }
    });
    ahead.ask_for_rest([&*w, &*m, &*v]);
}

/// A row that memory is asked for with its moments, a few lines a pair: all at once
/// would be more than a core can have under way, and it would wait.
struct RowAhead {
    next: usize,
    end: usize,
}

impl RowAhead {
    /// The row of `len` elements that begins `distance` after the one at hand.
    #[inline(always)]
    fn new(distance: usize, len: usize) -> Self {
        Self { next: distance, end: if distance > 0 { distance.saturating_add(len) } else { 0 } }
    }

    /// Asks for a line of each, if there is one left.
    #[inline(always)]
    fn ask<T: Element>(&mut self, rows: [&[[T; LANES]]; 3]) {
        if self.next < self.end {
            for row in rows {
                prefetch(row.as_flattened(), self.next);
            }
            self.next = self.next.saturating_add(CACHE_LINE_BYTES / size_of::<T>());
        }
    }

    #[inline(always)]
    fn ask_for_rest<T: Element>(&mut self, rows: [&[[T; LANES]]; 3]) {
        while self.next < self.end {
            self.ask(rows);
        }
    }
}

/// The gradients of [`backward_adam_row`] in `WIDTH` vectors of columns: the row's and the gradient's
/// stay in registers. `meanwhile` is called for each pair; it should do no arithmetic:
/// a closure that is not inlined is not compiled for the CPU's level.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the operands of both gradients")]
fn backward_columns<S: Simd, A: Element, B: Element, const WIDTH: usize>(
    simd: S,
    column: usize,
    row: &[[A; LANES]],
    rows: &[[B; LANES]],
    d_rows: &mut [[f32; LANES]],
    entries: &[u32],
    g: &[f32],
    mut meanwhile: impl FnMut(),
) -> [S::Floats; WIDTH] {
    let stride = row.len();
    let mut weights = [simd.zero(); WIDTH];
    for (i, weight) in weights.iter_mut().enumerate() {
        *weight = load(simd, &row[column + i]);
    }
    let mut sums = [simd.zero(); WIDTH];
    for (&entry, &g) in entries.iter().zip(g) {
        let at = example(entry) * stride + column;
        let x = &rows[at..][..WIDTH];
        let d = &mut d_rows[at..][..WIDTH];
        let g = simd.splat(g);
        meanwhile();
        for i in 0..WIDTH {
            sums[i] = simd.mul_add(g, load(simd, &x[i]), sums[i]);
            simd.store(simd.mul_add(g, weights[i], simd.load(&d[i])), &mut d[i]);
        }
    }
    sums
}

#[inline(always)]
pub(crate) fn sum_rows<S: Simd, T: Element>(
    simd: S,
    rows: &[T],
    ids: &[u32],
    weights: &[f32],
    out: &mut [f32],
) {
    assert!(ids.len() >= weights.len(), "a row for each weight");
    let (rows, _) = rows.as_chunks();
    let out = vectors_mut(out);
    column_blocks!(S, out.len(), |column, WIDTH| {
        sum_columns::<S, T, WIDTH>(simd, column, rows, ids, weights, out);
    });
}

/// [`sum_rows`] in `WIDTH` vectors of columns, held in registers.
#[inline(always)]
fn sum_columns<S: Simd, T: Element, const WIDTH: usize>(
    simd: S,
    column: usize,
    rows: &[[T; LANES]],
    ids: &[u32],
    weights: &[f32],
    out: &mut [[f32; LANES]],
) {
    let stride = out.len();
    let mut sums = [simd.zero(); WIDTH];
    for (i, sum) in sums.iter_mut().enumerate() {
        *sum = simd.load(&out[column + i]);
    }
    for (n, (&id, &weight)) in ids.iter().zip(weights).enumerate() {
        if let Some(&ahead) = ids.get(n + ROWS_AHEAD) {
            prefetch_columns::<T, WIDTH>(rows, (ahead as usize).wrapping_mul(stride) + column);
        }
        let row = &rows[id as usize * stride + column..][..WIDTH];
        let weight = simd.splat(weight);
        for i in 0..WIDTH {
            sums[i] = simd.mul_add(weight, load(simd, &row[i]), sums[i]);
        }
    }
    for (i, &sum) in sums.iter().enumerate() {
        simd.store(sum, &mut out[column + i]);
    }
}

/// Asks for `WIDTH` vectors from `at` on: a cache line is 16 floats, or twice
/// as many bf16.
#[inline(always)]
fn prefetch_columns<T: Element, const WIDTH: usize>(rows: &[[T; LANES]], at: usize) {
    let step = if T::IS_F32 { 1 } else { 2 };
    let mut i = 0;
    while i < WIDTH {
        prefetch(rows, at.wrapping_add(i));
        i += step;
    }
}

#[inline(always)]
pub(crate) fn adam_row<S: Simd, T: Element>(
    simd: S,
    step: &AdamStep,
    grad: &[f32],
    w: &mut [T],
    m: &mut [T],
    v: &mut [T],
    noise: u64,
) {
    let len = grad.len();
    assert_eq!(w.len(), len, "weights have the gradient's length");
    assert_eq!(m.len(), len, "first moments have the gradient's length");
    assert_eq!(v.len(), len, "second moments have the gradient's length");
    let (grads, grad_rest) = grad.as_chunks::<LANES>();
    let (ws, w_rest) = w.as_chunks_mut::<LANES>();
    let (ms, m_rest) = m.as_chunks_mut::<LANES>();
    let (vs, v_rest) = v.as_chunks_mut::<LANES>();
    let mut noise = Noise::new(simd, noise);
    for (((grad, w), m), v) in grads.iter().zip(ws).zip(ms).zip(vs) {
        adam_vector(simd, step, simd.load(grad), w, m, v, &mut noise);
    }
    // Unlike the others this kernel may well meet a ragged end: biases have one.
    if !grad_rest.is_empty() {
        let grad = filled(grad_rest);
        let [mut w, mut m, mut v] = [filled(w_rest), filled(m_rest), filled(v_rest)];
        adam_vector(simd, step, simd.load(&grad), &mut w, &mut m, &mut v, &mut noise);
        let rest = grad_rest.len();
        w_rest.copy_from_slice(&w[..rest]);
        m_rest.copy_from_slice(&m[..rest]);
        v_rest.copy_from_slice(&v[..rest]);
    }
}

#[inline(always)]
fn adam_vector<S: Simd, T: Element>(
    simd: S,
    step: &AdamStep,
    g: S::Floats,
    w: &mut [T; LANES],
    m: &mut [T; LANES],
    v: &mut [T; LANES],
    noise: &mut Noise<S>,
) {
    let [beta1, beta2] = [simd.splat(step.beta1), simd.splat(step.beta2)];
    let [rest1, rest2] = [simd.splat(1.0 - step.beta1), simd.splat(1.0 - step.beta2)];
    let [rate, epsilon] = [simd.splat(step.rate), simd.splat(step.epsilon)];
    let first = simd.mul_add(beta1, load(simd, m), simd.mul(rest1, g));
    let squared = simd.mul(simd.mul(rest2, g), g);
    let second = simd.mul_add(beta2, load(simd, v), squared);
    let scaled = simd.mul(rate, first);
    let change = if T::IS_F32 {
        simd.div(scaled, simd.add(simd.sqrt(second), epsilon))
    } else {
        simd.div_by_root_roughly(scaled, second, epsilon)
    };
    let new = simd.sub(load(simd, w), change);

    let bits = if T::IS_F32 { simd.splat_ints(0) } else { noise.next() };
    store_stochastic(simd, first, bits, m);
    store_stochastic(simd, second, rotate_16(simd, bits, 5), v);
    store_stochastic(simd, new, rotate_16(simd, bits, 10), w);
}

/// [`reference::noise_bits`](crate::reference::noise_bits), a vector at a time.
struct Noise<S: Simd> {
    simd: S,
    place: S::Ints,
}

impl<S: Simd> Noise<S> {
    #[inline(always)]
    fn new(simd: S, noise: u64) -> Self {
        let mut places = [0; LANES];
        for (i, place) in places.iter_mut().enumerate() {
            *place = (noise as u32 ^ (noise >> 32) as u32)
                .wrapping_add((i as u32).wrapping_mul(NOISE_MULTIPLIERS[0]));
        }
        let place = simd.load_ints(&places);
        Self { simd, place }
    }

    #[inline(always)]
    fn next(&mut self) -> S::Ints {
        let Self { simd, place: x } = *self;
        let step = NOISE_MULTIPLIERS[0].wrapping_mul(LANES as u32);
        self.place = simd.add_ints(x, simd.splat_ints(step));
        let x = simd.xor(x, simd.shift_right(x, 16));
        let x = simd.mul_ints(x, simd.splat_ints(NOISE_MULTIPLIERS[1]));
        let x = simd.xor(x, simd.shift_right(x, 15));
        let x = simd.mul_ints(x, simd.splat_ints(NOISE_MULTIPLIERS[2]));
        simd.shift_right(x, 16)
    }
}

/// Rotates the low 16 bits of every lane left.
#[inline(always)]
fn rotate_16<S: Simd>(simd: S, bits: S::Ints, count: u32) -> S::Ints {
    let rotated = simd.or(simd.shift_left(bits, count), simd.shift_right(bits, 16 - count));
    simd.and(rotated, simd.splat_ints(0xFFFF))
}
