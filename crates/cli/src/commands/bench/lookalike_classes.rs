//! A network whose classes look alike in groups, as trained ones do.
//!
//! Class vectors lie around centres that lie around centres, and have different lengths
//! and biases. A query is near one of them. Each query is an example with one feature of
//! its own, so the input layer holds the embeddings.

use lookalike::data::Dataset;
use lookalike::model::{
    Activation, ClassFrequencies, Model, Network, NetworkConfig, Normalise, Rows, Storage,
};
use lookalike::random::{Stream, mix};

/// Classes around a centre, and centres around a centre of centres.
const CLASSES_A_CENTRE: u64 = 30;
const CENTRES_A_CENTRE: u64 = 30;
/// Queries that choose the effort, besides those that are measured.
const JUDGES: usize = 200;

/// What [`generate`] makes.
pub(super) struct Generated {
    pub(super) model: Model,
    /// The queries, and after them the judges.
    pub(super) data: Dataset,
    /// Examples to choose the effort on, none of the measured ones.
    pub(super) judges: Vec<u32>,
}

/// A network of so many classes and queries to it.
pub(super) fn generate(classes: usize, width: usize, queries: usize) -> Generated {
    let examples = queries + JUDGES;
    let config = NetworkConfig {
        num_features: examples,
        num_classes: classes,
        hidden: vec![width],
        activation: Activation::Linear,
        normalise: Normalise::None,
        storage: Storage::F32,
    };
    let mut network = Network::zeroed(config);
    network.output.fill(|class, row| class_vector(class as u64, width, row));
    network.output.bias.iter_mut().zip(0..).for_each(|(bias, class)| *bias = normal(4, class, 0));
    let mut input = Rows::zeroed(examples, width, Storage::F32, false);
    input.fill(|query, row| {
        let class = mix(1, Stream::Data, query as u64, 5) % classes as u64;
        let mut vector = vec![0.0; row.len()];
        class_vector(class, width, &mut vector);
        for (place, (x, w)) in (0..).zip(row.iter_mut().zip(&vector)).take(width) {
            *x = w + 0.7 * normal(6, query as u64, place);
        }
    });
    network.input = input;
    let mut data = Dataset::empty(examples, classes);
    (0..examples as u32).for_each(|query| data.push([(query, 1.0)], &[]));
    let model = Model::new(network, ClassFrequencies::default());
    Generated { model, data, judges: (queries as u32..examples as u32).collect() }
}

fn class_vector(class: u64, width: usize, row: &mut [f32]) {
    let centre = class / CLASSES_A_CENTRE;
    let far = centre / CENTRES_A_CENTRE;
    let length = 1.0 + 0.3 * normal(7, class, 0);
    for (place, x) in (0..width as u64).zip(row) {
        let own = normal(1, class, place);
        *x = length * (normal(3, far, place) + normal(2, centre, place) + own);
    }
}

/// About normal, with variance 1: the sum of four uniform numbers.
fn normal(seed: u64, a: u64, b: u64) -> f32 {
    let bits = mix(seed, Stream::Data, a, b);
    let sum: u64 = (0..4).map(|i| bits >> (16 * i) & 0xFFFF).sum();
    (sum as f32 / 65536.0 - 2.0) * 3f32.sqrt()
}
