//! Which classes share a bucket with a query, and in how many tables (paper,
//! algorithm 3).
//!
//! A query starts at a random table and takes the bucket it falls into, table after
//! table, until it has found as many different classes as it may. From there on it
//! only counts: in how many tables a class that was found is met says how likely it
//! was to be found at all (paper, theorem 1). A sampler, which needs no such
//! estimate, ends its walk there.
//!
//! Cost of a query: O(K·L) to hash it, sixteen at a time, and O(1) for each class in
//! its buckets. Memory: a counter a class for each thread.

use std::ops::Range;

use lookalike_kernels::{Cpu, LANES};
use rayon::prelude::*;

use super::HashTables;
use crate::model::RowsView;
use crate::random::{Stream, below, mix};
use crate::scratch::PerThread;

/// What decides which classes a query finds, besides tables and query.
#[derive(Clone, Copy, Debug)]
pub struct LookupOptions {
    /// Different classes a query, at most.
    pub budget: usize,
    /// With `iteration` and the query's number it decides where a walk begins.
    pub seed: u64,
    /// See `seed`.
    pub iteration: u64,
}

/// What some queries found.
#[derive(Clone, Debug)]
pub struct Lookup {
    budget: usize,
    tables: usize,
    /// Places for `budget` classes a query.
    classes: Vec<u32>,
    times: Vec<u32>,
    counts: Vec<usize>,
}

impl Lookup {
    /// The most classes that a query may have found.
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// Different classes that a query met, in the order it met them.
    pub fn classes(&self, query: usize) -> &[u32] {
        &self.classes[query * self.budget..][..self.counts[query]]
    }

    /// In how many tables it met each of them.
    pub fn times(&self, query: usize) -> &[u32] {
        &self.times[query * self.budget..][..self.counts[query]]
    }

    /// The logarithm of the chance to meet each of them in at least one table:
    /// `ln(1 - (1 - p)^L)`, where p, the chance to meet in one, is estimated by the
    /// share of tables in which they met.
    pub fn log_probabilities(&self, query: usize) -> impl Iterator<Item = f32> {
        let tables = self.tables;
        self.times(query).iter().map(move |&times| {
            let miss = 1.0 - f64::from(times) / tables as f64;
            (-miss.powi(tables as i32)).ln_1p() as f32
        })
    }
}

impl HashTables {
    /// Looks up the rows of `queries`; a budget beyond the number of classes is that
    /// number.
    pub fn look_up(&self, cpu: Cpu, queries: RowsView<'_>, options: LookupOptions) -> Lookup {
        let (count, tables) = (queries.len(), self.family().tables());
        let budget = options.budget.min(self.classes());
        let mut found = Lookup {
            budget,
            tables,
            classes: vec![0; count * budget],
            times: vec![0; count * budget],
            counts: vec![0; count],
        };
        if budget == 0 {
            return found;
        }
        let mut counters = PerThread::<Vec<u32>>::default();
        counters.prepare();
        found
            .classes
            .par_chunks_mut(LANES * budget)
            .zip(found.times.par_chunks_mut(LANES * budget))
            .zip(found.counts.par_chunks_mut(LANES))
            .enumerate()
            .for_each(|(block, ((classes, times), counts))| {
                let first = block * LANES;
                let codes = self.codes_of(cpu, queries, first..first + counts.len());
                let places = classes.chunks_mut(budget).zip(times.chunks_mut(budget)).zip(counts);
                counters.with(|met| {
                    if met.len() < self.classes() {
                        *met = vec![0; self.classes()];
                    }
                    for (i, ((classes, times), count)) in places.enumerate() {
                        let random = mix(options.seed, Stream::Sample, options.iteration, (first + i) as u64);
                        *count = self.walk(&codes[i * tables..][..tables], random, met, classes);
                        for (times, &class) in times.iter_mut().zip(&classes[..*count]) {
                            *times = std::mem::take(&mut met[class as usize]);
                        }
                    }
                });
            });
        found
    }

    fn codes_of(&self, cpu: Cpu, queries: RowsView<'_>, places: Range<usize>) -> Vec<u32> {
        let tables = self.family().tables();
        let rows: Vec<u32> = places.map(|place| place as u32).collect();
        let mut codes = vec![0; rows.len() * tables];
        self.family().hash_rows(cpu, queries, &rows, 0..tables, &mut codes);
        codes
    }

    /// Fills `found` and gives how many there are; `met`, zero before, then counts in
    /// how many tables each was met.
    fn walk(&self, codes: &[u32], random: u64, met: &mut [u32], found: &mut [u32]) -> usize {
        let start = below(random, codes.len() as u32) as usize;
        let mut count = 0;
        for step in 0..codes.len() {
            let table = (start + step) % codes.len();
            let bucket = self.bucket(table, codes[table]);
            // Of a bucket that may be too full, a random run, wrapping round.
            let turn = below(random.rotate_left(step as u32), bucket.len() as u32) as usize;
            let (before, after) = bucket.split_at(turn);
            for &class in after.iter().chain(before) {
                let times = &mut met[class as usize];
                if *times > 0 {
                    *times += 1;
                } else if count < found.len() {
                    *times = 1;
                    found[count] = class;
                    count += 1;
                }
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashing::{Codes, Family, FamilyShape, Incremental};

    const CLASSES: usize = 300;
    const DIM: usize = 16;
    const TABLES: usize = 12;

    fn vectors(count: usize, seed: u64) -> Vec<f32> {
        let number = |i: usize| mix(seed, Stream::Data, i as u64, 0) as u32 as f32 / u32::MAX as f32 - 0.5;
        (0..count * DIM).map(number).collect()
    }

    fn tables() -> HashTables {
        let (family, codes) = (Family::Simhash, Codes::default());
        let shape = FamilyShape { family, dim: DIM, k: 3, l: TABLES, bin: 8, codes };
        let mut tables = HashTables::new(shape.draw(4).unwrap(), CLASSES, Incremental::Never);
        tables.rebuild(Cpu::detect(), RowsView::f32(&vectors(CLASSES, 1), DIM));
        tables
    }

    /// The tables in whose bucket a class meets a query, from the tables themselves.
    fn meetings(tables: &HashTables, queries: RowsView<'_>, query: usize) -> Vec<u32> {
        let mut codes = vec![0; TABLES];
        tables.family().hash_rows(Cpu::detect(), queries, &[query as u32], 0..TABLES, &mut codes);
        let mut met = vec![0; CLASSES];
        for (table, &code) in codes.iter().enumerate() {
            tables.bucket(table, code).iter().for_each(|&class| met[class as usize] += 1);
        }
        met
    }

    #[test]
    fn classes_are_found_once_and_counted_in_every_table() {
        let (tables, queries) = (tables(), vectors(50, 2));
        let queries = RowsView::f32(&queries, DIM);
        for (budget, iteration) in [(1, 0), (7, 1), (CLASSES, 2), (CLASSES + 5, 3)] {
            let options = LookupOptions { budget, seed: 9, iteration };
            let found = tables.look_up(Cpu::detect(), queries, options);
            assert_eq!(found.budget(), budget.min(CLASSES));
            for query in 0..50 {
                let met = meetings(&tables, queries, query);
                let known = met.iter().filter(|&&times| times > 0).count();
                let classes = found.classes(query);
                assert_eq!(classes.len(), known.min(found.budget()));
                let mut different = classes.to_vec();
                different.sort_unstable();
                different.dedup();
                assert_eq!(different.len(), classes.len());
                for (&class, &times) in classes.iter().zip(found.times(query)) {
                    assert_eq!(times, met[class as usize]);
                }
                for (log_probability, &times) in found.log_probabilities(query).zip(found.times(query)) {
                    let miss = (1.0 - f64::from(times) / TABLES as f64).powi(TABLES as i32);
                    assert!((f64::from(log_probability).exp() - (1.0 - miss)).abs() < 1e-6);
                }
            }
        }
    }

    /// One query many times: each walk takes its first class from the bucket of the
    /// table that its random number names, and all tables have their turn.
    #[test]
    fn a_walk_begins_at_a_table_of_its_own() {
        let (tables, queries) = (tables(), vectors(1, 2).repeat(200));
        let queries = RowsView::f32(&queries, DIM);
        let codes = tables.codes_of(Cpu::detect(), queries, 0..1);
        let mut is_first = [false; TABLES];
        for iteration in [0, 7] {
            let options = LookupOptions { budget: 1, seed: 9, iteration };
            let found = tables.look_up(Cpu::detect(), queries, options);
            for query in 0..200 {
                let random = mix(9, Stream::Sample, iteration, query as u64);
                let start = below(random, TABLES as u32) as usize;
                // An empty bucket leaves the first class to a later table.
                let bucket = tables.bucket(start, codes[start]);
                assert!(bucket.is_empty() || bucket.contains(&found.classes(query)[0]));
                is_first[start] |= !bucket.is_empty();
            }
        }
        assert!(is_first.iter().filter(|&&is_first| is_first).count() > TABLES / 2);
    }

    #[test]
    fn threads_change_nothing() {
        let (tables, queries) = (tables(), vectors(70, 3));
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let options = LookupOptions { budget: 20, seed: 1, iteration: 5 };
            let found = pool.install(|| tables.look_up(Cpu::detect(), RowsView::f32(&queries, DIM), options));
            (found.classes, found.times, found.counts)
        };
        assert_eq!(run(1), run(3));
    }
}
