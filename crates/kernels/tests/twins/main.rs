//! Every kernel, on every level of instructions this machine has, against its
//! scalar twin.
//!
//! `LOOKALIKE_REQUIRE_CPU=avx512` makes the tests fail, rather than pass
//! without having tried, where the machine lacks that level.

mod agreement;
mod aligned;
mod bits;
mod codes;
mod columns;
mod expand;
mod gemm;
mod hashing;
mod levels;
mod rows;
mod select;
mod softmax;
mod sorted;
mod tile;

use lookalike_kernels::{AdamStep, Cpu, Element, FLAG_BITS, Moments};
use proptest::prelude::*;

/// Every level to test.
fn levels() -> Vec<Cpu> {
    let available = Cpu::available();
    if let Ok(required) = std::env::var("LOOKALIKE_REQUIRE_CPU") {
        assert!(
            available.iter().any(|cpu| cpu.name() == required),
            "LOOKALIKE_REQUIRE_CPU asks for {required}, this machine has {available:?}"
        );
    }
    available
}

/// Numbers that are all different and of both signs, named by a seed.
fn numbers<T: Element>(seed: u64, len: usize) -> Vec<T> {
    (0..len as u64).map(|i| T::from_f32((hash(seed, i) >> 40) as f32 / (1 << 23) as f32 - 1.0)).collect()
}

/// Entries of `examples`, with flags, any of them repeated.
fn entries(seed: u64, len: usize, examples: usize) -> Vec<u32> {
    (0..len as u64)
        .map(|i| {
            let example = (hash(seed, i) >> 8) as u32 % examples as u32;
            example << FLAG_BITS | (hash(seed, i) as u32 & ((1 << FLAG_BITS) - 1))
        })
        .collect()
}

fn hash(seed: u64, i: u64) -> u64 {
    let mut x = seed ^ i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for _ in 0..2 {
        x = (x ^ x >> 31).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    }
    x ^ x >> 32
}

/// A class's gradient: the first moment that `backward_adam_row` leaves if it remembers
/// nothing.
fn gradient<T>(
    stride: usize,
    rows: &[T],
    backward: impl Fn(&AdamStep, Moments<'_, f32>, &mut [f32]),
) -> Vec<f32> {
    let step = AdamStep { rate: 0.0, beta1: 0.0, beta2: 0.0, epsilon: 1e-8 };
    let [mut w, mut m, mut v] = [(); 3].map(|()| vec![0.0; stride]);
    backward(&step, Moments { w: &mut w, m: &mut m, v: &mut v, ahead: 0 }, &mut vec![0.0; rows.len()]);
    m
}

/// A row's stride: any number of vectors, the specially compiled 8 among them.
fn strides() -> impl Strategy<Value = usize> {
    prop_oneof![Just(128), (1_usize..=25).prop_map(|vectors| vectors * 16)]
}

#[track_caller]
fn assert_close(cpu: Cpu, what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let both_infinite = found == expected;
        assert!(
            both_infinite || (found - expected).abs() <= tolerance,
            "{} {what}[{i}]: found {found}, expected {expected}, tolerance {tolerance}",
            cpu.name()
        );
    }
}
