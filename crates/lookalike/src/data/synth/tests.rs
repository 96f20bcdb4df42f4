use super::*;
use crate::data::Examples;
use crate::data::stats::{Stats, label_frequencies};

fn small(label_skew: f64) -> SynthOptions {
    SynthOptions {
        classes: 1000,
        features: 4000,
        train: 15_000,
        test: 1500,
        label_skew,
        ..Default::default()
    }
}

/// The share of test examples whose nearest class centroid is a label of
/// theirs: a classifier that is no more than a sum of training examples.
fn centroid_precision(train: Examples<'_>, test: Examples<'_>) -> f64 {
    let mut by_feature = vec![std::collections::HashMap::<u32, f32>::new(); train.num_features];
    let mut squares = vec![0.0; train.num_classes];
    for example in 0..train.len() {
        let (ids, values) = train.features(example);
        for &label in train.labels(example) {
            for (&id, &value) in ids.iter().zip(values) {
                *by_feature[id as usize].entry(label).or_default() += value;
            }
        }
    }
    for (label, weight) in by_feature.iter().flatten() {
        squares[*label as usize] += weight * weight;
    }
    let hits = (0..test.len()).filter(|&example| {
        let mut scores = vec![0.0; test.num_classes];
        let (ids, values) = test.features(example);
        for (&id, &value) in ids.iter().zip(values) {
            for (&label, &weight) in &by_feature[id as usize] {
                scores[label as usize] += value * weight / squares[label as usize].sqrt();
            }
        }
        let best = (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap();
        test.labels(example).contains(&(best as u32))
    });
    hits.count() as f64 / test.len() as f64
}

#[test]
fn even_a_sum_of_examples_learns_it_but_not_beyond_the_noise() {
    for (label_skew, noise) in [(0.0, 0.1), (0.6, 0.1), (0.6, 0.4)] {
        let (train, test) = synth(&SynthOptions { noise, ..small(label_skew) }).unwrap();
        let precision = centroid_precision(train.view(), test.view());
        // 1,500 draws: a standard deviation is at most 0.013.
        assert!(precision > 0.8 * (1.0 - noise), "skew {label_skew}, noise {noise}: {precision}");
        assert!(precision < 1.0 - noise + 0.05, "skew {label_skew}, noise {noise}: {precision}");
    }
}

#[test]
fn siblings_are_more_alike_than_strangers() {
    let options = SynthOptions { noise: 0.0, labels_per_example: 1.0, ..small(0.0) };
    let (train, _) = synth(&options).unwrap();
    let generator = Generator::new(&options);
    let mut rank_of_class = vec![0; options.classes];
    for (rank, &class) in generator.class_of_rank.iter().enumerate() {
        rank_of_class[class as usize] = rank as u32;
    }
    let view = train.view();
    let similarity = |a: usize, b: usize| -> f32 {
        let ((a_ids, a_values), (b_ids, b_values)) = (view.features(a), view.features(b));
        let product =
            |(i, id): (usize, &u32)| b_ids.binary_search(id).map_or(0.0, |j| a_values[i] * b_values[j]);
        a_ids.iter().enumerate().map(product).sum()
    };
    let (mut sums, mut counts) = ([0.0; 3], [0; 3]);
    for a in 0..1000 {
        for b in 0..a {
            let (class_a, class_b) = (view.labels(a)[0], view.labels(b)[0]);
            let cluster = |class: u32| rank_of_class[class as usize] % generator.clusters;
            let kind =
                if class_a == class_b { 0 } else { 1 + usize::from(cluster(class_a) != cluster(class_b)) };
            sums[kind] += similarity(a, b);
            counts[kind] += 1;
        }
    }
    let [same, sibling, stranger] = std::array::from_fn(|i| sums[i] / counts[i] as f32);
    assert!(same > 1.5 * sibling && sibling > 3.0 * stranger, "{same} {sibling} {stranger}");
}

#[test]
fn shapes_are_as_ordered() {
    for label_skew in [0.0, 0.6] {
        let options =
            SynthOptions { labels_per_example: 3.0, features_per_example: 30.0, ..small(label_skew) };
        let (train, test) = synth(&options).unwrap();
        assert_eq!((train.view().len(), test.view().len()), (15_000, 1500));
        assert_eq!(train.view().check_law(), Ok(()));
        assert_eq!(test.view().check_law(), Ok(()));
        let stats = Stats::of(train.view());
        assert!((stats.labels_per_example.mean - 3.0).abs() < 0.15, "{stats}");
        assert!((stats.features_per_example.mean - 30.0).abs() < 1.5, "{stats}");
        assert_eq!(stats.examples_without_labels + stats.examples_without_features, 0);
        // (1/100)^(1-skew) of the labels belong to the first 1% of ranks, if
        // siblings did not even that out a little.
        let expected = 100.0 * 0.01f64.powf(1.0 - label_skew);
        let share = stats.top_1_percent_share;
        assert!(share > 0.5 * expected && share < 2.0 * expected, "{share} is not near {expected}");
    }
    let (train, _) = synth(&small(0.0)).unwrap();
    let counts = label_frequencies(train.view());
    // 22.5 occurrences a class on average; uniform draws stay near it.
    assert!(
        counts.len() == 1000 && counts.iter().all(|p| p.1 < 70),
        "{:?}",
        counts.iter().max_by_key(|p| p.1)
    );
}

#[test]
fn values_have_length_one_and_few_digits() {
    let (train, _) = synth(&small(0.6)).unwrap();
    for example in 0..1000 {
        let (_, values) = train.view().features(example);
        let length: f32 = values.iter().map(|v| v * v).sum::<f32>().sqrt();
        assert!((length - 1.0).abs() < 2e-3, "{length}");
        assert!(values.iter().all(|v| *v > 0.0 && v.to_string().len() <= 6), "{values:?}");
    }
}

#[test]
fn the_seed_decides_and_the_threads_do_not() {
    let options = SynthOptions { train: 5000, ..small(0.6) };
    let base = synth(&options).unwrap();
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert!(pool.install(|| synth(&options).unwrap()) == base);
    }
    assert!(synth(&SynthOptions { seed: 2, ..options.clone() }).unwrap() != base);
    // A longer training set begins like a shorter one.
    let (longer, _) = synth(&SynthOptions { train: 6000, ..options }).unwrap();
    assert_eq!(longer.feature_ids[..base.0.feature_ids.len()], base.0.feature_ids);
}

#[test]
fn tiny_and_extreme_shapes_work() {
    for options in [
        SynthOptions { classes: 1, features: 1, train: 10, test: 0, ..Default::default() },
        SynthOptions { classes: 3, features: 2, train: 50, labels_per_example: 1000.0, ..Default::default() },
        SynthOptions { classes: 100, train: 50, classes_per_cluster: 1000, noise: 1.0, ..Default::default() },
        SynthOptions {
            classes: 33,
            train: 50,
            classes_per_cluster: 1,
            label_skew: 0.95,
            ..Default::default()
        },
    ] {
        let (train, test) = synth(&options).unwrap();
        assert_eq!((train.view().len(), test.view().len()), (options.train, options.test));
        assert_eq!(train.view().check_law(), Ok(()));
    }
}

#[test]
fn impossible_shapes_are_refused_and_presets_are_known() {
    let base = SynthOptions::default();
    for options in [
        SynthOptions { classes: 0, ..base.clone() },
        SynthOptions { features: 1 << 40, ..base.clone() },
        SynthOptions { labels_per_example: 0.5, ..base.clone() },
        SynthOptions { label_skew: 1.0, ..base.clone() },
        SynthOptions { noise: f64::NAN, ..base.clone() },
        SynthOptions { classes_per_cluster: 0, ..base },
    ] {
        let error = synth(&options).unwrap_err().to_string();
        assert!(error.contains("found") && error.contains("expected"), "{error}");
    }
    assert!(PRESETS.iter().all(|name| SynthOptions::preset(name).is_some()));
    assert!(SynthOptions::preset("imagenet").is_none());
    assert_eq!(SynthOptions::preset("amazon-670k").unwrap().classes, 670_091);
}
