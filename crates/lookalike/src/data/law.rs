//! The law of [`Examples`], checked.
//!
//! Readers of a view rely on its law without looking; whoever makes a view of
//! memory it did not fill itself (a mapped file, arrays of another language)
//! checks it once. One pass in parallel, O(entries), at the speed of memory.

use rayon::prelude::*;
use thiserror::Error;

use super::Examples;

/// How a view breaks the law of [`Examples`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BrokenLaw {
    /// Arrays whose lengths do not fit together.
    #[error("{what}: found {found} elements, expected {expected}")]
    Lengths {
        /// The array.
        what: &'static str,
        /// Its length.
        found: u64,
        /// The length that the other arrays ask for.
        expected: u64,
    },
    /// Offsets that do not start at zero or fall.
    #[error("{what} of example {example}: found {found}, expected at least {at_least}")]
    Offsets {
        /// The array.
        what: &'static str,
        /// The example, from 0.
        example: usize,
        /// The offset found.
        found: u64,
        /// The offset before it.
        at_least: u64,
    },
    /// An id past the end.
    #[error("example {example}: found {what} {found}, expected one below {limit}")]
    Beyond {
        /// `feature` or `label`.
        what: &'static str,
        /// The example, from 0.
        example: usize,
        /// The id.
        found: u32,
        /// The number of features or classes.
        limit: usize,
    },
    /// Ids that repeat or fall within an example.
    #[error("example {example}: found {what} {found} out of order, expected ascending and distinct ids")]
    Order {
        /// `feature` or `label`.
        what: &'static str,
        /// The example, from 0.
        example: usize,
        /// The id.
        found: u32,
    },
    /// A value that is NaN or infinite.
    #[error("example {example}: found a value that is not finite for feature {feature}")]
    NotFinite {
        /// The example, from 0.
        example: usize,
        /// Its feature.
        feature: u32,
    },
    /// A weight that is negative, infinite or no number.
    #[error("example {example}: found the weight {found}, expected a finite number, 0 or more")]
    Weight {
        /// The example, from 0.
        example: usize,
        /// The weight.
        found: String,
    },
}

/// Examples that one task checks.
const BLOCK: usize = 4096;

impl Examples<'_> {
    /// Checks the law; the first example that breaks it is named.
    pub fn check_law(&self) -> Result<(), BrokenLaw> {
        same_length("feature values", self.feature_values.len(), self.feature_ids.len() as u64)?;
        same_length("label offsets", self.label_offsets.len(), self.feature_offsets.len() as u64)?;
        check_offsets("feature offset", self.feature_offsets, self.feature_ids.len())?;
        check_offsets("label offset", self.label_offsets, self.label_ids.len())?;
        check_weights(self.weights, self.len())?;
        let blocks = self.len().div_ceil(BLOCK);
        first_error(blocks, |block| {
            for example in block * BLOCK..((block + 1) * BLOCK).min(self.len()) {
                let (features, values) = self.features(example);
                check_ids("feature", example, features, self.num_features)?;
                check_ids("label", example, self.labels(example), self.num_classes)?;
                if let Some(i) = values.iter().position(|v| !v.is_finite()) {
                    return Err(BrokenLaw::NotFinite { example, feature: features[i] });
                }
            }
            Ok(())
        })
    }
}

/// The first error in the order of blocks, whichever thread finds one first.
fn first_error(
    blocks: usize,
    check: impl Fn(usize) -> Result<(), BrokenLaw> + Sync,
) -> Result<(), BrokenLaw> {
    match (0..blocks).into_par_iter().find_map_first(|block| check(block).err()) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn same_length(what: &'static str, found: usize, expected: u64) -> Result<(), BrokenLaw> {
    let found = found as u64;
    if found == expected { Ok(()) } else { Err(BrokenLaw::Lengths { what, found, expected }) }
}

fn check_offsets(what: &'static str, offsets: &[u64], entries: usize) -> Result<(), BrokenLaw> {
    match (offsets.first(), offsets.last()) {
        (Some(&first), Some(&last)) => {
            same_length(what, usize::try_from(first).unwrap_or(usize::MAX), 0)?;
            same_length(what, entries, last)?;
        }
        _ => {
            return Err(BrokenLaw::Lengths { what, found: 0, expected: 1 });
        }
    }
    match offsets.windows(2).position(|pair| pair[0] > pair[1]) {
        Some(example) => {
            Err(BrokenLaw::Offsets { what, example, found: offsets[example + 1], at_least: offsets[example] })
        }
        None => Ok(()),
    }
}

/// One finite weight an example, none below 0; or none at all.
pub fn check_weights(weights: &[f32], examples: usize) -> Result<(), BrokenLaw> {
    if !weights.is_empty() {
        same_length("weights", weights.len(), examples as u64)?;
    }
    match weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0)) {
        Some(example) => Err(BrokenLaw::Weight { example, found: weights[example].to_string() }),
        None => Ok(()),
    }
}

fn check_ids(what: &'static str, example: usize, ids: &[u32], limit: usize) -> Result<(), BrokenLaw> {
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(BrokenLaw::Order { what, example, found: pair[1] });
    }
    // Ascending, so the last is the largest.
    match ids.last() {
        Some(&found) if found as usize >= limit => Err(BrokenLaw::Beyond { what, example, found, limit }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::data::Dataset;

    fn lawful() -> Dataset {
        let mut data = Dataset::empty(10, 5);
        data.push([(1, 0.5), (9, -1.0)], &[0, 4]);
        data.push([], &[]);
        data.push([(3, 2.0)], &[2]);
        data
    }

    #[test]
    fn the_law_holds_for_what_was_pushed() {
        assert_eq!(lawful().view().check_law(), Ok(()));
        assert_eq!(Dataset::empty(0, 0).view().check_law(), Ok(()));
    }

    #[test]
    fn every_clause_of_the_law_is_checked() {
        let breaks: [fn(&mut Dataset); 14] = [
            |d| d.feature_offsets[0] = 1,
            |d| d.feature_offsets[1] = 4,
            |d| d.feature_offsets.clear(),
            |d| d.label_offsets[3] = 2,
            |d| d.label_offsets.truncate(3),
            |d| d.feature_values.truncate(2),
            |d| d.feature_ids[1] = 1,
            |d| d.feature_ids[2] = 10,
            |d| d.label_ids[1] = 5,
            |d| d.feature_values[0] = f32::NAN,
            |d| d.weights = vec![1.0; 2],
            |d| d.weights = vec![1.0, -1.0, 1.0],
            |d| d.weights = vec![1.0, f32::NAN, 1.0],
            |d| d.weights = vec![f32::INFINITY, 0.0, 1.0],
        ];
        for (i, make_unlawful) in breaks.iter().enumerate() {
            let mut data = lawful();
            make_unlawful(&mut data);
            assert!(data.view().check_law().is_err(), "break {i} went unseen");
        }
    }
}
