use lookalike_kernels::{Cpu, Element, FLAG_BITS, bf16, dot_rows, gather_dot, reference};
use proptest::prelude::*;

use crate::{assert_close, levels, numbers, strides};

struct Case<T> {
    stride: usize,
    rows: Vec<f32>,
    columns: Vec<T>,
    bias: Vec<f32>,
    gap: usize,
}

impl<T: Element> Case<T> {
    fn new(seed: u64, stride: usize, rows: usize, columns: usize, gap: usize) -> Self {
        Self {
            stride,
            rows: numbers(seed, rows * stride),
            columns: numbers(seed + 1, columns * stride),
            bias: numbers(seed + 2, columns),
            gap,
        }
    }

    fn out_stride(&self) -> usize {
        (self.bias.len() + self.gap).max(1)
    }

    /// Numbers that must stay where no product goes.
    fn before(&self) -> Vec<f32> {
        numbers(9, self.rows.len() / self.stride * self.out_stride())
    }

    fn products(&self, cpu: Cpu) -> Vec<f32> {
        let mut out = self.before();
        dot_rows(cpu, self.stride, &self.rows, &self.columns, &self.bias, &mut out, self.out_stride());
        out
    }

    fn check(&self) {
        let mut expected = self.before();
        let (rows, columns, bias) = (&self.rows, &self.columns, &self.bias);
        reference::dot_rows(self.stride, rows, columns, bias, &mut expected, self.out_stride());
        for cpu in levels() {
            let found = self.products(cpu);
            assert_close(cpu, "product", &found, &expected, 1e-6 * (self.stride as f32 + 8.0));
            self.check_each_alone(cpu, &found);
        }
    }

    /// Every product has the bits of [`gather_dot`], with either operand as the row.
    fn check_each_alone(&self, cpu: Cpu, found: &[f32]) {
        for (row, found) in self.rows.chunks_exact(self.stride).zip(found.chunks(self.out_stride())) {
            let entries: Vec<u32> = (0..self.bias.len() as u32).map(|i| i << FLAG_BITS).collect();
            let mut together = vec![0.0; entries.len()];
            gather_dot(cpu, row, &self.columns, &entries, &mut together);
            for (j, column) in self.columns.chunks_exact(self.stride).enumerate() {
                let mut alone = [0.0];
                gather_dot(cpu, column, row, &[0], &mut alone);
                let expected = [together[j], alone[0]].map(|product| (product + self.bias[j]).to_bits());
                assert_eq!([found[j].to_bits(); 2], expected, "{} column {j}", cpu.name());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn dot_rows_is_its_twin_and_gives_the_bits_of_gather_dot(
        seed: u32,
        stride in strides(),
        rows in 0_usize..12,
        columns in 0_usize..12,
        gap in 0_usize..4,
    ) {
        let seed = u64::from(seed);
        Case::<f32>::new(seed, stride, rows, columns, gap).check();
        Case::<bf16>::new(seed, stride, rows, columns, gap).check();
    }
}

/// More rows than stay near, and every number of them and of columns on both sides
/// of a block's edge.
#[test]
fn dot_rows_crosses_its_blocks() {
    for (rows, columns) in [(31, 8), (32, 9), (33, 10), (70, 11), (5, 67)] {
        Case::<f32>::new(1, 128, rows, columns, 16).check();
        Case::<bf16>::new(2, 48, rows, columns, 0).check();
    }
}

#[test]
fn operands_that_do_not_fit_panic_on_every_level() {
    for cpu in levels() {
        let refused = |stride: usize, bias: usize, out_stride: usize, out: usize| {
            let call = move || {
                let (rows, columns, mut out) = ([0.0; 64], [0.0; 96], vec![0.0; out]);
                dot_rows(cpu, stride, &rows, &columns, &vec![0.0; bias], &mut out, out_stride);
            };
            std::panic::catch_unwind(call).is_err()
        };
        assert!(!refused(32, 3, 3, 6), "{}", cpu.name());
        for (stride, bias, out_stride, out) in [(0, 3, 3, 6), (24, 4, 4, 8), (32, 2, 3, 6), (32, 3, 2, 6)] {
            assert!(refused(stride, bias, out_stride, out), "{}: {stride} {bias} {out_stride}", cpu.name());
        }
        assert!(refused(32, 3, 3, 5), "{}: the output is too short", cpu.name());
    }
}
