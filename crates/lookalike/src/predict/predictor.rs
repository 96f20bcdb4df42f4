//! Answers: the one way from examples to ranked classes.
//!
//! A [`Predictor`] is immutable and shared by threads; working memory comes from a
//! pool of its own. It embeds examples, ranks classes by what all parts of the model
//! score them, and measures rankings. The same query gets the same bits alone or
//! in a batch, by whichever thread.

use std::ops::Deref;
use std::sync::{Mutex, OnceLock, PoisonError};

use lookalike_kernels::Cpu;
use rayon::prelude::*;

use super::calibrated::calibrate;
use super::candidates::{RerankScratch, rerank};
use super::chosen::{ChosenClasses, ChosenScratch};
use super::effort::Recall;
use super::evaluate::Evaluation;
use super::fast::{FastScratch, FastSearch};
use super::few::FewClasses;
use super::rough::{RoughClasses, RoughScratch};
use super::sharded::join_ranks;
use super::{Ask, Search, SparseQueries, TopK, TopKScratch, top_k};
use crate::collective::Shard;
use crate::data::{Dataset, Examples};
use crate::metrics::{MetricOptions, Metrics, MetricsError, Reliability, Totals, TrainingFrequencies};
use crate::model::{Activations, Model, RANKS, SparsePart};
use crate::text::Scratch as TextScratch;

/// Examples that are embedded and ranked at a time.
const BATCH: usize = 1024;

/// Classes that a fast search looks at, at least, for each that is asked for.
const EFFORT_PER_ANSWER: usize = 4;
/// With so many classes for each that is asked for, most need no exact score.
const ROUGH_PER_ANSWER: usize = 16;
/// Examples of an evaluation, about, that are ranked exactly too.
const RECALL_EXAMPLES: usize = 1000;

/// A class of an answer, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedClass {
    /// The class's number.
    pub class: u32,
    /// Its name, or its number where classes have no names.
    pub name: String,
    /// Its score, or its probability if that was asked for.
    pub score: f32,
}

/// Ranks classes for examples with a model that does not change meanwhile; `M` may
/// borrow the model or share it.
#[derive(Debug)]
pub struct Predictor<M> {
    model: M,
    cpu: Cpu,
    /// The classes that the model has here, if not all are or sums are those of training.
    shard: Option<Shard>,
    /// What a class scores whatever the example.
    bias: Vec<f32>,
    /// All classes in bytes, made on first use.
    rough: OnceLock<RoughClasses>,
    /// Working memory that nobody uses at the moment.
    idle: Mutex<Vec<BatchScratch>>,
}

/// Working memory of one batch.
#[derive(Debug, Default)]
struct BatchScratch {
    activations: Activations,
    top_k: TopKScratch,
    rough: RoughScratch,
    rerank: RerankScratch,
    fast: FastScratch,
    chosen: ChosenScratch,
    text: TextScratch,
}

impl<M: Deref<Target = Model> + Sync> Predictor<M> {
    /// For a model. O(classes), and once a model what its parts need to be searched.
    pub fn new(model: M, cpu: Cpu) -> Self {
        model.prepare();
        Self {
            bias: model.class_bias(),
            shard: None,
            rough: OnceLock::new(),
            model,
            cpu,
            idle: Mutex::default(),
        }
    }

    /// For what one rank of several holds of a model. All ranks ask the same in the same
    /// order, from one thread each, and get the same answers. Search is exact, and of all
    /// classes.
    pub fn on(shard: &Shard, model: M, cpu: Cpu) -> Self {
        Self { shard: (!shard.is_whole()).then(|| shard.clone()), ..Self::new(model, cpu) }
    }

    /// As [`on`](Self::on), for whoever decides something about a model that is trained: on
    /// one process too it embeds by the sums of training, so that ranks decide the same.
    pub(crate) fn in_training(shard: &Shard, model: M, cpu: Cpu) -> Self {
        Self { shard: Some(shard.clone()), ..Self::new(model, cpu) }
    }

    /// The model that answers.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The best classes of each of some examples. Exact search costs
    /// O(batch · classes · width).
    ///
    /// # Panics
    /// If `ask.k` is 0, or `ask.only` names a class that does not exist.
    pub fn rank(&self, examples: &Examples<'_>, batch: &[u32], ask: Ask<'_>) -> TopK {
        let mut out = TopK::new(ask.k);
        self.rank_into(examples, batch, ask, &mut out);
        out
    }

    /// As [`rank`](Self::rank), into a ranking whose memory is used again.
    pub fn rank_into(&self, examples: &Examples<'_>, batch: &[u32], ask: Ask<'_>, out: &mut TopK) {
        let mut scratch = self.scratch();
        self.embed(examples, batch, &mut scratch.activations);
        let calibration = self.model.calibration.as_ref().filter(|_| ask.probabilities);
        out.prepare(ask.k, ask.probabilities && calibration.is_none());
        match (ask.only, calibration) {
            (None, None) => self.rank_all_classes(examples, batch, ask.search, &mut scratch, out),
            (None, Some(calibration)) => {
                out.prepare(ask.k.max(RANKS), false);
                self.rank_all_classes(examples, batch, ask.search, &mut scratch, out);
                out.probabilities = Some(calibrate(&self.model, calibration, (examples, batch), out, out));
                out.shorten(ask.k);
            }
            (Some(only), None) => self.rank_only(examples, batch, only, &mut scratch, out),
            (Some(only), Some(calibration)) => {
                // What the others score says what these scores mean.
                let mut best = TopK::new(RANKS);
                self.rank_all_classes(examples, batch, ask.search, &mut scratch, &mut best);
                self.rank_only(examples, batch, only, &mut scratch, out);
                out.probabilities = Some(calibrate(&self.model, calibration, (examples, batch), &best, out));
            }
        }
        if let Some(threshold) = ask.threshold {
            out.leave_at_least(threshold);
        }
        self.idle().push(scratch);
    }

    fn embed(&self, examples: &Examples<'_>, batch: &[u32], out: &mut Activations) {
        let (network, cpu) = (&self.model.network, self.cpu);
        match &self.shard {
            None => network.embed(cpu, examples, batch, out),
            Some(shard) => {
                let sum = shard.sum_over_features(network.config.num_features);
                network.embed_summed(cpu, examples, batch, out, sum);
            }
        }
    }

    /// How to search where not every class is scored.
    fn fast_search(&self, search: Search, k: usize) -> Option<FastSearch<'_>> {
        let Search::Fast { effort } = search else { return None };
        let index = self.model.search.as_ref()?;
        let effort = effort.unwrap_or(index.effort).max(k.saturating_mul(EFFORT_PER_ANSWER));
        let few = FewClasses { cpu: self.cpu, model: &self.model, bias: &self.bias };
        (effort < self.model.num_classes()).then_some(FastSearch { few, index, effort })
    }

    /// Ranks all classes for examples whose embeddings are known, by the search that is
    /// asked for.
    fn rank_all_classes(
        &self,
        examples: &Examples<'_>,
        batch: &[u32],
        search: Search,
        scratch: &mut BatchScratch,
        out: &mut TopK,
    ) {
        match self.fast_search(search, out.k()) {
            Some(search) => {
                let embeddings = scratch.activations.embeddings();
                search.rank((examples, batch), embeddings, &mut scratch.fast, out);
            }
            None => self.rank_everything(examples, batch, scratch, out),
        }
    }

    /// Ranks all classes for examples whose embeddings are known.
    fn rank_everything(
        &self,
        examples: &Examples<'_>,
        batch: &[u32],
        scratch: &mut BatchScratch,
        out: &mut TopK,
    ) {
        let model = self.model();
        let embeddings = scratch.activations.embeddings();
        let few = FewClasses { cpu: self.cpu, model, bias: &self.bias };
        let sparse = SparseQueries::of(model, examples, batch);
        let vectors = model.network.output.view();
        let mut best = |out: &mut TopK| {
            top_k(self.cpu, vectors, &self.bias, embeddings.rows(), sparse, &mut scratch.top_k, out);
        };
        // A sum over all classes takes the score of each.
        let needs_all = out.wants_log_sum_exp() || out.k() * ROUGH_PER_ANSWER > self.bias.len();
        match &model.neighbours {
            _ if !needs_all => {
                let rough = self.rough.get_or_init(|| RoughClasses::new(self.cpu, vectors, &self.bias));
                rough.rank(few, (examples, batch), embeddings, sparse, &mut scratch.rough, out);
            }
            None => best(out),
            Some(_) => {
                let mut first = out.like(out.k());
                best(&mut first);
                rerank(few, (examples, batch), embeddings, &first, &mut scratch.rerank, out);
            }
        }
        if let Some(shard) = self.shard.as_ref().filter(|shard| !shard.is_whole()) {
            join_ranks(shard, out);
        }
    }

    /// Ranks some classes. A class's probability is one among all classes, so these
    /// are ranked too where probabilities are asked for.
    fn rank_only(
        &self,
        examples: &Examples<'_>,
        batch: &[u32],
        only: &[u32],
        scratch: &mut BatchScratch,
        out: &mut TopK,
    ) {
        let mut classes = only.to_vec();
        classes.sort_unstable();
        classes.dedup();
        let chosen = ChosenClasses { cpu: self.cpu, model: &self.model, bias: &self.bias, classes: &classes };
        let embeddings = scratch.activations.embeddings();
        let scores = chosen.score(examples, batch, embeddings, &mut scratch.chosen);
        let all = out.wants_log_sum_exp().then(|| {
            let mut all = out.like(1);
            self.rank_everything(examples, batch, scratch, &mut all);
            all
        });
        out.fill(batch.len(), &classes, &scores);
        if let Some(all) = all {
            out.take_log_sum_exp(all);
        }
    }

    /// The best classes of every example, some at a time: `answer` gets the number of
    /// the first and their ranking. It may end the walk early by an error.
    pub fn rank_all<E>(
        &self,
        examples: &Examples<'_>,
        ask: Ask<'_>,
        mut answer: impl FnMut(usize, &TopK) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut out = TopK::new(ask.k);
        let all: Vec<u32> = (0..examples.len() as u32).collect();
        for batch in all.chunks(BATCH) {
            self.rank_into(examples, batch, ask, &mut out);
            answer(batch[0] as usize, &out)?;
        }
        Ok(())
    }

    /// The scores of chosen classes for each of some examples, a row an example: those
    /// that a ranking of all classes gives them. O(batch · chosen · width), and the
    /// sparse weights of all classes on the examples' features.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn scores(&self, examples: &Examples<'_>, batch: &[u32], classes: &[u32]) -> Vec<f32> {
        let mut scratch = self.scratch();
        let model = self.model();
        self.embed(examples, batch, &mut scratch.activations);
        let chosen = ChosenClasses { cpu: self.cpu, model, bias: &self.bias, classes };
        let embeddings = scratch.activations.embeddings();
        let scores = chosen.score(examples, batch, embeddings, &mut scratch.chosen);
        self.idle().push(scratch);
        scores
    }

    /// The classes of one ranked example by name, with probabilities if the ranking
    /// knows them.
    pub fn named(&self, ranking: &TopK, example: usize) -> Vec<NamedClass> {
        let ranked = ranking.example(example);
        let named =
            |(&class, score): (&u32, f32)| NamedClass { class, name: self.model.class_name(class), score };
        ranked.classes.iter().zip(ranking.values(example)).map(named).collect()
    }

    /// The features of a text as an example of its own; none if the model was not
    /// trained from text.
    pub fn example_of_text(&self, text: &str) -> Option<Dataset> {
        let pipeline = self.model.text.as_ref()?;
        let mut scratch = self.scratch();
        let (ids, values) = pipeline.vectoriser.transform(text, &mut scratch.text);
        let mut data = Dataset::empty(self.model.num_features(), self.model.num_classes());
        data.push(ids.iter().copied().zip(values.iter().copied()), &[]);
        self.idle().push(scratch);
        Some(data)
    }

    /// The classes most like a class, best first: by the cosine of all that scores them,
    /// class vectors and sparse weights as much as they count.
    /// O(classes · width), and the sparse weights of all classes.
    pub fn lookalikes(&self, class: u32, count: usize) -> Vec<(f32, u32)> {
        let output = &self.model.network.output;
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
        let row_of = |class: u32, row: &mut [f32]| output.view().copy_row(class as usize, row);
        let mut own = vec![0.0; output.stride];
        row_of(class, &mut own);
        let sparse = self.sparse_products(class);
        let squared = |class: u32, row: &[f32]| {
            let part = self.model.sparse.as_ref();
            let of_sparse = |part: &SparsePart| {
                let weights = part.row(class as usize).1;
                part.blend().powi(2) * dot(weights, weights)
            };
            dot(row, row) + part.map_or(0.0, of_sparse)
        };
        let own_squared = squared(class, &own);
        let cosine = |row: &mut Vec<f32>, other: u32| {
            row_of(other, row);
            let product = dot(&own, row) + sparse.get(other as usize).copied().unwrap_or(0.0);
            (product / (own_squared * squared(other, row)).sqrt().max(f32::MIN_POSITIVE), other)
        };
        let mut all: Vec<(f32, u32)> = (0..output.len as u32)
            .into_par_iter()
            .filter(|&other| other != class)
            .map_init(|| vec![0.0; output.stride], cosine)
            .collect();
        all.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        all.truncate(count);
        all
    }

    /// The products of a class's sparse weights with those of all classes; none without
    /// a sparse part.
    fn sparse_products(&self, class: u32) -> Vec<f32> {
        let Some(part) = &self.model.sparse else { return Vec::new() };
        let mut products = vec![0.0; self.model.num_classes()];
        let postings = part.postings(self.model.num_features());
        let (features, weights) = part.row(class as usize);
        for (&feature, weight) in features.iter().zip(weights) {
            let (classes, others) = postings.of(feature);
            for (&other, other_weight) in classes.iter().zip(others) {
                products[other as usize] += part.blend().powi(2) * weight * other_weight;
            }
        }
        products
    }

    /// Ranks classes for every example and measures the result; where not every class is
    /// scored, what that finds on some of them, as an exact search takes longer.
    pub fn evaluate(
        &self,
        examples: &Examples<'_>,
        unknown_labels: &(dyn Fn(usize) -> usize + Sync),
        options: &MetricOptions,
        search: Search,
    ) -> Result<Evaluation, MetricsError> {
        let frequencies = &self.model.frequencies;
        let frequencies = TrainingFrequencies {
            examples_of_class: &frequencies.examples_of_class,
            num_examples: frequencies.num_examples,
        };
        let metrics = Metrics::new(options, Some(frequencies))?;
        let mut totals = Totals::new(&metrics);
        let mut recall = self.fast_search(search, metrics.k_max()).map(|_| Recall::default());
        let step = examples.len().div_ceil(RECALL_EXAMPLES).max(1);
        let is_calibrated = self.model.calibration.is_some();
        let mut reliability = is_calibrated.then(Reliability::default);
        let ask = Ask { search, probabilities: is_calibrated, ..Ask::best(metrics.k_max()) };
        self.rank_all(examples, ask, |first, ranking| {
            if let Some(reliability) = &mut reliability {
                self.judge(examples, first, ranking, unknown_labels, reliability);
            }
            if let Some(recall) = &mut recall {
                let asked = (first..first + ranking.len()).filter(|example| example % step == 0);
                let asked: Vec<u32> = asked.map(|example| example as u32).collect();
                let exact = self.rank(examples, &asked, Ask::best(ask.k));
                for (i, &example) in asked.iter().enumerate() {
                    let found = ranking.example(example as usize - first);
                    recall.count(found.classes, exact.example(i).classes);
                }
            }
            totals.add_all(&metrics, ranking.len(), |i| {
                let example = first + i;
                (ranking.example(i).classes, examples.labels(example), unknown_labels(example))
            });
            Ok::<(), MetricsError>(())
        })?;
        let (examples, skipped) = (totals.examples(), totals.skipped());
        Ok(Evaluation { values: totals.values(&metrics), examples, skipped, recall, reliability })
    }

    /// Holds the first answers of examples with labels, from `first` on, against the truth.
    fn judge(
        &self,
        examples: &Examples<'_>,
        first: usize,
        ranking: &TopK,
        unknown_labels: &(dyn Fn(usize) -> usize + Sync),
        reliability: &mut Reliability,
    ) {
        for i in 0..ranking.len() {
            let labels = examples.labels(first + i);
            let has_labels = !labels.is_empty() || unknown_labels(first + i) > 0;
            let answer = ranking.example(i).classes.first().zip(ranking.values(i).next());
            if let Some((class, probability)) = answer.filter(|_| has_labels) {
                reliability.add(probability, labels.binary_search(class).is_ok());
            }
        }
    }

    fn scratch(&self) -> BatchScratch {
        self.idle().pop().unwrap_or_default()
    }

    /// A thread that panicked left its scratch out of the pool, not broken in it.
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<BatchScratch>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
