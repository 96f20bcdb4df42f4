//! What a data set looks like: sizes, rows, and how unevenly labels occur.
//!
//! The share of the most frequent labels tells whether a static sampling
//! distribution can work at all (paper, section 3.5).

use std::fmt;

use rayon::prelude::*;
use serde::Serialize;

use super::Examples;

/// How often each class occurs, for the classes that do, ascending by class.
/// O(labels · log labels) time and O(labels) memory, whatever the number of
/// classes that a header claims.
pub fn label_frequencies(examples: Examples<'_>) -> Vec<(u32, u64)> {
    let mut labels = examples.label_ids.to_vec();
    labels.par_sort_unstable();
    labels.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u64)).collect()
}

/// Mean and maximum over examples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PerExample {
    /// The mean.
    pub mean: f64,
    /// The largest.
    pub max: u64,
}

/// Classes whose number of occurrences lies in a range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FrequencyBin {
    /// The smallest number of occurrences: 0, or a power of two.
    pub at_least: u64,
    /// The largest.
    pub at_most: u64,
    /// How many classes occur that often.
    pub classes: u64,
    /// Their part of all label occurrences, in percent.
    pub share_percent: f64,
}

/// The statistics of a data set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stats {
    /// Examples.
    pub examples: u64,
    /// Features, as declared.
    pub features: u64,
    /// Classes, as declared.
    pub classes: u64,
    /// Stored feature values.
    pub feature_entries: u64,
    /// Label occurrences.
    pub label_entries: u64,
    /// Features an example.
    pub features_per_example: PerExample,
    /// Labels an example.
    pub labels_per_example: PerExample,
    /// Examples without any feature.
    pub examples_without_features: u64,
    /// Examples without any label.
    pub examples_without_labels: u64,
    /// Features that occur.
    pub features_used: u64,
    /// Classes that occur.
    pub classes_used: u64,
    /// The share of label occurrences that belongs to the most frequent 1% of
    /// the classes that occur, in percent.
    pub top_1_percent_share: f64,
    /// The same for the most frequent 10%.
    pub top_10_percent_share: f64,
    /// Classes by how often they occur.
    pub label_frequency: Vec<FrequencyBin>,
}

impl Stats {
    /// Looks at all examples.
    pub fn of(examples: Examples<'_>) -> Self {
        let mut counts: Vec<u64> = label_frequencies(examples).into_iter().map(|(_, count)| count).collect();
        counts.par_sort_unstable_by(|a, b| b.cmp(a));
        let mut features = examples.feature_ids.to_vec();
        features.par_sort_unstable();
        let (features_per_example, examples_without_features) = lengths(examples.feature_offsets);
        let (labels_per_example, examples_without_labels) = lengths(examples.label_offsets);
        Self {
            examples: examples.len() as u64,
            features: examples.num_features as u64,
            classes: examples.num_classes as u64,
            feature_entries: examples.feature_ids.len() as u64,
            label_entries: examples.label_ids.len() as u64,
            features_per_example,
            labels_per_example,
            examples_without_features,
            examples_without_labels,
            features_used: features.chunk_by(|a, b| a == b).count() as u64,
            classes_used: counts.len() as u64,
            top_1_percent_share: top_share(&counts, 100),
            top_10_percent_share: top_share(&counts, 10),
            label_frequency: histogram(&counts, examples.num_classes as u64),
        }
    }
}

fn lengths(offsets: &[u64]) -> (PerExample, u64) {
    let lengths = || offsets.windows(2).map(|pair| pair[1] - pair[0]);
    let examples = offsets.len().saturating_sub(1);
    let entries: u64 = lengths().sum();
    let mean = entries as f64 / examples.max(1) as f64;
    (PerExample { mean, max: lengths().max().unwrap_or(0) }, lengths().filter(|&n| n == 0).count() as u64)
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// The share of the most frequent `1 / part` of the classes, at least one.
fn top_share(descending: &[u64], part: usize) -> f64 {
    let top = &descending[..descending.len().div_ceil(part)];
    percent(top.iter().sum(), descending.iter().sum())
}

fn histogram(descending: &[u64], num_classes: u64) -> Vec<FrequencyBin> {
    let total = descending.iter().sum();
    let unused = num_classes - descending.len() as u64;
    let mut bins = vec![FrequencyBin { at_least: 0, at_most: 0, classes: unused, share_percent: 0.0 }];
    for run in descending.chunk_by(|a, b| a.ilog2() == b.ilog2()).rev() {
        let at_least = 1 << run[0].ilog2();
        bins.push(FrequencyBin {
            at_least,
            at_most: 2 * at_least - 1,
            classes: run.len() as u64,
            share_percent: percent(run.iter().sum(), total),
        });
    }
    bins
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, value: u64, note: String| {
            writeln!(f, "{:<28}{:>14}{}", name, grouped(value), note)
        };
        let per_example = |p: PerExample| format!("   {:.2} an example, at most {}", p.mean, grouped(p.max));
        row(f, "examples", self.examples, String::new())?;
        row(f, "features", self.features, format!("   {} occur", grouped(self.features_used)))?;
        row(f, "classes", self.classes, format!("   {} occur", grouped(self.classes_used)))?;
        row(f, "feature values", self.feature_entries, per_example(self.features_per_example))?;
        row(f, "labels", self.label_entries, per_example(self.labels_per_example))?;
        row(f, "examples without features", self.examples_without_features, String::new())?;
        row(f, "examples without labels", self.examples_without_labels, String::new())?;
        writeln!(f, "{:<28}{:>13.1}% of labels", "most frequent 1% of classes", self.top_1_percent_share)?;
        writeln!(f, "{:<28}{:>13.1}% of labels", "most frequent 10%", self.top_10_percent_share)?;
        writeln!(f, "\n{:<28}{:>14}{:>12}", "a class occurs … times", "classes", "of labels")?;
        for bin in &self.label_frequency {
            let range = match bin.at_most {
                most if most == bin.at_least => grouped(most),
                most => format!("{} to {}", grouped(bin.at_least), grouped(most)),
            };
            writeln!(f, "{:<28}{:>14}{:>11.1}%", range, grouped(bin.classes), bin.share_percent)?;
        }
        Ok(())
    }
}

/// A number with its thousands set apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;

    #[test]
    fn counts_of_a_small_data_set() {
        let mut data = Dataset::empty(10, 6);
        for i in 0..5 {
            data.push([(1, 1.0), (4 + i, 1.0)], &[0]);
        }
        data.push([], &[1, 2]);
        data.push([(9, 1.0)], &[]);
        data.push([(8, 1.0)], &[2]);
        let stats = Stats::of(data.view());
        assert_eq!((stats.examples, stats.features_used, stats.classes_used), (8, 7, 3));
        assert_eq!((stats.examples_without_features, stats.examples_without_labels), (1, 1));
        assert_eq!(stats.features_per_example, PerExample { mean: 1.5, max: 2 });
        assert_eq!(stats.labels_per_example, PerExample { mean: 1.0, max: 2 });
        assert_eq!((stats.top_1_percent_share, stats.top_10_percent_share), (62.5, 62.5));
        let bins: Vec<_> = stats
            .label_frequency
            .iter()
            .map(|b| (b.at_least, b.at_most, b.classes, b.share_percent))
            .collect();
        assert_eq!(bins, [(0, 0, 3, 0.0), (1, 1, 1, 12.5), (2, 3, 1, 25.0), (4, 7, 1, 62.5)]);
        let text = stats.to_string();
        assert!(text.contains("4 to 7") && text.lines().count() == 15, "{text}");
    }

    #[test]
    fn huge_declared_sizes_and_no_examples_cost_nothing() {
        let stats = Stats::of(Dataset::empty(u32::MAX as usize, u32::MAX as usize).view());
        assert_eq!((stats.classes_used, stats.label_frequency[0].classes), (0, u64::from(u32::MAX)));
        assert!(stats.top_1_percent_share == 0.0 && stats.to_string().contains("4,294,967,295"));
    }
}
