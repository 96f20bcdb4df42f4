//! Sparse rows of a model whose classes change, or that has new examples.

use rayon::prelude::*;

use super::{LOG_GAIN, LOG_SHARPNESS, SparsePart, SparseStart};

type Entries = Vec<(u32, f32)>;

impl SparsePart {
    /// The same with room for more classes, which have no weight yet.
    pub(in crate::model) fn grown(&self, class_counts: &[u32]) -> Self {
        let mut lengths = self.lengths();
        lengths.resize(class_counts.len(), 0);
        let (features, weights) = (self.features.clone(), self.weights().to_vec());
        Self::from_parts(&lengths, features, weights, (self.blend(), self.start()), class_counts)
    }

    /// Of some classes alone, in the order given; `class_counts` are theirs.
    pub(in crate::model) fn of_classes(&self, classes: &[u32], class_counts: &[u32]) -> Self {
        let rows = classes.iter().map(|&class| self.entries(class as usize)).collect();
        self.with_rows(rows, class_counts)
    }

    /// Takes in the means of new examples: the row of a class is the mean of both,
    /// weighted by how many examples it had and how many are new. A class without old
    /// examples starts from its new ones, one without new ones stays as it is.
    ///
    /// Rows have been trained since they were means, so this is a rule of thumb. Of
    /// centroids, directions and lengths are averaged apart: two directions that differ
    /// must not make a row short. Of logarithms it is the means behind them.
    pub(crate) fn take_in(
        &mut self,
        means: &Self,
        (old, new): (&[u32], &[u32]),
        entries_max: usize,
        class_counts: &[u32],
    ) {
        let start = self.start();
        let merge = |class: usize| match (old[class], new[class]) {
            (_, 0) => self.entries(class),
            (0, _) => means.entries(class),
            (old, new) => {
                let share = new as f32 / (old as f32 + new as f32);
                let mut row = match start {
                    SparseStart::Centroid => merge_centroids(self.row(class), means.row(class), share),
                    SparseStart::LogMean => merge_logarithms(self.row(class), means.row(class), share),
                };
                if row.len() > entries_max {
                    row.sort_unstable_by(|a, b| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0)));
                    row.truncate(entries_max);
                    row.sort_unstable_by_key(|&(feature, _)| feature);
                }
                row
            }
        };
        let rows = (0..self.num_classes()).into_par_iter().map(merge).collect();
        *self = self.with_rows(rows, class_counts);
    }

    fn entries(&self, class: usize) -> Entries {
        let (features, weights) = self.row(class);
        features.iter().copied().zip(weights.iter().copied()).collect()
    }

    fn with_rows(&self, rows: Vec<Entries>, class_counts: &[u32]) -> Self {
        let lengths: Vec<u32> = rows.iter().map(|row| row.len() as u32).collect();
        let (features, weights) = rows.into_iter().flatten().unzip();
        Self::from_parts(&lengths, features, weights, (self.blend(), self.start()), class_counts)
    }
}

fn merge_centroids(old: (&[u32], &[f32]), new: (&[u32], &[f32]), share: f32) -> Entries {
    let length = |(_, weights): (&[u32], &[f32])| weights.iter().map(|w| w * w).sum::<f32>().sqrt();
    let wanted = (1.0 - share) * length(old) + share * length(new);
    let mut row = joined(old, new, |old, new| {
        (1.0 - share) * old.unwrap_or_default() + share * new.unwrap_or_default()
    });
    let found = row.iter().map(|(_, w)| w * w).sum::<f32>().sqrt();
    let scale = if found > 0.0 && wanted.is_finite() { wanted / found } else { 1.0 };
    row.iter_mut().for_each(|(_, weight)| *weight *= scale);
    row
}

fn merge_logarithms(old: (&[u32], &[f32]), new: (&[u32], &[f32]), share: f32) -> Entries {
    let mean = |weight: f32| (weight / LOG_GAIN).exp_m1().max(0.0) / LOG_SHARPNESS;
    joined(old, new, |old, new| match (old, new) {
        // What was learnt against a feature is not forgotten because it did not occur.
        (Some(old), None) if old <= 0.0 => old,
        _ => {
            let mean = (1.0 - share) * old.map_or(0.0, mean) + share * new.map_or(0.0, mean);
            LOG_GAIN * (LOG_SHARPNESS * mean).ln_1p()
        }
    })
}

/// Every feature that one of the rows has, with what `weight` makes of both.
fn joined(
    old: (&[u32], &[f32]),
    new: (&[u32], &[f32]),
    weight: impl Fn(Option<f32>, Option<f32>) -> f32,
) -> Entries {
    let mut features = [old.0, new.0].concat();
    features.sort_unstable();
    features.dedup();
    let find = |(ids, weights): (&[u32], &[f32]), feature| {
        ids.binary_search(&feature).ok().map(|place| weights[place])
    };
    features.into_iter().map(|feature| (feature, weight(find(old, feature), find(new, feature)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::model::{MeanRows, Normalise};

    /// Class 0 has three examples, class 1 one, class 2 none at first.
    fn parts(start: SparseStart) -> [SparsePart; 3] {
        let mut data = Dataset::empty(6, 3);
        data.push([(0, 1.0), (1, 1.0)], &[0]);
        data.push([(0, 1.0), (1, 1.0)], &[0]);
        data.push([(4, 1.0)], &[1]);
        data.push([(0, 1.0), (1, 1.0)], &[0]);
        data.push([(2, 1.0), (5, 2.0)], &[2]);
        let means = |chosen: &[u32]| {
            let rows = MeanRows { start, length: 10.0, entries_max: 100 };
            SparsePart::from_means(&data.view(), chosen, Normalise::L2, rows, &[3, 1, 1]).0
        };
        [means(&[0, 1, 2]), means(&[3, 4]), means(&[0, 1, 2, 3, 4])]
    }

    #[test]
    fn alike_examples_in_two_parts_give_the_row_of_all_at_once() {
        for start in [SparseStart::Centroid, SparseStart::LogMean] {
            let [mut part, new, all] = parts(start);
            part.take_in(&new, (&[2, 1, 0], &[1, 0, 1]), 100, &[3, 1, 1]);
            assert_eq!(part.lengths(), all.lengths());
            assert_eq!(part.priors(), all.priors());
            for class in 0..3 {
                let ((features, weights), (expected, of_all)) = (part.row(class), all.row(class));
                assert_eq!(features, expected);
                let close = weights.iter().zip(of_all).all(|(a, b)| (a - b).abs() < 1e-3);
                assert!(close, "{start:?} class {class}: {weights:?} {of_all:?}");
            }
        }
    }

    #[test]
    fn different_directions_do_not_make_a_row_short() {
        let row = merge_centroids((&[0], &[10.0]), (&[1], &[10.0]), 0.5);
        let half = 50f32.sqrt();
        assert_eq!(row.iter().map(|(feature, _)| *feature).collect::<Vec<_>>(), [0, 1]);
        assert!(row.iter().all(|(_, weight)| (weight - half).abs() < 1e-4), "{row:?}");
    }

    #[test]
    fn the_largest_entries_stay_and_classes_can_be_chosen() {
        let [mut part, new, _] = parts(SparseStart::Centroid);
        part.take_in(&new, (&[2, 1, 0], &[1, 0, 1]), 1, &[3, 1, 1]);
        assert_eq!(part.lengths(), [1, 1, 2]);
        let chosen = part.of_classes(&[2, 0], &[1, 3]);
        assert_eq!((chosen.row(0), chosen.row(1)), (part.row(2), part.row(0)));
        assert_eq!(chosen.priors(), [part.priors()[2], part.priors()[0]]);
    }
}
