//! The scalar twin of every kernel: what it means, without how it is done fast.

use crate::{
    AdamStep, BIT_ROWS, BIT_WORDS, CodedColumns, CodedQueries, CodedRow, CodedRows, Common, Element,
    FLAG_BITS, KeyGroup, LANES, Lists, Moments, Strided,
};

fn example(entry: u32) -> usize {
    (entry >> FLAG_BITS) as usize
}

/// See [`crate::gather_dot`].
pub fn gather_dot<A: Element, B: Element>(row: &[A], rows: &[B], entries: &[u32], out: &mut [f32]) {
    let stride = row.len();
    for (out, &entry) in out.iter_mut().zip(entries) {
        let other = &rows[example(entry) * stride..][..stride];
        *out = row.iter().zip(other).map(|(a, b)| a.to_f32() * b.to_f32()).sum();
    }
}

/// See [`crate::dot_rows`].
pub fn dot_rows<T: Element>(
    stride: usize,
    rows: &[f32],
    columns: &[T],
    bias: &[f32],
    out: &mut [f32],
    out_stride: usize,
) {
    for (row, out) in rows.chunks_exact(stride).zip(out.chunks_mut(out_stride)) {
        for ((column, bias), out) in columns.chunks_exact(stride).zip(bias).zip(out) {
            *out = row.iter().zip(column).map(|(a, b)| a * b.to_f32()).sum::<f32>() + bias;
        }
    }
}

/// See [`crate::dot_codes`].
pub fn dot_codes(query: &[i16], codes: &[i8], out: &mut [i32]) {
    for (row, out) in codes.chunks_exact(query.len()).zip(out) {
        *out = query.iter().zip(row).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
    }
}

/// See [`crate::code_row`].
pub fn code_row<T: Element>(row: &[T], codes: &mut [i8]) -> CodedRow {
    let scale = code(row, 127.0, 0.0, codes);
    CodedRow { scale, above: 64 * codes.iter().take(row.len()).map(|&code| i32::from(code)).sum::<i32>() }
}

/// See [`crate::code_query`].
pub fn code_query<T: Element>(row: &[T], codes: &mut [i8]) -> f32 {
    code(row, 63.0, 64.0, codes)
}

fn code<T: Element>(row: &[T], most: f32, zero: f32, codes: &mut [i8]) -> f32 {
    let largest = row.iter().fold(0.0, |largest: f32, x| largest.max(x.to_f32().abs()));
    let inverse = if (most / largest).is_finite() { most / largest } else { 0.0 };
    for (code, x) in codes.iter_mut().zip(row) {
        *code = ((x.to_f32() * inverse).round_ties_even() + zero) as i8;
    }
    largest / most
}

/// See [`crate::gather_dot_codes`].
pub fn gather_dot_codes(rows: CodedRows<'_>, lists: Lists<'_>, queries: CodedQueries<'_>, out: &mut [f32]) {
    let (groups, first) = (lists.groups, lists.groups.first().map_or(0, |group| group.start));
    for (i, group) in groups.iter().enumerate() {
        let key = group.local_key as usize;
        let row = &rows.codes[key * rows.stride..][..rows.stride];
        let end = groups.get(i + 1).map_or(lists.entries.len(), |next| (next.start - first) as usize);
        let start = (group.start - first) as usize;
        for (&entry, out) in lists.entries[start..end].iter().zip(&mut out[start..end]) {
            let example = example(entry);
            let query = &queries.codes[example * rows.stride..][..rows.stride];
            let products = row.iter().zip(query).map(|(&a, &b)| i32::from(a) * (i32::from(b) - 64));
            let scale = rows.coded[key].scale * queries.scales[example];
            *out = products.sum::<i32>() as f32 * scale + rows.shifts[key];
        }
    }
}

/// See [`crate::dot_coded_columns`].
pub fn dot_coded_columns(
    len: usize,
    queries: CodedQueries<'_>,
    columns: CodedColumns<'_>,
    out: &mut [f32],
    out_stride: usize,
) {
    for (i, scale) in queries.scales.iter().enumerate() {
        let query = &queries.codes[i * len..][..len];
        for (j, bias) in columns.bias.iter().enumerate() {
            // Four numbers of a column lie together, and sixteen columns side by side.
            let code = |n: usize| columns.codes[j / 16 * 16 * len + n / 4 * 64 + j % 16 * 4 + n % 4];
            let products = (0..len).map(|n| i32::from(query[n]) * i32::from(code(n)));
            let sum = products.sum::<i32>() + columns.starts[j];
            out[i * out_stride + j] = sum as f32 * (columns.scales[j] * scale) + bias;
        }
    }
}

/// See [`crate::add_coded_rows`].
pub fn add_coded_rows(rows: &[(&[i8], f32)], sums: &mut [f32]) {
    for (row, factor) in rows {
        sums.iter_mut().zip(*row).for_each(|(sum, &code)| *sum += factor * f32::from(code));
    }
}

/// See [`crate::keep_above_limits`].
pub fn keep_above_limits(
    rows: CodedRows<'_>,
    (groups, entries): (&[KeyGroup], &[u32]),
    queries: CodedQueries<'_>,
    limits: &[f32],
) -> (Vec<KeyGroup>, Vec<u32>) {
    let mut scores = vec![0.0; entries.len()];
    gather_dot_codes(rows, Lists { groups, entries }, queries, &mut scores);
    let first = groups.first().map_or(0, |group| group.start);
    let (mut kept_groups, mut kept) = (Vec::new(), Vec::new());
    for (i, group) in groups.iter().enumerate() {
        let end = groups.get(i + 1).map_or(entries.len(), |next| (next.start - first) as usize);
        let pairs = (group.start - first) as usize..end;
        let start = kept.len();
        for (&entry, &score) in entries[pairs.clone()].iter().zip(&scores[pairs]) {
            if entry % (1 << FLAG_BITS) != 0 || score > limits[example(entry)] {
                kept.push(entry);
            }
        }
        if kept.len() > start {
            kept_groups.push(KeyGroup { start: first + start as u32, ..*group });
        }
    }
    (kept_groups, kept)
}

/// See [`crate::backward_adam_row`].
pub fn backward_adam_row<A: Element, B: Element>(
    step: &AdamStep,
    row: Moments<'_, A>,
    rows: &[B],
    d_rows: &mut [f32],
    entries: &[u32],
    g: &[f32],
    noise: u64,
) {
    let stride = row.w.len();
    let mut grad = vec![0.0; stride];
    for (&g, &entry) in g.iter().zip(entries) {
        let at = example(entry) * stride;
        for (grad, x) in grad.iter_mut().zip(&rows[at..at + stride]) {
            *grad += g * x.to_f32();
        }
        for (d, w) in d_rows[at..at + stride].iter_mut().zip(&*row.w) {
            *d += g * w.to_f32();
        }
    }
    adam_row(step, &grad, row.w, row.m, row.v, noise);
}

/// See [`crate::adam_row`].
pub fn adam_row<T: Element>(
    step: &AdamStep,
    grad: &[f32],
    w: &mut [T],
    m: &mut [T],
    v: &mut [T],
    noise: u64,
) {
    for (i, &g) in grad.iter().enumerate() {
        let first = step.beta1 * m[i].to_f32() + (1.0 - step.beta1) * g;
        let second = step.beta2 * v[i].to_f32() + (1.0 - step.beta2) * g * g;
        let new = w[i].to_f32() - step.rate * first / (second.sqrt() + step.epsilon);
        let bits = noise_bits(noise, i);
        m[i] = T::from_f32_stochastic(first, bits);
        v[i] = T::from_f32_stochastic(second, bits.rotate_left(5));
        w[i] = T::from_f32_stochastic(new, bits.rotate_left(10));
    }
}

/// The golden ratio, which spreads places evenly, and the two multipliers of a
/// hash in which every bit of the input changes every bit of the output with a
/// probability near a half.
pub(crate) const NOISE_MULTIPLIERS: [u32; 3] = [0x9E37_79B9, 0x7FEB_352D, 0x846C_A68B];

/// The random bits of element `i` of a row: a multiply-xorshift hash of both.
pub fn noise_bits(noise: u64, i: usize) -> u16 {
    let mut x =
        (noise as u32 ^ (noise >> 32) as u32).wrapping_add((i as u32).wrapping_mul(NOISE_MULTIPLIERS[0]));
    x ^= x >> 16;
    x = x.wrapping_mul(NOISE_MULTIPLIERS[1]);
    x ^= x >> 15;
    x = x.wrapping_mul(NOISE_MULTIPLIERS[2]);
    (x >> 16) as u16
}

/// See [`crate::sum_rows`].
pub fn sum_rows<T: Element>(rows: &[T], ids: &[u32], weights: &[f32], out: &mut [f32]) {
    let stride = out.len();
    for (&id, &weight) in ids.iter().zip(weights) {
        let row = &rows[id as usize * stride..][..stride];
        for (out, x) in out.iter_mut().zip(row) {
            *out += weight * x.to_f32();
        }
    }
}

/// See [`crate::scatter_max`].
pub fn scatter_max(scores: &[f32], entries: &[u32], max: &mut [f32]) {
    for (&score, &entry) in scores.iter().zip(entries) {
        let slot = &mut max[example(entry)];
        *slot = slot.max(score);
    }
}

/// See [`crate::scatter_exp`].
pub fn scatter_exp(scores: &mut [f32], entries: &[u32], max: &[f32], sum: &mut [f32]) {
    for (score, &entry) in scores.iter_mut().zip(entries) {
        *score = (*score - max[example(entry)]).exp();
        sum[example(entry)] += *score;
    }
}

/// See [`crate::exp_sum`].
pub fn exp_sum(scores: &mut [f32], max: f32) -> f32 {
    for score in &mut *scores {
        *score = (*score - max).exp();
    }
    scores.iter().sum()
}

/// See [`crate::gather_scale`].
pub fn gather_scale(scores: &mut [f32], entries: &[u32], factor: &[f32]) {
    for (score, &entry) in scores.iter_mut().zip(entries) {
        *score *= factor[example(entry)];
    }
}

/// See [`crate::gemm`].
pub fn gemm<A: Element, B: Element>(
    m: usize,
    n: usize,
    k: usize,
    a: Strided<'_, A>,
    b: Strided<'_, B>,
    c: &mut [f32],
    c_stride: usize,
) {
    for i in 0..m {
        let out = &mut c[i * c_stride..][..n];
        for p in 0..k {
            let x = a.data[i * a.row_stride + p * a.column_stride].to_f32();
            for (j, out) in out.iter_mut().enumerate() {
                *out += x * b.data[p * b.row_stride + j * b.column_stride].to_f32();
            }
        }
    }
}

/// See [`crate::transpose_rows`].
pub fn transpose_rows<T: Element>(rows: &[&[T]; LANES], dim: usize, out: &mut [f32]) {
    for (r, row) in rows.iter().enumerate() {
        for j in 0..dim {
            out[j * LANES + r] = row[j].to_f32();
        }
    }
}

/// See [`crate::dwta_codes`].
pub fn dwta_codes(transposed: &[f32], dims: &[u32], bin: usize, k: usize, shift: u32, out: &mut [u32]) {
    for (t, codes) in out.chunks_exact_mut(LANES).enumerate() {
        codes.fill(0);
        for function in 0..k {
            let dims = &dims[(t * k + function) * bin..][..bin];
            for (r, code) in codes.iter_mut().enumerate() {
                let value = |position: usize| transposed[dims[position] as usize * LANES + r];
                let mut best = 0;
                for position in 1..bin {
                    if value(position) > value(best) {
                        best = position;
                    }
                }
                *code += (best as u32) << (shift * function as u32);
            }
        }
    }
}

/// See [`crate::indices_above`].
pub fn indices_above(scores: &[f32], threshold: f32, out: &mut Vec<u32>) {
    for (i, &score) in scores.iter().enumerate() {
        if score > threshold {
            out.push(i as u32);
        }
    }
}

/// See [`crate::indices_flagged`].
pub fn indices_flagged(entries: &[u32], flag: u32, out: &mut Vec<u32>) {
    out.extend((0..).zip(entries).filter(|(_, entry)| *entry & flag == flag).map(|(i, _)| i));
}

/// See [`crate::add_expanded`].
pub fn add_expanded(factor: f32, masks: &[u16], weights: &[f32], sums: &mut [f32]) -> usize {
    let mut weights = weights.iter();
    for (i, sum) in sums.iter_mut().enumerate() {
        if masks[i / LANES] >> (i % LANES) & 1 == 1 {
            *sum += factor * weights.next().expect("a weight for each bit");
        }
    }
    masks.iter().map(|mask| mask.count_ones() as usize).sum()
}

/// See [`crate::take_positive`].
pub fn take_positive(sums: &mut [f32], marks: &mut [u8], added: &[f32]) -> (Vec<u32>, Vec<f32>) {
    let (mut indices, mut scores) = (Vec::new(), Vec::new());
    for (i, (sum, added)) in sums.iter_mut().zip(added).enumerate() {
        if marks[i / LANES] != 0 {
            if *sum > 0.0 {
                indices.push(i as u32);
                scores.push(*sum + added);
            }
            *sum = 0.0;
        }
    }
    marks.fill(0);
    (indices, scores)
}

/// See [`crate::common_ids`].
pub fn common_ids(row: &[u32], list: &[u32]) -> Vec<Common> {
    let place = |id| row.iter().position(|other| other == id).map(|place| place as u32);
    (0..).zip(list).filter_map(|(in_list, id)| Some(Common { in_row: place(id)?, in_list })).collect()
}

/// See [`crate::transpose_bits`].
pub fn transpose_bits(rows: &mut [[u64; BIT_WORDS]; BIT_ROWS]) {
    let before = *rows;
    for (r, row) in rows.iter_mut().enumerate() {
        for (w, word) in row.iter_mut().enumerate() {
            *word = (0..BIT_ROWS).map(|c| (before[c][w] >> r & 1) << c).sum();
        }
    }
}

/// See [`crate::indices_of_ones`].
pub fn indices_of_ones(words: &[u64], shift: u32) -> Vec<u32> {
    let is_set = |i: &usize| words[i / BIT_ROWS] >> (i % BIT_ROWS) & 1 == 1;
    (0..words.len() * BIT_ROWS).filter(is_set).map(|i| (i as u32) << shift).collect()
}
