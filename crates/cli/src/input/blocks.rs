//! Examples to train on, a block at a time, for whoever writes them elsewhere: memory does
//! not grow with the length of the file.

use std::io::{Cursor, Read};
use std::path::Path;

use lookalike::data::compression::Plain;
use lookalike::data::open::{Input as Bytes, STDIN, display_name};
use lookalike::data::packed::MAGIC;
use lookalike::data::xc::FIRST_ERRORS_MAX;
use lookalike::data::{Blocks, DataError, Examples, ReadReport};
use lookalike::text::{Learnt, Report, TextFile, TextOptions};

use super::kind::{self, HEAD_BYTES, InputFormat, Kind, Opened};
use super::{
    Input, ReadArguments, WeightArguments, check_features, check_names, tell, training_examples, warn,
};
use crate::output::inform;
use crate::progress::Counting;

/// Text that becomes a block of examples: pieces enough for a few threads.
const BLOCK_BYTES: usize = 8 << 20;

/// A file of examples that is read block by block.
pub(crate) enum TrainingBlocks {
    /// Rows of numbers, read once.
    Rows(Box<Blocks>),
    /// Texts, read a second time with what the first time taught.
    Texts { file: TextFile, learnt: Box<Learnt> },
    /// What is mapped, or needed as a whole: packed files, matrices.
    Whole(Box<Input>),
}

impl TrainingBlocks {
    /// Opens a file, or standard input for `-`; texts are read once to learn their features.
    pub(crate) fn open(path: &Path, options: &TextOptions, read: &ReadArguments) -> anyhow::Result<Self> {
        let file = match Found::at(path, read)? {
            Found::Rows(rows) => return Ok(Self::Rows(rows)),
            Found::Other(file) => file,
        };
        if read.input_format.map_or_else(|| file.kind(), InputFormat::kind) != Kind::Text {
            let all = training_examples(&file, path, options, read, &WeightArguments::default())?;
            return Ok(Self::Whole(Box::new(all)));
        }
        let file = file.text(&read.of_text(true))?;
        let warnings = file.understanding()?.warnings;
        warnings.iter().for_each(|warning| inform!("{}: {warning}", path.display()));
        let counting = Counting::of("texts counted");
        let learnt = Learnt::of(&file, options, |texts| counting.tell(texts))?;
        let names = &learnt.pipeline.names;
        let examples = learnt.pipeline.vectoriser.num_documents();
        check_names(path, names, &Report { examples, labels: names.len(), ..Report::default() })?;
        check_features(path, learnt.pipeline.vectoriser.num_features(), options)?;
        Ok(Self::Texts { file, learnt: Box::new(learnt) })
    }

    /// Gives all examples to `use_block`, in order.
    pub(crate) fn for_each<E: From<anyhow::Error>>(
        self,
        path: &Path,
        mut use_block: impl FnMut(Examples<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (counting, mut count) = (Counting::of("examples"), 0);
        let mut use_block = |examples: Examples<'_>| {
            count += examples.len() as u64;
            counting.tell(count);
            use_block(examples)
        };
        match self {
            Self::Whole(all) => use_block(all.view()),
            Self::Rows(rows) => {
                let mut total = ReadReport::default();
                for block in *rows {
                    let (data, report) = block.map_err(anyhow::Error::from)?;
                    use_block(data.view())?;
                    add(&mut total, report);
                }
                tell(path, &total);
                Ok(())
            }
            Self::Texts { file, learnt } => {
                let report = learnt.for_each_block(&file, |data| use_block(data.view()).map_err(Stop::User));
                let report = report.map_err(|stop| match stop {
                    Stop::User(error) => error,
                    Stop::Text(error) => anyhow::Error::from(error).into(),
                })?;
                warn(path, &report);
                Ok(())
            }
        }
    }
}

/// Why a second pass ended early.
enum Stop<E> {
    Text(lookalike::text::TextError),
    User(E),
}

impl<E> From<lookalike::text::TextError> for Stop<E> {
    fn from(error: lookalike::text::TextError) -> Self {
        Self::Text(error)
    }
}

/// What is told of all blocks.
pub(super) fn add(total: &mut ReadReport, of_block: ReadReport) {
    total.bad_rows += of_block.bad_rows;
    let room = FIRST_ERRORS_MAX - total.first_errors.len();
    total.first_errors.extend(of_block.first_errors.into_iter().take(room));
    total.notes.extend(of_block.notes);
}

/// What is at a path, told from its beginning.
enum Found {
    /// Rows of numbers: once is enough, so that a pipe need not be held.
    Rows(Box<Blocks>),
    Other(Opened),
}

impl Found {
    fn at(path: &Path, read: &ReadArguments) -> anyhow::Result<Self> {
        let options = read.of_numbers(None);
        let is_rows = |head: &[u8]| {
            let kind = read.input_format.map_or_else(|| kind::kind_of(head), InputFormat::kind);
            kind == Kind::Numbers && !head.starts_with(MAGIC)
        };
        if path != Path::new(STDIN) && path.is_file() {
            return Ok(match is_rows(&kind::head(path).unwrap_or_default()) {
                true => Self::Rows(Box::new(Blocks::open(path, &options)?.of_bytes(BLOCK_BYTES))),
                false => Self::Other(Opened::new(path)?),
            });
        }
        let name = display_name(path);
        let unreadable = |reason| DataError::Unreadable { file: name.clone(), reason };
        let Plain { compression, mut reader } = Plain::open(path).map_err(unreadable)?;
        let mut head = Vec::new();
        // Damage is met again where it is read, and told there with its place.
        let _ = reader.by_ref().take(HEAD_BYTES).read_to_end(&mut head);
        let is_rows = is_rows(&head);
        let plain = Plain { compression, reader: Box::new(Cursor::new(head).chain(reader)) };
        Ok(match is_rows {
            true => Self::Rows(Box::new(Blocks::of(name, plain, &options).of_bytes(BLOCK_BYTES))),
            false => Self::Other(Opened::Pipe(path.into(), Bytes::of(name, plain)?)),
        })
    }
}
