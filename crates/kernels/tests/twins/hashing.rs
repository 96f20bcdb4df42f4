use lookalike_kernels::{Element, LANES, bf16, dwta_codes, reference, transpose_rows};
use proptest::prelude::*;

use crate::{hash, levels, numbers};

fn check_transpose<T: Element>(seed: u64, dim: usize) {
    let data: Vec<Vec<T>> = (0..LANES as u64).map(|r| numbers(seed + r, dim)).collect();
    let rows: [&[T]; LANES] = std::array::from_fn(|r| &data[r][..]);
    let mut expected = vec![0.0; dim * LANES];
    reference::transpose_rows(&rows, dim, &mut expected);
    for cpu in levels() {
        let mut out = vec![f32::NAN; dim * LANES];
        transpose_rows(cpu, &rows, dim, &mut out);
        assert_eq!(out, expected, "{}", cpu.name());
    }
}

proptest! {
    #[test]
    fn transpose_rows_is_its_twin(seed: u32, dim in 0_usize..200) {
        check_transpose::<f32>(seed.into(), dim);
        check_transpose::<bf16>(seed.into(), dim);
    }

    #[test]
    fn dwta_codes_are_their_twins(
        seed: u32,
        dim in 1_usize..150,
        bin in prop_oneof![Just(8_usize), 1_usize..12],
        k in 0_usize..8,
        shift in 0_u32..5,
        tables in 0_usize..10,
        levels_of_value in 1_u64..50,
    ) {
        // Few different values, so that there are ties.
        let seed = u64::from(seed);
        let transposed: Vec<f32> = (0..(dim * LANES) as u64)
            .map(|i| (hash(seed, i) % levels_of_value) as f32 - 3.0)
            .collect();
        let dims: Vec<u32> = (0..(tables * k * bin) as u64)
            .map(|i| (hash(seed + 1, i) % dim as u64) as u32)
            .collect();
        let mut expected = vec![0; tables * LANES];
        reference::dwta_codes(&transposed, &dims, bin, k, shift, &mut expected);
        for cpu in levels() {
            let mut out = vec![u32::MAX; tables * LANES];
            dwta_codes(cpu, &transposed, &dims, bin, k, shift, &mut out);
            prop_assert_eq!(&out, &expected, "{}", cpu.name());
        }
    }
}

#[test]
fn dimension_out_of_bounds_panics_on_every_level() {
    for cpu in levels() {
        for bin in [8, 5] {
            let outside = std::panic::catch_unwind(|| {
                let transposed = [0.0; 4 * LANES];
                let mut dims = vec![0; bin];
                dims[bin - 1] = 4;
                dwta_codes(cpu, &transposed, &dims, bin, 1, 3, &mut [0; LANES]);
            });
            assert!(outside.is_err(), "{}", cpu.name());
        }
    }
}
