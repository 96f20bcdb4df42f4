//! Do probabilities mean what they say?
//!
//! Of all first answers that were given a probability of 0.8, four in five should be
//! right. [`Reliability`] sorts first answers into [`BINS`] bins of equal width by
//! their probability `p`, with `y` = 1 for one of the example's labels, else 0:
//!
//! | name | formula |
//! |---|---|
//! | ECE | mean over examples of `abs(mean p − mean y)` of their bin (Guo et al. 2017) |
//! | log loss | mean of `−ln p` where right, `−ln (1 − p)` where wrong |
//! | Brier | mean of `(p − y)²` |

/// Bins of equal width.
pub const BINS: usize = 15;
/// A probability of exactly 0 or 1 that was wrong has no finite logarithm.
const LEAST: f64 = 1e-7;

/// First answers by the probability they were given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reliability {
    bins: [Bin; BINS],
    log_loss: f64,
    squared: f64,
}

/// First answers whose probabilities are close to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    /// How many.
    pub answers: u64,
    /// Of which right.
    pub right: u64,
    sum: f64,
}

impl Bin {
    /// Their mean probability; 0 where there are none.
    pub fn probability(&self) -> f64 {
        self.sum / self.answers.max(1) as f64
    }

    /// The share that is right; 0 where there are none.
    pub fn share_right(&self) -> f64 {
        self.right as f64 / self.answers.max(1) as f64
    }
}

impl Reliability {
    /// Takes a first answer.
    pub fn add(&mut self, probability: f32, is_right: bool) {
        let probability = f64::from(probability);
        let bin = &mut self.bins[((probability * BINS as f64) as usize).min(BINS - 1)];
        bin.answers += 1;
        bin.right += u64::from(is_right);
        bin.sum += probability;
        let of_outcome = if is_right { probability } else { 1.0 - probability };
        self.log_loss -= of_outcome.max(LEAST).ln();
        self.squared += (1.0 - of_outcome).powi(2);
    }

    /// First answers by rising probability.
    pub fn bins(&self) -> &[Bin; BINS] {
        &self.bins
    }

    /// The names and values of the table above; none before the first answer.
    pub fn values(&self) -> Option<[(&'static str, f64); 3]> {
        let answers: u64 = self.bins.iter().map(|bin| bin.answers).sum();
        let answers = (answers > 0).then_some(answers as f64)?;
        let error = |bin: &Bin| bin.answers as f64 * (bin.probability() - bin.share_right()).abs();
        let error = self.bins.iter().map(error).sum::<f64>() / answers;
        Some([("ECE", error), ("log-loss", self.log_loss / answers), ("Brier", self.squared / answers)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(answers: &[(f32, bool)]) -> [f64; 3] {
        let mut reliability = Reliability::default();
        answers.iter().for_each(|&(probability, is_right)| reliability.add(probability, is_right));
        reliability.values().unwrap().map(|(_, value)| value)
    }

    #[test]
    fn by_hand() {
        let half = std::f64::consts::LN_2;
        let [error, log_loss, brier] = values(&[(0.5, true), (0.5, false)]);
        assert_eq!((error, brier), (0.0, 0.25));
        assert!((log_loss - half).abs() < 1e-12);
        // Two bins, each off by a quarter and a half.
        let [error, ..] = values(&[(0.25, false), (0.5, true)]);
        assert!((error - 0.375).abs() < 1e-12);
        // Sure and wrong costs much, but a number.
        let [error, log_loss, brier] = values(&[(1.0, false)]);
        assert_eq!((error, brier), (1.0, 1.0));
        assert!((log_loss - 16.118).abs() < 1e-2);
        assert!(Reliability::default().values().is_none());
    }

    #[test]
    fn each_probability_has_its_bin() {
        let mut reliability = Reliability::default();
        for probability in [0.0, 0.01, 0.07, 0.999, 1.0] {
            reliability.add(probability, true);
        }
        let answers = reliability.bins().map(|bin| bin.answers);
        assert_eq!((answers[0], answers[1], answers[14]), (2, 1, 2));
    }
}
