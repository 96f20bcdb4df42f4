//! Which instructions this CPU has, found out once and passed as a value.

/// Proof that a level of instructions may be used: only detection makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpu(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Portable,
}

impl Cpu {
    /// The best level of this machine, or the one that `LOOKALIKE_CPU` names.
    pub fn detect() -> Self {
        Self(Level::Portable)
    }

    /// Plain Rust, on any machine.
    pub fn portable() -> Self {
        Self(Level::Portable)
    }

    /// Every level this machine has, slowest first.
    pub fn available() -> Vec<Self> {
        vec![Self::portable()]
    }

    /// The name used in `LOOKALIKE_CPU` and in reports.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
        }
    }
}
