//! Kernels against their scalar twins, on one core: nanoseconds for each item,
//! at every level of instructions.
//!
//! The model of the data is one batch of the amazon-670k shape: 1,024
//! embeddings of 128 floats (512 KiB, so in L2, not in L1), lists of 48
//! examples a class drawn at random, class rows walked in order. `sum_rows` and
//! `adam_row` also run on rows drawn at random from 256 MiB, which no L2 holds.
//! Each number is the fastest of 100 timings of at least 0.3 ms: short enough to
//! fit between interruptions by other programs.
//!
//! `cargo bench -p lookalike-kernels [-- NAME]` runs those whose name contains
//! NAME.

use std::hint::black_box;
use std::time::Instant;

use lookalike_kernels::measure::{FLOPS_PER_ITERATION, fma_burst, read_sum};
use lookalike_kernels::*;

const DIM: usize = 128;
const EXAMPLES: usize = 1024;
const LIST: usize = 48;
const STEP: AdamStep = AdamStep { rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };

/// Seconds one call takes, the fastest of a hundred timings.
fn seconds(mut call: impl FnMut()) -> f64 {
    let mut calls = 1;
    let mut best = f64::INFINITY;
    let mut timings = 0;
    while timings < 100 {
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        let taken = start.elapsed().as_secs_f64();
        if taken < 0.000_3 {
            calls *= 2;
            continue;
        }
        best = best.min(taken / f64::from(calls));
        timings += 1;
    }
    best
}

struct Table {
    filter: String,
}

impl Table {
    /// Prints a line: the twin (no level) and every level, in ns an item.
    fn row(&self, name: &str, items: usize, mut run: impl FnMut(Option<Cpu>)) {
        if !name.contains(&self.filter) {
            return;
        }
        print!("{name:<28}");
        let mut levels = vec![None];
        levels.extend(Cpu::available().into_iter().map(Some));
        for level in levels {
            let ns = seconds(|| run(level)) * 1e9 / items as f64;
            print!("{ns:>12.2}");
        }
        println!();
    }
}

fn random(seed: &mut u64) -> u32 {
    *seed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
    (*seed >> 33) as u32
}

/// Numbers between -1 and 1, aligned as in training.
fn numbers<T: Element>(len: usize) -> AlignedVec<T> {
    let mut seed = len as u64;
    let mut numbers = AlignedVec::zeroed(len);
    for x in &mut *numbers {
        *x = T::from_f32(random(&mut seed) as f32 / (1u32 << 30) as f32 - 1.0);
    }
    numbers
}

fn list(len: usize, below: usize) -> Vec<u32> {
    let mut seed = 7;
    (0..len).map(|_| random(&mut seed) % below as u32).collect()
}

fn main() {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    let table = Table { filter: filter.unwrap_or_default() };
    print!("{:<28}{:>12}", "ns an item", "twin");
    for cpu in Cpu::available() {
        print!("{:>12}", cpu.name());
    }
    println!();
    pairs::<f32, f32>(&table);
    pairs::<bf16, bf16>(&table);
    codes(&table);
    far_rows::<f32>(&table);
    far_rows::<bf16>(&table);
    hashes(&table);
    softmax(&table);
    scores(&table);
    products(&table);
}

fn pairs<T: Element, E: Element>(table: &Table) {
    const CLASSES: usize = 256;
    let classes: &[T] = &numbers(CLASSES * DIM);
    let rows: &[E] = &numbers(EXAMPLES * DIM);
    let d_rows: &mut [f32] = &mut numbers(EXAMPLES * DIM);
    let entries: Vec<u32> = list(CLASSES * LIST, EXAMPLES).iter().map(|e| e << FLAG_BITS).collect();
    let g: Vec<f32> = numbers::<f32>(LIST).iter().map(|x| x * 1e-6).collect();
    let mut out = vec![0.0; LIST];
    let mut state: [&mut [T]; 3] =
        [&mut numbers(CLASSES * DIM), &mut numbers(CLASSES * DIM), &mut numbers(CLASSES * DIM)];
    state[2].fill(T::from_f32(0.1));
    for len in [6, LIST] {
        let lists = || classes.chunks_exact(DIM).zip(entries.chunks_exact(LIST)).map(|(c, e)| (c, &e[..len]));
        table.row(&format!("gather_dot {} x{len}", T::NAME), CLASSES * len, |cpu| {
            for (class, entries) in lists() {
                match cpu {
                    Some(cpu) => gather_dot(cpu, class, rows, entries, &mut out[..len]),
                    None => reference::gather_dot(class, rows, entries, &mut out[..len]),
                }
            }
            black_box(&mut out);
        });
        table.row(&format!("backward_adam_row {} x{len}", T::NAME), CLASSES * len, |cpu| {
            let g = &g[..len];
            for (i, (_, entries)) in lists().enumerate() {
                let [w, m, v] = state.each_mut().map(|x| &mut x[i * DIM..][..DIM]);
                let row = Moments { w, m, v, ahead: 0 };
                match cpu {
                    Some(cpu) => backward_adam_row(cpu, &STEP, row, rows, d_rows, entries, g, i as u64),
                    None => reference::backward_adam_row(&STEP, row, rows, d_rows, entries, g, i as u64),
                }
            }
        });
    }
    let grads: &[f32] = &numbers(DIM);
    table.row(&format!("adam_row {} near", T::NAME), CLASSES, |cpu| {
        for i in 0..CLASSES {
            let [w, m, v] = state.each_mut().map(|x| &mut x[i * DIM..][..DIM]);
            match cpu {
                Some(cpu) => adam_row(cpu, &STEP, grads, w, m, v, i as u64),
                None => reference::adam_row(&STEP, grads, w, m, v, i as u64),
            }
        }
    });
}

/// Rows and embeddings in a byte a number.
fn codes(table: &Table) {
    const CLASSES: usize = 256;
    /// Above this are a tenth of the scores, which are sums of 128 products of even numbers
    /// from -1 to 1.
    const TENTH: f32 = 4.8;
    let (classes, rows) = (numbers::<f32>(CLASSES * DIM), numbers::<f32>(EXAMPLES * DIM));
    let mut memory = [AlignedVec::<f32>::zeroed(CLASSES * DIM / 4), AlignedVec::zeroed(EXAMPLES * DIM / 4)];
    let [class_codes, queries] = memory.each_mut().map(|memory| bytemuck::cast_slice_mut::<_, i8>(memory));
    let cpu = Cpu::detect();
    let coded: Vec<CodedRow> = classes
        .chunks_exact(DIM)
        .zip(class_codes.chunks_exact_mut(DIM))
        .map(|(row, codes)| code_row(cpu, row, codes))
        .collect();
    let scales: Vec<f32> = rows
        .chunks_exact(DIM)
        .zip(queries.chunks_exact_mut(DIM))
        .map(|(row, codes)| code_query(cpu, row, codes))
        .collect();
    let entries: Vec<u32> = list(CLASSES * LIST, EXAMPLES).iter().map(|e| e << FLAG_BITS).collect();
    let shifts = [0.1; CLASSES];
    for len in [6, LIST] {
        let keys = 0..CLASSES as u32;
        let groups: Vec<_> = keys.map(|key| KeyGroup { local_key: key, start: key * len as u32 }).collect();
        let lists = Lists { groups: &groups, entries: &entries[..CLASSES * len] };
        let rows = CodedRows { codes: class_codes, stride: DIM, coded: &coded, shifts: &shifts };
        let queries = CodedQueries { codes: queries, scales: &scales };
        let mut out = vec![0.0; CLASSES * len];
        table.row(&format!("gather_dot_codes x{len}"), CLASSES * len, |cpu| {
            match cpu {
                Some(cpu) => gather_dot_codes(cpu, rows, lists, queries, &mut out),
                None => reference::gather_dot_codes(rows, lists, queries, &mut out),
            }
            black_box(&mut out);
        });
        // A tenth stay. Nothing is left of the lists afterwards: they are copied each time.
        let limits = vec![TENTH; EXAMPLES];
        let (mut own_groups, mut own_entries) = (groups.clone(), lists.entries.to_vec());
        table.row(&format!("keep_above_limits x{len}"), CLASSES * len, |cpu| {
            own_groups.copy_from_slice(&groups);
            own_entries.copy_from_slice(lists.entries);
            let own = ListsMut { groups: &mut own_groups, entries: &mut own_entries };
            match cpu {
                Some(cpu) => _ = black_box(keep_above_limits(cpu, rows, own, queries, &limits)),
                None => {
                    _ = black_box(reference::keep_above_limits(
                        rows,
                        (&groups, lists.entries),
                        queries,
                        &limits,
                    ));
                }
            }
        });
    }
    table.row("code_row", CLASSES, |cpu| {
        for (row, codes) in classes.chunks_exact(DIM).zip(class_codes.chunks_exact_mut(DIM)) {
            match cpu {
                Some(cpu) => black_box(code_row(cpu, row, codes)),
                None => black_box(reference::code_row(row, codes)),
            };
        }
    });
}

fn far_rows<T: Element>(table: &Table) {
    let count = (256 << 20) / size_of::<T>() / DIM;
    let rows: &[T] = &numbers(count * DIM);
    let ids = list(1 << 12, count);
    let weights: &[f32] = &numbers(64);
    let out: &mut [f32] = &mut numbers(DIM);
    table.row(&format!("sum_rows {} far", T::NAME), ids.len(), |cpu| {
        for ids in ids.chunks_exact(64) {
            match cpu {
                Some(cpu) => sum_rows(cpu, rows, ids, weights, out),
                None => reference::sum_rows(rows, ids, weights, out),
            }
        }
        black_box(&out);
    });
    let near: Vec<u32> = ids.iter().map(|id| id % 1024).collect();
    table.row(&format!("sum_rows {} near", T::NAME), ids.len(), |cpu| {
        for ids in near.chunks_exact(64) {
            match cpu {
                Some(cpu) => sum_rows(cpu, rows, ids, weights, out),
                None => reference::sum_rows(rows, ids, weights, out),
            }
        }
        black_box(&out);
    });
    let mut state: [&mut [T]; 3] =
        [&mut numbers(count * DIM), &mut numbers(count * DIM), &mut numbers(count * DIM)];
    state[2].fill(T::from_f32(0.1));
    let grads: &[f32] = &numbers(DIM);
    let ids: Vec<usize> = list(1 << 12, count).iter().map(|&id| id as usize * DIM).collect();
    table.row(&format!("adam_row {} far", T::NAME), ids.len(), |cpu| {
        for (i, &at) in ids.iter().enumerate() {
            if let Some(&ahead) = ids.get(i + 4) {
                for rows in &state {
                    prefetch_row(&rows[ahead..][..DIM]);
                }
            }
            let [w, m, v] = state.each_mut().map(|x| &mut x[at..][..DIM]);
            match cpu {
                Some(cpu) => adam_row(cpu, &STEP, grads, w, m, v, 1),
                None => reference::adam_row(&STEP, grads, w, m, v, 1),
            }
        }
    });
}

/// A code is K = 6 bins of 8 of one vector; 50 tables.
fn hashes(table: &Table) {
    let rows: &[f32] = &numbers(LANES * DIM);
    let rows: [&[f32]; LANES] = std::array::from_fn(|r| &rows[r * DIM..][..DIM]);
    let transposed: &mut [f32] = &mut numbers(DIM * LANES);
    table.row("transpose_rows", LANES, |cpu| match cpu {
        Some(cpu) => transpose_rows(cpu, &rows, DIM, transposed),
        None => reference::transpose_rows(&rows, DIM, transposed),
    });
    let dims = list(50 * 6 * 8, DIM);
    let mut codes = vec![0; 50 * LANES];
    table.row("dwta_codes", codes.len(), |cpu| match cpu {
        Some(cpu) => dwta_codes(cpu, transposed, &dims, 8, 6, 3, &mut codes),
        None => reference::dwta_codes(transposed, &dims, 8, 6, 3, &mut codes),
    });
}

fn softmax(table: &Table) {
    const LEN: usize = 4096;
    let entries: Vec<u32> = list(LEN, EXAMPLES).iter().map(|e| e << FLAG_BITS).collect();
    let scores: &[f32] = &numbers(LEN);
    let work: &mut [f32] = &mut numbers(LEN);
    let mut max = vec![f32::NEG_INFINITY; EXAMPLES];
    let mut sum = vec![0.0; EXAMPLES];
    table.row("scatter_max", LEN, |cpu| match cpu {
        Some(cpu) => scatter_max(cpu, scores, &entries, &mut max),
        None => reference::scatter_max(scores, &entries, &mut max),
    });
    max.fill(1.0);
    table.row("scatter_exp", LEN, |cpu| {
        work.copy_from_slice(scores);
        match cpu {
            Some(cpu) => scatter_exp(cpu, work, &entries, &max, &mut sum),
            None => reference::scatter_exp(work, &entries, &max, &mut sum),
        }
    });
    table.row("gather_scale", LEN, |cpu| match cpu {
        Some(cpu) => gather_scale(cpu, work, &entries, &max),
        None => reference::gather_scale(work, &entries, &max),
    });
    table.row("exp_sum", LEN, |cpu| {
        work.copy_from_slice(scores);
        black_box(match cpu {
            Some(cpu) => exp_sum(cpu, work, 1.0),
            None => reference::exp_sum(work, 1.0),
        });
    });
    let mut found = Vec::with_capacity(LEN);
    for (name, threshold) in [("indices_above 1%", 0.98), ("indices_above 50%", 0.0)] {
        table.row(name, LEN, |cpu| {
            found.clear();
            match cpu {
                Some(cpu) => indices_above(cpu, scores, threshold, &mut found),
                None => reference::indices_above(scores, threshold, &mut found),
            }
        });
    }
}

/// What one core can do at most: GFLOP/s of independent multiply-adds, and GB/s.
fn limits(cpu: Cpu) -> (f64, f64) {
    let iterations = 10_000;
    let burst = seconds(|| {
        black_box(fma_burst(cpu, black_box(iterations)));
    });
    let far: &[f32] = &numbers(16 << 20);
    let read = seconds(|| {
        black_box(read_sum(cpu, far));
    });
    let (peak, bandwidth) =
        ((iterations * FLOPS_PER_ITERATION) as f64 / burst / 1e9, size_of_val(far) as f64 / read / 1e9);
    println!("{}: peak {peak:.1} GFLOP/s, reads {bandwidth:.1} GB/s", cpu.name());
    (peak, bandwidth)
}

/// Scores of 256 classes for some examples, and of one example for classes that no
/// cache holds.
fn scores(table: &Table) {
    if !"dot_rows".contains(&table.filter) {
        return;
    }
    for cpu in Cpu::available() {
        let limits = limits(cpu);
        scores_of::<f32>(cpu, limits);
        scores_of::<bf16>(cpu, limits);
    }
}

fn scores_of<T: Element>(cpu: Cpu, (peak, bandwidth): (f64, f64)) {
    const CLASSES: usize = 256;
    const STRIDE: usize = CLASSES + LANES;
    let (rows, columns): (&[f32], &[T]) = (&numbers(CLASSES * DIM), &numbers(CLASSES * DIM));
    let (bias, out): (&[f32], &mut [f32]) = (&numbers(CLASSES), &mut numbers(CLASSES * STRIDE));
    for examples in [1, 3, 8, 16, CLASSES] {
        let rows = &rows[..examples * DIM];
        let taken = seconds(|| dot_rows(cpu, DIM, rows, columns, bias, out, STRIDE));
        let rate = (2 * examples * CLASSES * DIM) as f64 / taken / 1e9;
        let share = 100.0 * rate / peak;
        println!(
            "  dot_rows {:<5} {examples:>5} {CLASSES:>5} {DIM:>5}{rate:>14.1} GFLOP/s{share:>6.0}%",
            T::NAME
        );
    }
    let far: &[T] = &numbers((64 << 20) / size_of::<T>());
    let taken = seconds(|| {
        for columns in far.chunks_exact(CLASSES * DIM) {
            dot_rows(cpu, DIM, &rows[..DIM], columns, bias, out, STRIDE);
        }
    });
    let rate = size_of_val(far) as f64 / taken / 1e9;
    let share = 100.0 * rate / bandwidth;
    println!("  dot_rows {:<5} one row, far{rate:>19.1} GB/s{share:>9.0}%", T::NAME);
}

/// GFLOP/s, and the share of the peak.
fn products(table: &Table) {
    if !"gemm".contains(&table.filter) {
        return;
    }
    for cpu in Cpu::available() {
        let (peak, _) = limits(cpu);
        // Scores, gradients of classes, gradients of embeddings; then larger.
        for [m, n, k] in [[512, 256, 128], [512, 128, 256], [256, 128, 512], [1000, 1000, 128]] {
            product::<f32>("f32 a b", cpu, [m, n, k], false, false, peak);
            product::<f32>("f32 aᵀ b", cpu, [m, n, k], true, false, peak);
            product::<f32>("f32 a bᵀ", cpu, [m, n, k], false, true, peak);
            product::<bf16>("bf16 a b", cpu, [m, n, k], false, false, peak);
        }
    }
}

fn product<A: Element>(
    name: &str,
    cpu: Cpu,
    [m, n, k]: [usize; 3],
    a_turned: bool,
    b_turned: bool,
    peak: f64,
) {
    let a: &[A] = &numbers(m * k);
    let b: &[f32] = &numbers(k * n);
    let c: &mut [f32] = &mut numbers(m * n);
    let strides = |rows: usize, columns: usize, turned| if turned { (1, rows) } else { (columns, 1) };
    let (row_stride, column_stride) = strides(m, k, a_turned);
    let a = Strided { data: a, row_stride, column_stride };
    let (row_stride, column_stride) = strides(k, n, b_turned);
    let b = Strided { data: b, row_stride, column_stride };
    let rate = (2 * m * n * k) as f64 / seconds(|| gemm(cpu, m, n, k, a, b, c, n)) / 1e9;
    println!("  gemm {name:<10} {m:>5} {n:>5} {k:>5}{rate:>10.1} GFLOP/s{:>6.0}%", 100.0 * rate / peak);
}
