//! The scan: all classes past blocks of examples, and a shortlist for each example.
//!
//! A few examples meet very many classes in a tile, so that where a feature's weights go on
//! is looked up rarely; class vectors, small in bytes, come from memory once for a block.
//! What the nearest training examples add is known before and added to the rough scores: their
//! classes are scored exactly where that makes them one of the best, and not else.

use std::ops::Range;

use lookalike_kernels::{COLUMN_BLOCK, CodedQueries, Cpu, LANES, code_query};
use rayon::prelude::*;

use super::{RoughClasses, SparseQueries};
use crate::best::Best;
use crate::data::Examples;
use crate::model::{Embeddings, NeighbourScratch, WeightedRow};
use crate::predict::candidates::CandidateRanker;
use crate::predict::few::{FewClasses, ScoredExample};
use crate::predict::ranking::TopK;
use crate::scratch::PerThread;

/// Examples of a block.
const BLOCK: usize = 16;
/// Classes of a tile: a block's scores stay in the second-level cache.
pub(super) const TILE_CLASSES: usize = 8192;
/// What stands for zero in the codes of [`code_query`].
const QUERY_ZERO: f32 = 64.0;
/// The bound is itself a sum of rounded numbers.
const BOUND_ROUNDED: f32 = 1.001;
/// Roundings of a sum besides one for each number of a class vector and each feature.
const MORE_ROUNDINGS: usize = 16;

/// Working memory of [`RoughClasses::rank`], reused between calls.
#[derive(Debug, Default)]
pub(in crate::predict) struct RoughScratch {
    /// By example; none without training examples.
    shares: Vec<Shares>,
    pieces: Vec<Piece>,
    workers: PerThread<Worker>,
    rankers: PerThread<(CandidateRanker, Vec<u32>)>,
}

/// What the nearest training examples add to the score of each of their classes, in the
/// order of classes.
type Shares = Vec<(u32, f32)>;

/// What one range of classes gave for one block of examples.
#[derive(Debug, Default)]
struct Piece {
    /// By example: what is left of the range.
    lists: Vec<Shortlist>,
}

/// Classes of one example that may be among its best.
#[derive(Clone, Debug, Default)]
struct Shortlist {
    best: Best,
    /// How far below the last of the best a class may be.
    window: f32,
    classes: Vec<(f32, u32)>,
}

/// A thread's buffers.
#[derive(Debug, Default)]
struct Worker {
    neighbours: NeighbourScratch,
    query_codes: Vec<i8>,
    query_scales: Vec<f32>,
    scores: Vec<f32>,
    found: Vec<u32>,
    /// The block's frequent features, example after example.
    frequent: Vec<WeightedRow>,
    /// Its other features, each with where its postings go on.
    rare: Vec<((u32, f32), u32)>,
    /// By example: where its frequent and its rare features end, and how many of its shares
    /// are those of earlier classes.
    places: Vec<(usize, usize, usize)>,
}

impl RoughClasses {
    /// The best `out.k()` classes of each example in `batch` by all parts of the model.
    pub(in crate::predict) fn rank(
        &self,
        few: FewClasses<'_>,
        (examples, batch): (&Examples<'_>, &[u32]),
        embeddings: Embeddings<'_>,
        sparse: Option<SparseQueries<'_>>,
        scratch: &mut RoughScratch,
        out: &mut TopK,
    ) {
        let blocks = batch.len().div_ceil(BLOCK);
        // What is found does not depend on how classes are shared out, so threads may decide.
        let tiles = self.num_classes.div_ceil(TILE_CLASSES);
        let ranges = if blocks == 0 { 1 } else { rayon::current_num_threads().div_ceil(blocks).min(tiles) };
        let range_classes = tiles.div_ceil(ranges) * TILE_CLASSES;
        scratch.workers.prepare();
        scratch.rankers.prepare();
        let RoughScratch { shares, pieces, workers, rankers } = scratch;
        let kept = few.model.neighbours.as_ref();
        shares.resize_with(kept.map_or(0, |_| batch.len().max(shares.len())), Vec::new);
        if let Some(part) = kept {
            shares.par_iter_mut().zip(batch).for_each(|(shares, &example)| {
                workers.with(|Worker { neighbours, .. }| {
                    let near = part.near(examples.features(example as usize), neighbours);
                    shares.clear();
                    shares.extend(near.classes().iter().map(|&class| (class, near.share(class))));
                    shares.sort_unstable_by_key(|&(class, _)| class);
                });
            });
        }
        pieces.resize_with((blocks * ranges).max(pieces.len()), Piece::default);
        let scan = Scan { rough: self, cpu: few.cpu, embeddings, sparse, shares, k: out.k() };
        pieces[..blocks * ranges].par_iter_mut().enumerate().with_max_len(1).for_each(|(i, piece)| {
            let first = i / ranges * BLOCK;
            let from = (i % ranges * range_classes).min(self.num_classes);
            let classes = from..self.num_classes.min(from + range_classes);
            workers.with(|worker| scan.piece(first..batch.len().min(first + BLOCK), classes, piece, worker));
        });
        let pieces = &pieces[..blocks * ranges];
        out.fill_each(batch.len(), self.num_classes, |position, slot| {
            let lists = pieces[position / BLOCK * ranges..][..ranges].iter();
            let lists = lists.map(|piece| &piece.lists[position % BLOCK]);
            rankers.with(|(ranker, classes)| {
                Shortlist::join(lists, slot.k(), &mut ranker.best, classes);
                let query = ScoredExample::new(examples, batch, embeddings, position);
                let shares = scan.shares(position);
                let place = |class| shares.binary_search_by_key(&class, |&(class, _)| class);
                let share = |class| place(class).map_or(0.0, |place| shares[place].1);
                ranker.rank(few, query, classes.iter(), share, slot.k());
                slot.take(&mut ranker.best);
            });
        });
    }
}

/// What stays the same for all pieces.
#[derive(Clone, Copy)]
struct Scan<'a> {
    rough: &'a RoughClasses,
    cpu: Cpu,
    embeddings: Embeddings<'a>,
    sparse: Option<SparseQueries<'a>>,
    shares: &'a [Shares],
    k: usize,
}

impl Scan<'_> {
    fn shares(&self, position: usize) -> &[(u32, f32)] {
        self.shares.get(position).map_or(&[], |shares| &shares[..])
    }

    /// Scores a block of examples for a range of classes, tile by tile.
    fn piece(&self, block: Range<usize>, classes: Range<usize>, piece: &mut Piece, worker: &mut Worker) {
        let Self { rough, cpu, .. } = *self;
        let examples = block.len();
        piece.lists.resize_with(BLOCK, Shortlist::default);
        self.start(block.clone(), classes.start, &mut piece.lists, worker);
        let Worker { query_codes, query_scales, scores, found, frequent, rare, places, .. } = worker;
        let queries = CodedQueries { codes: query_codes, scales: query_scales };
        for first in classes.clone().step_by(TILE_CLASSES) {
            let of_tile = first..classes.end.min(first + TILE_CLASSES);
            let columns = of_tile.len().next_multiple_of(COLUMN_BLOCK);
            // A power of two would put the scores of a class in the same few sets of the
            // first-level cache.
            let stride = columns + LANES;
            scores.resize((examples * stride).max(scores.len()), 0.0);
            rough.columns.score(cpu, queries, (first, columns), scores, stride);
            let (mut from_frequent, mut from_rare) = (0, 0);
            for (example, list) in piece.lists[..examples].iter_mut().enumerate() {
                let all = &mut scores[example * stride..][..columns];
                let (end_frequent, end_rare, earlier) = &mut places[example];
                if let Some(SparseQueries { postings, .. }) = self.sparse {
                    postings.frequent().add(cpu, &frequent[from_frequent..*end_frequent], first, all);
                    for (weighted, place) in &mut rare[from_rare..*end_rare] {
                        postings.add(cpu, *weighted, of_tile.clone(), place, &mut all[..of_tile.len()]);
                    }
                }
                let scores = &mut all[..of_tile.len()];
                (from_frequent, from_rare) = (*end_frequent, *end_rare);
                let later = self.shares(block.start + example)[*earlier..].iter();
                for &(class, share) in later.take_while(|(class, _)| (*class as usize) < of_tile.end) {
                    scores[class as usize - first] += share;
                    *earlier += 1;
                }
                list.offer_many(cpu, scores, first as u32, found);
            }
        }
        piece.lists[..examples].iter_mut().for_each(Shortlist::finish);
    }

    /// Codes the examples of a block, sorts their features, and bounds their errors.
    fn start(&self, block: Range<usize>, first_class: usize, lists: &mut [Shortlist], worker: &mut Worker) {
        let Worker { query_codes, query_scales, frequent, rare, places, .. } = worker;
        let len = self.rough.columns.len();
        query_codes.resize(block.len() * len, 0);
        query_scales.clear();
        frequent.clear();
        rare.clear();
        places.clear();
        for ((position, list), codes) in block.zip(lists).zip(query_codes.chunks_exact_mut(len)) {
            let row = self.embeddings.row(position);
            let scale = code_query(self.cpu, row, codes);
            query_scales.push(scale);
            let mut bound = Bound::of_embedding(self.rough, row, codes, scale);
            if let Some(sparse) = &self.sparse {
                let postings = sparse.postings;
                let (features, factor) = sparse.features(position);
                for (id, value) in features {
                    let factor = factor * value;
                    bound.largest += factor.abs() * postings.largest();
                    bound.roundings += 1;
                    match postings.frequent().of(id, factor) {
                        Some((row, error)) => {
                            bound.error += error;
                            frequent.push(row);
                        }
                        None => {
                            let (posted, _) = postings.of(id);
                            let earlier = posted.partition_point(|&class| (class as usize) < first_class);
                            rare.push(((id, factor), earlier as u32));
                        }
                    }
                }
            }
            let shares = self.shares(position);
            bound.largest += shares.iter().fold(0.0, |most: f32, &(_, share)| most.max(share));
            let earlier = shares.partition_point(|&(class, _)| (class as usize) < first_class);
            places.push((frequent.len(), rare.len(), earlier));
            list.reset(self.k, bound.window());
        }
    }
}

/// What rough scores of an example may be wrong by, and what that follows from.
struct Bound {
    error: f32,
    /// The largest sum that there may be on the way to a score.
    largest: f32,
    roundings: usize,
}

impl Bound {
    fn of_embedding(rough: &RoughClasses, row: &[f32], codes: &[i8], scale: f32) -> Self {
        // A sum a lane, as the compiler has instructions for.
        let (mut length, mut lost) = ([0.0; LANES], [0.0; LANES]);
        for (numbers, codes) in row.as_chunks::<LANES>().0.iter().zip(codes.as_chunks::<LANES>().0) {
            for i in 0..LANES {
                let error = numbers[i] - scale * (f32::from(codes[i]) - QUERY_ZERO);
                length[i] += numbers[i] * numbers[i];
                lost[i] += error * error;
            }
        }
        let root = |squares: [f32; LANES]| squares.iter().sum::<f32>().sqrt();
        let (length, lost) = (root(length), root(lost));
        let reach = rough.reach;
        Self {
            error: reach.coded * lost + reach.lost * length,
            largest: (reach.coded + reach.lost) * length + reach.bias,
            roundings: rough.columns.len() + MORE_ROUNDINGS,
        }
    }

    /// How far below another's a class's rough score may be, and its exact one not below;
    /// infinite where that is not known.
    fn window(&self) -> f32 {
        let window = 2.0 * (BOUND_ROUNDED * self.error + self.roundings as f32 * f32::EPSILON * self.largest);
        if window.is_finite() { window } else { f32::INFINITY }
    }
}

impl Shortlist {
    fn reset(&mut self, k: usize, window: f32) {
        self.best.reset(k);
        self.window = window;
        self.classes.clear();
    }

    /// Takes in what may be among the best by what is known so far. `found` is working memory.
    fn offer_many(&mut self, cpu: Cpu, scores: &[f32], first: u32, found: &mut Vec<u32>) {
        let Self { best, window, classes } = self;
        if window.is_finite() {
            let keep = |score, class| classes.push((score, class));
            best.offer_within(cpu, scores, first, (*window, keep), found);
        } else {
            // Nothing is known of them.
            classes.extend((first..).take(scores.len()).map(|class| (0.0, class)));
        }
    }

    /// Leaves what may be among the best of the range.
    fn finish(&mut self) {
        let floor = floor(&mut self.best, self.window);
        self.classes.retain(|&(score, _)| score >= floor);
    }

    /// Writes which classes may be among the best `k` of all ranges. `best` is working memory.
    fn join<'l>(
        lists: impl Iterator<Item = &'l Self> + Clone,
        k: usize,
        best: &mut Best,
        classes: &mut Vec<u32>,
    ) {
        best.reset(k);
        let window = lists.clone().map(|list| list.window).fold(0.0, f32::max);
        let all = lists.flat_map(|list| &list.classes);
        all.clone().for_each(|&(score, class)| best.offer(score, class));
        let floor = floor(best, window);
        classes.clear();
        classes.extend(all.filter(|(score, _)| *score >= floor).map(|&(_, class)| class));
    }
}

/// What a class scores at least that may be among the best.
fn floor(best: &mut Best, window: f32) -> f32 {
    best.last().filter(|_| window.is_finite()).map_or(f32::NEG_INFINITY, |last| last - window)
}
