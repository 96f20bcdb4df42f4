//! Settings with a name: what the paper used, and what suits data of a given size.

use super::check::ConfigError;
use super::{ClassStart, RateSchedule, TrainConfig};
use crate::data::Examples;
use crate::hashing::Codes;
use crate::loss::Loss;
use crate::model::Activation;
use crate::sampling::{LshConfig, Walk};
use crate::train::sparse::{LABELS_COUNTED, SparseConfig};

/// More sparse weights than this (2 GB with their postings) are not made
/// without being asked for.
const SPARSE_ENTRIES_MAX: f64 = (1u64 << 27) as f64;

/// Data whose features take more bytes is shuffled in windows: it may not fit into memory.
const SHUFFLED_BYTES_MAX: usize = 4 << 30;
/// Examples of a window then.
const SHUFFLE_WINDOW: usize = 1 << 18;

/// So many classes each add 1 to the learning rate of sparse weights, from 1 up to its default.
const CLASSES_A_RATE: f32 = 200.0;

/// Members of the committee (docs/notes/accuracy.md).
const MEMBERS: usize = 4;
/// From so many classes on there is none: a member's share of a class vector is too short to
/// tell them apart.
const COMMITTEE_CLASSES_MAX: usize = 50_000;

/// The preset that depends on the data; see [`TrainConfig::auto`].
pub const AUTO: &str = "auto";

/// The presets with one line each.
pub const PRESETS: [(&str, &str); 7] = [
    (AUTO, "the default of `train`: looks at the size of the data, says what it chose and why"),
    ("plain", "a dense network alone: hidden 128, linear, LSH Embedding, Adam at 0.01 falling"),
    ("paper", "the paper's network: hidden 128, ReLU, Adam at 1e-4, refresh from 50 iterations on"),
    ("amazon-670k", "the paper's settings for Amazon-670K: batch 1024, K=6, L=400, sparsity 0.05"),
    ("wiki-325k", "the paper's settings for Wiki-325K: batch 256, K=5, L=300, sparsity 0.1"),
    ("odp-105k", "the paper's settings for ODP: batch 128, K=5, L=150, sparsity 0.04"),
    ("amazon-uniform", "the paper's settings for Amazon-Uniform: batch 256, K=6, L=150, sparsity 0.02"),
];

/// What [`TrainConfig::auto`] wants to know of the data.
#[derive(Clone, Copy, Debug)]
pub struct DataSize {
    /// Examples.
    pub examples: usize,
    /// Classes.
    pub classes: usize,
    /// Feature values of all examples.
    pub feature_values: usize,
    /// Labels of all examples.
    pub labels: usize,
}

impl From<&Examples<'_>> for DataSize {
    fn from(examples: &Examples<'_>) -> Self {
        Self {
            examples: examples.len(),
            classes: examples.num_classes,
            feature_values: examples.feature_ids.len(),
            labels: examples.label_ids.len(),
        }
    }
}

impl TrainConfig {
    /// The settings behind a preset's name.
    pub fn preset(name: &str) -> Result<Self, ConfigError> {
        // The public code's codes overlap; with clean ones its K would mean
        // something else.
        let lsh = LshConfig { codes: Codes::Overlapped, walk: Some(Walk::Paper), ..LshConfig::default() };
        let paper = Self {
            epochs: 10,
            loss: Some(Loss::Softmax),
            hidden: vec![128],
            activation: Activation::Relu,
            class_start: ClassStart::Random,
            lr: 1e-4,
            lr_schedule: RateSchedule::Constant,
            batch: 256,
            sparsity: Some(0.05),
            retrieve: Some(0),
            lsh: lsh.clone(),
            ..Self::default()
        };
        let with = |batch, k, l, sparsity| Self {
            batch,
            sparsity: Some(sparsity),
            lsh: LshConfig { k: Some(k), l: Some(l), ..lsh.clone() },
            ..paper.clone()
        };
        match name {
            AUTO => Err(ConfigError::NeedsData),
            "plain" => Ok(Self::default()),
            "paper" => Ok(paper),
            "amazon-670k" => Ok(with(1024, 6, 400, 0.05)),
            "wiki-325k" => Ok(with(256, 5, 300, 0.1)),
            "odp-105k" => Ok(with(128, 5, 150, 0.04)),
            "amazon-uniform" => Ok(with(256, 6, 150, 0.02)),
            _ => Err(ConfigError::Preset {
                found: name.into(),
                known: PRESETS.map(|(name, _)| name).join(", "),
            }),
        }
    }

    /// What suits data of this size, and why, in lines for the user. The choices
    /// were made on validation parts (docs/notes/accuracy.md).
    pub fn auto(size: DataSize) -> (Self, Vec<String>) {
        let DataSize { examples: count, classes, feature_values, labels } = size;
        let has_few_classes = classes < 1000;
        let labels_mean = (labels as f32 / count.max(1) as f32).max(1.0);
        let (epochs, batch) = match count {
            0..10_000 => (10, 256),
            10_000..50_000 if has_few_classes => (5, 256),
            10_000..50_000 => (4, 256),
            // A batch of examples with many labels moves as many rows as a larger one of others.
            50_000..200_000 if labels_mean > 2.0 => (3, 256),
            50_000..200_000 => (3, 512),
            200_000..700_000 => (3, 1024),
            _ => (2, 1024),
        };
        // Many negatives pay where a class has examples enough to learn from them.
        let per_class = count as f64 / classes.max(1) as f64;
        let by_classes = (classes as f64 * 0.02).clamp(100.0, 200.0);
        let budget = by_classes.min((16.0 * per_class).max(100.0)) as usize;
        let budget = budget.min(classes.max(1));
        let mut why = vec![
            format!("auto: {epochs} epochs in batches of {batch}, as there are {count} examples"),
            format!(
                "auto: {budget} negatives an example, as there are {classes} classes with {per_class:.1} examples each"
            ),
        ];
        // Every label of an example has at most the example's features, a class at most so many, …
        let features_mean = feature_values as f64 / count.max(1) as f64;
        let of_labels = features_mean * labels as f64;
        let of_classes = classes as f64 * SparseConfig::default().entries_max as f64;
        // … and as many again may speak against a class.
        let entries_at_most = 2.0 * of_labels.min(of_classes);
        let fits = entries_at_most <= SPARSE_ENTRIES_MAX;
        // The more labels an example has, the more rows it moves; and the fewer classes there
        // are, the more examples of a batch move the same row.
        let for_one_label = (classes as f32 / CLASSES_A_RATE).clamp(1.0, SparseConfig::default().rate);
        let rate = for_one_label / labels_mean;
        let sparse = fits.then(|| SparseConfig { rate, ..SparseConfig::default() });
        why.push(match fits {
            true => {
                "auto: sparse weights beside the network, and the training examples themselves; held-out examples say how much they count".into()
            }
            false => format!("auto: no sparse weights, which could be {entries_at_most:.0}"),
        });
        if labels > count {
            why.push(format!(
                "auto: an example counts once for each of its labels, up to {LABELS_COUNTED}, as precision counts labels; they do not compete with each other"
            ));
        }
        let is_large = feature_values.saturating_mul(8) > SHUFFLED_BYTES_MAX;
        let shuffle_window = is_large.then_some(SHUFFLE_WINDOW);
        if is_large {
            why.push(format!("auto: shuffled in windows of {SHUFFLE_WINDOW} examples, as the data is large"));
        }
        let chosen = Self {
            epochs,
            batch,
            labels_counted: LABELS_COUNTED,
            members: if classes < COMMITTEE_CLASSES_MAX { MEMBERS } else { 1 },
            budget: Some(budget),
            sparse,
            shuffle_window,
            calibrate: true,
            ..Self::default()
        };
        (chosen, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_exists_and_others_are_named_in_the_error() {
        for (name, _) in PRESETS {
            assert_eq!(TrainConfig::preset(name).is_ok(), name != AUTO);
        }
        let error = TrainConfig::preset("papper").unwrap_err().to_string();
        assert!(error.contains("papper") && error.contains("amazon-670k"), "{error}");
    }

    #[test]
    fn auto_goes_by_examples_and_classes() {
        let auto = |examples, classes| {
            let size = DataSize { examples, classes, feature_values: 10 * examples, labels: examples };
            let (config, why) = TrainConfig::auto(size);
            assert!(why[0].contains(&config.epochs.to_string()) && why[1].contains(&classes.to_string()));
            (config.epochs, config.batch, config.budget.unwrap(), config.sparse.map(|sparse| sparse.rate))
        };
        let usual = Some(SparseConfig::default().rate);
        for (examples, classes, expected) in [
            (9_999, 2_000, (10, 256, 100, usual)),
            (10_000, 600, (5, 256, 100, Some(3.0))),
            (10_000, 999, (5, 256, 100, Some(4.995))),
            (10_000, 1_000, (4, 256, 100, Some(5.0))),
            (49_999, 50, (5, 256, 50, Some(1.0))),
            (50_000, 50_000, (3, 512, 100, usual)),
            (199_999, 7_000, (3, 512, 140, usual)),
            (200_000, 20_000, (3, 1024, 160, usual)),
            (699_999, 20_000, (3, 1024, 200, usual)),
            (700_000, 20_000, (2, 1024, 200, usual)),
        ] {
            assert_eq!(auto(examples, classes), expected, "{examples} examples of {classes} classes");
        }
    }

    #[test]
    fn auto_takes_fewer_examples_a_batch_where_they_have_many_labels() {
        let batch = |labels| {
            let size = DataSize { examples: 60_000, classes: 9_000, feature_values: 900_000, labels };
            TrainConfig::auto(size).0.batch
        };
        assert_eq!((batch(120_000), batch(120_001)), (512, 256));
    }

    #[test]
    fn auto_moves_sparse_weights_less_where_examples_have_many_labels() {
        let rate = |labels| {
            let size = DataSize { examples: 20_000, classes: 9_000, feature_values: 200_000, labels };
            TrainConfig::auto(size).0.sparse.unwrap().rate
        };
        let usual = SparseConfig::default().rate;
        assert_eq!([10_000, 20_000, 80_000].map(rate), [usual, usual, usual / 4.0]);
    }

    #[test]
    fn auto_shuffles_large_data_in_windows() {
        let window = |feature_values| {
            let size = DataSize { examples: 9_000_000, classes: 9_000, feature_values, labels: 9_000_000 };
            let (config, why) = TrainConfig::auto(size);
            assert_eq!(why.iter().any(|line| line.contains("windows")), config.shuffle_window.is_some());
            config.shuffle_window
        };
        // At 8 bytes a value, 4 GiB.
        assert_eq!((window(1 << 29), window((1 << 29) + 1)), (None, Some(1 << 18)));
    }

    #[test]
    fn auto_has_no_committee_for_very_many_classes() {
        let members = |classes| {
            let size = DataSize { examples: 500_000, classes, feature_values: 5_000_000, labels: 500_000 };
            TrainConfig::auto(size).0.members
        };
        assert_eq!((members(49_999), members(50_000)), (4, 1));
    }

    #[test]
    fn auto_has_sparse_weights_unless_they_would_be_too_many() {
        let with = |examples: usize, classes: usize, features: usize, labels: usize| {
            let (feature_values, labels) = (examples * features, examples * labels);
            TrainConfig::auto(DataSize { examples, classes, feature_values, labels }).0.sparse.is_some()
        };
        assert!(with(60_000, 14_000, 50, 2));
        // Long texts with many labels, of classes whose rows end somewhere.
        assert!(with(14_000, 30_000, 670, 19));
        assert!(with(1_000_000, 13_000, 70, 5));
        assert!(!with(1_000_000, 1_000_000, 70, 5));
    }
}
