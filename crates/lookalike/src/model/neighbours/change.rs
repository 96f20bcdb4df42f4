//! Kept examples of a model whose classes and features change.

use half::bf16;

use super::super::lists::offsets;
use super::{EXAMPLES_MAX, Neighbours};
use crate::data::{Dataset, Examples};

/// Kept examples taken apart.
struct TakenApart {
    lengths: Vec<u32>,
    features: Vec<u32>,
    values: Vec<bf16>,
    /// The examples of each class.
    members: Vec<Vec<u32>>,
}

impl TakenApart {
    fn of(part: &Neighbours) -> Self {
        let (features, values) = part.entries();
        let starts = offsets(&part.class_lengths());
        let list = |pair: &[u64]| part.members()[pair[0] as usize..pair[1] as usize].to_vec();
        Self {
            lengths: part.lengths(),
            features: features.to_vec(),
            values: values.to_vec(),
            members: starts.windows(2).map(list).collect(),
        }
    }

    /// Leaves out examples that no class has any more.
    fn compact(&mut self) {
        const GONE: u32 = u32::MAX;
        let mut place = vec![GONE; self.lengths.len()];
        self.members.iter().flatten().for_each(|&example| place[example as usize] = 0);
        let starts: Vec<u64> = offsets(&self.lengths);
        let (mut lengths, mut features, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (example, place) in place.iter_mut().enumerate().filter(|(_, place)| **place != GONE) {
            *place = lengths.len() as u32;
            let range = starts[example] as usize..starts[example + 1] as usize;
            lengths.push(self.lengths[example]);
            features.extend_from_slice(&self.features[range.clone()]);
            values.extend_from_slice(&self.values[range]);
        }
        self.members.iter_mut().flatten().for_each(|example| *example = place[*example as usize]);
        (self.lengths, self.features, self.values) = (lengths, features, values);
    }

    fn join(self, num_features: usize, weight: f32) -> Neighbours {
        let class_lengths: Vec<u32> = self.members.iter().map(|list| list.len() as u32).collect();
        let members = self.members.concat();
        let Self { lengths, features, values, .. } = self;
        Neighbours::from_parts(num_features, &lengths, features, values, &class_lengths, members, weight)
    }
}

impl Neighbours {
    /// The same with room for more features and classes, which have no example yet.
    pub(in crate::model) fn grown(&self, num_features: usize, num_classes: usize) -> Self {
        let mut parts = TakenApart::of(self);
        parts.members.resize(num_classes, Vec::new());
        parts.join(num_features, self.weight())
    }

    /// With the examples `chosen` besides, which are of the same shape.
    pub(crate) fn with(&self, examples: &Examples<'_>, chosen: &[u32]) -> Self {
        let (mut parts, more) = (TakenApart::of(self), TakenApart::of(&Self::new(examples, chosen)));
        let first = parts.lengths.len() as u32;
        parts.lengths.extend(more.lengths);
        parts.features.extend(more.features);
        parts.values.extend(more.values);
        for (list, more) in parts.members.iter_mut().zip(more.members) {
            list.extend(more.into_iter().map(|example| first + example));
            if list.len() > EXAMPLES_MAX {
                let spread = (0..EXAMPLES_MAX).map(|i| list[i * list.len() / EXAMPLES_MAX]);
                *list = spread.collect();
            }
        }
        parts.compact();
        parts.join(examples.num_features, self.weight())
    }

    /// Of some classes alone, in the order given.
    pub(in crate::model) fn of_classes(&self, num_features: usize, classes: &[u32]) -> Self {
        let mut parts = TakenApart::of(self);
        parts.members = classes.iter().map(|&class| parts.members[class as usize].clone()).collect();
        parts.compact();
        parts.join(num_features, self.weight())
    }

    /// The kept examples as data: what was kept of their features, scaled to length 1,
    /// and their labels. A class with more examples than are kept of it is missing from
    /// the labels of the others.
    pub fn to_dataset(&self, num_features: usize) -> Dataset {
        let parts = TakenApart::of(self);
        let mut labels: Vec<Vec<u32>> = vec![Vec::new(); parts.lengths.len()];
        for (class, members) in parts.members.iter().enumerate() {
            members.iter().for_each(|&example| labels[example as usize].push(class as u32));
        }
        let starts: Vec<u64> = offsets(&parts.lengths);
        let mut data = Dataset::empty(num_features, parts.members.len());
        for (range, labels) in starts.windows(2).zip(&labels) {
            let range = range[0] as usize..range[1] as usize;
            let values = parts.values[range.clone()].iter().map(|value| value.to_f32());
            data.push(parts.features[range].iter().copied().zip(values), labels);
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> Dataset {
        let mut data = Dataset::empty(5, 3);
        data.push([(0, 3.0), (2, 4.0)], &[0, 1]);
        data.push([(0, 1.0)], &[0]);
        data.push([(3, 2.0)], &[1]);
        data.push([(4, 1.0)], &[2]);
        data
    }

    /// Examples by what is kept of them and their labels.
    fn rows(part: &Neighbours) -> Vec<(Vec<u32>, Vec<u32>)> {
        let data = part.to_dataset(9);
        let view = data.view();
        assert_eq!(view.check_law(), Ok(()));
        (0..view.len()).map(|i| (view.features(i).0.to_vec(), view.labels(i).to_vec())).collect()
    }

    #[test]
    fn examples_come_back_as_they_were_kept() {
        let part = Neighbours::new(&data().view(), &[0, 1, 2, 3]);
        let expected = [(vec![0, 2], vec![0, 1]), (vec![0], vec![0]), (vec![3], vec![1]), (vec![4], vec![2])];
        assert_eq!(rows(&part), expected);
        assert_eq!(rows(&part.grown(9, 7)), expected);
        assert_eq!(part.grown(9, 7).class_lengths(), [2, 2, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn a_class_that_goes_takes_its_own_examples_along() {
        let part = Neighbours::new(&data().view(), &[0, 1, 2, 3]).weighted(0.5);
        let kept = part.of_classes(5, &[1, 2]);
        assert_eq!(kept.weight(), 0.5);
        assert_eq!(rows(&kept), [(vec![0, 2], vec![0]), (vec![3], vec![0]), (vec![4], vec![1])]);
    }

    #[test]
    fn new_examples_stand_behind_the_old_ones() {
        let part = Neighbours::new(&data().view(), &[0, 1]).with(&data().view(), &[2, 3]);
        assert_eq!(rows(&part), rows(&Neighbours::new(&data().view(), &[0, 1, 2, 3])));
    }

    #[test]
    fn a_frequent_class_keeps_no_more_than_it_may() {
        let mut data = Dataset::empty(2, 1);
        (0..EXAMPLES_MAX).for_each(|_| data.push([(0, 1.0)], &[0]));
        let all: Vec<u32> = (0..EXAMPLES_MAX as u32).collect();
        let part = Neighbours::new(&data.view(), &all).with(&data.view(), &all);
        assert_eq!(part.class_lengths(), [EXAMPLES_MAX as u32]);
        assert_eq!(part.num_examples(), EXAMPLES_MAX);
    }
}
