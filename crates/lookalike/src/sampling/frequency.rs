//! `frequency`: classes in proportion to their count in the training data.
//!
//! A draw takes O(1) by Walker's alias table: N columns of equal height, each
//! shared by at most two classes, built in whole numbers. A class that never
//! occurs counts as one that occurs once: never drawn, its score would never be
//! pushed down, and it would end up as the prediction of everything.

use rand_xoshiro::rand_core::Rng as _;

use super::static_sampler::Distribution;
use crate::random::{Rng, below};

/// See the module's description.
#[derive(Debug)]
pub(super) struct Frequency {
    columns: Vec<AliasColumn>,
    probabilities: Vec<f64>,
}

/// A column of the alias table.
#[derive(Clone, Copy, Debug)]
struct AliasColumn {
    /// The column's own class has this share of it, in units of 2^-32.
    own: u32,
    /// The class that has the remainder.
    other: u32,
}

impl Frequency {
    pub(super) fn new(counts: &[u32]) -> Self {
        let weights: Vec<u64> = counts.iter().map(|&count| u64::from(count.max(1))).collect();
        let height: u64 = weights.iter().sum();
        Self {
            probabilities: weights.iter().map(|&w| w as f64 / height as f64).collect(),
            columns: alias_table(&weights, height),
        }
    }
}

/// Vose's construction. Class i brings `weight · N`, each of the N columns holds
/// `height`, the sum of weights: whole numbers that match exactly.
fn alias_table(weights: &[u64], height: u64) -> Vec<AliasColumn> {
    let mut mass: Vec<u128> = weights.iter().map(|&w| u128::from(w) * weights.len() as u128).collect();
    let height = u128::from(height);
    let mut columns: Vec<AliasColumn> =
        (0..weights.len() as u32).map(|class| AliasColumn { own: u32::MAX, other: class }).collect();
    let (mut low, mut high): (Vec<usize>, Vec<usize>) =
        (0..weights.len()).partition(|&class| mass[class] < height);
    while let (Some(class), Some(&donor)) = (low.pop(), high.last()) {
        columns[class] = AliasColumn { own: ((mass[class] << 32) / height) as u32, other: donor as u32 };
        mass[donor] -= height - mass[class];
        if mass[donor] < height {
            high.pop();
            low.push(donor);
        }
    }
    columns
}

impl Distribution for Frequency {
    fn classes(&self) -> usize {
        self.columns.len()
    }

    fn probability(&self, class: u32) -> f64 {
        self.probabilities[class as usize]
    }

    fn draw(&self, rng: &mut Rng) -> u32 {
        let random = rng.next_u64();
        let class = below(random, self.columns.len() as u32);
        let column = self.columns[class as usize];
        // `below` used the upper half of the bits. Which class it is no predictor
        // of branches can know.
        std::hint::select_unpredictable((random as u32) < column.own, class, column.other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns that come out even too: what a class has of all columns is its probability.
    #[test]
    fn columns_hold_what_each_class_is_worth() {
        for counts in [vec![1, 2, 3], vec![3, 2, 1, 2, 2], vec![5; 7], vec![0, 9, 1, 40, 6, 6, 3]] {
            let frequency = Frequency::new(&counts);
            let mut found = vec![0.0; counts.len()];
            for (class, column) in frequency.columns.iter().enumerate() {
                let own = f64::from(column.own) / 2f64.powi(32);
                found[class] += own / counts.len() as f64;
                found[column.other as usize] += (1.0 - own) / counts.len() as f64;
            }
            for (class, found) in found.into_iter().enumerate() {
                let expected = frequency.probability(class as u32);
                assert!((found - expected).abs() < 1e-8, "{counts:?}: {class} {found} {expected}");
            }
        }
    }
}
