//! From a text to a row of tf-idf values.
//!
//! A feature is an n-gram of the vocabulary (numbered in the order of code
//! points, as scikit-learn does; those of later texts stand behind) or, with the hashing trick, a bucket of
//! n-grams. Its value in a text is `tf · idf`, scaled so that the row has length
//! 1 (L2), with `tf = c` or `1 + ln c` for an n-gram met `c` times and the
//! smooth `idf = ln((1 + n) / (1 + df)) + 1` for one met in `df` of the `n`
//! texts seen in training.
//!
//! A text costs O(g log g) for its g n-grams; the sort dominates.

use std::fmt;

use rayon::prelude::*;

use super::interner::{Interner, Keyed};
use super::tokens::{Tokens, WORD_MARK};
use super::{TextError, TextOptions};
use crate::data::Dataset;

/// Texts that one task turns into rows.
const TEXTS_PER_TASK: usize = 64;

/// Turns texts into rows; made by [`fit_dataset`](super::fit_dataset), or read
/// with [`Vectoriser::load`].
#[derive(Clone, Debug)]
pub struct Vectoriser {
    pub(super) options: TextOptions,
    /// The n-grams in order; empty with the hashing trick.
    pub(super) vocabulary: Interner,
    /// The number of texts seen in training.
    pub(super) documents: u64,
    /// In how many of them each feature occurs.
    pub(super) document_counts: Vec<u32>,
    inverse_frequencies: Vec<f32>,
}

/// Buffers that [`Vectoriser::transform`] uses again; one a thread.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    tokens: Tokens,
    /// A feature for each n-gram of the text, then sorted.
    found: Vec<u32>,
    ids: Vec<u32>,
    values: Vec<f32>,
}

/// What a feature stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feature<'a> {
    /// Words in a row, a space between.
    Words(String),
    /// Characters; a space is the edge of a word.
    Characters(&'a str),
    /// A bucket of the hashing trick.
    Bucket(u32),
}

impl fmt::Display for Feature<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => write!(f, "{words}"),
            Self::Characters(characters) => write!(f, "'{characters}'"),
            Self::Bucket(bucket) => write!(f, "bucket {bucket}"),
        }
    }
}

impl Vectoriser {
    /// Puts the parts together; `document_counts` has an element a feature.
    pub(super) fn new(
        options: TextOptions,
        vocabulary: Interner,
        documents: u64,
        document_counts: Vec<u32>,
    ) -> Self {
        let inverse = |&count: &u32| (((1 + documents) as f64 / (1.0 + f64::from(count))).ln() + 1.0) as f32;
        let inverse_frequencies = document_counts.iter().map(inverse).collect();
        Self { options, vocabulary, documents, document_counts, inverse_frequencies }
    }

    /// What was chosen.
    pub fn options(&self) -> &TextOptions {
        &self.options
    }

    /// The number of features.
    pub fn num_features(&self) -> usize {
        self.document_counts.len()
    }

    /// The number of texts seen in training.
    pub fn num_documents(&self) -> u64 {
        self.documents
    }

    /// What a feature stands for; none beyond [`Self::num_features`].
    pub fn feature(&self, id: u32) -> Option<Feature<'_>> {
        if id as usize >= self.num_features() {
            return None;
        }
        if self.options.hash_bits.is_some() {
            return Some(Feature::Bucket(id));
        }
        // Only whole characters are ever put into the vocabulary.
        let ngram = std::str::from_utf8(self.vocabulary.get(id)).unwrap_or_default();
        let mark = char::from(WORD_MARK);
        Some(match ngram.strip_prefix(mark) {
            Some(words) => Feature::Words(words.replace(mark, " ")),
            None => Feature::Characters(ngram),
        })
    }

    /// The feature's name for a reader; empty beyond [`Self::num_features`].
    pub fn feature_name(&self, id: u32) -> String {
        self.feature(id).map(|feature| feature.to_string()).unwrap_or_default()
    }

    /// The row of a text: ids, ascending and distinct, and their values. Empty
    /// if no n-gram of the text is known.
    pub fn transform<'s>(&self, text: &str, scratch: &'s mut Scratch) -> (&'s [u32], &'s [f32]) {
        let Scratch { tokens, found, ids, values } = scratch;
        found.clear();
        tokens.lay_out(text, &self.options);
        match self.options.hash_bits {
            None => tokens.for_each_ngram(|ngram| {
                if let Some(id) = self.vocabulary.find(ngram) {
                    found.push(id);
                }
            }),
            Some(bits) => tokens.for_each_ngram(|ngram| found.push(bucket(ngram, bits))),
        }
        found.sort_unstable();
        ids.clear();
        values.clear();
        for &id in &*found {
            match (ids.last(), values.last_mut()) {
                (Some(&last), Some(count)) if last == id => *count += 1.0,
                _ => {
                    ids.push(id);
                    values.push(1.0);
                }
            }
        }
        for (value, &id) in values.iter_mut().zip(&*ids) {
            *value = self.weight(*value) * self.inverse_frequencies[id as usize];
        }
        let length = values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
        let scale = (1.0 / length) as f32;
        values.iter_mut().for_each(|value| *value *= scale);
        (ids, values)
    }

    /// The rows of some texts, an example each, without labels. In parallel.
    pub fn transform_all<T: AsRef<str> + Sync>(&self, texts: &[T]) -> Dataset {
        let rows = |texts: &[T]| {
            let mut rows = Dataset::empty(self.num_features(), 0);
            let mut scratch = Scratch::default();
            for text in texts {
                let (ids, values) = self.transform(text.as_ref(), &mut scratch);
                rows.push(ids.iter().copied().zip(values.iter().copied()), &[]);
            }
            rows
        };
        let parts: Vec<Dataset> = texts.par_chunks(TEXTS_PER_TASK).map(rows).collect();
        // Of no text at all the number of features must be told.
        Dataset { num_features: self.num_features(), ..Dataset::concat(&parts) }
    }

    /// The tf of an n-gram met `count` times.
    fn weight(&self, count: f32) -> f32 {
        if count > 1.0 && self.options.sublinear { 1.0 + count.ln() } else { count }
    }
}

/// The feature of an n-gram by the hashing trick.
pub(super) fn bucket(ngram: Keyed<'_>, bits: u32) -> u32 {
    (ngram.hash() >> (64 - bits)) as u32
}

/// The most features that ids can number.
pub(super) fn check_count(what: &'static str, count: usize) -> Result<(), TextError> {
    if count > Interner::LIMIT {
        return Err(TextError::TooMany { what, limit: Interner::LIMIT as u64 });
    }
    Ok(())
}
