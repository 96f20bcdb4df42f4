//! Exact top-k: every class is scored, none of the scores are kept.
//!
//! Classes stream past the examples in tiles ([`super::tile`]). Each example
//! knows the k-th best score it has seen; the few scores of a tile above it are
//! found with one vector comparison for 16 classes and go to its [`Best`].
//! `O(examples · N · dim)` time, a matrix product; memory is one tile a thread
//! and `O(k)` an example and class range, never `examples × N`.
//!
//! The work is cut into pieces (a block of examples × a range of classes) by
//! the sizes alone, so the result does not depend on the number of threads.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use lookalike_kernels::Cpu;
use rayon::prelude::*;

use super::ranking::TopK;
use super::sparse_queries::SparseQueries;
use super::tile::{TILE_CLASSES, TILE_EXAMPLES, Tile, tile_classes};
use crate::best::Best;
use crate::loss::RunningSum;
use crate::model::RowsView;

/// Examples whose pieces are in work at the same time; it bounds the memory.
const WAVE_EXAMPLES: usize = 16 * TILE_EXAMPLES;
/// Class ranges at most: work for as many threads, a merge of as many lists.
const RANGES_MAX: usize = 64;
/// Classes in a range at least: until an example has seen its first tile, every
/// score is among its best, and that tile costs as much as several others.
const RANGE_CLASSES_MIN: usize = 32 * TILE_CLASSES;
/// A range has at least this many times `k` classes, so that the lists kept for
/// the merge are small against the scores they were chosen from.
const RANGE_CLASSES_PER_K: usize = 64;

/// Classes whose exponentials are added up together. Ranges consist of whole ones,
/// and their sums are merged one by one: how classes are cut into ranges, which
/// depends on `k`, does not change the result.
const SUM_CLASSES: usize = 4 * TILE_CLASSES;

/// Working memory of [`top_k`], reused between calls.
#[derive(Debug, Default)]
pub struct TopKScratch {
    pieces: Vec<Piece>,
    /// Tiles that no thread works with at the moment.
    tiles: Mutex<Vec<PieceBuffers>>,
}

/// What one range of classes gave for one block of examples.
#[derive(Debug, Default)]
struct Piece {
    best: Vec<Best>,
    /// An example's sums for every [`SUM_CLASSES`] of the range, then the next
    /// example's; none if nobody wants them.
    sums: Vec<RunningSum>,
}

/// A thread's buffers while it works on a piece.
#[derive(Debug, Default)]
struct PieceBuffers {
    tile: Tile,
    found: Vec<u32>,
    /// Where the postings of each feature of the block's examples go on.
    cursors: Vec<u32>,
}

/// The best [`TopK::k`] classes of each embedding, by `class_vector · embedding +
/// bias`, and the blended sparse score if there is one. Embeddings are rows with
/// the stride of the class vectors.
///
/// Scores and sums have the same bits for any number of threads, whatever the batch
/// and `k`.
///
/// # Panics
/// If `bias` does not have an element a class, if `embeddings` is not a whole
/// number of rows, or if there are more than 2^32 classes.
pub fn top_k(
    cpu: Cpu,
    class_vectors: RowsView<'_>,
    bias: &[f32],
    embeddings: &[f32],
    sparse: Option<SparseQueries<'_>>,
    scratch: &mut TopKScratch,
    out: &mut TopK,
) {
    let (num_classes, stride) = (class_vectors.len(), class_vectors.stride);
    assert_eq!(bias.len(), num_classes, "top_k wants one bias a class");
    assert!(
        stride > 0 && embeddings.len().is_multiple_of(stride),
        "top_k wants whole rows of {stride} floats, not {} floats",
        embeddings.len()
    );
    assert!(u32::try_from(num_classes).is_ok(), "class ids are 32 bits, not {num_classes}");
    out.resize(embeddings.len() / stride, num_classes);
    if num_classes == 0 {
        return;
    }
    let call = Call { cpu, class_vectors, bias, sparse, k: out.stride, sums: out.wants_log_sum_exp };
    for (wave, embeddings) in embeddings.chunks(WAVE_EXAMPLES * stride).enumerate() {
        call.wave(embeddings, scratch, wave * WAVE_EXAMPLES, out);
    }
}

/// What stays the same for all pieces of a call.
#[derive(Clone, Copy)]
struct Call<'a> {
    cpu: Cpu,
    class_vectors: RowsView<'a>,
    bias: &'a [f32],
    sparse: Option<SparseQueries<'a>>,
    k: usize,
    sums: bool,
}

impl Call<'_> {
    /// Classes in each range but the last, whole sums.
    fn range_classes(&self) -> usize {
        let at_least = RANGE_CLASSES_MIN.max(self.k.saturating_mul(RANGE_CLASSES_PER_K));
        let ranges = (self.bias.len() / at_least).clamp(1, RANGES_MAX);
        self.bias.len().div_ceil(ranges).next_multiple_of(SUM_CLASSES)
    }

    fn wave(&self, embeddings: &[f32], scratch: &mut TopKScratch, start: usize, out: &mut TopK) {
        let block_floats = TILE_EXAMPLES * self.class_vectors.stride;
        let range_classes = self.range_classes();
        let ranges = self.bias.len().div_ceil(range_classes);
        let pieces = embeddings.len().div_ceil(block_floats) * ranges;
        scratch.pieces.resize_with(pieces.max(scratch.pieces.len()), Piece::default);
        let TopKScratch { pieces: all, tiles } = scratch;

        all[..pieces].par_iter_mut().enumerate().with_max_len(1).for_each(|(i, piece)| {
            let first = i / ranges * block_floats;
            let block = &embeddings[first..embeddings.len().min(first + block_floats)];
            let from = i % ranges * range_classes;
            let classes = from..self.bias.len().min(from + range_classes);
            let mut worker = unpoisoned(tiles).pop().unwrap_or_default();
            let example = start + i / ranges * TILE_EXAMPLES;
            self.search(block, example, classes, piece, &mut worker);
            unpoisoned(tiles).push(worker);
        });
        let examples = embeddings.len() / self.class_vectors.stride;
        self.merge(&mut all[..pieces], ranges, start..start + examples, out);
    }

    /// Scores a block of examples against a range of classes, tile by tile.
    fn search(
        &self,
        block: &[f32],
        first_example: usize,
        classes: Range<usize>,
        piece: &mut Piece,
        worker: &mut PieceBuffers,
    ) {
        let Self { cpu, class_vectors, .. } = *self;
        let PieceBuffers { tile, found, cursors } = worker;
        let examples = block.len() / class_vectors.stride;
        let sums = if self.sums { classes.len().div_ceil(SUM_CLASSES) } else { 0 };
        piece.reset(examples, self.k, sums);
        if let Some(sparse) = &self.sparse {
            sparse.start(first_example..first_example + examples, classes.start, cursors);
        }
        let width = tile_classes(examples);
        for first in classes.clone().step_by(width) {
            let of_tile = first..classes.end.min(first + width);
            tile.score(cpu, class_vectors, self.bias, of_tile.clone(), block);
            if let Some(sparse) = &self.sparse {
                sparse.add(cpu, first_example..first_example + examples, of_tile, cursors, tile);
            }
            for (example, best) in piece.best[..examples].iter_mut().enumerate() {
                let scores = tile.scores(example);
                best.offer_many(cpu, scores, first as u32, found);
                if self.sums {
                    // However wide a tile is, so many are added up at a time.
                    let parts = scores.chunks_mut(TILE_CLASSES);
                    for (first, scores) in (first..).step_by(TILE_CLASSES).zip(parts) {
                        let sum = (first - classes.start) / SUM_CLASSES;
                        piece.sums[example * sums + sum].add(cpu, scores);
                    }
                }
            }
        }
    }

    /// Joins what the ranges found, in their order, and writes `examples` of `out`.
    fn merge(&self, pieces: &mut [Piece], ranges: usize, examples: Range<usize>, out: &mut TopK) {
        let k = self.k;
        let places = examples.start * k..examples.end * k;
        pieces
            .par_chunks_mut(ranges)
            .zip(out.lens[examples.clone()].par_chunks_mut(TILE_EXAMPLES))
            .zip(out.log_sum_exp[examples].par_chunks_mut(TILE_EXAMPLES))
            .zip(out.classes[places.clone()].par_chunks_mut(TILE_EXAMPLES * k))
            .zip(out.scores[places].par_chunks_mut(TILE_EXAMPLES * k))
            .for_each(|((((pieces, lens), log_sum_exp), classes), scores)| {
                let examples = lens.len();
                for (example, log_sum_exp) in log_sum_exp.iter_mut().enumerate() {
                    let sums = pieces.iter().flat_map(|piece| piece.sums_of(example, examples));
                    *log_sum_exp = RunningSum::of(sums).log_sum_exp();
                }
                let (joined, others) = pieces.split_first_mut().expect("a range at least");
                for (example, len) in lens.iter_mut().enumerate() {
                    let best = &mut joined.best[example];
                    for other in others.iter() {
                        best.offer_all(&other.best[example]);
                    }
                    let ranked = best.ranked();
                    *len = ranked.len();
                    for (place, (score, class)) in (example * k..).zip(ranked) {
                        (classes[place], scores[place]) = (class, score);
                    }
                }
            });
    }
}

impl Piece {
    fn reset(&mut self, examples: usize, k: usize, sums: usize) {
        self.best.resize_with(examples.max(self.best.len()), Best::default);
        for best in &mut self.best[..examples] {
            best.reset(k);
        }
        self.sums.clear();
        self.sums.resize(examples * sums, RunningSum::default());
    }

    fn sums_of(&self, example: usize, examples: usize) -> &[RunningSum] {
        let count = self.sums.len() / examples;
        &self.sums[example * count..][..count]
    }
}

/// A thread that panicked left its buffers out of the list, not broken in it.
fn unpoisoned(tiles: &Mutex<Vec<PieceBuffers>>) -> std::sync::MutexGuard<'_, Vec<PieceBuffers>> {
    tiles.lock().unwrap_or_else(PoisonError::into_inner)
}
