//! What a finished model's own sampler would do.

use lookalike_kernels::Cpu;

use super::state::TrainingRecord;
use crate::data::Examples;
use crate::model::{Activations, Model};
use crate::predict::{RescoreScratch, rescore};
use crate::sampling::{self, Candidates, Request, SamplerError, SamplerKind};

/// The negatives that a sampler proposes for an example.
#[derive(Clone, Debug, PartialEq)]
pub struct ProposedNegatives {
    /// How many were looked up or searched.
    pub found: usize,
    /// How many were drawn at random.
    pub drawn: usize,
    /// All of them with what the network scores them, highest scores first.
    pub classes: Vec<(u32, f32)>,
}

impl TrainingRecord {
    /// What the sampler that trained a model would propose for an example, with the
    /// run's seed and last step and the class vectors as they are; nothing where
    /// every class is scored.
    pub fn negatives(
        &self,
        model: &Model,
        examples: &Examples<'_>,
        example: u32,
        cpu: Cpu,
    ) -> Result<Option<ProposedNegatives>, SamplerError> {
        let (config, output) = (&self.config, &model.network.output);
        if config.sampler == SamplerKind::Full {
            return Ok(None);
        }
        let setup = config.setup(&model.frequencies.examples_of_class, output.dim);
        let mut sampler = sampling::build(config.sampler, &setup)?;
        sampler.refresh(cpu, output.view(), None);
        let mut activations = Activations::default();
        model.network.embed(cpu, examples, &[example], &mut activations);
        let request = Request {
            seed: config.seed,
            iteration: self.progress.iteration,
            cpu,
            examples: *examples,
            batch: &[example],
            embeddings: activations.embeddings(),
            class_vectors: output.view(),
            class_bias: &output.bias,
            near: None,
        };
        let mut candidates = Candidates::new();
        sampler.propose(&request, &mut candidates);
        let counts = candidates.counts(0);
        let negatives = &candidates.of(0)[counts.truths as usize..];
        let (embedding, mut scratch) = (activations.embeddings().row(0), RescoreScratch::default());
        let all = negatives.len();
        let ranked = rescore(cpu, output.view(), &output.bias, embedding, negatives, all, &mut scratch);
        Ok(Some(ProposedNegatives {
            found: counts.found as usize,
            drawn: counts.drawn as usize,
            classes: ranked.classes.iter().copied().zip(ranked.scores.iter().copied()).collect(),
        }))
    }
}
