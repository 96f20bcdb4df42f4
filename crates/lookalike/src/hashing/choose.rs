//! How many functions and tables give a wanted number of candidates?
//!
//! If every value of a function is equally likely, two unrelated vectors share
//! a bucket with chance `s = Σ p_b²` over the buckets b of a table, so a query
//! meets `N·s` classes a table and `N·(1 - (1 - s)^L)` different ones in all.
//! Clean codes are uniform and `s = 1 / buckets`. Overlapped codes are sums of
//! shifted positions; their exact distribution is a convolution. (A class
//! vector that queries its own tables meets itself besides: one more a table.)

use super::{FamilyShape, HashError};

/// What is wanted, and what is fixed already.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Candidates an example.
    pub budget: usize,
    /// N, the number of classes.
    pub classes: usize,
    /// K, if it is fixed.
    pub k: Option<usize>,
    /// L, if it is fixed.
    pub l: Option<usize>,
}

/// A chosen K and L, and what to expect of them. Displays as a sentence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Functions a table.
    pub k: usize,
    /// Tables.
    pub l: usize,
    /// Buckets a table.
    pub buckets: usize,
    /// Expected classes in the bucket a query meets in one table.
    pub expected_per_table: f64,
    /// Expected different classes a query meets in all tables.
    pub expected_total: f64,
}

impl Choice {
    /// Tables are chosen to hold this many times the budget: trained vectors
    /// are not uniform, so some queries meet less than expected, and a walk that
    /// starts at a random table should not see the same classes each time.
    const HEADROOM: f64 = 2.0;

    /// Chooses what is not fixed in `wanted` (K and L of `shape` are ignored).
    ///
    /// More functions make neighbours more alike, and need more tables to find
    /// enough of them; tables cost memory and refresh time in proportion to N.
    /// So: the largest K whose L stays within `2^26 / N` tables (256 MB of ids),
    /// but never below 64 nor above the paper's 400 tables.
    pub fn make(shape: &FamilyShape, wanted: &Wanted) -> Result<Self, HashError> {
        let limit = ((1usize << 26) / wanted.classes.max(1)).clamp(64, 400);
        if let Some(k) = wanted.k {
            let meeting = meeting_chance(&FamilyShape { k, l: 1, ..*shape })?;
            let l = wanted.l.unwrap_or_else(|| tables_for(meeting, wanted).min(limit));
            return Self::describe(shape, wanted.classes, k, l);
        }
        let mut best = 1;
        for k in 1..=FamilyShape::FUNCTIONS_MAX {
            let Ok(meeting) = meeting_chance(&FamilyShape { k, l: 1, ..*shape }) else {
                break;
            };
            if tables_for(meeting, wanted) > wanted.l.unwrap_or(limit) {
                break;
            }
            best = k;
        }
        let meeting = meeting_chance(&FamilyShape { k: best, l: 1, ..*shape })?;
        let l = wanted.l.unwrap_or_else(|| tables_for(meeting, wanted).min(limit));
        Self::describe(shape, wanted.classes, best, l)
    }

    /// What a given K and L will do for `classes` classes.
    pub fn describe(shape: &FamilyShape, classes: usize, k: usize, l: usize) -> Result<Self, HashError> {
        let shape = FamilyShape { k, l, ..*shape };
        let meeting = meeting_chance(&shape)?;
        let classes = classes as f64;
        Ok(Self {
            k,
            l,
            buckets: shape.buckets()?,
            expected_per_table: classes * meeting,
            expected_total: classes * (1.0 - (1.0 - meeting).powi(l as i32)),
        })
    }
}

/// The tables that give the budget with headroom, counting repetitions.
fn tables_for(meeting: f64, wanted: &Wanted) -> usize {
    let per_table = meeting * wanted.classes.max(1) as f64;
    ((Choice::HEADROOM * wanted.budget as f64 / per_table).ceil() as usize).max(1)
}

/// The chance that two unrelated vectors share a bucket: `Σ p_b²`.
fn meeting_chance(shape: &FamilyShape) -> Result<f64, HashError> {
    let buckets = shape.buckets()?;
    let values = shape.values_per_function();
    if values <= 1 << shape.shift() {
        return Ok((values as f64).powi(-(shape.k as i32)));
    }
    let mut chances = vec![1.0];
    for function in 0..shape.k as u32 {
        let step = 1usize << (shape.shift() * function);
        let mut next = vec![0.0; chances.len() + (values - 1) * step];
        for value in 0..values {
            for (next, chance) in next[value * step..].iter_mut().zip(&chances) {
                *next += chance / values as f64;
            }
        }
        chances = next;
    }
    debug_assert_eq!(chances.len(), buckets);
    Ok(chances.iter().map(|p| p * p).sum())
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "K = {} functions, L = {} tables of {} buckets: about {:.1} classes a table, \
             {:.0} different classes in all",
            self.k, self.l, self.buckets, self.expected_per_table, self.expected_total
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashing::{Codes, Family};

    const AMAZON: usize = 670_091;

    fn shape(family: Family, codes: Codes) -> FamilyShape {
        FamilyShape { family, dim: 128, k: 0, l: 0, bin: 8, codes }
    }

    fn wanted(budget: usize, classes: usize) -> Wanted {
        Wanted { budget, classes, k: None, l: None }
    }

    #[test]
    fn the_papers_k_and_l_mean_what_was_measured() {
        // Measured with class vectors as queries, which meet themselves too:
        // 77 a table and about 30,000 in all; 3.6 and 1,400 with clean codes.
        let overlapped = Choice::describe(&shape(Family::Dwta, Codes::Overlapped), AMAZON, 6, 400).unwrap();
        assert_eq!(overlapped.buckets, 9_556);
        assert!((overlapped.expected_per_table + 1.0 - 77.0).abs() < 0.1, "{overlapped}");
        assert!((overlapped.expected_total - 30_000.0).abs() < 1_000.0, "{overlapped}");
        let clean = Choice::describe(&shape(Family::Dwta, Codes::Clean), AMAZON, 6, 400).unwrap();
        assert!((clean.expected_per_table + 1.0 - 3.6).abs() < 0.1, "{clean}");
        assert!((clean.expected_total + 400.0 - 1_400.0).abs() < 50.0, "{clean}");
    }

    #[test]
    fn the_budget_is_met_with_headroom_wherever_possible() {
        for family in [Family::Dwta, Family::Simhash] {
            for codes in [Codes::Clean, Codes::Overlapped] {
                for (budget, classes) in
                    [(3_900, AMAZON), (33_500, AMAZON), (1_000, 10_000_000), (400, 20_000), (50, 1_000)]
                {
                    let choice = Choice::make(&shape(family, codes), &wanted(budget, classes)).unwrap();
                    assert!(
                        choice.expected_total >= 1.3 * budget as f64 && choice.l <= 400,
                        "{family:?} {codes:?} {budget} of {classes}: {choice}"
                    );
                }
            }
        }
    }

    #[test]
    fn four_functions_in_about_fifty_tables_for_amazon_670k() {
        let choice = Choice::make(&shape(Family::Dwta, Codes::Clean), &wanted(3_900, AMAZON)).unwrap();
        assert_eq!((choice.k, choice.l), (4, 48));
        assert_eq!(
            choice.to_string(),
            "K = 4 functions, L = 48 tables of 4096 buckets: about 163.6 classes a table, \
             7808 different classes in all"
        );
    }

    #[test]
    fn what_is_fixed_stays_fixed() {
        let shape = shape(Family::Dwta, Codes::Clean);
        let fixed_k = Wanted { k: Some(5), ..wanted(3_900, AMAZON) };
        assert_eq!(Choice::make(&shape, &fixed_k).unwrap().k, 5);
        let fixed_l = Wanted { l: Some(10), ..wanted(3_900, AMAZON) };
        let choice = Choice::make(&shape, &fixed_l).unwrap();
        assert_eq!((choice.k, choice.l), (3, 10));
        let both = Wanted { k: Some(2), l: Some(3), ..wanted(3_900, AMAZON) };
        let choice = Choice::make(&shape, &both).unwrap();
        assert_eq!((choice.k, choice.l), (2, 3));
        assert!(Choice::make(&shape, &Wanted { k: Some(20), ..fixed_k }).is_err());
    }

    #[test]
    fn a_budget_beyond_all_classes_is_no_error() {
        let choice = Choice::make(&shape(Family::Dwta, Codes::Clean), &wanted(500, 100)).unwrap();
        assert_eq!(choice.k, 1);
        assert!(choice.expected_total <= 100.0);
    }
}
