//! What is made of examples as they are read, in memory that does not grow with the file:
//! packed files, and texts as numbers.

use std::io;
use std::path::Path;

use anyhow::Result;
use lookalike::data::PackedWriter;
use lookalike::data::write::{text_header, text_rows};

use super::{Outputs, PackArgs, VectoriseArgs, refuse_to_overwrite};
use crate::exit::usage;
use crate::input::{self, TextSettings, TrainingBlocks};
use crate::output::inform;

pub(super) fn run_pack(args: &PackArgs) -> Result<()> {
    refuse_to_overwrite(&args.out, &[&args.file])?;
    let blocks = TrainingBlocks::open(&args.file, &TextSettings::default().options(), &args.read)?;
    let mut packed = PackedWriter::new(&args.out)?;
    blocks.for_each(&args.file, |examples| Ok::<_, anyhow::Error>(packed.push(examples)?))?;
    let (examples, (features, classes)) = (packed.num_examples(), packed.sizes());
    packed.finish()?;
    inform!("wrote {}: {examples} examples, {features} features, {classes} classes", args.out.display());
    Ok(())
}

pub(super) fn run_vectorise(args: &VectoriseArgs) -> Result<()> {
    let inputs: Vec<&Path> =
        [Some(&args.file), args.test.as_ref()].into_iter().flatten().map(|p| p.as_path()).collect();
    let outputs = Outputs::in_folder(&args.out, &["train.txt", "test.txt"], &inputs)?;
    let mut settings = TextSettings::default();
    args.text.apply(&mut settings);
    let blocks = TrainingBlocks::open(&args.file, &settings.options(), &args.read)?;
    let TrainingBlocks::Texts { learnt, .. } = &blocks else {
        return Err(usage(format!("{}: these are numbers already, no text", args.file.display())));
    };
    let pipeline = learnt.pipeline.clone();
    let test = args.test.as_ref().map(|path| input::for_model(path, &pipeline, &args.read)).transpose()?;
    let count = pipeline.vectoriser.num_documents();
    let sizes = (pipeline.vectoriser.num_features(), pipeline.names.len());
    let mut failure = None;
    let written = outputs.write_with(0, |out| {
        text_header(count, sizes, out)?;
        let rows = blocks.for_each(&args.file, |examples| Ok::<_, Stop>(text_rows(examples, out)?));
        rows.map_err(|stop| match stop {
            Stop::Disk(error) => error,
            Stop::Input(error) => {
                failure = Some(error);
                io::Error::other("the input could not be read")
            }
        })
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    written?;
    if let Some(test) = test {
        outputs.write_text(1, test.view())?;
    }
    Ok(pipeline.save(&args.out)?)
}

/// Who ended the writing: the disk or the input.
enum Stop {
    Disk(io::Error),
    Input(anyhow::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Self {
        Self::Input(error)
    }
}
