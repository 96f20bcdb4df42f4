//! Negatives from the hash tables (paper, algorithms 3 and 4).
//!
//! A query starts at a random table and takes the bucket it falls into, table
//! after table, until the budget is full ([`Walk`] has other ways). `lsh-embedding` asks with the
//! example's embedding `E_x`: classes the model now scores high. `lsh-label`
//! asks with the vector `w_y` of a true label: classes the model now takes for
//! alike. Of several true labels one, drawn at random, has its turn in each
//! iteration; an example without labels asks with its embedding.
//!
//! Over draws of the hash family, class i is met with chance
//! `1 - (1 - p^K)^L`, p being the chance that one function agrees on query and
//! `w_i` (paper, theorems 1 and 2).
//!
//! Cost: O(K·L) to hash a query, sixteen at a time, and O(1) a candidate; the
//! number of classes does not enter.

use std::ops::Range;
use std::time::{Duration, Instant};

use lookalike_kernels::{Cpu, LANES, prefetch};
use rand_xoshiro::rand_core::Rng as _;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::candidates::CandidateBlock;
use super::gather::{Gather, Marks};
use super::lot::Lots;
use super::{Candidates, Counts, Request, Sampler, SamplerStats, Setup};
use crate::hashing::{Block, HashScratch, HashTables, TableCodes};
use crate::model::RowsView;
use crate::random::{Rng, Stream, below, mix, rng};
use crate::scratch::PerThread;

/// What the tables are asked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// The example's embedding.
    Embedding,
    /// The vector of one of the example's true labels.
    Label,
}

/// What becomes of the budget that the tables leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nothing: the shortfall shows in the statistics.
    Leave,
    /// Uniform draws, without correction.
    Fill,
    /// Uniform draws, each of which stands for its share of the classes that
    /// were not found; see [`super::mixed`].
    Estimate,
    /// So many uniform draws beside all that was found, of which only the best are
    /// trained on; the same.
    EstimateBeside {
        /// Draws an example.
        draws: usize,
    },
}

impl Rest {
    /// Negatives that are asked for in all, where so many are to be `found`.
    pub(super) fn asked(self, found: usize, budget: usize) -> usize {
        match self {
            Self::EstimateBeside { draws } => found + draws,
            _ => budget.max(found),
        }
    }

    /// Negatives in all where so many were `found`, if what is left is drawn.
    pub(super) fn drawn_up_to(self, found: usize, budget: usize) -> usize {
        match self {
            Self::Leave => found,
            Self::Fill | Self::Estimate => budget,
            Self::EstimateBeside { draws } => found + draws,
        }
    }

    /// The chance with which each of the `others`, of which so many were drawn, was: draws
    /// stand for all of them. None where no draw stands for more than itself.
    pub(super) fn rate(self, drawn: usize, others: usize) -> Option<f64> {
        let estimates = matches!(self, Self::Estimate | Self::EstimateBeside { .. });
        (drawn > 0 && estimates).then(|| drawn as f64 / others as f64)
    }

    /// Whether found classes are only trained on if they are among the best.
    pub(super) fn spares(self) -> bool {
        matches!(self, Self::EstimateBeside { .. })
    }
}

/// How a query goes through the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Walk {
    /// As [`Walk::Once`]; and where all tables give too few, round again with one function
    /// less, which makes buckets wider, and so on down to one. So a query gets what it
    /// asks for, however classes are spread, the most alike first.
    Widening,
    /// From a random table on, once round; of a bucket that is too full a random run.
    Once,
    /// Algorithm 3 to the letter: from the first table on, whole buckets, until there
    /// are more than asked for.
    Paper,
}

/// What is asked of hash tables.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub queries: Vec<Query>,
    /// Negatives to be found by all queries together.
    pub found: usize,
    /// Negatives in all.
    pub budget: usize,
    pub rest: Rest,
    pub walk: Walk,
}

impl Plan {
    /// One query an example; `fill` makes up for a shortfall by uniform draws.
    pub(super) fn of(setup: &Setup<'_>, query: Query) -> Self {
        let rest = if setup.lsh.fill { Rest::Fill } else { Rest::Leave };
        let (found, budget, walk) = (setup.retrieve, setup.budget, setup.walk());
        Self { queries: vec![query], found, budget, rest, walk }
    }
}

/// Asks hash tables for negatives; see the module's description.
#[derive(Debug)]
pub struct LshSampler {
    tables: HashTables,
    queries: Vec<Query>,
    /// Negatives to be found by all queries together.
    found: usize,
    /// Negatives in all.
    budget: usize,
    rest: Rest,
    walk: Walk,
    /// Negatives that a last whole bucket may bring beyond those to be found.
    overshoot: usize,
    workers: PerThread<WalkWorker>,
    stats: SamplerStats,
}

/// What one thread needs.
#[derive(Debug, Default)]
struct WalkWorker {
    block: Block,
    scratch: HashScratch,
    /// Codes of a block of examples, query after query.
    codes: Vec<u32>,
    marks: Marks,
    /// Time spent on the batch, and the part of it that was hashing.
    spent: Duration,
    spent_hashing: Duration,
}

impl LshSampler {
    /// A sampler that asks its tables with one query an example; `fill` makes up for
    /// a shortfall by uniform draws. Tables are walked once.
    pub fn new(tables: HashTables, query: Query, budget: usize, fill: bool) -> Self {
        let rest = if fill { Rest::Fill } else { Rest::Leave };
        let plan = Plan { queries: vec![query], found: budget, budget, rest, walk: Walk::Once };
        Self::with(tables, plan)
    }

    /// The same with another way through the tables.
    pub fn walking(self, walk: Walk) -> Self {
        Self { walk, ..self }
    }

    pub(super) fn with(tables: HashTables, plan: Plan) -> Self {
        let Plan { queries, found, budget, rest, walk } = plan;
        Self {
            tables,
            queries,
            found,
            budget,
            rest,
            walk,
            overshoot: 0,
            workers: PerThread::default(),
            stats: SamplerStats::default(),
        }
    }

    fn propose_block(&self, request: &Request<'_>, out: &mut CandidateBlock<'_>, worker: &mut WalkWorker) {
        let start = Instant::now();
        let lanes = self.tables.family().tables() * LANES;
        worker.codes.resize(self.queries.len() * lanes, 0);
        worker.marks.prepare(self.tables.classes(), out);
        let WalkWorker { block, scratch, codes, marks, .. } = worker;
        for (&query, codes) in self.queries.iter().zip(codes.chunks_exact_mut(lanes)) {
            self.load_queries(query, request, out.positions(), block);
            let family = self.tables.family();
            family.hash_block(request.cpu, block, 0..family.tables(), scratch, codes);
        }
        worker.spent_hashing += start.elapsed();
        let positions = out.positions();
        let rng_of = |position: usize| {
            rng(request.seed, Stream::Sample, request.iteration, u64::from(request.batch[position]))
        };
        let last = positions.end;
        self.prefetch_spans(codes, 0);
        for (lane, (position, slot)) in positions.zip(out.slots()).enumerate() {
            // While one example is worked on, memory brings the next one's
            // buckets and the next but one's offsets.
            self.prefetch_spans(codes, (lane + 2).min(LANES - 1));
            if position + 1 < last {
                self.prefetch_buckets(&codes[lane + 1..], &mut rng_of(position + 1));
            }
            let truths = request.examples.labels(request.batch[position] as usize);
            let mut rng = rng_of(position);
            let mut set = Gather::start(slot.classes, marks.of(slot.marks), truths);
            if let Some(near) = request.near {
                set.take(near.of(position), truths.len() + self.found);
            }
            let codes = &codes[lane..];
            *slot.counts = self.gather(set, request, position, codes, &mut rng);
        }
        worker.spent += start.elapsed();
    }

    /// Fills the set of one example, whose codes are those of the first lane.
    fn gather(
        &self,
        mut set: Gather<'_>,
        request: &Request<'_>,
        position: usize,
        codes: &[u32],
        rng: &mut Rng,
    ) -> Counts {
        let truths = request.examples.labels(request.batch[position] as usize).len();
        let lanes = self.tables.family().tables() * LANES;
        for (turn, codes) in codes.chunks(lanes).enumerate() {
            // Two queries share the budget; the second may use what the first left.
            // Classes that were known before may already be more than its share.
            let limit = (truths + self.found * (turn + 1) / self.queries.len()).max(set.len());
            self.walk_tables(&mut set, limit, codes, rng);
        }
        let found = set.len() - truths;
        let limit = truths + self.rest.drawn_up_to(found, self.budget);
        set.draw_uniform(self.tables.classes(), limit, rng);
        let drawn = set.len() - truths - found;
        let others = self.tables.classes() - truths - found;
        let (mut spared, mut drawn_log_q) = (0, 0.0);
        if let Some(rate) = self.rest.rate(drawn, others) {
            drawn_log_q = rate.ln() as f32;
            if self.rest.spares() {
                let lots = Lots::draw(request, position, rate);
                spared = lots.move_winners_to_front(set.classes_mut(truths..truths + found), 0);
            }
        }
        set.finish();
        let [truths, found, drawn, spared] = [truths, found, drawn, spared].map(|count| count as u32);
        Counts { truths, found, spared, drawn, drawn_log_q }
    }

    /// Prefetches the offsets of an example's buckets in all tables.
    fn prefetch_spans(&self, codes: &[u32], lane: usize) {
        for (table, codes) in codes.chunks_exact(LANES).take(self.tables.family().tables()).enumerate() {
            self.tables.prefetch_span(table, codes[lane]);
        }
    }

    /// Prefetches the buckets with which a walk begins.
    fn prefetch_buckets(&self, codes: &[u32], rng: &mut Rng) {
        /// Ids prefetched: 16 KB, which stay in L1 until they are read.
        const IDS_MAX: usize = 4096;
        const IDS_PER_LINE: usize = 16;
        let tables = self.tables.family().tables();
        let (start, ids) = (self.first_table(rng), self.tables.ids());
        let mut left = IDS_MAX.min(self.found / self.queries.len());
        for step in 0..tables {
            let table = (start + step) % tables;
            let span = self.tables.span(table, codes[table * LANES]);
            for at in span.clone().take(left).step_by(IDS_PER_LINE) {
                prefetch(ids, at);
            }
            left = left.saturating_sub(span.len());
            if left == 0 {
                break;
            }
        }
    }

    /// Algorithm 3. `codes` holds a code for every table, [`LANES`] apart.
    fn walk_tables(&self, set: &mut Gather<'_>, limit: usize, codes: &[u32], rng: &mut Rng) {
        let start = self.first_table(rng);
        for spared in 0..=self.walk.to_spare(&self.tables) {
            self.walk_round(set, limit, codes, (start, spared), rng);
            if self.walk.is_enough(set.len(), limit) {
                break;
            }
        }
    }

    /// Once round the tables from `start` on, with all functions but those `spared`.
    fn walk_round(
        &self,
        set: &mut Gather<'_>,
        limit: usize,
        codes: &[u32],
        (start, spared): (usize, u32),
        rng: &mut Rng,
    ) {
        /// Tables looked up before the first bucket of them is read.
        const AHEAD: usize = 16;
        let tables = self.tables.family().tables();
        let ids = self.tables.ids();
        let mut spans: [_; AHEAD] = std::array::from_fn(|_| 0..0);
        for first in (0..tables).step_by(AHEAD) {
            if self.walk.is_enough(set.len(), limit) {
                break;
            }
            // Offsets and bucket starts are cache misses that do not depend on
            // each other: asked for together, they are waited for together.
            let ahead = AHEAD.min(tables - first);
            for (step, span) in spans[..ahead].iter_mut().enumerate() {
                let table = (start + first + step) % tables;
                let code = codes[table * LANES];
                *span = match spared {
                    0 => self.tables.span(table, code),
                    _ => self.tables.wide_span(table, code, spared),
                };
            }
            let touched = spans[..ahead].iter().filter_map(|span| ids.get(span.start));
            std::hint::black_box(touched.fold(0, |all, id| all ^ id));
            for span in &spans[..ahead] {
                if self.walk.is_enough(set.len(), limit) {
                    break;
                }
                match self.walk {
                    Walk::Paper => set.take(&ids[span.clone()], limit + self.overshoot),
                    _ => set.take_bucket(&ids[span.clone()], limit, rng),
                }
            }
        }
    }

    /// The table with which a walk begins.
    fn first_table(&self, rng: &mut Rng) -> usize {
        self.walk.first_table(self.tables.family().tables(), rng)
    }

    /// Lays the queries of a block of examples side by side.
    fn load_queries(&self, query: Query, request: &Request<'_>, positions: Range<usize>, block: &mut Block) {
        let mut ids = [0u32; LANES];
        let ids = &mut ids[..positions.len()];
        if query == Query::Embedding {
            ids.iter_mut().zip(positions).for_each(|(id, position)| *id = position as u32);
            return block.load(request.cpu, request.embeddings.view(), ids);
        }
        let label_of = |position: usize| asking_label(request, position);
        for (id, position) in ids.iter_mut().zip(positions.clone()) {
            *id = label_of(position).unwrap_or(0);
        }
        self.tables.load_classes(request.cpu, request.class_vectors, ids, block);
        for (lane, position) in positions.enumerate() {
            if label_of(position).is_none() {
                block.set_lane(lane, request.embeddings.view(), position);
            }
        }
    }
}

impl Walk {
    /// The table with which a walk begins.
    pub(super) fn first_table(self, tables: usize, rng: &mut Rng) -> usize {
        match self {
            Self::Paper => 0,
            _ => below(rng.next_u64(), tables as u32) as usize,
        }
    }

    /// Whether `len` classes of `limit` need no further bucket. In the paper a set that
    /// has just reached it gets one more.
    pub(super) fn is_enough(self, len: usize, limit: usize) -> bool {
        if self == Self::Paper { len > limit } else { len >= limit }
    }

    /// How many functions it may do without in the end.
    pub(super) fn to_spare(self, tables: &HashTables) -> u32 {
        if self == Self::Widening { tables.functions_to_spare() } else { 0 }
    }
}

/// The true label whose turn it is to ask the tables for an example of the batch.
pub(super) fn asking_label(request: &Request<'_>, position: usize) -> Option<u32> {
    let example = request.batch[position];
    let labels = request.examples.labels(example as usize);
    let turn = mix(request.seed, Stream::Label, request.iteration, u64::from(example));
    labels.get(below(turn, labels.len() as u32) as usize).copied()
}

impl LshSampler {
    /// Negatives an example that are asked for in all.
    fn room(&self) -> usize {
        self.rest.asked(self.found, self.budget)
    }

    /// Of tables that are others now.
    fn take_notice(&mut self) {
        if self.walk == Walk::Paper {
            self.overshoot = self.tables.bucket_max();
        }
    }
}

impl Sampler for LshSampler {
    fn propose(&mut self, request: &Request<'_>, out: &mut Candidates) {
        let room = self.room() + self.overshoot + request.truths_max();
        out.reset_marked(request.batch.len(), room, self.tables.classes());
        self.workers.prepare();
        let this = &*self;
        out.par_blocks_mut(LANES).for_each(|mut block| {
            this.workers.with(|worker| this.propose_block(request, &mut block, worker));
        });
        self.stats.count(self.room(), self.tables.classes(), out);
        let spent = |(all, hashing), worker: &mut WalkWorker| {
            let WalkWorker { spent, spent_hashing, .. } = worker;
            (all + std::mem::take(spent).as_secs_f64(), hashing + std::mem::take(spent_hashing).as_secs_f64())
        };
        let (all, hashing) = self.workers.values_mut().fold((0.0, 0.0), spent);
        self.stats.hashing_share = if all > 0.0 { hashing / all } else { 0.0 };
    }

    fn refresh(&mut self, cpu: Cpu, class_vectors: RowsView<'_>, changed: Option<&[u32]>) {
        self.tables.refresh(cpu, class_vectors, changed);
        self.take_notice();
    }

    fn tables(&self) -> Option<&HashTables> {
        Some(&self.tables)
    }

    fn restore(&mut self, codes: &TableCodes, mean: &[f32]) -> bool {
        let is_restored = self.tables.restore(codes, mean);
        self.take_notice();
        is_restored
    }

    fn stats(&self) -> SamplerStats {
        self.stats
    }
}
