//! A folder of checkpoints: the last few moments of a run, each complete.
//!
//! ```text
//! FOLDER/step-0000001000/     a model directory with its training state
//! FOLDER/step-0000002000/
//! FOLDER/step-0000002000.damaged/   one that could not be read, left for whoever looks
//! ```
//!
//! The files are written while training waits, as it would change them; summing
//! them up, waiting for the disk, putting the directory in its place and removing
//! old ones happen on a thread of its own while training goes on. Memory: of the
//! model nothing is copied; the buckets of all classes are, half of what the hash
//! tables take or less.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use super::directory::{Destination, files_of_model, restore_all};
use super::{CONFIG_FILE, ModelError, Unfinished, load_checkpoint};
use crate::disk;
use crate::train::{Checkpoint, KeepError, Keeper, Trainer};

const PREFIX: &str = "step-";

/// Writes the last checkpoints of a run into a folder.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
    finishing: Option<JoinHandle<Result<(), ModelError>>>,
}

impl Checkpoints {
    /// The folder, of which the last `keep` checkpoints stay, at least one.
    pub fn new(folder: &Path, keep: usize) -> Self {
        Self { folder: folder.into(), keep: keep.max(1), finishing: None }
    }

    /// Whether the folder has no checkpoint: another run's are not to be overwritten.
    pub fn is_empty(&self) -> bool {
        restore_all(&self.folder);
        steps(&self.folder).is_empty()
    }

    /// The newest checkpoint that can be read, if there is one. Those that are damaged
    /// are told and set aside; if all are, the newest one's error is given.
    pub fn newest(&self, tell: &mut dyn FnMut(&ModelError)) -> Result<Option<Checkpoint>, ModelError> {
        restore_all(&self.folder);
        let mut first_error = None;
        for step in steps(&self.folder).into_iter().rev() {
            match load_checkpoint(&step) {
                Ok(checkpoint) => return Ok(Some(checkpoint)),
                Err(error) => {
                    tell(&error);
                    if !matches!(error, ModelError::Io { .. } | ModelError::Newer { .. }) {
                        set_aside(&step);
                    }
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error.map_or(Ok(None), Err)
    }

    /// Writes the moment; returns when training may go on.
    pub fn write(&mut self, trainer: &Trainer<'_>) -> Result<(), ModelError> {
        self.wait()?;
        let step = self.folder.join(format!("{PREFIX}{:010}", trainer.state.progress.iteration));
        let unfinished = match trainer.shard().is_whole() {
            true => Unfinished::of_trainer(&step, trainer)?,
            // All ranks put the whole together, and the first one has it.
            false => match trainer.gather() {
                Some(Checkpoint { model, state }) => {
                    let record = (&state.config, state.progress);
                    Unfinished::write(&step, &model, record, Some((&state, None)))?
                }
                None => return Ok(()),
            },
        };
        let (folder, keep) = (self.folder.clone(), self.keep);
        self.finishing = Some(std::thread::spawn(move || {
            unfinished.finish()?;
            remove_old(&folder, keep);
            Ok(())
        }));
        Ok(())
    }

    /// Waits until the last checkpoint is on the disk, and none but the last ones are.
    pub fn wait(&mut self) -> Result<(), ModelError> {
        let Some(finishing) = self.finishing.take() else {
            // A run that was killed after its last checkpoint may have left one too many.
            remove_old(&self.folder, self.keep);
            return Ok(());
        };
        finishing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        // Whoever wants to know how it went has waited.
        let _ = self.finishing.take().map(JoinHandle::join);
    }
}

impl Keeper for Checkpoints {
    fn keep_best(&mut self, _: &Trainer<'_>) -> Result<(), KeepError> {
        Ok(())
    }

    fn keep_last(&mut self, trainer: &Trainer<'_>) -> Result<(), KeepError> {
        Ok(self.write(trainer)?)
    }
}

/// The checkpoints in a folder, oldest first.
fn steps(folder: &Path) -> Vec<PathBuf> {
    let mut steps = named_steps(folder);
    steps.retain(|step| step.join(CONFIG_FILE).exists());
    steps
}

/// All folders that are called like checkpoints, oldest first.
fn named_steps(folder: &Path) -> Vec<PathBuf> {
    let is_step = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = name.strip_prefix(PREFIX);
        number.is_some_and(|number| number.len() == 10 && number.bytes().all(|b| b.is_ascii_digit()))
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut steps: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_step).collect();
    steps.sort();
    steps
}

/// Removes all but the last checkpoints. What fails is tried again after the next one.
fn remove_old(folder: &Path, keep: usize) {
    let kept = steps(folder);
    let Some(oldest) = kept.len().checked_sub(keep).map(|first| &kept[first]) else { return };
    for step in named_steps(folder).iter().take_while(|step| *step < oldest) {
        // The list of files goes last, so that whoever dies here can be followed.
        for file in files_of_model(step).unwrap_or_default() {
            let _ = fs::remove_file(file);
        }
        let _ = fs::remove_dir(step);
    }
}

/// Makes room for the checkpoint that will have this name when training comes by again.
fn set_aside(step: &Path) {
    if let Ok(destination) = Destination::of(step) {
        let _ = disk::rename(step, &destination.free_name("damaged"));
    }
}
