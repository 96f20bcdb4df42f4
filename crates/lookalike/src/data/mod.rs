//! From files to examples.

mod examples;

pub use examples::{Dataset, Examples};
