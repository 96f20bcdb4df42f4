//! The parameters of a model in training. No other file of these tests knows
//! where they are kept.

use lookalike::model::{Biases, Rows, Stored};
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
        let network = &trainer.model.network;
        Self { classes: rows(&network.output), features: rows(&network.input) }
    }
}

fn rows(layer: &Rows) -> Vec<Row> {
    let Stored::F32(store) = &layer.stored else { panic!("these tests keep single precision") };
    let Biases { w, m, v, .. } = &layer.bias;
    let of = |numbers: &[f32], biases: &[f32], row: usize| {
        let numbers = numbers[row * layer.stride..][..layer.dim].iter();
        numbers.chain(biases.get(row)).copied().collect()
    };
    let row = |i| Row { w: of(&store.w, w, i), m: of(&store.m, m, i), v: of(&store.v, v, i) };
    (0..layer.len).map(row).collect()
}
