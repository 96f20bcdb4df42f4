//! Metrics against tables worked out by hand and against a naive twin.

use super::*;
use crate::random::{Stream, below, mix};
use proptest::prelude::*;

fn options(k: &[usize]) -> MetricOptions {
    MetricOptions { k: k.to_vec(), ..MetricOptions::default() }
}

fn assert_near(values: &MetricValues, name: &str, expected: f64) {
    let found = values.get(name).unwrap_or_else(|| panic!("{name} was not measured"));
    assert!((found - expected).abs() < 1e-9, "{name}: {found}, expected {expected}");
}

/// Two examples with labels, one without:
///
/// ```text
/// predicted 4 1 9   labels 1 2 4 7      hits + + -
/// predicted 0 3 5   labels 5, 1 unknown hits - - +
/// ```
#[test]
fn a_table_by_hand() {
    let metrics = Metrics::new(&options(&[3, 1, 3, 5]), None).unwrap();
    assert_eq!(metrics.k_max(), 5);
    let mut totals = Totals::new(&metrics);
    totals.add(&metrics, &[4, 1, 9], &[1, 2, 4, 7], 0);
    totals.add(&metrics, &[0, 3, 5], &[5], 1);
    totals.add(&metrics, &[0, 3, 5], &[], 0);
    assert_eq!((totals.examples(), totals.skipped()), (2, 1));
    let values = totals.values(&metrics);

    let log2_3 = 3f64.log2();
    for (name, sum_of_two) in [
        ("P@1", 1.0),
        ("P@3", 2.0 / 3.0 + 1.0 / 3.0),
        ("P@5", 2.0 / 5.0 + 1.0 / 5.0),
        ("capped-P@1", 1.0),
        ("capped-P@3", 2.0 / 3.0 + 1.0 / 2.0),
        ("capped-P@5", 2.0 / 4.0 + 1.0 / 2.0),
        ("nDCG@1", 1.0),
        ("nDCG@3", (1.0 + 1.0 / log2_3) / (1.0 + 1.0 / log2_3 + 0.5) + 0.5 / (1.0 + 1.0 / log2_3)),
        ("recall@1", 1.0 / 4.0),
        ("recall@3", 2.0 / 4.0 + 1.0 / 2.0),
        ("recall@5", 2.0 / 4.0 + 1.0 / 2.0),
    ] {
        assert_near(&values, name, 100.0 * sum_of_two / 2.0);
    }
    let names: Vec<_> = values.iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "P@1",
            "P@3",
            "P@5",
            "capped-P@1",
            "capped-P@3",
            "capped-P@5",
            "nDCG@1",
            "nDCG@3",
            "nDCG@5",
            "recall@1",
            "recall@3",
            "recall@5"
        ]
    );
}

/// One label a point, as in ODP: capped P@5 can exceed 20, P@5 cannot.
#[test]
fn capped_precision_is_not_precision() {
    let metrics = Metrics::new(&options(&[5]), None).unwrap();
    let mut totals = Totals::new(&metrics);
    totals.add(&metrics, &[1, 2, 3, 4, 5], &[5], 0);
    assert_near(&totals.values(&metrics), "P@5", 20.0);
    assert_near(&totals.values(&metrics), "capped-P@5", 100.0);
}

/// With A = B = 1 the inverse propensity is simply 1 + C / (n + 1).
#[test]
fn propensities_and_tail_by_hand() {
    let frequencies = TrainingFrequencies { examples_of_class: &[0, 1, 3, 9, 99], num_examples: 55 };
    let options = MetricOptions { k: vec![1, 2], propensity_a: 1.0, propensity_b: 1.0, tail_examples_max: 3 };
    let metrics = Metrics::new(&options, Some(frequencies)).unwrap();
    let c = (55f64.ln() - 1.0) * 2.0;
    let inverse = [1.0 + c, 1.0 + c / 2.0, 1.0 + c / 4.0, 1.0 + c / 10.0, 1.0 + c / 100.0];
    for (n, expected) in [0, 1, 3, 9, 99].into_iter().zip(inverse) {
        assert!((metrics.propensity.inverse(n) - expected).abs() < 1e-12);
    }

    let mut totals = Totals::new(&metrics);
    totals.add(&metrics, &[3, 1], &[1, 3], 0);
    totals.add(&metrics, &[2, 4], &[4], 1);
    totals.add(&metrics, &[4, 3], &[3], 0);
    let values = totals.values(&metrics);
    // Best possible at 1: class 1; the unknown label, like class 0; class 3.
    assert_near(&values, "PSP@1", 100.0 * inverse[3] / (inverse[1] + inverse[0] + inverse[3]));
    let possible = inverse[1] + inverse[3] + inverse[0] + inverse[4] + inverse[3];
    let found = inverse[3] + inverse[1] + inverse[4] + inverse[3];
    assert_near(&values, "PSP@2", 100.0 * found / possible);
    // Tail classes are 0, 1 and 2. Example 1 has one tail label, found at rank
    // 2; example 2 has one, unknown; example 3 none.
    assert_near(&values, "tail-recall@1", 0.0);
    assert_near(&values, "tail-recall@2", 50.0);
    // Predicted from the tail: class 2 (wrong, at rank 1) and class 1 (right).
    assert_near(&values, "tail-precision@1", 0.0);
    assert_near(&values, "tail-precision@2", 50.0);
}

/// With A = 0.55 and B = 1.5, from the formula in the paper of Jain et al.
#[test]
fn default_propensity_of_a_known_shape() {
    let propensity = Propensity::new(0.55, 1.5, 490_449);
    let c = (490_449f64.ln() - 1.0) * 2.5f64.powf(0.55);
    for n in [0u32, 1, 10, 1000] {
        let p = 1.0 / (1.0 + c * (-0.55 * (f64::from(n) + 1.5).ln()).exp());
        assert!((1.0 / p - propensity.inverse(n)).abs() < 1e-9);
        assert!(p > 0.0 && p < 1.0);
    }
    // Too few examples for the formula: every label counts the same.
    assert_eq!(Propensity::new(0.55, 1.5, 2).inverse(7), 1.0);
    assert_eq!(Propensity::new(0.55, 1.5, 0).inverse(7), 1.0);
}

#[test]
fn json_keeps_the_order_and_says_null_where_there_was_nothing() {
    let frequencies = TrainingFrequencies { examples_of_class: &[100], num_examples: 100 };
    let metrics = Metrics::new(&options(&[1]), Some(frequencies)).unwrap();
    let mut totals = Totals::new(&metrics);
    let none = serde_json::to_string(&totals.values(&metrics)).unwrap();
    assert!(none.starts_with(r#"{"P@1":null,"capped-P@1":null,"#), "{none}");
    totals.add(&metrics, &[0], &[0], 0);
    assert_eq!(
        serde_json::to_string(&totals.values(&metrics)).unwrap(),
        concat!(
            r#"{"P@1":100.0,"capped-P@1":100.0,"nDCG@1":100.0,"recall@1":100.0,"#,
            r#""PSP@1":100.0,"tail-recall@1":null,"tail-precision@1":null}"#
        )
    );
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let with = |a, b| MetricOptions { propensity_a: a, propensity_b: b, ..Default::default() };
    let error = |options: &MetricOptions| Metrics::new(options, None).unwrap_err();
    assert_eq!(error(&options(&[])), MetricsError::NoK);
    assert_eq!(error(&options(&[1, 0])), MetricsError::ZeroK);
    for (a, b) in [(f64::NAN, 1.5), (-0.1, 1.5), (0.5, 0.0), (0.5, f64::INFINITY)] {
        assert!(matches!(error(&with(a, b)), MetricsError::Propensity { .. }));
    }
}

/// An example of the naive twin: predictions, labels, unknown labels.
type Case = (Vec<u32>, Vec<u32>, usize);

const CLASSES: u32 = 40;

fn cases(count: usize, seed: u64) -> Vec<Case> {
    let distinct = |example: usize, stream: Stream, bound: u32| -> Vec<u32> {
        let random = |i: u64| mix(seed, stream, example as u64, i);
        let count = below(random(1000), bound) as usize;
        let mut classes: Vec<u32> = (0..CLASSES).collect();
        classes.sort_by_key(|&class| random(u64::from(class)));
        classes[..count].to_vec()
    };
    (0..count)
        .map(|example| {
            let mut labels = distinct(example, Stream::Sample, 9);
            labels.sort_unstable();
            let unknown = mix(seed, Stream::Init, example as u64, 0) % 3;
            (distinct(example, Stream::Data, 12), labels, unknown as usize)
        })
        .collect()
}

/// Straight from the definitions, one sum at a time.
fn naive(cases: &[Case], counts: &[u32], num_examples: usize, k: usize) -> Vec<(String, f64)> {
    let inverse = |class: u32| Propensity::new(0.55, 1.5, num_examples).inverse(counts[class as usize]);
    let inverse_unknown = Propensity::new(0.55, 1.5, num_examples).inverse(0);
    let is_tail = |class: u32| counts[class as usize] <= 5;
    let labelled: Vec<_> = cases.iter().filter(|(_, y, u)| y.len() + u > 0).collect();
    let hits = |case: &Case| -> Vec<(usize, u32)> {
        let top = case.0.iter().take(k).copied().enumerate();
        top.filter(|(_, class)| case.1.contains(class)).collect()
    };
    let mean = |value: &dyn Fn(&Case) -> f64| {
        labelled.iter().map(|case| value(case)).sum::<f64>() / labelled.len() as f64
    };
    let gain = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
    let size = |case: &Case| case.1.len() + case.2;
    let tail_size = |case: &Case| case.1.iter().filter(|c| is_tail(**c)).count() + case.2;
    let tail_hits = |case: &Case| hits(case).iter().filter(|(_, c)| is_tail(*c)).count();

    let precision = mean(&|case| hits(case).len() as f64 / k as f64);
    let capped = mean(&|case| hits(case).len() as f64 / k.min(size(case)) as f64);
    let ndcg = mean(&|case| {
        let ideal: f64 = (0..k.min(size(case))).map(gain).sum();
        hits(case).iter().map(|(rank, _)| gain(*rank)).sum::<f64>() / ideal
    });
    let recall = mean(&|case| hits(case).len() as f64 / size(case) as f64);
    let scored = mean(&|case| hits(case).iter().map(|(_, class)| inverse(*class)).sum());
    let possible = mean(&|case| {
        let mut all: Vec<f64> = case.1.iter().map(|&class| inverse(class)).collect();
        all.extend(vec![inverse_unknown; case.2]);
        all.sort_by(|a, b| b.total_cmp(a));
        all.iter().take(k).sum()
    });
    let with_tail: Vec<_> = labelled.iter().filter(|case| tail_size(case) > 0).collect();
    let tail_recall =
        with_tail.iter().map(|case| tail_hits(case) as f64 / tail_size(case) as f64).sum::<f64>()
            / with_tail.len() as f64;
    let predicted_of = |case: &Case| case.0.iter().take(k).filter(|c| is_tail(**c)).count();
    let tail_predicted: usize = labelled.iter().map(|case| predicted_of(case)).sum();
    let tail_right: usize = labelled.iter().map(|case| tail_hits(case)).sum();

    [
        ("P", precision),
        ("capped-P", capped),
        ("nDCG", ndcg),
        ("recall", recall),
        ("PSP", scored / possible),
        ("tail-recall", tail_recall),
        ("tail-precision", tail_right as f64 / tail_predicted as f64),
    ]
    .into_iter()
    .map(|(name, value)| (format!("{name}@{k}"), 100.0 * value))
    .collect()
}

proptest! {
    #[test]
    fn equals_the_naive_twin(
        count in 0usize..60,
        seed: u64,
        k in prop::collection::vec(1usize..15, 1..4),
        counts in prop::collection::vec(0u32..15, CLASSES as usize),
    ) {
        let cases = cases(count, seed);
        let frequencies = TrainingFrequencies { examples_of_class: &counts, num_examples: 1000 };
        let metrics = Metrics::new(&options(&k), Some(frequencies)).unwrap();
        let mut totals = Totals::new(&metrics);
        for (predicted, labels, unknown) in &cases {
            totals.add(&metrics, predicted, labels, *unknown);
        }
        let values = totals.values(&metrics);
        for &k in &k {
            for (name, expected) in naive(&cases, &counts, 1000, k) {
                match values.get(&name) {
                    Some(found) => prop_assert!((found - expected).abs() < 1e-9, "{}: {} {}", name, found, expected),
                    None => prop_assert!(expected.is_nan(), "{}: nothing, {}", name, expected),
                }
            }
        }
    }
}

#[test]
fn threads_change_nothing() {
    let cases = cases(3000, 1);
    let counts: Vec<u32> = (0..CLASSES).collect();
    let frequencies = TrainingFrequencies { examples_of_class: &counts, num_examples: 1000 };
    let metrics = Metrics::new(&options(&[1, 3, 7]), Some(frequencies)).unwrap();
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut totals = Totals::new(&metrics);
        pool.install(|| {
            totals.add_all(&metrics, cases.len(), |i| (&cases[i].0, &cases[i].1, cases[i].2));
        });
        totals
    };
    let one = run(1);
    assert_eq!(one.examples() + one.skipped(), 3000);
    assert!(one.skipped() > 0);
    assert_eq!(one, run(2));
    assert_eq!(one, run(3));

    let mut serial = Totals::new(&metrics);
    for (predicted, labels, unknown) in &cases {
        serial.add(&metrics, predicted, labels, *unknown);
    }
    for ((name, serial), (_, parallel)) in serial.values(&metrics).iter().zip(one.values(&metrics).iter()) {
        assert!((serial.unwrap() - parallel.unwrap()).abs() < 1e-9, "{name}");
    }
}
