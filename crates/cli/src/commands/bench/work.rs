//! The least that each stage has to do: operations, and bytes to and from memory.
//!
//! A row counts once, however many examples share it, because caches hold it
//! meanwhile. A stage's floor is then the time that the same method takes at the
//! machine's limits when nothing is in the caches before; a stage that finds its
//! data there, left by the stage before, may go below it.

use lookalike::hashing::Family;
use lookalike::sampling::{MixedQuery, SamplerKind};
use lookalike::train::{Stage, TrainConfig};

use super::machine::Limits;

/// What a step was about, on average over the measured ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) examples: f64,
    /// Non-zero features of all examples.
    pub(crate) values: f64,
    /// Different features.
    pub(crate) features: f64,
    /// Pairs of an example and a class that were scored.
    pub(crate) pairs: f64,
    /// Different classes.
    pub(crate) classes: f64,
    /// Pairs that are trained on, where only the best are.
    pub(crate) trained_pairs: f64,
    /// Different classes among them.
    pub(crate) trained_classes: f64,
}

/// Which limit a stage is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Arithmetic,
    Streaming,
    RandomRows,
}

impl Limit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Arithmetic => "arithmetic",
            Self::Streaming => "memory",
            Self::RandomRows => "random rows",
        }
    }
}

/// Operations and bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// A multiply-add is two; so is a compare and blend of hashing.
    pub(crate) operations: f64,
    pub(crate) bytes: f64,
    /// How the bytes lie in memory.
    access: Limit,
}

impl Work {
    fn streamed(operations: f64, bytes: f64) -> Self {
        Self { operations, bytes, access: Limit::Streaming }
    }

    fn rows(operations: f64, bytes: f64) -> Self {
        Self { operations, bytes, access: Limit::RandomRows }
    }

    /// The least time, and what sets it.
    pub(crate) fn floor(&self, limits: &Limits) -> (f64, Limit) {
        let arithmetic = self.operations / limits.flops;
        let bandwidth =
            if self.access == Limit::Streaming { limits.streamed_bytes } else { limits.random_bytes };
        let memory = self.bytes / bandwidth;
        if arithmetic >= memory { (arithmetic, Limit::Arithmetic) } else { (memory, self.access) }
    }
}

/// Operations of Adam a number: two moving averages, a root and a quotient.
const ADAM_OPERATIONS: f64 = 10.0;
/// A row's update reads and writes weights and two moments.
const UPDATE_ACCESSES: f64 = 6.0;
/// Bytes a pair while sorting lists: class read twice, item written, read twice, entry
/// written.
const SORT_BYTES: f64 = 24.0;
/// Bytes a pair while turning bits around, besides the bits: entry written.
const ENTRY_BYTES: f64 = 4.0;
/// Bytes a pair in the loss: score and entry read, score written. What else it does
/// to a pair is done in L1, by the stages before and after.
const LOSS_BYTES: f64 = 12.0;
/// Bytes a class and table of a rebuild: a code written and read twice, an id written.
const REBUILD_BYTES: f64 = 10.0;

/// A network and a sampler, as far as they decide the work.
pub(crate) struct Workload<'a> {
    pub(crate) config: &'a TrainConfig,
    pub(crate) num_classes: f64,
    /// K · L, or nothing for a sampler without tables.
    pub(crate) functions_and_tables: Option<(usize, usize)>,
}

impl Workload<'_> {
    /// The least work of a stage.
    pub(crate) fn of(&self, stage: Stage, counts: &Counts) -> Work {
        let Counts { examples, values, features, pairs, classes, trained_pairs, trained_classes } = *counts;
        let hidden = &self.config.hidden;
        let (first, last) = (hidden[0] as f64, hidden[hidden.len() - 1] as f64);
        let between: f64 = hidden.windows(2).map(|pair| (pair[0] * pair[1]) as f64).sum();
        let number = match self.config.storage {
            lookalike::model::Storage::F32 => 4.0,
            lookalike::model::Storage::Bf16 => 2.0,
        };
        let is_full = self.config.sampler == SamplerKind::Full;
        let adam = ADAM_OPERATIONS * trained_classes * last;
        match stage {
            Stage::Embed => {
                let operations = 2.0 * (values * first + examples * between);
                Work::rows(operations, features * first * number)
            }
            Stage::Hash => Work::rows(self.queries() * examples * self.hash_operations(), 0.0),
            Stage::Sample if self.config.sampler == SamplerKind::TopK => {
                Work::streamed(2.0 * examples * self.num_classes * last, self.num_classes * last * number)
            }
            // A class is read from its bucket and written into its set.
            Stage::Sample if self.config.sampler.uses_tables() => Work::rows(0.0, 8.0 * pairs),
            Stage::Sample => Work::streamed(0.0, if is_full { 0.0 } else { 4.0 * pairs }),
            Stage::Sort if is_full => Work::streamed(0.0, 0.0),
            Stage::Sort => {
                let by_bits = examples * self.num_classes / 8.0 + ENTRY_BYTES * pairs;
                Work::streamed(0.0, by_bits.min(SORT_BYTES * pairs))
            }
            Stage::Score if is_full => Work::streamed(2.0 * pairs * last, classes * last * number),
            Stage::Score => Work::rows(2.0 * trained_pairs * last, trained_classes * last * number),
            // A copy of the rows in bytes read, and entries; those that stay are written.
            Stage::Select => Work::rows(0.0, classes * last + 4.0 * (pairs + trained_pairs)),
            Stage::Loss => Work::streamed(0.0, if is_full { 0.0 } else { LOSS_BYTES * trained_pairs }),
            // Full softmax computes its scores again rather than keep them.
            Stage::Update if is_full => {
                Work::streamed(6.0 * pairs * last + adam, UPDATE_ACCESSES * classes * last * number)
            }
            Stage::Update => {
                let operations = 4.0 * trained_pairs * last + adam;
                Work::rows(operations, UPDATE_ACCESSES * trained_classes * last * number)
            }
            Stage::Input => {
                let sums = 2.0 * values * first + 4.0 * examples * between;
                let operations = sums + ADAM_OPERATIONS * features * first;
                Work::rows(operations, UPDATE_ACCESSES * features * first * number)
            }
            // The synthetic workload has no sparse weights.
            Stage::Near | Stage::Sparse => Work::streamed(0.0, 0.0),
            Stage::Refresh => {
                let tables = self.functions_and_tables.map_or(0, |(_, l)| l) as f64;
                let rows = self.num_classes * last * number;
                Work::streamed(
                    self.num_classes * self.hash_operations(),
                    rows + REBUILD_BYTES * self.num_classes * tables,
                )
            }
        }
    }

    /// Queries of an example.
    fn queries(&self) -> f64 {
        let both = self.config.sampler == SamplerKind::Mixed && self.config.mixed.query == MixedQuery::Both;
        if both { 2.0 } else { 1.0 }
    }

    /// Operations to hash one vector for all tables.
    fn hash_operations(&self) -> f64 {
        let functions = self.functions_and_tables.map_or(0, |(k, l)| k * l) as f64;
        let width = self.config.hidden.last().copied().unwrap_or(0);
        match self.config.lsh.family {
            Family::Dwta => 2.0 * functions * self.config.lsh.bin.saturating_sub(1) as f64,
            Family::Simhash => 2.0 * functions * width as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { threads: 1, flops: 100.0, streamed_bytes: 10.0, random_bytes: 5.0 };

    #[test]
    fn the_floor_is_set_by_what_takes_longest() {
        assert_eq!(Work::rows(400.0, 5.0).floor(&LIMITS), (4.0, Limit::Arithmetic));
        assert_eq!(Work::rows(400.0, 50.0).floor(&LIMITS), (10.0, Limit::RandomRows));
        assert_eq!(Work::streamed(400.0, 50.0).floor(&LIMITS), (5.0, Limit::Streaming));
    }

    #[test]
    fn a_step_of_thirty_thousand_candidates_has_the_designs_arithmetic() {
        let config = TrainConfig { hidden: vec![128], ..TrainConfig::default() };
        let workload = Workload { config: &config, num_classes: 670_091.0, functions_and_tables: None };
        let pairs = 1024.0 * 30_000.0;
        let counts = Counts { pairs, trained_pairs: pairs, ..Counts::default() };
        let operations =
            workload.of(Stage::Score, &counts).operations + workload.of(Stage::Update, &counts).operations;
        // docs/design.md: 23.6 GFLOP.
        assert!((operations / 1e9 - 23.6).abs() < 0.05, "{operations}");
    }
}
