use lookalike_kernels::{exp_sum, gather_scale, reference, scatter_exp, scatter_max};
use proptest::prelude::*;

use crate::{assert_close, entries, levels, numbers};

proptest! {
    #[test]
    fn softmax_in_three_passes_is_its_twin(
        seed: u32, examples in 1_usize..40, len in 0_usize..200, scale in 0.1_f32..50.0,
    ) {
        let seed = u64::from(seed);
        let scores: Vec<f32> = numbers::<f32>(seed, len).iter().map(|x| x * scale).collect();
        let entries = entries(seed + 1, len, examples);
        let mut expected_max = vec![f32::NEG_INFINITY; examples];
        reference::scatter_max(&scores, &entries, &mut expected_max);
        let mut expected = scores.clone();
        let mut expected_sum = vec![0.0; examples];
        reference::scatter_exp(&mut expected, &entries, &expected_max, &mut expected_sum);
        let factor: Vec<f32> = expected_sum.iter().map(|&sum: &f32| 1.0 / sum.max(1.0)).collect();
        let mut expected_scaled = expected.clone();
        reference::gather_scale(&mut expected_scaled, &entries, &factor);
        for cpu in levels() {
            let mut max = vec![f32::NEG_INFINITY; examples];
            scatter_max(cpu, &scores, &entries, &mut max);
            prop_assert_eq!(&max, &expected_max, "{}", cpu.name());
            let mut found = scores.clone();
            let mut sum = vec![0.0; examples];
            scatter_exp(cpu, &mut found, &entries, &max, &mut sum);
            assert_close(cpu, "exp", &found, &expected, 3e-7);
            assert_close(cpu, "sum", &sum, &expected_sum, 3e-7 * (len as f32 + 1.0));
            gather_scale(cpu, &mut found, &entries, &factor);
            assert_close(cpu, "scaled", &found, &expected_scaled, 4e-7);
        }
    }

    #[test]
    fn exp_sum_is_its_twin(seed: u32, len in 0_usize..200, max in -3.0_f32..3.0) {
        let scores: Vec<f32> = numbers(seed.into(), len);
        let mut expected = scores.clone();
        let expected_sum = reference::exp_sum(&mut expected, max);
        for cpu in levels() {
            let mut found = scores.clone();
            let sum = exp_sum(cpu, &mut found, max);
            assert_close(cpu, "exp", &found, &expected, 1e-5);
            assert_close(cpu, "sum", &[sum], &[expected_sum], 1e-4 * (len as f32 + 1.0));
        }
    }
}

/// `exp(x)` of each number.
fn exponentials(cpu: lookalike_kernels::Cpu, x: &[f32]) -> Vec<f32> {
    let mut out = x.to_vec();
    exp_sum(cpu, &mut out, 0.0);
    out
}

#[test]
fn exp_is_within_two_units_over_the_whole_range() {
    // Every normal result: steps of 1/2000, off the round numbers.
    let x: Vec<f32> = (-174_672..177_444).map(|i| i as f32 * 0.000_500_003).collect();
    for cpu in levels() {
        let found = exponentials(cpu, &x);
        for (&x, &found) in x.iter().zip(&found) {
            let exact = f64::from(x).exp();
            let unit = f64::from((exact as f32).next_up()) - f64::from(exact as f32);
            let error = (f64::from(found) - exact).abs() / unit;
            assert!(error <= 2.0, "{} exp({x}) = {found}, {error} units off", cpu.name());
        }
    }
}

#[test]
fn exp_at_the_ends() {
    let x = [
        0.0,
        -0.0,
        -88.0,
        -103.0,
        -104.0,
        -1e4,
        f32::MIN,
        f32::NEG_INFINITY,
        88.73,
        1e4,
        f32::INFINITY,
        f32::NAN,
    ];
    for cpu in levels() {
        let found = exponentials(cpu, &x);
        assert_eq!(found[..2], [1.0, 1.0], "{}", cpu.name());
        assert_eq!(found[2..8], [0.0; 6], "{}", cpu.name());
        assert_eq!(found[8..11], [f32::INFINITY; 3], "{}", cpu.name());
        assert!(found[11].is_nan(), "{}", cpu.name());
    }
}

#[test]
fn examples_out_of_bounds_panic_on_every_level() {
    for cpu in levels() {
        for (at, len) in [(15, 16), (16, 17)] {
            let outside = std::panic::catch_unwind(|| {
                let mut entries = vec![0; len];
                entries[at] = 5 << 2;
                gather_scale(cpu, &mut vec![0.0; len], &entries, &[1.0; 5]);
            });
            assert!(outside.is_err(), "{}", cpu.name());
        }
    }
}
