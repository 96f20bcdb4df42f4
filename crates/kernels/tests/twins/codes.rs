use lookalike_kernels::{dot_codes, reference};
use proptest::prelude::*;

use crate::{hash, levels, strides};

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
}
