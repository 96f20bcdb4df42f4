use lookalike_kernels::{
    COLUMN_BLOCK, CodedColumns, CodedQueries, add_coded_rows, dot_coded_columns, lay_column, reference,
};
use proptest::prelude::*;

use crate::{assert_close, hash, levels, numbers};

proptest! {
    #[test]
    fn dot_coded_columns_is_its_twin(
        seed: u32,
        fours in 1_usize..40,
        blocks in 0_usize..4,
        queries in 0_usize..11,
        extreme: bool,
    ) {
        let (seed, len, columns) = (u64::from(seed), 4 * fours, blocks * COLUMN_BLOCK);
        let code = |i: u64| if extreme { -127 } else { (hash(seed, i) % 255) as i8 };
        let rows: Vec<Vec<i8>> =
            (0..columns).map(|j| (0..len).map(|n| code((j * len + n) as u64).max(-127)).collect()).collect();
        let mut codes = vec![0; columns * len];
        rows.iter().enumerate().for_each(|(j, row)| lay_column(row, j, &mut codes));
        let query = |i: u64| if extreme { 127 } else { (hash(seed + 1, i) % 128) as i8 };
        let query_codes: Vec<i8> = (0..(queries * len) as u64).map(query).collect();
        let (scales, query_scales) = (numbers(seed + 2, columns), numbers(seed + 3, queries));
        let bias: Vec<f32> = numbers(seed + 4, columns);
        let starts: Vec<i32> = (0..columns as u64).map(|j| hash(seed + 5, j) as i32 >> 12).collect();
        let columns_of = CodedColumns { codes: &codes, scales: &scales, starts: &starts, bias: &bias };
        let queries_of = CodedQueries { codes: &query_codes, scales: &query_scales };
        let stride = columns + 16;
        let mut expected = vec![9.0; queries * stride];
        reference::dot_coded_columns(len, queries_of, columns_of, &mut expected, stride);
        for (i, query) in query_codes.chunks(len).enumerate() {
            for (j, row) in rows.iter().enumerate() {
                let sum: i32 = row.iter().zip(query).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
                let score = (sum + starts[j]) as f32 * (scales[j] * query_scales[i]) + bias[j];
                prop_assert_eq!(expected[i * stride + j], score);
            }
        }
        for cpu in levels() {
            let mut out = vec![9.0; queries * stride];
            dot_coded_columns(cpu, len, queries_of, columns_of, &mut out, stride);
            // Sums are exact; one level rounds a product before it adds, another does not.
            assert_close(cpu, "dot_coded_columns", &out, &expected, 0.5);
        }
    }

    #[test]
    fn add_coded_rows_is_its_twin(seed: u32, blocks in 0_usize..4, count in 0_usize..9, more in 0_usize..70) {
        let (seed, len) = (u64::from(seed), blocks * COLUMN_BLOCK);
        let codes: Vec<i8> = (0..(count * (len + more)) as u64).map(|i| hash(seed, i) as i8).collect();
        let factors: Vec<f32> = numbers(seed + 1, count);
        let row = |i: usize| &codes[i * (len + more)..(i + 1) * (len + more)];
        let rows: Vec<(&[i8], f32)> = factors.iter().enumerate().map(|(i, &factor)| (row(i), factor)).collect();
        let sums: Vec<f32> = numbers(seed + 2, len);
        let mut expected = sums.clone();
        reference::add_coded_rows(&rows, &mut expected);
        for cpu in levels() {
            let mut found = sums.clone();
            add_coded_rows(cpu, &rows, &mut found);
            assert_close(cpu, "add_coded_rows", &found, &expected, 1e-3);
        }
    }
}

#[test]
#[should_panic(expected = "a number for each sum")]
fn short_rows_are_no_sums() {
    add_coded_rows(levels()[0], &[(&[1; COLUMN_BLOCK - 1], 1.0)], &mut [0.0; COLUMN_BLOCK]);
}
