//! `mixed`: hashed negatives for hardness, a uniform share for honesty.
//!
//! Of the budget, `hashed_share` is looked up in the tables (with the embedding,
//! a true label, or half and half), and what remains is drawn uniformly, without
//! repetition, from the classes that are neither true nor found. True and found
//! classes count once each (log q = 0); each of the D drawn classes stands for
//! `R / D` of the R others, that is `log q = ln(D / R)`. Then
//!
//! `Σ_candidates exp(score - log q)`
//!
//! is an unbiased estimate of the full partition function `Σ_i exp(score_i)`,
//! *whatever* classes were found: the found ones are summed exactly, and the
//! mean of a uniform draw is that of the classes it is drawn from. No
//! probability of being hashed has to be known.

use super::config::{MixedQuery, SamplerError, Setup};
use super::lsh::{Plan, Query, Rest};

/// What it asks of its tables.
pub(super) fn mixed(setup: &Setup<'_>) -> Result<Plan, SamplerError> {
    let (budget, share) = (setup.budget, setup.mixed.hashed_share);
    if !(0.0..=1.0).contains(&share) {
        return Err(SamplerError::HashedShare { found: share.to_string() });
    }
    let queries = match setup.mixed.query {
        MixedQuery::Embedding => vec![Query::Embedding],
        MixedQuery::Label => vec![Query::Label],
        MixedQuery::Both => vec![Query::Label, Query::Embedding],
    };
    let found = (budget as f64 * share).round() as usize;
    Ok(Plan { queries, found, budget, rest: Rest::Estimate, walk: setup.walk() })
}
