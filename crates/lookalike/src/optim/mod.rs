//! Adam on rows: only rows that got a gradient are touched.
//!
//! A dense Adam moves every row at every step, because old momentum keeps
//! pushing; with millions of rows of which a batch touches thousands, that
//! costs far more than the gradient itself. Two ways of leaving rows alone:
//!
//! * `lazy` (default): a row's moments decay only when it is touched, as if the
//!   steps in between had not happened.
//! * `exact`: when a row is touched after `s` steps without, its moments first
//!   decay by `beta^s`. First and second moments then equal those of dense Adam
//!   at every touch. What still differs: dense Adam would also have moved the
//!   row by its fading momentum during the `s` steps; here it waited.
//!
//! Cost: O(rows touched · width) a step.

mod members;
mod moments;

pub(crate) use members::{Divided, join_gradients};
pub(crate) use moments::with_layer;
pub use moments::{HiddenMoments, LayerMut, NetworkMoments, RowMoments, RowsMut, ScalarMoments, ScalarsMut};

use lookalike_kernels::{AdamStep, Cpu, Element, Moments, adam_row, backward_adam_row};
use serde::{Deserialize, Serialize};

/// What happens to the moments of rows that a step does not touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// They stay as they are.
    #[default]
    Lazy,
    /// They catch up when the row is touched next.
    Exact,
}

/// The optimizer's settings, apart from the learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AdamConfig {
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// What happens to rows that a step does not touch.
    pub decay: Decay,
}

impl Default for AdamConfig {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decay: Decay::Lazy }
    }
}

/// Adam at one step of training.
#[derive(Clone, Copy, Debug)]
pub struct Adam {
    /// The kernel's constants.
    pub step: AdamStep,
    config: AdamConfig,
    /// Counts from 1.
    time: u32,
}

impl Adam {
    /// The constants of step `time` (from 1) at learning rate `rate`.
    pub fn at(config: AdamConfig, time: u64, rate: f32) -> Self {
        let t = time.max(1).min(i32::MAX as u64) as i32;
        let correction1 = 1.0 - f64::from(config.beta1).powi(t);
        let correction2 = (1.0 - f64::from(config.beta2).powi(t)).sqrt();
        let step = AdamStep {
            rate: (f64::from(rate) * correction2 / correction1) as f32,
            beta1: config.beta1,
            beta2: config.beta2,
            epsilon: (f64::from(config.epsilon) * correction2) as f32,
        };
        Self { step, config, time: t as u32 }
    }

    /// Plain gradient descent, `w -= rate · g`, written as an Adam that forgets
    /// everything. Tests read gradients off it.
    pub fn gradient_descent(rate: f32) -> Self {
        let config = AdamConfig { beta1: 0.0, beta2: 1.0, epsilon: 1.0, decay: Decay::Lazy };
        let step = AdamStep { rate, beta1: 0.0, beta2: 1.0, epsilon: 1.0 };
        Self { step, config, time: 1 }
    }

    /// Moves one row. `last` is the time of its last touch, 0 if never.
    pub fn update<T: Element>(&self, cpu: Cpu, mut row: RowState<'_, T>, grad: &[f32], noise: u64) {
        self.catch_up(&mut row);
        adam_row(cpu, &self.step, grad, row.w, row.m, row.v, noise);
    }

    /// Moves one row by the gradient of its pairs, and adds theirs to `d_rows`.
    #[inline]
    pub fn update_by_pairs<T: Element>(
        &self,
        cpu: Cpu,
        mut row: RowState<'_, T>,
        pairs: &PairGradients<'_, T>,
        d_rows: &mut [f32],
        noise: u64,
    ) {
        self.catch_up(&mut row);
        let PairGradients { rows, entries, g, distance } = *pairs;
        let RowState { w, m, v, ahead, .. } = row;
        for member in 0..rows.members() {
            let part = member * rows.width()..(member + 1) * rows.width();
            let (w, m, v) = (&mut w[part.clone()], &mut m[part.clone()], &mut v[part]);
            let (part, g) = (Moments { w, m, v, ahead }, &g[member * distance..][..entries.len()]);
            let (d_rows, noise) = (&mut d_rows[rows.places(member)], noise.wrapping_add(member as u64));
            backward_adam_row(cpu, &self.step, part, rows.of(member), d_rows, entries, g, noise);
        }
    }

    /// With `exact` decay: lets moments fade by the steps their row has missed.
    fn catch_up<T: Element>(&self, row: &mut RowState<'_, T>) {
        if self.config.decay == Decay::Exact {
            let missed = self.missed_steps(*row.last);
            if missed > 0 && *row.last > 0 {
                fade(row.m, self.config.beta1.powi(missed));
                fade(row.v, self.config.beta2.powi(missed));
            }
            *row.last = self.time;
        }
    }

    /// Moves one number, such as a bias.
    pub fn update_scalar(&self, state: ScalarState<'_>, grad: f32) {
        let AdamStep { rate, beta1, beta2, epsilon } = self.step;
        if self.config.decay == Decay::Exact {
            let missed = self.missed_steps(*state.last);
            if missed > 0 && *state.last > 0 {
                *state.m *= beta1.powi(missed);
                *state.v *= beta2.powi(missed);
            }
            *state.last = self.time;
        }
        *state.m = beta1 * *state.m + (1.0 - beta1) * grad;
        *state.v = beta2 * *state.v + (1.0 - beta2) * grad * grad;
        *state.w -= rate * *state.m / (state.v.sqrt() + epsilon);
    }

    fn missed_steps(&self, last: u32) -> i32 {
        self.time.saturating_sub(last).saturating_sub(1) as i32
    }
}

/// A class's pairs with the examples that have it among their candidates.
#[derive(Clone, Copy, Debug)]
pub struct PairGradients<'a, T> {
    /// The embeddings of the batch.
    pub(crate) rows: Divided<'a, T>,
    /// The class's examples, with flags.
    pub entries: &'a [u32],
    /// The loss's gradient of each pair's score, for each member.
    pub(crate) g: &'a [f32],
    /// How far a member's gradients are from those of the one before.
    pub(crate) distance: usize,
}

/// A row with its moments.
pub struct RowState<'a, T> {
    /// The weights.
    pub w: &'a mut [T],
    /// First moments.
    pub m: &'a mut [T],
    /// Second moments.
    pub v: &'a mut [T],
    /// When the row was last touched (kept up by `exact` only).
    pub last: &'a mut u32,
    /// How many elements further on lies the row to prefetch meanwhile; 0 if none.
    pub ahead: usize,
}

/// A single weight with its moments.
pub struct ScalarState<'a> {
    /// The weight.
    pub w: &'a mut f32,
    /// First moment.
    pub m: &'a mut f32,
    /// Second moment.
    pub v: &'a mut f32,
    /// When it was last touched (kept up by `exact` only).
    pub last: &'a mut u32,
}

fn fade<T: Element>(moments: &mut [T], factor: f32) {
    for x in moments {
        *x = T::from_f32(x.to_f32() * factor);
    }
}

#[cfg(test)]
mod tests {
    use lookalike_kernels::{AlignedVec, bf16};

    use super::*;

    /// Dense Adam in f64, as published, moving at every step.
    fn dense_moments(config: AdamConfig, gradients: &[f32]) -> (f64, f64) {
        let (b1, b2) = (f64::from(config.beta1), f64::from(config.beta2));
        gradients.iter().fold((0.0, 0.0), |(m, v), &g| {
            let g = f64::from(g);
            (b1 * m + (1.0 - b1) * g, b2 * v + (1.0 - b2) * g * g)
        })
    }

    struct One {
        w: Vec<f32>,
        m: Vec<f32>,
        v: Vec<f32>,
        last: u32,
    }

    impl One {
        fn new() -> Self {
            Self { w: vec![0.0; 16], m: vec![0.0; 16], v: vec![0.0; 16], last: 0 }
        }
        fn touch(&mut self, adam: &Adam, g: f32) {
            let (w, m, v) = (&mut self.w, &mut self.m, &mut self.v);
            let row = RowState { w, m, v, last: &mut self.last, ahead: 0 };
            adam.update(Cpu::detect(), row, &[g; 16], 0);
        }
    }

    const GRADIENTS: [f32; 9] = [0.5, 0.0, 0.0, -1.0, 0.0, 0.25, 0.0, 0.0, 2.0];

    #[test]
    fn exact_moments_equal_dense_adam_at_every_touch() {
        let config = AdamConfig { decay: Decay::Exact, ..AdamConfig::default() };
        let mut row = One::new();
        for (t, &g) in GRADIENTS.iter().enumerate().filter(|(_, g)| **g != 0.0) {
            row.touch(&Adam::at(config, t as u64 + 1, 0.01), g);
            let (m, v) = dense_moments(config, &GRADIENTS[..=t]);
            assert!((f64::from(row.m[3]) - m).abs() < 1e-6, "step {t}");
            assert!((f64::from(row.v[3]) - v).abs() < 1e-6, "step {t}");
        }
    }

    #[test]
    fn without_gaps_both_ways_equal_dense_adam() {
        let gradients = [0.5, -0.1, 0.7, 0.01, -2.0];
        for decay in [Decay::Lazy, Decay::Exact] {
            let config = AdamConfig { decay, ..AdamConfig::default() };
            let (mut row, mut w) = (One::new(), 0.0f64);
            for (t, &g) in gradients.iter().enumerate() {
                row.touch(&Adam::at(config, t as u64 + 1, 0.01), g);
                let (m, v) = dense_moments(config, &gradients[..=t]);
                let n = t as i32 + 1;
                let m_hat = m / (1.0 - f64::from(config.beta1).powi(n));
                let v_hat = v / (1.0 - f64::from(config.beta2).powi(n));
                w -= 0.01 * m_hat / (v_hat.sqrt() + f64::from(config.epsilon));
                assert!((f64::from(row.w[0]) - w).abs() < 1e-6, "{decay:?} step {t}");
            }
        }
    }

    #[test]
    fn lazy_moments_do_not_fade_while_a_row_rests() {
        let config = AdamConfig::default();
        let mut row = One::new();
        row.touch(&Adam::at(config, 1, 0.01), 1.0);
        let before = row.m[0];
        row.touch(&Adam::at(config, 100, 0.01), 0.0);
        assert_eq!(row.m[0], config.beta1 * before);
    }

    /// Two members alike in all that they have: they round apart, or the errors of all
    /// would add up.
    #[test]
    fn members_round_by_noise_of_their_own() {
        let bf16s = |x: f32| vec![bf16::from_f32(x); 32];
        let adam = Adam::gradient_descent(1.0);
        let rows = [0.7; 32];
        let mut buffer = AlignedVec::default();
        let rows = Divided::<bf16>::among(2, &rows, 32, &mut buffer);
        let pairs = PairGradients { rows, entries: &[0], g: &[1e-3, 1e-3], distance: 1 };
        let differs = |noise| {
            let (mut w, mut m, mut v) = (bf16s(1.0), bf16s(0.0), bf16s(0.0));
            let row = RowState { w: &mut w, m: &mut m, v: &mut v, last: &mut 0, ahead: 0 };
            let mut d_rows = AlignedVec::zeroed(32);
            adam.update_by_pairs(Cpu::detect(), row, &pairs, &mut d_rows, noise);
            assert_eq!(d_rows[..16], d_rows[16..]);
            w[..16] != w[16..]
        };
        // Sixteen numbers each that are rounded up or down.
        assert!((0..20).filter(|noise| differs(noise << 20)).count() > 15);
    }

    #[test]
    fn a_scalar_moves_like_a_row() {
        for decay in [Decay::Lazy, Decay::Exact] {
            let config = AdamConfig { decay, ..AdamConfig::default() };
            let mut row = One::new();
            let (mut w, mut m, mut v, mut last) = (0.0, 0.0, 0.0, 0);
            for (t, &g) in GRADIENTS.iter().enumerate().filter(|(_, g)| **g != 0.0) {
                let adam = Adam::at(config, t as u64 + 1, 0.01);
                row.touch(&adam, g);
                adam.update_scalar(ScalarState { w: &mut w, m: &mut m, v: &mut v, last: &mut last }, g);
            }
            assert!((row.w[0] - w).abs() < 1e-6);
        }
    }
}
