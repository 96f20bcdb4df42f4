//! The sum of exponentials of a stream of scores.

use lookalike_kernels::{Cpu, LANES, exp_sum};

/// `Σ exp(score)`, as `exp(max) · sum` so that it cannot overflow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningSum {
    max: f32,
    sum: f64,
}

impl Default for RunningSum {
    fn default() -> Self {
        Self { max: f32::NEG_INFINITY, sum: 0.0 }
    }
}

impl RunningSum {
    /// Adds the scores of a tile, and overwrites them.
    pub(crate) fn add(&mut self, cpu: Cpu, scores: &mut [f32]) {
        let max = max_of(scores);
        if max == f32::NEG_INFINITY {
            return;
        }
        let sum = f64::from(exp_sum(cpu, scores, max));
        self.merge(Self { max, sum });
    }

    /// Adds what `other` has summed up.
    pub(crate) fn merge(&mut self, other: Self) {
        let max = self.max.max(other.max);
        *self = Self { max, sum: self.sum_over(max) + other.sum_over(max) };
    }

    /// The largest score.
    pub(crate) fn max(&self) -> f32 {
        self.max
    }

    /// `Σ exp(score - max)` for a `max` that is no smaller than any score.
    pub(crate) fn sum_over(&self, max: f32) -> f64 {
        match self.max {
            f32::NEG_INFINITY => 0.0,
            own => self.sum * f64::from(own - max).exp(),
        }
    }

    /// All of them together, merged in their order.
    pub(crate) fn of<'a>(parts: impl Iterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        parts.for_each(|part| sum.merge(*part));
        sum
    }

    /// `ln Σ exp(score)`; negative infinity if there was no score.
    pub(crate) fn log_sum_exp(&self) -> f32 {
        (f64::from(self.max) + self.sum.ln()) as f32
    }
}

/// Sixteen maxima side by side, which the compiler turns into vector code.
fn max_of(scores: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = scores.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &score) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, score);
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, larger)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_sum_exp(tiles: &[&[f32]]) -> f32 {
        let mut sum = RunningSum::default();
        for tile in tiles {
            sum.add(Cpu::detect(), &mut tile.to_vec());
        }
        sum.log_sum_exp()
    }

    #[test]
    fn scores_too_large_or_small_to_exponentiate() {
        let ln2 = std::f32::consts::LN_2;
        assert_eq!(log_sum_exp(&[]), f32::NEG_INFINITY);
        assert_eq!(log_sum_exp(&[&[f32::NEG_INFINITY; 20]]), f32::NEG_INFINITY);
        assert!((log_sum_exp(&[&[1000.0], &[1000.0]]) - 1000.0 - ln2).abs() < 1e-3);
        assert!((log_sum_exp(&[&[-1000.0, f32::NEG_INFINITY], &[-1000.0]]) + 1000.0 - ln2).abs() < 1e-3);
        assert_eq!(log_sum_exp(&[&[-1000.0], &[1000.0], &[-1000.0]]), 1000.0);
        assert!((log_sum_exp(&[&[0.5; 200], &[0.5; 56]]) - 0.5 - 8.0 * ln2).abs() < 1e-5);
        assert!(log_sum_exp(&[&[0.0, f32::NAN]]).is_nan());
    }
}
