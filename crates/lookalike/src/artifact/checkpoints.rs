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
use std::sync::Arc;
use std::thread::JoinHandle;

use super::directory::{Destination, files_of_model, restore_all};
use super::writing::{Unfinished, all_or_none};
use super::{CONFIG_FILE, ModelError, load_checkpoint_on};
use crate::collective::Collective;
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
    /// are told and set aside; if all are, the newest one's error is given. All ranks
    /// call it together and get what each is to hold of the same one.
    pub fn newest(
        &self,
        collective: &Arc<dyn Collective>,
        tell: &mut dyn FnMut(&ModelError),
    ) -> Result<Option<Checkpoint>, ModelError> {
        let is_first = collective.rank() == 0;
        let names = match is_first {
            true => self.names_of_steps(),
            false => String::new(),
        };
        let names = collective.gather_texts(names.as_bytes()).swap_remove(0);
        let names = String::from_utf8_lossy(&names).into_owned();
        let mut first_error = None;
        for name in names.lines().rev() {
            let step = self.folder.join(name);
            match all_or_none(&**collective, load_checkpoint_on(collective.clone(), &step)) {
                Ok(checkpoint) => return Ok(Some(checkpoint)),
                Err(error) => {
                    tell(&error);
                    let is_damaged = !matches!(error, ModelError::Io { .. } | ModelError::Newer { .. });
                    // What another rank could not read, this one can move.
                    if collective.any(is_damaged && !matches!(error, ModelError::OtherRank { .. }))
                        && is_first
                    {
                        set_aside(&step);
                    }
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error.map_or(Ok(None), Err)
    }

    /// After what dead processes left was put right; oldest first, a line each.
    fn names_of_steps(&self) -> String {
        restore_all(&self.folder);
        let name = |step: PathBuf| step.file_name().unwrap_or_default().to_string_lossy().into_owned();
        steps(&self.folder).into_iter().map(name).collect::<Vec<_>>().join("\n")
    }

    /// Writes the moment; returns when training may go on.
    pub fn write(&mut self, trainer: &Trainer<'_>) -> Result<(), ModelError> {
        if trainer.shard().collective().rank() == 0 {
            self.wait()?;
        }
        let step = self.folder.join(format!("{PREFIX}{:010}", trainer.state.progress.iteration));
        // Of several ranks the first one finishes it.
        let Some(unfinished) = Unfinished::of_trainer(&step, trainer, true)? else { return Ok(()) };
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
