use lookalike_kernels::{Common, SortedIds, common_ids, reference};
use proptest::prelude::*;

use crate::levels;

/// Ascending ids, close together or far apart, the largest one among them at times.
fn ascending(most: usize) -> impl Strategy<Value = Vec<u32>> {
    let ids = (prop::collection::vec(any::<u32>(), 0..most), 0_u32..24, any::<bool>());
    ids.prop_map(|(mut ids, shift, with_largest)| {
        ids.iter_mut().for_each(|id| *id = (*id >> shift).min(u32::MAX - 1));
        ids.extend(with_largest.then_some(u32::MAX - 1));
        ids.sort_unstable();
        ids.dedup();
        ids
    })
}

proptest! {
    #[test]
    fn common_ids_is_its_twin(row in ascending(700), others in ascending(60), every in 1_usize..9) {
        // Ids of the row and others.
        let mut list = others;
        list.extend(row.iter().skip(every / 2).step_by(every));
        list.sort_unstable();
        list.dedup();
        let expected = reference::common_ids(&row, &list);
        let mut room = vec![7; 3];
        let ready = SortedIds::new(&row, &mut room);
        for cpu in levels() {
            let mut out = vec![Common::default(); list.len()];
            let count = common_ids(cpu, ready, &list, &mut out);
            prop_assert_eq!(&out[..count], &expected[..], "{}", cpu.name());
        }
    }
}
