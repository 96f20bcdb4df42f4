//! AVX-512 (F, BW, DQ and VL): one register is one vector. With BF16, VBMI2
//! and VNNI, products of bf16 and of bytes and the search for set bits have instructions of
//! their own; the rest is the same.

use std::arch::x86_64::*;

use super::Simd;
use crate::{BIT_ROWS, CODE_VECTOR, CodedRow, LANES, bf16};

/// The number of each bit of a word.
static BIT_NUMBERS: [u8; BIT_ROWS] = {
    let mut numbers = [0; BIT_ROWS];
    let mut i = 0;
    while i < BIT_ROWS {
        numbers[i] = i as u8;
        i += 1;
    }
    numbers
};

/// The token of AVX-512, with or without BF16, VBMI2 and VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const BF16: bool>(());

impl Avx512<true> {
    /// Safe exactly where the instructions are.
    #[inline]
    #[target_feature(
        enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi2,avx512vnni"
    )]
    pub(crate) fn with_bf16() -> Self {
        Self(())
    }
}

impl Avx512<false> {
    /// Safe exactly where the instructions are.
    #[inline]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
    pub(crate) fn new() -> Self {
        Self(())
    }
}

/// Calls an intrinsic that touches no memory but through array references.
macro_rules! avx512 {
    ($call:expr) => {
        // SAFETY: holding the token proves that the CPU has the instruction;
        // pointers come from references to arrays of the size accessed, and the
        // instructions used need no alignment.
        unsafe { $call }
    };
}

impl<const BF16: bool> Simd for Avx512<BF16> {
    type Floats = __m512;
    type Ints = __m512i;
    type Mask = __mmask16;

    const REGISTERS: usize = 32;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        avx512!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m512 {
        avx512!(_mm512_loadu_ps(from.as_ptr()))
    }
    #[inline(always)]
    fn load_bf16(self, from: &[bf16; LANES]) -> __m512 {
        avx512!({
            let halves = _mm256_loadu_si256(from.as_ptr().cast());
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
        })
    }
    #[inline(always)]
    fn store(self, x: __m512, to: &mut [f32; LANES]) {
        avx512!(_mm512_storeu_ps(to.as_mut_ptr(), x))
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn sqrt(self, a: __m512) -> __m512 {
        avx512!(_mm512_sqrt_ps(a))
    }
    #[inline(always)]
    fn div_by_root_roughly(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // Root and quotient at full width take 16 to 20 cycles each and one port;
        // with half the bytes to wait for, they would be what Adam waits for.
        avx512!({
            let b = _mm512_max_ps(b, _mm512_set1_ps(f32::MIN_POSITIVE));
            let root = _mm512_mul_ps(b, _mm512_rsqrt14_ps(b));
            _mm512_mul_ps(a, _mm512_rcp14_ps(_mm512_add_ps(root, c)))
        })
    }
    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        avx512!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_min_ps(a, b))
    }

    #[inline(always)]
    fn greater(self, a: __m512, b: __m512) -> __mmask16 {
        avx512!(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b))
    }
    #[inline(always)]
    fn is_nan(self, a: __m512) -> __mmask16 {
        avx512!(_mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a))
    }
    #[inline(always)]
    fn select(self, mask: __mmask16, a: __m512, b: __m512) -> __m512 {
        avx512!(_mm512_mask_blend_ps(mask, b, a))
    }
    #[inline(always)]
    fn select_ints(self, mask: __mmask16, a: __m512i, b: __m512i) -> __m512i {
        avx512!(_mm512_mask_blend_epi32(mask, b, a))
    }
    #[inline(always)]
    fn mask_bits(self, mask: __mmask16) -> u16 {
        mask
    }

    #[inline(always)]
    fn splat_ints(self, x: u32) -> __m512i {
        avx512!(_mm512_set1_epi32(x as i32))
    }
    #[inline(always)]
    fn load_ints(self, from: &[u32; LANES]) -> __m512i {
        avx512!(_mm512_loadu_si512(from.as_ptr().cast()))
    }
    #[inline(always)]
    fn store_ints(self, x: __m512i, to: &mut [u32; LANES]) {
        avx512!(_mm512_storeu_si512(to.as_mut_ptr().cast(), x))
    }
    #[inline(always)]
    fn add_ints(self, a: __m512i, b: __m512i) -> __m512i {
        avx512!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn mul_ints(self, a: __m512i, b: __m512i) -> __m512i {
        avx512!(_mm512_mullo_epi32(a, b))
    }
    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        avx512!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        avx512!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        avx512!(_mm512_xor_si512(a, b))
    }
    #[inline(always)]
    fn swap_neighbours(self, a: __m512i) -> __m512i {
        avx512!(_mm512_shuffle_epi32::<0b10_11_00_01>(a))
    }
    #[inline(always)]
    fn shift_left(self, a: __m512i, count: u32) -> __m512i {
        avx512!(_mm512_sll_epi32(a, _mm_cvtsi32_si128(count as i32)))
    }
    #[inline(always)]
    fn shift_right(self, a: __m512i, count: u32) -> __m512i {
        avx512!(_mm512_srl_epi32(a, _mm_cvtsi32_si128(count as i32)))
    }
    #[inline(always)]
    fn equal_ints(self, a: __m512i, b: __m512i) -> __mmask16 {
        avx512!(_mm512_cmpeq_epi32_mask(a, b))
    }
    #[inline(always)]
    fn greater_ints(self, a: __m512i, b: __m512i) -> __mmask16 {
        avx512!(_mm512_cmpgt_epu32_mask(a, b))
    }
    #[inline(always)]
    fn store_u16(self, x: __m512i, to: &mut [u16; LANES]) {
        avx512!(_mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(x)))
    }
    #[inline(always)]
    fn store_i8(self, x: __m512i, to: &mut [i8; LANES]) {
        avx512!(_mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(x)))
    }

    #[inline(always)]
    fn floats_to_bits(self, x: __m512) -> __m512i {
        avx512!(_mm512_castps_si512(x))
    }
    #[inline(always)]
    fn bits_to_floats(self, x: __m512i) -> __m512 {
        avx512!(_mm512_castsi512_ps(x))
    }
    #[inline(always)]
    fn round_to_ints(self, x: __m512) -> __m512i {
        avx512!(_mm512_cvtps_epi32(x))
    }
    #[inline(always)]
    fn ints_to_floats(self, x: __m512i) -> __m512 {
        avx512!(_mm512_cvtepi32_ps(x))
    }

    #[inline(always)]
    fn gather(self, table: &[f32], index: __m512i) -> __m512 {
        let len = self.splat_ints(table.len().min(1 << 31) as u32);
        let inside = avx512!(_mm512_cmplt_epu32_mask(index, len));
        assert!(inside == 0xFFFF, "index outside a table of {}", table.len());
        // SAFETY: the token proves the instruction, and every index was just
        // found to lie inside the table.
        unsafe { _mm512_i32gather_ps::<4>(index, table.as_ptr()) }
    }
    #[inline(always)]
    fn add_expanded(self, x: __m512, factor: __m512, numbers: &[f32; LANES], bits: u16) -> __m512 {
        let products = self.mul(factor, avx512!(_mm512_maskz_expand_ps(bits, self.load(numbers))));
        avx512!(_mm512_mask_add_ps(x, bits, x, products))
    }
    #[inline(always)]
    fn compress(self, x: __m512i, mask: __mmask16) -> ([u32; LANES], usize) {
        let mut out = [0; LANES];
        // The form that writes memory itself is slow on some CPUs.
        self.store_ints(avx512!(_mm512_maskz_compress_epi32(mask, x)), &mut out);
        (out, mask.count_ones() as usize)
    }

    #[inline(always)]
    fn reduce_sum(self, x: __m512) -> f32 {
        avx512!({
            let x = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            super::avx2::reduce_sum_8(x)
        })
    }
    #[inline(always)]
    fn reduce_sum_4(self, [a, b, c, d]: [__m512; 4]) -> [f32; 4] {
        avx512!({
            // Each addition folds two vectors into one that holds both halves'
            // sums: [a a | b b], then quarters [a | b | c | d].
            let ab = _mm512_add_ps(
                _mm512_mask_blend_ps(0xFF00, a, b),
                _mm512_shuffle_f32x4::<0b01_00_11_10>(a, b),
            );
            let cd = _mm512_add_ps(
                _mm512_mask_blend_ps(0xFF00, c, d),
                _mm512_shuffle_f32x4::<0b01_00_11_10>(c, d),
            );
            let abcd = _mm512_add_ps(
                _mm512_shuffle_f32x4::<0b10_00_10_00>(ab, cd),
                _mm512_shuffle_f32x4::<0b11_01_11_01>(ab, cd),
            );
            let abcd = _mm512_add_ps(abcd, _mm512_permute_ps::<0b01_00_11_10>(abcd));
            let abcd = _mm512_add_ps(abcd, _mm512_permute_ps::<0b10_11_00_01>(abcd));
            let quarters = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
            let sums = _mm512_castps512_ps128(_mm512_permutexvar_ps(quarters, abcd));
            let mut out = [0.0; 4];
            _mm_storeu_ps(out.as_mut_ptr(), sums);
            out
        })
    }

    #[inline(always)]
    fn reduce_sum_4_ints(self, [a, b, c, d]: [__m512i; 4]) -> [i32; 4] {
        avx512!({
            // Sums of neighbours side by side, [a a b b] and [c c d d] in each quarter, then
            // [a b c d], then the quarters.
            let fold = |x, y| _mm512_add_epi32(_mm512_unpacklo_epi32(x, y), _mm512_unpackhi_epi32(x, y));
            let (ab, cd) = (fold(a, b), fold(c, d));
            let abcd = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
            let half = _mm256_add_epi32(_mm512_castsi512_si256(abcd), _mm512_extracti64x4_epi64::<1>(abcd));
            let sums = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
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
        avx512!({
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
    fn dot_codes(self, a: &[i8; CODE_VECTOR], b: &[i8; CODE_VECTOR], c: __m512i) -> __m512i {
        self.dot_codes_of_lanes(avx512!(_mm512_loadu_si512(a.as_ptr().cast())), b, c)
    }
    #[inline(always)]
    fn dot_codes_of_lanes(self, a: __m512i, b: &[i8; CODE_VECTOR], c: __m512i) -> __m512i {
        avx512!({
            let b = _mm512_loadu_si512(b.as_ptr().cast());
            if BF16 {
                _mm512_dpbusd_epi32(c, a, b)
            } else {
                // Two products of 7 bits each and a sign fit 16 bits.
                let fours = _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), _mm512_set1_epi16(1));
                _mm512_add_epi32(c, fours)
            }
        })
    }
    #[inline(always)]
    fn load_i8(self, from: &[i8; LANES]) -> __m512i {
        avx512!(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.as_ptr().cast())))
    }

    #[inline(always)]
    fn dot_bf16(self, a: &[[bf16; LANES]; 2], b: &[[bf16; LANES]; 2], c: __m512) -> __m512 {
        if !BF16 {
            let c = self.mul_add(self.load_bf16(&a[0]), self.load_bf16(&b[0]), c);
            return self.mul_add(self.load_bf16(&a[1]), self.load_bf16(&b[1]), c);
        }
        avx512!({
            let a = _mm512_loadu_si512(a.as_ptr().cast());
            let b = _mm512_loadu_si512(b.as_ptr().cast());
            _mm512_dpbf16_ps(
                c,
                std::mem::transmute::<__m512i, __m512bh>(a),
                std::mem::transmute::<__m512i, __m512bh>(b),
            )
        })
    }

    #[inline(always)]
    fn indices_of_ones(self, word: u64, first: u32, shift: u32, out: &mut [u32; BIT_ROWS]) {
        if !BF16 {
            return super::indices_one_by_one(word, first, shift, out);
        }
        // The numbers of the bits, moved together; nearly always one vector of
        // them is enough.
        let (mut ones, first) = avx512!({
            let numbers = _mm512_loadu_si512(BIT_NUMBERS.as_ptr().cast());
            (_mm512_maskz_compress_epi8(word, numbers), self.splat_ints(first))
        });
        let (vectors, _) = out.as_chunks_mut::<LANES>();
        for (i, to) in vectors.iter_mut().enumerate() {
            let index = avx512!(_mm512_cvtepu8_epi32(_mm512_castsi512_si128(ones)));
            self.store_ints(self.shift_left(self.add_ints(index, first), shift), to);
            if word.count_ones() as usize <= (i + 1) * LANES {
                break;
            }
            ones = avx512!(_mm512_alignr_epi32::<4>(ones, ones));
        }
    }

    #[inline(always)]
    fn transpose(self, x: [__m512; LANES]) -> [__m512; LANES] {
        // Four rounds, each exchanging blocks of 1, 2, 4 and 8 lanes.
        avx512!({
            let mut a = x;
            for i in 0..8 {
                a[2 * i] = _mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]);
                a[2 * i + 1] = _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]);
            }
            let mut b = a;
            for i in 0..4 {
                for (half, at) in [(0, 0), (1, 2)] {
                    let low = _mm512_castps_pd(a[4 * i + half]);
                    let high = _mm512_castps_pd(a[4 * i + half + 2]);
                    b[4 * i + at] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
                    b[4 * i + at + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
                }
            }
            let mut c = b;
            for i in 0..4 {
                for (low, at) in [(0, 0), (8, 8)] {
                    c[at + i] = _mm512_shuffle_f32x4::<0x88>(b[low + i], b[low + i + 4]);
                    c[at + i + 4] = _mm512_shuffle_f32x4::<0xDD>(b[low + i], b[low + i + 4]);
                }
            }
            let mut out = c;
            for i in 0..8 {
                out[i] = _mm512_shuffle_f32x4::<0x88>(c[i], c[i + 8]);
                out[i + 8] = _mm512_shuffle_f32x4::<0xDD>(c[i], c[i + 8]);
            }
            out
        })
    }
}
