//! From scores to probabilities that mean what they say.
//!
//! A score says which class is better, not how likely it is: it is a sum of a softmax
//! over candidates, of logistic losses and of cosines, and can be around a thousand.
//! A [`Calibration`] is a logistic function of how the best scores of an example lie
//! to each other, fitted on examples that the model was not trained on
//! ([`crate::train`]). It gives each class the probability that it is one of the
//! example's labels. Where every training example had one label, the probabilities
//! of an example are a distribution: they add up to one.
//!
//! It looks at the best [`RANKS`] scores and at nothing else: no sum over all
//! classes, so a search that finds the best classes only can give probabilities too.
//! The order of an example's probabilities is that of its scores, and equal scores have
//! equal ones, but for an example with so few known features that it gets some of the
//! prior, which knows no scores. O(classes asked for) an example.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The best so many scores of an example decide its probabilities.
pub const RANKS: usize = 20;
/// Of these the distances to the first say how clear the answer is: their logarithms, and of
/// some the distances themselves, since of an exponential family's scores the logit grows as
/// the distance does where that is large.
const DISTANT_RANKS: [usize; 4] = [1, 4, 9, RANKS - 1];
const FAR_RANKS: [usize; 2] = [1, RANKS - 1];
/// Added to distances before their logarithm is taken: equal scores are no news.
const LEAST_DISTANCE: f64 = 0.02;
/// What is known of one class of a ranking.
pub(crate) const CLASS_TERMS: usize = 3;
/// What is known of an example.
pub(crate) const EXAMPLE_TERMS: usize = DISTANT_RANKS.len() + 2 + FAR_RANKS.len();

/// How scores become probabilities; see the module's description. Numbers are of 32 bits, so
/// that they are the same after a way through a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Calibration {
    /// How many labels a training example had.
    pub labels: LabelsPerExample,
    /// Examples it was fitted on.
    pub examples: usize,
    /// What a distance between scores is measured in.
    pub(crate) scale: f32,
    /// Weights of what is known of a class, none negative: a lower score is no likelier.
    pub(crate) class_weights: [f32; CLASS_TERMS],
    /// What is known of the example.
    #[serde(deserialize_with = "read_example_terms")]
    pub(crate) example_terms: [ExampleTerm; EXAMPLE_TERMS],
    /// The logit where all else is 0.
    pub(crate) bias: f32,
    /// Nearly all of those examples had at least so many known features. Of less than was
    /// ever seen little is known: towards nothing, probabilities go towards the prior.
    pub(crate) least_known: usize,
}

/// How many labels an example has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelsPerExample {
    /// Always one: probabilities add up to one.
    One,
    /// Any number: each class has a probability of its own.
    Several,
}

/// A weight, and the range that was seen when it was fitted: beyond it nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExampleTerm {
    pub(crate) weight: f32,
    pub(crate) low: f32,
    pub(crate) high: f32,
}

/// Models of builds before have fewer: what they lack counts nothing.
fn read_example_terms<'de, D: Deserializer<'de>>(from: D) -> Result<[ExampleTerm; EXAMPLE_TERMS], D::Error> {
    let read = Vec::<ExampleTerm>::deserialize(from)?;
    let mut terms = [ExampleTerm::default(); EXAMPLE_TERMS];
    let known = terms.get_mut(..read.len());
    known.ok_or_else(|| D::Error::invalid_length(read.len(), &"fewer terms"))?.copy_from_slice(&read);
    Ok(terms)
}

/// What is known of a class that so many others are better than: the higher, the likelier.
pub(crate) fn class_terms(scale: f32, first: f32, score: f32, rank: usize) -> [f64; CLASS_TERMS] {
    let distance = distance(scale, first, score);
    [-distance, -distance.sqrt(), -(rank as f64).ln_1p()]
}

/// What is known of an example with these best scores.
pub(crate) fn example_terms(scale: f32, best: &[f32], known_features: usize) -> [f64; EXAMPLE_TERMS] {
    let first = best[0];
    let at = |rank: usize| best[rank.min(best.len() - 1)];
    let mut terms = [0.0; EXAMPLE_TERMS];
    for (term, rank) in terms.iter_mut().zip(DISTANT_RANKS) {
        *term = (distance(scale, first, at(rank)) + LEAST_DISTANCE).ln();
    }
    terms[DISTANT_RANKS.len()] = (known_features as f64).ln_1p();
    terms[DISTANT_RANKS.len() + 1] = f64::from(first) / f64::from(scale);
    for (term, rank) in terms[DISTANT_RANKS.len() + 2..].iter_mut().zip(FAR_RANKS) {
        *term = distance(scale, first, at(rank));
    }
    terms
}

fn distance(scale: f32, first: f32, score: f32) -> f64 {
    (f64::from(first) - f64::from(score)).max(0.0) / f64::from(scale)
}

impl Calibration {
    /// For an example with these scores, best first: the best [`RANKS`], or all that
    /// there are. More are not looked at.
    pub fn of_example<'a>(
        &'a self,
        scores: &'a [f32],
        known_features: usize,
        num_classes: usize,
    ) -> Probabilities<'a> {
        let best = &scores[..scores.len().min(RANKS)];
        let mut of_example = Probabilities {
            calibration: self,
            best,
            logit: f64::from(self.bias),
            share: 1.0,
            least: None,
            trust: 1.0,
        };
        of_example.trust = (known_features as f64 / self.least_known.max(1) as f64).min(1.0);
        if best.is_empty() {
            return of_example;
        }
        let terms = example_terms(self.scale, best, known_features);
        let weighted = |(term, of): (&f64, &ExampleTerm)| {
            term.max(f64::from(of.low)).min(f64::from(of.high)) * f64::from(of.weight)
        };
        of_example.logit += terms.iter().zip(&self.example_terms).map(weighted).sum::<f64>();
        if self.labels == LabelsPerExample::One {
            let sum: f64 = best.iter().map(|&score| of_example.alone(score)).sum();
            // Where the best are all there are, one of them it is.
            if (sum > 1.0 || num_classes <= RANKS) && sum > 0.0 {
                of_example.share = 1.0 / sum;
            }
            of_example.least = Some(of_example.share_out(num_classes.saturating_sub(best.len())));
        }
        of_example
    }
}

/// The probabilities of one example's classes.
#[derive(Clone, Copy, Debug)]
pub struct Probabilities<'a> {
    calibration: &'a Calibration,
    best: &'a [f32],
    /// What is known of the example.
    logit: f64,
    /// What probabilities are multiplied with to be those of a distribution.
    share: f64,
    /// In a distribution: of a class that is not among the best, and the least that one
    /// among them has.
    least: Option<f64>,
    /// How much they count against the prior.
    trust: f64,
}

impl Probabilities<'_> {
    /// Of a class with this score, which this share of the training examples had.
    pub fn of(&self, score: f32, prior: f32) -> f32 {
        let is_best = self.best.last().is_some_and(|&last| score >= last);
        let by_score = || self.share * self.alone(score);
        let probability = match self.least {
            Some(least) if is_best => by_score().max(least),
            Some(least) => least,
            None => by_score(),
        };
        (self.trust * probability + (1.0 - self.trust) * f64::from(prior)) as f32
    }

    /// What each of so many others gets of what the best leave. They share it equally, and
    /// with those of the best that would have less than they: a lower score is never more
    /// probable.
    fn share_out(&self, others: usize) -> f64 {
        let best: Vec<f64> = self.best.iter().map(|&score| self.share * self.alone(score)).collect();
        let mut left = (1.0 - best.iter().sum::<f64>()).max(0.0);
        let mut sharers = others;
        for of_best in best.iter().rev() {
            if sharers == 0 || *of_best * sharers as f64 >= left {
                break;
            }
            left += of_best;
            sharers += 1;
        }
        left / sharers.max(1) as f64
    }

    fn alone(&self, score: f32) -> f64 {
        let Calibration { scale, class_weights, .. } = self.calibration;
        let first = self.best.first().copied().unwrap_or(score);
        let rank = self.best.partition_point(|&better| better > score);
        let terms = class_terms(*scale, first, score, rank);
        let logit: f64 =
            terms.iter().zip(class_weights).map(|(term, &weight)| term * f64::from(weight)).sum();
        1.0 / (1.0 + (-(self.logit + logit)).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn calibration(labels: LabelsPerExample) -> Calibration {
        let term = ExampleTerm { weight: 0.7, low: -4.0, high: 3.0 };
        Calibration {
            labels,
            examples: 100,
            scale: 3.0,
            class_weights: [2.0, 0.5, 0.3],
            example_terms: [term; EXAMPLE_TERMS],
            bias: 0.2,
            least_known: 1,
        }
    }

    fn probabilities(calibration: &Calibration, scores: &[f32], known: usize, classes: usize) -> Vec<f32> {
        let of_example = calibration.of_example(scores, known, classes);
        scores.iter().map(|&score| of_example.of(score, 1.0 / classes as f32)).collect()
    }

    fn descending() -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec(-1000f32..1000.0, 1..60).prop_map(|mut scores| {
            scores.sort_unstable_by(|a, b| b.total_cmp(a));
            scores.dedup();
            scores
        })
    }

    proptest! {
        #[test]
        fn probabilities_are_probabilities_in_the_order_of_scores(scores in descending(), known in 1usize..50) {
            let all = probabilities(&calibration(LabelsPerExample::Several), &scores, known, scores.len());
            prop_assert!(all.iter().all(|p| (0.0..=1.0).contains(p)));
            prop_assert!(all.is_sorted_by(|a, b| a >= b));
        }

        #[test]
        fn of_one_label_they_add_up_to_one(scores in descending(), known in 1usize..50) {
            let all = probabilities(&calibration(LabelsPerExample::One), &scores, known, scores.len());
            let sum: f64 = all.iter().map(|&p| f64::from(p)).sum();
            prop_assert!((sum - 1.0).abs() < 1e-5, "{sum}");
            // Also where the best and the others have little to share.
            prop_assert!(all.is_sorted_by(|a, b| a >= b), "{all:?}");
        }

        /// A search that finds the best classes only gives the same.
        #[test]
        fn only_the_best_scores_decide(scores in descending(), one in any::<bool>()) {
            let labels = if one { LabelsPerExample::One } else { LabelsPerExample::Several };
            let calibration = calibration(labels);
            let all = probabilities(&calibration, &scores, 3, 1000);
            let best = probabilities(&calibration, &scores[..scores.len().min(RANKS)], 3, 1000);
            prop_assert_eq!(&all[..best.len()], &best[..]);
        }
    }

    #[test]
    fn terms_that_a_file_lacks_count_nothing_and_more_are_an_error() {
        let terms = |count: usize| {
            let mut text = serde_json::to_value(calibration(LabelsPerExample::One)).unwrap();
            let term = text["example-terms"][0].clone();
            text["example-terms"] = vec![term; count].into();
            serde_json::from_value::<Calibration>(text).map(|read| read.example_terms)
        };
        let six = terms(6).unwrap();
        assert_eq!((six[5].weight, six[6], six[7]), (0.7, ExampleTerm::default(), ExampleTerm::default()));
        assert!(terms(EXAMPLE_TERMS).is_ok() && terms(EXAMPLE_TERMS + 1).is_err());
    }

    #[test]
    fn the_less_is_known_the_nearer_is_the_prior() {
        let calibration = Calibration { least_known: 10, ..calibration(LabelsPerExample::Several) };
        let scores = [3.0, 1.0];
        let with = |known: usize| calibration.of_example(&scores, known, 2).of(3.0, 0.01);
        assert_eq!(with(0), 0.01);
        let (full, half) = (calibration.of_example(&scores, 10, 2), with(5));
        assert!(with(1) < half && half < full.of(3.0, 0.01));
        assert_eq!(full.of(3.0, 0.01), full.of(3.0, 0.9));
    }

    #[test]
    fn nothing_is_known_beyond_what_was_seen() {
        let calibration = calibration(LabelsPerExample::Several);
        let first = |score: f32| probabilities(&calibration, &[score, score - 1.0], 1, 2)[0];
        assert!(first(-20.0) < first(2.0));
        assert_eq!(first(1e6), first(9.0));
        assert!(probabilities(&calibration, &[], 0, 5).is_empty());
    }
}
