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
//!
//! Where the tables give more than is trained on, only the best of the found classes are
//! certain to stay, and nobody is left to stand for the others. So these are drawn too, at
//! the same rate D / R: some found classes, chosen by lot before any score is known (`lot.rs`), are
//! *spared*. A spared class that is among the best counts once, like the best; one that is
//! not stays all the same and stands for its share, `log q = ln(D / R)`. Whether a
//! class is among the best does not depend on the lot, so the sum is unbiased again.

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
    let walk = setup.walk();
    let certain = setup.mixed.hashed(budget);
    if setup.retrieve > budget && certain > 0 {
        let rest = Rest::EstimateBeside { draws: budget - certain };
        return Ok(Plan { queries, found: setup.retrieve, budget, rest, walk });
    }
    Ok(Plan { queries, found: certain, budget, rest: Rest::Estimate, walk })
}
