//! Two shards of an output layer, each with a reducer, against the whole layer.

use std::sync::{Barrier, Mutex};

use lookalike_kernels::Cpu;

use super::*;
use crate::collective::Alone;
use crate::data::Dataset;
use crate::loss::Loss;
use crate::model::{Embeddings, Numbers, Storage};
use crate::optim::Adam;
use crate::sampling::Candidates;

const CLASSES: usize = 700;
/// Where the second shard begins.
const CUT: usize = 265;
const DIM: usize = 16;
const EXAMPLES: usize = 30;

fn number(row: usize, column: usize) -> f32 {
    (mix(3, Stream::Data, row as u64, column as u64) % 2000) as f32 / 1000.0 - 1.0
}

/// The classes of a range, as one shard has them.
fn rows(classes: std::ops::Range<usize>) -> Rows {
    let mut rows = Rows::zeroed(classes.len(), DIM, Storage::F32, true);
    rows.fill(|row, values| {
        values.iter_mut().enumerate().for_each(|(i, x)| *x = number(classes.start + row, i));
    });
    rows.bias = classes.map(|class| number(class, 100)).collect();
    rows
}

fn labels(example: usize) -> Vec<u32> {
    let mut labels: Vec<u32> =
        (0..example % 4).map(|i| ((example * 97 + i * 211) % CLASSES) as u32).collect();
    labels.sort_unstable();
    labels
}

fn weights() -> Vec<f32> {
    (0..EXAMPLES).map(|example| (example % 5) as f32 * 0.5).collect()
}

fn data() -> Dataset {
    let mut data = Dataset::empty(1, CLASSES);
    (0..EXAMPLES).for_each(|example| data.push([(0, 1.0)], &labels(example)));
    data.weights = weights();
    data
}

/// Each example's labels and every eleventh class, of those in a range.
fn candidates(classes: &std::ops::Range<usize>) -> Candidates {
    let mut candidates = Candidates::new();
    candidates.reset(EXAMPLES, CLASSES);
    candidates.par_blocks_mut(1).for_each(|mut block| {
        let example = block.positions().start;
        let here = |class: &u32| classes.contains(&(*class as usize));
        let truths: Vec<u32> = labels(example).into_iter().filter(here).collect();
        let found = (0..CLASSES as u32).filter(|class| (*class as usize + example).is_multiple_of(11));
        let found: Vec<u32> = found.filter(here).filter(|class| !labels(example).contains(class)).collect();
        let slot = block.slots().next().expect("one example a block");
        let all = truths.iter().chain(&found).map(|class| class - classes.start as u32);
        slot.classes.iter_mut().zip(all).for_each(|(place, class)| *place = class);
        (slot.counts.truths, slot.counts.found) = (truths.len() as u32, found.len() as u32);
    });
    candidates
}

fn embeddings() -> Vec<f32> {
    (0..EXAMPLES * DIM).map(|i| number(i / DIM, 200 + i % DIM)).collect()
}

/// What a shard's step leaves: loss, gradient of embeddings, weights and biases.
type Outcome = (f64, Vec<f32>, Vec<f32>, Vec<f32>);

fn step(classes: std::ops::Range<usize>, loss: Loss, is_full: bool, reducer: &mut dyn Reducer) -> Outcome {
    let mut rows = rows(classes.clone());
    let mut moments = RowMoments::of(&rows);
    let context = StepContext {
        cpu: Cpu::detect(),
        adam: Adam::gradient_descent(1.0),
        seed: 1,
        iteration: 0,
        loss,
        corrects_log_q: false,
        keep: None,
    };
    let embeddings = embeddings();
    let view = Embeddings::padded(&embeddings, DIM);
    let mut gradient = vec![0.0; EXAMPLES * DIM];
    let layer = OutputLayer { rows: &mut rows, moments: &mut moments, first_class: classes.start, reducer };
    let loss = if is_full {
        let (data, batch) = (data(), (0..EXAMPLES as u32).collect::<Vec<_>>());
        FullStep::default().run(&context, layer, &data.view(), &batch, view, &mut gradient)
    } else {
        let proposed = Proposed { candidates: &candidates(&classes), class_log_q: None, weights: &weights() };
        SampledStep::default().run(&context, layer, proposed, view, &mut gradient)
    };
    let Numbers::F32(weights) = &rows.weights else { panic!("single precision here") };
    (loss, gradient, weights.to_vec(), rows.bias.clone())
}

/// Shards in threads of one process, who wait for each other at every reduction.
struct Shard<'a> {
    rank: usize,
    places: &'a Mutex<Vec<Vec<f64>>>,
    barrier: &'a Barrier,
}

impl Shard<'_> {
    fn join(&mut self, values: &mut [f64], join: fn(f64, f64) -> f64) {
        self.places.lock().unwrap()[self.rank] = values.to_vec();
        self.barrier.wait();
        let places = self.places.lock().unwrap().clone();
        for (i, value) in values.iter_mut().enumerate() {
            *value = places[1..].iter().fold(places[0][i], |all, other| join(all, other[i]));
        }
        self.barrier.wait();
    }

    fn join_f32(&mut self, values: &mut [f32], join: fn(f64, f64) -> f64) {
        let mut wide: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
        self.join(&mut wide, join);
        values.iter_mut().zip(wide).for_each(|(value, x)| *value = x as f32);
    }
}

impl Reducer for Shard<'_> {
    fn maxima(&mut self, values: &mut [f32]) {
        self.join_f32(values, f64::max);
    }
    fn sums(&mut self, values: &mut [f32]) {
        self.join_f32(values, |a, b| a + b);
    }
    fn sums_f64(&mut self, values: &mut [f64]) {
        self.join(values, |a, b| a + b);
    }
}

fn sharded(loss: Loss, is_full: bool) -> [Outcome; 2] {
    let (places, barrier) = (Mutex::new(vec![Vec::new(); 2]), Barrier::new(2));
    std::thread::scope(|scope| {
        let shards = [0..CUT, CUT..CLASSES].into_iter().enumerate().map(|(rank, classes)| {
            let (places, barrier) = (&places, &barrier);
            scope.spawn(move || {
                // A pool of its own: a shard that waits must not hold a thread of the other.
                let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
                pool.install(|| step(classes, loss, is_full, &mut Shard { rank, places, barrier }))
            })
        });
        let shards: Vec<_> = shards.collect();
        let mut outcomes = shards.into_iter().map(|shard| shard.join().unwrap());
        [outcomes.next().unwrap(), outcomes.next().unwrap()]
    })
}

fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < 2e-6, "{what} {i}: {found} and {expected}");
    }
}

#[test]
fn two_shards_move_as_the_whole_layer_does() {
    for (loss, is_full) in [(Loss::Softmax, false), (Loss::Softmax, true), (Loss::Nce, false)] {
        let whole = step(0..CLASSES, loss, is_full, &mut Alone);
        let [first, second] = sharded(loss, is_full);
        for shard in [&first, &second] {
            assert!((shard.0 - whole.0).abs() < 1e-6, "loss {} and {}", shard.0, whole.0);
            assert_close(&shard.1, &whole.1, "gradient");
        }
        assert_close(&[first.2, second.2].concat(), &whole.2, "weights");
        assert_close(&[first.3, second.3].concat(), &whole.3, "biases");
    }
}
