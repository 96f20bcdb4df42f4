//! Score many, train few: of the classes that hash tables gave an example, only
//! those with the highest scores are trained on.
//!
//! Tables bring the right classes among many indifferent ones, and what moves an
//! indifferent class hardly matters. So what they gave is scored roughly, by a copy of the
//! class vectors in bytes ([`super::coded`]), class by class; each example gets a limit, and
//! pairs at or below it are left out at once, before exact scores, loss and update see
//! them. True labels and classes drawn at random stay.
//!
//! The limit comes from a sample, which is scored first: the pairs of one class in n,
//! n chosen such that about [`SAMPLED_RANK`] of an example's best are in it,
//! all where few are kept. How many an example keeps therefore varies, by a quarter
//! or so where n is above 1, and depends on nothing but the batch. Whether a class is
//! sampled depends on its number alone: several shards sample as one does, and tell each
//! other the highest of what they sampled.
//!
//! Cost: a product of bytes and a comparison a pair, in L1 and L2; two passes over the
//! sample, and O(sample) to find the limits. Memory: a byte a number of the class vectors,
//! and 12 bytes a sampled pair.

use lookalike_kernels::{Cpu, Element, Lists, ListsMut, gather_dot_codes, keep_above_limits};
use rayon::prelude::*;

use super::super::by_key::{KeyGroup, Part};
use super::coded::{CodedClasses, CodedClassesMut, CodedEmbeddings};
use super::score::Scorer;
use crate::collective::Reducer;
use crate::loss::{DRAWN, SPARED, example_of};
use crate::scratch::{PerThread, grow, make_room};

/// The place of the limit among an example's sampled scores, at least, if there are
/// so many.
const SAMPLED_RANK: usize = 16;
/// Examples whose limits one thread finds at a time.
const EXAMPLES_AT_ONCE: usize = 16;

/// Who stays, kept between batches.
#[derive(Debug, Default)]
pub(super) struct Selection {
    pub(super) classes: CodedClasses,
    embeddings: CodedEmbeddings,
    /// What is added to the scores of each class, where that is not its bias alone.
    shifts: Vec<f32>,
    parts: Vec<PartSelection>,
    /// By example: scores must be above.
    limits: Vec<f32>,
    /// Of the sampled scores of one example.
    highest: PerThread<Highest>,
}

/// What an example's tables gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    /// Classes of each example.
    pub counts: &'a [u32],
    /// Whether some of them stay even if they are not among the best.
    pub spares: bool,
}

/// What the scores of found classes must be above to stay.
#[derive(Clone, Copy, Debug)]
struct Limits<'a> {
    of_example: &'a [f32],
    /// Whether there are spared classes in the batch.
    spares: bool,
}

/// What rough scores are made of.
#[derive(Clone, Copy)]
struct RoughScorer<'a> {
    cpu: Cpu,
    classes: &'a CodedClasses,
    /// What is added to the scores of each class.
    shifts: &'a [f32],
    embeddings: &'a CodedEmbeddings,
}

impl RoughScorer<'_> {
    /// The scores of some classes of the part that begins with a key.
    fn score(&self, first_key: usize, groups: &[KeyGroup], entries: &[u32], scores: &mut [f32]) {
        let classes = self.classes.from(first_key, self.shifts);
        gather_dot_codes(self.cpu, classes, Lists { groups, entries }, self.embeddings.view(), scores);
    }

    /// Moves what is above the limits, or was not looked up, to the front of a part; gives how
    /// many classes and pairs that is.
    fn keep_above(&self, part: &mut Part, limits: Limits<'_>) -> (usize, usize) {
        let classes = self.classes.from(part.first_key, self.shifts);
        let lists = ListsMut { groups: &mut part.groups, entries: &mut part.entries };
        keep_above_limits(self.cpu, classes, lists, self.embeddings.view(), limits.of_example)
    }
}

/// What selects among a part's pairs.
#[derive(Debug, Default)]
struct PartSelection {
    sample: Sample,
    /// Rough scores of a class's pairs.
    scores: Vec<f32>,
}

/// The sampled pairs of a part.
#[derive(Debug, Default)]
struct Sample {
    groups: Vec<KeyGroup>,
    entries: Vec<u32>,
    /// The rough scores of these pairs.
    scores: Vec<f32>,
    /// The scores of those pairs whose class was found, example by example.
    by_example: Vec<f32>,
    /// Where each example's begin, and one more.
    starts: Vec<u32>,
}

/// One class in so many.
#[derive(Clone, Copy, Debug, Default)]
struct SampledClasses {
    /// A hashed class is below.
    limit: u32,
    /// The first class of the shard.
    first: usize,
}

impl SampledClasses {
    fn new(every: usize, first: usize) -> Self {
        Self { limit: (u32::MAX as usize / every) as u32, first }
    }

    fn has(self, part: &Part, group: &KeyGroup) -> bool {
        let class = (self.first + part.first_key) as u32 + group.local_key;
        // Fibonacci hashing spreads neighbours evenly.
        class.wrapping_mul(0x9E37_79B1) <= self.limit
    }
}

impl Selection {
    /// Leaves about the best `keep` of each example's found classes, and what was not
    /// found. The layer is the shard that begins with `first_class`.
    pub(super) fn run<T: Element>(
        &mut self,
        scorer: &Scorer<'_, T>,
        parts: &mut [Part],
        found: Found<'_>,
        keep: usize,
        (first_class, reducer): (usize, &mut dyn Reducer),
    ) {
        self.classes.prepare(scorer.cpu, scorer.rows, scorer.stride);
        self.embeddings.set(scorer.cpu, scorer.embeddings, scorer.stride, found.counts.len());
        if scorer.shifts.class_log_q.is_some() {
            self.shifts.clear();
            self.shifts.extend((0..scorer.shifts.bias.len()).map(|class| scorer.shifts.of(class)));
        }
        self.parts.resize_with(parts.len().max(self.parts.len()), PartSelection::default);
        let shifts = scorer.shifts.class_log_q.map_or(scorer.shifts.bias, |_| &self.shifts);
        let (classes, embeddings) = (&self.classes, &self.embeddings);
        let rough = RoughScorer { cpu: scorer.cpu, classes, shifts, embeddings };
        let sampled = SampledClasses::new((keep / SAMPLED_RANK).max(1), first_class);
        parts.par_iter().zip(&mut self.parts).for_each(|(part, own)| {
            own.sample.take(&rough, part, sampled);
            own.sample.deal(found.counts.len());
        });
        let own = &mut self.parts[..parts.len()];
        grow(&mut self.limits, found.counts.len());
        if reducer.is_alone() {
            find_limits(own, found.counts, keep, &mut self.highest, &mut self.limits);
        } else {
            find_limits_of_all(own, found.counts, keep, reducer, &mut self.limits);
        }
        let limits = Limits { of_example: &self.limits, spares: found.spares };
        parts.par_iter_mut().zip(own).for_each(|(part, own)| own.select(&rough, part, limits));
    }

    /// The copy of the class vectors, where there is one.
    pub(super) fn coded_classes(&mut self) -> CodedClassesMut<'_> {
        self.classes.as_mut()
    }
}

/// Finds the limits that leave about the best `keep` of so many `found` classes of each
/// example.
fn find_limits(
    parts: &[PartSelection],
    found: &[u32],
    keep: usize,
    highest: &mut PerThread<Highest>,
    limits: &mut [f32],
) {
    highest.prepare();
    let examples = limits.par_iter_mut().zip(found).enumerate().with_min_len(EXAMPLES_AT_ONCE);
    examples.for_each(|(example, (limit, &found))| {
        let sampled = || parts.iter().map(|own| own.sample.of(example));
        let rank = rank_of_limit(sampled().map(<[f32]>::len).sum(), found as usize, keep);
        *limit = rank.map_or(f32::NEG_INFINITY, |rank| {
            highest.with(|highest| {
                highest.start(rank);
                sampled().for_each(|scores| highest.offer(scores));
                highest.limit()
            })
        });
    });
}

/// The same over several shards: each tells the others so many of its highest sampled
/// scores as could be above the limit.
fn find_limits_of_all(
    parts: &[PartSelection],
    found: &[u32],
    keep: usize,
    reducer: &mut dyn Reducer,
    limits: &mut [f32],
) {
    let batch = found.len();
    let mut own: Vec<Vec<f32>> = (0..batch)
        .map(|example| parts.iter().flat_map(|own| own.sample.of(example)).copied().collect())
        .collect();
    // Whole numbers, as far as they go here, are exact in single precision.
    let sampled = own.iter().map(|own| own.len() as f32);
    let mut counts: Vec<f32> = sampled.chain(found.iter().map(|&found| found as f32)).collect();
    reducer.sums(&mut counts);
    let (sampled, found) = counts.split_at(batch);
    let rank = |example: usize| rank_of_limit(sampled[example] as usize, found[example] as usize, keep);
    let ranks: Vec<Option<usize>> = (0..batch).map(rank).collect();
    let most = ranks.iter().flatten().copied().max().unwrap_or(0);
    let mut highest = vec![f32::NEG_INFINITY; batch * most];
    for (example, own) in own.iter_mut().enumerate() {
        let Some(rank) = ranks[example] else { continue };
        own.sort_unstable_by(|a, b| b.total_cmp(a));
        let places = &mut highest[example * most..][..rank];
        places.iter_mut().zip(&*own).for_each(|(place, &score)| *place = score);
    }
    let all = reducer.gather(&highest);
    for (example, (limit, rank)) in limits.iter_mut().zip(ranks).enumerate() {
        *limit = rank.map_or(f32::NEG_INFINITY, |rank| {
            let mut highest = Highest::default();
            highest.start(rank);
            all.chunks_exact(batch * most).for_each(|rows| highest.offer(&rows[example * most..][..most]));
            highest.limit()
        });
    }
}

/// The place of the limit among so many sampled scores, from 1, such that as many of the
/// sample are above it, in proportion, as are to be kept of all; none where all stay.
fn rank_of_limit(sampled: usize, found: usize, keep: usize) -> Option<usize> {
    (found > keep && sampled > 0).then(|| (keep * sampled).div_ceil(found).clamp(1, sampled))
}

/// The highest of some scores, ascending. They are few and scores come in no order: nearly
/// all are passed over by one comparison.
#[derive(Debug, Default)]
struct Highest(Vec<f32>);

impl Highest {
    /// So many, of scores to come.
    fn start(&mut self, rank: usize) {
        make_room(&mut self.0, rank);
        self.0.resize(rank, f32::NEG_INFINITY);
    }

    fn offer(&mut self, scores: &[f32]) {
        let highest = &mut self.0[..];
        for &score in scores {
            if score.total_cmp(&highest[0]).is_gt() {
                let mut place = 0;
                while place + 1 < highest.len() && score.total_cmp(&highest[place + 1]).is_gt() {
                    highest[place] = highest[place + 1];
                    place += 1;
                }
                highest[place] = score;
            }
        }
    }

    /// The score at or below which classes are left out, such that these stay.
    fn limit(&self) -> f32 {
        // An infinite score is a sign of divergence, which true labels tell of, if they stay.
        self.0[0].next_down().min(f32::MAX)
    }
}

impl Sample {
    /// Scores some classes.
    fn take(&mut self, scorer: &RoughScorer<'_>, part: &Part, classes: SampledClasses) {
        make_room(&mut self.groups, part.groups.len());
        make_room(&mut self.entries, part.entries.len());
        for (i, group) in part.groups.iter().enumerate().filter(|(_, group)| classes.has(part, group)) {
            self.groups.push(KeyGroup { start: self.entries.len() as u32, ..*group });
            self.entries.extend_from_slice(&part.entries[part.range(i)]);
        }
        grow(&mut self.scores, self.entries.len());
        scorer.score(part.first_key, &self.groups, &self.entries, &mut self.scores);
    }

    /// Sorts the scores of found classes by example.
    fn deal(&mut self, batch: usize) {
        self.starts.clear();
        grow(&mut self.starts, batch + 1);
        for &entry in self.entries.iter().filter(|&&entry| is_found(entry)) {
            self.starts[example_of(entry)] += 1;
        }
        let mut sum = 0;
        for start in &mut self.starts {
            sum += std::mem::replace(start, sum);
        }
        grow(&mut self.by_example, sum as usize);
        let pairs = self.entries.iter().zip(&self.scores);
        for (&entry, &score) in pairs.filter(|(entry, _)| is_found(**entry)) {
            let at = &mut self.starts[example_of(entry)];
            self.by_example[*at as usize] = score;
            *at += 1;
        }
        // Each start has moved to its example's end, which is the next one's start.
        self.starts.rotate_right(1);
        self.starts[0] = 0;
    }

    fn of(&self, example: usize) -> &[f32] {
        &self.by_example[self.starts[example] as usize..self.starts[example + 1] as usize]
    }
}

impl PartSelection {
    /// Scores the part's pairs roughly and leaves those that stay.
    fn select(&mut self, scorer: &RoughScorer<'_>, part: &mut Part, limits: Limits<'_>) {
        if limits.spares {
            self.settle(scorer, part, limits);
        }
        let (groups, pairs) = scorer.keep_above(part, limits);
        part.groups.truncate(groups);
        part.entries.truncate(pairs);
    }

    /// Decides what spared classes are: found ones if they are above their example's limit,
    /// drawn ones otherwise.
    fn settle(&mut self, scorer: &RoughScorer<'_>, part: &mut Part, limits: Limits<'_>) {
        for group in 0..part.groups.len() {
            let pairs = part.range(group);
            if !part.entries[pairs.clone()].iter().any(|&entry| is_spared(entry)) {
                continue;
            }
            grow(&mut self.scores, pairs.len());
            let (groups, entries) = (&part.groups[group..=group], &mut part.entries[pairs]);
            scorer.score(part.first_key, groups, entries, &mut self.scores);
            let spared = entries.iter_mut().zip(&self.scores).filter(|(entry, _)| is_spared(**entry));
            for (entry, &score) in spared {
                let flags = if score > limits.of_example[example_of(*entry)] { 0 } else { DRAWN };
                *entry = *entry & !SPARED | flags;
            }
        }
    }
}

/// Whether an entry's class stays even if it is not among the best.
fn is_spared(entry: u32) -> bool {
    entry & SPARED == SPARED
}

/// Whether an entry's class was looked up: neither true nor drawn alone.
fn is_found(entry: u32) -> bool {
    entry & SPARED == 0 || is_spared(entry)
}

#[cfg(test)]
mod tests {
    use lookalike_kernels::{Cpu, padded};

    use super::super::score::Shifts;
    use super::*;
    use crate::collective::Alone;
    use crate::loss::{TRUTH, entry};
    use crate::random::{Stream, mix};

    const CLASSES: u32 = 900;
    const EXAMPLES: usize = 20;
    /// So few that all classes are in the sample.
    const KEEP: usize = 2 * SAMPLED_RANK - 1;
    /// Half a step of a class's scores, at most.
    const STEP: f32 = 100_000.0 / 254.0;

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

    /// With an embedding of its own dimension for each example, a class vector lists the
    /// class's scores.
    fn layer() -> (Vec<f32>, Vec<f32>) {
        let stride = padded(EXAMPLES);
        let (mut rows, mut embeddings) = (Vec::new(), vec![0.0; EXAMPLES * stride]);
        for class in 0..CLASSES {
            rows.extend((0..stride).map(|i| if i < EXAMPLES { score(class, i) } else { 0.0 }));
        }
        (0..EXAMPLES).for_each(|example| embeddings[example * stride + example] = 1.0);
        (rows, embeddings)
    }

    /// Selects `keep` of the pairs cut into two parts; gives those that stay.
    fn selected(cpu: Cpu, (rows, embeddings): &(Vec<f32>, Vec<f32>), keep: usize) -> Vec<(u32, usize, u32)> {
        let stride = embeddings.len() / EXAMPLES;
        let shifts = Shifts { bias: &[0.0; CLASSES as usize], class_log_q: None };
        let scorer = Scorer { cpu, rows, shifts, embeddings, stride };
        let all = pairs();
        let mut parts: Vec<Part> = [0..400u32, 400..CLASSES].map(|classes| part_of(&all, classes)).into();
        let mut counts = vec![0; EXAMPLES];
        all.iter().filter(|pair| pair.2 == 0).for_each(|pair| counts[pair.1] += 1);
        let found = Found { counts: &counts, spares: false };
        Selection::default().run(&scorer, &mut parts, found, keep, (0, &mut Alone));
        let mut left = Vec::new();
        for part in &parts {
            for (local, range) in part.groups() {
                assert!(!range.is_empty());
                let class = (part.first_key + local) as u32;
                let entries = part.entries[range].iter();
                left.extend(entries.map(|&entry| (class, example_of(entry), entry & (TRUTH | DRAWN))));
            }
        }
        left
    }

    fn part_of(all: &[(u32, usize, u32)], classes: std::ops::Range<u32>) -> Part {
        let mut part = Part::default();
        part.first_key = classes.start as usize;
        for &(class, example, flags) in all.iter().filter(|pair| classes.contains(&pair.0)) {
            let local_key = class - classes.start;
            if part.groups.last().is_none_or(|group| group.local_key != local_key) {
                part.groups.push(KeyGroup { local_key, start: part.entries.len() as u32 });
            }
            part.entries.push(entry(example, flags));
        }
        part
    }

    fn found_of(pairs: &[(u32, usize, u32)], example: usize) -> Vec<u32> {
        pairs.iter().filter(|pair| pair.1 == example && pair.2 == 0).map(|pair| pair.0).collect()
    }

    #[test]
    fn the_best_stay_and_with_them_all_that_were_not_found() {
        let (all, left) = (pairs(), selected(Cpu::detect(), &layer(), KEEP));
        let flagged = |pairs: &[(u32, usize, u32)]| pairs.iter().filter(|pair| pair.2 != 0).count();
        assert_eq!(flagged(&left), flagged(&all));
        assert_eq!(found_of(&left, 0), found_of(&all, 0), "fewer stay as they are");
        for example in 1..EXAMPLES {
            let mut best = found_of(&all, example);
            best.sort_by(|&a, &b| score(b, example).total_cmp(&score(a, example)));
            let kept = found_of(&left, example);
            // Scores of bytes are within half a step of the class's largest; two are compared.
            let limit = score(best[KEEP - 1], example);
            for class in best {
                let distance = score(class, example) - limit;
                if distance.abs() > 2.0 * STEP {
                    assert_eq!(kept.contains(&class), distance > 0.0, "example {example}, class {class}");
                }
            }
            assert!((KEEP..KEEP + 8).contains(&kept.len()), "{} stay of example {example}", kept.len());
        }
    }

    /// Of classes and embeddings as they are in training, bytes leave nearly those that exact
    /// scores would.
    #[test]
    fn bytes_select_nearly_what_exact_scores_do() {
        const DIM: usize = 128;
        let number = |row: u32, place: usize| {
            // A sum of four is nearly normal.
            let draws = mix(9, Stream::Data, u64::from(row), place as u64);
            (0..4).map(|i| ((draws >> (16 * i)) & 0xFFFF) as f32 / 65536.0 - 0.5).sum::<f32>()
        };
        // Lengths differ by class and by example.
        let vector = |row: u32| (0..DIM).map(move |place| number(row, place) * (0.2 + (row % 9) as f32));
        let rows: Vec<f32> = (0..CLASSES).flat_map(vector).collect();
        let embeddings: Vec<f32> = (CLASSES..CLASSES + EXAMPLES as u32).flat_map(vector).collect();
        let exact = |class: u32, example: usize| -> f32 {
            let (row, embedding) = (&rows[class as usize * DIM..], &embeddings[example * DIM..]);
            row.iter().zip(embedding).take(DIM).map(|(a, b)| a * b).sum()
        };
        let all = pairs();
        let layer = (rows.clone(), embeddings.clone());
        let left = selected(Cpu::detect(), &layer, KEEP);
        let (mut same, mut wanted) = (0, 0);
        for example in 1..EXAMPLES {
            let mut best = found_of(&all, example);
            best.sort_by(|&a, &b| exact(b, example).total_cmp(&exact(a, example)));
            best.truncate(KEEP);
            let kept = found_of(&left, example);
            same += best.iter().filter(|class| kept.contains(class)).count();
            wanted += best.len();
        }
        assert!(same * 100 >= wanted * 97, "{same} of {wanted}");
        // Every level selects the same.
        for cpu in Cpu::available() {
            assert_eq!(selected(cpu, &layer, KEEP), left, "{}", cpu.name());
            assert_eq!(selected(cpu, &layer, 150), selected(Cpu::detect(), &layer, 150), "{}", cpu.name());
        }
    }

    /// Where the threshold comes from a sample, about as many stay, and the best ones.
    #[test]
    fn a_sample_finds_about_as_many() {
        let (all, left) = (pairs(), selected(Cpu::detect(), &layer(), 150));
        let mut total = 0;
        for example in 1..EXAMPLES {
            let (kept, all) = (found_of(&left, example), found_of(&all, example));
            total += kept.len();
            let lowest = kept.iter().map(|&class| score(class, example)).fold(f32::INFINITY, f32::min);
            let above = all.iter().filter(|&&class| score(class, example) > lowest + 2.0 * STEP);
            assert!(above.clone().all(|class| kept.contains(class)), "example {example}");
            assert!((75..300).contains(&kept.len()), "{} stay", kept.len());
        }
        let mean = total as f64 / (EXAMPLES - 1) as f64;
        assert!((125.0..175.0).contains(&mean), "{mean} stay on average");
    }
}
