//! `lookalike classes`

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use lookalike::artifact::{self, DirectoryLock, SavedModel};
use lookalike::model::{ChangeError, Model};
use lookalike_report::human;

use crate::exit::usage;
use crate::output::inform;

/// Lists, removes and renames the classes of a model.
#[derive(Subcommand)]
#[command(after_help = "Examples:
  lookalike classes list model
  lookalike classes remove model Munich Vienna
  lookalike classes remove model --file gone.txt --out smaller
  lookalike classes rename model Munich München

Classes are named as `classes list` shows them: by name, or by number where they have
no names. A class that is removed leaves no trace in an answer: what the others score
stays as it is, but for nearest examples, where others take the places of its own. In a model without names the others keep their numbers as names. The
model is written without what --resume needs; go on with `train --from`.")]
pub(crate) enum ClassesCommand {
    /// Print the classes: number, name and how many training examples they had
    List {
        /// The model's directory
        model: PathBuf,
    },
    /// Remove classes
    Remove {
        /// The model's directory
        model: PathBuf,
        /// The classes
        #[arg(required_unless_present = "file")]
        classes: Vec<String>,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Give classes other names
    Rename {
        /// The model's directory
        model: PathBuf,
        /// The class
        #[arg(requires = "new", required_unless_present = "file")]
        old: Option<String>,
        /// Its new name
        new: Option<String>,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

#[derive(Args)]
pub(crate) struct ChangeArguments {
    /// Read classes from a file: one a line; to rename, the old name, a tab and the new one
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Where to save the model [default: in its place]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(command: ClassesCommand) -> anyhow::Result<()> {
    match command {
        ClassesCommand::List { model } => list(&artifact::load(&model)?.model),
        ClassesCommand::Remove { model, mut classes, change } => {
            classes.extend(change.lines()?);
            let _lock = DirectoryLock::take(change.directory(&model))?;
            let mut saved = artifact::load(&model)?;
            let ids: Vec<u32> =
                classes.iter().map(|name| class(&saved.model, name)).collect::<Result<_, _>>()?;
            let before = saved.model.num_classes();
            saved.model.remove_classes(&ids).map_err(|error| usage(error.to_string()))?;
            let (removed, left) = (before - saved.model.num_classes(), saved.model.num_classes());
            change.save(&model, &saved)?;
            let count = |n: usize| human::count(n as u64);
            inform!("removed {} classes, {} are left", count(removed), count(left));
            Ok(())
        }
        ClassesCommand::Rename { model, old, new, change } => {
            let mut pairs: Vec<(String, String)> = old.zip(new).into_iter().collect();
            for line in change.lines()? {
                let pair = line.split_once('\t');
                let (old, new) = pair.ok_or_else(|| {
                    usage(format!("found the line {line:?}, expected an old name, a tab and a new one"))
                })?;
                pairs.push((old.into(), new.into()));
            }
            let _lock = DirectoryLock::take(change.directory(&model))?;
            let mut saved = artifact::load(&model)?;
            let ids = |(old, new): &(String, String)| Ok((class(&saved.model, old)?, new.clone()));
            let renamed: Vec<(u32, String)> = pairs.iter().map(ids).collect::<anyhow::Result<_>>()?;
            saved.model.rename_classes(&renamed).map_err(|error| usage(error.to_string()))?;
            change.save(&model, &saved)?;
            inform!("renamed {} classes", human::count(renamed.len() as u64));
            Ok(())
        }
    }
}

fn list(model: &Model) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    writeln!(out, "class\tname\texamples")?;
    for (class, examples) in model.frequencies.examples_of_class.iter().enumerate() {
        writeln!(out, "{class}\t{}\t{examples}", model.class_name(class as u32))?;
    }
    Ok(out.flush()?)
}

fn class(model: &Model, name: &str) -> anyhow::Result<u32> {
    model.class_id(name).ok_or_else(|| usage(ChangeError::Unknown { name: name.into() }.to_string()))
}

impl ChangeArguments {
    fn lines(&self) -> anyhow::Result<Vec<String>> {
        let Some(path) = &self.file else { return Ok(Vec::new()) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| usage(format!("cannot read {}: {error}", path.display())))?;
        Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    fn directory<'a>(&'a self, model: &'a Path) -> &'a Path {
        self.out.as_deref().unwrap_or(model)
    }

    fn save(&self, model: &Path, saved: &SavedModel) -> anyhow::Result<()> {
        let directory = self.directory(model);
        let failed = || format!("cannot save the model to {}", directory.display());
        artifact::save_model(directory, &saved.model, &saved.record).with_context(failed)
    }
}
