//! Which classes to score for each example: its true labels and its negatives.
//!
//! | sampler | negatives | correction |
//! |---|---|---|
//! | `lsh-embedding` | classes whose vectors share a bucket with the embedding | none (paper) |
//! | `lsh-label` | classes whose vectors share a bucket with a true label's | none (paper) |
//! | `mixed` | hashed classes, and a uniform draw of the others | [`Counts::drawn_log_q`] |
//! | `top-k` | the classes with the highest scores of all | none |
//! | `log-uniform`, `frequency`, `uniform` | drawn from a fixed distribution | [`Sampler::class_log_q`] |
//!
//! Every sampler works on the examples of a batch in parallel. An example's
//! randomness is named by seed, iteration and example number, so its candidates
//! depend neither on the number of threads nor on its place in the batch.
//!
//! Architecture invariant: a sampler proposes and never moves a parameter.
//! `full` is no sampler: the training step scores every class by itself.

mod candidates;
mod config;
mod feature_index;
pub mod frequency;
mod gather;
mod inclusion;
pub mod log_uniform;
mod lot;
pub mod lsh;
pub mod mixed;
mod sharded;
mod static_sampler;
mod top_k;
pub mod uniform;

pub(crate) use candidates::{BLOCK_WORDS, BitRows};
pub use candidates::{Candidates, Counts};
pub use config::{LshConfig, MixedConfig, MixedQuery, SamplerError, SamplerKind, Setup, build};
pub use feature_index::{FeatureIndex, FeatureLists, NearClasses, Truths};
pub use lsh::{LshSampler, Query, Walk};
pub use sharded::build_sharded;

use lookalike_kernels::Cpu;

use crate::data::Examples;
use crate::hashing::{HashTables, TableCodes};
use crate::model::{Embeddings, RowsView};

/// What a sampler is told about a batch.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The run's seed.
    pub seed: u64,
    /// The training iteration, counted from 0.
    pub iteration: u64,
    /// Instructions that may be used.
    pub cpu: Cpu,
    /// All examples.
    pub examples: Examples<'a>,
    /// Numbers of the batch's examples.
    pub batch: &'a [u32],
    /// The embedding of each example of the batch, in the batch's order.
    pub embeddings: Embeddings<'a>,
    /// The vector of each class.
    pub class_vectors: RowsView<'a>,
    /// The bias of each class.
    pub class_bias: &'a [f32],
    /// Classes known to be near each example: samplers with hash tables take
    /// them first, within their budget.
    pub near: Option<&'a NearClasses>,
}

impl Request<'_> {
    /// The most true labels of an example in the batch.
    fn truths_max(&self) -> usize {
        let labels = |&example: &u32| self.examples.labels(example as usize).len();
        self.batch.iter().map(labels).max().unwrap_or(0)
    }
}

/// Proposes the candidates of a batch.
///
/// Law. After [`propose`](Self::propose), `out` has one set for each example of
/// the batch: all its true labels first, then found negatives, then drawn ones;
/// all different, no negative a true label, at most the sampler's budget of
/// negatives (more if it walks its tables as the paper does, [`Walk::Paper`]). The same request gives the same sets, whatever the number of
/// threads and whatever other batches were proposed before, as long as the
/// tables were last refreshed with the same class vectors. A sampler that looks
/// at class vectors is refreshed before it first proposes; until then it finds
/// nothing. Proposing allocates nothing once batches of that shape were seen.
pub trait Sampler: Send + Sync + std::fmt::Debug {
    /// Fills `out` for the batch.
    fn propose(&mut self, request: &Request<'_>, out: &mut Candidates);

    /// Takes notice that class vectors have changed: all of them, or only
    /// `changed` (ascending, distinct) since the last refresh.
    fn refresh(&mut self, _cpu: Cpu, _class_vectors: RowsView<'_>, _changed: Option<&[u32]>) {}

    /// The hash tables as the last refresh left them, where there are some: whoever
    /// stops between two refreshes keeps them, to go on with the same.
    fn tables(&self) -> Option<&HashTables> {
        None
    }

    /// Takes tables that were kept for those of the last refresh; false if they are not
    /// this sampler's.
    fn restore(&mut self, _codes: &TableCodes, _mean: &[f32]) -> bool {
        false
    }

    /// For a fixed distribution: the logarithm of each class's expected count
    /// among an example's negatives, always finite. As in TensorFlow, the
    /// correction subtracts it from the score of negatives and true labels alike.
    fn class_log_q(&self) -> Option<&[f32]> {
        None
    }

    /// What was asked for and given since the sampler was made.
    fn stats(&self) -> SamplerStats;
}

/// How far a sampler came up to its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplerStats {
    /// Examples proposed for.
    pub queries: u64,
    /// Negatives asked for.
    pub wanted: u64,
    /// Negatives given.
    pub given: u64,
    /// The share of the last proposal's time that went into hashing queries.
    pub hashing_share: f64,
}

impl SamplerStats {
    /// Takes a proposed batch into account.
    fn count(&mut self, budget: usize, classes: usize, proposed: &Candidates) {
        for counts in proposed.all_counts() {
            let negatives_there_are = classes - counts.truths as usize;
            self.queries += 1;
            self.wanted += budget.min(negatives_there_are) as u64;
            self.given += u64::from(counts.found + counts.drawn);
        }
    }
}
