//! What training steps do to the parameters, seen from outside: in which order
//! examples come, and how far rows move that are not touched by every step.

use std::collections::BTreeMap;

use lookalike::data::Dataset;
use lookalike::optim::{AdamConfig, Decay};
use lookalike::random::{Stream, below, mix};
use lookalike::sampling::SamplerKind;
use lookalike::train::{RateSchedule, TrainConfig, Trainer};
use lookalike_kernels::Cpu;

mod support {
    pub(crate) mod parameters;
    pub(crate) mod statistics;
}
use support::parameters::{Parameters, Row};
use support::statistics::assert_follows;

/// Examples that have a feature each, their own; one without a label among them.
const UNLABELLED: u32 = 2;

fn own_features(examples: u32) -> Dataset {
    let mut data = Dataset::empty(examples as usize, 3);
    for i in 0..examples {
        let label = [i % 3];
        data.push([(i, 1.0)], if i == UNLABELLED { &[] } else { &label });
    }
    data
}

/// The order in which each epoch trains on the examples, one a step: the row that
/// moves is that of the example's own feature.
fn orders(examples: u32, epochs: usize, seed: u64) -> Vec<Vec<u32>> {
    let data = own_features(examples);
    let config = TrainConfig {
        sampler: SamplerKind::Uniform,
        budget: Some(2),
        hidden: vec![2],
        batch: 1,
        lr: 1e-4,
        lr_schedule: RateSchedule::Constant,
        epochs,
        seed,
        ..TrainConfig::default()
    };
    let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
    let mut orders = vec![Vec::new(); epochs];
    let mut before = Parameters::of(&trainer).features;
    for epoch in &mut orders {
        while epoch.len() + 1 < examples as usize {
            trainer.step().unwrap();
            let after = Parameters::of(&trainer).features;
            let moved: Vec<u32> =
                (0..examples).filter(|&i| before[i as usize] != after[i as usize]).collect();
            assert_eq!(moved.len(), 1, "one example a step");
            epoch.extend(moved);
            before = after;
        }
    }
    assert!(trainer.is_done());
    orders
}

#[test]
fn every_epoch_trains_on_all_labelled_examples_in_an_order_of_its_own() {
    let in_file: Vec<u32> = (0..30).filter(|&i| i != UNLABELLED).collect();
    let seen = orders(30, 3, 1);
    for order in &seen {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, in_file);
        assert_ne!(*order, in_file);
    }
    assert!(seen[0] != seen[1] && seen[1] != seen[2] && seen[0] != seen[2]);
    assert_eq!(seen, orders(30, 3, 1), "the same for the same seed");
    assert_ne!(seen[0], orders(30, 1, 2)[0], "another for another seed");
}

#[test]
fn all_orders_are_equally_likely() {
    let mut times = BTreeMap::new();
    for order in orders(5, 2_400, 3) {
        *times.entry(order).or_insert(0) += 1;
    }
    let times: Vec<u32> = times.into_values().collect();
    assert_eq!(times.len(), 24, "all permutations of four examples");
    assert_follows(&times, |_| 1.0 / 24.0, "orders");
}

const BETA1: f64 = 0.7;
const BETA2: f64 = 0.9;
const RATE: f64 = 0.01;

/// A row at its last touch: after so many steps, and as it was then.
struct Touched {
    time: i32,
    row: Row,
}

/// That a row moved as dense Adam, as published, moves it with *some* gradient:
/// read off the first moments, it must explain the second moments and the move.
/// Moments have faded at each of the `steps` since the last touch.
#[track_caller]
fn assert_moved_by_adam(before: &Touched, steps: i32, after: &Row, time: i32, case: &str) {
    for i in 0..after.w.len() {
        let [w, m, v] = [&before.row.w, &before.row.m, &before.row.v].map(|numbers| f64::from(numbers[i]));
        let [w_now, m_now, v_now] = [&after.w, &after.m, &after.v].map(|numbers| f64::from(numbers[i]));
        let gradient = (m_now - BETA1.powi(steps) * m) / (1.0 - BETA1);
        let v_expected = BETA2.powi(steps) * v + (1.0 - BETA2) * gradient * gradient;
        let scale = v_expected.max(v_now);
        assert!(
            (v_now - v_expected).abs() <= 1e-4 * scale + 1e-12,
            "{case}: v {v_now:e}, not {v_expected:e}"
        );
        let (m_hat, v_hat) = (m_now / (1.0 - BETA1.powi(time)), v_now / (1.0 - BETA2.powi(time)));
        let w_expected = w - RATE * m_hat / (v_hat.sqrt() + 1e-8);
        assert!((w_now - w_expected).abs() < 1e-5, "{case}: w {w_now}, not {w_expected}");
    }
}

/// Trains with few candidates, so that rows rest for some steps, and checks each
/// row whenever it is touched. The longest rest is told.
fn check_rows(sampler: SamplerKind, decay: Decay, rows_of: fn(Parameters) -> Vec<Row>) -> i32 {
    let mut data = Dataset::empty(30, 20);
    for i in 0..24 {
        let random = |place, bound| below(mix(9, Stream::Data, i, place), bound);
        data.push([(random(0, 10), 1.0), (10 + random(1, 20), 0.5)], &[random(2, 20)]);
    }
    let adam = AdamConfig { beta1: BETA1 as f32, beta2: BETA2 as f32, decay, ..AdamConfig::default() };
    let config = TrainConfig {
        sampler,
        adam,
        budget: Some(3),
        hidden: vec![5],
        batch: 2,
        lr: RATE as f32,
        lr_schedule: RateSchedule::Constant,
        ..TrainConfig::default()
    };
    let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).unwrap();
    let mut rows: Vec<Touched> =
        rows_of(Parameters::of(&trainer)).into_iter().map(|row| Touched { time: 0, row }).collect();
    let mut longest = 0;
    for time in 1..=60 {
        trainer.step().unwrap();
        for (i, (before, after)) in rows.iter_mut().zip(rows_of(Parameters::of(&trainer))).enumerate() {
            if before.row == after {
                continue;
            }
            let missed = if before.time == 0 { 0 } else { time - before.time - 1 };
            let steps = if decay == Decay::Exact { missed + 1 } else { 1 };
            let case = format!("{sampler}, {decay:?}, row {i} at step {time} after {missed} without");
            assert_moved_by_adam(before, steps, &after, time, &case);
            longest = longest.max(missed);
            *before = Touched { time, row: after };
        }
    }
    longest
}

/// `exact`: a row's moments fade while it rests, as dense Adam's do; `lazy`: they
/// wait. Class rows are checked with their biases.
#[test]
fn rows_that_rested_move_as_the_decay_says() {
    let classes = |all: Parameters| all.classes;
    for decay in [Decay::Exact, Decay::Lazy] {
        for sampler in [SamplerKind::Uniform, SamplerKind::LshLabel, SamplerKind::TopK] {
            let rest = check_rows(sampler, decay, classes);
            assert!(rest > 3, "{sampler}: class rows rested {rest} steps at most");
        }
        assert_eq!(check_rows(SamplerKind::Full, decay, classes), 0);
        assert!(check_rows(SamplerKind::Uniform, decay, |all| all.features) > 3);
    }
}
