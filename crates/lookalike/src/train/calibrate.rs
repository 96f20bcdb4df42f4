//! Fits a model's [`Calibration`] on examples held out from training.
//!
//! Training examples can't do it: a model is surer of what it has seen. So
//! examples are ranked that a model has not seen, those kept aside by the model itself or
//! each by the fold without it, and a logistic regression learns from how their best scores
//! lie to each other which classes are true.
//! Newton's method on a dozen numbers: the cost is that of the ranking.

use crate::model::{
    CLASS_TERMS, Calibration, EXAMPLE_TERMS, ExampleTerm, Model, RANKS, class_terms, example_terms,
};
use crate::predict::{Ask, Predictor, Ranked, TopK};
use crate::train::unseen::Unseen;

/// Fewer held-out examples than this say nothing.
const EXAMPLES_MIN: usize = 10;
const TERMS: usize = CLASS_TERMS + EXAMPLE_TERMS;
/// With the bias.
const WEIGHTS: usize = TERMS + 1;
/// What a weight of 1 on a term of deviation 1 costs, against the loss of an example:
/// few examples say little.
const RIDGE: f64 = 0.3;
/// One example in so many has unusually few known features.
const UNUSUAL: usize = 50;
const ITERATIONS_MAX: usize = 100;

/// How the scores of a model become probabilities, as models show it with examples that
/// they have not seen, be it that model or some like it; none if there are too few of them.
pub(super) fn calibrate(judges: &[(Predictor<&Model>, &Unseen)]) -> Option<Calibration> {
    let rank = |(predictor, unseen): &(Predictor<&Model>, &Unseen)| {
        predictor.rank(&unseen.examples(), unseen.ids(), Ask::best(RANKS))
    };
    let rankings: Vec<TopK> = judges.iter().map(rank).collect();
    let mut ranked: Vec<(Ranked<'_>, Shown<'_>)> = Vec::new();
    for (ranking, (_, unseen)) in rankings.iter().zip(judges) {
        let examples = unseen.examples();
        let shown = |i| Shown { num_features: examples.features(i).0.len(), labels: examples.labels(i) };
        ranked.extend((0..examples.len()).map(|i| (ranking.example(i), shown(i))));
    }
    ranked.retain(|(best, _)| is_ranked(best.scores));
    if ranked.len() < EXAMPLES_MIN {
        return None;
    }
    let scale = mean_distance(ranked.iter().map(|(best, _)| best.scores));
    let mut pairs = Vec::with_capacity(ranked.len() * RANKS);
    for &(best, Shown { num_features, labels }) in &ranked {
        let of_example = example_terms(scale, best.scores, num_features);
        for (rank, (&class, &score)) in best.classes.iter().zip(best.scores).enumerate() {
            let mut terms = [0.0; TERMS];
            terms[..CLASS_TERMS].copy_from_slice(&class_terms(scale, best.scores[0], score, rank));
            terms[CLASS_TERMS..].copy_from_slice(&of_example);
            let is_true = labels.binary_search(&class).is_ok();
            // The first answers are looked at most.
            pairs.push(Pair { terms, is_true, counts: ((rank + 1) as f64).powf(-1.5) });
        }
    }
    let mut known: Vec<usize> = ranked.iter().map(|(_, shown)| shown.num_features).collect();
    known.sort_unstable();
    let fitted = Regression::of(&pairs).fit();
    if !fitted.iter().all(|&weight| (weight as f32).is_finite()) {
        return None;
    }
    let range = |term: usize| {
        let values = pairs.iter().map(|pair| pair.terms[term]);
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)))
    };
    let example_term = |i: usize| {
        let (low, high) = range(CLASS_TERMS + i);
        ExampleTerm { weight: fitted[CLASS_TERMS + i] as f32, low: low as f32, high: high as f32 }
    };
    Some(Calibration {
        labels: judges[0].0.model().frequencies.labels_per_example(),
        examples: ranked.len(),
        scale,
        class_weights: std::array::from_fn(|i| fitted[i] as f32),
        example_terms: std::array::from_fn(example_term),
        bias: fitted[TERMS] as f32,
        least_known: known[known.len() / UNUSUAL],
    })
}

/// What a calibration has to know of an example.
#[derive(Clone, Copy)]
struct Shown<'a> {
    num_features: usize,
    labels: &'a [u32],
}

/// Whether the scores of an example mean anything.
fn is_ranked(scores: &[f32]) -> bool {
    !scores.is_empty() && scores.iter().all(|score| score.is_finite())
}

/// Between the first and the last score of a ranking; 1 where scores do not differ.
fn mean_distance<'a>(rankings: impl ExactSizeIterator<Item = &'a [f32]>) -> f32 {
    let count = rankings.len() as f64;
    let distance = |scores: &[f32]| f64::from(scores[0]) - f64::from(scores[scores.len() - 1]);
    let mean = (rankings.map(distance).sum::<f64>() / count) as f32;
    if mean.is_normal() { mean } else { 1.0 }
}

/// A class of a ranking.
struct Pair {
    terms: [f64; TERMS],
    is_true: bool,
    counts: f64,
}

/// A logistic regression whose first [`CLASS_TERMS`] weights are not negative.
struct Regression<'a> {
    pairs: &'a [Pair],
    mean: [f64; TERMS],
    deviation: [f64; TERMS],
    /// What true and other pairs are to get (Platt 1999): never quite 1 or 0, so that
    /// few pairs of one kind make nobody sure.
    targets: [f64; 2],
}

impl<'a> Regression<'a> {
    fn of(pairs: &'a [Pair]) -> Self {
        let total: f64 = pairs.iter().map(|pair| pair.counts).sum();
        let mut mean = [0.0; TERMS];
        let mut deviation = [0.0; TERMS];
        for term in 0..TERMS {
            let of = |f: &dyn Fn(f64) -> f64| {
                pairs.iter().map(|pair| pair.counts * f(pair.terms[term])).sum::<f64>() / total
            };
            mean[term] = of(&|x| x);
            deviation[term] = of(&|x| (x - mean[term]).powi(2)).sqrt();
        }
        let of_true: f64 = pairs.iter().filter(|pair| pair.is_true).map(|pair| pair.counts).sum();
        let targets = [1.0 / (total - of_true + 2.0), (of_true + 1.0) / (of_true + 2.0)];
        Self { pairs, mean, deviation, targets }
    }

    /// The weights of the terms as they are, and the bias.
    fn fit(&self) -> [f64; WEIGHTS] {
        // A term that is always the same has nothing to say.
        let mut is_used: [bool; WEIGHTS] =
            std::array::from_fn(|i| i == TERMS || self.deviation[i] > 1e-9 * (1.0 + self.mean[i].abs()));
        let standard = loop {
            let weights = self.minimise(&is_used);
            let most_negative = (0..CLASS_TERMS).min_by(|&a, &b| weights[a].total_cmp(&weights[b]));
            match most_negative.filter(|&i| weights[i] < 0.0) {
                Some(i) => is_used[i] = false,
                None => break weights,
            }
        };
        let mut weights = [0.0; WEIGHTS];
        weights[TERMS] = standard[TERMS];
        for i in (0..TERMS).filter(|&i| is_used[i]) {
            weights[i] = standard[i] / self.deviation[i];
            weights[TERMS] -= weights[i] * self.mean[i];
        }
        weights
    }

    /// Newton's method, with shorter steps where a whole one leads up.
    fn minimise(&self, is_used: &[bool; WEIGHTS]) -> [f64; WEIGHTS] {
        let mut weights = [0.0; WEIGHTS];
        let mut loss = self.loss(&weights);
        for _ in 0..ITERATIONS_MAX {
            let step = self.newton_step(&weights, is_used);
            let mut share = 1.0;
            let (next, next_loss) = loop {
                let next: [f64; WEIGHTS] = std::array::from_fn(|i| weights[i] - share * step[i]);
                let next_loss = self.loss(&next);
                if next_loss <= loss || share < 1e-6 {
                    break (next, next_loss);
                }
                share /= 2.0;
            };
            let gained = loss - next_loss;
            if gained.is_nan() || gained <= 0.0 {
                break;
            }
            (weights, loss) = (next, next_loss);
            if gained < 1e-9 * loss {
                break;
            }
        }
        weights
    }

    /// A pair's terms with mean 0 and deviation 1, and 1 for the bias.
    fn standard(&self, pair: &Pair, i: usize) -> f64 {
        if i == TERMS { 1.0 } else { (pair.terms[i] - self.mean[i]) / self.deviation[i].max(1e-30) }
    }

    fn logit(&self, weights: &[f64; WEIGHTS], pair: &Pair) -> f64 {
        let used = (0..WEIGHTS).filter(|&i| weights[i] != 0.0);
        used.map(|i| weights[i] * self.standard(pair, i)).sum()
    }

    fn loss(&self, weights: &[f64; WEIGHTS]) -> f64 {
        let of_pair = |pair: &Pair| {
            let (logit, target) = (self.logit(weights, pair), self.targets[usize::from(pair.is_true)]);
            // ln(1 + e^x) - t·x, without an overflow.
            pair.counts * (logit.max(0.0) + (-logit.abs()).exp().ln_1p() - target * logit)
        };
        let ridge: f64 = weights[..TERMS].iter().map(|weight| weight * weight).sum();
        self.pairs.iter().map(of_pair).sum::<f64>() + 0.5 * RIDGE * ridge
    }

    fn newton_step(&self, weights: &[f64; WEIGHTS], is_used: &[bool; WEIGHTS]) -> [f64; WEIGHTS] {
        let used: Vec<usize> = (0..WEIGHTS).filter(|&i| is_used[i]).collect();
        let n = used.len();
        let mut gradient = vec![0.0; n];
        let mut hessian = vec![0.0; n * n];
        for pair in self.pairs {
            let probability = 1.0 / (1.0 + (-self.logit(weights, pair)).exp());
            let error = pair.counts * (probability - self.targets[usize::from(pair.is_true)]);
            let curvature = pair.counts * probability * (1.0 - probability);
            let terms: Vec<f64> = used.iter().map(|&i| self.standard(pair, i)).collect();
            for (row, &x) in terms.iter().enumerate() {
                gradient[row] += error * x;
                for (column, &y) in terms.iter().enumerate() {
                    hessian[row * n + column] += curvature * x * y;
                }
            }
        }
        for (row, &i) in used.iter().enumerate() {
            // A little on the bias too, so that there is a solution.
            let ridge = if i == TERMS { 1e-9 } else { RIDGE };
            gradient[row] += if i == TERMS { 0.0 } else { RIDGE * weights[i] };
            hessian[row * n + row] += ridge;
        }
        solve(&mut hessian, &mut gradient);
        let mut step = [0.0; WEIGHTS];
        for (&i, &moved) in used.iter().zip(&gradient) {
            step[i] = moved;
        }
        step
    }
}

/// Solves `matrix · x = right` for a positive definite matrix; `right` becomes x.
fn solve(matrix: &mut [f64], right: &mut [f64]) {
    let n = right.len();
    for pivot in 0..n {
        for row in pivot + 1..n {
            let factor = matrix[row * n + pivot] / matrix[pivot * n + pivot];
            for column in pivot..n {
                matrix[row * n + column] -= factor * matrix[pivot * n + column];
            }
            right[row] -= factor * right[pivot];
        }
    }
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|column| matrix[row * n + column] * right[column]).sum();
        right[row] = (right[row] - known) / matrix[row * n + row];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Stream, mix};

    fn random(example: usize, what: u64) -> f64 {
        (mix(9, Stream::Data, example as u64, what) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Pairs whose truth is drawn from a logistic function of their terms.
    fn pairs(weights: &[f64; WEIGHTS], count: usize) -> Vec<Pair> {
        let pair = |example: usize| {
            let terms: [f64; TERMS] = std::array::from_fn(|i| 4.0 * random(example, i as u64) - 2.0);
            let logit: f64 = terms.iter().zip(weights).map(|(x, w)| x * w).sum::<f64>() + weights[TERMS];
            let is_true = random(example, 99) < 1.0 / (1.0 + (-logit).exp());
            Pair { terms, is_true, counts: 1.0 }
        };
        (0..count).map(pair).collect()
    }

    #[test]
    fn the_weights_that_made_the_data_are_found() {
        let expected = [1.0, 0.5, 2.0, -1.0, 0.3, 0.0, 0.8, -0.4, 0.2, 0.6, -0.2, -0.7];
        let pairs = pairs(&expected, 20_000);
        let found = Regression::of(&pairs).fit();
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 0.12, "{found} {expected}");
        }
    }

    #[test]
    fn a_lower_score_is_never_likelier() {
        let pairs = pairs(&[-0.5, 0.5, -0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 2_000);
        let found = Regression::of(&pairs).fit();
        assert_eq!((found[0], found[2]), (0.0, 0.0));
        // What the other two explained is noise now, and takes a little of it.
        assert!((0.3..0.6).contains(&found[1]), "{}", found[1]);
    }

    #[test]
    fn pairs_that_are_all_true_make_nobody_quite_sure() {
        let mut pairs = pairs(&[0.0; WEIGHTS], 30);
        pairs.iter_mut().for_each(|pair| pair.is_true = true);
        let found = Regression::of(&pairs).fit();
        let sure = 1.0 / (1.0 + (-found[TERMS]).exp());
        assert!((0.9..0.99).contains(&sure), "{sure}");
    }

    #[test]
    fn a_term_that_never_changes_has_no_weight() {
        let mut pairs = pairs(&[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 500);
        pairs.iter_mut().for_each(|pair| pair.terms[5] = 1e6);
        let found = Regression::of(&pairs).fit();
        assert_eq!(found[5], 0.0);
        assert!(found.iter().all(|weight| weight.is_finite()));
    }
}
