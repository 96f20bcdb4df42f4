use super::*;
use crate::data::Dataset;
use crate::model::{Normalise, RowData, SparsePart, SparseStart};
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
    for (classes, examples, k) in [(TILE_CLASSES, 3, 1), (3 * RANGE_CLASSES_MIN + 1, 7, 40), (4567, 8, 33)] {
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
    let noisy = |count, seed| -> Vec<f32> { rows::<f32>(count, dim, seed).iter().map(|x| x.sin()).collect() };
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

/// Every fifth class has no weights and every seventh example no features; few classes weigh
/// the last features, and most the others;
/// the batch takes examples out of order, some twice.
fn sparse_case(classes: usize, examples: usize, blend: f32, seed: u64) -> SparseCase {
    let has =
        |row: usize, feature: u64| !mix(seed, Stream::Data, row as u64, 100 + feature).is_multiple_of(3);
    let (mut lengths, mut features, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    for class in 0..classes {
        let before = features.len();
        let is_weighed = |&f: &u64| class % 5 != 3 && has(class, f) && (f < 8 || class % 40 == 7);
        for feature in (0..SPARSE_FEATURES as u64).filter(is_weighed) {
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
