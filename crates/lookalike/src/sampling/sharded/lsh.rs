//! Hash tables over several ranks: the walk of algorithm 3, each rank in the tables of
//! its own classes.
//!
//! A bucket of one process is the ranks' buckets, one after the other, and a class
//! is new to a set or not whatever the other ranks found. So each rank walks its own
//! tables without regard to the budget and counts, table by table, how many classes
//! its buckets hold and how many of them are new. With the sums of these counts every
//! rank knows where the budget of one process ends. In the last bucket that process
//! would take a random run of classes; ranks tell each other their counts of
//! that bucket, and each knows which of its own are in the run ([`super::runs`]). Where
//! all tables give too little, the same again with wider buckets, for the examples that
//! need it.
//!
//! Cost: a walk through all tables instead of through as many as the budget needs;
//! eight bytes an example and table on the wire, whatever the number of classes.

use std::ops::Range;
use std::time::{Duration, Instant};

use lookalike_kernels::{Cpu, LANES};
use rand_xoshiro::rand_core::Rng as _;
use rayon::prelude::*;

use super::super::gather::{Gather, Marks};
use super::super::lot::Lots;
use super::super::lsh::{Plan, Query, Rest, Walk, asking_label};
use super::super::{Candidates, Counts, Request, Sampler, SamplerStats};
use super::{draws, runs};
use crate::collective::Shard;
use crate::hashing::{Block, HashScratch, HashTables, TableCodes};
use crate::model::RowsView;
use crate::random::{Rng, Stream, below, rng};
use crate::scratch::PerThread;

/// Asks a shard's hash tables for negatives; see the module's description.
#[derive(Debug)]
pub(super) struct ShardedLsh {
    tables: HashTables,
    plan: Plan,
    shard: Shard,
    /// By example of the batch.
    walks: Vec<ExampleWalk>,
    /// By example that still walks, and table: classes in the bucket, and new ones among them.
    counts: Vec<[u32; 2]>,
    /// The vectors that labels ask with, a row an example.
    label_rows: Vec<f32>,
    workers: PerThread<ShardWorker>,
    stats: SamplerStats,
}

/// What one thread needs.
#[derive(Debug, Default)]
struct ShardWorker {
    block: Block,
    scratch: HashScratch,
    codes: Vec<u32>,
    set: SetRoom,
    spent: Duration,
    spent_hashing: Duration,
}

/// Room for a set of own classes while it grows.
#[derive(Debug, Default)]
pub(super) struct SetRoom {
    slot: Vec<u32>,
    marks: Marks,
}

impl SetRoom {
    /// A set that has `members` and may get `more`.
    pub(super) fn start<'a>(
        &'a mut self,
        classes: usize,
        members: [&[u32]; 2],
        more: usize,
    ) -> (Gather<'a>, usize) {
        let room = members[0].len() + members[1].len() + more;
        self.marks.make_room(classes, room);
        if self.slot.len() < room {
            self.slot.resize(room, 0);
        }
        let mut set = Gather::start(&mut self.slot, self.marks.of(&mut []), members[0]);
        set.take(members[1], room);
        (set, room)
    }
}

/// One example's set while ranks find it together.
#[derive(Debug)]
pub(super) struct ExampleWalk {
    pub rng: Rng,
    /// Own true labels, and how many all ranks have.
    pub truths: Vec<u32>,
    pub truths_of_all: usize,
    /// Own negatives, found and then drawn.
    pub own: Vec<u32>,
    /// Negatives that all ranks have found.
    pub found_by_all: usize,
    /// Own found ones, when all are found.
    pub own_found: usize,
    /// Negatives that all ranks have drawn.
    pub drawn_by_all: usize,
    /// The query's code in each table.
    pub codes: Vec<u32>,
    /// The table with which the walk begins.
    first_table: usize,
    /// Of this round: where the classes of each table end in `own`, after where they begin.
    ends: Vec<u32>,
    /// Where this round ends within a bucket.
    pub cut: Option<Cut>,
}

/// The last bucket of a walk, of which only a run is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// The table, counted from the walk's first.
    pub step: usize,
    /// Functions that are done without.
    pub spared: u32,
    /// Where in the bucket of all ranks the run begins.
    pub place: usize,
    /// How many new classes it takes.
    pub room: usize,
}

impl Default for ExampleWalk {
    fn default() -> Self {
        Self {
            rng: rng(0, Stream::Sample, 0, 0),
            truths: Vec::new(),
            truths_of_all: 0,
            own: Vec::new(),
            found_by_all: 0,
            own_found: 0,
            drawn_by_all: 0,
            codes: Vec::new(),
            first_table: 0,
            ends: Vec::new(),
            cut: None,
        }
    }
}

impl ExampleWalk {
    /// Where in `own` the new classes of a step are.
    pub(super) fn own_of(&self, step: usize) -> Range<usize> {
        self.ends[step] as usize..self.ends[step + 1] as usize
    }

    /// The table of a step, and the query's code in it.
    pub(super) fn table_of(&self, step: usize) -> (usize, u32) {
        let table = (self.first_table + step) % self.codes.len();
        (table, self.codes[table])
    }

    /// Once round the own tables, without the `spared` functions, until own classes alone
    /// would be enough: what comes later is in nobody's set.
    fn walk(
        &mut self,
        tables: &HashTables,
        (walk, limit): (Walk, usize),
        spared: u32,
        set: &mut SetRoom,
        counts: &mut [[u32; 2]],
    ) {
        let bucket_of = |step: usize| {
            let (table, code) = self.table_of(step);
            tables.wide_span(table, code, spared)
        };
        let buckets: Vec<Range<usize>> = (0..self.codes.len()).map(bucket_of).collect();
        let (truths, before) = (self.truths.len(), self.own.len());
        let more = buckets.iter().map(ExactSizeIterator::len).sum::<usize>().min(tables.classes());
        let (mut set, room) = set.start(tables.classes(), [&self.truths, &self.own], more);
        self.ends.clear();
        self.ends.push(before as u32);
        for (bucket, count) in buckets.into_iter().zip(counts) {
            let len = set.len();
            if walk.is_enough(self.found_by_all + len - truths - before, limit) {
                break;
            }
            set.take(&tables.ids()[bucket.clone()], room);
            *count = [bucket.len() as u32, (set.len() - len) as u32];
            self.ends.push((set.len() - truths) as u32);
        }
        self.own.clear();
        self.own.extend_from_slice(&set.classes()[truths..]);
        set.finish();
    }

    /// Replays the round with the counts of all ranks: up to which table it takes
    /// everything, and where it ends within a bucket.
    fn end(&mut self, counts: &[[u32; 2]], (walk, limit): (Walk, usize), spared: u32) {
        let mut steps = 0;
        self.cut = None;
        for (step, &[size, fresh]) in counts.iter().enumerate() {
            if walk.is_enough(self.found_by_all, limit) {
                break;
            }
            if walk != Walk::Paper {
                // As one process does: of a bucket that may be too full, from a random place on.
                let room = limit - self.found_by_all;
                let is_long = size as usize > room;
                let place = if is_long { below(self.rng.next_u64(), size) as usize } else { 0 };
                if fresh as usize > room {
                    self.cut = Some(Cut { step, spared, place, room });
                    self.found_by_all = limit;
                    return;
                }
            }
            self.found_by_all += fresh as usize;
            steps = step + 1;
        }
        // Where own classes alone were enough, those of all ranks were so no later.
        self.own.truncate(self.ends[steps] as usize);
    }
}

impl ShardedLsh {
    pub(super) fn new(tables: HashTables, plan: Plan, shard: Shard) -> Self {
        Self {
            tables: tables.of_shard(&shard),
            plan,
            shard,
            walks: Vec::new(),
            counts: Vec::new(),
            label_rows: Vec::new(),
            workers: PerThread::default(),
            stats: SamplerStats::default(),
        }
    }

    /// An empty set for each example.
    fn start(&mut self, request: &Request<'_>) {
        self.walks.resize_with(request.batch.len(), ExampleWalk::default);
        for (walk, &example) in self.walks.iter_mut().zip(request.batch) {
            let truths = request.examples.labels(example as usize);
            walk.rng = rng(request.seed, Stream::Sample, request.iteration, u64::from(example));
            walk.truths.clear();
            walk.truths.extend(self.shard.own(truths));
            walk.own.clear();
            (walk.truths_of_all, walk.found_by_all, walk.drawn_by_all) = (truths.len(), 0, 0);
        }
        if let Some(near) = request.near {
            // They are all different, and no true labels.
            for (position, walk) in self.walks.iter_mut().enumerate() {
                let near = near.of(position);
                let taken = &near[..near.len().min(self.plan.found)];
                walk.own.extend(self.shard.own(taken));
                walk.found_by_all = taken.len();
            }
        }
        if self.plan.queries.contains(&Query::Label) {
            self.bring_label_rows(request);
        }
    }

    /// Each label's vector comes from the rank that has it.
    fn bring_label_rows(&mut self, request: &Request<'_>) {
        let (vectors, classes) = (request.class_vectors, self.shard.classes());
        self.label_rows.clear();
        self.label_rows.resize(request.batch.len() * vectors.stride, 0.0);
        let label = |position| asking_label(request, position).map(|label| label as usize);
        for (position, row) in self.label_rows.chunks_exact_mut(vectors.stride).enumerate() {
            if let Some(own) = label(position).filter(|label| classes.contains(label)) {
                vectors.copy_row(own - classes.start, row);
            }
        }
        self.shard.collective().sum_f32(&mut self.label_rows);
    }

    /// The codes of one query of every example, and where its walk begins.
    fn hash(&mut self, request: &Request<'_>, query: Query) {
        let Self { tables, walks, label_rows, workers, plan, .. } = self;
        let (tables, num_tables) = (&*tables, tables.family().tables());
        workers.prepare();
        walks.par_chunks_mut(LANES).enumerate().for_each(|(block, walks)| {
            workers.with(|worker| {
                let start = Instant::now();
                let ids: [u32; LANES] = std::array::from_fn(|lane| (block * LANES + lane) as u32);
                let ids = &ids[..walks.len()];
                let ShardWorker { block, scratch, codes, .. } = worker;
                load_queries(tables, request, query, label_rows, ids, block);
                codes.resize(num_tables * LANES, 0);
                tables.family().hash_block(request.cpu, block, 0..num_tables, scratch, codes);
                for (lane, walk) in walks.iter_mut().enumerate() {
                    walk.codes.clear();
                    walk.codes.extend(codes.chunks_exact(LANES).map(|codes| codes[lane]));
                    walk.first_table = plan.walk.first_table(num_tables, &mut walk.rng);
                }
                worker.spent += start.elapsed();
                worker.spent_hashing += start.elapsed();
            });
        });
    }

    /// One round of the walks that are not at their end; false if there are none.
    fn round(&mut self, limit: usize, spared: u32) -> bool {
        let Self { tables, walks, counts, workers, plan, shard, .. } = self;
        let (tables, num_tables) = (&*tables, tables.family().tables());
        // In the paper's walk a set may have more than its share already.
        let goal = |walk: &ExampleWalk| (plan.walk, limit.max(walk.found_by_all));
        let goals: Vec<_> = walks.iter().map(goal).collect();
        let is_open = |walk: &ExampleWalk, goal: &(Walk, usize)| !goal.0.is_enough(walk.found_by_all, goal.1);
        let mut open: Vec<_> =
            walks.iter_mut().zip(goals).filter(|(walk, goal)| is_open(walk, goal)).collect();
        if open.is_empty() {
            return false;
        }
        counts.clear();
        counts.resize(open.len() * num_tables, [0; 2]);
        workers.prepare();
        let blocks = open.par_chunks_mut(LANES).zip(counts.par_chunks_mut(LANES * num_tables));
        blocks.for_each(|(walks, counts)| {
            workers.with(|worker| {
                let start = Instant::now();
                for ((walk, goal), counts) in walks.iter_mut().zip(counts.chunks_exact_mut(num_tables)) {
                    walk.walk(tables, *goal, spared, &mut worker.set, counts);
                }
                worker.spent += start.elapsed();
            });
        });
        shard.collective().sum_u32(bytemuck::cast_slice_mut(counts));
        for ((walk, goal), counts) in open.iter_mut().zip(counts.chunks_exact(num_tables)) {
            walk.end(counts, *goal, spared);
        }
        let mut cut: Vec<&mut ExampleWalk> =
            open.into_iter().map(|(walk, _)| walk).filter(|walk| walk.cut.is_some()).collect();
        runs::take(shard.collective(), tables, &mut cut);
        true
    }

    fn write(&mut self, request: &Request<'_>, out: &mut Candidates) {
        let room = self.walks.iter().map(|walk| walk.truths.len() + walk.own.len()).max().unwrap_or(0);
        out.reset(self.walks.len(), room);
        let (walks, rest, shard) = (&self.walks, self.plan.rest, &self.shard);
        out.par_blocks_mut(LANES).for_each(|mut block| {
            let positions = block.positions();
            for (position, slot) in positions.zip(block.slots()) {
                let walk = &walks[position];
                let all = walk.truths.iter().chain(&walk.own);
                slot.classes.iter_mut().zip(all).for_each(|(place, &class)| *place = class);
                let others = shard.num_classes() - walk.truths_of_all - walk.found_by_all;
                let (mut spared, mut drawn_log_q) = (0, 0.0);
                if let Some(rate) = rest.rate(walk.drawn_by_all, others) {
                    drawn_log_q = rate.ln() as f32;
                    if rest.spares() {
                        let found = &mut slot.classes[walk.truths.len()..][..walk.own_found];
                        let lots = Lots::draw(request, position, rate);
                        spared = lots.move_winners_to_front(found, shard.classes().start);
                    }
                }
                *slot.counts = Counts {
                    truths: walk.truths.len() as u32,
                    found: walk.own_found as u32,
                    spared: spared as u32,
                    drawn: (walk.own.len() - walk.own_found) as u32,
                    drawn_log_q,
                };
            }
        });
    }

    /// What all ranks together were asked for and gave.
    fn count(&mut self) {
        let asked = self.plan.rest.asked(self.plan.found, self.plan.budget);
        for walk in &self.walks {
            self.stats.queries += 1;
            self.stats.wanted += asked.min(self.shard.num_classes() - walk.truths_of_all) as u64;
            self.stats.given += (walk.found_by_all + walk.drawn_by_all) as u64;
        }
        let spent = |(all, hashing): (Duration, Duration), worker: &mut ShardWorker| {
            (all + std::mem::take(&mut worker.spent), hashing + std::mem::take(&mut worker.spent_hashing))
        };
        let (all, hashing) = self.workers.values_mut().fold(Default::default(), spent);
        self.stats.hashing_share = hashing.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE);
    }
}

/// Lays the queries of a block of examples side by side.
fn load_queries(
    tables: &HashTables,
    request: &Request<'_>,
    query: Query,
    label_rows: &[f32],
    positions: &[u32],
    block: &mut Block,
) {
    let embeddings = request.embeddings.view();
    if query == Query::Embedding {
        return block.load(request.cpu, embeddings, positions);
    }
    let rows = RowsView::f32(label_rows, request.class_vectors.dim);
    tables.load_classes(request.cpu, rows, positions, block);
    for (lane, &position) in positions.iter().enumerate() {
        if asking_label(request, position as usize).is_none() {
            block.set_lane(lane, embeddings, position as usize);
        }
    }
}

impl Sampler for ShardedLsh {
    fn propose(&mut self, request: &Request<'_>, out: &mut Candidates) {
        self.start(request);
        let queries = self.plan.queries.clone();
        for (turn, &query) in queries.iter().enumerate() {
            // Two queries share the budget; the second may use what the first left.
            let limit = self.plan.found * (turn + 1) / queries.len();
            self.hash(request, query);
            let to_spare = self.plan.walk.to_spare(&self.tables);
            let _ = (0..=to_spare).all(|spared| self.round(limit, spared));
        }
        self.walks.iter_mut().for_each(|walk| walk.own_found = walk.own.len());
        if self.plan.rest != Rest::Leave {
            draws::draw(&self.shard, &self.plan, &mut self.walks, &mut SetRoom::default());
        }
        self.write(request, out);
        self.count();
    }

    fn refresh(&mut self, cpu: Cpu, class_vectors: RowsView<'_>, changed: Option<&[u32]>) {
        self.tables.refresh(cpu, class_vectors, changed);
    }

    fn tables(&self) -> Option<&HashTables> {
        Some(&self.tables)
    }

    fn restore(&mut self, codes: &TableCodes, mean: &[f32]) -> bool {
        self.tables.restore(codes, mean)
    }

    fn stats(&self) -> SamplerStats {
        self.stats
    }
}
