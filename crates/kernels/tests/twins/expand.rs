use lookalike_kernels::{LANES, add_expanded, reference};
use proptest::prelude::*;

use crate::{levels, numbers};

proptest! {
    /// To the bit, on every level: of a sum that has no weight not even the sign of zero changes.
    #[test]
    fn add_expanded_is_its_twin(
        seed: u32,
        len in 0_usize..200,
        masks in prop::collection::vec(
            prop_oneof![Just(0_u16), Just(u16::MAX), any::<u16>(), (0_u32..16).prop_map(|i| 1 << i)], 13,
        ),
        more in 0_usize..40,
        factor in prop_oneof![-2.0_f32..2.0, Just(f32::INFINITY), Just(0.0)],
    ) {
        let mut masks = masks[..len.div_ceil(LANES)].to_vec();
        if let (Some(last), ragged @ 1..) = (masks.last_mut(), len % LANES) {
            *last &= (1 << ragged) - 1;
        }
        let ones: usize = masks.iter().map(|mask| mask.count_ones() as usize).sum();
        let weights: Vec<f32> = numbers(seed.into(), ones + more);
        let mut sums: Vec<f32> = numbers(u64::from(seed) + 1, len);
        sums.iter_mut().skip(1).step_by(3).for_each(|sum| *sum = -0.0);
        let mut expected = sums.clone();
        prop_assert_eq!(reference::add_expanded(factor, &masks, &weights, &mut expected), ones);
        let bits = |sums: &[f32]| sums.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>();
        for cpu in levels() {
            let mut sums = sums.clone();
            prop_assert_eq!(add_expanded(cpu, factor, &masks, &weights, &mut sums), ones, "{}", cpu.name());
            prop_assert_eq!(bits(&sums), bits(&expected), "{}", cpu.name());
        }
    }
}

#[test]
#[should_panic(expected = "a weight for each bit")]
fn too_few_weights_are_no_sums() {
    add_expanded(levels()[0], 1.0, &[0b111], &[1.0, 2.0], &mut [0.0; LANES]);
}
