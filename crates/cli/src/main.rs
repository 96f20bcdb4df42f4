//! The command line of lookalike.
#![forbid(unsafe_code)]

fn main() {}
