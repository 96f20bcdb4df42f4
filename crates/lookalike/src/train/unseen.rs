//! Held-out examples, as new ones look to a model.
//!
//! Whoever made the features of a data set kept those that so many of its examples have, and
//! held-out examples were among them: a word that one of them shares with a single other is a
//! feature where two make one, and to the model it points at that one example. In new text the
//! same word is unknown. With such features held-out examples are easier than new ones, so
//! what they say of the parts that know rare features, and of how sure answers are, is too
//! good: a sixth of the calibration error on GeoNames came from it (docs/notes/calibration.md).
//! So they are judged without them: a feature stays if enough *other* examples have it, enough
//! being what the rarest feature of all has. Where that would be much of what examples have
//! the rarest is no bound that somebody drew (vectors have all of their numbers), and all stay.
//!
//! Cost: a pass over the features; memory: 4 bytes a feature, and the held-out examples once
//! more.

use crate::data::{Dataset, Examples};

/// How many examples have each feature.
pub(super) struct FeatureCounts {
    counts: Vec<u32>,
    /// A feature that so many have, or fewer, is one by chance.
    chance: u32,
}

/// Features are as good as a vocabulary's if less than one in so many values is of its rarest.
const RAREST_OF: usize = 4;

impl FeatureCounts {
    pub(super) fn of(examples: &Examples<'_>) -> Self {
        let mut counts = vec![0u32; examples.num_features];
        examples.feature_ids.iter().for_each(|&id| counts[id as usize] += 1);
        let fewest = counts.iter().copied().filter(|&count| count > 0).min().unwrap_or(0);
        let of_rarest = counts.iter().filter(|&&count| count == fewest).count() * fewest as usize;
        let is_bound = of_rarest < examples.feature_ids.len() / RAREST_OF;
        Self { counts, chance: if is_bound { fewest } else { 0 } }
    }

    /// Where nobody asks, and of a model that has learnt features from other examples, too: all
    /// count as known.
    pub(super) fn unknown() -> Self {
        Self { counts: Vec::new(), chance: 0 }
    }

    /// Whether a feature of an example would be one without this example.
    fn would_be(&self, feature: u32) -> bool {
        self.chance == 0 || self.counts[feature as usize] > self.chance
    }
}

/// Examples that a model is not trained on, as new ones would be.
#[derive(Debug)]
pub(super) struct Unseen {
    data: Dataset,
    ids: Vec<u32>,
}

impl Default for Unseen {
    fn default() -> Self {
        Self { data: Dataset::empty(0, 0), ids: Vec::new() }
    }
}

impl Unseen {
    pub(super) fn of(examples: &Examples<'_>, held_out: &[u32], counts: &FeatureCounts) -> Self {
        let mut data = Dataset::empty(examples.num_features, examples.num_classes);
        for &example in held_out {
            let (ids, values) = examples.features(example as usize);
            let features = ids.iter().copied().zip(values.iter().copied());
            data.push(features.filter(|&(id, _)| counts.would_be(id)), examples.labels(example as usize));
        }
        Self { data, ids: (0..held_out.len() as u32).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(super) fn examples(&self) -> Examples<'_> {
        self.data.view()
    }

    /// All of [`examples`](Self::examples).
    pub(super) fn ids(&self) -> &[u32] {
        &self.ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of one feature that all examples have and some that `each` examples share.
    fn data(examples: u32, each: u32) -> Dataset {
        let mut data = Dataset::empty(1 + examples as usize, 1);
        for example in 0..examples {
            let shared = (example < 4).then_some((1 + example / each, 2.0));
            data.push([(0, 1.0)].into_iter().chain(shared), &[0]);
        }
        data
    }

    fn unseen(data: &Dataset) -> Unseen {
        let view = data.view();
        Unseen::of(&view, &[3, 9], &FeatureCounts::of(&view))
    }

    #[test]
    fn features_that_only_the_example_itself_made_common_enough_are_left_out() {
        let mut pairs = data(20, 2);
        let new = unseen(&pairs);
        assert_eq!(new.ids(), [0, 1]);
        assert_eq!(new.examples().features(0), (&[0][..], &[1.0][..]));
        assert_eq!(
            (new.examples().features(1), new.examples().labels(1)),
            ((&[0][..], &[1.0][..]), &[0][..])
        );
        // One example is enough to make a feature here.
        pairs.push([(0, 1.0), (20, 1.0)], &[0]);
        assert_eq!(unseen(&pairs).examples().features(0).0, [0, 2]);
    }

    #[test]
    fn a_model_that_has_seen_other_examples_may_know_more() {
        let pairs = data(20, 2);
        let unseen = Unseen::of(&pairs.view(), &[3], &FeatureCounts::unknown());
        assert_eq!(unseen.examples().features(0).0, [0, 2]);
    }

    #[test]
    fn what_all_examples_have_or_most_values_are_of_is_no_bound() {
        assert_eq!(unseen(&data(12, 2)).examples().features(0).0, [0, 2]);
        let mut vectors = Dataset::empty(2, 1);
        (0..10).for_each(|_| vectors.push([(0, 1.0), (1, 2.0)], &[0]));
        assert_eq!(unseen(&vectors).examples().features(0).0, [0, 1]);
    }
}
