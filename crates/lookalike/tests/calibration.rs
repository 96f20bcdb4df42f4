//! Probabilities of trained models mean what they say.

use lookalike::artifact;
use lookalike::data::Dataset;
use lookalike::metrics::MetricOptions;
use lookalike::model::{LabelsPerExample, Model};
use lookalike::predict::{Ask, Predictor, Search};
use lookalike::random::{Stream, mix};
use lookalike::train::{NothingKept, Observer, RunPlan, SparseConfig, TrainConfig, Trainer, run};
use lookalike_kernels::Cpu;

const CLASSES: usize = 40;
const FEATURES: usize = 60;

struct Nobody;
impl Observer for Nobody {}

/// Examples of which a third lie about their class, so that nobody can be sure. The
/// last feature never occurs.
fn data(seed: u64, count: u64, labels: LabelsPerExample) -> Dataset {
    let mut data = Dataset::empty(FEATURES, CLASSES);
    for example in 0..count {
        let random = |place: u64, below: u64| (mix(seed, Stream::Data, example, place) % below) as u32;
        let class = random(0, CLASSES as u64);
        let noise = 40 + random(1, 19);
        let told = if random(2, 3) == 0 { random(3, CLASSES as u64) } else { class };
        let mut truth = vec![told, (class + 1) % CLASSES as u32];
        truth.sort_unstable();
        truth.dedup();
        match labels {
            LabelsPerExample::One => data.push([(class, 1.0), (noise, 0.5)], &[told]),
            LabelsPerExample::Several => data.push([(class, 1.0), (noise, 0.5)], &truth),
        }
    }
    data
}

fn config() -> TrainConfig {
    TrainConfig {
        epochs: 8,
        batch: 64,
        hidden: vec![16],
        budget: Some(20),
        lr: 0.05,
        calibrate: true,
        ..Default::default()
    }
}

fn trained(config: TrainConfig, data: &Dataset) -> Trainer<'_> {
    let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
    run(&mut trainer, &RunPlan::default(), &mut NothingKept, &mut Nobody).unwrap();
    trainer
}

fn calibration_error(model: &Model, data: &Dataset) -> f64 {
    let evaluation = Predictor::new(model, Cpu::detect())
        .evaluate(&data.view(), &|_| 0, &MetricOptions::default(), Search::Exact)
        .unwrap();
    evaluation.reliability.unwrap().values().unwrap()[0].1
}

#[test]
fn probabilities_of_new_examples_are_true() {
    for labels in [LabelsPerExample::One, LabelsPerExample::Several] {
        for sparse in [None, Some(SparseConfig { epochs: Some(3), ..Default::default() })] {
            let train = data(1, 8000, labels);
            let trainer = trained(TrainConfig { sparse, ..config() }, &train);
            let calibration = trainer.model.calibration.as_ref().unwrap();
            assert_eq!((calibration.labels, calibration.examples), (labels, 2000));
            let error = calibration_error(&trainer.model, &data(2, 4000, labels));
            assert!(error < 0.05, "{labels:?} {sparse:?}: {error}");
        }
    }
}

#[test]
fn a_distribution_adds_up_to_one_and_what_is_unknown_gets_the_prior() {
    let train = data(1, 4000, LabelsPerExample::One);
    let trainer = trained(config(), &train);
    let mut asked = Dataset::empty(FEATURES, CLASSES);
    asked.push([(3, 1.0), (45, 0.5)], &[]);
    asked.push([], &[]);
    let predictor = Predictor::new(&trainer.model, Cpu::detect());
    let ask = Ask { probabilities: true, ..Ask::best(CLASSES) };
    let ranking = predictor.rank(&asked.view(), &[0, 1], ask);
    for example in 0..2 {
        let sum: f32 = ranking.values(example).sum();
        assert!((sum - 1.0).abs() < 1e-4, "{sum}");
    }
    let counts = train.view().label_counts();
    for (&class, value) in ranking.example(1).classes.iter().zip(ranking.values(1)) {
        assert_eq!(value, counts[class as usize] as f32 / 4000.0);
    }
    // Fewer asked for, the same given; and scores are what they were.
    let few = predictor.rank(&asked.view(), &[0], Ask { probabilities: true, ..Ask::best(3) });
    let all: Vec<f32> = ranking.values(0).take(3).collect();
    assert_eq!(few.values(0).collect::<Vec<_>>(), all);
    let scores = predictor.rank(&asked.view(), &[0], Ask::best(3));
    assert_eq!(scores.example(0), few.example(0));
    // Chosen classes have the probabilities that they have among all; so have those
    // above a threshold.
    let only = [ranking.example(0).classes[30], ranking.example(0).classes[1]];
    let ask = Ask { probabilities: true, only: Some(&only), ..Ask::best(2) };
    let chosen = predictor.rank(&asked.view(), &[0], ask);
    let of = |place| ranking.values(0).nth(place).unwrap();
    assert_eq!(chosen.values(0).collect::<Vec<_>>(), [of(1), of(30)]);
    let ask = Ask { probabilities: true, threshold: Some(of(1)), ..Ask::best(CLASSES) };
    let certain = predictor.rank(&asked.view(), &[0], ask);
    assert!(certain.values(0).eq((0..CLASSES).map(of).take_while(|&value| value >= of(1))));
}

#[test]
fn it_is_saved_with_the_model_and_worthless_after_a_step() {
    let train = data(1, 2000, LabelsPerExample::Several);
    let mut trainer = trained(config(), &train);
    let folder = tempfile::tempdir().unwrap();
    artifact::save_checkpoint(&folder.path().join("m"), &trainer.model, &trainer.state).unwrap();
    let loaded = artifact::load(&folder.path().join("m")).unwrap().model;
    assert_eq!(loaded.calibration, trainer.model.calibration);
    assert!(loaded.calibration.is_some());
    trainer.state.config.epochs += 1;
    trainer.step().unwrap();
    assert!(trainer.model.calibration.is_none());
}

/// Settings that hold nothing out train on everything, as the paper does.
#[test]
fn nothing_is_held_out_unasked() {
    let train = data(1, 2000, LabelsPerExample::One);
    let trainer = trained(TrainConfig { calibrate: false, ..config() }, &train);
    assert_eq!(trainer.num_examples(), 2000);
    assert!(trainer.model.calibration.is_none() && trainer.state.held_out.is_none());
    let calibrated = trained(config(), &train);
    assert_eq!((calibrated.num_examples(), calibrated.judges()), (2000, (2000, 10)));
}

#[test]
fn any_number_of_threads_gives_the_same() {
    let train = data(1, 2000, LabelsPerExample::Several);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| trained(config(), &train).model.calibration.unwrap())
    };
    assert_eq!(with(1), with(3));
}
