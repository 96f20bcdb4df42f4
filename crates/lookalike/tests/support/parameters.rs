//! The parameters of a model in training. No other file of these tests knows
//! where they are kept.

use lookalike::model::{Numbers, Rows};
use lookalike::optim::RowMoments;
use lookalike::train::Trainer;

/// The weights of a class or feature with their moments; of a class, its bias is
/// the last of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) w: Vec<f32>,
    pub(crate) m: Vec<f32>,
    pub(crate) v: Vec<f32>,
}

/// All that the input and the output layer hold.
#[derive(Debug, PartialEq)]
pub(crate) struct Parameters {
    pub(crate) classes: Vec<Row>,
    pub(crate) features: Vec<Row>,
}

impl Parameters {
    pub(crate) fn of(trainer: &Trainer<'_>) -> Self {
        let (network, moments) = (&trainer.model.network, &trainer.state.moments);
        Self {
            classes: rows(&network.output, &moments.output),
            features: rows(&network.input, &moments.input),
        }
    }
}

fn rows(layer: &Rows, moments: &RowMoments) -> Vec<Row> {
    let (Numbers::F32(w), Numbers::F32(m), Numbers::F32(v)) = (&layer.weights, &moments.m, &moments.v) else {
        panic!("these tests keep single precision")
    };
    let of = |numbers: &[f32], biases: &[f32], row: usize| {
        let numbers = numbers[row * layer.stride..][..layer.dim].iter();
        numbers.chain(biases.get(row)).copied().collect()
    };
    let bias = &moments.bias;
    let row = |i| Row { w: of(w, &layer.bias, i), m: of(m, &bias.m, i), v: of(v, &bias.v, i) };
    (0..layer.len).map(row).collect()
}
