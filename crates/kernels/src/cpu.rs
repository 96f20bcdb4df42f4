//! Which instructions this CPU has, found out once and passed as a value.

use std::env::{self, VarError};
use std::sync::OnceLock;

/// Names the level to use instead of the best one.
const FORCE_VARIABLE: &str = "LOOKALIKE_CPU";

/// Proof that a level of instructions may be used: only detection makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpu(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
}

/// Why the level that was asked for cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    /// No level has this name.
    #[error(
        "LOOKALIKE_CPU is \"{name}\", which is no level of instructions: expected portable, avx2, \
         avx512 or avx512-bf16; unset the variable to use the best this machine has"
    )]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The level exists, but this machine does not have it.
    #[error(
        "LOOKALIKE_CPU asks for {name}, which this machine does not have: it has {available}; \
         unset the variable to use the best of them"
    )]
    Unavailable {
        /// What was asked for.
        name: String,
        /// The names of the levels this machine has.
        available: String,
    },
}

impl Cpu {
    /// The level that `LOOKALIKE_CPU` names, or the best of this machine if the
    /// variable is unset or not usable ([`Cpu::from_env`] tells which).
    pub fn detect() -> Self {
        static DETECTED: OnceLock<Cpu> = OnceLock::new();
        *DETECTED.get_or_init(|| Self::from_env().unwrap_or_else(|_| Self::best()))
    }

    /// The level that `LOOKALIKE_CPU` names, or the best if it is unset.
    pub fn from_env() -> Result<Self, CpuError> {
        match env::var(FORCE_VARIABLE) {
            Ok(name) => Self::named(&name),
            Err(VarError::NotPresent) => Ok(Self::best()),
            Err(VarError::NotUnicode(name)) => {
                let name = name.to_string_lossy().into_owned();
                Err(CpuError::Unknown { name })
            }
        }
    }

    /// The level with this name, if there is one and this machine has it.
    pub fn named(name: &str) -> Result<Self, CpuError> {
        let available = Self::available();
        if let Some(&cpu) = available.iter().find(|cpu| cpu.name() == name) {
            return Ok(cpu);
        }
        let name = name.to_owned();
        if !["avx2", "avx512", "avx512-bf16"].contains(&name.as_str()) {
            return Err(CpuError::Unknown { name });
        }
        let names: Vec<_> = available.iter().map(|cpu| cpu.name()).collect();
        let available = names.join(", ");
        Err(CpuError::Unavailable { name, available })
    }

    /// Plain Rust, on any machine.
    pub fn portable() -> Self {
        Self(Level::Portable)
    }

    /// Every level this machine has, slowest first.
    pub fn available() -> Vec<Self> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut levels = vec![Self::portable()];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("popcnt");
            if avx2 {
                levels.push(Self(Level::Avx2));
            }
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                levels.push(Self(Level::Avx512));
                if is_x86_feature_detected!("avx512bf16")
                    && is_x86_feature_detected!("avx512vbmi2")
                    && is_x86_feature_detected!("avx512vnni")
                {
                    levels.push(Self(Level::Avx512Bf16));
                }
            }
        }
        levels
    }

    /// The name used in `LOOKALIKE_CPU` and in reports.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16 => "avx512-bf16",
        }
    }

    /// What kernels choose their instructions by.
    pub(crate) fn level(self) -> Level {
        self.0
    }

    fn best() -> Self {
        Self::available().into_iter().max().unwrap_or(Self::portable())
    }
}
