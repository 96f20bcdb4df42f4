//! Theorems 1 and 2 of the paper, by frequency: over many draws of the hash
//! family, class i is among the negatives with chance `1 - (1 - p^K)^L`, where p
//! is the chance that one function agrees on the query and `w_i`; and the more
//! alike, the more often.
//!
//! The theorems are about whole buckets of all tables. A budget cuts the walk
//! short; what the chances are then is worked out here from the same p and
//! compared in the same way.
//!
//! p is estimated directly, from other draws of single functions. Frequency and
//! prediction are compared in units of their joint standard error. There are 108
//! comparisons; 5.0 standard errors are exceeded by one of them with chance
//! 108 · 5.7e-7 < 7e-5 if the theorems hold (Bonferroni): the error level of this
//! file.
//!
//! The theorems take functions to be independent. SimHash's are. DWTA's are if
//! they come from different permutations: with 15 dimensions and bins of 8 every
//! permutation gives one bin, so there the theorems hold exactly. Bins of the
//! same permutation share no dimension, which makes them a little dependent; a
//! second test measures how much that is at 128 dimensions.

use lookalike::data::Dataset;
use lookalike::hashing::{Codes, Family, FamilyShape, HashTables, Incremental};
use lookalike::model::{Embeddings, RowsView};
use lookalike::random::{Stream, mix};
use lookalike::sampling::{Candidates, LshSampler, Query, Request, Sampler};
use lookalike_kernels::{Cpu, padded};

/// Cosines between the query and the six classes other than the true one.
const COSINES: [f64; 6] = [0.98, 0.9, 0.7, 0.45, 0.15, -0.2];
const K: usize = 2;
const L: usize = 3;
const FAMILIES: u64 = 12_000;
/// Functions of a draw that estimate p.
const FUNCTIONS: usize = 40;
/// Budgets that cut walks short.
const BUDGETS: [usize; 3] = [1, 2, 4];

/// A standard normal number for a place.
fn normal(a: u64, b: u64) -> f64 {
    let unit = |part| (mix(77, Stream::Data, a, 2 * b + part) >> 11) as f64 / (1u64 << 53) as f64;
    (-2.0 * (1.0 - unit(0)).ln()).sqrt() * (std::f64::consts::TAU * unit(1)).cos()
}

fn unit_vector(dim: usize, number: u64) -> Vec<f64> {
    let vector: Vec<f64> = (0..dim as u64).map(|j| normal(number, j)).collect();
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    vector.iter().map(|x| x / length).collect()
}

/// Row 0 is the query; rows 1.. are turned away from it in one plane, to the
/// wanted cosines. In one plane, because DWTA's similarity is one of ranks and
/// need not follow the cosine elsewhere; there, a function that has stopped
/// agreeing does not begin again, so similarity falls in either sense.
fn rows(dim: usize) -> Vec<f32> {
    let query = unit_vector(dim, 0);
    let noise = unit_vector(dim, 1);
    let along: f64 = noise.iter().zip(&query).map(|(a, b)| a * b).sum();
    let across: Vec<f64> = noise.iter().zip(&query).map(|(a, b)| a - along * b).collect();
    let length = across.iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut data = vec![0.0f32; (COSINES.len() + 1) * padded(dim)];
    for (i, row) in data.chunks_mut(padded(dim)).enumerate() {
        let cosine = if i == 0 { 1.0 } else { COSINES[i - 1] };
        let sine = if i == 0 { 0.0 } else { (1.0 - cosine * cosine).sqrt() / length };
        for ((x, q), a) in row.iter_mut().zip(&query).zip(&across) {
            *x = (cosine * q + sine * a) as f32;
        }
    }
    data
}

fn shape(family: Family, dim: usize, k: usize, l: usize) -> FamilyShape {
    FamilyShape { family, dim, k, l, bin: 8, codes: Codes::Clean }
}

/// How often each class agrees with the query in a single function.
fn agreement(family: Family, dim: usize, data: &[f32]) -> Vec<f64> {
    let classes = COSINES.len();
    let ids: Vec<u32> = (0..=classes as u32).collect();
    let functions = FUNCTIONS;
    let mut agreed = vec![0u32; classes];
    let mut codes = vec![0; ids.len() * functions];
    for seed in 0..FAMILIES {
        let drawn = shape(family, dim, 1, functions).draw(1 << 32 | seed).unwrap();
        drawn.hash_rows(Cpu::detect(), RowsView::f32(data, dim), &ids, 0..functions, &mut codes);
        let (query, others) = codes.split_at(functions);
        for (agreed, class) in agreed.iter_mut().zip(others.chunks(functions)) {
            *agreed += class.iter().zip(query).filter(|(a, b)| a == b).count() as u32;
        }
    }
    agreed.iter().map(|&n| f64::from(n) / (FAMILIES * functions as u64) as f64).collect()
}

/// How often each class is among the negatives that a sampler finds within a
/// budget. Class 0 is
/// the true label and has the query as its vector; the embedding is the query
/// for LSH Embedding, and something else for LSH Label, which must not look at it.
fn retrieval(family: Family, dim: usize, query: Query, data: &[f32], budget: usize) -> Vec<f64> {
    let classes = COSINES.len() + 1;
    let mut examples = Dataset::empty(1, classes);
    examples.push([(0, 1.0)], &[0]);
    let embedding = match query {
        Query::Embedding => data[..padded(dim)].to_vec(),
        Query::Label => data[padded(dim)..2 * padded(dim)].iter().map(|x| -x).collect(),
    };
    // And the true class's vector is elsewhere for LSH Embedding.
    let mut class_vectors = data.to_vec();
    if query == Query::Embedding {
        class_vectors[..padded(dim)].iter_mut().for_each(|x| *x = -*x);
    }
    let mut met = vec![0u32; classes];
    let mut out = Candidates::new();
    for seed in 0..FAMILIES {
        let drawn = shape(family, dim, K, L).draw((2 + query as u64) << 32 | seed).unwrap();
        let tables = HashTables::new(drawn, classes, Incremental::Never);
        let mut sampler = LshSampler::new(tables, query, budget, false);
        let request = Request {
            seed,
            iteration: seed,
            cpu: Cpu::detect(),
            examples: examples.view(),
            batch: &[0],
            embeddings: Embeddings::padded(&embedding, dim),
            class_vectors: RowsView::f32(&class_vectors, dim),
            class_bias: &[0.0; COSINES.len() + 1],
            near: None,
        };
        sampler.refresh(request.cpu, request.class_vectors, None);
        sampler.propose(&request, &mut out);
        out.of(0)[1..].iter().for_each(|&class| met[class as usize] += 1);
    }
    met[1..].iter().map(|&n| f64::from(n) / FAMILIES as f64).collect()
}

/// Compares frequencies with the theorem; `slack` is allowed besides the error.
fn check(family: Family, dim: usize, query: Query, slack: f64) {
    let data = rows(dim);
    let agreed = agreement(family, dim, &data);
    let met = retrieval(family, dim, query, &data, COSINES.len());
    let mut before = (1.0, 1.0);
    for ((&p, &met), cosine) in agreed.iter().zip(&met).zip(COSINES) {
        let case = format!("{family:?}, {query:?}, {dim} dimensions, cosine {cosine}");
        println!("{case}: p {p:.4}, met {met:.4}");
        let (k, l) = (K as i32, L as i32);
        let predicted = 1.0 - (1.0 - p.powi(k)).powi(l);
        // Error of the frequency, and of p carried over to the prediction. The 40
        // functions of one draw share permutations at most, so the error of p is
        // that of as many draws of one function at worst.
        let slope = f64::from(k * l) * p.powi(k - 1) * (1.0 - p.powi(k)).powi(l - 1);
        let n = FAMILIES as f64;
        let independent = if slack == 0.0 { FUNCTIONS as f64 } else { 1.0 };
        let variance = predicted * (1.0 - predicted) / n + slope * slope * p * (1.0 - p) / (n * independent);
        let difference = (met - predicted).abs();
        assert!(difference < 5.0 * variance.sqrt() + slack, "{case}: met {met:.4}, predicted {predicted:.4}");
        assert!(p < before.0 && met < before.1, "{case}: less alike, yet met as often");
        before = (p, met);
    }
}

#[test]
fn dwta_label() {
    check(Family::Dwta, 15, Query::Label, 0.0);
}

#[test]
fn dwta_embedding() {
    check(Family::Dwta, 15, Query::Embedding, 0.0);
}

#[test]
fn simhash_label() {
    check(Family::Simhash, 15, Query::Label, 0.0);
}

#[test]
fn simhash_embedding() {
    check(Family::Simhash, 15, Query::Embedding, 0.0);
}

/// The chance of each class to be found within a budget, worked out from the
/// chance that one function agrees on it and the query.
///
/// The classes lie in one plane, so a function that agrees on one of them agrees
/// on all that are more alike: the query's bucket in a table holds the first m
/// classes, m with chance `p_m^K - p_{m+1}^K`, whatever is in other tables. So
/// the walk has the first few classes too, until a bucket has more than there is
/// room for. `own` says whether the query's own class is in every bucket.
fn found_within(agreed: &[f64], budget: usize, own: bool) -> Vec<f64> {
    let classes = agreed.len();
    let reaches = |m: usize| if m == 0 { 1.0 } else { agreed.get(m - 1).map_or(0.0, |p| p.powi(K as i32)) };
    let mut chances = vec![0.0; classes];
    let mut having = vec![0.0; budget + 1];
    having[0] = 1.0;
    for _ in 0..L {
        let before = std::mem::replace(&mut having, vec![0.0; budget + 1]);
        having[budget] += before[budget];
        for (have, chance) in before[..budget].iter().enumerate() {
            for m in 0..=classes {
                let chance = chance * (reaches(m) - reaches(m + 1));
                if m <= budget {
                    having[have.max(m)] += chance;
                } else {
                    let shares = shares_of_cut_bucket(have, m, budget, own);
                    chances.iter_mut().zip(shares).for_each(|(sum, share)| *sum += chance * share);
                }
            }
        }
    }
    for (have, chance) in having.iter().enumerate() {
        chances[..have].iter_mut().for_each(|sum| *sum += chance);
    }
    chances
}

/// The chance of each of the first `m` classes to be in a set of `budget`, if the
/// first `have` are there already and the others come from one bucket: in the
/// order of their numbers from a random place on, and round to it again.
fn shares_of_cut_bucket(have: usize, m: usize, budget: usize, own: bool) -> Vec<f64> {
    let bucket: Vec<Option<usize>> = own.then_some(None).into_iter().chain((0..m).map(Some)).collect();
    let mut times: Vec<u32> =
        (0..m).map(|class| if class < have { bucket.len() as u32 } else { 0 }).collect();
    for start in 0..bucket.len() {
        let round = bucket[start..].iter().chain(&bucket[..start]).flatten();
        round.filter(|&&class| class >= have).take(budget - have).for_each(|&class| times[class] += 1);
    }
    times.into_iter().map(|times| f64::from(times) / bucket.len() as f64).collect()
}

/// How much an error of the agreements moves a prediction, at worst.
fn error_of(prediction: impl Fn(&[f64]) -> f64, agreed: &[f64]) -> f64 {
    let h = 1e-5;
    let error = |i: usize| {
        let shifted = |by: f64| {
            let mut agreed = agreed.to_vec();
            agreed[i] += by;
            prediction(&agreed)
        };
        let slope = (shifted(h) - shifted(-h)) / (2.0 * h);
        let draws = (FAMILIES * FUNCTIONS as u64) as f64;
        slope.abs() * (agreed[i] * (1.0 - agreed[i]) / draws).sqrt()
    };
    (0..agreed.len()).map(error).sum()
}

fn check_cut_walks(family: Family, query: Query) {
    let data = rows(15);
    let agreed = agreement(family, 15, &data);
    let own = query == Query::Label;
    for budget in BUDGETS {
        let met = retrieval(family, 15, query, &data, budget);
        let predicted = found_within(&agreed, budget, own);
        for (class, (&met, &predicted)) in met.iter().zip(&predicted).enumerate() {
            let case = format!("{family:?}, {query:?}, budget {budget}, cosine {}", COSINES[class]);
            let from_p = error_of(|agreed| found_within(agreed, budget, own)[class], &agreed);
            let variance = predicted * (1.0 - predicted) / FAMILIES as f64 + from_p * from_p;
            let difference = (met - predicted).abs();
            assert!(difference < 5.0 * variance.sqrt(), "{case}: met {met:.4}, predicted {predicted:.4}");
        }
        assert!(predicted.is_sorted_by(|a, b| a > b), "the more alike, the more often: {predicted:?}");
    }
}

/// Room for all is no cut, and what was worked out is the theorem's formula.
#[test]
fn a_budget_for_all_classes_leaves_the_theorem_as_it_is() {
    let agreed = [0.9, 0.7, 0.5, 0.4, 0.2, 0.1];
    for own in [false, true] {
        for (p, chance) in agreed.iter().zip(found_within(&agreed, agreed.len(), own)) {
            let theorem = 1.0 - (1.0 - f64::powi(*p, K as i32)).powi(L as i32);
            assert!((chance - theorem).abs() < 1e-12, "{chance}, not {theorem}");
        }
    }
}

#[test]
fn dwta_walks_cut_short() {
    check_cut_walks(Family::Dwta, Query::Label);
    check_cut_walks(Family::Dwta, Query::Embedding);
}

#[test]
fn simhash_walks_cut_short() {
    check_cut_walks(Family::Simhash, Query::Label);
    check_cut_walks(Family::Simhash, Query::Embedding);
}

/// All six functions come from one permutation of 128 dimensions into 16 bins.
/// Their dependence moves the frequency by less than one percentage point.
#[test]
fn dwta_with_bins_of_one_permutation_is_close() {
    for query in [Query::Label, Query::Embedding] {
        check(Family::Dwta, 128, query, 0.01);
    }
}
