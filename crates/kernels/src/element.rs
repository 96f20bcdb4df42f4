//! The two number formats a parameter can be stored in.

use bytemuck::Pod;
pub use half::bf16;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::bf16 {}
}

/// A stored parameter: `f32`, or `bf16` at half the memory.
pub trait Element: sealed::Sealed + Pod + Send + Sync + Default + std::fmt::Debug {
    /// The name used in files and options.
    const NAME: &'static str;

    /// Whether this is `f32`: kernels choose how to load by it.
    const IS_F32: bool;

    /// The value as f32, exactly.
    fn to_f32(self) -> f32;

    /// The nearest value of this format (ties to even).
    fn from_f32(x: f32) -> Self;

    /// Rounds up or down at random so that the expectation is `x`: without it
    /// bf16 parameters would never move by steps smaller than half their last
    /// digit. The 16 random bits are the caller's.
    fn from_f32_stochastic(x: f32, random_bits: u16) -> Self;
}

impl Element for f32 {
    const NAME: &'static str = "f32";
    const IS_F32: bool = true;
    fn to_f32(self) -> f32 {
        self
    }
    fn from_f32(x: f32) -> Self {
        x
    }
    fn from_f32_stochastic(x: f32, _: u16) -> Self {
        x
    }
}

impl Element for bf16 {
    const NAME: &'static str = "bf16";
    const IS_F32: bool = false;
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }
    fn from_f32(x: f32) -> Self {
        bf16::from_f32(x)
    }
    fn from_f32_stochastic(x: f32, random_bits: u16) -> Self {
        // Adding noise below the cut and truncating rounds up with probability
        // equal to the fraction cut off. NaN and infinity must not carry over.
        let bits = if x.is_finite() {
            x.to_bits().saturating_add(u32::from(random_bits))
        } else {
            x.to_bits() | u32::from(x.is_nan()) << 22
        };
        bf16::from_bits((bits >> 16) as u16)
    }
}
