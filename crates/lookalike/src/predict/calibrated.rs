//! Rankings with calibrated probabilities.

use super::ranking::TopK;
use crate::data::Examples;
use crate::model::{Calibration, Model};

/// Keeps the best classes of `wide`, a ranking of the examples in `batch`, in `out`, with
/// their probabilities. An example of which nothing is known gets the prior: of each class
/// its share of the training examples.
pub(super) fn calibrate(
    model: &Model,
    calibration: &Calibration,
    (examples, batch): (&Examples<'_>, &[u32]),
    wide: &TopK,
    out: &mut TopK,
) {
    let num_classes = model.num_classes();
    out.resize(batch.len(), num_classes);
    let mut probabilities = vec![0.0; out.scores.len()];
    for (position, &example) in batch.iter().enumerate() {
        let ranked = wide.example(position);
        let known_features = examples.features(example as usize).0.len();
        let of_example = calibration.of_example(ranked.scores, known_features, num_classes);
        let (start, len) = (position * out.stride, ranked.classes.len().min(out.stride));
        out.lens[position] = len;
        for (rank, (&class, &score)) in ranked.classes.iter().zip(ranked.scores).take(len).enumerate() {
            let place = start + rank;
            (out.classes[place], out.scores[place]) = (class, score);
            probabilities[place] = match known_features {
                0 => model.frequencies.share(class),
                _ => of_example.of(rank, score),
            };
        }
    }
    out.probabilities = Some(probabilities);
}
