//! From files to examples.
//!
//! [`Source::load`] is the one way in: it takes a path (or `-`), finds out what
//! the file is and gives a view of [`Examples`]. [`write`](mod@write) and
//! [`packed`] are the ways out; the other modules make and study data.

mod blocks;
pub mod compression;
pub mod error;
mod examples;
mod fingerprint;
pub mod law;
mod numbers;
pub mod open;
pub mod packed;
mod row;
mod source;
pub mod split;
pub mod stats;
pub mod synth;
pub mod uniform;
pub mod weights;
pub mod write;
pub mod xc;

pub use blocks::Blocks;
pub use error::DataError;
pub use examples::{Dataset, Examples};
pub use fingerprint::DataFingerprint;
pub use packed::{Packed, PackedWriter, write_packed};
pub use source::Source;
pub use write::write_text;
pub use xc::{ReadOptions, ReadReport};

/// Places within [`crate::random::Stream::Data`], so that no two uses share
/// random numbers.
const PLACE_SPLIT: u64 = 1;
const PLACE_UNIFORM: u64 = 2;
const PLACE_SYNTH: u64 = 3;
