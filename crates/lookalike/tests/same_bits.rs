//! Which results are equal to the bit, at every level of instructions this machine
//! has: the score of a class whatever else is asked for, and on levels with a fused
//! multiply-add every answer, and every model whose parameters are f32.
//!
//! `LOOKALIKE_REQUIRE_CPU=avx512` makes the tests fail, rather than pass without
//! having compared, where the machine lacks that level.

use std::collections::HashMap;
use std::path::Path;

use lookalike::artifact;
use lookalike::data::Dataset;
use lookalike::data::synth::{SynthOptions, synth};
use lookalike::hashing::Family;
use lookalike::loss::Loss;
use lookalike::model::{
    Activation, ClassFrequencies, Init, Model, Neighbours, Network, NetworkConfig, Normalise, SparsePart,
    SparseStart, Storage,
};
use lookalike::predict::{Ask, Predictor, RescoreScratch, rescore};
use lookalike::random::{Stream, mix};
use lookalike::sampling::{LshConfig, SamplerKind};
use lookalike::train::{SparseConfig, TrainConfig, Trainer};
use lookalike_kernels::Cpu;

const CLASSES: usize = 600;
const FEATURES: usize = 50;
/// More than are scored in one tile.
const EXAMPLES: usize = 270;

fn levels() -> Vec<Cpu> {
    let available = Cpu::available();
    if let Ok(required) = std::env::var("LOOKALIKE_REQUIRE_CPU") {
        assert!(
            available.iter().any(|cpu| cpu.name() == required),
            "LOOKALIKE_REQUIRE_CPU asks for {required}, this machine has {available:?}"
        );
    }
    available
}

/// Levels with a fused multiply-add.
fn fused() -> impl Iterator<Item = Cpu> {
    levels().into_iter().filter(|&cpu| cpu != Cpu::portable())
}

/// Between -1 and 1, with all the digits a float has.
fn number(row: usize, column: usize) -> f32 {
    (mix(7, Stream::Data, row as u64, column as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

fn examples() -> Dataset {
    let mut data = Dataset::empty(FEATURES, CLASSES);
    for example in 0..EXAMPLES {
        let has = |&feature: &usize| number(example, 1_000 + feature) > 0.6 && example % 50 != 3;
        let row = (0..FEATURES).filter(has).map(|feature| (feature as u32, number(example, feature)));
        data.push(row, &[(example * 7 % CLASSES) as u32]);
    }
    data
}

fn model(hidden: &[usize], storage: Storage) -> Model {
    let config = NetworkConfig {
        num_features: FEATURES,
        num_classes: CLASSES,
        hidden: hidden.to_vec(),
        activation: Activation::Linear,
        normalise: Normalise::L2,
        storage,
    };
    let mut network = Network::random(config, Init::default(), 3);
    for (class, bias) in network.output.bias.iter_mut().enumerate() {
        *bias = number(class, 2_000);
    }
    Model::new(network, ClassFrequencies::default())
}

/// Ten weights a class, but for every fifth, which has none.
fn sparse_part() -> SparsePart {
    let lengths: Vec<u32> = (0..CLASSES).map(|class| if class % 5 == 4 { 0 } else { 10 }).collect();
    let (mut features, mut weights) = (Vec::new(), Vec::new());
    for (class, &length) in lengths.iter().enumerate() {
        for i in 0..length as usize {
            features.push((i * 5 + class % 5) as u32);
            weights.push(number(class, 3_000 + i));
        }
    }
    let counts: Vec<u32> = (0..CLASSES as u32).map(|class| 1 + class % 9).collect();
    SparsePart::from_parts(&lengths, features, weights, (0.7, SparseStart::Centroid), &counts)
}

/// The network alone, with sparse weights, and with training examples too.
fn models(storage: Storage) -> Vec<Model> {
    let data = examples();
    let mut models = vec![model(&[128], storage), model(&[24, 40], storage)];
    let with_sparse = Model { sparse: Some(sparse_part()), ..model(&[24], storage) };
    let kept: Vec<u32> = (0..EXAMPLES as u32).step_by(2).collect();
    let neighbours = Some(Neighbours::new(&data.view(), &kept).weighted(0.3));
    models.push(Model { neighbours, sparse: Some(sparse_part()), ..model(&[24], storage) });
    models.push(with_sparse);
    models
}

/// The score of every class for each example, as bits, and the log-sum-exp.
struct Answers {
    scores: Vec<HashMap<u32, u32>>,
    log_sum_exp: Vec<u32>,
}

/// By ranking `k` classes in batches of a size.
fn ranked(cpu: Cpu, model: &Model, k: usize, batch_size: usize) -> Answers {
    let data = examples();
    let predictor = Predictor::new(model, cpu);
    let mut answers = Answers { scores: Vec::new(), log_sum_exp: Vec::new() };
    let all: Vec<u32> = (0..EXAMPLES as u32).collect();
    for batch in all.chunks(batch_size) {
        let best = predictor.rank(&data.view(), batch, Ask { probabilities: true, ..Ask::best(k) });
        for place in 0..batch.len() {
            let ranked = best.example(place);
            assert_eq!(ranked.classes.len(), k);
            let bits = ranked.scores.iter().map(|score| score.to_bits());
            answers.scores.push(ranked.classes.iter().copied().zip(bits).collect());
            answers.log_sum_exp.push(best.log_sum_exp(place).unwrap().to_bits());
        }
    }
    answers
}

#[test]
fn the_score_of_a_class_does_not_depend_on_what_else_is_asked_for() {
    for cpu in levels() {
        for model in [models(Storage::F32), models(Storage::Bf16)].concat() {
            let whole = ranked(cpu, &model, CLASSES, EXAMPLES);
            for (k, batch_size) in [(CLASSES, 1), (1, 9), (7, 2), (99, 3), (100, 8), (150, 17), (3, 266)] {
                let other = ranked(cpu, &model, k, batch_size);
                let what = format!("{}, {k} classes, batches of {batch_size}", cpu.name());
                for (example, scores) in other.scores.iter().enumerate() {
                    for (class, score) in scores {
                        assert_eq!(score, &whole.scores[example][class], "{what}: {example}, {class}");
                    }
                }
                // Where examples are kept, the sum counts theirs for the classes ranked.
                if model.neighbours.is_none() {
                    assert_eq!(other.log_sum_exp, whole.log_sum_exp, "{what}");
                }
            }
            check_chosen(cpu, &model, &whole);
        }
    }
}

fn check_chosen(cpu: Cpu, model: &Model, whole: &Answers) {
    let data = examples();
    let all: Vec<u32> = (0..CLASSES as u32).collect();
    let predictor = Predictor::new(model, cpu);
    for classes in [&[7, 3][..], &[599, 0, 599, 128, 4], &[], &all] {
        for batch in [&[0][..], &[269, 3, 17], &(0..EXAMPLES as u32).collect::<Vec<_>>()] {
            let scores = predictor.scores(&data.view(), batch, classes);
            assert_eq!(scores.len(), batch.len() * classes.len());
            let expected = batch
                .iter()
                .flat_map(|&example| classes.iter().map(move |class| whole.scores[example as usize][class]));
            assert!(scores.iter().map(|score| score.to_bits()).eq(expected), "{}", cpu.name());
        }
    }
}

#[test]
fn candidates_score_as_they_do_among_all_classes() {
    let data = examples();
    for cpu in levels() {
        for model in [Storage::F32, Storage::Bf16].map(|storage| model(&[24], storage)) {
            let (whole, network) = (ranked(cpu, &model, CLASSES, EXAMPLES), &model.network);
            let mut activations = Default::default();
            network.embed(cpu, &data.view(), &[5, 100], &mut activations);
            let embedding = &activations.layers[0][network.output.stride..][..network.output.stride];
            let candidates: Vec<u32> = (0..CLASSES as u32).rev().step_by(7).collect();
            let (vectors, bias) = (network.output.view(), &network.output.bias);
            let mut scratch = RescoreScratch::default();
            let found = rescore(cpu, vectors, bias, embedding, &candidates, 50, &mut scratch);
            assert_eq!(found.classes.len(), 50);
            for (class, score) in found.classes.iter().zip(found.scores) {
                assert_eq!(score.to_bits(), whole.scores[100][class], "{}", cpu.name());
            }
        }
    }
}

/// Whatever the storage: rows of bf16 are widened before they are multiplied.
#[test]
fn levels_with_fused_multiply_add_give_the_same_answers() {
    for model in [models(Storage::F32), models(Storage::Bf16)].concat() {
        let found: Vec<Answers> = fused().map(|cpu| ranked(cpu, &model, CLASSES, EXAMPLES)).collect();
        for pair in found.windows(2) {
            assert!(pair[0].scores == pair[1].scores);
            assert_eq!(pair[0].log_sum_exp, pair[1].log_sum_exp);
        }
    }
}

/// Training in every way there is. (With bf16, levels differ: AVX-512 has shorter
/// ways of its own.)
#[test]
fn levels_with_fused_multiply_add_train_the_same_model() {
    let shape = SynthOptions { classes: 300, features: 400, train: 500, test: 0, ..SynthOptions::default() };
    let (data, _) = synth(&shape).unwrap();
    let usual = TrainConfig {
        hidden: vec![24],
        epochs: 2,
        batch: 50,
        budget: Some(30),
        sparse: None,
        ..TrainConfig::default()
    };
    let mut configs: Vec<TrainConfig> =
        SamplerKind::ALL.map(|sampler| TrainConfig { sampler, ..usual.clone() }).to_vec();
    let noise = TrainConfig { loss: Some(Loss::Nce), sampler: SamplerKind::LogUniform, ..usual.clone() };
    let alone = TrainConfig { loss: Some(Loss::Logistic), sampler: SamplerKind::Mixed, ..usual.clone() };
    let counted = TrainConfig { labels_counted: 3, ..usual.clone() };
    let signs = LshConfig { family: Family::Simhash, ..LshConfig::default() };
    let deep = TrainConfig { hidden: vec![24, 40], activation: Activation::Relu, ..usual.clone() };
    let sparse = TrainConfig { sparse: Some(SparseConfig::default()), ..usual.clone() };
    configs.extend([noise, alone, counted, TrainConfig { lsh: signs, ..usual }, deep, sparse]);
    let folder = std::env::temp_dir().join(format!("lookalike-same-bits-{}", std::process::id()));
    for config in configs {
        let found: Vec<_> = fused().map(|cpu| trained(cpu, &data, config.clone(), &folder)).collect();
        for pair in found.windows(2) {
            assert!(pair[0] == pair[1], "{config:?}");
        }
    }
    _ = std::fs::remove_dir_all(folder);
}

/// The files with the parameters of a trained model and its moments.
fn trained(cpu: Cpu, data: &Dataset, config: TrainConfig, folder: &Path) -> [Vec<u8>; 2] {
    let mut trainer = Trainer::new(config, data.view(), cpu).unwrap();
    while !trainer.is_done() {
        trainer.step().unwrap();
    }
    artifact::save_checkpoint(folder, &trainer.model, &trainer.state).unwrap();
    ["model.safetensors", "training.safetensors"].map(|name| std::fs::read(folder.join(name)).unwrap())
}
