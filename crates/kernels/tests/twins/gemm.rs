use lookalike_kernels::{Element, Strided, bf16, gemm, reference};
use proptest::prelude::*;

use crate::{assert_close, levels, numbers};

/// How an operand lies in memory.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Rows,
    Columns,
    Neither,
}

fn layouts() -> impl Strategy<Value = Layout> {
    prop_oneof![Just(Layout::Rows), Just(Layout::Columns), Just(Layout::Neither)]
}

/// Strides for `rows × columns` with `gap` between, and how much data it takes.
fn strides(layout: Layout, rows: usize, columns: usize, gap: usize) -> (usize, usize, usize) {
    match layout {
        Layout::Rows => (columns + gap, 1, rows * (columns + gap)),
        Layout::Columns => (1, rows + gap, columns * (rows + gap)),
        Layout::Neither => (2 * columns + gap, 2, rows * (2 * columns + gap)),
    }
}

fn check<A: Element, B: Element>(
    seed: u64,
    [m, n, k]: [usize; 3],
    gap: usize,
    a_layout: Layout,
    b_layout: Layout,
) {
    let (row_stride, column_stride, len) = strides(a_layout, m, k, gap);
    let a: Vec<A> = numbers(seed, len);
    let a = Strided { data: &a, row_stride, column_stride };
    let (row_stride, column_stride, len) = strides(b_layout, k, n, gap);
    let b: Vec<B> = numbers(seed + 1, len);
    let b = Strided { data: &b, row_stride, column_stride };
    let before: Vec<f32> = numbers(seed + 2, m * (n + gap));
    let mut expected = before.clone();
    reference::gemm(m, n, k, a, b, &mut expected, n + gap);
    for cpu in levels() {
        let mut c = before.clone();
        gemm(cpu, m, n, k, a, b, &mut c, n + gap);
        // The gaps between rows of c must stay as they were: they are compared.
        assert_close(cpu, "c", &c, &expected, 1e-6 * (k as f32 + 8.0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn gemm_is_its_twin(
        seed: u32,
        m in 0_usize..40,
        n in 0_usize..90,
        k in 0_usize..50,
        gap in 0_usize..5,
        a_layout in layouts(),
        b_layout in layouts(),
    ) {
        let seed = u64::from(seed);
        check::<f32, f32>(seed, [m, n, k], gap, a_layout, b_layout);
        check::<bf16, f32>(seed, [m, n, k], gap, a_layout, b_layout);
        check::<f32, bf16>(seed, [m, n, k], gap, a_layout, b_layout);
        check::<bf16, bf16>(seed, [m, n, k], gap, a_layout, b_layout);
    }
}

/// Sizes on both sides of every block's edge.
#[test]
fn gemm_crosses_its_blocks() {
    for sizes in [[119, 513, 127], [121, 511, 129], [241, 64, 257], [3, 1025, 5]] {
        check::<f32, f32>(1, sizes, 0, Layout::Rows, Layout::Rows);
        check::<f32, f32>(2, sizes, 3, Layout::Columns, Layout::Columns);
        check::<bf16, bf16>(3, sizes, 1, Layout::Rows, Layout::Columns);
    }
}
