use lookalike_kernels::Cpu;
use proptest::prelude::*;

use crate::data::Dataset;
use crate::model::{
    Activation, ClassFrequencies, Init, Model, Neighbours, Network, NetworkConfig, Normalise, SparsePart,
    SparseStart, Storage,
};
use crate::predict::{Ask, Predictor, TopK};
use crate::random::{Stream, mix};

const FEATURES: usize = 40;
const EXAMPLES: usize = 37;

/// Between -1 and 1.
fn number(seed: u64, row: usize, column: usize) -> f32 {
    (mix(seed, Stream::Data, row as u64, column as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// Examples of none to some dozen features.
fn data(classes: usize, seed: u64) -> Dataset {
    let mut data = Dataset::empty(FEATURES, classes);
    for example in 0..EXAMPLES {
        let share = (example % 7) as f32 / 3.0 - 1.0;
        let has = |&feature: &usize| number(seed, example, 100 + feature) < share;
        let row = (0..FEATURES).filter(has).map(|feature| (feature as u32, number(seed, example, feature)));
        let mut labels = [(example * 7 % classes) as u32, (example * 31 % classes) as u32];
        labels.sort_unstable();
        data.push(row, if labels[0] == labels[1] { &labels[..1] } else { &labels });
    }
    data
}

/// Classes with weights on frequent features (the first ten) and on rare ones; where numbers are
/// `coarse` they are few, so that many classes tie.
fn model(classes: usize, width: usize, storage: Storage, seed: u64, coarse: bool) -> Model {
    let config = NetworkConfig {
        num_features: FEATURES,
        num_classes: classes,
        hidden: vec![width],
        activation: Activation::Linear,
        normalise: Normalise::L2,
        storage,
    };
    let mut network = Network::random(config, Init::default(), seed);
    let stepped = |x: f32| if coarse { (2.0 * x).round() / 2.0 } else { x };
    for (class, bias) in network.output.bias.iter_mut().enumerate() {
        *bias = stepped(number(seed, class, 7));
    }
    let (mut lengths, mut features, mut weights) = (vec![], vec![], vec![]);
    for class in 0..classes {
        let before = features.len();
        for feature in 0..FEATURES {
            let share = if feature < 10 { 0.3 } else { 0.01 };
            if number(seed, class, 100 + feature) < 2.0 * share - 1.0 {
                features.push(feature as u32);
                weights.push(stepped(3.0 * number(seed, class, 200 + feature)));
            }
        }
        lengths.push((features.len() - before) as u32);
    }
    let counts: Vec<u32> = (0..classes as u32).map(|class| 1 + class % 9).collect();
    let sparse = SparsePart::from_parts(&lengths, features, weights, (0.7, SparseStart::Centroid), &counts);
    Model { sparse: Some(sparse), ..Model::new(network, ClassFrequencies::default()) }
}

/// The same with training examples.
fn with_examples(model: Model, seed: u64) -> Model {
    let data = data(model.num_classes(), seed);
    let kept: Vec<u32> = (0..EXAMPLES as u32).step_by(3).collect();
    Model { neighbours: Some(Neighbours::new(&data.view(), &kept).weighted(0.8)), ..model }
}

fn answers(best: &TopK) -> Vec<Vec<(u32, u32)>> {
    let of = |example| {
        let ranked = best.example(example);
        ranked.classes.iter().copied().zip(ranked.scores.iter().map(|score| score.to_bits())).collect()
    };
    (0..best.len()).map(of).collect()
}

/// Sums over all classes take an exact score of each: those rankings are the measure.
fn check(model: &Model, k: usize, seed: u64) {
    let data = data(model.num_classes(), seed);
    let batch: Vec<u32> = (0..EXAMPLES as u32).collect();
    for cpu in Cpu::available() {
        let predictor = Predictor::new(model, cpu);
        let of_all = predictor.rank(&data.view(), &batch, Ask { probabilities: true, ..Ask::best(k) });
        let expected = answers(&of_all);
        assert_eq!(answers(&predictor.rank(&data.view(), &batch, Ask::best(k))), expected, "{}", cpu.name());
        for (&example, expected) in batch.iter().zip(&expected).step_by(6) {
            let alone = predictor.rank(&data.view(), &[example], Ask::best(k));
            assert_eq!(&answers(&alone)[0], expected, "{}", cpu.name());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn rankings_are_those_of_exact_scores(
        classes in 100usize..900, width in 1usize..40, k in 1usize..7, coarse: bool, seed in 0u64..1000,
    ) {
        check(&model(classes, width, Storage::F32, seed, coarse), k, seed);
        check(&model(classes, width, Storage::Bf16, seed, coarse), k, seed);
        check(&with_examples(model(classes, width, Storage::F32, seed, coarse), seed), k, seed);
    }
}

/// Several tiles, several ranges, with a ragged end.
#[test]
fn threads_and_borders_change_nothing() {
    let model = with_examples(model(2 * super::scan::TILE_CLASSES + 100, 12, Storage::F32, 3, true), 5);
    for threads in [1, 3, 8] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| check(&model, 20, 5));
    }
}

/// One number of a class vector may be larger than all others together, or all may be zero.
#[test]
fn no_model_is_too_strange() {
    let mut strange = model(500, 20, Storage::F32, 1, false);
    let stride = strange.network.output.stride;
    if let crate::model::Numbers::F32(numbers) = &mut strange.network.output.weights {
        numbers[7 * stride] = 1e6;
        numbers[..stride].fill(0.0);
        numbers[11 * stride] = -1e-30;
    }
    check(&strange, 5, 2);
    // What overflows is bounded by nothing: each class is scored.
    for bias in &mut strange.network.input_bias {
        *bias = 3e38;
    }
    check(&strange, 5, 2);
    strange.network.output.bias.fill(f32::NEG_INFINITY);
    check(&strange, 5, 2);
    let mut zero = model(500, 20, Storage::F32, 1, false);
    zero.sparse = None;
    zero.network.output.weights = crate::model::Numbers::zeroed(Storage::F32, 500 * stride);
    zero.network.output.bias.fill(0.0);
    check(&zero, 5, 2);
}
