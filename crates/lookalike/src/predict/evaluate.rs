//! Metrics of a network on examples.

use lookalike_kernels::Cpu;

use super::rerank::{RERANKED, RerankScratch, rerank};
use super::{SparseQueries, TopK, TopKScratch, top_k};
use crate::data::Examples;
use crate::metrics::{MetricOptions, MetricValues, Metrics, MetricsError, Totals, TrainingFrequencies};
use crate::model::{Activations, Network, RowData};

/// Examples that are embedded and ranked at a time.
const BATCH: usize = 1024;

/// The outcome of an evaluation.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// In percent, by name.
    pub values: MetricValues,
    /// Examples that count.
    pub examples: u64,
    /// Examples without labels, which do not.
    pub skipped: u64,
}

/// Ranks all classes for every example and measures the result. Exact, over all
/// classes: O(examples · classes · width).
pub fn evaluate(
    cpu: Cpu,
    network: &Network,
    examples: &Examples<'_>,
    unknown_labels: &(dyn Fn(usize) -> usize + Sync),
    options: &MetricOptions,
    frequencies: Option<TrainingFrequencies<'_>>,
) -> Result<Evaluation, MetricsError> {
    let metrics = Metrics::new(options, frequencies)?;
    let mut totals = Totals::new(&metrics);
    let mut ranker = Ranker::new(metrics.k_max());
    let all: Vec<u32> = (0..examples.len() as u32).collect();
    for batch in all.chunks(BATCH) {
        let ranked = ranker.rank(cpu, network, examples, batch);
        totals.add_all(&metrics, batch.len(), |i| {
            let example = batch[i] as usize;
            (ranked.example(i).classes, examples.labels(example), unknown_labels(example))
        });
    }
    Ok(Evaluation { values: totals.values(&metrics), examples: totals.examples(), skipped: totals.skipped() })
}

/// Embeds and ranks batches of examples; buffers are kept between batches.
#[derive(Debug)]
pub struct Ranker {
    activations: Activations,
    scratch: TopKScratch,
    best: TopK,
    /// The best classes before they are ranked again by the nearest examples.
    first: TopK,
    rerank: RerankScratch,
}

impl Ranker {
    /// For the `k` best classes.
    pub fn new(k: usize) -> Self {
        Self {
            activations: Activations::default(),
            scratch: TopKScratch::default(),
            best: TopK::new(k),
            first: TopK::new(k.max(RERANKED)),
            rerank: RerankScratch::default(),
        }
    }

    /// Also computes each example's log-sum-exp, which turns scores into probabilities.
    pub fn with_log_sum_exp(mut self) -> Self {
        self.best = self.best.with_log_sum_exp();
        self.first = self.first.with_log_sum_exp();
        self
    }

    /// The best classes of each example of a batch.
    pub fn rank(&mut self, cpu: Cpu, network: &Network, examples: &Examples<'_>, batch: &[u32]) -> &TopK {
        network.embed(cpu, examples, batch, &mut self.activations);
        let RowData::F32(embeddings) = self.activations.embeddings().data else {
            unreachable!("embeddings are always f32")
        };
        let output = &network.output;
        let sparse = SparseQueries::of(network, examples, batch);
        let best = if network.neighbours.is_some() { &mut self.first } else { &mut self.best };
        top_k(cpu, output.view(), &output.bias.w, embeddings, sparse, &mut self.scratch, best);
        if let Some(neighbours) = &network.neighbours {
            rerank(neighbours, examples, batch, &self.first, &mut self.rerank, &mut self.best);
        }
        &self.best
    }
}
