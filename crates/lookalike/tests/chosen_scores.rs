//! The score of a class does not depend on what else is asked for: chosen classes
//! score what they score in a ranking of all, to the bit, with every part of a model.

use lookalike::data::Dataset;
use lookalike::model::{
    Activation, ClassFrequencies, Init, MeanRows, Model, Neighbours, Network, NetworkConfig, Normalise,
    SparsePart, SparseStart, Storage,
};
use lookalike::predict::{Ask, Predictor};
use lookalike::random::{Stream, mix};
use lookalike_kernels::Cpu;

const FEATURES: usize = 50;
const CLASSES: usize = 400;
const EXAMPLES: usize = 90;

fn data() -> Dataset {
    let mut data = Dataset::empty(FEATURES, CLASSES);
    for example in 0..EXAMPLES as u64 {
        let random = |place| mix(8, Stream::Data, example, place);
        let mut ids: Vec<u32> = (0..6).map(|i| (random(i) % FEATURES as u64) as u32).collect();
        ids.sort_unstable();
        ids.dedup();
        let values = ids.iter().map(|&id| (id, 0.3 + (random(10 + u64::from(id)) % 100) as f32 / 70.0));
        data.push(values, &[(random(9) % CLASSES as u64) as u32]);
    }
    data
}

#[derive(Clone, Copy, Debug)]
enum Parts {
    Network,
    Sparse,
    Neighbours,
    Both,
}

fn model(data: &Dataset, storage: Storage, parts: Parts) -> Model {
    let config = NetworkConfig {
        num_features: FEATURES,
        num_classes: CLASSES,
        hidden: vec![21],
        activation: Activation::Relu,
        normalise: Normalise::L2,
        storage,
    };
    let mut network = Network::random(config, Init::default(), 3);
    network.output.bias.iter_mut().zip(0..).for_each(|(bias, i)| *bias = 0.013 * (i % 17) as f32);
    let mut model = Model::new(network, ClassFrequencies::of(&data.view()));
    let all: Vec<u32> = (0..EXAMPLES as u32).collect();
    if matches!(parts, Parts::Sparse | Parts::Both) {
        let start = MeanRows { start: SparseStart::LogMean, length: 3.0, entries_max: 30 };
        let counts = &model.frequencies.examples_of_class;
        let (mut sparse, _) = SparsePart::from_means(&data.view(), &all, Normalise::L2, start, counts);
        sparse.set_blend(0.37);
        model.sparse = Some(sparse);
    }
    if matches!(parts, Parts::Neighbours | Parts::Both) {
        model.neighbours = Some(Neighbours::new(&data.view(), &all[..60]).weighted(0.21));
    }
    model
}

/// The score of each class for each example, by a ranking of all classes.
fn ranked(predictor: &Predictor<&Model>, data: &Dataset) -> Vec<u32> {
    let mut scores = vec![0; EXAMPLES * CLASSES];
    let all: Vec<u32> = (0..EXAMPLES as u32).collect();
    for batch in all.chunks(7) {
        let ranking = predictor.rank(&data.view(), batch, Ask::best(CLASSES));
        for (position, &example) in batch.iter().enumerate() {
            let ranked = ranking.example(position);
            assert_eq!(ranked.classes.len(), CLASSES);
            for (&class, score) in ranked.classes.iter().zip(ranked.scores) {
                scores[example as usize * CLASSES + class as usize] = score.to_bits();
            }
        }
    }
    scores
}

#[test]
fn chosen_classes_score_what_they_score_among_all() {
    let data = data();
    let all_classes: Vec<u32> = (0..CLASSES as u32).collect();
    let some: Vec<u32> = (0..300u32).map(|i| i * 7 % 400).collect();
    // In any order, and one of them twice.
    let few = [399, 0, 256, 12, 0];
    let batches: [Vec<u32>; 3] =
        [(0..EXAMPLES as u32).collect(), vec![5], vec![88, 2, 2, 40, 41, 7, 3, 9, 10]];
    for storage in [Storage::F32, Storage::Bf16] {
        for parts in [Parts::Network, Parts::Sparse, Parts::Neighbours, Parts::Both] {
            let model = model(&data, storage, parts);
            let predictor = Predictor::new(&model, Cpu::detect());
            let expected = ranked(&predictor, &data);
            for batch in &batches {
                for classes in [&all_classes[..], &some, &few, &[17], &[]] {
                    let scores = predictor.scores(&data.view(), batch, classes);
                    assert_eq!(scores.len(), batch.len() * classes.len());
                    let wanted = batch.iter().flat_map(|&example| {
                        classes.iter().map(move |&class| example as usize * CLASSES + class as usize)
                    });
                    for (score, place) in scores.iter().zip(wanted) {
                        assert_eq!(score.to_bits(), expected[place], "{storage:?} {parts:?} {place}");
                    }
                }
            }
        }
    }
}

#[test]
fn threads_change_nothing() {
    let data = data();
    let model = model(&data, Storage::F32, Parts::Both);
    let batch: Vec<u32> = (0..EXAMPLES as u32).collect();
    let run = |threads: usize| -> Vec<u32> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let predictor = Predictor::new(&model, Cpu::detect());
        let scores = pool.install(|| predictor.scores(&data.view(), &batch, &[3, 1, 4, 200]));
        scores.iter().map(|score| score.to_bits()).collect()
    };
    assert_eq!(run(1), run(3));
}

/// A class that is asked for alone has the score and the probability that it has among
/// all, whatever order the classes are named in.
#[test]
fn only_some_classes_are_ranked_as_among_all() {
    let data = data();
    let batch: Vec<u32> = (0..EXAMPLES as u32).collect();
    let only = [399, 0, 256, 12, 0, 17];
    for parts in [Parts::Network, Parts::Both] {
        let model = model(&data, Storage::F32, parts);
        let predictor = Predictor::new(&model, Cpu::detect());
        let ask = Ask { probabilities: true, ..Ask::best(CLASSES) };
        let all = predictor.rank(&data.view(), &batch, ask);
        let some = predictor.rank(&data.view(), &batch, Ask { k: 4, only: Some(&only), ..ask });
        for example in 0..EXAMPLES {
            let values = all.values(example).map(f32::to_bits);
            let expected: Vec<(u32, u32)> =
                all.example(example).classes.iter().copied().zip(values).collect();
            let expected = expected.into_iter().filter(|(class, _)| only.contains(class)).take(4);
            let values = some.values(example).map(f32::to_bits);
            let found = some.example(example).classes.iter().copied().zip(values);
            assert!(found.eq(expected), "{parts:?}, example {example}");
        }
        let none = predictor.rank(&data.view(), &batch, Ask { only: Some(&[]), ..ask });
        assert!((0..EXAMPLES).all(|example| none.example(example).classes.is_empty()));
    }
}

#[test]
fn a_threshold_leaves_what_reaches_it() {
    let data = data();
    let batch: Vec<u32> = (0..EXAMPLES as u32).collect();
    let model = model(&data, Storage::F32, Parts::Both);
    let predictor = Predictor::new(&model, Cpu::detect());
    for (probabilities, only) in [(false, None), (true, None), (true, Some(&[5, 1, 9][..]))] {
        let ask = Ask { probabilities, only, ..Ask::best(20) };
        let all = predictor.rank(&data.view(), &batch, ask);
        let threshold = all.values(3).nth(1).unwrap();
        let left = predictor.rank(&data.view(), &batch, Ask { threshold: Some(threshold), ..ask });
        assert_eq!(left.example(3).classes.len(), 2);
        for example in 0..EXAMPLES {
            let expected = all.values(example).filter(|&value| value >= threshold);
            assert!(left.values(example).eq(expected));
        }
    }
}
