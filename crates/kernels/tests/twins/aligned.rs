use lookalike_kernels::{AlignedVec, Element, bf16};

use crate::numbers;

fn check<T: Element + PartialEq>() {
    for len in [0, 1, 15, 16, 17, 32, 33, 1000] {
        let values: Vec<T> = numbers(1, len);
        let mut aligned = AlignedVec::from(&values[..]);
        assert_eq!(aligned[..], values[..]);
        assert_eq!(aligned.as_ptr() as usize % 64, 0);
        assert_eq!(aligned.clone().as_ptr() as usize % 64, 0);
        aligned.fill(T::from_f32(0.0));
        assert_eq!(aligned, AlignedVec::zeroed(len));
    }
}

#[test]
fn aligned_vec_is_a_slice_on_a_cache_line() {
    check::<f32>();
    check::<bf16>();
}
