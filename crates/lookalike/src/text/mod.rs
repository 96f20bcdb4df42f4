//! Text in, names out: from a file of phrases and label names to examples of
//! numbers, and back.
//!
//! ```text
//! file → chunks → records → n-grams → tf-idf rows → examples
//! source          records   tokens    vectoriser    corpus
//!                 (delimited, json_lines, fasttext)  names: label name ↔ label id
//! ```
//!
//! A file is read twice: once to count n-grams and labels ([`Learnt::of`]),
//! once to turn each text into a row ([`Learnt::for_each_block`]; [`fit_dataset`]
//! does both and keeps all rows). Both passes stream: what is in memory is
//! a few chunks of text, the n-gram table and a block of rows. Both run in
//! parallel over chunks whose size never depends on the number of threads, so
//! the result does not either.
//!
//! What has no end, or is to be answered while it comes, is read once, with what
//! was learnt before: [`TextBlocks`], or as it stands: [`RecordBlocks`].
//!
//! Dense embeddings made elsewhere come in beside it, from a `.npy` matrix:
//! [`dense_dataset`].

mod characters;
mod corpus;
mod delimited;
mod detect;
mod error;
mod extend;
mod fasttext;
mod fit;
mod interner;
mod json_lines;
mod names;
mod npy;
mod numbered;
mod options;
mod pipeline;
mod records;
mod source;
mod store;
mod stream;
mod tokens;
mod understanding;
mod vectoriser;

pub use corpus::{Learnt, Report, TextDataset, fit_dataset, transform_dataset};
pub use error::TextError;
pub use extend::{Vocabulary, extend_dataset};
pub use names::LabelNames;
pub use npy::{
    dense_dataset, dense_dataset_extended, dense_dataset_with_names, dense_dataset_without_labels,
};
pub use numbered::{by_name, by_name_growing};
pub use options::{Sizes, TextOptions};
pub use pipeline::TextPipeline;
pub use records::{Column, Format, ReadOptions, Record, SkippedRows, TextFile};
pub use stream::{RecordBlocks, TextBlock, TextBlocks};
pub use understanding::Understanding;
pub use vectoriser::{Feature, Scratch, Vectoriser};
