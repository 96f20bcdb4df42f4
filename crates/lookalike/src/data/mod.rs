//! From files to examples.
//!
//! [`Source::load`] is the one way in: it takes a path (or `-`), finds out what
//! the file is and gives a view of [`Examples`]. [`write`](mod@write) and
//! [`packed`] are the ways out; the other modules make and study data.

pub mod error;
mod examples;
pub mod law;
mod numbers;
pub mod open;
pub mod packed;
mod row;
mod source;
pub mod write;
pub mod xc;

pub use error::DataError;
pub use examples::{Dataset, Examples};
pub use packed::{Packed, write_packed};
pub use source::Source;
pub use write::write_text;
pub use xc::{ReadOptions, ReadReport};
