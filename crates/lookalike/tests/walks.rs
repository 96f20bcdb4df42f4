//! How hash tables are walked: where a walk starts and how it goes on, which
//! label asks, and what is taken before any bucket.
//!
//! The hash family here reads codes off the vectors: number t of a vector is its
//! bucket in table t. So a test decides what is in each bucket, and the classes
//! that a walk found say where it went.

use std::ops::Range;

use lookalike::data::Dataset;
use lookalike::hashing::{
    Block, Codes, Family, FamilyShape, HashFamily, HashScratch, HashTables, Incremental,
};
use lookalike::model::{Embeddings, MeanRows, Normalise, RowsView, SparsePart, SparseStart};
use lookalike::random::{Stream, below, mix};
use lookalike::sampling::{
    Candidates, FeatureIndex, LshSampler, NearClasses, Query, Request, Sampler, Truths, Walk,
};
use lookalike_kernels::{Cpu, LANES, padded};

mod support {
    pub(crate) mod statistics;
}
use support::statistics::assert_follows;

const BUCKETS: usize = 16;
const SEED: u64 = 11;

/// Number t of a vector is its code in table t.
#[derive(Debug)]
struct ReadOff(FamilyShape);

impl ReadOff {
    /// Codes of one function with sixteen values, or of two with four each.
    fn new(tables: usize, functions: usize) -> Self {
        let (codes, bin) = (Codes::Clean, if functions == 1 { BUCKETS } else { 4 });
        Self(FamilyShape { family: Family::Dwta, dim: tables.max(bin), k: functions, l: tables, bin, codes })
    }
}

impl HashFamily for ReadOff {
    fn shape(&self) -> &FamilyShape {
        &self.0
    }

    fn buckets(&self) -> usize {
        BUCKETS
    }

    fn hash_block(
        &self,
        _: Cpu,
        block: &Block,
        tables: Range<usize>,
        _: &mut HashScratch,
        codes: &mut [u32],
    ) {
        let values = &block.values()[tables.start * LANES..tables.end * LANES];
        codes.iter_mut().zip(values).for_each(|(code, &value)| *code = value as u32);
    }

    fn hash_sparse(&self, ids: &[u32], values: &[f32], codes: &mut [u32]) {
        codes.fill(0);
        ids.iter().zip(values).for_each(|(&id, &value)| codes[id as usize] = value as u32);
    }
}

/// Vectors with the given codes, which are below [`BUCKETS`].
fn vectors(codes: &[Vec<u32>]) -> Vec<f32> {
    let rows = codes.iter().flat_map(|row| {
        let numbers = row.iter().map(|&code| code as f32);
        numbers.chain(std::iter::repeat_n(0.0, padded(row.len()) - row.len()))
    });
    rows.collect()
}

/// Classes by their codes, and the examples that ask for them.
struct World {
    classes: Vec<Vec<u32>>,
    /// The codes of every example's embedding.
    embedding: Vec<u32>,
    examples: Dataset,
    functions: usize,
    walk: Walk,
}

impl World {
    /// What a sampler found for an example in some iterations, in order.
    fn found(
        &self,
        query: Query,
        budget: usize,
        near: Option<&NearClasses>,
        iterations: Range<u64>,
        example: u32,
    ) -> Vec<Vec<u32>> {
        let (tables, cpu) = (self.embedding.len(), Cpu::detect());
        let family = Box::new(ReadOff::new(tables, self.functions));
        let hash_tables = HashTables::new(family, self.classes.len(), Incremental::Never);
        let mut sampler = LshSampler::new(hash_tables, query, budget, false).walking(self.walk);
        let (class_vectors, embedding) =
            (vectors(&self.classes), vectors(std::slice::from_ref(&self.embedding)));
        let class_vectors = RowsView::f32(&class_vectors, tables);
        sampler.refresh(cpu, class_vectors, None);
        let mut out = Candidates::new();
        let truths = self.examples.view().labels(example as usize).len();
        let found_in = |iteration| {
            let request = Request {
                seed: SEED,
                iteration,
                cpu,
                examples: self.examples.view(),
                batch: &[example],
                embeddings: Embeddings::padded(&embedding, tables),
                class_vectors,
                class_bias: &vec![0.0; self.classes.len()],
                near,
            };
            sampler.propose(&request, &mut out);
            out.of(0)[truths..].to_vec()
        };
        iterations.map(found_in).collect()
    }
}

/// Class t shares a bucket with the embedding in table t alone. More tables than
/// are looked up at a time.
fn a_class_a_table() -> World {
    let tables = 20;
    let mut examples = Dataset::empty(1, tables);
    examples.push([(0, 1.0)], &[]);
    let codes_of = |class: usize| (0..tables).map(|table| u32::from(table == class)).collect();
    let classes = (0..tables).map(codes_of).collect();
    World { classes, embedding: vec![1; tables], examples, functions: 1, walk: Walk::Once }
}

/// Paper, algorithm 3, but for the start: were it always the same table, most
/// tables would never be looked at where the first few fill the budget.
#[test]
fn walks_start_anywhere_and_go_round_in_order() {
    let world = a_class_a_table();
    let tables = world.classes.len();
    for (query, budget) in [(Query::Embedding, 1), (Query::Embedding, tables), (Query::Label, 3)] {
        let mut starts = vec![0; tables];
        for found in world.found(query, budget, None, 0..10_000, 0) {
            let start = found[0] as usize;
            starts[start] += 1;
            let in_order: Vec<u32> = (start..start + budget).map(|table| (table % tables) as u32).collect();
            assert_eq!(found, in_order);
        }
        assert_follows(&starts, |_| 1.0 / tables as f64, &format!("{query:?}, budget {budget}"));
    }
}

/// Algorithm 3: table after table from the first, whole buckets, while no more than the
/// budget is there.
#[test]
fn the_papers_walk_takes_whole_buckets_in_order_and_passes_the_budget() {
    let tables = 6;
    let mut examples = Dataset::empty(1, 18);
    examples.push([(0, 1.0)], &[]);
    // Three classes share the embedding's bucket in each table.
    let codes_of = |class: usize| (0..tables).map(|table| u32::from(table == class / 3)).collect();
    let classes = (0..3 * tables).map(codes_of).collect();
    let world = World { classes, embedding: vec![1; tables], examples, functions: 1, walk: Walk::Paper };
    for (budget, expected) in [(1, 3), (2, 3), (3, 6), (4, 6), (7, 9), (18, 18)] {
        for found in world.found(Query::Embedding, budget, None, 0..20, 0) {
            assert_eq!(found, (0..expected).collect::<Vec<u32>>(), "budget {budget}");
        }
    }
}

/// Codes of two functions: in table t, class t has the query's code, and class 8 + t
/// has its second function alone. The rest have neither.
#[test]
fn walks_go_round_again_with_fewer_functions_where_too_few_are_found() {
    let tables = 8;
    let mut examples = Dataset::empty(1, 20);
    examples.push([(0, 1.0)], &[]);
    let codes_of = |class: usize| {
        let code_in = |table| match class {
            _ if class == table => 0b1001,
            _ if class == 8 + table => 0b1010,
            _ => 0b0001,
        };
        (0..tables).map(code_in).collect()
    };
    let world = World {
        classes: (0..20).map(codes_of).collect(),
        embedding: vec![0b1001; tables],
        examples,
        functions: 2,
        walk: Walk::Widening,
    };
    for budget in [3, 8, 11, 16, 20] {
        for found in world.found(Query::Embedding, budget, None, 0..50, 0) {
            let start = found[0] as usize;
            let round = |first: usize| (0..8).map(move |step| (first + (start + step) % 8) as u32);
            let expected: Vec<u32> = round(0).chain(round(8)).take(budget).collect();
            assert_eq!(found, expected, "budget {budget}: those with both functions first");
        }
    }
    let once = World { walk: Walk::Once, ..world };
    assert!(once.found(Query::Embedding, 20, None, 0..20, 0).iter().all(|found| found.len() == 8));
}

const LABELS: usize = 3;
const TABLES: usize = 4;

/// One example with three labels. In table t, label y shares its bucket with the
/// one class `3 + 4 · y + t`; the embedding shares its buckets with nobody.
fn a_class_a_label_and_table() -> World {
    let mut classes: Vec<Vec<u32>> = (1..=LABELS as u32).map(|code| vec![code; TABLES]).collect();
    for label in 0..LABELS {
        for table in 0..TABLES {
            classes.push((0..TABLES).map(|t| if t == table { 1 + label as u32 } else { 0 }).collect());
        }
    }
    let mut examples = Dataset::empty(1, classes.len());
    examples.push([(0, 1.0)], &[0, 1, 2]);
    World { classes, embedding: vec![9; TABLES], examples, functions: 1, walk: Walk::Once }
}

/// All labels ask equally often, all walks start everywhere equally often, and
/// neither says anything about the other.
#[test]
fn every_label_has_its_turn_whatever_table_comes_first() {
    let mut met = [0; LABELS * TABLES];
    for found in a_class_a_label_and_table().found(Query::Label, 1, None, 0..24_000, 0) {
        assert_eq!(found.len(), 1);
        met[found[0] as usize - LABELS] += 1;
    }
    assert_follows(&met, |_| 1.0 / (LABELS * TABLES) as f64, "labels × tables");
}

/// The walk has the stream `Sample` to itself.
#[test]
fn the_label_whose_turn_it_is_has_a_stream_of_its_own() {
    let found = a_class_a_label_and_table().found(Query::Label, 1, None, 0..200, 0);
    for (iteration, found) in found.iter().enumerate() {
        let label = below(mix(SEED, Stream::Label, iteration as u64, 0), LABELS as u32);
        assert_eq!((found[0] - LABELS as u32) / TABLES as u32, label, "iteration {iteration}");
    }
}

/// Classes near an example by its sparse features come first, best first; tables
/// give what is then left of the budget.
#[test]
fn near_classes_are_taken_first_and_within_the_budget() {
    let world = World { examples: sharing_features(), ..a_class_a_table() };
    let near = near_classes(&world.examples);
    assert_eq!(near.of(0), [12, 11]);
    let found = |budget| world.found(Query::Embedding, budget, Some(&near), 0..100, 0);
    assert!(found(1).iter().all(|found| found[..] == [12]));
    assert!(found(2).iter().all(|found| found[..] == [12, 11]));
    for found in found(6) {
        assert_eq!((&found[..2], found.len()), (&[12, 11][..], 6));
        // The true label, class 10, and near classes are passed over by the walk.
        let all = (0..20).map(|step| (found[2] + step) % 20);
        let others: Vec<u32> = all.filter(|class| !(10..13).contains(class)).take(4).collect();
        assert_eq!(found[2..], others);
    }
}

/// Example 0 shares both its features with class 12, one with class 11.
fn sharing_features() -> Dataset {
    let mut data = Dataset::empty(6, 20);
    data.push([(0, 1.0), (1, 1.0)], &[10]);
    data.push([(1, 1.0), (2, 1.0)], &[11]);
    data.push([(0, 1.0), (1, 3.0)], &[12]);
    data.push([(5, 1.0)], &[13]);
    data
}

fn near_classes(data: &Dataset) -> NearClasses {
    let means = MeanRows { start: SparseStart::Centroid, length: 1.0, entries_max: 9 };
    let (sparse, _) = SparsePart::from_means(&data.view(), &[0, 1, 2, 3], Normalise::L2, means, &[1; 20]);
    let mut index = FeatureIndex::default();
    index.refresh(&sparse, 6);
    let mut near = NearClasses::default();
    index.propose(Cpu::detect(), (&data.view(), &[0]), Normalise::L2, 5, Truths::LeftOut, &mut near);
    near
}
