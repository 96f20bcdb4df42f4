//! Sub-linear top-k: exact scores for a few candidates.
//!
//! Who proposes the candidates is not this module's business; hash tables over
//! the class vectors find most of the best classes in time that does not grow
//! with their number. `O(candidates · dim)` an example.

use lookalike_kernels::{Cpu, Element, FLAG_BITS, gather_dot};

use super::ranking::Ranked;
use crate::best::Best;
use crate::model::{RowData, RowsView};

/// Working memory of [`rescore`] and its last answer, reused between calls.
#[derive(Debug, Default)]
pub struct RescoreScratch {
    entries: Vec<u32>,
    of_candidates: Vec<f32>,
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
        let RescoreScratch { entries, of_candidates, best, .. } = scratch;
        of_candidates.resize(candidates.len(), 0.0);
        score_chosen(cpu, class_vectors, bias, embedding, candidates, entries, of_candidates);
        best.reset(k.min(candidates.len()).max(1));
        for (&class, &score) in candidates.iter().zip(&*of_candidates) {
            best.offer(score, class);
        }
        for (score, class) in best.ranked() {
            scratch.classes.push(class);
            scratch.scores.push(score);
        }
    }
    Ranked { classes: &scratch.classes, scores: &scratch.scores }
}

/// `scores[i] = class_vectors[classes[i]] · embedding + bias[classes[i]]`; `entries`
/// is working memory.
pub(super) fn score_chosen(
    cpu: Cpu,
    class_vectors: RowsView<'_>,
    bias: &[f32],
    embedding: &[f32],
    classes: &[u32],
    entries: &mut Vec<u32>,
    scores: &mut [f32],
) {
    // The product is symmetric: the embedding takes the part of the one row,
    // so that the kernel gathers (and prefetches) the class vectors. Class
    // ids must then fit beside the flag bits.
    let gathered = class_vectors.len() <= 1 << (u32::BITS - FLAG_BITS);
    match class_vectors.data {
        RowData::F32(data) if gathered => {
            entries.clear();
            entries.extend(classes.iter().map(|class| class << FLAG_BITS));
            gather_dot(cpu, embedding, data, entries, scores);
        }
        RowData::F32(data) => dot_each(cpu, data, embedding, classes, scores),
        RowData::Bf16(data) => dot_each(cpu, data, embedding, classes, scores),
    }
    for (score, &class) in scores.iter_mut().zip(classes) {
        *score += bias[class as usize];
    }
}

/// One class vector at a time.
fn dot_each<T: Element>(cpu: Cpu, data: &[T], embedding: &[f32], classes: &[u32], products: &mut [f32]) {
    let stride = embedding.len();
    for (&class, product) in classes.iter().zip(products) {
        let row = &data[class as usize * stride..][..stride];
        gather_dot(cpu, row, embedding, &[0], std::slice::from_mut(product));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Class `i` scores `i % 4`, plus a bias that puts class 5 on top.
    #[test]
    fn only_candidates_are_ranked() {
        let mut vectors = [0.0; 8 * 16];
        for (class, row) in vectors.chunks_exact_mut(16).enumerate() {
            row[1] = (class % 4) as f32;
        }
        let mut embedding = [0.0; 16];
        embedding[1] = 1.0;
        let mut bias = [0.0; 8];
        bias[5] = 10.0;
        let view = RowsView::f32(&vectors, 2);
        let mut scratch = RescoreScratch::default();
        let mut rank = |candidates: &[u32], k| {
            let cpu = Cpu::detect();
            let ranked = rescore(cpu, view, &bias, &embedding, candidates, k, &mut scratch);
            (ranked.classes.to_vec(), ranked.scores.to_vec())
        };
        assert_eq!(rank(&[7, 5, 0, 3], 3), (vec![5, 3, 7], vec![11.0, 3.0, 3.0]));
        assert_eq!(rank(&[6, 2], 5), (vec![2, 6], vec![2.0, 2.0]));
        assert_eq!(rank(&[], 5), (vec![], vec![]));
        assert_eq!(rank(&[1], 0), (vec![], vec![]));
    }
}
