use lookalike_kernels::{LANES, indices_above, indices_flagged, measure, reference, take_positive};
use proptest::prelude::*;

use crate::{assert_close, levels, numbers};

proptest! {
    #[test]
    fn indices_above_is_its_twin(seed: u32, len in 0_usize..300, threshold in -1.1_f32..1.1) {
        let mut scores: Vec<f32> = numbers(seed.into(), len);
        if let Some(first) = scores.first_mut() {
            // Equal is not above.
            *first = threshold;
        }
        let mut expected = vec![9];
        reference::indices_above(&scores, threshold, &mut expected);
        for cpu in levels() {
            let mut out = vec![9];
            indices_above(cpu, &scores, threshold, &mut out);
            prop_assert_eq!(&out, &expected, "{}", cpu.name());
        }
    }

    #[test]
    fn indices_flagged_is_its_twin(entries in prop::collection::vec(0_u32..64, 0..300), bit in 0_u32..6) {
        let mut expected = vec![9];
        reference::indices_flagged(&entries, 1 << bit, &mut expected);
        for cpu in levels() {
            let mut out = vec![9];
            indices_flagged(cpu, &entries, 1 << bit, &mut out);
            prop_assert_eq!(&out, &expected, "{}", cpu.name());
        }
    }

    #[test]
    fn take_positive_is_its_twin(
        seed: u32,
        len in 0_usize..700,
        marks in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => Just(1), 1 => Just(9)], 50),
    ) {
        let mut sums: Vec<f32> = numbers(seed.into(), len);
        sums.iter_mut().skip(1).step_by(7).for_each(|sum| *sum = 0.0);
        sums.iter_mut().skip(2).step_by(31).for_each(|sum| *sum = f32::NAN);
        let marks = &marks[..len.div_ceil(LANES)];
        let added: Vec<f32> = numbers(u64::from(seed) + 1, len);
        let (mut sums_left, mut marks_left) = (sums.clone(), marks.to_vec());
        let (indices, scores) = reference::take_positive(&mut sums_left, &mut marks_left, &added);
        let bits = |sums: &[f32]| sums.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>();
        for cpu in levels() {
            let (mut sums, mut marks) = (sums.clone(), marks.to_vec());
            let (mut found, mut scored) = (vec![9; indices.len() + LANES], vec![9.0; indices.len() + LANES]);
            let count = take_positive(cpu, &mut sums, &mut marks, &added, &mut found, &mut scored);
            prop_assert_eq!(&found[..count], &indices[..], "{}", cpu.name());
            prop_assert_eq!(&scored[..count], &scores[..], "{}", cpu.name());
            prop_assert_eq!((bits(&sums), marks), (bits(&sums_left), marks_left.clone()), "{}", cpu.name());
        }
    }

    #[test]
    fn read_sum_adds_every_number(seed: u32, len in 0_usize..300) {
        let data: Vec<f32> = numbers(seed.into(), len);
        let expected: f32 = data.iter().sum();
        for cpu in levels() {
            assert_close(cpu, "sum", &[measure::read_sum(cpu, &data)], &[expected], 1e-4);
        }
    }
}

#[test]
fn fma_burst_computes_what_it_says() {
    for cpu in levels() {
        // Halving and adding one tends to 2 in every lane of every chain.
        let chains = measure::fma_burst(cpu, 100) / 2.0 / 16.0;
        assert!([3.0, 6.0, 12.0].contains(&chains), "{}: {chains}", cpu.name());
        // No iteration: the chains start at 0, 1, 2, ….
        let start = measure::fma_burst(cpu, 0) / 16.0;
        assert_eq!(start, chains * (chains - 1.0) / 2.0, "{}", cpu.name());
    }
}
