//! What becomes of training where only the best of the classes that were found are
//! trained on: the sum that `mixed` estimates stays honest, and hard negatives do not
//! shut the units of a ReLU.

use lookalike::data::Dataset;
use lookalike::metrics::MetricOptions;
use lookalike::model::{Activation, Init};
use lookalike::predict::{Predictor, Search};
use lookalike::random::{Stream, mix};
use lookalike::sampling::{LshConfig, MixedConfig, MixedQuery, SamplerKind};
use lookalike::train::{ClassStart, TrainConfig, Trainer};
use lookalike_kernels::Cpu;

/// The same example again and again, for a network that stays as it is: what one step's
/// loss says of the sum over all classes, as a share of that sum.
fn estimates(mixed: MixedConfig, retrieve: usize) -> Vec<f64> {
    const CLASSES: usize = 600;
    let mut data = Dataset::empty(4, CLASSES);
    (0..500).for_each(|_| data.push([(0, 1.0), (2, 0.5)], &[7]));
    let config = TrainConfig {
        sampler: SamplerKind::Mixed,
        mixed,
        budget: Some(40),
        retrieve: Some(retrieve),
        lsh: LshConfig { k: Some(2), l: Some(20), ..LshConfig::default() },
        hidden: vec![16],
        init: Init { input_scale: 1.0, output_scale: 6.0 },
        class_start: ClassStart::Random,
        batch: 1,
        epochs: 4,
        lr: 1e-30,
        ..TrainConfig::default()
    };
    let full = TrainConfig { sampler: SamplerKind::Full, epochs: 1, ..config.clone() };
    let mut trainer = Trainer::new(full, data.view(), Cpu::detect()).unwrap();
    let exact = trainer.step().unwrap().loss;
    let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
    let mut estimates = Vec::new();
    while !trainer.is_done() {
        estimates.push((trainer.step().unwrap().loss - exact).exp());
    }
    estimates
}

/// Found classes that are not among the best are stood for, as those are that were not
/// found: the mean of many estimates is the sum over all classes.
#[test]
fn mixed_is_honest_where_it_selects() {
    for (hashed_share, query) in [(0.5, MixedQuery::Both), (0.25, MixedQuery::Embedding)] {
        let estimates = estimates(MixedConfig { hashed_share, query }, 300);
        let n = estimates.len() as f64;
        let mean = estimates.iter().sum::<f64>() / n;
        let variance = estimates.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let error = (variance / n).sqrt();
        assert!(error < 0.02 && (mean - 1.0).abs() < 5.0 * error, "{query:?}: {mean} ± {error}");
    }
}

/// Some thousand classes of which a few are frequent; an example has six, and for each
/// a feature that speaks for it, among twenty that speak for nobody.
fn several_labels() -> Dataset {
    const CLASSES: u32 = 5_000;
    let mut data = Dataset::empty(2_000, CLASSES as usize);
    for example in 0..2_000 {
        let unit = |place: u64| (mix(1, Stream::Data, example, place) >> 11) as f64 / (1u64 << 53) as f64;
        let mut labels: Vec<u32> =
            (0..6).map(|i| (f64::from(CLASSES).powf(unit(i)) as u32 - 1).min(CLASSES - 1)).collect();
        labels.sort_unstable();
        labels.dedup();
        let telling = (10..).zip(&labels).map(|(i, label)| (label * 7 + 13 * (5.0 * unit(i)) as u32) % 1_000);
        let idle = (20..40).map(|i| 1_000 + (1_000.0 * unit(i).powi(2)) as u32);
        let mut features: Vec<u32> = telling.chain(idle).collect();
        features.sort_unstable();
        features.dedup();
        data.push(features.into_iter().map(|feature| (feature, 1.0)), &labels);
    }
    data
}

/// P@1 in percent, on the examples that were trained on, with the hardest negatives.
fn precision(data: &Dataset, activation: Activation, class_start: ClassStart) -> f64 {
    let config = TrainConfig {
        sampler: SamplerKind::TopK,
        budget: Some(100),
        activation,
        class_start,
        batch: 64,
        epochs: 6,
        ..TrainConfig::default()
    };
    let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
    while !trainer.is_done() {
        trainer.step().unwrap();
    }
    let model = trainer.into_checkpoint().model;
    let predictor = Predictor::new(&model, Cpu::detect());
    let evaluation =
        predictor.evaluate(&data.view(), &|_| 0, &MetricOptions::default(), Search::Exact).unwrap();
    evaluation.values.get("P@1").unwrap()
}

/// Negatives that are chosen for their high scores pull every embedding towards zero
/// until true labels score higher still; a ReLU that is shut by then stays shut.
#[test]
fn hard_negatives_leave_a_relu_open() {
    let data = several_labels();
    let linear = precision(&data, Activation::Linear, ClassStart::Examples);
    let relu = precision(&data, Activation::Relu, ClassStart::Examples);
    let from_anywhere = precision(&data, Activation::Relu, ClassStart::Random);
    assert!(relu > linear - 4.0, "linear {linear}, ReLU {relu}");
    assert!(from_anywhere < relu - 8.0, "data that tells: ReLU {relu}, from anywhere {from_anywhere}");
}
