//! Which of the classes that tables found an example are spared ([`super::mixed`]).
//!
//! Each class has a lot of its own, drawn from its number by a hash function that belongs to
//! the example and the iteration. So it matters neither in which order classes were found nor
//! which rank found them, and ranks need not ask each other. The hash is multiply-add-shift
//! (Dietzfelbinger 1996): over draws of factor and summand, the lots of any two classes are
//! independent, and each wins with the very chance it should, to 2^-32.
//!
//! How many win varies about `rate` times the number of classes. A lot for the whole set
//! could fix that number, and would depend on the set: the estimate's mean is right either way.

use rand_xoshiro::rand_core::Rng as _;

use super::Request;
use crate::random::{Rng, Stream, rng};

/// The lots of one example's classes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lots {
    factor: u64,
    summand: u64,
    /// A hash below wins.
    limit: u64,
}

impl Lots {
    /// Lots of an example of the batch, of which each wins with chance `rate`.
    pub(super) fn draw(request: &Request<'_>, position: usize, rate: f64) -> Self {
        let example = u64::from(request.batch[position]);
        Self::new(rng(request.seed, Stream::Spare, request.iteration, example), rate)
    }

    fn new(mut rng: Rng, rate: f64) -> Self {
        let (factor, summand) = (rng.next_u64(), rng.next_u64());
        Self { factor, summand, limit: (rate * 2f64.powi(u32::BITS as i32)).round() as u64 }
    }

    fn wins(self, class: u64) -> bool {
        self.factor.wrapping_mul(class).wrapping_add(self.summand) >> u32::BITS < self.limit
    }

    /// Moves the classes that win to the front and gives their number. The classes are
    /// counted from `first_class`.
    pub(super) fn move_winners_to_front(self, classes: &mut [u32], first_class: usize) -> usize {
        let mut winners = 0;
        for place in 0..classes.len() {
            if self.wins(first_class as u64 + u64::from(classes[place])) {
                classes.swap(winners, place);
                winners += 1;
            }
        }
        winners
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lots(iteration: u64, rate: f64) -> Lots {
        Lots::new(rng(5, Stream::Spare, iteration, 3), rate)
    }

    #[test]
    fn each_class_wins_as_often_as_it_should_and_any_two_independently() {
        const CLASSES: [u32; 6] = [0, 1, 2, 3, 70_000, u32::MAX - 1];
        const DRAWS: u64 = 20_000;
        let mut counts = [[0u32; CLASSES.len()]; CLASSES.len()];
        for iteration in 0..DRAWS {
            let won = CLASSES.map(|class| lots(iteration, 0.4).wins(u64::from(class)));
            for (a, b) in (0..CLASSES.len()).flat_map(|a| (0..CLASSES.len()).map(move |b| (a, b))) {
                counts[a][b] += u32::from(won[a] && won[b]);
            }
        }
        for (a, b) in (0..CLASSES.len()).flat_map(|a| (0..CLASSES.len()).map(move |b| (a, b))) {
            // Standard deviations 69 and 52: five of the first.
            let expected = if a == b { 8_000 } else { 3_200 };
            assert!(counts[a][b].abs_diff(expected) < 345, "{a}, {b}: {}", counts[a][b]);
        }
    }

    #[test]
    fn winners_come_to_the_front_whatever_the_order_and_the_rank() {
        let lots = lots(1, 0.3);
        let mut classes: Vec<u32> = (0..100).collect();
        let winners = lots.move_winners_to_front(&mut classes, 0);
        let mut of_one = classes[..winners].to_vec();
        of_one.sort_unstable();
        assert!((1..100).contains(&winners));
        let mut of_ranks = Vec::new();
        for first in [60, 0] {
            let mut own: Vec<u32> = (0..if first == 0 { 60 } else { 40 }).rev().collect();
            let winners = lots.move_winners_to_front(&mut own, first);
            of_ranks.extend(own[..winners].iter().map(|&local| first as u32 + local));
            own.sort_unstable();
            assert!(own.iter().enumerate().all(|(i, &local)| local == i as u32), "none is lost");
        }
        of_ranks.sort_unstable();
        assert_eq!(of_ranks, of_one);
    }

    #[test]
    fn all_win_and_none_at_the_ends() {
        let mut classes = [4, 9, u32::MAX - 1];
        assert_eq!(lots(2, 1.0).move_winners_to_front(&mut classes, 0), 3);
        assert_eq!(lots(2, 0.0).move_winners_to_front(&mut classes, 0), 0);
    }
}
