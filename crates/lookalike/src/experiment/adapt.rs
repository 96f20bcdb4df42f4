//! Does a sampler follow the model? The paper's figure on adaptivity, in numbers.
//!
//! For an input x with true labels y, let `p_i` be the softmax over the M
//! classes that are not in y: the distribution that ideal negatives would have.
//! A sampler is asked for negatives R times; class i is among them `c_i` times.
//! Averaged over inputs:
//!
//! - *mass covered*: the sum of `p_i` over the negatives of one draw that are trained
//!   on, averaged over the R draws. Where training selects the best of what hash tables
//!   give, only these count. The most that C negatives can cover is what top-k
//!   covers; C uniform ones cover C / M.
//! - *rank correlation*: Spearman's, between `p_i` and `c_i` over the M classes,
//!   equal values sharing their mean rank. It is undefined, and left out of the
//!   average, where all `c_i` or all `p_i` are equal.
//! - *by rank*: mean `p_i` and mean `c_i / Σc` of the classes of a range of
//!   ranks, ranks by `p_i` from 1: the picture itself.
//!
//! There is no divergence between `p` and the draws here: a set holds a class once,
//! so that no set can follow a distribution with few likely classes, and the better a
//! sampler finds these the further it would seem to be from it.
//!
//! Hash tables are refreshed with the class vectors as they are. Their functions
//! are those of the run's seed, as in training. O(inputs · (N · dim + N log N +
//! R · C)) for each sampler.

use rand_xoshiro::rand_core::Rng as _;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::data::Examples;
use crate::model::Activations;
use crate::predict::{Ask, Predictor, Ranked};
use crate::random::{Stream, below, rng};
use crate::sampling::{self, Candidates, Request, Sampler, SamplerError, SamplerKind};
use crate::train::{TrainConfig, Trainer};

/// Inputs looked at together; bounds the memory to this many times N numbers.
const INPUTS_AT_ONCE: usize = 8;

/// What to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct AdaptOptions {
    /// The samplers to look at; `full` is no sampler.
    pub samplers: Vec<SamplerKind>,
    /// Training examples to look at.
    pub inputs: usize,
    /// R, how often each sampler is asked for each input.
    pub draws: usize,
}

/// A range of ranks, first and last included, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RankRange {
    /// The first rank.
    pub first: usize,
    /// The last rank.
    pub last: usize,
}

/// The state of things at one moment of training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Moment {
    /// Steps done.
    pub iteration: u64,
    /// Epochs done.
    pub epoch: f64,
    /// Negatives asked for: C.
    pub budget: usize,
    /// The ranges that `by_rank` values belong to.
    pub ranks: Vec<RankRange>,
    /// Mean true probability of a class in each range.
    pub truth_by_rank: Vec<f64>,
    /// Each sampler against it.
    pub samplers: Vec<Adaptivity>,
}

/// How a sampler's draws compare with the true distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Adaptivity {
    /// The sampler.
    pub sampler: SamplerKind,
    /// Probability mass of the negatives of a draw, from 0 to 1.
    pub mass_covered: f64,
    /// Spearman's rank correlation; none where it is undefined for all inputs.
    pub rank_correlation: Option<f64>,
    /// Negatives on average that are trained on; below the budget where tables give too few.
    pub negatives_mean: f64,
    /// Mean share of the draws of a class in each range.
    pub by_rank: Vec<f64>,
}

/// Different examples that have a label, chosen by the seed.
pub fn choose_inputs(examples: &Examples<'_>, count: usize, seed: u64) -> Vec<u32> {
    let mut labelled: Vec<u32> =
        (0..examples.len() as u32).filter(|&i| !examples.labels(i as usize).is_empty()).collect();
    let mut random = rng(seed, Stream::Experiment, 0, 0);
    let count = count.min(labelled.len());
    for place in 0..count {
        let other = place + below(random.next_u64(), (labelled.len() - place) as u32) as usize;
        labelled.swap(place, other);
    }
    labelled.truncate(count);
    labelled
}

/// Measures every sampler with the model as it is now.
pub fn snapshot(
    trainer: &Trainer<'_>,
    examples: &Examples<'_>,
    inputs: &[u32],
    options: &AdaptOptions,
) -> Result<Moment, SamplerError> {
    let (model, cpu) = (&trainer.model, trainer.cpu());
    let (config, output) = (&trainer.state.config, &model.network.output);
    let classes = output.len;
    let budget = config.budget_for(classes);
    let mut samplers = Vec::new();
    for &kind in &options.samplers {
        // As it would be trained with, at the same budget as the others.
        let of_kind = TrainConfig { sampler: kind, budget: Some(budget), ..config.clone() };
        let setup = of_kind.setup(&model.frequencies.examples_of_class, output.dim);
        let mut sampler = sampling::build(kind, &setup)?;
        sampler.refresh(cpu, output.view(), None);
        samplers.push((sampler, of_kind.keep_for(classes)));
    }
    let ranks = rank_ranges(classes);
    let mut truth = Vec::new();
    let mut found: Vec<Vec<Comparison>> = samplers.iter().map(|_| Vec::new()).collect();
    let predictor = Predictor::new(model, cpu);
    let mut activations = Activations::default();
    for batch in inputs.chunks(INPUTS_AT_ONCE) {
        let ranked = predictor.rank(examples, batch, Ask::best(classes));
        let targets: Vec<Target> = (0..batch.len())
            .into_par_iter()
            .map(|i| Target::new(ranked.example(i), examples.labels(batch[i] as usize), classes))
            .collect();
        truth.extend(targets.iter().map(|target| target.mean_by_rank(&ranks, |i| f64::from(target.p[i]))));
        model.network.embed(cpu, examples, batch, &mut activations);
        let request = Request {
            seed: config.seed,
            iteration: 0,
            cpu,
            examples: *examples,
            batch,
            embeddings: activations.embeddings(),
            class_vectors: output.view(),
            class_bias: &output.bias,
            near: None,
        };
        for ((sampler, keep), found) in samplers.iter_mut().zip(&mut found) {
            let draws = Draws::collect(sampler.as_mut(), *keep, request, &targets, options.draws);
            let compared =
                draws.par_iter().zip(&targets).map(|(draws, target)| target.compare(draws, &ranks));
            found.par_extend(compared);
        }
    }
    Ok(Moment {
        iteration: trainer.state.progress.iteration,
        epoch: trainer.epochs_done(),
        budget,
        truth_by_rank: mean_of_rows(&truth, ranks.len()),
        ranks,
        samplers: (options.samplers.iter().zip(&found))
            .map(|(kind, found)| average(*kind, found, options.draws))
            .collect(),
    })
}

/// Ranges that grow by about a third: few points on a logarithmic axis.
fn rank_ranges(classes: usize) -> Vec<RankRange> {
    let mut ranges = Vec::new();
    let mut first = 1;
    while first <= classes {
        let last = (first * 4 / 3).max(first).min(classes);
        ranges.push(RankRange { first, last });
        first = last + 1;
    }
    ranges
}

/// The true distribution over the negatives of one input.
struct Target {
    /// Negatives, most likely first.
    order: Vec<u32>,
    /// Probability of each class; 0 for true labels.
    p: Vec<f32>,
    /// Mean rank of each place of `order`, equal probabilities sharing theirs.
    ranks: Vec<f64>,
}

/// How often each class was drawn for one input, and what it covered.
struct Draws {
    counts: Vec<u32>,
    total: u64,
    mass: f64,
}

/// One sampler on one input.
struct Comparison {
    mass: f64,
    correlation: Option<f64>,
    total: u64,
    by_rank: Vec<f64>,
}

impl Target {
    fn new(ranked: Ranked<'_>, labels: &[u32], classes: usize) -> Self {
        let negatives =
            ranked.classes.iter().zip(ranked.scores).filter(|(c, _)| labels.binary_search(c).is_err());
        let (order, scores): (Vec<u32>, Vec<f32>) = negatives.unzip();
        let highest = scores.first().copied().unwrap_or(0.0);
        let weight = |score: f32| f64::from(score - highest).exp();
        let sum: f64 = scores.iter().map(|&score| weight(score)).sum();
        let mut p = vec![0.0; classes];
        for (&class, &score) in order.iter().zip(&scores) {
            p[class as usize] = (weight(score) / sum) as f32;
        }
        Self { ranks: mean_ranks(&scores), order, p }
    }

    /// The mean of a value over the classes of each range of ranks.
    fn mean_by_rank(&self, ranks: &[RankRange], value: impl Fn(usize) -> f64) -> Vec<f64> {
        let mean = |range: &RankRange| {
            let last = range.last.min(self.order.len());
            let classes = self.order.get(range.first - 1..last).unwrap_or(&[]);
            // An input with true labels has fewer negatives than there are classes.
            if classes.is_empty() {
                return f64::NAN;
            }
            classes.iter().map(|&class| value(class as usize)).sum::<f64>() / classes.len() as f64
        };
        ranks.iter().map(mean).collect()
    }

    fn compare(&self, draws: &Draws, ranks: &[RankRange]) -> Comparison {
        let share = |class: usize| f64::from(draws.counts[class]) / draws.total.max(1) as f64;
        Comparison {
            mass: draws.mass,
            correlation: self.rank_correlation(&draws.counts),
            total: draws.total,
            by_rank: self.mean_by_rank(ranks, share),
        }
    }

    fn rank_correlation(&self, counts: &[u32]) -> Option<f64> {
        let count = |place: &u32| counts[self.order[*place as usize] as usize];
        let mut places: Vec<u32> = (0..self.order.len() as u32).collect();
        places.sort_unstable_by_key(|place| (std::cmp::Reverse(count(place)), *place));
        let sorted: Vec<u32> = places.iter().map(count).collect();
        let mut drawn = vec![0.0; places.len()];
        for (rank, &place) in mean_ranks(&sorted).into_iter().zip(&places) {
            drawn[place as usize] = rank;
        }
        pearson(&self.ranks, &drawn)
    }
}

impl Draws {
    /// Asks the sampler `times` times for a batch.
    fn collect(
        sampler: &mut dyn Sampler,
        keep: Option<usize>,
        request: Request<'_>,
        targets: &[Target],
        times: usize,
    ) -> Vec<Self> {
        let none = |target: &Target| Self { counts: vec![0; target.p.len()], total: 0, mass: 0.0 };
        let mut draws: Vec<Self> = targets.iter().map(none).collect();
        let mut negatives = Vec::new();
        let mut candidates = Candidates::new();
        for time in 0..times {
            // An example's negatives are named by seed and iteration.
            sampler.propose(&Request { iteration: time as u64, ..request }, &mut candidates);
            for (i, (draws, target)) in draws.iter_mut().zip(targets).enumerate() {
                negatives.clear();
                negatives.extend_from_slice(&candidates.of(i)[candidates.counts(i).truths as usize..]);
                if let Some(keep) = keep {
                    // As scores rise, so do probabilities; of equal ones the lower class, so
                    // that the choice is a choice.
                    let p = |class: u32| target.p[class as usize];
                    negatives.sort_unstable_by(|&a, &b| p(b).total_cmp(&p(a)).then(a.cmp(&b)));
                    negatives.truncate(keep);
                }
                for &class in &negatives {
                    draws.counts[class as usize] += 1;
                    draws.total += 1;
                    draws.mass += f64::from(target.p[class as usize]) / times as f64;
                }
            }
        }
        draws
    }
}

/// Ranks from 1 of sorted values; equal ones share the mean of theirs.
fn mean_ranks<T: PartialEq>(sorted: &[T]) -> Vec<f64> {
    let mut ranks = Vec::with_capacity(sorted.len());
    for run in sorted.chunk_by(|a, b| a == b) {
        let first = ranks.len() as f64 + 1.0;
        let mean = first + (run.len() as f64 - 1.0) / 2.0;
        ranks.resize(ranks.len() + run.len(), mean);
    }
    ranks
}

/// Pearson's correlation; none if one side does not vary.
fn pearson(a: &[f64], b: &[f64]) -> Option<f64> {
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a - mean_a, b - mean_b);
        (ab, aa, bb) = (ab + a * b, aa + a * a, bb + b * b);
    }
    (aa > 0.0 && bb > 0.0).then(|| ab / (aa * bb).sqrt())
}

/// Column means, leaving out what is not a number.
fn mean_of_rows(rows: &[Vec<f64>], columns: usize) -> Vec<f64> {
    let mean = |column: usize| mean_of(rows.iter().map(|row| row[column]).filter(|x| !x.is_nan()));
    (0..columns).map(|column| mean(column).unwrap_or(0.0)).collect()
}

fn mean_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), x| (sum + x, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn average(sampler: SamplerKind, found: &[Comparison], draws: usize) -> Adaptivity {
    let mean = |value: &dyn Fn(&Comparison) -> f64| mean_of(found.iter().map(value)).unwrap_or(0.0);
    let rows: Vec<Vec<f64>> = found.iter().map(|one| one.by_rank.clone()).collect();
    Adaptivity {
        sampler,
        mass_covered: mean(&|one| one.mass),
        rank_correlation: mean_of(found.iter().filter_map(|one| one.correlation)),
        negatives_mean: mean(&|one| one.total as f64 / draws.max(1) as f64),
        by_rank: mean_of_rows(&rows, rows.first().map_or(0, Vec::len)),
    }
}

#[cfg(test)]
mod tests;
