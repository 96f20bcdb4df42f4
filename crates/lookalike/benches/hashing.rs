//! Measures the refresh of hash tables and the proposing of candidates at the
//! shape of Amazon-670K: 670,091 classes, 128 dimensions, batches of 1,024
//! examples with one to five labels. Class vectors are uniform random numbers
//! and embeddings are class vectors with noise, cut at zero as ReLU does: bucket
//! sizes are those of a fresh network, the most even there are.
//!
//! `cargo bench -p lookalike --bench hashing` (classes as the first argument).

use std::time::Instant;

use lookalike::data::Dataset;
use lookalike::model::{Embeddings, RowsView};
use lookalike::random::{Stream, below, mix};
use lookalike::sampling::{Candidates, LshConfig, MixedConfig, Request, SamplerKind, Setup, build};
use lookalike_kernels::Cpu;

const DIM: usize = 128;
const BATCH: usize = 1024;

fn main() {
    let number = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let classes: usize = number.unwrap_or(670_091);
    let cpu = Cpu::detect();
    let threads = rayon::current_num_threads();
    println!("{classes} classes, {DIM} dimensions, {} threads, {}", threads, cpu.name());

    let random = |a, b| (mix(1, Stream::Data, a, b) >> 40) as f32 / (1 << 23) as f32 - 1.0;
    let vectors: Vec<f32> = (0..classes * DIM).map(|i| random(i as u64, 0)).collect();
    let mut data = Dataset::empty(1, classes);
    for example in 0..BATCH as u64 {
        let label = |i| below(mix(2, Stream::Data, example, i), classes as u32);
        let mut labels: Vec<u32> = (0..=example % 5).map(label).collect();
        labels.sort_unstable();
        labels.dedup();
        data.push([(0, 1.0)], &labels);
    }
    let embeddings: Vec<f32> = (0..BATCH)
        .flat_map(|example| {
            let class = data.view().labels(example)[0] as usize;
            let row = &vectors[class * DIM..][..DIM];
            let noisy = move |(j, x): (usize, &f32)| (x + random(example as u64, j as u64)).max(0.0);
            row.iter().enumerate().map(noisy).collect::<Vec<f32>>()
        })
        .collect();
    let counts: Vec<u32> = (1..=classes as u32).map(|rank| 1 + 1_000_000 / rank).collect();
    let batch: Vec<u32> = (0..BATCH as u32).collect();
    let request = |iteration| Request {
        seed: 1,
        iteration,
        cpu,
        examples: data.view(),
        batch: &batch,
        embeddings: Embeddings::padded(&embeddings, DIM),
        class_vectors: RowsView::f32(&vectors, DIM),
        class_bias: &[],
        near: None,
    };

    for (kind, k, l, budget) in [
        (SamplerKind::LshEmbedding, 4, 50, 3_900),
        (SamplerKind::LshLabel, 4, 50, 3_900),
        (SamplerKind::Mixed, 4, 50, 3_900),
        (SamplerKind::Uniform, 4, 50, 3_900),
        (SamplerKind::LogUniform, 4, 50, 3_900),
        (SamplerKind::Frequency, 4, 50, 3_900),
        (SamplerKind::LshEmbedding, 4, 400, 33_500),
    ] {
        let lsh = LshConfig { k: Some(k), l: Some(l), ..LshConfig::default() };
        let mixed = MixedConfig::default();
        let setup = Setup {
            seed: 1,
            budget,
            retrieve: budget,
            dim: DIM,
            label_counts: &counts,
            lsh: &lsh,
            mixed: &mixed,
        };
        let mut sampler = build(kind, &setup).expect("the shapes above are possible");
        if kind.uses_tables() {
            let rows = RowsView::f32(&vectors, DIM);
            let full = median_seconds(5, |_| sampler.refresh(cpu, rows, None));
            let tenth: Vec<u32> = (0..classes as u32).step_by(10).collect();
            let some = median_seconds(5, |_| sampler.refresh(cpu, rows, Some(&tenth)));
            println!("refresh, K = {k}, L = {l}: {full:.3} s; a tenth of the rows changed: {some:.3} s");
        }
        let mut out = Candidates::new();
        let seconds = median_seconds(11, |i| sampler.propose(&request(i), &mut out));
        let candidates: usize = out.all_counts().iter().map(|counts| counts.total()).sum();
        println!(
            "{kind}: {:.2} ms a batch, {:.0} queries/s, {:.2} ns a candidate, {} an example",
            1e3 * seconds,
            BATCH as f64 / seconds,
            1e9 * seconds / candidates as f64,
            candidates / BATCH,
        );
    }
}

/// The median time of several runs, after one that is not counted.
fn median_seconds(runs: u64, mut work: impl FnMut(u64)) -> f64 {
    work(0);
    let mut times: Vec<f64> = (1..=runs)
        .map(|run| {
            let start = Instant::now();
            work(run);
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
