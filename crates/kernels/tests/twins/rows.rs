use lookalike_kernels::{
    AdamStep, Element, Moments, adam_row, backward_adam_row, bf16, gather_dot, reference, sum_rows,
};
use proptest::prelude::*;

use crate::{assert_close, entries, gradient, levels, numbers, strides};

/// Sums of `len` products of numbers below 1 differ by the order of additions.
fn tolerance(len: usize) -> f32 {
    1e-6 * (len as f32 + 8.0)
}

fn check_gather_dot<A: Element, B: Element>(seed: u64, stride: usize, examples: usize, len: usize) {
    let row: Vec<A> = numbers(seed, stride);
    let rows: Vec<B> = numbers(seed + 1, examples * stride);
    let entries = entries(seed + 2, len, examples);
    let mut expected = vec![0.0; len];
    reference::gather_dot(&row, &rows, &entries, &mut expected);
    for cpu in levels() {
        let mut out = vec![f32::NAN; len];
        gather_dot(cpu, &row, &rows, &entries, &mut out);
        assert_close(cpu, "dot", &out, &expected, tolerance(stride));
        // An entry's result must not depend on where in the list it stands.
        for (i, entry) in entries.iter().enumerate() {
            let mut alone = [0.0];
            gather_dot(cpu, &row, &rows, &[*entry], &mut alone);
            assert_eq!(alone[0].to_bits(), out[i].to_bits(), "{}", cpu.name());
        }
    }
}

fn check_sum_rows<T: Element>(seed: u64, stride: usize, count: usize, len: usize) {
    let rows: Vec<T> = numbers(seed, count * stride);
    // Three rows come next.
    let ids: Vec<u32> = entries(seed + 1, len + 3, count).iter().map(|e| e >> 2).collect();
    let weights: Vec<f32> = numbers(seed + 2, len);
    let before: Vec<f32> = numbers(seed + 3, stride);
    let mut expected = before.clone();
    reference::sum_rows(&rows, &ids, &weights, &mut expected);
    for cpu in levels() {
        let mut out = before.clone();
        sum_rows(cpu, &rows, &ids, &weights, &mut out);
        assert_close(cpu, "sum", &out, &expected, tolerance(len));
    }
}

/// The examples' gradient is close to the twin's, and so is the class's; and the step
/// with it is that of [`adam_row`] to the bit.
fn check_backward_adam_row<A: Element + PartialEq, B: Element>(
    seed: u64,
    stride: usize,
    examples: usize,
    len: usize,
) {
    let step = AdamStep { rate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    let rows: Vec<B> = numbers(seed, examples * stride);
    let before: Vec<f32> = numbers(seed + 5, examples * stride);
    let entries = entries(seed + 1, len, examples);
    let g: Vec<f32> = numbers(seed + 2, len);
    let [w, m]: [Vec<A>; 2] = [numbers(seed + 3, stride), numbers(seed + 4, stride)];
    let v: Vec<A> = m.iter().map(|m| A::from_f32(m.to_f32() * m.to_f32())).collect();
    // Whatever memory is asked for meanwhile.
    let ahead = usize::MAX.checked_shr(seed as u32 % 70).unwrap_or(0);
    let mut expected_d_rows = before.clone();
    let [tw, tm, tv] = &mut [w.clone(), m.clone(), v.clone()];
    let twin = Moments { w: tw, m: tm, v: tv, ahead };
    reference::backward_adam_row(&step, twin, &rows, &mut expected_d_rows, &entries, &g, seed);
    let expected_grad = gradient(stride, &rows, |step, row, d_rows| {
        reference::backward_adam_row(step, row, &rows, d_rows, &entries, &g, 0);
    });
    for cpu in levels() {
        let grad = gradient(stride, &rows, |step, row, d_rows| {
            backward_adam_row(cpu, step, row, &rows, d_rows, &entries, &g, 0);
        });
        assert_close(cpu, "grad", &grad, &expected_grad, tolerance(len));
        let mut expected = [w.clone(), m.clone(), v.clone()];
        let [ew, em, ev] = &mut expected;
        adam_row(cpu, &step, &grad, ew, em, ev, seed);

        let (mut d_rows, mut found) = (before.clone(), [w.clone(), m.clone(), v.clone()]);
        let [fw, fm, fv] = &mut found;
        let row = Moments { w: fw, m: fm, v: fv, ahead };
        backward_adam_row(cpu, &step, row, &rows, &mut d_rows, &entries, &g, seed);
        assert!(found == expected, "{}", cpu.name());
        assert_close(cpu, "d_rows", &d_rows, &expected_d_rows, tolerance(len));
    }
}

proptest! {
    #[test]
    fn backward_adam_row_is_its_twin(
        seed: u32, stride in strides(), examples in 1_usize..20, len in 0_usize..40,
    ) {
        check_backward_adam_row::<f32, f32>(seed.into(), stride, examples, len);
        check_backward_adam_row::<bf16, f32>(seed.into(), stride, examples, len);
        check_backward_adam_row::<bf16, bf16>(seed.into(), stride, examples, len);
    }

    #[test]
    fn gather_dot_is_its_twin(
        seed: u32, stride in strides(), examples in 1_usize..20, len in 0_usize..40,
    ) {
        check_gather_dot::<f32, f32>(seed.into(), stride, examples, len);
        check_gather_dot::<bf16, f32>(seed.into(), stride, examples, len);
        check_gather_dot::<bf16, bf16>(seed.into(), stride, examples, len);
    }

    #[test]
    fn sum_rows_is_its_twin(
        seed: u32, stride in strides(), count in 1_usize..20, len in 0_usize..40,
    ) {
        check_sum_rows::<f32>(seed.into(), stride, count, len);
        check_sum_rows::<bf16>(seed.into(), stride, count, len);
    }

    #[test]
    fn adam_row_is_its_twin(
        seed: u32, stride in 0_usize..300, noise: u64, rate in 0.0_f32..0.1, beta1 in 0.0_f32..1.0,
    ) {
        let step = AdamStep { rate, beta1, beta2: 0.999, epsilon: 1e-8 };
        let grad: Vec<f32> = numbers(seed.into(), stride);
        let w: Vec<f32> = numbers(u64::from(seed) + 1, stride);
        let m: Vec<f32> = numbers(u64::from(seed) + 2, stride);
        let v: Vec<f32> = m.iter().map(|m| m * m).collect();
        let mut expected = [w.clone(), m.clone(), v.clone()];
        let [ew, em, ev] = &mut expected;
        reference::adam_row(&step, &grad, ew, em, ev, noise);
        for cpu in levels() {
            let mut found = [w.clone(), m.clone(), v.clone()];
            let [fw, fm, fv] = &mut found;
            adam_row(cpu, &step, &grad, fw, fm, fv, noise);
            // A weight moves by rate · m / sqrt(v), the ratio being as large as
            // 30 where v is small: its rounding is what is left.
            assert_close(cpu, "w", fw, &expected[0], 1e-6 + 1e-4 * rate);
            assert_close(cpu, "m", fm, &expected[1], 1e-6);
            assert_close(cpu, "v", fv, &expected[2], 1e-6);
        }
    }

    /// With these betas and this rate nothing is rounded before the noise is
    /// added, so that equal noise gives equal bits.
    #[test]
    fn adam_row_in_bf16_has_the_noise_of_its_twin(seed: u32, stride in 0_usize..300, noise: u64) {
        let step = AdamStep { rate: 0.0, beta1: 0.0, beta2: 0.0, epsilon: 1e-8 };
        let grad: Vec<f32> = numbers(seed.into(), stride);
        let zeroes = vec![bf16::ZERO; stride];
        let w: Vec<bf16> = numbers(u64::from(seed) + 1, stride);
        let mut expected = [w.clone(), zeroes.clone(), zeroes.clone()];
        let [ew, em, ev] = &mut expected;
        reference::adam_row(&step, &grad, ew, em, ev, noise);
        for cpu in levels() {
            let mut found = [w.clone(), zeroes.clone(), zeroes.clone()];
            let [fw, fm, fv] = &mut found;
            adam_row(cpu, &step, &grad, fw, fm, fv, noise);
            prop_assert_eq!(&found, &expected, "{}", cpu.name());
        }
    }
}

/// Away from ties, a bf16 row differs from its twin by one last digit at most.
#[test]
fn adam_row_in_bf16_is_within_a_digit_of_its_twin() {
    let step = AdamStep { rate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    let grad: Vec<f32> = numbers(1, 400);
    let w: Vec<bf16> = numbers(2, 400);
    let m: Vec<bf16> = numbers(3, 400);
    let v: Vec<bf16> = m.iter().map(|m| bf16::from_f32(m.to_f32().powi(2))).collect();
    let mut expected = [w.clone(), m.clone(), v.clone()];
    let [ew, em, ev] = &mut expected;
    reference::adam_row(&step, &grad, ew, em, ev, 7);
    for cpu in levels() {
        let mut found = [w.clone(), m.clone(), v.clone()];
        let [fw, fm, fv] = &mut found;
        adam_row(cpu, &step, &grad, fw, fm, fv, 7);
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            let [found, expected] = [found.to_f32(), expected.to_f32()];
            let digit = expected.abs() / 128.0;
            assert!((found - expected).abs() <= digit, "{}: {found}, {expected}", cpu.name());
        }
    }
}

/// A gradient far too small for a digit of bf16 still moves the mean as far as
/// it should: rounding is unbiased.
#[test]
fn stochastic_rounding_is_unbiased_on_every_level() {
    const ROUNDS: u64 = 4_000;
    // Between 1 and the next bf16, 1 + 1/128: a fifth of the way.
    let target = 1.0 + 0.2 / 128.0;
    let step = AdamStep { rate: 0.0, beta1: 0.0, beta2: 0.0, epsilon: 1e-8 };
    let grad = [target; 16];
    for cpu in levels() {
        let mut sum = [0.0_f64; 16];
        for round in 0..ROUNDS {
            let [mut w, mut m, mut v] = [[bf16::ZERO; 16]; 3];
            let noise = round.wrapping_mul(0xD6E8_FEB8_6659_FD93);
            adam_row(cpu, &step, &grad, &mut w, &mut m, &mut v, noise);
            for (sum, m) in sum.iter_mut().zip(m) {
                *sum += f64::from(m.to_f32());
            }
        }
        let mean = sum.iter().sum::<f64>() / (16 * ROUNDS) as f64;
        // Five standard deviations of the mean of that many coin tosses.
        let deviation = (0.2_f64 * 0.8 / (16 * ROUNDS) as f64).sqrt() / 128.0;
        let error = (mean - f64::from(target)).abs();
        assert!(error < 5.0 * deviation, "{}: {mean}", cpu.name());
    }
}

#[test]
fn rounding_keeps_infinity_and_nan() {
    let step = AdamStep { rate: 0.0, beta1: 0.0, beta2: 0.0, epsilon: 1.0 };
    let mut grad = [1.0; 16];
    grad[3] = f32::INFINITY;
    grad[4] = f32::NEG_INFINITY;
    // A NaN whose only bit would be cut off.
    grad[5] = f32::from_bits(0x7F80_0001);
    for cpu in levels() {
        for noise in 0..100 {
            let [mut w, mut m, mut v] = [[bf16::ZERO; 16]; 3];
            adam_row(cpu, &step, &grad, &mut w, &mut m, &mut v, noise);
            assert_eq!(m[3], bf16::INFINITY, "{}", cpu.name());
            assert_eq!(m[4], bf16::NEG_INFINITY, "{}", cpu.name());
            assert!(m[5].is_nan(), "{}", cpu.name());
            assert_eq!(m[6], bf16::ONE, "{}", cpu.name());
        }
    }
}

#[test]
fn rows_out_of_bounds_panic_on_every_level() {
    for cpu in levels() {
        let rows = vec![0.0_f32; 4 * 128];
        let row = vec![0.0_f32; 128];
        for entries in [vec![4 << 2], vec![0, 4, 8, 4 << 2], vec![u32::MAX]] {
            let (rows, row, entries) = (rows.clone(), row.clone(), entries);
            let outside = std::panic::catch_unwind(move || {
                let mut out = vec![0.0; entries.len()];
                gather_dot(cpu, &row, &rows, &entries, &mut out);
            });
            assert!(outside.is_err(), "{}", cpu.name());
        }
    }
}
