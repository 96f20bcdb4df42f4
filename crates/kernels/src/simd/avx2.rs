//! AVX2 with FMA: two registers of eight are one vector.

use std::arch::x86_64::*;

use super::Simd;
use crate::{CODE_VECTOR, CodedRow, LANES, bf16};

/// The token of AVX2.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// Safe exactly where the instructions are.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    pub(crate) fn new() -> Self {
        Self(())
    }
}

/// Calls an intrinsic that touches no memory but through array references.
macro_rules! avx2 {
    ($call:expr) => {
        // SAFETY: holding the token proves that the CPU has the instruction;
        // pointers come from references to arrays of the size accessed, and the
        // instructions used need no alignment.
        unsafe { $call }
    };
}

/// Applies an intrinsic to both halves of its arguments.
macro_rules! halves {
    ($intrinsic:ident $(::<$constant:tt>)? ($($argument:expr),*)) => {
        avx2!([
            $intrinsic $(::<$constant>)? ($($argument[0]),*),
            $intrinsic $(::<$constant>)? ($($argument[1]),*),
        ])
    };
}

/// The sum of eight lanes, in the order of [`Simd::reduce_sum`].
///
/// # Safety
/// The CPU must have AVX2.
#[inline(always)]
pub(super) unsafe fn reduce_sum_8(x: __m256) -> f32 {
    avx2!({
        let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
    })
}

/// For each of eight bits the number of set bits before it.
static ONES_BEFORE: [[u8; 8]; 256] = {
    let mut places = [[0; 8]; 256];
    let mut bits = 0;
    while bits < 256 {
        let mut i = 1;
        while i < 8 {
            places[bits][i] = places[bits][i - 1] + (bits >> (i - 1) & 1) as u8;
            i += 1;
        }
        bits += 1;
    }
    places
};

#[inline(always)]
fn load_codes(from: &[i8; CODE_VECTOR]) -> [__m256i; 2] {
    avx2!([_mm256_loadu_si256(from.as_ptr().cast()), _mm256_loadu_si256(from.as_ptr().add(32).cast())])
}

/// Where each lane whose bit is set finds its number among those of the set bits.
///
/// # Safety
/// The CPU must have AVX2.
#[inline(always)]
unsafe fn expansion(bits: usize) -> __m256i {
    avx2!(_mm256_cvtepu8_epi32(_mm_loadl_epi64(ONES_BEFORE[bits].as_ptr().cast())))
}

/// Transposes eight vectors of eight.
#[inline(always)]
fn transpose_8(_: Avx2, x: [__m256; 8]) -> [__m256; 8] {
    avx2!({
        let mut a = x;
        for i in 0..4 {
            a[2 * i] = _mm256_unpacklo_ps(x[2 * i], x[2 * i + 1]);
            a[2 * i + 1] = _mm256_unpackhi_ps(x[2 * i], x[2 * i + 1]);
        }
        let mut b = a;
        for i in 0..2 {
            b[4 * i] = _mm256_shuffle_ps::<0x44>(a[4 * i], a[4 * i + 2]);
            b[4 * i + 1] = _mm256_shuffle_ps::<0xEE>(a[4 * i], a[4 * i + 2]);
            b[4 * i + 2] = _mm256_shuffle_ps::<0x44>(a[4 * i + 1], a[4 * i + 3]);
            b[4 * i + 3] = _mm256_shuffle_ps::<0xEE>(a[4 * i + 1], a[4 * i + 3]);
        }
        let mut out = b;
        for i in 0..4 {
            out[i] = _mm256_permute2f128_ps::<0x20>(b[i], b[i + 4]);
            out[i + 4] = _mm256_permute2f128_ps::<0x31>(b[i], b[i + 4]);
        }
        out
    })
}

impl Simd for Avx2 {
    type Floats = [__m256; 2];
    type Ints = [__m256i; 2];
    type Mask = [__m256; 2];

    const REGISTERS: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::Floats {
        avx2!([_mm256_set1_ps(x); 2])
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::Floats {
        avx2!([_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8)),])
    }
    #[inline(always)]
    fn load_bf16(self, from: &[bf16; LANES]) -> Self::Floats {
        avx2!({
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().add(8).cast()));
            [
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high)),
            ]
        })
    }
    #[inline(always)]
    fn store(self, x: Self::Floats, to: &mut [f32; LANES]) {
        avx2!({
            _mm256_storeu_ps(to.as_mut_ptr(), x[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), x[1]);
        })
    }

    #[inline(always)]
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        halves!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        halves!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        halves!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        halves!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn sqrt(self, a: Self::Floats) -> Self::Floats {
        halves!(_mm256_sqrt_ps(a))
    }
    #[inline(always)]
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        halves!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        halves!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        halves!(_mm256_min_ps(a, b))
    }

    #[inline(always)]
    fn greater(self, a: Self::Floats, b: Self::Floats) -> Self::Mask {
        halves!(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b))
    }
    #[inline(always)]
    fn is_nan(self, a: Self::Floats) -> Self::Mask {
        halves!(_mm256_cmp_ps::<_CMP_UNORD_Q>(a, a))
    }
    #[inline(always)]
    fn select(self, mask: Self::Mask, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        halves!(_mm256_blendv_ps(b, a, mask))
    }
    #[inline(always)]
    fn select_ints(self, mask: Self::Mask, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        self.floats_to_bits(self.select(mask, self.bits_to_floats(a), self.bits_to_floats(b)))
    }
    #[inline(always)]
    fn mask_bits(self, mask: Self::Mask) -> u16 {
        let [low, high] = halves!(_mm256_movemask_ps(mask));
        (low | high << 8) as u16
    }

    #[inline(always)]
    fn splat_ints(self, x: u32) -> Self::Ints {
        avx2!([_mm256_set1_epi32(x as i32); 2])
    }
    #[inline(always)]
    fn load_ints(self, from: &[u32; LANES]) -> Self::Ints {
        avx2!([_mm256_loadu_si256(from.as_ptr().cast()), _mm256_loadu_si256(from.as_ptr().add(8).cast()),])
    }
    #[inline(always)]
    fn store_ints(self, x: Self::Ints, to: &mut [u32; LANES]) {
        avx2!({
            _mm256_storeu_si256(to.as_mut_ptr().cast(), x[0]);
            _mm256_storeu_si256(to.as_mut_ptr().add(8).cast(), x[1]);
        })
    }
    #[inline(always)]
    fn add_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        halves!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn mul_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        halves!(_mm256_mullo_epi32(a, b))
    }
    #[inline(always)]
    fn and(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        halves!(_mm256_and_si256(a, b))
    }
    #[inline(always)]
    fn or(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        halves!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn xor(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        halves!(_mm256_xor_si256(a, b))
    }
    #[inline(always)]
    fn swap_neighbours(self, a: Self::Ints) -> Self::Ints {
        halves!(_mm256_shuffle_epi32::<0b10_11_00_01>(a))
    }
    #[inline(always)]
    fn shift_left(self, a: Self::Ints, count: u32) -> Self::Ints {
        let count = avx2!([_mm_cvtsi32_si128(count as i32); 2]);
        halves!(_mm256_sll_epi32(a, count))
    }
    #[inline(always)]
    fn shift_right(self, a: Self::Ints, count: u32) -> Self::Ints {
        let count = avx2!([_mm_cvtsi32_si128(count as i32); 2]);
        halves!(_mm256_srl_epi32(a, count))
    }
    #[inline(always)]
    fn equal_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Mask {
        self.bits_to_floats(halves!(_mm256_cmpeq_epi32(a, b)))
    }
    #[inline(always)]
    fn greater_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Mask {
        // There is no unsigned comparison: flipping the top bit makes one.
        let flip = self.splat_ints(1 << 31);
        let (a, b) = (self.xor(a, flip), self.xor(b, flip));
        self.bits_to_floats(halves!(_mm256_cmpgt_epi32(a, b)))
    }
    #[inline(always)]
    fn store_u16(self, x: Self::Ints, to: &mut [u16; LANES]) {
        avx2!({
            // Packing works within 128-bit lanes; the permutation undoes it.
            let packed = _mm256_packus_epi32(x[0], x[1]);
            let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), ordered);
        })
    }
    #[inline(always)]
    fn store_i8(self, x: Self::Ints, to: &mut [i8; LANES]) {
        avx2!({
            // The low bytes of four lanes, moved together at the front of their half.
            let low = _mm256_setr_epi8(
                0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12, -1, -1, -1, -1, -1,
                -1, -1, -1, -1, -1, -1, -1,
            );
            for (to, x) in to.as_chunks_mut::<8>().0.iter_mut().zip(x) {
                let bytes = _mm256_shuffle_epi8(x, low);
                let (first, last) = (_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
                _mm_storel_epi64(to.as_mut_ptr().cast(), _mm_unpacklo_epi32(first, last));
            }
        })
    }

    #[inline(always)]
    fn floats_to_bits(self, x: Self::Floats) -> Self::Ints {
        halves!(_mm256_castps_si256(x))
    }
    #[inline(always)]
    fn bits_to_floats(self, x: Self::Ints) -> Self::Floats {
        halves!(_mm256_castsi256_ps(x))
    }
    #[inline(always)]
    fn round_to_ints(self, x: Self::Floats) -> Self::Ints {
        halves!(_mm256_cvtps_epi32(x))
    }
    #[inline(always)]
    fn ints_to_floats(self, x: Self::Ints) -> Self::Floats {
        halves!(_mm256_cvtepi32_ps(x))
    }

    #[inline(always)]
    fn gather(self, table: &[f32], index: Self::Ints) -> Self::Floats {
        let len = self.splat_ints(table.len().min(1 << 31) as u32);
        let inside = self.mask_bits(self.greater_ints(len, index));
        assert!(inside == 0xFFFF, "index outside a table of {}", table.len());
        // SAFETY: the token proves the instruction, and every index was just
        // found to lie inside the table.
        unsafe {
            [
                _mm256_i32gather_ps::<4>(table.as_ptr(), index[0]),
                _mm256_i32gather_ps::<4>(table.as_ptr(), index[1]),
            ]
        }
    }
    #[inline(always)]
    fn add_expanded(
        self,
        x: Self::Floats,
        factor: Self::Floats,
        numbers: &[f32; LANES],
        bits: u16,
    ) -> Self::Floats {
        let (low, high) = (bits as usize & 0xFF, bits as usize >> 8);
        // The upper half takes those that the lower half leaves, of which there are eight.
        let upper = numbers[low.count_ones() as usize..].first_chunk::<8>().expect("at most 8 of 16");
        let expanded = avx2!([
            _mm256_permutevar8x32_ps(_mm256_loadu_ps(numbers.as_ptr()), expansion(low)),
            _mm256_permutevar8x32_ps(_mm256_loadu_ps(upper.as_ptr()), expansion(high)),
        ]);
        let sums = self.add(x, self.mul(factor, expanded));
        let bit_of_lane = avx2!([
            _mm256_setr_epi32(1, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7),
            _mm256_setr_epi32(1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15),
        ]);
        let is_set = self.equal_ints(self.and(self.splat_ints(bits.into()), bit_of_lane), bit_of_lane);
        self.select(is_set, sums, x)
    }
    #[inline(always)]
    fn compress(self, x: Self::Ints, mask: Self::Mask) -> ([u32; LANES], usize) {
        let mut lanes = [0; LANES];
        self.store_ints(x, &mut lanes);
        let mut out = [0; LANES];
        let mut bits = self.mask_bits(mask);
        let mut count = 0;
        while bits != 0 {
            out[count] = lanes[bits.trailing_zeros() as usize];
            count += 1;
            bits &= bits - 1;
        }
        (out, count)
    }

    #[inline(always)]
    fn reduce_sum(self, x: Self::Floats) -> f32 {
        avx2!(reduce_sum_8(_mm256_add_ps(x[0], x[1])))
    }
    #[inline(always)]
    fn reduce_sum_4(self, [a, b, c, d]: [Self::Floats; 4]) -> [f32; 4] {
        avx2!({
            let a = _mm256_add_ps(a[0], a[1]);
            let b = _mm256_add_ps(b[0], b[1]);
            let c = _mm256_add_ps(c[0], c[1]);
            let d = _mm256_add_ps(d[0], d[1]);
            // [a | b] and [c | d], four lanes each.
            let ab = _mm256_add_ps(_mm256_blend_ps::<0xF0>(a, b), _mm256_permute2f128_ps::<0x21>(a, b));
            let cd = _mm256_add_ps(_mm256_blend_ps::<0xF0>(c, d), _mm256_permute2f128_ps::<0x21>(c, d));
            // Within each half: [a a c c | b b d d], then [a c a c | b d b d].
            let acbd = _mm256_add_ps(
                _mm256_blend_ps::<0b1100_1100>(ab, cd),
                _mm256_shuffle_ps::<0b01_00_11_10>(ab, cd),
            );
            let acbd = _mm256_add_ps(acbd, _mm256_permute_ps::<0b10_11_00_01>(acbd));
            let ac = _mm256_castps256_ps128(acbd);
            let bd = _mm256_extractf128_ps::<1>(acbd);
            let sums = _mm_blend_ps::<0b1010>(ac, bd);
            let mut out = [0.0; 4];
            _mm_storeu_ps(out.as_mut_ptr(), sums);
            out
        })
    }
    #[inline(always)]
    fn reduce_sum_4_ints(self, [a, b, c, d]: [Self::Ints; 4]) -> [i32; 4] {
        avx2!({
            let ab = _mm256_hadd_epi32(_mm256_add_epi32(a[0], a[1]), _mm256_add_epi32(b[0], b[1]));
            let cd = _mm256_hadd_epi32(_mm256_add_epi32(c[0], c[1]), _mm256_add_epi32(d[0], d[1]));
            // [a b c d] in each half.
            let both = _mm256_hadd_epi32(ab, cd);
            let sums = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both));
            let mut out = [0; 4];
            _mm_storeu_si128(out.as_mut_ptr().cast(), sums);
            out
        })
    }
    #[inline(always)]
    fn are_scores_above(
        self,
        sums: [i32; 4],
        coded: CodedRow,
        scales: [f32; 4],
        shift: f32,
        limits: [f32; 4],
    ) -> u32 {
        avx2!({
            // Written out: the compiler would take scores one by one.
            let [a, b, c, d] = scales;
            let factors = _mm_mul_ps(_mm_set1_ps(coded.scale), _mm_setr_ps(a, b, c, d));
            let sums = _mm_sub_epi32(_mm_loadu_si128(sums.as_ptr().cast()), _mm_set1_epi32(coded.above));
            let scores = _mm_add_ps(_mm_mul_ps(_mm_cvtepi32_ps(sums), factors), _mm_set1_ps(shift));
            let [a, b, c, d] = limits;
            _mm_movemask_ps(_mm_cmpgt_ps(scores, _mm_setr_ps(a, b, c, d))) as u32
        })
    }
    #[inline(always)]
    fn dot_codes(self, a: &[i8; CODE_VECTOR], b: &[i8; CODE_VECTOR], c: Self::Ints) -> Self::Ints {
        self.dot_codes_of_lanes(load_codes(a), b, c)
    }
    #[inline(always)]
    fn dot_codes_of_lanes(self, a: Self::Ints, b: &[i8; CODE_VECTOR], c: Self::Ints) -> Self::Ints {
        let b = load_codes(b);
        // Two products of 7 bits each and a sign fit 16 bits.
        let twos: Self::Ints = halves!(_mm256_maddubs_epi16(a, b));
        let one = avx2!([_mm256_set1_epi16(1); 2]);
        let fours: Self::Ints = halves!(_mm256_madd_epi16(twos, one));
        self.add_ints(c, fours)
    }
    #[inline(always)]
    fn load_i8(self, from: &[i8; LANES]) -> Self::Ints {
        avx2!([
            _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.as_ptr().cast())),
            _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.as_ptr().add(8).cast())),
        ])
    }
    #[inline(always)]
    fn transpose(self, x: [Self::Floats; LANES]) -> [Self::Floats; LANES] {
        let mut out = x;
        for row_half in 0..2 {
            for column_half in 0..2 {
                let mut block = [x[0][0]; 8];
                for i in 0..8 {
                    block[i] = x[row_half * 8 + i][column_half];
                }
                let block = transpose_8(self, block);
                for i in 0..8 {
                    out[column_half * 8 + i][row_half] = block[i];
                }
            }
        }
        out
    }
}
