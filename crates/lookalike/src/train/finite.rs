//! Numbers gone wrong: which tensor was the first that is not finite?

use rayon::prelude::*;

use super::state::TrainingState;
use crate::model::{Model, Numbers, with_numbers};

/// Numbers that one thread looks at.
const PIECE: usize = 1 << 16;

/// The name of the first tensor that holds what is no number, in the order of a
/// forward pass: parameters first, then what the optimizer remembers.
pub(super) fn first_bad_tensor(model: &Model, state: &TrainingState) -> Option<String> {
    first_bad_parameter(model).or_else(|| first_bad_moment(state))
}

/// The same of what answers, and is saved, alone.
pub(super) fn first_bad_parameter(model: &Model) -> Option<String> {
    let network = &model.network;
    let mut bad = vec![
        ("input.weight".to_owned(), !are_finite(&network.input.weights)),
        ("input.bias".into(), !all_finite(&network.input_bias)),
    ];
    for (i, layer) in network.hidden.iter().enumerate() {
        bad.push((format!("hidden.{i}.weight"), !all_finite(&layer.w)));
        bad.push((format!("hidden.{i}.bias"), !all_finite(&layer.bias)));
    }
    bad.push(("output.weight".into(), !are_finite(&network.output.weights)));
    bad.push(("output.bias".into(), !all_finite(&network.output.bias)));
    let sparse = model.sparse.as_ref();
    bad.push(("sparse.weights".into(), sparse.is_some_and(|sparse| !all_finite(sparse.weights()))));
    bad.into_iter().find_map(|(name, is_bad)| is_bad.then_some(name))
}

fn first_bad_moment(state: &TrainingState) -> Option<String> {
    let moments = &state.moments;
    for (name, rows) in [("input", &moments.input), ("output", &moments.output)] {
        for (which, numbers) in [("m", &rows.m), ("v", &rows.v)] {
            if !are_finite(numbers) {
                return Some(format!("{name}.weight.{which}"));
            }
        }
    }
    let hidden = moments.hidden.iter().position(|layer| !(all_finite(&layer.m) && all_finite(&layer.v)));
    hidden.map(|i| format!("the moments of hidden.{i}.weight"))
}

fn are_finite(numbers: &Numbers) -> bool {
    with_numbers!(numbers, numbers => {
        numbers.par_chunks(PIECE).all(|numbers| numbers.iter().all(|number| number.is_finite()))
    })
}

fn all_finite(numbers: &[f32]) -> bool {
    numbers.par_chunks(PIECE).all(|numbers| numbers.iter().all(|number| number.is_finite()))
}
