use super::*;
use crate::data::Dataset;
use crate::data::synth::{SynthOptions, synth};
use crate::train::{ClassStart, TrainConfig};
use lookalike_kernels::Cpu;

fn target(scores: &[f32], labels: &[u32]) -> Target {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    order.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b)));
    let sorted: Vec<f32> = order.iter().map(|&class| scores[class as usize]).collect();
    Target::new(Ranked { classes: &order, scores: &sorted }, labels, scores.len())
}

fn drawn(counts: &[u32]) -> Draws {
    Draws { counts: counts.into(), total: counts.iter().map(|&c| u64::from(c)).sum(), mass: 0.0 }
}

#[test]
fn the_target_is_the_softmax_over_negatives() {
    let target = target(&[0.0, 2f32.ln(), 5f32.ln(), 9.0], &[3]);
    assert_eq!(target.order, [2, 1, 0]);
    for (p, expected) in target.p.iter().zip([0.125, 0.25, 0.625, 0.0]) {
        assert!((p - expected).abs() < 1e-6, "{p} is not {expected}");
    }
}

#[test]
fn correlation_is_that_of_ranks() {
    let target = target(&[4.0, 3.0, 2.0, 1.0], &[]);
    let ranges = rank_ranges(4);
    let correlation = |counts: &[u32]| target.compare(&drawn(counts), &ranges).correlation;
    assert!((correlation(&[90, 9, 2, 1]).unwrap() - 1.0).abs() < 1e-12);
    assert!((correlation(&[1, 2, 9, 90]).unwrap() + 1.0).abs() < 1e-12);
    assert_eq!(correlation(&[5, 5, 5, 5]), None);
    // Ranks 1.5, 1.5, 3.5, 3.5 against 1, 2, 3, 4: 4 / sqrt(4 · 5).
    assert!((correlation(&[7, 7, 0, 0]).unwrap() - 4.0 / 20f64.sqrt()).abs() < 1e-12);
}

#[test]
fn ranges_cover_every_rank_once() {
    for classes in [1, 2, 7, 1000] {
        let mut next = 1;
        for range in rank_ranges(classes) {
            assert_eq!(range.first, next);
            assert!(range.last >= range.first);
            next = range.last + 1;
        }
        assert_eq!(next, classes + 1);
    }
}

#[test]
fn chosen_inputs_are_distinct_labelled_and_repeatable() {
    let mut data = Dataset::empty(4, 3);
    for i in 0..50u32 {
        data.push([(0, 1.0)], if i % 2 == 0 { &[1][..] } else { &[] });
    }
    let mut chosen = choose_inputs(&data.view(), 20, 3);
    assert_eq!(chosen, choose_inputs(&data.view(), 20, 3));
    assert_ne!(chosen, choose_inputs(&data.view(), 20, 4));
    chosen.sort_unstable();
    chosen.dedup();
    assert!(chosen.len() == 20 && chosen.iter().all(|i| i % 2 == 0));
    assert_eq!(choose_inputs(&data.view(), 99, 3).len(), 25);
}

/// The claim itself: once something is learned, hashing covers far more of the
/// probability than static draws, and top-k is the bound.
#[test]
fn hashing_follows_a_trained_model_and_static_samplers_do_not() {
    let shape = SynthOptions {
        classes: 400,
        features: 2000,
        train: 4000,
        test: 1,
        noise: 0.0,
        classes_per_cluster: 8,
        ..SynthOptions::default()
    };
    let (train, _) = synth(&shape).unwrap();
    let config = TrainConfig {
        hidden: vec![64],
        batch: 100,
        epochs: 6,
        lr: 5e-3,
        budget: Some(20),
        sampler: SamplerKind::Full,
        // At the start all classes are much alike.
        class_start: ClassStart::Random,
        ..TrainConfig::default()
    };
    let examples = train.view();
    let options = AdaptOptions {
        samplers: vec![
            SamplerKind::TopK,
            SamplerKind::LshEmbedding,
            SamplerKind::LshLabel,
            SamplerKind::Uniform,
            SamplerKind::Frequency,
        ],
        inputs: 24,
        draws: 50,
    };
    let inputs = choose_inputs(&examples, options.inputs, 1);
    let mut trainer = Trainer::new(config, examples, Cpu::detect()).unwrap();
    let start = snapshot(&trainer, &examples, &inputs, &options).unwrap();
    while !trainer.is_done() {
        trainer.step().unwrap();
    }
    let later = snapshot(&trainer, &examples, &inputs, &options).unwrap();
    assert_eq!((start.iteration, later.iteration, later.epoch), (0, 240, 6.0));
    assert_eq!(later, snapshot(&trainer, &examples, &inputs, &options).unwrap(), "the same again");

    let [top, embedding, label, uniform, frequency] = &later.samplers[..] else { panic!("five samplers") };
    assert!(embedding.mass_covered > 3.0 * uniform.mass_covered, "{later:?}");
    assert!(label.mass_covered > 3.0 * uniform.mass_covered, "{later:?}");
    assert!(embedding.rank_correlation > frequency.rank_correlation, "{later:?}");
    // They are the best of more, and nothing but these.
    assert_eq!((embedding.negatives_mean, label.negatives_mean), (20.0, 20.0));
    assert!(embedding.mass_covered > 0.8 * top.mass_covered, "{later:?}");
    for sampler in &later.samplers {
        assert!(sampler.mass_covered <= top.mass_covered + 1e-6, "top-k is the bound: {later:?}");
        assert!(sampler.negatives_mean <= 20.0);
    }
    // Uniform draws cover C / M whatever the model.
    assert!((uniform.mass_covered - 0.05).abs() < 0.02, "{later:?}");
    assert!(later.truth_by_rank[0] > 5.0 * start.truth_by_rank[0], "{start:?} {later:?}");
}
