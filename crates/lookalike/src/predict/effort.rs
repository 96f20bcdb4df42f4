//! How much of the search index to ask: chosen on examples when a model is trained.

use lookalike_kernels::Cpu;

use super::{Ask, Predictor, Search, TopK};
use crate::data::Examples;
use crate::model::{Model, SearchIndex};

/// The share of the best classes that a fast search should find.
const RECALL: f64 = 0.99;
/// Places of a ranking that are compared.
const PLACES: usize = 5;
/// The least effort that is tried; each further one is twice the last.
const EFFORT_MIN: usize = 64;

/// How many times as long a class takes that is looked at in its cluster, centres included,
/// as one that is scored in the order in which all lie in memory.
const LOOK_COST: usize = 2;

/// With fewer classes, all are scored as fast as they are searched.
pub const INDEXED_CLASSES_MIN: usize = 2000;

/// Gives a model an index, with the least effort that finds nearly all of what an exact
/// search finds for some examples, or, where that would not be faster, all classes. A model
/// of few classes ([`INDEXED_CLASSES_MIN`]) needs none.
pub fn index(cpu: Cpu, model: &mut Model, examples: &Examples<'_>, judges: &[u32]) {
    model.search = Some(SearchIndex::build(cpu, model));
    let (effort, recall) = choose(cpu, model, examples, judges);
    if let Some(index) = &mut model.search {
        (index.effort, index.recall) = (effort, recall);
    }
}

fn choose(cpu: Cpu, model: &Model, examples: &Examples<'_>, judges: &[u32]) -> (usize, f32) {
    let predictor = Predictor::new(model, cpu);
    let exact = predictor.rank(examples, judges, Ask::best(PLACES));
    let mut effort = EFFORT_MIN;
    while effort < model.num_classes() / LOOK_COST {
        let search = Search::Fast { effort: Some(effort) };
        let found = predictor.rank(examples, judges, Ask { search, ..Ask::best(PLACES) });
        let recall = Recall::of(&found, &exact).share();
        if recall >= RECALL {
            return (effort, recall as f32);
        }
        effort *= 2;
    }
    (model.num_classes(), 1.0)
}

/// How many classes of exact rankings another search found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recall {
    /// Those it found.
    pub found: u64,
    /// All.
    pub all: u64,
}

impl Recall {
    /// Of two rankings of the same examples.
    pub fn of(found: &TopK, exact: &TopK) -> Self {
        let mut recall = Self::default();
        for example in 0..exact.len() {
            recall.count(found.example(example).classes, exact.example(example).classes);
        }
        recall
    }

    /// Counts one example.
    pub(super) fn count(&mut self, found: &[u32], wanted: &[u32]) {
        self.all += wanted.len() as u64;
        self.found += wanted.iter().filter(|class| found.contains(class)).count() as u64;
    }

    /// The share that was found; all of nothing.
    pub fn share(&self) -> f64 {
        if self.all == 0 { 1.0 } else { self.found as f64 / self.all as f64 }
    }

    /// Counts those of further rankings.
    pub fn add(&mut self, more: Self) {
        self.found += more.found;
        self.all += more.all;
    }
}
