//! Shards of an output layer, each with a reducer, against the whole layer.

use lookalike_kernels::{Cpu, bf16};

use super::*;
use crate::collective::{Alone, RANGES, Ranges, Threads};
use crate::data::Dataset;
use crate::loss::Loss;
use crate::model::{Embeddings, Numbers, Storage};
use crate::optim::Adam;
use crate::sampling::Candidates;

const CLASSES: usize = 700;
/// Of two members sixteen each.
const DIM: usize = 32;
const EXAMPLES: usize = 30;

fn number(row: usize, column: usize) -> f32 {
    (mix(3, Stream::Data, row as u64, column as u64) % 2000) as f32 / 1000.0 - 1.0
}

/// The classes of a range, as one shard has them.
fn rows(classes: std::ops::Range<usize>) -> Rows {
    stored_rows(classes, Storage::F32)
}

fn stored_rows(classes: std::ops::Range<usize>, storage: Storage) -> Rows {
    let mut rows = Rows::zeroed(classes.len(), DIM, storage, true);
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

fn embeddings(length: f32) -> Vec<f32> {
    (0..EXAMPLES * DIM).map(|i| length * number(i / DIM, 200 + i % DIM)).collect()
}

/// What a shard's step leaves: loss, gradient of embeddings, weights and biases.
type Outcome = (f64, Vec<f32>, Vec<f32>, Vec<f32>);

fn step(ranges: Ranges, loss: Loss, (is_full, members): (bool, usize), reducer: &mut dyn Reducer) -> Outcome {
    step_with(&embeddings(1.0), ranges, loss, (is_full, members), reducer)
}

fn context(loss: Loss) -> StepContext {
    StepContext {
        cpu: Cpu::detect(),
        adam: Adam::gradient_descent(1.0),
        seed: 1,
        iteration: 0,
        loss,
        members: 1,
        labels_counted: 2,
        candidates: CLASSES / 11,
        corrects_log_q: false,
        keep: None,
        clip: None,
        frozen_features: 0,
    }
}

fn step_with(
    embeddings: &[f32],
    ranges: Ranges,
    loss: Loss,
    (is_full, members): (bool, usize),
    reducer: &mut dyn Reducer,
) -> Outcome {
    let classes = ranges.keys();
    let mut rows = rows(classes.clone());
    let mut moments = RowMoments::of(&rows);
    let context = StepContext { members, ..context(loss) };
    let view = Embeddings::padded(embeddings, DIM);
    let mut gradient = vec![0.0; EXAMPLES * DIM];
    let layer = OutputLayer { rows: &mut rows, moments: &mut moments, ranges, reducer };
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

fn sharded(ranks: usize, loss: Loss, kind: (bool, usize)) -> Vec<Outcome> {
    Threads::run(ranks, |collective| {
        let ranges = Ranges::of_rank(CLASSES, collective.rank(), ranks);
        step(ranges, loss, kind, &mut &*collective)
    })
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= tolerance, "{what} {i}: {found} and {expected}");
    }
}

#[test]
fn shards_move_as_the_whole_layer_does() {
    let sampled = [Loss::Softmax, Loss::SoftmaxEach, Loss::Nce, Loss::Logistic];
    let alone = sampled.map(|loss| (loss, (false, 1)));
    let committees = sampled.map(|loss| (loss, (false, 2)));
    for (loss, kind) in alone.into_iter().chain(committees).chain([(Loss::Softmax, (true, 1))]) {
        let whole = step(Ranges::whole(CLASSES), loss, kind, &mut Alone);
        for ranks in [2, 3, 4, 5, 8] {
            // As long as the ranges are those of one process, so are the bits.
            let tolerance = if RANGES.is_multiple_of(ranks) { 0.0 } else { 2e-6 };
            let shards = sharded(ranks, loss, kind);
            for shard in &shards {
                let difference = (shard.0 - whole.0).abs();
                assert!(difference <= f64::from(tolerance), "loss {} and {}", shard.0, whole.0);
                assert_close(&shard.1, &whole.1, tolerance, "gradient");
            }
            let joined = |part: fn(&Outcome) -> &[f32]| shards.iter().map(part).collect::<Vec<_>>().concat();
            assert_close(&joined(|shard| &shard.2), &whole.2, tolerance, "weights");
            assert_close(&joined(|shard| &shard.3), &whole.3, tolerance, "biases");
        }
    }
}

/// Scores of some thousands, whose exponentials no float holds.
#[test]
fn large_scores_do_not_overflow() {
    for (loss, is_full) in [(Loss::Softmax, false), (Loss::SoftmaxEach, false), (Loss::Softmax, true)] {
        let (total, gradient, weights, biases) =
            step_with(&embeddings(1e3), Ranges::whole(CLASSES), loss, (is_full, 1), &mut Alone);
        assert!(total.is_finite() && total > 0.0, "{loss:?}: loss {total}");
        for numbers in [gradient, weights, biases] {
            assert!(numbers.iter().all(|x| x.is_finite()), "{loss:?}, every class: {is_full}");
        }
    }
}

/// Rows in half precision, with embeddings rounded for them, move as those in single
/// precision do, up to what rounding takes.
#[test]
fn a_committee_of_rounded_rows_moves_as_another_does() {
    for members in [1, 2] {
        let run = |storage| {
            let mut rows = stored_rows(0..CLASSES, storage);
            let mut moments = RowMoments::of(&rows);
            let context = StepContext { members, ..context(Loss::SoftmaxEach) };
            let (embeddings, mut gradient) = (embeddings(1.0), vec![0.0; EXAMPLES * DIM]);
            let proposed =
                Proposed { candidates: &candidates(&(0..CLASSES)), class_log_q: None, weights: &weights() };
            let (ranges, reducer) = (Ranges::whole(CLASSES), &mut Alone);
            let layer = OutputLayer { rows: &mut rows, moments: &mut moments, ranges, reducer };
            let view = Embeddings::padded(&embeddings, DIM);
            let loss = SampledStep::default().run(&context, layer, proposed, view, &mut gradient);
            let weights = match &rows.weights {
                Numbers::F32(weights) => weights.to_vec(),
                Numbers::Bf16(weights) => weights.iter().map(|x: &bf16| x.to_f32()).collect(),
            };
            (loss, gradient, weights)
        };
        let (single, half) = (run(Storage::F32), run(Storage::Bf16));
        assert!((single.0 - half.0).abs() < 0.01 * single.0, "loss {} and {}", single.0, half.0);
        let largest = single.1.iter().fold(0f32, |max, x| max.max(x.abs()));
        assert_close(&half.1, &single.1, 0.02 * largest, "gradient");
        assert_close(&half.2, &single.2, 0.02, "weights");
    }
}

/// The copy that selects is that of the class vectors, however they have moved: a run that
/// goes on makes it anew.
#[test]
fn the_copy_in_bytes_follows_the_class_vectors() {
    let (mut rows, embeddings) = (rows(0..CLASSES), embeddings(1.0));
    let mut moments = RowMoments::of(&rows);
    let context = StepContext { keep: Some(20), ..context(Loss::Softmax) };
    let mut step = SampledStep::default();
    let mut copies = Vec::new();
    for _ in 0..2 {
        let proposed =
            Proposed { candidates: &candidates(&(0..CLASSES)), class_log_q: None, weights: &weights() };
        let layer = OutputLayer {
            rows: &mut rows,
            moments: &mut moments,
            ranges: Ranges::whole(CLASSES),
            reducer: &mut Alone,
        };
        let view = Embeddings::padded(&embeddings, DIM);
        step.run(&context, layer, proposed, view, &mut [0.0; EXAMPLES * DIM]);
        assert!(step.num_trained_pairs() < step.num_pairs(), "the best are selected");
        let Numbers::F32(weights) = &rows.weights else { panic!("single precision here") };
        let mut fresh = coded::CodedClasses::default();
        fresh.prepare(context.cpu, weights, rows.stride);
        assert!(step.selection.classes == fresh);
        copies.push(fresh);
    }
    assert!(copies[0] != copies[1], "rows have moved");
}
