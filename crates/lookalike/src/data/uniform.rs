//! A data set with near-uniform label frequencies, made from one with a power
//! law (paper, section 3.5: Amazon-Uniform is Amazon-670K with its frequent
//! classes down-sampled).
//!
//! Classes that occur fewer than `min_count` times in the training set are
//! dropped, of the others at most `cap` occurrences are kept, drawn at random.
//! Examples left without labels are dropped, and classes renumbered. Every
//! class then occurs between `min_count` and `cap` times.
//!
//! A test set follows the same plan: the same classes under the same new
//! numbers, and of each class the same share of occurrences as in training.

use rayon::prelude::*;

use super::stats::label_frequencies;
use super::{DataError, Dataset, Examples};
use crate::random::{Stream, mix};

/// How even the frequencies shall be. What is left out is chosen so that
/// `cap` is twice `min_count`; with both left out, the pair that keeps most
/// label occurrences.
#[derive(Clone, Debug, Default)]
pub struct UniformOptions {
    /// The most occurrences of a class in the training set.
    pub cap: Option<u64>,
    /// The fewest.
    pub min_count: Option<u64>,
    /// Which occurrences are kept.
    pub seed: u64,
}

/// Which classes are kept, and how many occurrences of them.
#[derive(Clone, Debug)]
pub struct UniformPlan {
    /// The most occurrences of a class in the training set.
    pub cap: u64,
    /// The fewest.
    pub min_count: u64,
    /// The old id of each new class, ascending.
    pub old_classes: Vec<u32>,
    /// How often each new class occurred in the whole training set.
    frequencies: Vec<u64>,
    seed: u64,
}

/// `cap / min_count` where the user does not say otherwise.
const RATIO: u64 = 2;

impl UniformPlan {
    /// Plans by the label frequencies of the training set.
    pub fn new(train: Examples<'_>, options: &UniformOptions) -> Result<Self, DataError> {
        let frequencies = label_frequencies(train);
        let (cap, min_count) = match (options.cap, options.min_count) {
            (Some(cap), Some(min_count)) => (cap, min_count),
            (Some(cap), None) => (cap, cap.div_ceil(RATIO)),
            (None, Some(min_count)) => (min_count.saturating_mul(RATIO), min_count),
            (None, None) => {
                let min_count = best_min_count(&frequencies);
                (min_count * RATIO, min_count)
            }
        };
        if min_count == 0 || cap < min_count {
            return Err(DataError::Option(format!(
                "found at least {min_count} and at most {cap} occurrences a class, \
                 expected at least 1 and no fewer at most than at least"
            )));
        }
        let (old_classes, frequencies): (Vec<u32>, Vec<u64>) =
            frequencies.into_iter().filter(|&(_, count)| count >= min_count).unzip();
        if old_classes.is_empty() {
            return Err(DataError::Option(format!(
                "no class occurs {min_count} times or more: choose a smaller minimum or cap"
            )));
        }
        Ok(Self { cap, min_count, old_classes, frequencies, seed: options.seed })
    }

    /// The training set that was planned for: each class exactly
    /// `min(cap, its frequency)` times. O(labels · log labels).
    pub fn train_set(&self, train: Examples<'_>) -> Dataset {
        // Ordered by class and then by lot, the first `cap` of a class stay.
        let mut occurrences: Vec<(u32, u64, usize)> = self.occurrences(train).collect();
        occurrences.par_sort_unstable();
        let mut kept: Vec<(usize, u32)> = occurrences
            .chunk_by(|a, b| a.0 == b.0)
            .flat_map(|of_class| &of_class[..of_class.len().min(self.cap as usize)])
            .map(|&(class, _, example)| (example, class))
            .collect();
        kept.par_sort_unstable();
        self.relabelled(train, &kept)
    }

    /// A test set of the same kind: an occurrence of a class stays with the
    /// share that stayed in training.
    pub fn test_set(&self, test: Examples<'_>) -> Dataset {
        let kept: Vec<(usize, u32)> = self
            .occurrences(test)
            .filter(|&(class, lot, _)| {
                let frequency = self.frequencies[class as usize];
                u128::from(lot) * u128::from(frequency) < u128::from(self.cap) << 64
            })
            .map(|(class, _, example)| (example, class))
            .collect();
        self.relabelled(test, &kept)
    }

    /// New class, random lot and example of every label whose class is kept.
    fn occurrences<'a>(&'a self, examples: Examples<'a>) -> impl Iterator<Item = (u32, u64, usize)> + 'a {
        let seed = mix(self.seed, Stream::Data, super::PLACE_UNIFORM, 0);
        (0..examples.len()).flat_map(move |example| {
            examples.labels(example).iter().filter_map(move |&old| {
                let class = self.old_classes.binary_search(&old).ok()? as u32;
                Some((class, mix(seed, Stream::Data, example as u64, u64::from(old)), example))
            })
        })
    }

    /// The examples with the given (example, class) pairs, which are ascending.
    fn relabelled(&self, examples: Examples<'_>, kept: &[(usize, u32)]) -> Dataset {
        let mut data = Dataset::empty(examples.num_features, self.old_classes.len());
        let mut labels = Vec::new();
        for pairs in kept.chunk_by(|a, b| a.0 == b.0) {
            labels.clear();
            labels.extend(pairs.iter().map(|pair| pair.1));
            let (ids, values) = examples.features(pairs[0].0);
            data.push(ids.iter().copied().zip(values.iter().copied()), &labels);
        }
        data
    }
}

/// The `min_count` that keeps most label occurrences with `cap = RATIO ·
/// min_count`; of equals the larger, whose classes have more examples each.
fn best_min_count(frequencies: &[(u32, u64)]) -> u64 {
    let mut counts: Vec<u64> = frequencies.iter().map(|&(_, count)| count).collect();
    counts.sort_unstable();
    let mut sum_below = vec![0];
    for &count in &counts {
        sum_below.push(sum_below[sum_below.len() - 1] + count);
    }
    let kept = |min_count: u64| {
        let first = counts.partition_point(|&count| count < min_count);
        let capped = counts.partition_point(|&count| count <= min_count * RATIO);
        sum_below[capped] - sum_below[first] + (counts.len() - capped) as u64 * min_count * RATIO
    };
    let mut candidates = counts.clone();
    candidates.dedup();
    candidates.into_iter().max_by_key(|&min_count| (kept(min_count), min_count)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn data_of(rows: &[Vec<u32>]) -> Dataset {
        let mut data = Dataset::empty(rows.len().max(1), 40);
        for (i, labels) in rows.iter().enumerate() {
            let mut labels = labels.clone();
            labels.sort_unstable();
            labels.dedup();
            data.push([(i as u32, 1.0)], &labels);
        }
        data
    }

    /// Labels with a power law: squares crowd near zero.
    fn rows() -> impl Strategy<Value = Vec<Vec<u32>>> {
        prop::collection::vec(
            prop::collection::vec((0u32..6, 0u32..6).prop_map(|(a, b)| a * b), 0..5),
            1..200,
        )
    }

    proptest! {
        #[test]
        fn every_class_occurs_between_the_minimum_and_the_cap(
            rows in rows(), cap in prop::option::of(1u64..30), min_count in prop::option::of(1u64..15), seed: u64,
        ) {
            let train = data_of(&rows);
            let Ok(plan) = UniformPlan::new(train.view(), &UniformOptions { cap, min_count, seed }) else {
                return Ok(());
            };
            let uniform = plan.train_set(train.view());
            prop_assert_eq!(uniform.view().check_law(), Ok(()));
            let before = label_frequencies(train.view());
            let after = label_frequencies(uniform.view());
            prop_assert_eq!(after.len(), plan.old_classes.len());
            for (class, count) in after {
                let old = plan.old_classes[class as usize];
                let frequency = before[before.binary_search_by_key(&old, |p| p.0).unwrap()].1;
                prop_assert_eq!(count, frequency.min(plan.cap));
                prop_assert!(count >= plan.min_count && count <= plan.cap);
            }
            if cap.is_none() || min_count.is_none() {
                prop_assert!(plan.cap <= RATIO * plan.min_count);
            }
            // No example without labels, and every label was there before.
            let view = uniform.view();
            for example in 0..view.len() {
                let old_example = view.features(example).0[0] as usize;
                prop_assert!(!view.labels(example).is_empty());
                for &class in view.labels(example) {
                    prop_assert!(train.view().labels(old_example).contains(&plan.old_classes[class as usize]));
                }
            }
        }

        #[test]
        fn the_automatic_choice_keeps_no_less_than_any_other(rows in rows()) {
            let frequencies = label_frequencies(data_of(&rows).view());
            let kept = |m: u64| -> u64 {
                frequencies.iter().filter(|p| p.1 >= m).map(|p| p.1.min(RATIO * m)).sum()
            };
            let best = kept(best_min_count(&frequencies));
            prop_assert!((1..200).all(|m| kept(m) <= best));
        }
    }

    #[test]
    fn a_test_set_is_thinned_like_the_training_set() {
        // Class 0 occurs 1,000 times and class 1 ten times; a cap of 100 keeps
        // a tenth of one and all of the other.
        let rows: Vec<Vec<u32>> = (0..1010).map(|i| vec![u32::from(i >= 1000)]).collect();
        let train = data_of(&rows);
        let options = UniformOptions { cap: Some(100), min_count: Some(1), seed: 3 };
        let plan = UniformPlan::new(train.view(), &options).unwrap();
        assert_eq!(label_frequencies(plan.train_set(train.view()).view()), [(0, 100), (1, 10)]);
        let test: Vec<Vec<u32>> = (0..20_000).map(|i| vec![i % 2, 39]).collect();
        let counts = label_frequencies(plan.test_set(data_of(&test).view()).view());
        // 1,000 expected, standard deviation 30: six of them.
        assert!(counts[0].1.abs_diff(1000) < 180, "{counts:?}");
        assert_eq!(counts[1], (1, 10_000));
    }

    #[test]
    fn impossible_plans_are_refused() {
        let data = data_of(&[vec![1], vec![1, 2]]);
        for (cap, min_count) in [(Some(0), None), (None, Some(0)), (Some(1), Some(2)), (None, Some(50))] {
            assert!(UniformPlan::new(data.view(), &UniformOptions { cap, min_count, seed: 0 }).is_err());
        }
        assert!(UniformPlan::new(data_of(&[]).view(), &UniformOptions::default()).is_err());
    }
}
