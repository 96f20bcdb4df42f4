//! The first pass: in how many texts does each n-gram occur?
//!
//! Each chunk of records is counted on its own, in parallel; the counts of a
//! group of chunks then flow into shards, in parallel too, each n-gram into the
//! shard that its hash names. TermCounts are sums, so neither threads nor shards
//! show in the result. Memory: the distinct n-grams seen, at most about
//! `table_limit` of them: past it the rarest are forgotten, as word2vec and
//! fastText do, so that a survivor's count may be too low by what was forgotten.

use rayon::prelude::*;

use super::interner::{Interner, Keyed};
use super::tokens::Tokens;
use super::vectoriser::{Vectoriser, bucket, check_count};
use super::{Record, TextError, TextOptions};

/// Never a function of the number of threads.
const SHARDS: usize = 16;

fn shard(ngram: Keyed<'_>) -> usize {
    // The low bits; the table itself uses the high ones.
    ngram.hash() as usize % SHARDS
}

/// How often an n-gram was met.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    documents: u32,
    total: u64,
}

/// N-grams and how often each was met.
#[derive(Debug, Default)]
struct TermCounts {
    ngrams: Interner,
    counts: Vec<Count>,
}

impl TermCounts {
    fn add(&mut self, ngram: Keyed<'_>, count: Count) {
        let (id, is_new) = self.ngrams.insert(ngram);
        if is_new {
            self.counts.push(count);
        } else {
            let sum = &mut self.counts[id as usize];
            sum.documents = sum.documents.saturating_add(count.documents);
            sum.total += count.total;
        }
    }

    /// TermCounts the features of one text, each id once for each time it was met.
    fn add_text(&mut self, met: &mut [u32]) {
        met.sort_unstable();
        for run in met.chunk_by(|a, b| a == b) {
            let id = run[0] as usize;
            if id >= self.counts.len() {
                self.counts.resize(id + 1, Count::default());
            }
            self.counts[id].documents += 1;
            self.counts[id].total += run.len() as u64;
        }
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], Count)> {
        self.ngrams.iter().zip(self.counts.iter().copied())
    }

    fn keep(&mut self, is_kept: impl Fn(Count) -> bool) {
        let mut kept = Self::default();
        for (ngram, count) in self.iter().filter(|&(_, count)| is_kept(count)) {
            kept.add(Keyed::new(ngram), count);
        }
        *self = kept;
    }
}

/// The counts of one chunk of records, its n-grams sorted by shard.
#[derive(Debug)]
pub(super) struct ChunkCounts {
    counts: TermCounts,
    by_shard: Vec<Vec<u32>>,
    documents: u64,
}

/// TermCounts the n-grams of some records.
pub(super) fn count(records: &[Record], options: &TextOptions) -> ChunkCounts {
    let mut counts = TermCounts::default();
    let mut tokens = Tokens::default();
    let mut met = Vec::new();
    for record in records {
        met.clear();
        tokens.lay_out(&record.text, options);
        match options.hash_bits {
            None => tokens.for_each_ngram(|ngram| {
                met.push(counts.ngrams.insert(ngram).0);
            }),
            Some(bits) => tokens.for_each_ngram(|ngram| {
                let name = bucket(ngram, bits).to_be_bytes();
                met.push(counts.ngrams.insert(Keyed::new(&name)).0);
            }),
        }
        counts.add_text(&mut met);
    }
    let mut by_shard = vec![Vec::new(); SHARDS];
    for (ngram, id) in counts.ngrams.iter().zip(0..) {
        by_shard[shard(Keyed::new(ngram))].push(id);
    }
    ChunkCounts { counts, by_shard, documents: records.len() as u64 }
}

/// The counts of all records seen so far.
#[derive(Debug)]
pub(super) struct Fit {
    options: TextOptions,
    shards: Vec<TermCounts>,
    documents: u64,
    /// N-grams seen in at most so many texts were forgotten.
    forgotten: u32,
}

impl Fit {
    pub(super) fn new(options: &TextOptions) -> Result<Self, TextError> {
        options.check()?;
        let shards = (0..SHARDS).map(|_| TermCounts::default()).collect();
        Ok(Self { options: options.clone(), shards, documents: 0, forgotten: 0 })
    }

    /// Adds the counts of a group of chunks.
    pub(super) fn add(&mut self, group: &[ChunkCounts]) {
        self.documents += group.iter().map(|chunk| chunk.documents).sum::<u64>();
        self.shards.par_iter_mut().enumerate().for_each(|(at, shard)| {
            for chunk in group {
                for &id in &chunk.by_shard[at] {
                    let ngram = Keyed::new(chunk.counts.ngrams.get(id));
                    shard.add(ngram, chunk.counts.counts[id as usize]);
                }
            }
        });
        let size = |shards: &[TermCounts]| shards.iter().map(|s| s.ngrams.len()).sum::<usize>();
        while self.options.hash_bits.is_none() && size(&self.shards) > self.options.table_limit {
            self.forgotten += 1;
            let forgotten = self.forgotten;
            self.shards.par_iter_mut().for_each(|s| s.keep(|c| c.documents > forgotten));
        }
    }

    /// Texts so far.
    pub(super) fn documents(&self) -> u64 {
        self.documents
    }

    /// N-grams seen in at most so many texts were forgotten while counting; 0 if
    /// the counts are exact.
    pub(super) fn forgotten(&self) -> u32 {
        self.forgotten
    }

    /// The vectoriser of what was counted.
    pub(super) fn finish(self) -> Result<Vectoriser, TextError> {
        match self.options.hash_bits {
            Some(bits) => Ok(self.finish_hashed(bits)),
            None => self.finish_vocabulary(),
        }
    }

    /// A vectoriser that counts these texts besides those it was made from. New n-grams
    /// stand behind the old ones, as far as `max_features` leaves room.
    pub(super) fn extend(self, old: &Vectoriser) -> Result<Vectoriser, TextError> {
        let limit = self.options.max_features.map(|limit| limit.saturating_sub(old.num_features()));
        let documents = old.documents + self.documents;
        let hashed = self.options.hash_bits.is_some();
        let (mut vocabulary, mut counts) = (old.vocabulary.clone(), old.document_counts.clone());
        let mut unseen: Vec<(&[u8], Count)> = Vec::new();
        for (ngram, count) in self.shards.iter().flat_map(TermCounts::iter) {
            let known = if hashed { Some(bucket_of(ngram)) } else { vocabulary.find(Keyed::new(ngram)) };
            match known {
                Some(id) => counts[id as usize] = counts[id as usize].saturating_add(count.documents),
                None => unseen.push((ngram, count)),
            }
        }
        let unseen = chosen(unseen, self.options.min_documents, limit);
        check_count("n-grams", vocabulary.len() + unseen.len())?;
        for (ngram, count) in unseen {
            vocabulary.insert(Keyed::new(ngram));
            counts.push(count.documents);
        }
        Ok(Vectoriser::new(old.options.clone(), vocabulary, documents, counts))
    }

    fn finish_hashed(self, bits: u32) -> Vectoriser {
        let mut document_counts = vec![0; 1 << bits];
        for (name, count) in self.shards.iter().flat_map(TermCounts::iter) {
            document_counts[bucket_of(name) as usize] = count.documents;
        }
        Vectoriser::new(self.options, Interner::default(), self.documents, document_counts)
    }

    fn finish_vocabulary(self) -> Result<Vectoriser, TextError> {
        let all: Vec<(&[u8], Count)> = self.shards.par_iter().flat_map_iter(TermCounts::iter).collect();
        let ngrams = chosen(all, self.options.min_documents, self.options.max_features);
        check_count("n-grams", ngrams.len())?;
        let mut vocabulary = Interner::default();
        for (ngram, _) in &ngrams {
            vocabulary.insert(Keyed::new(ngram));
        }
        let document_counts = ngrams.iter().map(|(_, count)| count.documents).collect();
        Ok(Vectoriser::new(self.options.clone(), vocabulary, self.documents, document_counts))
    }
}

/// The n-grams that are frequent enough to be features, in the order of code points.
fn chosen(mut ngrams: Vec<(&[u8], Count)>, least: u32, limit: Option<usize>) -> Vec<(&[u8], Count)> {
    ngrams.retain(|(_, count)| count.documents >= least);
    if let Some(limit) = limit
        && limit < ngrams.len()
    {
        ngrams.par_sort_unstable_by_key(|&(ngram, count)| (std::cmp::Reverse(count.total), ngram));
        ngrams.truncate(limit);
    }
    // UTF-8 sorts as its code points do.
    ngrams.par_sort_unstable_by_key(|&(ngram, _)| ngram);
    ngrams
}

/// The bucket that a name of the first pass stands for.
fn bucket_of(name: &[u8]) -> u32 {
    name.iter().fold(0, |id, &byte| id << 8 | u32::from(byte))
}
