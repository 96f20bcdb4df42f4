//! What this machine can do at most: arithmetic on registers, reading memory
//! front to back, and reading rows at random.
//!
//! Each rate is the best of a few tries: a limit is what is possible, and other
//! work on the machine only takes away from it.

use std::hint::black_box;
use std::time::Instant;

use lookalike::model::{Numbers, Rows, Storage};
use lookalike::random::{Stream, below, mix};
use lookalike_kernels::measure::{FLOPS_PER_ITERATION, fma_burst, read_sum};
use lookalike_kernels::{Cpu, sum_rows};
use rayon::ThreadPool;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Tries of which the best counts.
const TRIES: usize = 10;
/// Iterations of one try of arithmetic: some 10 ms.
const BURST: usize = 1_000_000;
/// Numbers in a row: 512 bytes.
const ROW: usize = 128;
/// Rows read from, 1 GiB: more than any last-level cache.
const ROWS: usize = 1 << 21;
/// Rows read at random in one try, half of them all, in pieces a task each.
const RANDOM_ROWS: usize = ROWS / 2;
const PIECE: usize = 1 << 12;

/// Rates, each second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Limits {
    pub(crate) threads: usize,
    /// Floating-point operations; a fused multiply-add is two.
    pub(crate) flops: f64,
    /// Bytes read front to back.
    pub(crate) streamed_bytes: f64,
    /// Bytes read in rows of 512 at random.
    pub(crate) random_bytes: f64,
}

/// The limits of this machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Machine {
    /// Level of instructions.
    pub(crate) cpu: String,
    pub(crate) buffer_bytes: usize,
    pub(crate) one_thread: Limits,
    pub(crate) all_threads: Limits,
}

impl Machine {
    pub(crate) fn measure(cpu: Cpu, one_thread: &ThreadPool, all_threads: &ThreadPool) -> Self {
        // Rows as a model has them: on huge pages, and every page written to.
        let mut rows = Rows::zeroed(ROWS, ROW, Storage::F32, false);
        all_threads.install(|| rows.fill(|_, values| values.fill(1.0)));
        let Numbers::F32(numbers) = &rows.weights else { unreachable!("stored as f32") };
        let ids: Vec<u32> =
            (0..RANDOM_ROWS as u64).map(|i| below(mix(1, Stream::Data, i, 0), ROWS as u32)).collect();
        let limits = |pool: &ThreadPool| Limits {
            threads: pool.current_num_threads(),
            flops: flops(cpu, pool),
            streamed_bytes: streamed(cpu, pool, numbers),
            random_bytes: random(cpu, pool, numbers, &ids),
        };
        let one = limits(one_thread);
        let all = if all_threads.current_num_threads() == 1 { one } else { limits(all_threads) };
        let (cpu, buffer_bytes) = (cpu.name().into(), size_of_val::<[f32]>(numbers));
        Self { cpu, buffer_bytes, one_thread: one, all_threads: all }
    }

    /// The limits of a number of threads; either one, or all that are used.
    pub(crate) fn limits_of(&self, threads: usize) -> &Limits {
        if threads == 1 { &self.one_thread } else { &self.all_threads }
    }
}

/// `amount` a second, by the fastest of some tries.
fn best_rate(amount: f64, mut work: impl FnMut()) -> f64 {
    let seconds = (0..TRIES).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    amount / seconds.fold(f64::INFINITY, f64::min)
}

fn flops(cpu: Cpu, pool: &ThreadPool) -> f64 {
    let amount = pool.current_num_threads() * BURST * FLOPS_PER_ITERATION;
    best_rate(amount as f64, || {
        black_box(pool.broadcast(|_| fma_burst(cpu, BURST)));
    })
}

fn streamed(cpu: Cpu, pool: &ThreadPool, numbers: &[f32]) -> f64 {
    best_rate(size_of_val(numbers) as f64, || {
        let pieces = || numbers.par_chunks(PIECE * ROW).map(|piece| read_sum(cpu, piece)).sum::<f32>();
        black_box(pool.install(pieces));
    })
}

fn random(cpu: Cpu, pool: &ThreadPool, numbers: &[f32], ids: &[u32]) -> f64 {
    let weights = [1.0; PIECE];
    best_rate((ids.len() * ROW * size_of::<f32>()) as f64, || {
        let piece = |ids: &[u32]| {
            let mut sum = [0.0; ROW];
            sum_rows(cpu, numbers, ids, &weights[..ids.len()], &mut sum);
            sum[0]
        };
        black_box(pool.install(|| ids.par_chunks(PIECE).map(piece).sum::<f32>()));
    })
}
