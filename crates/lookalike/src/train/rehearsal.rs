//! Examples of an earlier training that are trained on again, so that what they taught is
//! not forgotten.
//!
//! They stand behind the new examples of the data. Every epoch has all of the new ones and
//! some of these: the lot puts them into a row, and each epoch takes the next ones, round
//! and round. So a class that is learnt gets several passes while the others are reminded
//! of, each example in its turn, for the price of one.

use serde::{Deserialize, Serialize};

use crate::data::Examples;
use crate::random::{Stream, mix};

/// Which examples are rehearsed, and how many at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rehearsal {
    /// The first of them; those before it are new.
    pub first: usize,
    /// How many an epoch has, at most all.
    pub an_epoch: usize,
}

impl Rehearsal {
    /// Leaves in `order`, which has all examples that may be trained on or those of another
    /// epoch, those of this one; in which order, the caller says.
    pub(super) fn leave_epoch(&self, order: &mut Vec<u32>, examples: &Examples<'_>, seed: u64, epoch: usize) {
        order.retain(|&example| (example as usize) < self.first);
        let rehearsed = self.first as u64..examples.len() as u64;
        let mut lots: Vec<(u64, u32)> = rehearsed
            .filter(|&example| examples.teaches(example as usize))
            .map(|example| (mix(seed, Stream::Rehearse, 0, example), example as u32))
            .collect();
        lots.sort_unstable();
        let count = self.an_epoch.min(lots.len());
        let start = (epoch as u128 * count as u128 % lots.len().max(1) as u128) as usize;
        let next = lots.iter().cycle().skip(start).take(count);
        order.extend(next.map(|&(_, example)| example));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;

    fn data() -> Dataset {
        let mut data = Dataset::empty(3, 2);
        for i in 0..30u32 {
            let labels: &[u32] = if i == 17 { &[] } else { &[0] };
            data.push([(i % 3, 1.0)], labels);
        }
        data
    }

    fn epochs(an_epoch: usize, count: usize) -> Vec<Vec<u32>> {
        let data = data();
        let rehearsal = Rehearsal { first: 10, an_epoch };
        let mut order: Vec<u32> = (0..10).filter(|i| i % 4 != 0).collect();
        let of_epoch = |epoch| {
            rehearsal.leave_epoch(&mut order, &data.view(), 1, epoch);
            order.clone()
        };
        (0..count).map(of_epoch).collect()
    }

    #[test]
    fn each_example_has_its_turn_and_new_ones_are_always_there() {
        // 19 of the 20 teach something.
        let epochs = epochs(7, 19);
        let mut turns = [0; 30];
        for order in &epochs {
            assert_eq!(order.len(), 7 + 7);
            order.iter().for_each(|&i| turns[i as usize] += 1);
        }
        for (example, &turns) in turns.iter().enumerate() {
            let expected = match example {
                17 => 0,
                0..10 => 19 * usize::from(example % 4 != 0),
                _ => 7,
            };
            assert_eq!(turns, expected, "{example}");
        }
        let first = |epoch: usize| epochs[epoch][7..].to_vec();
        assert!(first(0).iter().all(|i| !first(1).contains(i)));
    }

    #[test]
    fn numbers_from_a_file_may_be_anything() {
        assert_eq!(epochs(usize::MAX, 3)[2].len(), 7 + 19);
        let data = data();
        let mut order: Vec<u32> = (0..30).collect();
        let beyond = Rehearsal { first: usize::MAX, an_epoch: 5 };
        beyond.leave_epoch(&mut order, &data.view(), 1, usize::MAX);
        assert_eq!(order.len(), 30);
    }
}
