//! The sums behind the averages.

use rayon::prelude::*;

use super::{MetricValues, Metrics};

/// Examples summed up by one task. Fixed, because the order in which floats are
/// added decides their last digits, and the thread count must not.
const CHUNK_EXAMPLES: usize = 256;

/// Sums over the examples measured so far. `O(k)` time an example, and the
/// length of its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Totals {
    examples: u64,
    skipped: u64,
    tail_examples: u64,
    /// Beside the values of `k`.
    at: Vec<Sums>,
}

/// Sums of each metric at one `k`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    precision: f64,
    capped_precision: f64,
    ndcg: f64,
    recall: f64,
    scored_hits: f64,
    scored_hits_possible: f64,
    tail_recall: f64,
    tail_hits: u64,
    tail_predicted: u64,
}

impl Totals {
    /// Nothing measured yet.
    pub fn new(metrics: &Metrics<'_>) -> Self {
        let at = vec![Sums::default(); metrics.k.len()];
        Self { examples: 0, skipped: 0, tail_examples: 0, at }
    }

    /// Measures one example. `predicted` are distinct classes, best first;
    /// `labels` are ascending and distinct; `unknown_labels` more are true but
    /// not among the model's classes.
    pub fn add(&mut self, metrics: &Metrics<'_>, predicted: &[u32], labels: &[u32], unknown_labels: usize) {
        let num_labels = labels.len() + unknown_labels;
        if num_labels == 0 {
            self.skipped += 1;
            return;
        }
        self.examples += 1;
        let truth = Truth::new(metrics, labels, unknown_labels);
        self.tail_examples += u64::from(truth.num_tail > 0);

        let mut found = Tally::default();
        let mut ranks = (0..).zip(predicted);
        let mut perfect = Perfect::default();
        for (&k, sums) in metrics.k.iter().zip(&mut self.at) {
            for (rank, &class) in ranks.by_ref().take(k - found.ranks) {
                found.look_at(metrics, rank, class, labels.binary_search(&class).is_ok());
            }
            perfect.extend(&truth, k.min(num_labels));
            sums.add(k, num_labels, &truth, &found, &perfect);
        }
    }

    /// Adds the sums of examples measured elsewhere, by the same metrics.
    pub fn merge(&mut self, other: &Self) {
        self.examples += other.examples;
        self.skipped += other.skipped;
        self.tail_examples += other.tail_examples;
        for (sums, other) in self.at.iter_mut().zip(&other.at) {
            sums.merge(other);
        }
    }

    /// Measures examples `0..count` in parallel and adds them; `example(i)` gives
    /// the arguments of [`Totals::add`]. The result does not depend on the
    /// number of threads.
    pub fn add_all<'e>(
        &mut self,
        metrics: &Metrics<'_>,
        count: usize,
        example: impl Fn(usize) -> (&'e [u32], &'e [u32], usize) + Sync,
    ) {
        let chunks: Vec<Self> = (0..count.div_ceil(CHUNK_EXAMPLES))
            .into_par_iter()
            .map(|chunk| {
                let mut totals = Self::new(metrics);
                let first = chunk * CHUNK_EXAMPLES;
                for i in first..count.min(first + CHUNK_EXAMPLES) {
                    let (predicted, labels, unknown_labels) = example(i);
                    totals.add(metrics, predicted, labels, unknown_labels);
                }
                totals
            })
            .collect();
        for chunk in &chunks {
            self.merge(chunk);
        }
    }

    /// Examples with a label, which the averages are over.
    pub fn examples(&self) -> u64 {
        self.examples
    }

    /// Examples without a label, which count nowhere.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The metrics in percent: by name, then by `k`.
    pub fn values(&self, metrics: &Metrics<'_>) -> MetricValues {
        let (examples, tail_examples) = (self.examples as f64, self.tail_examples as f64);
        let mut values = MetricValues::default();
        let mut push = |name: &str, value: &dyn Fn(&Sums) -> (f64, f64)| {
            for (k, sums) in metrics.k.iter().zip(&self.at) {
                let (sum, count) = value(sums);
                values.push(format!("{name}@{k}"), sum, count);
            }
        };
        push("P", &|s| (s.precision, examples));
        push("capped-P", &|s| (s.capped_precision, examples));
        push("nDCG", &|s| (s.ndcg, examples));
        push("recall", &|s| (s.recall, examples));
        if metrics.frequencies.is_some() {
            push("PSP", &|s| (s.scored_hits, s.scored_hits_possible));
            push("tail-recall", &|s| (s.tail_recall, tail_examples));
            push("tail-precision", &|s| (s.tail_hits as f64, s.tail_predicted as f64));
        }
        values
    }
}

impl Sums {
    fn add(&mut self, k: usize, num_labels: usize, truth: &Truth, found: &Tally, perfect: &Perfect) {
        let hits = found.hits as f64;
        self.precision += hits / k as f64;
        self.capped_precision += hits / k.min(num_labels) as f64;
        self.ndcg += found.gain / perfect.gain;
        self.recall += hits / num_labels as f64;
        self.scored_hits += found.score;
        self.scored_hits_possible += perfect.score;
        if truth.num_tail > 0 {
            self.tail_recall += found.tail_hits as f64 / truth.num_tail as f64;
        }
        self.tail_hits += found.tail_hits;
        self.tail_predicted += found.tail_predicted;
    }

    fn merge(&mut self, other: &Self) {
        self.precision += other.precision;
        self.capped_precision += other.capped_precision;
        self.ndcg += other.ndcg;
        self.recall += other.recall;
        self.scored_hits += other.scored_hits;
        self.scored_hits_possible += other.scored_hits_possible;
        self.tail_recall += other.tail_recall;
        self.tail_hits += other.tail_hits;
        self.tail_predicted += other.tail_predicted;
    }
}

/// What an example's labels ask for.
struct Truth {
    /// `1 / p` of each label, largest first: a perfect answer's order.
    scores: Vec<f64>,
    num_tail: usize,
}

impl Truth {
    fn new(metrics: &Metrics<'_>, labels: &[u32], unknown_labels: usize) -> Self {
        let score = |&class| metrics.propensity.inverse(metrics.examples_of(class));
        let mut scores: Vec<f64> = labels.iter().map(score).collect();
        scores.resize(labels.len() + unknown_labels, metrics.propensity.inverse(0));
        scores.sort_unstable_by(|a, b| b.total_cmp(a));
        let num_tail = labels.iter().filter(|class| metrics.is_tail(**class)).count();
        Self { scores, num_tail: num_tail + unknown_labels }
    }
}

/// What the predictions looked at so far gave.
#[derive(Default)]
struct Tally {
    ranks: usize,
    hits: u64,
    gain: f64,
    score: f64,
    tail_hits: u64,
    tail_predicted: u64,
}

impl Tally {
    fn look_at(&mut self, metrics: &Metrics<'_>, rank: usize, class: u32, is_hit: bool) {
        self.ranks = rank + 1;
        let is_tail = metrics.is_tail(class);
        self.tail_predicted += u64::from(is_tail);
        if is_hit {
            self.hits += 1;
            self.gain += discount(rank);
            self.score += metrics.propensity.inverse(metrics.examples_of(class));
            self.tail_hits += u64::from(is_tail);
        }
    }
}

/// What a perfect answer would have given.
#[derive(Default)]
struct Perfect {
    ranks: usize,
    gain: f64,
    score: f64,
}

impl Perfect {
    fn extend(&mut self, truth: &Truth, ranks: usize) {
        for rank in self.ranks..ranks {
            self.gain += discount(rank);
            self.score += truth.scores[rank];
        }
        self.ranks = ranks;
    }
}

/// The worth of a hit at a rank counted from 0.
fn discount(rank: usize) -> f64 {
    1.0 / (rank as f64 + 2.0).log2()
}
