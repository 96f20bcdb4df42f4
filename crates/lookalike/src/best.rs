//! The k best of a stream of scored classes.

use lookalike_kernels::{Cpu, indices_above};

/// Keeps the `k` best of the classes it is offered.
///
/// It lets more than `k` pile up and then throws away the worse ones at once:
/// `O(1)` amortised an offer, where a heap would take `O(log k)`. A score and
/// its class are packed in one integer that orders as we rank, so the result is
/// the same whatever the order of the offers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Best {
    k: usize,
    keys: Vec<u64>,
    /// What a key must exceed to be among the best; 0 until `k` are known.
    floor: u64,
}

/// How many may pile up beyond `k` at least: selecting among a handful after
/// every few offers would cost more than it saves.
const SLACK_MIN: usize = 64;

/// Scores that are compared with what is known to be good before it is looked at again.
const PART: usize = 256;

impl Best {
    /// Forgets everything and keeps the best `k` (at least 1) from here on.
    pub(crate) fn reset(&mut self, k: usize) {
        self.k = k;
        self.keys.clear();
        self.floor = 0;
    }

    /// A score that any *higher* class id must exceed to be among the best: the
    /// filter to put before [`Best::offer`] when classes come in ascending order.
    pub(crate) fn threshold(&self) -> f32 {
        if self.floor == 0 { f32::NEG_INFINITY } else { score_of(self.floor) }
    }

    /// Takes the class in if it is among the best so far.
    pub(crate) fn offer(&mut self, score: f32, class: u32) {
        if score > f32::NEG_INFINITY {
            self.offer_key(key(score, class));
        }
    }

    /// Takes in those of many scores that are among the best; the first is that of class
    /// `first`. `found` is working memory.
    pub(crate) fn offer_many(&mut self, cpu: Cpu, scores: &[f32], first: u32, found: &mut Vec<u32>) {
        self.offer_within(cpu, scores, first, (0.0, |_, _| {}), found);
    }

    /// As [`offer_many`](Self::offer_many), and shows those too that are less than a window
    /// below the best so far.
    pub(crate) fn offer_within(
        &mut self,
        cpu: Cpu,
        scores: &[f32],
        first: u32,
        (window, mut show): (f32, impl FnMut(f32, u32)),
        found: &mut Vec<u32>,
    ) {
        for (first, scores) in (first..).step_by(PART).zip(scores.chunks(PART)) {
            found.clear();
            indices_above(cpu, scores, self.threshold() - window, found);
            for &i in &*found {
                let (score, class) = (scores[i as usize], first + i);
                show(score, class);
                self.offer(score, class);
            }
        }
    }

    /// Takes in everything that `other` has kept.
    pub(crate) fn offer_all(&mut self, other: &Self) {
        for &key in &other.keys {
            self.offer_key(key);
        }
    }

    fn offer_key(&mut self, key: u64) {
        if key > self.floor {
            self.keys.push(key);
            if self.keys.len() >= self.k + self.k.max(SLACK_MIN) {
                self.cut();
            }
        }
    }

    fn cut(&mut self) {
        if self.keys.len() > self.k {
            self.keys.select_nth_unstable_by(self.k - 1, |a, b| b.cmp(a));
            self.keys.truncate(self.k);
            self.floor = self.keys[self.k - 1];
        }
    }

    /// The score of the last of the best `k`, if there are so many.
    pub(crate) fn last(&mut self) -> Option<f32> {
        self.cut();
        let lowest = self.keys.iter().min().filter(|_| self.keys.len() == self.k);
        lowest.map(|&key| score_of(key))
    }

    /// The best, best first; at most `k`.
    pub(crate) fn ranked(&mut self) -> impl ExactSizeIterator<Item = (f32, u32)> {
        self.cut();
        self.keys.sort_unstable_by(|a, b| b.cmp(a));
        self.keys.iter().map(|&key| (score_of(key), !(key as u32)))
    }
}

const SIGN: u32 = 1 << 31;

/// Orders by score, and among equal scores by descending class.
fn key(score: f32, class: u32) -> u64 {
    // Adding zero makes one of the two zeroes, which would otherwise not tie.
    let bits = (score + 0.0).to_bits();
    let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
    u64::from(ordered) << 32 | u64::from(!class)
}

fn score_of(key: u64) -> f32 {
    let ordered = (key >> 32) as u32;
    f32::from_bits(if ordered & SIGN == 0 { !ordered } else { ordered ^ SIGN })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(offers: &[(f32, u32)], k: usize) -> Vec<(f32, u32)> {
        let mut all: Vec<_> = offers.iter().copied().filter(|(s, _)| *s > f32::NEG_INFINITY).collect();
        all.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap().then(a.1.cmp(&b.1)));
        all.truncate(k);
        all
    }

    fn score() -> impl Strategy<Value = f32> {
        prop_oneof![
            8 => (-3i32..4).prop_map(|x| x as f32 / 2.0),
            4 => -1e30f32..1e30,
            1 => prop::sample::select(vec![
                0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE, 1e-45,
            ]),
        ]
    }

    proptest! {
        #[test]
        fn equals_sorting_whatever_the_order(
            scores in prop::collection::vec(score(), 0..400),
            k in 1usize..200,
            rotate in 0usize..400,
        ) {
            let mut offers: Vec<_> = scores.into_iter().zip(0u32..).collect();
            let expected = naive(&offers, k);
            let rotate = rotate.min(offers.len());
            offers.rotate_left(rotate);
            let mut best = Best::default();
            best.reset(k);
            for &(score, class) in &offers {
                best.offer(score, class);
            }
            let found: Vec<_> = best.ranked().collect();
            prop_assert_eq!(&found, &expected);

            // The same in two parts that are merged, and after a reset.
            let mut parts = [best.clone(), best];
            for (i, part) in parts.iter_mut().enumerate() {
                part.reset(k);
                for &(score, class) in offers.iter().filter(|(_, c)| *c as usize % 2 == i) {
                    part.offer(score, class);
                }
            }
            let [mut all, odd] = parts;
            all.offer_all(&odd);
            prop_assert_eq!(all.ranked().collect::<Vec<_>>(), expected);
        }

        #[test]
        fn many_at_once_are_one_after_the_other(
            scores in prop::collection::vec(score(), 0..900), k in 1usize..50, first in 0u32..9,
        ) {
            let mut best = Best::default();
            best.reset(k);
            best.offer_many(Cpu::detect(), &scores, first, &mut vec![7]);
            let offers: Vec<_> = scores.into_iter().zip(first..).collect();
            prop_assert_eq!(best.ranked().collect::<Vec<_>>(), naive(&offers, k));
        }

        #[test]
        fn the_threshold_filters_nothing_that_belongs(
            scores in prop::collection::vec(score(), 0..400), k in 1usize..50,
        ) {
            let mut best = Best::default();
            best.reset(k);
            let offers: Vec<_> = scores.into_iter().zip(0u32..).collect();
            for &(score, class) in &offers {
                if score > best.threshold() {
                    best.offer(score, class);
                }
            }
            prop_assert_eq!(best.ranked().collect::<Vec<_>>(), naive(&offers, k));
        }
    }
}
