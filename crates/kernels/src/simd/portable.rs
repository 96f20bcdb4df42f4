//! Plain arrays and loops, for any machine; the compiler vectorises what it can.

use std::sync::atomic::{Ordering, compiler_fence};

use super::Simd;
use crate::{CODE_VECTOR, LANES, bf16};

/// The token of plain Rust: anyone may hold it.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// Applies an expression to every lane.
macro_rules! lanes {
    (|$i:ident| $value:expr) => {{
        let mut out = [Default::default(); LANES];
        let mut $i = 0;
        while $i < LANES {
            out[$i] = $value;
            $i += 1;
        }
        out
    }};
}

/// Left alone, the compiler would unroll the lanes and then vectorise a kernel's
/// outer loop, with every fourth number in a register and a transposition at
/// both ends: three times slower. It leaves alone a loop with a fence, which
/// costs no instruction.
#[inline(always)]
fn keep_vectors_apart() {
    compiler_fence(Ordering::SeqCst);
}

impl Simd for Portable {
    type Floats = [f32; LANES];
    type Ints = [u32; LANES];
    type Mask = [bool; LANES];

    const REGISTERS: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::Floats {
        [x; LANES]
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::Floats {
        *from
    }
    #[inline(always)]
    fn load_bf16(self, from: &[bf16; LANES]) -> Self::Floats {
        lanes!(|i| f32::from_bits(u32::from(from[i].to_bits()) << 16))
    }
    #[inline(always)]
    fn store(self, x: Self::Floats, to: &mut [f32; LANES]) {
        *to = x;
        keep_vectors_apart();
    }

    #[inline(always)]
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        lanes!(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        lanes!(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        lanes!(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        lanes!(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn sqrt(self, a: Self::Floats) -> Self::Floats {
        lanes!(|i| a[i].sqrt())
    }
    #[inline(always)]
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        lanes!(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn max(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        lanes!(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        lanes!(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn greater(self, a: Self::Floats, b: Self::Floats) -> Self::Mask {
        lanes!(|i| a[i] > b[i])
    }
    #[inline(always)]
    fn is_nan(self, a: Self::Floats) -> Self::Mask {
        lanes!(|i| a[i].is_nan())
    }
    #[inline(always)]
    fn select(self, mask: Self::Mask, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        lanes!(|i| if mask[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn select_ints(self, mask: Self::Mask, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        lanes!(|i| if mask[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn mask_bits(self, mask: Self::Mask) -> u16 {
        let mut bits = 0;
        for (i, lane) in mask.into_iter().enumerate() {
            bits |= u16::from(lane) << i;
        }
        bits
    }

    #[inline(always)]
    fn splat_ints(self, x: u32) -> Self::Ints {
        [x; LANES]
    }
    #[inline(always)]
    fn load_ints(self, from: &[u32; LANES]) -> Self::Ints {
        *from
    }
    #[inline(always)]
    fn store_ints(self, x: Self::Ints, to: &mut [u32; LANES]) {
        *to = x;
        keep_vectors_apart();
    }
    #[inline(always)]
    fn add_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        lanes!(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn mul_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        lanes!(|i| a[i].wrapping_mul(b[i]))
    }
    #[inline(always)]
    fn and(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        lanes!(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn or(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        lanes!(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn xor(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        lanes!(|i| a[i] ^ b[i])
    }
    #[inline(always)]
    fn swap_neighbours(self, a: Self::Ints) -> Self::Ints {
        lanes!(|i| a[i ^ 1])
    }
    #[inline(always)]
    fn shift_left(self, a: Self::Ints, count: u32) -> Self::Ints {
        lanes!(|i| a[i].wrapping_shl(count))
    }
    #[inline(always)]
    fn shift_right(self, a: Self::Ints, count: u32) -> Self::Ints {
        lanes!(|i| a[i].wrapping_shr(count))
    }
    #[inline(always)]
    fn equal_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Mask {
        lanes!(|i| a[i] == b[i])
    }
    #[inline(always)]
    fn greater_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Mask {
        lanes!(|i| a[i] > b[i])
    }
    #[inline(always)]
    fn store_u16(self, x: Self::Ints, to: &mut [u16; LANES]) {
        *to = lanes!(|i| x[i] as u16);
        keep_vectors_apart();
    }

    #[inline(always)]
    fn store_i8(self, x: Self::Ints, to: &mut [i8; LANES]) {
        *to = lanes!(|i| x[i] as i8);
        keep_vectors_apart();
    }

    #[inline(always)]
    fn floats_to_bits(self, x: Self::Floats) -> Self::Ints {
        lanes!(|i| x[i].to_bits())
    }
    #[inline(always)]
    fn bits_to_floats(self, x: Self::Ints) -> Self::Floats {
        lanes!(|i| f32::from_bits(x[i]))
    }
    #[inline(always)]
    fn round_to_ints(self, x: Self::Floats) -> Self::Ints {
        // Adding 1.5 · 2^23 leaves no digits after the point: without a
        // rounding instruction this is much faster than a library call.
        const SHIFT: f32 = 12_582_912.0;
        lanes!(|i| (((x[i] + SHIFT) - SHIFT) as i32) as u32)
    }
    #[inline(always)]
    fn ints_to_floats(self, x: Self::Ints) -> Self::Floats {
        lanes!(|i| x[i] as i32 as f32)
    }

    #[inline(always)]
    fn gather(self, table: &[f32], index: Self::Ints) -> Self::Floats {
        lanes!(|i| table[index[i] as usize])
    }
    #[inline(always)]
    fn add_expanded(
        self,
        mut x: Self::Floats,
        factor: Self::Floats,
        numbers: &[f32; LANES],
        bits: u16,
    ) -> Self::Floats {
        let lanes = (0..LANES).filter(|lane| bits >> lane & 1 == 1);
        lanes.zip(numbers).for_each(|(lane, number)| x[lane] += factor[lane] * number);
        x
    }
    #[inline(always)]
    fn compress(self, x: Self::Ints, mask: Self::Mask) -> ([u32; LANES], usize) {
        let mut out = [0; LANES];
        let mut count = 0;
        for i in 0..LANES {
            // Always written, counted only where it holds: no branch to miss.
            out[count] = x[i];
            count += usize::from(mask[i]);
        }
        (out, count)
    }

    #[inline(always)]
    fn reduce_sum(self, mut x: Self::Floats) -> f32 {
        for width in [8, 4, 2, 1] {
            for i in 0..width {
                x[i] += x[i + width];
            }
        }
        x[0]
    }
    #[inline(always)]
    fn reduce_sum_4(self, x: [Self::Floats; 4]) -> [f32; 4] {
        [self.reduce_sum(x[0]), self.reduce_sum(x[1]), self.reduce_sum(x[2]), self.reduce_sum(x[3])]
    }
    #[inline(always)]
    fn reduce_sum_4_ints(self, x: [Self::Ints; 4]) -> [i32; 4] {
        x.map(|x| x.iter().fold(0, |sum: u32, &lane| sum.wrapping_add(lane)) as i32)
    }
    #[inline(always)]
    fn dot_codes(self, a: &[i8; CODE_VECTOR], b: &[i8; CODE_VECTOR], mut c: Self::Ints) -> Self::Ints {
        let (a, b) = (a.as_chunks::<LANES>().0, b.as_chunks::<LANES>().0);
        for (a, b) in a.iter().zip(b) {
            let product: [i32; LANES] = lanes!(|i| i32::from(a[i]) * i32::from(b[i]));
            c = lanes!(|i| c[i].wrapping_add(product[i] as u32));
        }
        c
    }
    #[inline(always)]
    fn dot_codes_of_lanes(self, a: Self::Ints, b: &[i8; CODE_VECTOR], c: Self::Ints) -> Self::Ints {
        let (b, _) = b.as_chunks::<4>();
        let product = |a: u8, b: i8| i32::from(a) * i32::from(b);
        lanes!(|i| {
            let [p, q, r, s] = a[i].to_le_bytes();
            let sum = product(p, b[i][0]) + product(q, b[i][1]) + product(r, b[i][2]) + product(s, b[i][3]);
            c[i].wrapping_add(sum as u32)
        })
    }
    #[inline(always)]
    fn load_i8(self, from: &[i8; LANES]) -> Self::Ints {
        lanes!(|i| i32::from(from[i]) as u32)
    }
    #[inline(always)]
    fn transpose(self, x: [Self::Floats; LANES]) -> [Self::Floats; LANES] {
        let mut out = x;
        for i in 0..LANES {
            for j in 0..LANES {
                out[i][j] = x[j][i];
            }
        }
        out
    }
}
