//! One training step: a batch in, parameters moved.
//!
//! ```text
//! embed → propose → (turn around → score → loss → back and update) → hidden → input
//! ```

use lookalike_kernels::{AlignedVec, padded};

use super::full_step::FullStep;
use super::input_step::InputStep;
use super::output_step::{OutputStep, StepContext};
use super::sparse_step::SparseStep;
use super::stages::{Stage, StageClock, StageTimes};
use super::turnaround::grow_aligned;
use crate::data::Examples;
use crate::model::{Activations, Network};
use crate::sampling::{Candidates, NearClasses, Request, Sampler, Truths};

/// Who proposes the classes to score.
pub enum Proposer {
    /// Nobody: all classes are scored.
    All,
    /// A sampler.
    Sampler(Box<dyn Sampler>),
}

/// Everything a step allocates, kept between batches.
#[derive(Debug, Default)]
pub struct Step {
    activations: Activations,
    candidates: Candidates,
    output: OutputStep,
    full: FullStep,
    input: InputStep,
    sparse: SparseStep,
    /// Gradients of each hidden layer's output.
    d_layers: Vec<AlignedVec<f32>>,
    times: StageTimes,
}

impl Step {
    /// Moves the network by one batch; gives the mean loss of its examples.
    pub fn run(
        &mut self,
        context: &StepContext,
        network: &mut Network,
        proposer: &mut Proposer,
        examples: &Examples<'_>,
        batch: &[u32],
    ) -> f64 {
        let mut clock = StageClock::start();
        network.embed(context.cpu, examples, batch, &mut self.activations);
        self.d_layers.resize_with(network.config.hidden.len(), AlignedVec::default);
        for (gradient, &width) in self.d_layers.iter_mut().zip(&network.config.hidden) {
            grow_aligned(gradient, batch.len() * padded(width));
        }
        clock.end(Stage::Embed);
        if network.sparse.is_some() {
            self.sparse.propose(examples, batch, network.config.normalise, context.near, Truths::LeftOut);
            clock.end(Stage::Sample);
        }
        let loss = self.output_layer(context, network, proposer, examples, batch, &mut clock);
        if let Some(sparse) = network.sparse.as_mut().filter(|_| context.sparse_rate > 0.0) {
            let StepContext { cpu, sparse_rate, .. } = *context;
            self.sparse.run(cpu, sparse, examples, batch, network.config.normalise, sparse_rate);
            clock.end(Stage::Update);
        }
        self.layers_below(context, network, examples, batch);
        clock.end(Stage::Input);
        self.times = clock.times();
        loss
    }

    /// Prepares for a network with a sparse part; see [`SparseStep::start`].
    pub(super) fn start_sparse(&mut self, own: Vec<f32>, priors: Vec<f32>) {
        self.sparse.start(own, priors);
    }

    /// What the frequency of each class adds to its sparse score.
    pub(super) fn priors(&self) -> &[f32] {
        self.sparse.priors()
    }

    /// Takes notice that the sparse part has changed since it was last told.
    pub(super) fn refresh(&mut self, network: &Network) {
        if let Some(sparse) = &network.sparse {
            self.sparse.refresh(sparse, network.config.num_features);
        }
    }

    /// The classes near some examples by the sparse part, true ones among them;
    /// and what the frequency of each class adds to its sparse score.
    pub(super) fn near(
        &mut self,
        network: &Network,
        examples: &Examples<'_>,
        batch: &[u32],
        wanted: usize,
    ) -> (&NearClasses, &[f32]) {
        self.sparse.propose(examples, batch, network.config.normalise, wanted, Truths::Kept);
        (self.sparse.near(), self.sparse.priors())
    }

    /// Where the time of the last step went.
    pub fn stage_times(&self) -> StageTimes {
        self.times
    }

    /// Classes that the last step moved; none are listed if it moved all.
    pub fn touched_classes(&self) -> impl Iterator<Item = u32> + '_ {
        self.output.touched()
    }

    /// (example, class) pairs that the last sampled step scored.
    pub fn num_pairs(&self) -> usize {
        self.output.num_pairs()
    }

    /// Different features of the last batch.
    pub fn num_touched_features(&self) -> usize {
        self.input.num_touched()
    }

    fn output_layer(
        &mut self,
        context: &StepContext,
        network: &mut Network,
        proposer: &mut Proposer,
        examples: &Examples<'_>,
        batch: &[u32],
        clock: &mut StageClock,
    ) -> f64 {
        let embeddings = self.activations.embeddings();
        let top = self.d_layers.len() - 1;
        let gradient = &mut self.d_layers[top][..batch.len() * network.output.stride];
        match proposer {
            Proposer::All => {
                let output = &mut network.output;
                let loss = self.full.run(context, output, examples, batch, embeddings, gradient);
                clock.end_measured(self.full.stage_times());
                loss
            }
            Proposer::Sampler(sampler) => {
                let request = Request {
                    seed: context.seed,
                    iteration: context.iteration,
                    cpu: context.cpu,
                    examples: *examples,
                    batch,
                    embeddings,
                    class_vectors: network.output.view(),
                    class_bias: &network.output.bias.w,
                    near: network.sparse.is_some().then(|| self.sparse.near()),
                };
                sampler.propose(&request, &mut self.candidates);
                clock.end_both([Stage::Hash, Stage::Sample], sampler.hashing_share());
                let class_log_q = sampler.class_log_q();
                let output = &mut network.output;
                let candidates = &self.candidates;
                let loss = self.output.run(context, output, candidates, class_log_q, embeddings, gradient);
                clock.end_measured(self.output.stage_times());
                loss
            }
        }
    }

    fn layers_below(
        &mut self,
        context: &StepContext,
        network: &mut Network,
        examples: &Examples<'_>,
        batch: &[u32],
    ) {
        let activation = network.config.activation;
        for i in (0..self.d_layers.len()).rev() {
            let rows = batch.len() * padded(network.config.hidden[i]);
            activation.backward(&self.activations.layers[i][..rows], &mut self.d_layers[i][..rows]);
            if i == 0 {
                self.input.run(context, network, examples, batch, &self.d_layers[0][..rows]);
            } else {
                let (below, above) = self.d_layers.split_at_mut(i);
                let layer = &mut network.hidden[i - 1];
                let below_rows = batch.len() * padded(layer.inputs);
                layer.backward(
                    context.cpu,
                    &context.adam,
                    &self.activations.layers[i - 1][..below_rows],
                    &above[0][..rows],
                    &mut below[i - 1][..below_rows],
                );
            }
        }
    }
}
