//! How full the buckets are.

use serde::Serialize;

/// Bucket sizes over all tables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Occupancy {
    /// Tables.
    pub tables: usize,
    /// Buckets a table.
    pub buckets: usize,
    /// Classes a bucket, empty ones included.
    pub mean: f64,
    /// Classes in the bucket that a class meets when it asks with its own
    /// vector, on average over classes: large buckets are met more often.
    pub mean_met: f64,
    /// Classes in the fullest bucket.
    pub max: usize,
    /// Share of buckets without a class.
    pub empty_share: f64,
    /// `histogram[0]` buckets are empty; `histogram[i]` buckets hold from
    /// `2^(i-1)` to `2^i - 1` classes.
    pub histogram: Vec<u64>,
}

impl Occupancy {
    /// Counts buckets of the given sizes.
    pub(super) fn of(tables: usize, buckets: usize, sizes: impl Iterator<Item = usize>) -> Self {
        let mut histogram = vec![0u64];
        let (mut members, mut squares, mut max) = (0.0, 0.0, 0);
        for size in sizes {
            let slot = (usize::BITS - size.leading_zeros()) as usize;
            if slot >= histogram.len() {
                histogram.resize(slot + 1, 0);
            }
            histogram[slot] += 1;
            members += size as f64;
            squares += (size * size) as f64;
            max = max.max(size);
        }
        let all = histogram.iter().sum::<u64>().max(1) as f64;
        Self {
            tables,
            buckets,
            mean: members / all,
            mean_met: if members > 0.0 { squares / members } else { 0.0 },
            max,
            empty_share: histogram[0] as f64 / all,
            histogram,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_sizes_by_powers_of_two() {
        let occupancy = Occupancy::of(2, 3, [0, 1, 2, 3, 4, 0].into_iter());
        assert_eq!(occupancy.histogram, [2, 1, 2, 1]);
        assert_eq!((occupancy.max, occupancy.mean), (4, 10.0 / 6.0));
        assert_eq!((occupancy.mean_met, occupancy.empty_share), (3.0, 2.0 / 6.0));
    }
}
