//! Sub-linear top-k: exact scores for a few candidates.
//!
//! Who proposes the candidates is not this module's business; hash tables over
//! the class vectors find most of the best classes in time that does not grow
//! with their number. `O(candidates · dim)` an example.

use lookalike_kernels::{Cpu, FLAG_BITS, gather_dot};

use super::best::Best;
use super::ranking::Ranked;
use crate::model::{RowData, RowsView};

/// Working memory of [`rescore`] and its last answer, reused between calls.
#[derive(Debug, Default)]
pub struct RescoreScratch {
    entries: Vec<u32>,
    products: Vec<f32>,
    best: Best,
    classes: Vec<u32>,
    scores: Vec<f32>,
}

/// The best `k` of the given candidates, by `class_vector · embedding + bias`.
///
/// Candidates are distinct, in any order. The embedding has the stride of the
/// class vectors.
///
/// # Panics
/// If a candidate is not a class or the embedding has another length.
pub fn rescore<'s>(
    cpu: Cpu,
    class_vectors: RowsView<'_>,
    bias: &[f32],
    embedding: &[f32],
    candidates: &[u32],
    k: usize,
    scratch: &'s mut RescoreScratch,
) -> Ranked<'s> {
    assert_eq!(embedding.len(), class_vectors.stride, "the embedding has the classes' stride");
    scratch.classes.clear();
    scratch.scores.clear();
    if k > 0 {
        scratch.multiply(cpu, class_vectors, embedding, candidates);
        scratch.best.reset(k.min(candidates.len()).max(1));
        for (&class, product) in candidates.iter().zip(&scratch.products) {
            scratch.best.offer(product + bias[class as usize], class);
        }
        for (score, class) in scratch.best.ranked() {
            scratch.classes.push(class);
            scratch.scores.push(score);
        }
    }
    Ranked { classes: &scratch.classes, scores: &scratch.scores }
}

impl RescoreScratch {
    /// `products[i] = class_vectors[candidates[i]] · embedding`.
    fn multiply(
        &mut self,
        cpu: Cpu,
        class_vectors: RowsView<'_>,
        embedding: &[f32],
        candidates: &[u32],
    ) {
        let stride = class_vectors.stride;
        self.products.clear();
        self.products.resize(candidates.len(), 0.0);
        // The product is symmetric: the embedding takes the part of the one row,
        // so that the kernel gathers (and prefetches) the class vectors. Class
        // ids must then fit beside the flag bits.
        let gathered = class_vectors.len() <= 1 << (u32::BITS - FLAG_BITS);
        match class_vectors.data {
            RowData::F32(data) if gathered => {
                self.entries.clear();
                self.entries.extend(candidates.iter().map(|class| class << FLAG_BITS));
                gather_dot(cpu, embedding, data, &self.entries, &mut self.products);
            }
            RowData::F32(data) => {
                for (&class, product) in candidates.iter().zip(self.products.chunks_mut(1)) {
                    let row = &data[class as usize * stride..][..stride];
                    gather_dot(cpu, row, embedding, &[0], product);
                }
            }
            RowData::Bf16(data) => {
                for (&class, product) in candidates.iter().zip(self.products.chunks_mut(1)) {
                    let row = &data[class as usize * stride..][..stride];
                    gather_dot(cpu, row, embedding, &[0], product);
                }
            }
        }
    }
}
