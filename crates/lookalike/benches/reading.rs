//! How fast examples are read: text, and a packed file.
//!
//! Model of data: generated examples in the shape of amazon-670k (76 features
//! and 5.45 labels an example, values of four decimals), 60,000 of them; or a
//! file of the user's: `cargo bench --bench reading -- FILE`. Each figure is
//! the median of nine runs, taken in turns with copies of the same bytes in
//! memory, so that a busy machine slows both; `of copy` is the ratio.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use lookalike::data::synth::{SynthOptions, synth};
use lookalike::data::write::to_text;
use lookalike::data::{Packed, ReadOptions, write_packed, xc};

const RUNS: usize = 9;

fn main() {
    // `cargo bench` passes options of its own, such as --bench.
    let text = match std::env::args().skip(1).find(|arg| !arg.starts_with('-')) {
        Some(path) => std::fs::read(path).expect("a readable file"),
        None => generated_text(),
    };
    println!("{:.1} MB of text", text.len() as f64 / 1e6);
    println!("{:<34}{:>10}{:>10}", "", "MB/s", "of copy");
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
        let parse =
            || drop(black_box(xc::parse("bench", &text, &ReadOptions::default()).expect("good text")));
        report(&format!("parse text, {threads} thread(s)"), text.len(), &text, || pool.install(parse));
    }
    let (data, _) = xc::parse("bench", &text, &ReadOptions::default()).expect("good text");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path: PathBuf = folder.path().join("bench.lkp");
    write_packed(&path, data.view()).expect("a writable folder");
    let length = std::fs::metadata(&path).expect("the packed file").len() as usize;
    let seconds = report("open packed and check its law", length, &text, || {
        drop(black_box(Packed::open(&path).expect("a packed file")));
    });
    println!("packed: {:.1} MB, open in {:.1} ms", length as f64 / 1e6, seconds * 1e3);
}

fn generated_text() -> Vec<u8> {
    let preset = SynthOptions::preset("amazon-670k").expect("a known preset");
    let (data, _) = synth(&SynthOptions { train: 60_000, test: 0, ..preset }).expect("a possible shape");
    let mut text = Vec::new();
    to_text(data.view(), &mut text).expect("memory takes everything");
    text
}

/// Prints and returns the median time of `work`, beside that of copying `text`.
fn report(name: &str, bytes: usize, text: &[u8], mut work: impl FnMut()) -> f64 {
    let mut target = text.to_vec();
    let (mut times, mut copy_times) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        times.push(seconds(&mut work));
        copy_times.push(seconds(|| {
            target.copy_from_slice(text);
            black_box(&mut target);
        }));
    }
    let (time, copy_time) = (median(times), median(copy_times));
    let (speed, copy_speed) = (bytes as f64 / time / 1e6, text.len() as f64 / copy_time / 1e6);
    println!("{name:<34}{speed:>10.0}{:>9.1}%", 100.0 * speed / copy_speed);
    time
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
