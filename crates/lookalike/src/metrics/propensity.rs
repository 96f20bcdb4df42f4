//! How likely a true label is to have been written down at all.

/// The propensity model of Jain, Prabhu and Varma (KDD 2016): a label that
/// occurs in `n` of `N` training examples is observed, where it is true, with
/// probability `p = 1 / (1 + C · (n + B)^-A)`, `C = (ln N - 1) · (B + 1)^A`.
///
/// `A` and `B` belong to a data set: 0.55 and 1.5 for most, 0.6 and 2.6 for
/// products of Amazon, 0.5 and 0.4 for Wikipedia.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Propensity {
    a: f64,
    b: f64,
    c: f64,
}

impl Propensity {
    /// The model for a training set of `num_examples` examples.
    pub fn new(a: f64, b: f64, num_examples: usize) -> Self {
        // Fewer than e examples would give a negative C, that is p above 1.
        let c = ((num_examples.max(1) as f64).ln() - 1.0).max(0.0) * (b + 1.0).powf(a);
        Self { a, b, c }
    }

    /// `1 / p` of a label that occurs in so many training examples.
    pub fn inverse(&self, examples: u32) -> f64 {
        1.0 + self.c * (f64::from(examples) + self.b).powf(-self.a)
    }
}
