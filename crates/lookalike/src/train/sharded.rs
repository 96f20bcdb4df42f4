//! A trainer that is one rank of several: what it may do, what it holds, and what ranks
//! do together besides their steps.
//!
//! The output layer, its moments and its hash tables are sharded by class. Everything
//! else (input and hidden layers, frequencies of classes, data) is on every rank, and
//! moves there by the same bits, as all ranks see every batch and the embeddings' gradient
//! is whole before the layers below get it.

use std::sync::Arc;

use lookalike_kernels::{Cpu, bf16};
use lookalike_mapped::Buffer;

use super::config::TrainConfig;
use super::state::{Checkpoint, TrainingState};
use super::trainer::{TrainError, Trainer};
use crate::collective::{Agreement, Collective, Shard};
use crate::data::Examples;
use crate::metrics::{MetricOptions, Metrics, MetricsError, Totals, TrainingFrequencies};
use crate::model::{Activations, Model, Numbers, Rows};
use crate::optim::{RowMoments, ScalarMoments};
use crate::predict::{Evaluation, Predictor, Search, TopK, TopKScratch, top_k};
use crate::sampling::SamplerKind;

/// Examples that are embedded and ranked at a time.
const EVALUATED_AT_ONCE: usize = 1024;

/// Whether ranks can share this work at all.
pub(super) fn check(config: &TrainConfig, model: &Model, shard: &Shard) -> Result<(), TrainError> {
    if shard.is_whole() {
        return Ok(());
    }
    if config.sparse.is_some() || model.sparse.is_some() || model.neighbours.is_some() {
        return Err(TrainError::NotSharded(
            "sparse weights and nearest examples are not shared among ranks yet: train a network alone with \
             --preset plain, or with one process",
        ));
    }
    if config.sampler == SamplerKind::Mixed && config.keep_for(shard.num_classes()).is_some() {
        return Err(TrainError::NotSharded(
            "mixed can't select the best of what its tables give on several ranks yet: leave --retrieve out",
        ));
    }
    if shard.num_classes() < shard.collective().size() {
        return Err(TrainError::NotSharded("there are more ranks than classes: start fewer"));
    }
    Ok(())
}

/// Whether all ranks are about to do the same.
pub(super) fn agree(state: &TrainingState, cpu: Cpu, shard: &Shard) -> Result<(), TrainError> {
    if shard.is_whole() {
        return Ok(());
    }
    let data = state.data.as_ref().map(|data| {
        let [examples, features, classes] = [data.examples, data.features, data.classes];
        format!("{examples} examples, {features} features, {classes} classes, checksum {:08x}", data.crc32)
    });
    let progress = &state.progress;
    let agreement = Agreement::new()
        .on("version", env!("CARGO_PKG_VERSION"))
        .on("training data", data.unwrap_or_default())
        // Layers that every rank has must move by the same bits.
        .on("instructions (LOOKALIKE_CPU)", cpu.name())
        .on("steps done", progress.iteration)
        .on("examples done", progress.position)
        .on("settings", serde_json::to_string(&state.config).unwrap_or_default());
    Ok(agreement.check(shard.collective())?)
}

/// Leaves of a whole checkpoint what one rank holds.
pub(super) fn cut(model: &mut Model, state: &mut TrainingState, shard: &Shard) {
    let output = &mut model.network.output;
    if output.len == shard.classes().len() {
        return;
    }
    let (rows, classes) = (shard.classes(), shard.classes());
    let elements = rows.start * output.stride..rows.end * output.stride;
    let cut_numbers = |numbers: &Numbers| match numbers {
        Numbers::F32(all) => Numbers::F32(Buffer::from_slice(&all[elements.clone()])),
        Numbers::Bf16(all) => Numbers::Bf16(Buffer::from_slice(&all[elements.clone()])),
    };
    let RowMoments { m, v, last, bias } = &state.moments.output;
    state.moments.output = RowMoments {
        m: cut_numbers(m),
        v: cut_numbers(v),
        last: last[classes.clone()].to_vec(),
        bias: ScalarMoments {
            m: bias.m[classes.clone()].to_vec(),
            v: bias.v[classes.clone()].to_vec(),
            last: bias.last[classes.clone()].to_vec(),
        },
    };
    *output = Rows {
        weights: cut_numbers(&output.weights),
        bias: output.bias[classes.clone()].to_vec(),
        len: classes.len(),
        ..*output
    };
}

impl Trainer<'_> {
    /// The classes of this rank; all of them on one process.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The whole checkpoint, put together on rank 0; nothing elsewhere. All ranks ask for
    /// it together. Rank 0 needs the memory of the whole output layer and its moments.
    pub fn gather(&self) -> Option<Checkpoint> {
        let collective = self.shard.collective();
        let (output, moments) = (&self.model.network.output, &self.state.moments.output);
        let rows = Rows {
            weights: collect(collective, &output.weights),
            bias: collective.collect(&output.bias),
            len: self.shard.num_classes(),
            ..*output
        };
        let moments = RowMoments {
            m: collect(collective, &moments.m),
            v: collect(collective, &moments.v),
            last: collective.collect(&moments.last),
            bias: ScalarMoments {
                m: collective.collect(&moments.bias.m),
                v: collective.collect(&moments.bias.v),
                last: collective.collect(&moments.bias.last),
            },
        };
        (collective.rank() == 0).then(|| {
            let (mut model, mut state) = (self.model.clone(), self.state.clone());
            (model.network.output, state.moments.output) = (rows, moments);
            Checkpoint { model, state }
        })
    }

    /// Which of some wishes any rank has.
    pub(super) fn wishes_of_all<const N: usize>(&self, wishes: [bool; N]) -> [bool; N] {
        let mut counts = wishes.map(u32::from);
        self.shard.collective().sum_u32(&mut counts);
        counts.map(|count| count > 0)
    }

    /// Measures the model as it is now, on all ranks together: they all get the same.
    pub fn evaluate(
        &self,
        examples: &Examples<'_>,
        unknown_labels: &(dyn Fn(usize) -> usize + Sync),
        options: &MetricOptions,
    ) -> Result<Evaluation, MetricsError> {
        if self.shard.is_whole() {
            let predictor = Predictor::new(&self.model, self.cpu());
            return predictor.evaluate(examples, unknown_labels, options, Search::Exact);
        }
        let frequencies = &self.model.frequencies;
        let frequencies = TrainingFrequencies {
            examples_of_class: &frequencies.examples_of_class,
            num_examples: frequencies.num_examples,
        };
        let metrics = Metrics::new(options, Some(frequencies))?;
        let mut totals = Totals::new(&metrics);
        let mut ranker = ShardRanker::new(&self.shard, metrics.k_max());
        let all: Vec<u32> = (0..examples.len() as u32).collect();
        for batch in all.chunks(EVALUATED_AT_ONCE) {
            let ranked = ranker.rank(&self.model, self.cpu(), examples, batch);
            totals.add_all(&metrics, batch.len(), |i| {
                let example = batch[i] as usize;
                (&ranked[i], examples.labels(example), unknown_labels(example))
            });
        }
        let (examples, skipped) = (totals.examples(), totals.skipped());
        Ok(Evaluation { values: totals.values(&metrics), examples, skipped, recall: None, reliability: None })
    }
}

fn collect(collective: &dyn Collective, numbers: &Numbers) -> Numbers {
    match numbers {
        Numbers::F32(own) => Numbers::F32(Buffer::from_slice(&collective.collect::<f32>(own))),
        Numbers::Bf16(own) => Numbers::Bf16(Buffer::from_slice(&collective.collect::<bf16>(own))),
    }
}

/// Ranks the classes of all ranks: each its own, then all tell each other their best.
struct ShardRanker<'a> {
    shard: &'a Shard,
    activations: Activations,
    scratch: TopKScratch,
    best: TopK,
}

impl<'a> ShardRanker<'a> {
    fn new(shard: &'a Shard, k: usize) -> Self {
        let (activations, scratch) = (Activations::default(), TopKScratch::default());
        Self { shard, activations, scratch, best: TopK::new(k) }
    }

    /// The best classes of each example, best first.
    fn rank(&mut self, model: &Model, cpu: Cpu, examples: &Examples<'_>, batch: &[u32]) -> Vec<Vec<u32>> {
        let (network, k) = (&model.network, self.best.k());
        network.embed(cpu, examples, batch, &mut self.activations);
        let (vectors, embeddings) = (network.output.view(), self.activations.embeddings());
        let best = &mut self.best;
        top_k(cpu, vectors, &network.output.bias, embeddings.rows(), None, &mut self.scratch, best);
        let mut own = vec![(f32::NEG_INFINITY.to_bits(), 0); batch.len() * k];
        for (example, places) in own.chunks_exact_mut(k).enumerate() {
            let ranked = best.example(example);
            for (place, (&class, &score)) in places.iter_mut().zip(ranked.classes.iter().zip(ranked.scores)) {
                *place = (score.to_bits(), class + self.shard.classes().start as u32);
            }
        }
        let own: Vec<[u32; 2]> = own.into_iter().map(|(score, class)| [score, class]).collect();
        let all = self.shard.collective().gather(&own);
        let of_example = |example: usize| {
            let rows = all.chunks_exact(own.len()).flat_map(|of_rank| &of_rank[example * k..][..k]);
            let scored = rows.map(|&[score, class]| (f32::from_bits(score) + 0.0, class));
            let mut scored: Vec<(f32, u32)> =
                scored.filter(|&(score, _)| score > f32::NEG_INFINITY).collect();
            scored.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            scored.into_iter().take(k).map(|(_, class)| class).collect()
        };
        (0..batch.len()).map(of_example).collect()
    }
}

/// A collective of one, for whoever does not say.
pub(super) fn alone() -> Arc<dyn Collective> {
    Arc::new(crate::collective::Alone)
}
