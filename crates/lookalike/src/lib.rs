//! Extreme classification: softmax over a huge number of classes, trained on
//! ordinary CPUs by scoring, for each example, only the classes that look like
//! the truth.
//!
//! The modules stand in the order that data takes through them:
//!
//! ```text
//! file → examples → batch → embedding → candidates → scores → loss → gradients → row updates → hash tables
//! data/             train/  model/      sampling/    model/   loss/  train/      optim/        hashing/
//! ```
#![forbid(unsafe_code)]

/// The example of the crate's front page is run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct FrontPage;

pub mod artifact;
mod best;
pub mod collective;
pub mod data;
mod disk;
pub mod experiment;
pub mod hashing;
pub mod loss;
pub mod metrics;
pub mod model;
pub mod optim;
pub mod predict;
pub mod random;
pub mod sampling;
mod scratch;
pub mod text;
pub mod train;
