//! For each feature, the classes that weigh it most.
//!
//! Walking all postings of an example's features scores every class by its sparse
//! weights, and common features have postings for most classes. Here each feature lists
//! the [`LIST_MAX`] classes with the largest weights, largest first, and an example walks
//! the lists of its strongest features, and the fewer it has the more of each: the sums
//! say well enough which classes could be meant. Cost: a fixed number of additions an
//! example, however many classes there are. Memory: at most 8 bytes a weight.

use rayon::prelude::*;

use crate::model::SparsePart;

/// Classes in a feature's list at most.
const LIST_MAX: usize = 2000;
/// Features of an example that are asked at most.
const FEATURES_MAX: usize = 48;

/// The classes that weigh each feature most, in descending order of weight.
#[derive(Clone, Debug)]
pub struct StrongClasses {
    offsets: Vec<u64>,
    lists: Vec<(u32, f32)>,
}

/// Working memory of [`StrongClasses::walk`] and its last answer, reused between calls.
#[derive(Debug, Default)]
pub struct StrongScratch {
    strongest: Vec<(u32, f32)>,
    /// A sum a class; zero but for `met`.
    sums: Vec<f32>,
    met: Vec<u32>,
}

impl StrongScratch {
    /// Classes that were met, some perhaps twice.
    pub fn met(&self) -> &[u32] {
        &self.met
    }

    /// What was added up for a class.
    pub fn sum(&self, class: u32) -> f32 {
        self.sums.get(class as usize).copied().unwrap_or(0.0)
    }
}

impl StrongClasses {
    /// Of the weights of a sparse part.
    pub fn new(sparse: &SparsePart, num_features: usize) -> Self {
        let postings = sparse.postings(num_features);
        let list = |feature: u32| {
            let (classes, weights) = postings.of(feature);
            let mut list: Vec<(u32, f32)> = classes.iter().copied().zip(weights.iter().copied()).collect();
            let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
            if list.len() > LIST_MAX {
                list.select_nth_unstable_by(LIST_MAX - 1, order);
                list.truncate(LIST_MAX);
            }
            list.sort_unstable_by(order);
            list
        };
        let lists: Vec<Vec<(u32, f32)>> = (0..num_features as u32).into_par_iter().map(list).collect();
        let lengths: Vec<u32> = lists.iter().map(|list| list.len() as u32).collect();
        Self { offsets: crate::model::lists::offsets(&lengths), lists: lists.concat() }
    }

    /// Adds up what the lists of an example's features give each class, with at most
    /// about `additions` of them; values are multiplied with `factor`.
    pub fn walk(
        &self,
        (ids, values): (&[u32], &[f32]),
        factor: f32,
        num_classes: usize,
        additions: usize,
        scratch: &mut StrongScratch,
    ) {
        let StrongScratch { strongest, sums, met } = scratch;
        met.drain(..).for_each(|class| sums[class as usize] = 0.0);
        sums.resize(num_classes, 0.0);
        strongest.clear();
        strongest.extend(ids.iter().zip(values).map(|(&id, &value)| (id, value * factor)));
        if strongest.len() > FEATURES_MAX {
            let strength =
                |a: &(u32, f32), b: &(u32, f32)| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0));
            strongest.select_nth_unstable_by(FEATURES_MAX - 1, strength);
            strongest.truncate(FEATURES_MAX);
            // Whatever order selection left them in, sums are taken in one order.
            strongest.sort_unstable_by_key(|&(id, _)| id);
        }
        let each = additions.div_ceil(strongest.len().max(1));
        for &(id, strength) in strongest.iter() {
            let range = self.offsets[id as usize] as usize..self.offsets[id as usize + 1] as usize;
            for &(class, weight) in self.lists[range].iter().take(each) {
                let sum = &mut sums[class as usize];
                if *sum == 0.0 {
                    met.push(class);
                }
                *sum += strength * weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SparseStart;

    /// Class `c` weighs feature 0 by `c`, and one of features 1 to 60 by 1.
    fn lists(classes: usize) -> StrongClasses {
        let rows = (0..classes as u32).flat_map(|class| [0, 1 + class % 60]);
        let weights = (0..classes).flat_map(|class| [class as f32, 1.0]);
        let (lengths, start) = (vec![2; classes], (1.0, SparseStart::Centroid));
        let part = SparsePart::from_parts(&lengths, rows.collect(), weights.collect(), start, &[]);
        StrongClasses::new(&part, 61)
    }

    fn met(lists: &StrongClasses, query: (&[u32], &[f32]), classes: usize, additions: usize) -> Vec<u32> {
        let mut scratch = StrongScratch::default();
        lists.walk(query, 2.0, classes, additions, &mut scratch);
        let mut met = scratch.met().to_vec();
        met.sort_unstable();
        met
    }

    #[test]
    fn a_list_holds_the_largest_weights_and_is_walked_from_the_largest() {
        let classes = LIST_MAX + 100;
        let lists = lists(classes);
        let all = met(&lists, (&[0], &[1.0]), classes, usize::MAX);
        assert_eq!(all, (100..classes as u32).collect::<Vec<_>>());
        let some = met(&lists, (&[0], &[1.0]), classes, 3);
        assert_eq!(some, [classes as u32 - 3, classes as u32 - 2, classes as u32 - 1]);
        // Additions are shared out among the features.
        assert_eq!(met(&lists, (&[0, 1], &[1.0, 1.0]), classes, 4).len(), 4);
        assert_eq!(met(&lists, (&[0, 1], &[1.0, 1.0]), classes, 3).len(), 4);
    }

    #[test]
    fn sums_are_those_of_the_strongest_features_and_of_one_query_alone() {
        let (classes, lists) = (300, lists(300));
        let mut scratch = StrongScratch::default();
        lists.walk((&[0, 7], &[0.5, -3.0]), 2.0, classes, usize::MAX, &mut scratch);
        for class in 0..classes as u32 {
            let of_seven = if class % 60 == 6 { -6.0 } else { 0.0 };
            assert_eq!(scratch.sum(class), class as f32 + of_seven, "class {class}");
        }
        // Feature 0 is the weakest of more than are asked.
        let ids: Vec<u32> = (0..=FEATURES_MAX as u32).collect();
        let values: Vec<f32> = ids.iter().map(|&id| 0.5 + id as f32).collect();
        lists.walk((&ids, &values), 1.0, classes, usize::MAX, &mut scratch);
        for class in 0..classes as u32 {
            let feature = 1 + class % 60;
            let expected = if feature <= FEATURES_MAX as u32 { 0.5 + feature as f32 } else { 0.0 };
            assert_eq!(scratch.sum(class), expected, "class {class}");
        }
        lists.walk((&[], &[]), 1.0, classes, usize::MAX, &mut scratch);
        assert!((0..classes as u32).all(|class| scratch.sum(class) == 0.0) && scratch.met().is_empty());
    }
}
