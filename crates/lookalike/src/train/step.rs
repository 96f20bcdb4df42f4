//! One training step: a batch in, parameters moved.
//!
//! ```text
//! embed → propose → (by class → score → loss → back and update) → hidden → input
//! ```

use lookalike_kernels::{AlignedVec, padded};
use rayon::prelude::*;

use super::context::StepContext;
use super::hidden_step::HiddenStep;
use super::input_step::InputStep;
use super::output::{FullStep, OutputLayer, Proposed, SampledStep};
use super::stages::{Stage, StageClock, StageTimes};
use crate::collective::{Alone, Collective, Ranges, Shard};
use crate::data::Examples;
use crate::model::{Activations, Network};
use crate::optim::{Adam, NetworkMoments};
use crate::sampling::{Candidates, NearClasses, Request, Sampler};
use crate::scratch::grow_aligned;

/// Who proposes the classes to score.
pub enum Proposer {
    /// Nobody: all classes are scored.
    All,
    /// A sampler.
    Sampler(Box<dyn Sampler>),
}

/// Shortens a gradient that is longer than `limit`.
fn clip(gradient: &mut [f32], limit: f32) {
    // Squares of 1e30 are no f32.
    let length = gradient.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    if length > f64::from(limit) {
        let factor = f64::from(limit) / length;
        gradient.iter_mut().for_each(|x| *x = (f64::from(*x) * factor) as f32);
    }
}

/// Everything a step allocates, kept between batches, and the other ranks if there are
/// any.
#[derive(Debug, Default)]
pub struct Step {
    /// The classes that are here, if not all are.
    shard: Option<Shard>,
    activations: Activations,
    candidates: Candidates,
    /// How much each example of the batch counts; empty if each counts 1.
    weights: Vec<f32>,
    sampled: SampledStep,
    full: FullStep,
    hidden: Vec<HiddenStep>,
    input: InputStep,
    /// Gradients of each hidden layer's output.
    d_layers: Vec<AlignedVec<f32>>,
    times: StageTimes,
}

impl Step {
    /// The step of one rank of several; as `default` if there are no others.
    pub fn of(shard: &Shard) -> Self {
        Self { shard: (!shard.is_whole()).then(|| shard.clone()), ..Self::default() }
    }

    /// Moves the network by one batch; gives the mean loss of its examples. What
    /// `find_near` finds near them without the network may be told to samplers; where the
    /// embeddings travel between ranks, it searches meanwhile.
    pub fn run<'n>(
        &mut self,
        context: &StepContext,
        (network, moments): (&mut Network, &mut NetworkMoments),
        proposer: &mut Proposer,
        mut find_near: Option<impl FnOnce() -> &'n NearClasses + Send>,
        examples: &Examples<'_>,
        batch: &[u32],
    ) -> f64 {
        let mut clock = StageClock::start();
        let Self { shard, activations, input, .. } = self;
        let mut near = None;
        if shard.is_none()
            && let Some(find) = find_near.take()
        {
            near = Some(find());
            clock.end(Stage::Near);
        }
        let num_features = network.config.num_features;
        let ranges = shard.as_ref().map(|shard| shard.feature_ranges(num_features));
        let sum = |sums: &mut [f32]| {
            if let Some(shard) = shard {
                let meanwhile = || {
                    input.prepare(context, network, examples, batch);
                    find_near.map(|find| find())
                };
                near = rayon::join(|| shard.collective().sum_f32(sums), meanwhile).1;
            }
        };
        let ranges = ranges.unwrap_or_else(|| Ranges::whole(num_features));
        network.embed_summed(context.cpu, examples, batch, activations, (ranges, sum));
        self.d_layers.resize_with(network.config.hidden.len(), AlignedVec::default);
        for (gradient, &width) in self.d_layers.iter_mut().zip(&network.config.hidden) {
            grow_aligned(gradient, batch.len() * padded(width));
        }
        clock.end(Stage::Embed);
        let loss =
            self.output_layer(context, (network, moments), proposer, near, (examples, batch), &mut clock);
        if let Some(limit) = context.clip {
            let stride = network.output.stride;
            let top = self.d_layers.len() - 1;
            self.d_layers[top][..batch.len() * stride]
                .par_chunks_exact_mut(stride)
                .for_each(|row| clip(row, limit));
        }
        self.layers_below(context, (network, moments), examples, batch);
        clock.end(Stage::Input);
        self.times = clock.times();
        loss
    }

    /// Where the time of the last step went.
    pub fn stage_times(&self) -> StageTimes {
        self.times
    }

    /// Classes that the last step moved; none are listed if it moved all.
    pub fn touched_classes(&self) -> impl Iterator<Item = u32> + '_ {
        self.sampled.touched()
    }

    /// (example, class) pairs that the last sampled step scored.
    pub fn num_pairs(&self) -> usize {
        self.sampled.num_pairs()
    }

    /// Different classes that the last sampled step scored.
    pub fn num_scored_classes(&self) -> usize {
        self.sampled.num_scored_classes()
    }

    /// (example, class) pairs that the last sampled step trained on.
    pub fn num_trained_pairs(&self) -> usize {
        self.sampled.num_trained_pairs()
    }

    /// Different features of the last batch.
    pub fn num_touched_features(&self) -> usize {
        self.input.num_touched()
    }

    fn output_layer(
        &mut self,
        context: &StepContext,
        (network, moments): (&mut Network, &mut NetworkMoments),
        proposer: &mut Proposer,
        near: Option<&NearClasses>,
        (examples, batch): (&Examples<'_>, &[u32]),
        clock: &mut StageClock,
    ) -> f64 {
        let embeddings = self.activations.embeddings();
        let top = self.d_layers.len() - 1;
        let gradient = &mut self.d_layers[top][..batch.len() * network.output.stride];
        if let Proposer::Sampler(sampler) = proposer {
            let request = Request {
                seed: context.seed,
                iteration: context.iteration,
                cpu: context.cpu,
                examples: *examples,
                batch,
                embeddings,
                class_vectors: network.output.view(),
                class_bias: &network.output.bias,
                near,
            };
            sampler.propose(&request, &mut self.candidates);
            clock.end_both([Stage::Hash, Stage::Sample], sampler.stats().hashing_share);
        }
        let shard = self.shard.as_ref();
        let layer = OutputLayer {
            ranges: shard.map_or_else(|| Ranges::whole(network.output.len), Shard::class_ranges),
            rows: &mut network.output,
            moments: &mut moments.output,
            reducer: &mut shard.map_or(&Alone as &dyn Collective, Shard::collective),
        };
        match proposer {
            Proposer::All => {
                let loss = self.full.run(context, layer, examples, batch, embeddings, gradient);
                clock.end_measured(self.full.stage_times());
                loss
            }
            Proposer::Sampler(sampler) => {
                let log_q = sampler.class_log_q().filter(|_| context.corrects_log_q);
                self.weights.clear();
                if !examples.weights.is_empty() {
                    self.weights.extend(batch.iter().map(|&example| examples.weight(example as usize)));
                }
                let proposed =
                    Proposed { candidates: &self.candidates, class_log_q: log_q, weights: &self.weights };
                let loss = self.sampled.run(context, layer, proposed, embeddings, gradient);
                clock.end_measured(self.sampled.stage_times());
                loss
            }
        }
    }

    fn layers_below(
        &mut self,
        context: &StepContext,
        (network, moments): (&mut Network, &mut NetworkMoments),
        examples: &Examples<'_>,
        batch: &[u32],
    ) {
        let frozen = context.frozen_features;
        if frozen >= network.config.num_features && frozen > 0 {
            return;
        }
        // A rate of zero moves nothing and lets the gradient through.
        let adam = if frozen > 0 { Adam::gradient_descent(0.0) } else { context.adam };
        let activation = network.config.activation;
        self.hidden.resize_with(network.hidden.len(), HiddenStep::default);
        for i in (0..self.d_layers.len()).rev() {
            let rows = batch.len() * padded(network.config.hidden[i]);
            activation.backward(&self.activations.layers[i][..rows], &mut self.d_layers[i][..rows]);
            if i == 0 {
                if self.shard.is_none() {
                    self.input.prepare(context, network, examples, batch);
                }
                self.input.run(context, (network, moments), &self.d_layers[0][..rows]);
            } else {
                let (below, above) = self.d_layers.split_at_mut(i);
                let layer = (&mut network.hidden[i - 1], &mut moments.hidden[i - 1]);
                let below_rows = batch.len() * padded(layer.0.inputs);
                let outputs = &self.activations.layers[i - 1][..below_rows];
                let below = (outputs, &mut below[i - 1][..below_rows]);
                self.hidden[i - 1].run(context.cpu, &adam, layer, below, &above[0][..rows]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::clip;

    #[test]
    fn long_gradients_are_cut_and_short_ones_stay() {
        let mut short = [0.3, -0.4];
        clip(&mut short, 1.0);
        assert_eq!(short, [0.3, -0.4]);
        let mut long = [3e30f32, -4e30];
        clip(&mut long, 1.0);
        assert!((long[0] - 0.6).abs() < 1e-6 && (long[1] + 0.8).abs() < 1e-6, "{long:?}");
    }
}
