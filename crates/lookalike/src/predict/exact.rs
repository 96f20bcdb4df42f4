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

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use lookalike_kernels::Cpu;
use rayon::prelude::*;

use super::best::Best;
use super::ranking::TopK;
use super::tile::{TILE_CLASSES, TILE_EXAMPLES, Tile, tile_classes};
use crate::data::Examples;
use crate::loss::RunningSum;
use crate::model::{Model, Normalise, Postings, RowsView};

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
    let query = Query { cpu, class_vectors, bias, sparse, k: out.stride, sums: out.wants_log_sum_exp };
    for (wave, embeddings) in embeddings.chunks(WAVE_EXAMPLES * stride).enumerate() {
        query.wave(embeddings, scratch, wave * WAVE_EXAMPLES, out);
    }
}

/// The examples behind the embeddings and the sparse weights to score them with.
#[derive(Clone, Copy, Debug)]
pub struct SparseQueries<'a> {
    /// The weights by feature.
    pub postings: &'a Postings,
    /// What a sparse score is multiplied with.
    pub blend: f32,
    /// What is done to an example's values first.
    pub normalise: Normalise,
    /// All examples.
    pub examples: Examples<'a>,
    /// The example of each embedding.
    pub batch: &'a [u32],
}

impl<'a> SparseQueries<'a> {
    /// With the sparse weights of a model, if it has any that count.
    pub(super) fn of(model: &'a Model, examples: &Examples<'a>, batch: &'a [u32]) -> Option<Self> {
        let sparse = model.sparse.as_ref().filter(|sparse| sparse.blend() != 0.0)?;
        Some(Self {
            postings: sparse.postings(model.num_features()),
            blend: sparse.blend(),
            normalise: model.network.config.normalise,
            examples: *examples,
            batch,
        })
    }

    /// The features of an example of the batch, with the factor of their values.
    fn features(&self, position: usize) -> (impl Iterator<Item = (u32, f32)> + use<'_>, f32) {
        let (ids, values) = self.examples.features(self.batch[position] as usize);
        let factor = self.blend * self.normalise.factor(values);
        (ids.iter().copied().zip(values.iter().copied()), factor)
    }

    /// Adds the sparse scores of an example of the batch to the scores of all classes.
    pub(super) fn add_to_all(&self, position: usize, scores: &mut [f32]) {
        let (features, factor) = self.features(position);
        for (id, value) in features {
            let (posted, weights) = self.postings.of(id);
            for (&class, weight) in posted.iter().zip(weights) {
                scores[class as usize] += factor * value * weight;
            }
        }
    }

    /// Puts a cursor for each feature of some examples at its first posting of
    /// a class from `class` on.
    fn start(&self, examples: Range<usize>, class: usize, cursors: &mut Vec<u32>) {
        cursors.clear();
        for &example in &self.batch[examples] {
            let (ids, _) = self.examples.features(example as usize);
            cursors.extend(ids.iter().map(|&id| {
                self.postings.of(id).0.partition_point(|&posted| (posted as usize) < class) as u32
            }));
        }
    }

    /// Adds the sparse scores of a tile; tiles come in the order of classes.
    fn add(&self, examples: Range<usize>, classes: Range<usize>, cursors: &mut [u32], tile: &mut Tile) {
        let mut cursors = cursors.iter_mut();
        for (row, position) in examples.enumerate() {
            let (features, factor) = self.features(position);
            let scores = tile.scores(row);
            for ((id, value), cursor) in features.zip(cursors.by_ref()) {
                let (posted, weights) = self.postings.of(id);
                let place = *cursor as usize;
                for (&class, weight) in posted[place..].iter().zip(&weights[place..]) {
                    if class as usize >= classes.end {
                        break;
                    }
                    scores[class as usize - classes.start] += factor * value * weight;
                    *cursor += 1;
                }
            }
        }
    }
}

/// What stays the same for all pieces of a call.
#[derive(Clone, Copy)]
struct Query<'a> {
    cpu: Cpu,
    class_vectors: RowsView<'a>,
    bias: &'a [f32],
    sparse: Option<SparseQueries<'a>>,
    k: usize,
    sums: bool,
}

impl Query<'_> {
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
                sparse.add(first_example..first_example + examples, of_tile, cursors, tile);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::model::{RowData, SparsePart, SparseStart};
    use crate::predict::{RescoreScratch, rescore};
    use crate::random::{Stream, mix};
    use lookalike_kernels::{Element, padded};
    use proptest::prelude::*;

    /// Rows of multiples of 1/4 in -2..2: every product and sum is exact in
    /// f32, so the naive twin agrees to the bit, and ties are frequent.
    fn rows<T: Element>(count: usize, dim: usize, seed: u64) -> Vec<T> {
        let mut rows = vec![T::default(); count * padded(dim)];
        for (r, row) in rows.chunks_exact_mut(padded(dim)).enumerate() {
            for (j, x) in row[..dim].iter_mut().enumerate() {
                let random = mix(seed, Stream::Data, r as u64, j as u64);
                *x = T::from_f32((random % 17) as f32 / 4.0 - 2.0);
            }
        }
        rows
    }

    fn naive_scores<T: Element>(vectors: &[T], bias: &[f32], embedding: &[f32]) -> Vec<(u32, f32)> {
        let scores = vectors
            .chunks_exact(embedding.len())
            .zip(bias)
            .map(|(row, bias)| bias + row.iter().zip(embedding).map(|(w, x)| w.to_f32() * x).sum::<f32>());
        (0..).zip(scores).collect()
    }

    fn naive_top<T: Element>(vectors: &[T], bias: &[f32], embedding: &[f32], k: usize) -> Vec<(u32, f32)> {
        let mut all = naive_scores(vectors, bias, embedding);
        all.retain(|(_, score)| *score > f32::NEG_INFINITY);
        all.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap().then(a.0.cmp(&b.0)));
        all.truncate(k);
        all
    }

    fn pairs(ranked: super::super::Ranked<'_>) -> Vec<(u32, f32)> {
        ranked.classes.iter().copied().zip(ranked.scores.iter().copied()).collect()
    }

    fn check<T: Element>(
        view: impl Fn(&[T]) -> RowData<'_>,
        (classes, examples, dim, k, seed): (usize, usize, usize, usize, u64),
    ) {
        let vectors: Vec<T> = rows(classes, dim, seed);
        let bias: Vec<f32> = (0..classes).map(|i| (i % 5) as f32 / 2.0).collect();
        let embeddings: Vec<f32> = rows(examples, dim, seed + 1);
        let view = RowsView { data: view(&vectors), dim, stride: padded(dim) };
        let cpu = Cpu::detect();
        let mut out = TopK::new(k).with_log_sum_exp();
        top_k(cpu, view, &bias, &embeddings, None, &mut TopKScratch::default(), &mut out);
        assert_eq!(out.len(), examples);
        let mut scratch = RescoreScratch::default();
        let backwards: Vec<u32> = (0..classes as u32).rev().collect();
        for (example, embedding) in embeddings.chunks_exact(padded(dim)).enumerate() {
            // Of large batches, what lies at the borders is enough.
            if (100..examples.max(101) - 1).contains(&example)
                && (2..TILE_EXAMPLES - 2).contains(&(example % TILE_EXAMPLES))
            {
                continue;
            }
            let expected = naive_top(&vectors, &bias, embedding, k);
            assert_eq!(pairs(out.example(example)), expected, "example {example}");
            let rescored = rescore(cpu, view, &bias, embedding, &backwards, k, &mut scratch);
            assert_eq!(pairs(rescored), expected, "rescored example {example}");

            let scores = naive_scores(&vectors, &bias, embedding);
            let max = scores.iter().map(|s| s.1).fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = scores.iter().map(|s| f64::from(s.1 - max).exp()).sum();
            let expected = f64::from(max) + sum.ln();
            let found = f64::from(out.log_sum_exp(example).unwrap());
            assert!((found - expected).abs() < 1e-5 * expected.abs().max(1.0));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn equals_a_naive_sort(
            classes in 1usize..700, examples in 1usize..80, dim in 1usize..20,
            k in 1usize..800, seed: u64,
        ) {
            let seed = seed / 2;
            check(|v| RowData::F32(v), (classes, examples, dim, k, seed));
            check(|v| RowData::Bf16(v), (classes, examples, dim, k, seed));
        }
    }

    /// Several ranges, several blocks, several waves, each with a ragged end.
    #[test]
    fn equals_a_naive_sort_across_all_borders() {
        for (classes, examples, k) in
            [(TILE_CLASSES, 3, 1), (3 * RANGE_CLASSES_MIN + 1, 7, 40), (4567, 8, 33)]
        {
            check(|v| RowData::F32(v), (classes, examples, 4, k, 1));
        }
        check(|v| RowData::F32(v), (2 * RANGE_CLASSES_MIN + 300, WAVE_EXAMPLES + 65, 3, 2, 2));
        check(|v| RowData::Bf16(v), (RANGE_CLASSES_MIN + 1, TILE_EXAMPLES + 1, 3, 5, 3));
    }

    #[test]
    fn every_k_of_a_small_model() {
        for k in 1..=65 {
            check(|v| RowData::F32(v), (64, 9, 3, k, 4));
        }
    }

    /// Irrational numbers this time: the same bits for any number of threads, and for
    /// any `k`, though it changes how classes are cut into ranges.
    #[test]
    fn threads_and_k_change_nothing() {
        let (classes, examples, dim) = (3 * RANGE_CLASSES_MIN + 77, TILE_EXAMPLES + 11, 20);
        let noisy =
            |count, seed| -> Vec<f32> { rows::<f32>(count, dim, seed).iter().map(|x| x.sin()).collect() };
        let (vectors, embeddings) = (noisy(classes, 5), noisy(examples, 6));
        let bias = vec![0.1; classes];
        let run = |threads: usize, k: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut out = TopK::new(k).with_log_sum_exp();
            let view = RowsView::f32(&vectors, dim);
            pool.install(|| {
                let mut scratch = TopKScratch::default();
                top_k(Cpu::detect(), view, &bias, &embeddings, None, &mut scratch, &mut out);
            });
            let bits = |numbers: &[f32]| -> Vec<u32> { numbers.iter().map(|x| x.to_bits()).collect() };
            (out.classes, bits(&out.scores), bits(&out.log_sum_exp))
        };
        let one = run(1, 6);
        assert_eq!(one, run(2, 6));
        assert_eq!(one, run(3, 6));
        let many = run(2, RANGE_CLASSES_MIN / RANGE_CLASSES_PER_K * 2);
        assert!(one.2 == many.2);
        for (few, many) in one.1.chunks(6).zip(many.1.chunks(many.1.len() / examples)) {
            assert_eq!(few, &many[..6]);
        }
    }

    /// A posting list and an example's values, all multiples of 1/4 again.
    struct SparseCase {
        part: SparsePart,
        data: Dataset,
        batch: Vec<u32>,
    }

    const SPARSE_FEATURES: usize = 11;

    fn quarters(seed: u64, row: usize, column: u64) -> f32 {
        (mix(seed, Stream::Data, row as u64, column) % 17) as f32 / 4.0 - 2.0
    }

    /// Every fifth class has no weights and every seventh example no features;
    /// the batch takes examples out of order, some twice.
    fn sparse_case(classes: usize, examples: usize, blend: f32, seed: u64) -> SparseCase {
        let has =
            |row: usize, feature: u64| !mix(seed, Stream::Data, row as u64, 100 + feature).is_multiple_of(3);
        let (mut lengths, mut features, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for class in 0..classes {
            let before = features.len();
            for feature in (0..SPARSE_FEATURES as u64).filter(|&f| class % 5 != 3 && has(class, f)) {
                features.push(feature as u32);
                weights.push(quarters(seed + 1, class, feature));
            }
            lengths.push((features.len() - before) as u32);
        }
        let part = SparsePart::from_parts(&lengths, features, weights, (blend, SparseStart::Centroid), &[]);
        let mut data = Dataset::empty(SPARSE_FEATURES, classes);
        for example in 0..examples {
            let has = |f: &u64| example % 7 != 2 && has(classes + example, *f);
            let row = (0..SPARSE_FEATURES as u64).filter(has);
            data.push(row.map(|f| (f as u32, quarters(seed + 2, example, f))), &[]);
        }
        let batch = (0..examples).map(|i| ((i * 3 + 1) % examples) as u32).collect();
        SparseCase { part, data, batch }
    }

    impl SparseCase {
        fn queries(&self) -> SparseQueries<'_> {
            SparseQueries {
                postings: self.part.postings(SPARSE_FEATURES),
                blend: self.part.blend(),
                normalise: Normalise::None,
                examples: self.data.view(),
                batch: &self.batch,
            }
        }

        fn naive(&self, position: usize, class: usize) -> f32 {
            let view = self.data.view();
            let (ids, values) = view.features(self.batch[position] as usize);
            let (features, weights) = self.part.row(class);
            let weight = |id: &u32| features.iter().position(|f| f == id).map_or(0.0, |i| weights[i]);
            self.part.blend() * ids.iter().zip(values).map(|(id, x)| x * weight(id)).sum::<f32>()
        }
    }

    /// Ragged ends of tiles, ranges, blocks and waves, with sparse scores added.
    #[test]
    fn sparse_scores_are_added_to_the_right_classes_across_all_borders() {
        for (classes, examples, k, blend) in [
            (1, 1, 1, 0.5),
            (TILE_CLASSES + 1, 9, 3, 2.0),
            (3 * RANGE_CLASSES_MIN + 1, 7, 40, 0.5),
            (RANGE_CLASSES_MIN - 1, TILE_EXAMPLES + 3, 5, 1.0),
            (2 * RANGE_CLASSES_MIN + 300, WAVE_EXAMPLES + 65, 2, 0.25),
        ] {
            let case = sparse_case(classes, examples, blend, 40 + classes as u64);
            let vectors: Vec<f32> = rows(classes, 3, 50);
            let embeddings: Vec<f32> = rows(examples, 3, 51);
            let bias: Vec<f32> = (0..classes).map(|i| (i % 5) as f32 / 2.0).collect();
            let mut out = TopK::new(k).with_log_sum_exp();
            let view = RowsView::f32(&vectors, 3);
            let mut scratch = TopKScratch::default();
            let sparse = Some(case.queries());
            top_k(Cpu::detect(), view, &bias, &embeddings, sparse, &mut scratch, &mut out);
            for (position, embedding) in embeddings.chunks_exact(padded(3)).enumerate() {
                if (20..examples.max(21) - 1).contains(&position)
                    && (2..TILE_EXAMPLES - 2).contains(&(position % TILE_EXAMPLES))
                {
                    continue;
                }
                let mut all = naive_scores(&vectors, &bias, embedding);
                all.iter_mut().for_each(|(class, score)| *score += case.naive(position, *class as usize));
                let sum: f64 = all.iter().map(|&(_, score)| f64::from(score).exp()).sum();
                let found = f64::from(out.log_sum_exp(position).unwrap());
                assert!((found - sum.ln()).abs() < 1e-5 * sum.ln().abs().max(1.0));
                all.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap().then(a.0.cmp(&b.0)));
                all.truncate(k);
                assert_eq!(pairs(out.example(position)), all, "{classes} classes, position {position}");
            }
        }
    }

    #[test]
    fn threads_change_nothing_in_sparse_scores() {
        let (classes, examples, dim) = (2 * RANGE_CLASSES_MIN + 77, TILE_EXAMPLES + 11, 5);
        let case = sparse_case(classes, examples, 0.3, 9);
        let vectors: Vec<f32> = rows::<f32>(classes, dim, 5).iter().map(|x| x.sin()).collect();
        let embeddings: Vec<f32> = rows::<f32>(examples, dim, 6).iter().map(|x| x.cos()).collect();
        let bias = vec![0.1; classes];
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut out = TopK::new(6).with_log_sum_exp();
            let sparse = Some(SparseQueries { normalise: Normalise::L2, ..case.queries() });
            let view = RowsView::f32(&vectors, dim);
            pool.install(|| {
                let mut scratch = TopKScratch::default();
                top_k(Cpu::detect(), view, &bias, &embeddings, sparse, &mut scratch, &mut out);
            });
            let bits: Vec<u32> = out.scores.iter().chain(&out.log_sum_exp).map(|x| x.to_bits()).collect();
            (out.classes, bits)
        };
        let one = run(1);
        assert_eq!(one, run(2));
        assert_eq!(one, run(3));
    }

    /// Few examples have wider tiles: neither scores nor sums know of it.
    #[test]
    fn examples_asked_together_change_nothing() {
        let (classes, examples, dim) = (3 * RANGE_CLASSES_MIN + 77, 4 * TILE_EXAMPLES + 3, 5);
        let case = sparse_case(classes, examples, 0.3, 11);
        let vectors: Vec<f32> = rows::<f32>(classes, dim, 5).iter().map(|x| x.sin()).collect();
        let embeddings: Vec<f32> = rows::<f32>(examples, dim, 6).iter().map(|x| x.cos()).collect();
        let bias = vec![0.1; classes];
        let run = |first: usize, count: usize| {
            let mut out = TopK::new(6).with_log_sum_exp();
            let sparse = Some(SparseQueries { batch: &case.batch[first..first + count], ..case.queries() });
            let of_some = &embeddings[first * padded(dim)..(first + count) * padded(dim)];
            let (view, mut scratch) = (RowsView::f32(&vectors, dim), TopKScratch::default());
            top_k(Cpu::detect(), view, &bias, of_some, sparse, &mut scratch, &mut out);
            out
        };
        let together = run(0, examples);
        for (first, count) in [(0, 1), (250, 1), (3, 2), (40, 33), (120, 100)] {
            let apart = run(first, count);
            for i in 0..count {
                assert_eq!(pairs(apart.example(i)), pairs(together.example(first + i)));
                assert_eq!(apart.log_sum_exp(i), together.log_sum_exp(first + i), "{first} {count}");
            }
        }
        assert!(tile_classes(1) > tile_classes(33) && tile_classes(33) > tile_classes(TILE_EXAMPLES));
    }

    #[test]
    fn scratch_and_answer_are_reused_for_other_shapes() {
        let mut scratch = TopKScratch::default();
        let mut out = TopK::new(3);
        for (classes, examples) in [(5000, 300), (2, 4), (0, 3), (300, 1), (10, 0), (5000, 300)] {
            let vectors: Vec<f32> = rows(classes, 4, 7);
            let embeddings: Vec<f32> = rows(examples, 4, 8);
            let bias = vec![0.0; classes];
            let view = RowsView::f32(&vectors, 4);
            top_k(Cpu::detect(), view, &bias, &embeddings, None, &mut scratch, &mut out);
            assert_eq!(out.len(), examples);
            assert_eq!(out.log_sum_exp.len(), examples);
            for (example, embedding) in embeddings.chunks_exact(16).enumerate() {
                assert_eq!(pairs(out.example(example)), naive_top(&vectors, &bias, embedding, 3));
            }
        }
    }

    #[test]
    fn nan_and_negative_infinity_are_never_chosen() {
        let mut vectors: Vec<f32> = rows(300, 2, 9);
        let mut bias = vec![0.0; 300];
        vectors[17 * 16] = f32::NAN;
        (bias[3], bias[200], bias[299]) = (f32::NEG_INFINITY, f32::NAN, f32::INFINITY);
        for examples in [1, 20] {
            let embeddings: Vec<f32> = rows::<f32>(examples, 2, 10).iter().map(|x| x.abs()).collect();
            let mut out = TopK::new(1000);
            let view = RowsView::f32(&vectors, 2);
            let mut scratch = TopKScratch::default();
            top_k(Cpu::detect(), view, &bias, &embeddings, None, &mut scratch, &mut out);
            for example in 0..examples {
                let ranked = out.example(example);
                assert_eq!(ranked.classes.len(), 297);
                assert_eq!(ranked.classes[0], 299);
                assert!([3, 17, 200].iter().all(|never| !ranked.classes.contains(never)));
                assert_eq!(out.log_sum_exp(example), None);
            }
        }
    }
}
