//! For each feature, the classes that weigh it most.
//!
//! Walking all postings of an example's features, those of frequent ones as rows of bytes
//! ([`FrequentRows`](crate::model::FrequentRows)), scores every class by its sparse
//! weights. Where that is little, that is what is done, and
//! the sums are whole. But it grows with the number of classes. So each feature
//! also lists the [`LIST_MAX`] classes with the largest weights, largest first, and an
//! example walks the lists of its strongest features, and the fewer it has the more of
//! each: the sums say well enough which classes could be meant. Cost: a fixed number of
//! additions an example, however many classes there are. Memory: at most 8 bytes a weight.

use lookalike_kernels::{COLUMN_BLOCK, Cpu};
use rayon::prelude::*;

use crate::model::{Postings, SparsePart, WeightedRow};

/// Classes in a feature's list at most.
const LIST_MAX: usize = 2000;
/// Features of an example that are asked at most.
const FEATURES_MAX: usize = 48;
/// Whole sums are read in the order of classes: so many cost as much as an addition.
const READ_PER_ADDITION: usize = 8;
/// And so many numbers of a frequent feature's row.
const NUMBERS_PER_ADDITION: usize = 48;

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
    /// The frequent features, where all weights are added up.
    frequent: Vec<WeightedRow>,
    /// A sum a class, and some more to make whole blocks: bias and all weights, or some
    /// weights, and zero but for `met`.
    sums: Vec<f32>,
    met: Vec<u32>,
    num_classes: usize,
    is_whole: bool,
}

impl StrongScratch {
    /// Bias and weights of every class, about, where all weights of the features were added up.
    pub fn whole(&self) -> Option<&[f32]> {
        self.is_whole.then(|| &self.sums[..self.num_classes])
    }

    /// Classes that were met, some perhaps twice, where not all weights were.
    pub fn met(&self) -> &[u32] {
        &self.met
    }

    /// What the weights of a class add up to, as far as they were met.
    pub fn sum(&self, class: u32, bias: &[f32]) -> f32 {
        let class = class as usize;
        let sum = self.sums.get(class).copied().unwrap_or(0.0);
        if self.is_whole { sum - bias[class] } else { sum }
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

    /// Adds up what the features of an example give each class, beside its bias, with all
    /// their `postings` where that takes as long as `whole` additions at most, or else with at
    /// most about `additions` of the lists. Values are multiplied with a factor.
    pub fn walk(
        &self,
        cpu: Cpu,
        postings: &Postings,
        ((ids, values), factor): ((&[u32], &[f32]), f32),
        bias: &[f32],
        (additions, whole): (usize, usize),
        scratch: &mut StrongScratch,
    ) {
        let StrongScratch { strongest, frequent, sums, met, num_classes, is_whole } = scratch;
        *num_classes = bias.len();
        strongest.clear();
        strongest.extend(ids.iter().zip(values).map(|(&id, &value)| (id, value * factor)));
        let was_whole = *is_whole;
        frequent.clear();
        let mut cost = bias.len() / READ_PER_ADDITION;
        for &(id, strength) in strongest.iter() {
            let row = postings.frequent().of(id, strength).map(|(row, _)| row);
            cost += row.map_or(postings.of(id).0.len(), |_| bias.len() / NUMBERS_PER_ADDITION);
            frequent.extend(row);
        }
        *is_whole = cost <= whole;
        if *is_whole {
            met.clear();
            sums.clear();
            sums.extend_from_slice(bias);
            sums.resize(bias.len().next_multiple_of(COLUMN_BLOCK), 0.0);
            postings.frequent().add(cpu, frequent, 0, sums);
            for &(id, strength) in strongest.iter().filter(|(id, _)| !postings.frequent().has(*id)) {
                postings.add_to_all(cpu, (id, strength), &mut sums[..bias.len()]);
            }
            return;
        }
        if was_whole {
            sums.clear();
        }
        met.drain(..).for_each(|class| sums[class as usize] = 0.0);
        sums.resize(bias.len(), 0.0);
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
    fn part(classes: usize) -> SparsePart {
        let rows = (0..classes as u32).flat_map(|class| [0, 1 + class % 60]);
        let weights = (0..classes).flat_map(|class| [class as f32, 1.0]);
        let (lengths, start) = (vec![2; classes], (1.0, SparseStart::Centroid));
        SparsePart::from_parts(&lengths, rows.collect(), weights.collect(), start, &[])
    }

    fn walk(
        part: &SparsePart,
        query: (&[u32], &[f32]),
        factor: f32,
        additions: (usize, usize),
        scratch: &mut StrongScratch,
    ) {
        let lists = StrongClasses::new(part, 61);
        let bias = bias(part.num_classes());
        lists.walk(Cpu::detect(), part.postings(61), (query, factor), &bias, additions, scratch);
    }

    fn bias(classes: usize) -> Vec<f32> {
        (0..classes).map(|class| (class % 4) as f32).collect()
    }

    fn met(part: &SparsePart, query: (&[u32], &[f32]), additions: usize) -> Vec<u32> {
        let mut scratch = StrongScratch::default();
        walk(part, query, 2.0, (additions, 0), &mut scratch);
        let mut met = scratch.met().to_vec();
        met.sort_unstable();
        met
    }

    #[test]
    fn a_list_holds_the_largest_weights_and_is_walked_from_the_largest() {
        let classes = 2 * LIST_MAX + 100;
        let part = part(classes);
        let listed = met(&part, (&[0], &[1.0]), LIST_MAX);
        assert_eq!(listed, (classes as u32 - LIST_MAX as u32..classes as u32).collect::<Vec<_>>());
        let some = met(&part, (&[0], &[1.0]), 3);
        assert_eq!(some, [classes as u32 - 3, classes as u32 - 2, classes as u32 - 1]);
        // Additions are shared out among the features.
        assert_eq!(met(&part, (&[0, 1], &[1.0, 1.0]), 4).len(), 4);
        assert_eq!(met(&part, (&[0, 1], &[1.0, 1.0]), 3).len(), 4);
    }

    #[test]
    fn sums_are_whole_where_all_weights_are_few() {
        let classes = 640;
        let (part, bias) = (part(classes), bias(classes));
        // Every class weighs feature 0, which costs little, and eleven weigh feature 7.
        let cost = classes / READ_PER_ADDITION + classes / NUMBERS_PER_ADDITION;
        let mut scratch = StrongScratch::default();
        walk(&part, (&[0, 7], &[0.5, -3.0]), 2.0, (100, cost + 10), &mut scratch);
        assert!(scratch.whole().is_none());
        walk(&part, (&[0], &[0.5]), 2.0, (0, cost), &mut scratch);
        assert!(scratch.whole().is_some() && scratch.met().is_empty());
        walk(&part, (&[0, 7], &[0.5, -3.0]), 2.0, (0, cost + 11), &mut scratch);
        // A frequent feature adds what it does within half a step of its row.
        let half_a_step = 0.501 * (classes - 1) as f32 / 127.0;
        for class in 0..classes as u32 {
            let of_seven = if class % 60 == 6 { -6.0 } else { 0.0 };
            let expected = class as f32 + of_seven;
            let is_near = |sum: f32, expected: f32| (sum - expected).abs() <= half_a_step;
            assert!(is_near(scratch.sum(class, &bias), expected), "class {class}");
            let whole = scratch.whole().unwrap()[class as usize];
            assert!(is_near(whole, expected + bias[class as usize]), "class {class}");
        }
    }

    #[test]
    fn sums_are_those_of_the_strongest_features_and_of_one_query_alone() {
        let (part, bias) = (part(300), bias(300));
        // Feature 0 is the weakest of more than are asked; of each other's five classes
        // two are walked.
        let ids: Vec<u32> = (0..=FEATURES_MAX as u32).collect();
        let values: Vec<f32> = ids.iter().map(|&id| 0.5 + id as f32).collect();
        let mut scratch = StrongScratch::default();
        for before in [usize::MAX, 0] {
            walk(&part, (&[0], &[1.0]), 1.0, (3, before), &mut scratch);
            walk(&part, (&ids, &values), 1.0, (70, 0), &mut scratch);
            for class in 0..300 {
                let feature = 1 + class % 60;
                let is_walked = feature <= FEATURES_MAX as u32 && class < 120;
                let expected = if is_walked { 0.5 + feature as f32 } else { 0.0 };
                assert_eq!(scratch.sum(class, &bias), expected, "class {class}");
            }
        }
        walk(&part, (&[], &[]), 1.0, (0, 0), &mut scratch);
        assert!((0..300).all(|class| scratch.sum(class, &bias) == 0.0) && scratch.met().is_empty());
    }
}
