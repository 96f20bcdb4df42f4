//! Score many, train few: of the classes that hash tables gave an example, only
//! those with the highest scores are trained on.
//!
//! Tables bring the right classes among many indifferent ones, and what moves an
//! indifferent class hardly matters. Their scores are there anyway, class by class;
//! so each example gets a threshold, and pairs below it are left out before loss
//! and update see them. True labels and classes drawn at random stay.
//!
//! The threshold comes from a sample: the pairs of every n-th class, n chosen such
//! that about [`SAMPLED_RANK`] of an example's best are in it, all where few are kept.
//! How many an example keeps therefore varies a little, by a quarter or so where n
//! is above 1, and depends on nothing but the batch.
//!
//! Cost: two passes over the pairs, one of them over the sample, and O(sample) to
//! select; memory of 4 bytes a sampled pair.

use rayon::prelude::*;

use super::super::by_key::{KeyGroup, Part};
use super::sampled::PartScores;
use crate::loss::{DRAWN, TRUTH, example_of};
use crate::scratch::grow;

/// The place of the threshold among an example's sampled scores, at least, if there
/// are so many.
const SAMPLED_RANK: usize = 48;
/// Examples whose thresholds one thread finds at a time.
const EXAMPLES_AT_ONCE: usize = 16;

/// Buffers of the selection, kept between batches.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// By example: how many sampled scores it has.
    counts: Vec<u32>,
    /// The sampled scores, a row an example.
    sampled: Vec<f32>,
    /// By example: the lowest score that is kept.
    thresholds: Vec<f32>,
}

/// A part's scores, one beside each of its entries.
#[derive(Debug, Default)]
pub(super) struct Scores {
    /// Score of each entry, then its gradient.
    pub of_entries: Vec<f32>,
    /// Examples and scores of the sampled pairs.
    sample: Vec<(u32, f32)>,
}

impl Selection {
    /// Leaves only the best `keep` of each example's found classes, about. `found` says
    /// how many each example has.
    pub(super) fn run(&mut self, parts: &mut [Part], work: &mut [PartScores], found: &[u32], keep: usize) {
        let every = (keep / SAMPLED_RANK).max(1);
        parts.par_iter().zip(&mut *work).for_each(|(part, work)| work.scores.sample(part, every));
        self.find_thresholds(work, found, keep);
        let thresholds = &self.thresholds;
        parts.par_iter_mut().zip(work).for_each(|(part, work)| work.scores.keep_above(part, thresholds));
    }

    /// Brings the sampled scores of each example together, in the order of parts, and
    /// finds its threshold among them.
    fn find_thresholds(&mut self, work: &[PartScores], found: &[u32], keep: usize) {
        let batch = found.len();
        let sampled = || work.iter().flat_map(|work| &work.scores.sample);
        grow(&mut self.counts, batch);
        self.counts.fill(0);
        sampled().for_each(|&(example, _)| self.counts[example as usize] += 1);
        let stride = self.counts.iter().copied().max().unwrap_or(0).max(1) as usize;
        grow(&mut self.sampled, batch * stride);
        self.counts.fill(0);
        for &(example, score) in sampled() {
            let count = &mut self.counts[example as usize];
            self.sampled[example as usize * stride + *count as usize] = score;
            *count += 1;
        }
        grow(&mut self.thresholds, batch);
        let rows = self.sampled.par_chunks_mut(stride).zip(&self.counts).with_min_len(EXAMPLES_AT_ONCE);
        rows.zip(&mut self.thresholds).zip(found).for_each(|(((row, &count), threshold), &found)| {
            *threshold = threshold_of(&mut row[..count as usize], found as usize, keep);
        });
    }
}

/// The score below which an example's classes are left out: as many of the sample
/// are above it, in proportion, as are to be kept of all.
fn threshold_of(sample: &mut [f32], found: usize, keep: usize) -> f32 {
    if found <= keep || sample.is_empty() {
        return f32::NEG_INFINITY;
    }
    let rank = (keep * sample.len()).div_ceil(found).clamp(1, sample.len());
    let (_, threshold, _) = sample.select_nth_unstable_by(rank - 1, |a, b| b.total_cmp(a));
    *threshold
}

impl Scores {
    /// Notes the found pairs of every so many classes.
    fn sample(&mut self, part: &Part, every: usize) {
        self.sample.clear();
        for (_, range) in part.groups().step_by(every) {
            for (&entry, &score) in part.entries[range.clone()].iter().zip(&self.of_entries[range]) {
                if is_found(entry) {
                    self.sample.push((example_of(entry) as u32, score));
                }
            }
        }
    }

    /// Takes pairs below their example's threshold out, and classes without pairs.
    fn keep_above(&mut self, part: &mut Part, thresholds: &[f32]) {
        let Part { groups, entries, .. } = part;
        let scores = &mut self.of_entries;
        let (mut kept, mut kept_groups) = (0, 0);
        for group in 0..groups.len() {
            let start = groups[group].start as usize;
            let end = groups.get(group + 1).map_or(entries.len(), |next| next.start as usize);
            let first = kept;
            for at in start..end {
                let (entry, score) = (entries[at], scores[at]);
                // Without a branch, which nobody could predict: write it, and move on only if
                // it stays.
                (entries[kept], scores[kept]) = (entry, score);
                let stays = (score >= thresholds[example_of(entry)]) | !is_found(entry);
                kept += usize::from(stays);
            }
            if kept > first {
                groups[kept_groups] = KeyGroup { local_key: groups[group].local_key, start: first as u32 };
                kept_groups += 1;
            }
        }
        groups.truncate(kept_groups);
        entries.truncate(kept);
        scores.truncate(kept);
    }
}

/// Whether an entry's class was looked up: neither true nor drawn.
fn is_found(entry: u32) -> bool {
    entry & (TRUTH | DRAWN) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::entry;
    use crate::random::{Stream, mix};

    const CLASSES: u32 = 900;
    const EXAMPLES: usize = 20;

    fn score(class: u32, example: usize) -> f32 {
        (mix(7, Stream::Data, u64::from(class), example as u64) % 100_000) as f32
    }

    /// Example 0 has a few classes, the others two thirds of all; one class in fifty is
    /// true, one in seventy drawn. Pairs with their flags.
    fn pairs() -> Vec<(u32, usize, u32)> {
        let mut pairs = Vec::new();
        for class in 0..CLASSES {
            for example in 0..EXAMPLES {
                let random = mix(8, Stream::Data, u64::from(class), example as u64);
                if random % 3 < 2 && (example > 0 || class < 12) {
                    let flags =
                        if random % 50 < 1 { TRUTH } else { 0 } | if random % 70 == 3 { DRAWN } else { 0 };
                    pairs.push((class, example, flags));
                }
            }
        }
        pairs
    }

    /// Selects `keep` of the pairs cut into two parts; gives those that stay.
    fn selected(keep: usize) -> Vec<(u32, usize, u32)> {
        let all = pairs();
        let (mut parts, mut work) = (Vec::new(), Vec::new());
        for classes in [0..400u32, 400..CLASSES] {
            let mut part = Part::default();
            part.first_key = classes.start as usize;
            let mut scores = PartScores::default();
            for &(class, example, flags) in all.iter().filter(|pair| classes.contains(&pair.0)) {
                let local_key = class - classes.start;
                if part.groups.last().is_none_or(|group| group.local_key != local_key) {
                    part.groups.push(KeyGroup { local_key, start: part.entries.len() as u32 });
                }
                part.entries.push(entry(example, flags));
                scores.scores.of_entries.push(score(class, example));
            }
            parts.push(part);
            work.push(scores);
        }
        let mut found = vec![0; EXAMPLES];
        all.iter().filter(|pair| pair.2 == 0).for_each(|pair| found[pair.1] += 1);
        Selection::default().run(&mut parts, &mut work, &found, keep);
        let mut left = Vec::new();
        for (part, work) in parts.iter().zip(&work) {
            for (local, range) in part.groups() {
                assert!(!range.is_empty());
                let class = (part.first_key + local) as u32;
                for (&entry, &value) in part.entries[range.clone()].iter().zip(&work.scores.of_entries[range])
                {
                    assert_eq!(value, score(class, example_of(entry)));
                    left.push((class, example_of(entry), entry & (TRUTH | DRAWN)));
                }
            }
        }
        left
    }

    fn found_of(pairs: &[(u32, usize, u32)], example: usize) -> Vec<u32> {
        pairs.iter().filter(|pair| pair.1 == example && pair.2 == 0).map(|pair| pair.0).collect()
    }

    #[test]
    fn the_best_stay_and_with_them_all_that_were_not_found() {
        let (all, left) = (pairs(), selected(30));
        let flagged = |pairs: &[(u32, usize, u32)]| pairs.iter().filter(|pair| pair.2 != 0).count();
        assert_eq!(flagged(&left), flagged(&all));
        assert_eq!(found_of(&left, 0), found_of(&all, 0), "fewer than 30 stay as they are");
        for example in 1..EXAMPLES {
            let mut best = found_of(&all, example);
            best.sort_by(|&a, &b| score(b, example).total_cmp(&score(a, example)));
            best.truncate(30);
            best.sort_unstable();
            assert_eq!(found_of(&left, example), best, "example {example}");
        }
    }

    /// Where the threshold comes from a sample, about as many stay, and the best ones.
    #[test]
    fn a_sample_finds_about_as_many() {
        let (all, left) = (pairs(), selected(150));
        let mut total = 0;
        for example in 1..EXAMPLES {
            let (kept, all) = (found_of(&left, example), found_of(&all, example));
            total += kept.len();
            let lowest = kept.iter().map(|&class| score(class, example)).fold(f32::INFINITY, f32::min);
            let above = all.iter().filter(|&&class| score(class, example) >= lowest).count();
            assert_eq!(kept.len(), above, "example {example}");
            assert!((75..300).contains(&kept.len()), "{} stay", kept.len());
        }
        let mean = total as f64 / (EXAMPLES - 1) as f64;
        assert!((125.0..175.0).contains(&mean), "{mean} stay on average");
    }
}
