//! The network and its forward pass up to the embedding.

use std::ops::Range;

use lookalike_kernels::{AlignedVec, Cpu, Element, padded, sum_rows};
use rand::Rng as _;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::embeddings::Embeddings;
use super::hidden::Hidden;
use super::rows::{Rows, Storage, with_numbers};
use crate::collective::{RangeSums, Ranges};
use crate::data::Examples;
use crate::random::{Stream, rng};
use crate::scratch::PerThread;

/// What a hidden unit does with its sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// The positive part (the paper's).
    #[default]
    Relu,
    /// The sum itself.
    Linear,
}

impl Activation {
    /// Applies it in place.
    pub fn apply(self, values: &mut [f32]) {
        if self == Self::Relu {
            for x in values {
                *x = x.max(0.0);
            }
        }
    }

    /// Turns a gradient after the activation into the one before it;
    /// `outputs` are the values after the activation.
    pub fn backward(self, outputs: &[f32], gradient: &mut [f32]) {
        if self == Self::Relu {
            for (g, &y) in gradient.iter_mut().zip(outputs) {
                if y <= 0.0 {
                    *g = 0.0;
                }
            }
        }
    }
}

/// What is done to an example's values before the input layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Normalise {
    /// Scaled to unit length.
    #[default]
    L2,
    /// Left as they are.
    None,
}

impl Normalise {
    /// The factor that the values are multiplied with.
    pub fn factor(self, values: &[f32]) -> f32 {
        match self {
            Self::None => 1.0,
            Self::L2 => {
                let squares: f64 = values.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
                if squares > 0.0 { (1.0 / squares.sqrt()) as f32 } else { 1.0 }
            }
        }
    }
}

/// The spread of random initial weights, all uniform around 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Init {
    /// Standard deviation of input weights, times `1/sqrt(hidden)`: with unit
    /// inputs, 1 gives embeddings of about unit length.
    pub input_scale: f32,
    /// Standard deviation of class vectors, times `1/sqrt(hidden)`.
    pub output_scale: f32,
}

impl Default for Init {
    fn default() -> Self {
        Self { input_scale: 1.0, output_scale: 1.0 }
    }
}

/// The network's shape and how it reads its input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NetworkConfig {
    /// Width of the input.
    pub num_features: usize,
    /// The number of classes.
    pub num_classes: usize,
    /// Widths of the hidden layers, at least one.
    pub hidden: Vec<usize>,
    /// What hidden units do.
    pub activation: Activation,
    /// What is done to an example's values first.
    pub normalise: Normalise,
    /// How rows are stored.
    pub storage: Storage,
}

/// The network's parameters.
#[derive(Clone, Debug)]
pub struct Network {
    /// The shape.
    pub config: NetworkConfig,
    /// The features whose rows are here: all, but on a rank of several.
    pub features: Range<usize>,
    /// A row a feature that is here.
    pub input: Rows,
    /// Biases of the first hidden layer.
    pub input_bias: Vec<f32>,
    /// Dense layers after the first.
    pub hidden: Vec<Hidden>,
    /// A class vector a class, with its bias.
    pub output: Rows,
}

impl Network {
    /// A network of zeroes.
    ///
    /// # Panics
    /// If there is no hidden layer; configurations are checked before.
    pub fn zeroed(config: NetworkConfig) -> Self {
        let (features, classes) = (0..config.num_features, 0..config.num_classes);
        Self::zeroed_shard(config, features, classes)
    }

    /// As [`zeroed`](Self::zeroed), with rows of some features and classes only.
    fn zeroed_shard(config: NetworkConfig, features: Range<usize>, classes: Range<usize>) -> Self {
        let first = config.hidden[0];
        let last = config.hidden[config.hidden.len() - 1];
        Self {
            input: Rows::zeroed(features.len(), first, config.storage, false),
            features,
            input_bias: vec![0.0; first],
            hidden: config.hidden.windows(2).map(|pair| Hidden::zeroed(pair[0], pair[1])).collect(),
            output: Rows::zeroed(classes.len(), last, config.storage, true),
            config,
        }
    }

    /// A network of random weights and zero biases.
    pub fn random(config: NetworkConfig, init: Init, seed: u64) -> Self {
        let (features, classes) = (0..config.num_features, 0..config.num_classes);
        Self::random_shard(config, init, seed, features, classes)
    }

    /// As [`random`](Self::random), with rows of some features and classes only: those that
    /// they have in the whole network.
    pub fn random_shard(
        config: NetworkConfig,
        init: Init,
        seed: u64,
        features: Range<usize>,
        classes: Range<usize>,
    ) -> Self {
        let mut network = Self::zeroed_shard(config, features, classes.clone());
        for (i, layer) in network.hidden.iter_mut().enumerate() {
            // He's variance keeps the scale through a ReLU.
            let bound = spread(2.0f32.sqrt(), layer.inputs);
            for (row, w) in layer.w.chunks_exact_mut(layer.stride).enumerate() {
                uniform((seed, 1 + i as u64, row), bound, &mut w[..layer.outputs]);
            }
        }
        network.fill_input(init, seed, 0);
        network.fill_output(init, seed, 0, classes.start);
        network
    }

    /// Random weights for the rows of features from one of those here on.
    pub(super) fn fill_input(&mut self, init: Init, seed: u64, from: usize) {
        let (bound, first) = (spread(init.input_scale, self.input.dim), self.features.start);
        self.input.fill_from(from, |row, values| uniform((seed, 0, first + row), bound, values));
    }

    /// Random weights for the rows of classes from one on; the first row is that of
    /// `first_class`.
    pub(super) fn fill_output(&mut self, init: Init, seed: u64, from: usize, first_class: usize) {
        let bound = spread(init.output_scale, self.output.dim);
        self.output.fill_from(from, |row, values| {
            uniform((seed, u64::MAX, first_class + row), bound, values);
        });
    }

    /// Computes the activations of all hidden layers for a batch of examples. All features
    /// are here.
    pub fn embed(&self, cpu: Cpu, examples: &Examples<'_>, batch: &[u32], out: &mut Activations) {
        debug_assert_eq!(self.features, 0..self.config.num_features);
        self.forward(cpu, examples, batch, out, None::<(Ranges, fn(&mut [f32]))>);
    }

    /// As [`embed`](Self::embed), summed as in training: over ranges of features, of which
    /// others may be on other ranks. `sum` adds up what all ranks have.
    ///
    /// Answers sum straight through instead: they must not change when features are added,
    /// which moves the ranges.
    pub fn embed_summed(
        &self,
        cpu: Cpu,
        examples: &Examples<'_>,
        batch: &[u32],
        out: &mut Activations,
        (ranges, sum): (Ranges, impl FnOnce(&mut [f32])),
    ) {
        debug_assert_eq!(self.features, ranges.keys());
        self.forward(cpu, examples, batch, out, Some((ranges, sum)));
    }

    fn forward(
        &self,
        cpu: Cpu,
        examples: &Examples<'_>,
        batch: &[u32],
        out: &mut Activations,
        summed: Option<(Ranges, impl FnOnce(&mut [f32]))>,
    ) {
        out.resize(self, batch.len());
        out.sums.prepare();
        let sums = &out.sums;
        let (first, rest) = out.layers.split_at_mut(1);
        let stride = self.input.stride;
        let rows = &mut first[0][..batch.len() * stride];
        let finish = |row: &mut [f32], example: u32| {
            let factor = self.config.normalise.factor(examples.features(example as usize).1);
            for (x, &bias) in row.iter_mut().zip(&self.input_bias) {
                *x = *x * factor + bias;
            }
            self.config.activation.apply(row);
        };
        let ranges = summed.as_ref().map(|(ranges, _)| *ranges);
        let is_whole = ranges.is_none_or(|ranges| ranges.is_whole());
        with_numbers!(&self.input.weights, weights => {
            let each = rows.par_chunks_mut(stride).zip(batch);
            each.for_each(|(row, &example)| {
                let features = examples.features(example as usize);
                match ranges {
                    None => {
                        row.fill(0.0);
                        sum_rows(cpu, weights, features.0, features.1, row);
                    }
                    Some(ranges) => sums.with(|sums| {
                        sums.sum(cpu, weights, (self.features.start, ranges), features, row);
                    }),
                }
                if is_whole {
                    finish(row, example);
                }
            });
        });
        if let Some((_, sum)) = summed.filter(|_| !is_whole) {
            sum(rows);
            rows.par_chunks_mut(stride).zip(batch).for_each(|(row, &example)| finish(row, example));
        }
        let mut below: &[f32] = &first[0];
        for (layer, above) in self.hidden.iter().zip(rest) {
            let below_rows = &below[..batch.len() * padded(layer.inputs)];
            let above_rows = &mut above[..batch.len() * layer.stride];
            layer.forward(cpu, self.config.activation, below_rows, above_rows);
            below = above;
        }
    }

    /// The number of parameters.
    pub fn num_parameters(&self) -> usize {
        let rows = |rows: &Rows| rows.len * rows.dim + rows.bias.len();
        let hidden: usize = self.hidden.iter().map(|h| h.inputs * h.outputs + h.outputs).sum();
        rows(&self.input) + self.input_bias.len() + hidden + rows(&self.output)
    }
}

/// What it takes to sum the rows of an example's features range by range.
#[derive(Debug, Default)]
struct SumScratch {
    /// The features from the first one here on, counted from it.
    here: Vec<u32>,
    sums: RangeSums<f32>,
}

impl SumScratch {
    /// Of features that ascend; the first row is that of feature `first`.
    fn sum<T: Element>(
        &mut self,
        cpu: Cpu,
        rows: &[T],
        (first, ranges): (usize, Ranges),
        (mut ids, mut values): (&[u32], &[f32]),
        out: &mut [f32],
    ) {
        if first > 0 {
            let before = ids.partition_point(|&id| (id as usize) < first);
            self.here.clear();
            self.here.extend(ids[before..].iter().map(|&id| id - first as u32));
            (ids, values) = (&self.here, &values[before..]);
        }
        self.sums.start(ranges.len(), out.len());
        for (i, range) in ranges.iter().enumerate() {
            let len = ids.partition_point(|&id| (id as usize) < range.end);
            // Rows of later ranges are asked for meanwhile.
            sum_rows(cpu, rows, ids, &values[..len], self.sums.of(i));
            (ids, values) = (&ids[len..], &values[len..]);
        }
        out.copy_from_slice(self.sums.join());
    }
}

/// The bound of uniform weights whose standard deviation is `scale / sqrt(width)`.
fn spread(scale: f32, width: usize) -> f32 {
    scale * (3.0 / width as f32).sqrt()
}

/// The initial weights of a row: they depend on seed, layer and row alone.
fn uniform((seed, layer, row): (u64, u64, usize), bound: f32, values: &mut [f32]) {
    let mut random = rng(seed, Stream::Init, layer, row as u64);
    for x in values {
        // 24 bits to a float in [-1, 1).
        *x = bound * ((random.next_u64() >> 40) as f32 / (1u64 << 23) as f32 - 1.0);
    }
}

/// The activations of every hidden layer for one batch; reused between batches.
#[derive(Debug, Default)]
pub struct Activations {
    /// Rows of each hidden layer, first to last.
    pub layers: Vec<AlignedVec<f32>>,
    sums: PerThread<SumScratch>,
    batch: usize,
    dim: usize,
}

impl Activations {
    fn resize(&mut self, network: &Network, batch: usize) {
        let widths = &network.config.hidden;
        self.layers.resize_with(widths.len(), AlignedVec::default);
        for (layer, &width) in self.layers.iter_mut().zip(widths) {
            let wanted = batch * padded(width);
            if layer.len() < wanted {
                *layer = AlignedVec::zeroed(wanted);
            }
        }
        self.batch = batch;
        self.dim = *widths.last().unwrap_or(&0);
    }

    /// The batch's embeddings: the last layer.
    pub fn embeddings(&self) -> Embeddings<'_> {
        let last = self.layers.last().map_or(&[][..], |layer| &layer[..self.batch * padded(self.dim)]);
        Embeddings::padded(last, self.dim)
    }
}
