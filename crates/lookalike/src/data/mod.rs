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
mod row;
pub mod xc;

pub use error::DataError;
pub use examples::{Dataset, Examples};
pub use xc::{ReadOptions, ReadReport};
