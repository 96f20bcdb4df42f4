//! That settings do what they say, the presets' numbers among them, seen in what
//! training steps report.

use lookalike::data::Dataset;
use lookalike::hashing::{Codes, Family};
use lookalike::loss::Loss;
use lookalike::model::{Activation, Init};
use lookalike::optim::AdamConfig;
use lookalike::sampling::{LshConfig, SamplerKind, Walk};
use lookalike::train::{ClassStart, PRESETS, RateSchedule, StepReport, TrainConfig, Trainer};
use lookalike_kernels::Cpu;

mod support {
    pub(crate) mod parameters;
}
use support::parameters::Parameters;

const CLASSES: usize = 50;

/// Forty examples, the first classes more often than the others.
fn data() -> Dataset {
    let mut data = Dataset::empty(20, CLASSES);
    for i in 0..40u32 {
        data.push([(i % 10, 1.0), (10 + i * 3 % 10, 0.5)], &[i * i / 32]);
    }
    data
}

/// Settings of a small run of one epoch of so many steps.
fn small(steps: usize) -> TrainConfig {
    TrainConfig { batch: 40 / steps, epochs: 1, hidden: vec![8], budget: Some(10), ..TrainConfig::default() }
}

fn reports(config: TrainConfig) -> Vec<StepReport> {
    let data = data();
    let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
    std::iter::from_fn(|| (!trainer.is_done()).then(|| trainer.step().unwrap())).collect()
}

/// Paper, section 4.3 and appendix "Sparsity": one hidden layer of 128, Adam at
/// 0.0001, DWTA, refreshes from 50 iterations on; for each data set the batch, K,
/// L and sparsity. The paper names no activation, its public code uses ReLU, and
/// overlapping codes.
#[test]
fn presets_have_the_papers_numbers() {
    let table = [
        ("amazon-670k", 1024, 6, 400, 0.05),
        ("wiki-325k", 256, 5, 300, 0.1),
        ("odp-105k", 128, 5, 150, 0.04),
        ("amazon-uniform", 256, 6, 150, 0.02),
    ];
    for (name, batch, k, l, sparsity) in table {
        let preset = TrainConfig::preset(name).unwrap();
        let lsh = &preset.lsh;
        assert_eq!((preset.batch, lsh.k, lsh.l, preset.sparsity), (batch, Some(k), Some(l), Some(sparsity)));
        assert_eq!(preset.budget, None, "{name}: it would override the sparsity");
        assert_is_the_papers_network(&preset, name);
        let (_, description) = PRESETS.into_iter().find(|(known, _)| *known == name).unwrap();
        let told = format!("batch {batch}, K={k}, L={l}, sparsity {sparsity}");
        assert!(description.ends_with(&told), "{description}");
    }
    assert_is_the_papers_network(&TrainConfig::preset("paper").unwrap(), "paper");
}

#[track_caller]
fn assert_is_the_papers_network(preset: &TrainConfig, name: &str) {
    assert_eq!((&preset.hidden[..], preset.activation), (&[128][..], Activation::Relu), "{name}");
    let rate = (preset.lr, preset.lr_schedule, preset.warmup);
    assert_eq!(rate, (1e-4, RateSchedule::Constant, 0), "{name}");
    assert_eq!(preset.adam, AdamConfig { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, ..preset.adam }, "{name}");
    let LshConfig { family, codes, bin, refresh_first, walk, .. } = preset.lsh;
    assert_eq!((family, codes, bin, refresh_first), (Family::Dwta, Codes::Overlapped, 8, 50), "{name}");
    // Algorithm 3 as it is printed, and all that it gives.
    assert_eq!((walk, preset.retrieve), (Some(Walk::Paper), Some(0)), "{name}");
    assert_eq!((preset.sampler, preset.loss()), (SamplerKind::LshEmbedding, Loss::Softmax), "{name}");
    assert!(preset.sparse.is_none(), "{name}");
}

#[test]
fn plain_is_what_its_description_says() {
    let plain = TrainConfig::preset("plain").unwrap();
    assert_eq!(plain, TrainConfig::default());
    assert_eq!((&plain.hidden[..], plain.activation), (&[128][..], Activation::Linear));
    assert_eq!((plain.lr, plain.lr_schedule), (0.01, RateSchedule::Linear));
    assert_eq!((plain.sampler, plain.sparse), (SamplerKind::LshEmbedding, None));
    assert_eq!((plain.mixed.hashed_share, plain.lsh.refresh_first), (0.5, 50));
}

#[test]
fn tables_are_refreshed_when_the_settings_say_so() {
    let refreshed = |refresh_first, refresh_growth| {
        let lsh = LshConfig { refresh_first, refresh_growth, ..LshConfig::default() };
        let reports = reports(TrainConfig { lsh, ..small(40) });
        let due = reports.iter().enumerate().filter(|(_, report)| report.refreshed);
        due.map(|(iteration, _)| iteration).collect::<Vec<_>>()
    };
    assert_eq!(refreshed(7, 1.0), [0, 7, 14, 21, 28, 35]);
    assert_eq!(refreshed(3, 2.0), [0, 3, 9, 21]);
    assert_eq!(refreshed(3, 3.0), [0, 3, 12, 39]);
    assert_eq!(refreshed(50, 1.1), [0]);
}

/// A refresh is not only reported: with it, other classes are found.
#[test]
fn refreshes_change_what_is_learnt() {
    let data = data();
    let learnt = |refresh_first| {
        let lsh = LshConfig { refresh_first, refresh_growth: 1.0, ..LshConfig::default() };
        let config = TrainConfig { lsh, lr: 0.1, ..small(40) };
        let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
        while !trainer.is_done() {
            trainer.step().unwrap();
        }
        Parameters::of(&trainer)
    };
    assert_eq!(learnt(50), learnt(100), "neither falls due");
    assert_ne!(learnt(50), learnt(4));
}

#[test]
fn the_rate_of_every_step_follows_the_schedule() {
    let rates = |lr_schedule, warmup| {
        let reports = reports(TrainConfig { lr: 0.5, lr_schedule, warmup, ..small(8) });
        reports.iter().map(|report| f64::from(report.rate) / 0.5).collect::<Vec<_>>()
    };
    let assert_close = |found: Vec<f64>, expected: [f64; 8]| {
        let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(close && found.len() == 8, "{found:?}, not {expected:?}");
    };
    assert_close(rates(RateSchedule::Constant, 0), [1.0; 8]);
    assert_close(rates(RateSchedule::Linear, 0), [1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]);
    // (1 + cos(π · i / 8)) / 2
    let cosine = [1.0, 0.961_939_8, 0.853_553_4, 0.691_341_7, 0.5, 0.308_658_3, 0.146_446_6, 0.038_060_2];
    assert_close(rates(RateSchedule::Cosine, 0), cosine);
    assert_close(rates(RateSchedule::Constant, 4), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]);
    let warmed: Vec<f64> = [0.5, 1.0].into_iter().chain([1.0; 6]).zip(cosine).map(|(a, b)| a * b).collect();
    assert_close(rates(RateSchedule::Cosine, 2), warmed.try_into().unwrap());
}

/// Static samplers and `mixed` are corrected unless told otherwise, the others
/// have nothing to correct. Uniform draws shift all scores of a softmax alike, so
/// their correction shows in the other loss.
#[test]
fn log_q_is_corrected_by_default_where_it_is_known() {
    let cases = [
        (SamplerKind::LogUniform, Loss::Softmax, true),
        (SamplerKind::Frequency, Loss::Softmax, true),
        (SamplerKind::Uniform, Loss::Nce, true),
        (SamplerKind::Mixed, Loss::Softmax, true),
        (SamplerKind::LshEmbedding, Loss::Softmax, false),
        (SamplerKind::LshLabel, Loss::Softmax, false),
        (SamplerKind::TopK, Loss::Softmax, false),
        (SamplerKind::Full, Loss::Softmax, false),
    ];
    assert!(SamplerKind::ALL.iter().all(|kind| cases.iter().any(|case| case.0 == *kind)));
    for (sampler, loss, corrects) in cases {
        let loss_with = |log_q| reports(TrainConfig { sampler, loss: Some(loss), log_q, ..small(1) })[0].loss;
        assert_eq!(loss_with(None), loss_with(Some(corrects)), "{sampler}");
        assert_eq!(loss_with(Some(true)) != loss_with(Some(false)), corrects, "{sampler}");
    }
}

/// Where class vectors are zero, a class scores its bias. Noise-contrastive
/// scores start as log-probabilities: -ln N, corrected by ln q = ln(B / N) for B
/// uniform draws -ln B, for the true label and its B negatives.
#[test]
fn noise_contrastive_scores_start_as_log_probabilities() {
    let init = Init { output_scale: 0.0, ..Init::default() };
    let start = TrainConfig { class_start: ClassStart::Random, init, ..small(1) };
    let first_loss =
        |loss| reports(TrainConfig { sampler: SamplerKind::Uniform, loss, ..start.clone() })[0].loss;
    let budget = 10.0f64;
    let expected = (1.0 + budget).ln() + budget * (1.0 / budget).ln_1p();
    let found = first_loss(Some(Loss::Nce));
    assert!((found - expected).abs() < 1e-4, "{found}, not {expected}");
    let found = first_loss(Some(Loss::Softmax));
    assert!((found - (1.0 + budget).ln()).abs() < 1e-4, "{found}");
}
