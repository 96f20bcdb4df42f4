//! The softmax of one example whose scores lie side by side.

/// Turns scores, the `truths` true labels first, into `weight · (p - t)` with
/// `t = 1/|y|` on true labels. Without a true label there is no gradient.
pub(crate) fn weighted_softmax_gradient(scores: &mut [f32], truths: usize, weight: f32) {
    if truths == 0 {
        return scores.fill(0.0);
    }
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|x| *x = (*x - max).exp());
    let factor = weight / scores.iter().sum::<f32>();
    scores.iter_mut().for_each(|x| *x *= factor);
    scores[..truths].iter_mut().for_each(|x| *x -= weight / truths as f32);
}
