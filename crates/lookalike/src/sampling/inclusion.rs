//! How often is a class among a number of different draws?
//!
//! T independent draws contain class i with chance `1 - (1 - p_i)^T`. T is
//! solved once so that the expected number of different classes,
//! `Σ_i 1 - (1 - p_i)^T`, is the budget; TensorFlow counts T anew in each batch,
//! which is the same up to its fluctuation.

use rayon::prelude::*;

/// Classes summed by one task; fixed, so that sums do not depend on threads.
const CHUNK: usize = 4096;

/// `ln(1 - (1 - p_i)^T)` of every class.
///
/// A class of probability zero can never be drawn; it gets the value of the
/// least likely class that can, so that a correction stays finite.
pub(super) fn log_inclusion(
    classes: usize,
    budget: usize,
    probability: impl Fn(u32) -> f64 + Sync,
) -> Vec<f32> {
    let ids = 0..classes as u32;
    let possible = ids.clone().filter(|&class| probability(class) > 0.0).count();
    if budget == 0 || budget >= possible {
        return vec![0.0; classes];
    }
    let draws = solve_draws(classes, budget as f64, &probability);
    let least = ids.clone().map(&probability).filter(|&p| p > 0.0).fold(1.0, f64::min);
    let log_q = |class| inclusion(probability(class).max(least), draws).ln() as f32;
    ids.into_par_iter().map(log_q).collect()
}

/// `1 - (1 - p)^T`, exact for small p.
fn inclusion(probability: f64, draws: f64) -> f64 {
    -(draws * (-probability).ln_1p()).exp_m1()
}

/// T by Newton's method. The sum is concave and rises, and is at most the budget
/// at T = budget, so every step goes up and none goes too far.
fn solve_draws(classes: usize, budget: f64, probability: &(impl Fn(u32) -> f64 + Sync)) -> f64 {
    let mut draws = budget;
    for _ in 0..100 {
        let starts: Vec<usize> = (0..classes).step_by(CHUNK).collect();
        let sums: Vec<(f64, f64)> = starts
            .into_par_iter()
            .map(|start| {
                let end = (start + CHUNK).min(classes);
                (start..end).fold((0.0, 0.0), |(sum, slope), class| {
                    let decay = (-probability(class as u32)).ln_1p();
                    let missed = (draws * decay).exp_m1();
                    (sum - missed, slope - decay * (1.0 + missed))
                })
            })
            .collect();
        let (sum, slope) = sums.iter().fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
        let step = (budget - sum) / slope;
        draws += step;
        if step.is_nan() || step <= draws * 1e-12 {
            break;
        }
    }
    draws
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_counts_add_up_to_the_budget() {
        let skewed = |class: u32| (f64::from(class) + 1.0).recip() / 9.787_606_036_044_348; // H(10,000)
        for budget in [1, 100, 5_000, 9_999] {
            let total: f64 = log_inclusion(10_000, budget, skewed).iter().map(|&x| f64::from(x).exp()).sum();
            assert!((total / budget as f64 - 1.0).abs() < 1e-5, "{budget}: {total}");
        }
    }

    #[test]
    fn equal_classes_are_in_with_equal_chance() {
        let log_q = log_inclusion(1_000, 50, |_| 1e-3);
        assert!(log_q.iter().all(|&x| (x - 0.05f32.ln()).abs() < 1e-5));
    }

    #[test]
    fn impossible_classes_stay_finite() {
        let log_q = log_inclusion(4, 1, |class| [0.7, 0.2, 0.1, 0.0][class as usize]);
        assert!(log_q[2] == log_q[3] && log_q[3].is_finite() && log_q[0] > log_q[1]);
        assert_eq!(log_inclusion(4, 3, |class| [0.7, 0.2, 0.1, 0.0][class as usize]), [0.0; 4]);
    }
}
