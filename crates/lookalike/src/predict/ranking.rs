//! Where rankings are kept: the best classes of each example of a batch.

use rayon::prelude::*;

use crate::best::Best;

/// The best classes of one example, best first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked<'a> {
    /// Class ids.
    pub classes: &'a [u32],
    /// Their scores (logits), beside them.
    pub scores: &'a [f32],
}

/// The best `k` classes of each example of a batch.
///
/// An example has fewer than `k` only if there are fewer classes, if a threshold left
/// some out, or if scores are NaN or negative infinity. The container is reused between batches.
#[derive(Clone, Debug)]
pub struct TopK {
    pub(super) k: usize,
    pub(super) wants_log_sum_exp: bool,
    /// Places an example has in the two flat arrays.
    pub(super) stride: usize,
    pub(super) lens: Vec<usize>,
    pub(super) classes: Vec<u32>,
    pub(super) scores: Vec<f32>,
    pub(super) log_sum_exp: Vec<f32>,
    /// Beside the scores, where a calibration gave them.
    pub(super) probabilities: Option<Vec<f32>>,
}

impl TopK {
    /// Room for the best `k` classes of any number of examples.
    ///
    /// # Panics
    /// If `k` is 0.
    pub fn new(k: usize) -> Self {
        assert!(k > 0, "the best 0 classes of an example are no answer");
        Self {
            k,
            wants_log_sum_exp: false,
            stride: 0,
            lens: Vec::new(),
            classes: Vec::new(),
            scores: Vec::new(),
            log_sum_exp: Vec::new(),
            probabilities: None,
        }
    }

    /// Also asks for [`TopK::log_sum_exp`]: one exponential a class and example.
    pub fn with_log_sum_exp(self) -> Self {
        Self { wants_log_sum_exp: true, ..self }
    }

    /// Makes it one of the best `k` classes, with their probabilities or without.
    ///
    /// # Panics
    /// If `k` is 0.
    pub(super) fn prepare(&mut self, k: usize, probabilities: bool) {
        assert!(k > 0, "the best 0 classes of an example are no answer");
        (self.k, self.wants_log_sum_exp, self.probabilities) = (k, probabilities, None);
    }

    /// An empty ranking of the best `k` classes that knows as much as this one.
    pub(super) fn like(&self, k: usize) -> Self {
        Self { wants_log_sum_exp: self.wants_log_sum_exp, ..Self::new(k) }
    }

    /// The probabilities of an example's classes if they were asked for, else their
    /// scores.
    pub fn values(&self, example: usize) -> impl Iterator<Item = f32> + '_ {
        let (range, shift) = (self.places(example), self.log_sum_exp(example));
        let calibrated = self.probabilities.as_ref().map(|all| &all[range.clone()]);
        let value = move |(place, &score): (usize, &f32)| match (calibrated, shift) {
            (Some(probabilities), _) => probabilities[place],
            (None, Some(shift)) => (score - shift).exp(),
            (None, None) => score,
        };
        self.scores[range].iter().enumerate().map(value)
    }

    fn places(&self, example: usize) -> std::ops::Range<usize> {
        let start = example * self.stride;
        start..start + self.lens[example]
    }

    /// How many classes an example was asked for.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The number of examples.
    pub fn len(&self) -> usize {
        self.lens.len()
    }

    /// Whether there is no example.
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// The best classes of an example.
    pub fn example(&self, example: usize) -> Ranked<'_> {
        let range = self.places(example);
        Ranked { classes: &self.classes[range.clone()], scores: &self.scores[range] }
    }

    /// The logarithm of the sum of `exp(score)` over *all* classes, if asked
    /// for and not calibrated: the softmax probability of a class is then
    /// `exp(score - log_sum_exp)`.
    pub fn log_sum_exp(&self, example: usize) -> Option<f32> {
        (self.wants_log_sum_exp && self.probabilities.is_none()).then(|| self.log_sum_exp[example])
    }

    /// Whether [`TopK::log_sum_exp`] is asked for.
    pub(super) fn wants_log_sum_exp(&self) -> bool {
        self.wants_log_sum_exp
    }

    /// Takes the sums over all classes from another ranking of the same examples.
    pub(super) fn take_log_sum_exp(&mut self, other: Self) {
        self.log_sum_exp = other.log_sum_exp;
    }

    /// Ranks `classes` for each of some examples by their scores, a row an example.
    pub(super) fn fill(&mut self, examples: usize, classes: &[u32], scores: &[f32]) {
        self.fill_each(examples, classes.len(), |example, slot| {
            let mut best = Best::default();
            best.reset(slot.k());
            let scores = &scores[example * classes.len()..][..classes.len()];
            scores.iter().zip(classes).for_each(|(&score, &class)| best.offer(score, class));
            slot.take(&mut best);
        });
    }

    /// Has the best of `num_classes` classes found for each of some examples, in parallel.
    pub(super) fn fill_each(
        &mut self,
        examples: usize,
        num_classes: usize,
        rank: impl Fn(usize, RankedSlot<'_>) + Sync,
    ) {
        self.resize(examples, num_classes);
        if self.stride == 0 {
            return;
        }
        self.lens
            .par_iter_mut()
            .zip(&mut self.log_sum_exp)
            .zip(self.classes.par_chunks_mut(self.stride))
            .zip(self.scores.par_chunks_mut(self.stride))
            .enumerate()
            .for_each(|(example, (((len, log_sum_exp), classes), scores))| {
                rank(example, RankedSlot { log_sum_exp, len, classes, scores });
            });
    }

    /// Leaves the best `k` classes of each example.
    pub(super) fn shorten(&mut self, k: usize) {
        self.k = k;
        self.lens.iter_mut().for_each(|len| *len = k.min(*len));
    }

    /// Leaves only classes whose value is at least so much.
    pub(super) fn leave_at_least(&mut self, threshold: f32) {
        for example in 0..self.len() {
            let keeps: Vec<bool> = self.values(example).map(|value| value >= threshold).collect();
            let start = example * self.stride;
            let kept = (start..).zip(keeps).filter(|&(_, keep)| keep).map(|(place, _)| place);
            self.lens[example] = 0;
            for from in kept {
                let to = start + self.lens[example];
                (self.scores[to], self.classes[to]) = (self.scores[from], self.classes[from]);
                if let Some(probabilities) = &mut self.probabilities {
                    probabilities[to] = probabilities[from];
                }
                self.lens[example] += 1;
            }
        }
    }

    /// Makes room for `examples` of `num_classes` classes.
    pub(super) fn resize(&mut self, examples: usize, num_classes: usize) {
        self.stride = self.k.min(num_classes);
        self.lens.clear();
        self.lens.resize(examples, 0);
        self.classes.resize(examples * self.stride, 0);
        self.scores.resize(examples * self.stride, 0.0);
        self.log_sum_exp.clear();
        self.log_sum_exp.resize(examples, f32::NEG_INFINITY);
        self.probabilities = None;
    }
}

/// Where the best classes of one example go.
pub(super) struct RankedSlot<'a> {
    pub(super) log_sum_exp: &'a mut f32,
    len: &'a mut usize,
    classes: &'a mut [u32],
    scores: &'a mut [f32],
}

impl RankedSlot<'_> {
    /// How many there is room for, at least 1.
    pub(super) fn k(&self) -> usize {
        self.classes.len()
    }

    /// Takes the best classes.
    pub(super) fn take(self, best: &mut Best) {
        *self.len = 0;
        for ((class, score), best) in self.classes.iter_mut().zip(self.scores).zip(best.ranked()) {
            (*score, *class) = best;
            *self.len += 1;
        }
    }
}
