//! From examples to the classes that score highest.
//!
//! [`top_k`] looks at every class: `O(N · dim)` an example, in tiles, at the
//! speed of a matrix product. [`rescore`] looks only at the candidates it is
//! given, for example by hash tables: `O(candidates · dim)`, whatever `N` is.
//! [`Predictor`] does the first for a whole model: a model that keeps its training
//! examples has the best classes ranked again by them. It also gives the scores of
//! chosen classes, in the caller's order. Everything that answers goes through it.
//! [`contributions`] says which features made a score.
//! All give a class the same score, to the bit, whatever else is asked for.
//! Both rankings give the same order: higher scores first, the lower class id first
//! among equals, and never a class whose score is NaN or negative infinity.

mod approximate;
mod ask;
mod calibrated;
mod candidates;
mod chosen;
mod effort;
mod evaluate;
mod exact;
mod explain;
mod fast;
mod few;
mod predictor;
mod ranking;
mod rough;
mod sharded;
mod sparse_queries;
mod tile;

pub use approximate::{RescoreScratch, rescore};
pub use ask::{Ask, Search};
pub use effort::{INDEXED_CLASSES_MIN, Recall, index};
pub use evaluate::Evaluation;
pub use exact::{TopKScratch, top_k};
pub use explain::{Contributions, Explainer, contributions};
pub use predictor::{NamedClass, Predictor};
pub use ranking::{Ranked, TopK};
pub(crate) use sharded::join_ranks;
pub use sparse_queries::SparseQueries;
