//! What the vectoriser costs on short names of many scripts, on one core.
//!
//! Data: the names of the demo's slice (GeoNames, about 14 bytes a name, a third
//! of them not Latin). `transform` is what prediction and the second pass of
//! training do, `fit` is both passes with parsing, and copying the same bytes
//! name by name into one buffer is the yardstick below which nothing can go.
//! The best of several rounds is taken, block by block: other work on the machine
//! only adds.

use std::hint::black_box;
use std::time::Instant;

use lookalike::text::{ReadOptions, Scratch, Sizes, TextFile, TextOptions, fit_dataset};

const SLICE: &[u8] = include_bytes!("../../cli/assets/cities-train.tsv.zst");
const ROUNDS: usize = 20;
const FIT_ROUNDS: usize = 3;

/// Names worked on between two looks at the clock: about a millisecond.
const BLOCK: usize = 2048;

/// The least time of several rounds.
fn best_seconds(rounds: usize, mut work: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..rounds).map(time).fold(f64::INFINITY, f64::min)
}

/// The same block by block, so that one interruption spoils one block's round.
fn best_seconds_of_blocks(texts: &[String], mut work: impl FnMut(&str)) -> f64 {
    texts.chunks(BLOCK).map(|block| best_seconds(ROUNDS, || block.iter().for_each(|text| work(text)))).sum()
}

fn main() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool of one thread");
    pool.install(measure);
}

fn measure() {
    let file = TextFile::from_bytes("cities-train.tsv.zst", SLICE, &ReadOptions::default())
        .expect("the slice opens");
    let texts: Vec<String> =
        file.records().expect("opens").map(|record| record.expect("parses").text).collect();
    let bytes: usize = texts.iter().map(String::len).sum();
    let megabytes = bytes as f64 / 1e6;

    let mut copy = Vec::with_capacity(bytes * ROUNDS);
    let copy_seconds = best_seconds_of_blocks(&texts, |text| {
        copy.extend_from_slice(black_box(text).as_bytes());
    });
    black_box(&copy);
    println!("{} names, {megabytes:.2} MB, one core", texts.len());
    println!("{:<34} {:>9.1} MB/s", "copy", megabytes / copy_seconds);

    let characters = TextOptions { words: None, ..Default::default() };
    let words = TextOptions { characters: None, words: Some(Sizes::new(1, 1)), ..Default::default() };
    let hashed = TextOptions { hash_bits: Some(18), ..characters.clone() };
    for (name, options) in [
        ("characters 2-4", characters),
        ("characters 2-4, 2^18 buckets", hashed),
        ("words", words),
        ("default: words and characters 2-4", TextOptions::default()),
    ] {
        let fitted = fit_dataset(&file, &options).expect("fits");
        let mut scratch = Scratch::default();
        let seconds = best_seconds_of_blocks(&texts, |text| {
            black_box(fitted.vectoriser.transform(text, &mut scratch));
        });
        let fit_seconds = best_seconds(FIT_ROUNDS, || {
            black_box(fit_dataset(&file, &options).expect("fits"));
        });
        println!(
            "{name:<34} {:>9.1} MB/s transform ({:.0}x copy), {:.1} MB/s fit, {} features",
            megabytes / seconds,
            seconds / copy_seconds,
            megabytes / fit_seconds,
            fitted.vectoriser.num_features(),
        );
    }
}
