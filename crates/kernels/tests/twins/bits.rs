use lookalike_kernels::{BIT_ROWS, BIT_WORDS, count_ones, indices_of_ones, reference, transpose_bits};
use proptest::prelude::*;

use crate::levels;

/// Words with few, about half and nearly all bits set.
fn words(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u64>> {
    let sparse = any::<[u64; 4]>().prop_map(|[a, b, c, d]| a & b & c & d);
    let word =
        prop_oneof![sparse.clone(), any::<u64>(), sparse.prop_map(|word| !word), Just(0), Just(u64::MAX)];
    prop::collection::vec(word, len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn transpose_bits_is_its_twin(words in words(BIT_ROWS * BIT_WORDS)) {
        let (rows, _) = words.as_chunks::<BIT_WORDS>();
        let rows: [[u64; BIT_WORDS]; BIT_ROWS] = rows.try_into().unwrap();
        let mut expected = rows;
        reference::transpose_bits(&mut expected);
        for cpu in levels() {
            let mut out = rows;
            transpose_bits(cpu, &mut out);
            prop_assert_eq!(out, expected, "{}", cpu.name());
            transpose_bits(cpu, &mut out);
            prop_assert_eq!(out, rows, "{} there and back", cpu.name());
        }
    }

    #[test]
    fn indices_of_ones_is_its_twin(words in words(0..20), shift in 0_u32..8) {
        let expected = reference::indices_of_ones(&words, shift);
        for cpu in levels() {
            let mut out = vec![7; expected.len() + BIT_ROWS];
            let len = indices_of_ones(cpu, &words, shift, &mut out);
            prop_assert_eq!(&out[..len], &expected, "{}", cpu.name());
            prop_assert_eq!(count_ones(cpu, &words), expected.len(), "{}", cpu.name());
        }
    }
}
