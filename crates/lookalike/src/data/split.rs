//! Splitting examples at random into two sets, both in their old order.

use super::{DataError, Dataset, Examples};
use crate::random::{Stream, mix};

/// How many examples go to the test set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TestSize {
    /// A share of all, between 0 and 1, rounded to whole examples.
    Fraction(f64),
    /// Exactly so many.
    Count(usize),
}

/// Splits into train and test. The same seed puts the same examples into the
/// test set, and a larger test set holds all of a smaller one: an example's
/// place in the lottery depends on nothing but the seed and its number. O(n).
pub fn split(examples: Examples<'_>, size: TestSize, seed: u64) -> Result<(Dataset, Dataset), DataError> {
    let (train, test) = split_places(examples.len(), size, seed)?;
    Ok((Dataset::select(examples, &train), Dataset::select(examples, &test)))
}

/// As [`split`]: which of `total` examples go to train and which to test.
pub fn split_places(total: usize, size: TestSize, seed: u64) -> Result<(Vec<usize>, Vec<usize>), DataError> {
    let wanted = match size {
        TestSize::Count(count) => count,
        TestSize::Fraction(share) if (0.0..=1.0).contains(&share) => (share * total as f64).round() as usize,
        TestSize::Fraction(share) => {
            return Err(DataError::Option(format!(
                "found a test share of {share}, expected one between 0 and 1"
            )));
        }
    };
    if wanted > total {
        return Err(DataError::Option(format!(
            "found a test set of {wanted} examples, expected at most the {total} that there are"
        )));
    }
    let ticket = |example: usize| (mix(seed, Stream::Data, super::PLACE_SPLIT, example as u64), example);
    let mut drawn: Vec<usize> = (0..total).collect();
    if wanted < total {
        drawn.select_nth_unstable_by_key(wanted, |&example| ticket(example));
        drawn.truncate(wanted);
    }
    drawn.sort_unstable();
    let mut in_test = vec![false; total];
    for &example in &drawn {
        in_test[example] = true;
    }
    let others: Vec<usize> = (0..total).filter(|&example| !in_test[example]).collect();
    Ok((others, drawn))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: u32) -> Dataset {
        let mut data = Dataset::empty(1, count as usize);
        for i in 0..count {
            data.push([(0, 1.0)], &[i]);
        }
        data
    }

    #[test]
    fn both_sets_together_are_the_whole_and_the_seed_decides() {
        let data = numbered(1000);
        let (train, test) = split(data.view(), TestSize::Fraction(0.25), 7).unwrap();
        assert_eq!((train.view().len(), test.view().len()), (750, 250));
        assert!(train.label_ids.is_sorted() && test.label_ids.is_sorted());
        let mut all = [train.label_ids.clone(), test.label_ids.clone()].concat();
        all.sort_unstable();
        assert_eq!(all, data.label_ids);
        assert_eq!(split(data.view(), TestSize::Count(250), 7).unwrap(), (train, test.clone()));
        assert_ne!(split(data.view(), TestSize::Count(250), 8).unwrap().1, test);
        let (_, more) = split(data.view(), TestSize::Count(300), 7).unwrap();
        assert!(test.label_ids.iter().all(|label| more.label_ids.contains(label)));
        // Half of the examples, so half of the labels' sum: 249,750 with a
        // standard deviation of 4,561 for 500 of 1,000 without putting back.
        let (_, half) = split(data.view(), TestSize::Fraction(0.5), 1).unwrap();
        let sum: u32 = half.label_ids.iter().sum();
        assert!(sum.abs_diff(249_750) < 6 * 4_561, "{sum}");
    }

    #[test]
    fn the_ends_work_and_what_is_beyond_is_refused() {
        let data = numbered(3);
        for (size, test_len) in
            [(TestSize::Count(0), 0), (TestSize::Count(3), 3), (TestSize::Fraction(1.0), 3)]
        {
            assert_eq!(split(data.view(), size, 0).unwrap().1.view().len(), test_len);
        }
        for size in [TestSize::Count(4), TestSize::Fraction(-0.1), TestSize::Fraction(f64::NAN)] {
            assert!(split(data.view(), size, 0).unwrap_err().to_string().contains("expected"));
        }
    }
}
