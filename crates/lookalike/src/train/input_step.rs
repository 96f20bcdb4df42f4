//! The input layer's part of a step: the same walk, feature by feature.
//!
//! A feature's gradient is `Σ v · dE[example]` over the examples that have it.
//! Cost: O(non-zero features of the batch · width), and each touched row is
//! read and written once. A rank of several moves the rows of its own features, with the
//! gradient that all ranks know.

use std::ops::Range;

use lookalike_kernels::{Element, sum_rows};

use super::by_key::{Pairs, PairsByKey, for_each_part};
use super::context::{PREFETCH_AHEAD, StepContext};
use crate::collective::Ranges;
use crate::data::Examples;
use crate::model::Network;
use crate::optim::{LayerMut, NetworkMoments, RowsMut, with_layer};
use crate::random::{Stream, mix};
use crate::scratch::grow;

/// Buffers of the input layer's step, kept between batches.
#[derive(Debug, Default)]
pub(super) struct InputStep {
    by_feature: PairsByKey,
    work: Vec<FeatureGradient>,
    /// Where each example's features start in the batch, and one more.
    starts: Vec<u32>,
    /// Of each feature in the batch: its example and its scaled value.
    example_of: Vec<u32>,
    values: Vec<f32>,
    bias_grad: Vec<f32>,
}

/// A feature's examples and its gradient, one feature at a time.
#[derive(Debug, Default)]
struct FeatureGradient {
    ids: Vec<u32>,
    weights: Vec<f32>,
    grad: Vec<f32>,
}

/// Pairs of (feature, its place in the batch).
struct FeaturePairs<'a> {
    examples: &'a Examples<'a>,
    batch: &'a [u32],
    starts: &'a [u32],
    /// Those whose rows are here and not frozen.
    moving: Range<u32>,
    /// The first one here, from which rows are counted.
    first_feature: u32,
}

impl Pairs for FeaturePairs<'_> {
    fn num_examples(&self) -> usize {
        self.batch.len()
    }

    fn for_each(&self, example: usize, mut visit: impl FnMut(u32, u32)) {
        let (ids, _) = self.examples.features(self.batch[example] as usize);
        for (place, &feature) in (self.starts[example]..).zip(ids) {
            if self.moving.contains(&feature) {
                visit(feature - self.first_feature, place);
            }
        }
    }
}

impl InputStep {
    /// Sorts the batch by feature. It needs no gradient, so that it can be done while ranks
    /// wait for each other.
    pub(super) fn prepare(
        &mut self,
        context: &StepContext,
        network: &Network,
        examples: &Examples<'_>,
        batch: &[u32],
    ) {
        self.lay_out(network, examples, batch);
        let places = self.values.len();
        let entry_bits = usize::BITS - places.leading_zeros();
        let Range { start, end } = network.features;
        let moving = start.max(context.frozen_features) as u32..end as u32;
        let pairs =
            FeaturePairs { examples, batch, starts: &self.starts, moving, first_feature: start as u32 };
        let all = (Ranges::whole(network.input.len.max(1)), None);
        self.by_feature.sort(context.cpu, &pairs, all, entry_bits);
        self.work.resize_with(self.by_feature.parts().len().max(self.work.len()), FeatureGradient::default);
    }

    /// Moves the rows of all features of the prepared batch. `d_hidden` is the gradient of
    /// the first hidden layer before its activation.
    pub(super) fn run(
        &mut self,
        context: &StepContext,
        (network, moments): (&mut Network, &mut NetworkMoments),
        d_hidden: &[f32],
    ) {
        let (start, stride) = (network.features.start, network.input.stride);
        with_layer!(LayerMut::new(&mut network.input, &mut moments.input), rows => {
            self.update(context, rows, start, d_hidden);
        });
        if context.frozen_features == 0 {
            sum_columns(d_hidden, stride, &mut self.bias_grad);
            moments.input_bias.update_all(&mut network.input_bias, &context.adam, &self.bias_grad);
        }
    }

    /// Features that the last step moved.
    pub(super) fn num_touched(&self) -> usize {
        self.by_feature.parts().iter().map(|part| part.groups.len()).sum()
    }

    fn lay_out(&mut self, network: &Network, examples: &Examples<'_>, batch: &[u32]) {
        self.starts.clear();
        self.starts.push(0);
        self.example_of.clear();
        self.values.clear();
        for (place, &example) in batch.iter().enumerate() {
            let (_, values) = examples.features(example as usize);
            let factor = network.config.normalise.factor(values);
            self.example_of.extend(values.iter().map(|_| place as u32));
            self.values.extend(values.iter().map(|value| value * factor));
            self.starts.push(self.values.len() as u32);
        }
    }

    fn update<T: Element>(
        &mut self,
        context: &StepContext,
        rows: RowsMut<'_, T>,
        first_feature: usize,
        d_hidden: &[f32],
    ) {
        let parts = self.by_feature.parts();
        let (example_of, values) = (&self.example_of, &self.values);
        for_each_part(rows, parts, &mut self.work[..parts.len()], &|mut rows, part, work| {
            grow(&mut work.grad, rows.stride);
            for (i, (local, range)) in part.groups().enumerate() {
                if let Some(ahead) = part.groups.get(i + PREFETCH_AHEAD) {
                    rows.prefetch(ahead.local_key as usize);
                }
                work.ids.clear();
                work.weights.clear();
                for &place in &part.entries[range] {
                    work.ids.push(example_of[place as usize]);
                    work.weights.push(values[place as usize]);
                }
                work.grad.fill(0.0);
                sum_rows(context.cpu, d_hidden, &work.ids, &work.weights, &mut work.grad);
                let feature = (first_feature + part.first_key + local) as u64;
                let noise = mix(context.seed, Stream::Round, !context.iteration, feature);
                rows.update(context.cpu, local, &context.adam, &work.grad, noise);
            }
        });
    }
}

/// The sum of each column, in the order of rows.
fn sum_columns(rows: &[f32], stride: usize, out: &mut Vec<f32>) {
    out.clear();
    out.resize(stride, 0.0);
    for row in rows.chunks_exact(stride) {
        out.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
    }
}
