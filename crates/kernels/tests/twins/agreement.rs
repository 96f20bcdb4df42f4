use lookalike_kernels::{
    AdamStep, Cpu, Moments, Strided, adam_row, backward_adam_row, bf16, dot_rows, exp_sum, gather_dot, gemm,
    sum_rows,
};

use crate::{entries, hash, levels, numbers};

/// Results of every kernel that adds or multiplies, as bits.
fn results(cpu: Cpu, stride: usize) -> Vec<u32> {
    let row: Vec<f32> = numbers(1, stride);
    let rows: Vec<f32> = numbers(2, 20 * stride);
    let entries = entries(3, 37, 20);
    let mut dots = vec![0.0; 37];
    gather_dot(cpu, &row, &rows, &entries, &mut dots);

    let mut d_rows: Vec<f32> = numbers(4, 20 * stride);
    let [mut w, mut grad, mut v] = [row.clone(), vec![0.0; stride], vec![0.0; stride]];
    let moments = Moments { w: &mut w, m: &mut grad, v: &mut v, ahead: 0 };
    let step = AdamStep { rate: 0.0, beta1: 0.0, beta2: 0.0, epsilon: 1e-8 };
    backward_adam_row(cpu, &step, moments, &rows, &mut d_rows, &entries, &dots, 1);

    let ids: Vec<u32> = entries.iter().map(|entry| entry >> 2).collect();
    let mut sum = row.clone();
    sum_rows(cpu, &rows, &ids, &dots, &mut sum);

    let step = AdamStep { rate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    let mut state = [row.clone(), vec![0.1; stride], vec![0.1; stride]];
    let [w, m, v] = &mut state;
    adam_row(cpu, &step, &grad, w, m, v, 1);

    let mut exponentials = dots.clone();
    let total = exp_sum(cpu, &mut exponentials, 1.0);

    let turned = Strided { data: &rows[..], row_stride: 1, column_stride: stride };
    let straight = Strided { data: &rows[..], row_stride: stride, column_stride: 1 };
    let mut product = vec![0.0; stride * stride];
    gemm(cpu, stride, stride, 20, turned, straight, &mut product, stride);

    let short: Vec<bf16> = numbers(5, 7 * stride);
    let mut scores = vec![0.0; 2 * 20 * 20];
    let (far, near) = scores.split_at_mut(20 * 20);
    dot_rows(cpu, stride, &rows, &rows, &d_rows[..20], far, 20);
    dot_rows(cpu, stride, &rows, &short, &d_rows[..7], near, 20);

    let parts = [dots, d_rows, grad, sum, state.concat(), exponentials, vec![total], product, scores];
    parts.concat().iter().map(|x| x.to_bits()).collect()
}

const STRIDES: [usize; 3] = [16, 128, 208];

/// All results of a level in one number.
fn fingerprint(cpu: Cpu) -> u64 {
    let bits = STRIDES.map(|stride| results(cpu, stride)).concat();
    bits.iter().fold(0, |so_far, &bits| hash(so_far, bits.into()))
}

/// Levels with a fused multiply-add compute the same, operation by operation:
/// a model trained on one of them is the model trained on the other, if it is
/// stored as f32. (With bf16, AVX-512 has shorter ways of its own.)
#[test]
fn levels_with_fused_multiply_add_agree_bit_for_bit() {
    for stride in STRIDES {
        let fused = levels().into_iter().filter(|&cpu| cpu != Cpu::portable());
        let found: Vec<_> = fused.map(|cpu| results(cpu, stride)).collect();
        for pair in found.windows(2) {
            assert_eq!(pair[0], pair[1], "stride {stride}");
        }
    }
}

/// The same with levels that this machine does not have, by what they gave
/// elsewhere: a machine with AVX2 alone is held against AVX-512 too. Whoever changes
/// the order of a sum on purpose writes down the new numbers.
#[test]
fn levels_agree_with_other_machines() {
    for cpu in levels() {
        let expected = if cpu == Cpu::portable() { PORTABLE } else { FUSED };
        assert_eq!(fingerprint(cpu), expected, "{}", cpu.name());
    }
}

const FUSED: u64 = 16_181_747_512_779_341_502;
const PORTABLE: u64 = 13_042_752_197_620_044_555;
