//! Sixteen floats at a time: the one vocabulary all kernels are written in.
//!
//! A kernel is written once, generic over [`Simd`], as an `#[inline(always)]`
//! function; [`dispatch!`] compiles it for every level of instructions and
//! chooses among them by the caller's [`Cpu`](crate::Cpu). A type that
//! implements [`Simd`] is a *token*: it has no size, only `unsafe` code makes
//! one, and whoever holds one may therefore use its instructions safely.
//!
//! All levels see vectors of [`LANES`] floats and add them up in the same
//! order, so AVX2 and AVX-512 give the same bits; portable code rounds products
//! before it adds them (a fused multiply-add without hardware is a slow library
//! call), so it differs in the last digits. With bf16 there is no such promise:
//! AVX-512 takes roots and quotients roughly, and AVX-512 BF16 has an instruction
//! of its own for dot products. That level has AVX-512 VBMI2 and VNNI too: no CPU made
//! since the first of them is without.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod portable;

use crate::{BIT_ROWS, CODE_VECTOR, CodedRow, Element, LANES, bf16};

/// Operations on vectors of [`LANES`] floats or integers.
///
/// Law: every method works lane by lane unless it says otherwise, and a result
/// depends on nothing but the arguments. Integers wrap around.
pub(crate) trait Simd: Copy {
    /// [`LANES`] floats.
    type Floats: Copy;
    /// [`LANES`] unsigned integers.
    type Ints: Copy;
    /// [`LANES`] truth values.
    type Mask: Copy;

    /// How many vectors fit the registers: tiles and blocks are sized by it.
    const REGISTERS: usize;

    fn splat(self, x: f32) -> Self::Floats;
    fn load(self, from: &[f32; LANES]) -> Self::Floats;
    fn load_bf16(self, from: &[bf16; LANES]) -> Self::Floats;
    fn store(self, x: Self::Floats, to: &mut [f32; LANES]);

    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn sub(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn div(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn sqrt(self, a: Self::Floats) -> Self::Floats;
    /// `a / (sqrt(b) + c)`, for results that are rounded to bf16 afterwards: within
    /// 2^-12 of it, relatively, for positive `b + c`.
    #[inline(always)]
    fn div_by_root_roughly(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        self.div(a, self.add(self.sqrt(b), c))
    }
    /// `a · b + c`.
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `if a > b { a } else { b }`: where one is NaN, `b`.
    fn max(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `if a < b { a } else { b }`: where one is NaN, `b`.
    fn min(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// `a > b`: false where one is NaN.
    fn greater(self, a: Self::Floats, b: Self::Floats) -> Self::Mask;
    fn is_nan(self, a: Self::Floats) -> Self::Mask;
    /// `if mask { a } else { b }`.
    fn select(self, mask: Self::Mask, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `if mask { a } else { b }`.
    fn select_ints(self, mask: Self::Mask, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// Bit `i` is lane `i`.
    fn mask_bits(self, mask: Self::Mask) -> u16;

    fn splat_ints(self, x: u32) -> Self::Ints;
    fn load_ints(self, from: &[u32; LANES]) -> Self::Ints;
    fn store_ints(self, x: Self::Ints, to: &mut [u32; LANES]);
    fn add_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    fn mul_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    fn and(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    fn or(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    fn xor(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// `count` is below 32.
    fn shift_left(self, a: Self::Ints, count: u32) -> Self::Ints;
    /// `count` is below 32; zeroes come in.
    fn shift_right(self, a: Self::Ints, count: u32) -> Self::Ints;
    /// Lane `2i` changes places with lane `2i + 1`.
    fn swap_neighbours(self, a: Self::Ints) -> Self::Ints;
    fn equal_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Mask;
    /// `a > b`.
    fn greater_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Mask;
    /// The low 16 bits of every lane; the high bits must be zero.
    fn store_u16(self, x: Self::Ints, to: &mut [u16; LANES]);
    /// The low 8 bits of every lane.
    fn store_i8(self, x: Self::Ints, to: &mut [i8; LANES]);

    fn floats_to_bits(self, x: Self::Floats) -> Self::Ints;
    fn bits_to_floats(self, x: Self::Ints) -> Self::Floats;
    /// The nearest whole number as a signed integer; undefined beyond `i32`.
    fn round_to_ints(self, x: Self::Floats) -> Self::Ints;
    /// The float equal to a signed integer.
    fn ints_to_floats(self, x: Self::Ints) -> Self::Floats;

    /// `table[index]`. Panics if an index lies outside the table; indices must
    /// be below 2^31.
    fn gather(self, table: &[f32], index: Self::Ints) -> Self::Floats;
    /// The lanes where `mask` holds, moved together, and how many they are.
    fn compress(self, x: Self::Ints, mask: Self::Mask) -> ([u32; LANES], usize);
    /// `x + factor · number` in the lanes whose bit is set, which take the first of the
    /// numbers in turn; the product is rounded before it is added. Other lanes stay.
    fn add_expanded(
        self,
        x: Self::Floats,
        factor: Self::Floats,
        numbers: &[f32; LANES],
        bits: u16,
    ) -> Self::Floats;

    /// The sum of all lanes. Fixed order: lane `i` takes in lane `i + 8`, then
    /// `i + 4`, `i + 2`, `i + 1`.
    fn reduce_sum(self, x: Self::Floats) -> f32;
    /// Four sums in the order of [`Simd::reduce_sum`], in fewer shuffles.
    fn reduce_sum_4(self, x: [Self::Floats; 4]) -> [f32; 4];
    /// Four sums of all lanes.
    fn reduce_sum_4_ints(self, x: [Self::Ints; 4]) -> [i32; 4];
    /// Bit `i` is whether score `i` of [`scores_of`] is above limit `i`.
    #[inline(always)]
    fn are_scores_above(
        self,
        sums: [i32; 4],
        coded: CodedRow,
        scales: [f32; 4],
        shift: f32,
        limits: [f32; 4],
    ) -> u32 {
        let scores = scores_of(sums, coded, scales, shift);
        (0..4).fold(0, |bits, i| bits | u32::from(scores[i] > limits[i]) << i)
    }
    /// Lane `i` of vector `j` becomes lane `j` of vector `i`.
    fn transpose(self, x: [Self::Floats; LANES]) -> [Self::Floats; LANES];

    /// Writes `(first + i) << shift` for every bit `i` of the word that is set, in
    /// order; what stands behind them is left open.
    #[inline(always)]
    fn indices_of_ones(self, word: u64, first: u32, shift: u32, out: &mut [u32; BIT_ROWS]) {
        indices_one_by_one(word, first, shift, out);
    }

    /// `c` and the products of 32 numbers, two of them added to each lane; which
    /// two is left open.
    #[inline(always)]
    fn dot_bf16(self, a: &[[bf16; LANES]; 2], b: &[[bf16; LANES]; 2], c: Self::Floats) -> Self::Floats {
        let c = self.mul_add(self.load_bf16(&a[0]), self.load_bf16(&b[0]), c);
        self.mul_add(self.load_bf16(&a[1]), self.load_bf16(&b[1]), c)
    }

    /// `c` and the products of 64 whole numbers, four of them added to each lane; which
    /// four is left open. None of `a` is below 0, none of `b` below -127.
    fn dot_codes(self, a: &[i8; CODE_VECTOR], b: &[i8; CODE_VECTOR], c: Self::Ints) -> Self::Ints;
    /// `c` and, in lane `i`, the products of the four whole numbers of lane `i` of `a` with
    /// the four from `b[4 i]` on, under the same terms.
    fn dot_codes_of_lanes(self, a: Self::Ints, b: &[i8; CODE_VECTOR], c: Self::Ints) -> Self::Ints;
    /// Whole numbers of a byte with a sign.
    fn load_i8(self, from: &[i8; LANES]) -> Self::Ints;

    #[inline(always)]
    fn zero(self) -> Self::Floats {
        self.splat(0.0)
    }
}

/// Loads either format as floats.
#[inline(always)]
pub(crate) fn load<S: Simd, T: Element>(simd: S, from: &[T; LANES]) -> S::Floats {
    if T::IS_F32 { simd.load(bytemuck::cast_ref(from)) } else { simd.load_bf16(bytemuck::cast_ref(from)) }
}

/// Stores in either format; bf16 rounds stochastically, as
/// [`Element::from_f32_stochastic`] does with 16 bits of `noise` a lane.
#[inline(always)]
pub(crate) fn store_stochastic<S: Simd, T: Element>(
    simd: S,
    x: S::Floats,
    noise: S::Ints,
    to: &mut [T; LANES],
) {
    if T::IS_F32 {
        return simd.store(x, bytemuck::cast_mut(to));
    }
    let bits = simd.floats_to_bits(x);
    // Infinity takes no harm, since noise ends below the bits that survive. A NaN
    // could become infinity or a number: it gets one of those bits instead.
    let quiet = simd.or(bits, simd.splat_ints(1 << 22));
    let noisy = simd.add_ints(bits, noise);
    let rounded = simd.shift_right(simd.select_ints(simd.is_nan(x), quiet, noisy), 16);
    simd.store_u16(rounded, bytemuck::cast_mut(to));
}

/// The scores of a row of codes and four queries, of which there are the sums of products.
#[inline(always)]
pub(crate) fn scores_of(sums: [i32; 4], coded: CodedRow, scales: [f32; 4], shift: f32) -> [f32; 4] {
    let mut scores = [0.0; 4];
    for i in 0..4 {
        scores[i] = sums[i].wrapping_sub(coded.above) as f32 * (coded.scale * scales[i]) + shift;
    }
    scores
}

/// [`Simd::indices_of_ones`] where no instruction helps.
#[inline(always)]
pub(crate) fn indices_one_by_one(word: u64, first: u32, shift: u32, out: &mut [u32; BIT_ROWS]) {
    let mut left = word;
    for place in out {
        if left == 0 {
            break;
        }
        *place = (first + left.trailing_zeros()) << shift;
        left &= left - 1;
    }
}

/// Cuts a row into whole vectors. Panics if it does not consist of them: rows
/// are padded.
#[inline(always)]
pub(crate) fn vectors<T: Element>(row: &[T]) -> &[[T; LANES]] {
    let (vectors, rest) = row.as_chunks();
    assert!(rest.is_empty(), "rows must be padded to a multiple of {LANES}");
    vectors
}

/// As [`vectors`].
#[inline(always)]
pub(crate) fn vectors_mut<T: Element>(row: &mut [T]) -> &mut [[T; LANES]] {
    let (vectors, rest) = row.as_chunks_mut();
    assert!(rest.is_empty(), "rows must be padded to a multiple of {LANES}");
    vectors
}

/// The last elements of a list, fewer than a vector, filled up with the first
/// of them.
#[inline(always)]
pub(crate) fn filled<T: Copy + Default>(rest: &[T]) -> [T; LANES] {
    let mut full = [rest.first().copied().unwrap_or_default(); LANES];
    full[..rest.len()].copy_from_slice(rest);
    full
}

/// Asks for the cache line at `data[at]` to be brought near. Harmless whatever
/// `at` is.
#[inline(always)]
pub(crate) fn prefetch<T>(data: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, so that any address will do, and
        // every x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(data.as_ptr().wrapping_add(at).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (data, at);
}

/// Declares a safe public function that runs a generic kernel on the level of
/// instructions its `cpu` argument proves.
///
/// `pub fn name<T: Element>(argument: Type, …) -> Output = path;` calls
/// `path(token, argument, …)`.
macro_rules! dispatch {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident $(<$($generic:ident: $bound:ident),+>)? (
            $($argument:ident: $type:ty),* $(,)?
        ) $(-> $output:ty)? = $kernel:path;
    )*) => {$(
        $(#[$attribute])*
        $visibility fn $name $(<$($generic: $bound),+>)? (
            cpu: $crate::Cpu, $($argument: $type),*
        ) $(-> $output)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,popcnt")]
            #[allow(clippy::too_many_arguments)]
            fn avx2 $(<$($generic: $bound),+>)? ($($argument: $type),*) $(-> $output)? {
                $kernel($crate::simd::avx2::Avx2::new(), $($argument),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
            #[allow(clippy::too_many_arguments)]
            fn avx512 $(<$($generic: $bound),+>)? ($($argument: $type),*) $(-> $output)? {
                $kernel($crate::simd::avx512::Avx512::<false>::new(), $($argument),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi2,avx512vnni")]
            #[allow(clippy::too_many_arguments)]
            fn avx512_bf16 $(<$($generic: $bound),+>)? ($($argument: $type),*) $(-> $output)? {
                $kernel($crate::simd::avx512::Avx512::<true>::with_bf16(), $($argument),*)
            }
            match cpu.level() {
                $crate::cpu::Level::Portable => {
                    $kernel($crate::simd::portable::Portable, $($argument),*)
                }
                // SAFETY: a `Cpu` of this level exists only if detection found
                // these instructions.
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::Level::Avx2 => unsafe { avx2($($argument),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::Level::Avx512 => unsafe { avx512($($argument),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::Level::Avx512Bf16 => unsafe { avx512_bf16($($argument),*) },
            }
        }
    )*};
}
pub(crate) use dispatch;
