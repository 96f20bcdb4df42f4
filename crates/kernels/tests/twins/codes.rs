use lookalike_kernels::{
    CODE_VECTOR, CodedQueries, CodedRow, CodedRows, Element, FLAG_BITS, KeyGroup, Lists, ListsMut, bf16,
    code_query, code_row, dot_codes, gather_dot_codes, keep_above_limits, reference,
};
use proptest::prelude::*;

use crate::{entries, hash, levels, numbers, strides};

/// Codes of a row, padded, by one function or another.
fn coded<T: Element, C>(row: &[T], code: impl Fn(&[T], &mut [i8]) -> C) -> (Vec<i8>, C) {
    let mut codes = vec![0; row.len().next_multiple_of(CODE_VECTOR)];
    let coded = code(row, &mut codes);
    (codes, coded)
}

/// All rows of `stride` numbers.
fn all_coded<C>(rows: &[f32], stride: usize, code: impl Fn(&[f32], &mut [i8]) -> C) -> (Vec<i8>, Vec<C>) {
    let rows: Vec<(Vec<i8>, C)> = rows.chunks(stride).map(|row| coded(row, &code)).collect();
    let (codes, coded): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    (codes.concat(), coded)
}

fn check_coding<T: Element>(row: &[T]) {
    for cpu in levels() {
        assert_eq!(coded(row, |r, c| code_row(cpu, r, c)), coded(row, reference::code_row), "{}", cpu.name());
        let expected = coded(row, reference::code_query);
        assert_eq!(coded(row, |r, c| code_query(cpu, r, c)), expected, "{}", cpu.name());
    }
}

proptest! {
    #[test]
    fn dot_codes_is_its_twin(seed: u32, stride in strides(), rows in 0_usize..20) {
        let seed = u64::from(seed);
        let query: Vec<i16> = (0..stride as u64).map(|i| (hash(seed, i) % 4095) as i16 - 2047).collect();
        let codes: Vec<i8> = (0..(rows * stride) as u64).map(|i| hash(seed + 1, i) as i8).collect();
        let mut expected = vec![0; rows];
        reference::dot_codes(&query, &codes, &mut expected);
        for cpu in levels() {
            let mut out = vec![9; rows];
            dot_codes(cpu, &query, &codes, &mut out);
            prop_assert_eq!(&out, &expected, "{}", cpu.name());
        }
    }

    #[test]
    fn codes_are_their_twins(seed: u32, stride in strides(), scale in -40_i32..12) {
        let mut row: Vec<f32> = numbers(seed.into(), stride);
        row.iter_mut().for_each(|x| *x *= 10_f32.powi(scale));
        check_coding(&row);
        check_coding(&numbers::<bf16>(seed.into(), stride));
        check_coding(&vec![0.0_f32; stride]);
    }

    /// Sums of codes are exact: every level gives the twin's bits.
    #[test]
    fn gather_dot_codes_is_its_twin(
        seed: u32,
        stride in strides(),
        lengths in prop::collection::vec(1_usize..12, 0..20),
        extreme: bool,
    ) {
        let (seed, examples, keys) = (u64::from(seed), 9, 2 * lengths.len());
        let mut row_numbers: Vec<f32> = numbers(seed, keys * stride);
        let mut embeddings: Vec<f32> = numbers(seed + 1, examples * stride);
        if extreme {
            // The largest products that there are, of one sign.
            row_numbers.fill(-1.0);
            embeddings.fill(if seed.is_multiple_of(2) { 1.0 } else { -1.0 });
        }
        let (codes, coded) = all_coded(&row_numbers, stride, reference::code_row);
        let (query_codes, scales) = all_coded(&embeddings, stride, reference::code_query);
        let shifts: Vec<f32> = numbers(seed + 2, keys);
        let mut start = 7;
        let groups: Vec<KeyGroup> = lengths.iter().zip(0..).map(|(&length, i)| {
            start += length as u32;
            KeyGroup { local_key: 2 * i + 1, start: start - length as u32 }
        }).collect();
        let entries = entries(seed + 3, lengths.iter().sum(), examples);
        let lists = Lists { groups: &groups, entries: &entries };
        let stride = stride.next_multiple_of(CODE_VECTOR);
        let rows = CodedRows { codes: &codes, stride, coded: &coded, shifts: &shifts };
        let queries = CodedQueries { codes: &query_codes, scales: &scales };
        let mut expected = vec![9.0; entries.len()];
        reference::gather_dot_codes(rows, lists, queries, &mut expected);
        for cpu in levels() {
            let mut out = vec![9.0; entries.len()];
            gather_dot_codes(cpu, rows, lists, queries, &mut out);
            prop_assert_eq!(&out, &expected, "{}", cpu.name());
        }
        // Some examples keep everything, some nothing; equal is not above.
        let mut limits: Vec<f32> = numbers(seed + 4, examples);
        limits.iter_mut().for_each(|limit| *limit *= 0.4 * (stride as f32).sqrt());
        (limits[3], limits[4]) = (f32::NEG_INFINITY, f32::INFINITY);
        if let Some((entry, score)) = entries.iter().zip(&expected).find(|(entry, _)| **entry % 4 == 0) {
            limits[*entry as usize >> FLAG_BITS] = *score;
        }
        let kept = reference::keep_above_limits(rows, (&groups, &entries), queries, &limits);
        for cpu in levels() {
            let (mut groups, mut entries) = (groups.clone(), entries.clone());
            let lists = ListsMut { groups: &mut groups, entries: &mut entries };
            let (num_groups, num_entries) = keep_above_limits(cpu, rows, lists, queries, &limits);
            let of_level = (groups[..num_groups].to_vec(), entries[..num_entries].to_vec());
            prop_assert_eq!(&of_level, &kept, "{}", cpu.name());
        }
    }
}

#[test]
fn examples_out_of_bounds_panic_on_every_level() {
    let (codes, shifts) = ([1; CODE_VECTOR], [0.0]);
    let coded = [CodedRow { scale: 1.0, above: 0 }];
    let rows = CodedRows { codes: &codes, stride: CODE_VECTOR, coded: &coded, shifts: &shifts };
    let groups = [KeyGroup { local_key: 0, start: 0 }];
    for cpu in levels() {
        // More scales than codes, and the other way round.
        for (rows_of_codes, scales) in [(1, 2), (2, 1)] {
            let (codes, scales) = (vec![1; rows_of_codes * CODE_VECTOR], vec![1.0; scales]);
            let queries = CodedQueries { codes: &codes, scales: &scales };
            let run = |entries: &[u32]| {
                gather_dot_codes(
                    cpu,
                    rows,
                    Lists { groups: &groups, entries },
                    queries,
                    &mut vec![0.0; entries.len()],
                );
            };
            run(&[0, 0, 0]);
            for entries in [&[0, 1 << FLAG_BITS][..], &[0, 0, 1 << FLAG_BITS, 0, 0]] {
                assert!(std::panic::catch_unwind(|| run(entries)).is_err(), "{}", cpu.name());
            }
        }
    }
}
