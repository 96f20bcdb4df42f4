//! Rankings with calibrated probabilities.

use rayon::prelude::*;

use super::ranking::TopK;
use crate::data::Examples;
use crate::model::{Calibration, Model};

/// The probabilities of the classes in `ranking`, beside its scores. `best` has the best
/// [`RANKS`](crate::model::RANKS) of all classes, or more, for the same examples. An
/// example of which nothing is known gets the prior: of each class its share of the
/// training examples.
pub(super) fn calibrate(
    model: &Model,
    calibration: &Calibration,
    (examples, batch): (&Examples<'_>, &[u32]),
    best: &TopK,
    ranking: &TopK,
) -> Vec<f32> {
    let mut probabilities = vec![0.0; ranking.scores.len()];
    let rows = probabilities.par_chunks_mut(ranking.stride.max(1)).zip(batch).enumerate();
    rows.for_each(|(position, (row, &example))| {
        let known_features = examples.features(example as usize).0.len();
        let scores = best.example(position).scores;
        let of_example = calibration.of_example(scores, known_features, model.num_classes());
        let ranked = ranking.example(position);
        for ((probability, &class), &score) in row.iter_mut().zip(ranked.classes).zip(ranked.scores) {
            *probability = of_example.of(score, model.frequencies.share(class));
        }
    });
    probabilities
}
