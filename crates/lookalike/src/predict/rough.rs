//! Exact rankings without an exact score of every class.
//!
//! Every class is scored roughly first. Class vectors are whole numbers of a byte, sixteen
//! classes side by side ([`Columns`]), and so are the sparse weights of frequent features
//! ([`FrequentRows`](crate::model::FrequentRows)), which are most of the additions; rarer
//! features add their weights as they are. How far such a score may be from the exact one
//! is bounded for each example. So a class whose rough score lies further below the `k`-th best
//! than twice that bound is not among the best `k`, and the few dozen that are left are scored
//! exactly, as [`super::few`] does it: the answer is that of [`super::exact`], to the bit.
//!
//! **The bound.** With codes `ŵ` of a class and `Ê` of the embedding,
//! `|w · E - ŵ · Ê| <= |w - ŵ| |E| + |ŵ| |E - Ê|`, by the largest `|w - ŵ|` and `|ŵ|` of all
//! classes; a frequent feature adds half a step of its row; and each of some
//! hundred roundings on either side takes 2⁻²⁴ of the largest sum on the way.
//!
//! `O(examples · N · dim)` still, at four products and more in the time of one. Memory: a
//! byte for each number of the class vectors, and one a class for each frequent feature.

mod scan;
#[cfg(test)]
mod tests;

use lookalike_kernels::Cpu;

use super::sparse_queries::SparseQueries;
use crate::model::RowsView;
use crate::model::columns::{Coded, Columns};

pub(super) use scan::RoughScratch;

/// A model's classes in bytes.
#[derive(Debug)]
pub(super) struct RoughClasses {
    num_classes: usize,
    columns: Columns,
    reach: Reach,
}

/// How large the numbers of all classes are; infinite where one is not finite.
#[derive(Clone, Copy, Debug, Default)]
struct Reach {
    /// Length of a class vector in codes.
    coded: f32,
    /// Distance of a class vector from its codes.
    lost: f32,
    bias: f32,
}

impl RoughClasses {
    /// Of class vectors with what each scores whatever the example. It starts no parallel
    /// work, so that it may be made on first use. O(classes · width).
    pub(super) fn new(cpu: Cpu, vectors: RowsView<'_>, bias: &[f32]) -> Self {
        let mut reach = Reach::default();
        let row = |class: usize, numbers: &mut [f32]| vectors.copy_row(class, numbers);
        let columns = Columns::new(cpu, vectors.stride, bias, row, |coded| reach.take(coded));
        reach.bias = bias.iter().fold(0.0, |most, bias| larger(most, bias.abs()));
        Self { num_classes: bias.len(), columns, reach }
    }
}

impl Reach {
    fn take(&mut self, Coded { numbers, codes, scale }: Coded<'_>) {
        let (mut coded, mut lost) = (0.0, 0.0);
        for (number, &code) in numbers.iter().zip(codes) {
            let rough = scale * f32::from(code);
            coded += rough * rough;
            lost += (number - rough) * (number - rough);
        }
        self.coded = larger(self.coded, coded.sqrt());
        self.lost = larger(self.lost, lost.sqrt());
    }
}

/// The larger of two sizes, infinite where one is not finite.
fn larger(a: f32, b: f32) -> f32 {
    if b.is_finite() { a.max(b) } else { f32::INFINITY }
}
