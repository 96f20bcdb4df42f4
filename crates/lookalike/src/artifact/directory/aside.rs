//! The folder beside a directory in which a new one is made.
//!
//! ```text
//! PARENT/.lookalike-unfinished-XXXXXX/
//!   lock        held by whoever writes; the system releases it when that process dies
//!   writing/    the new directory until it is complete: nothing in it but ours
//!   new/NAME    then the new directory, and after the exchange the old one
//!   old/NAME    the old one, between two renames where the system can't exchange
//! ```
//!
//! Whoever gets the lock of such a folder has found what a dead process left.
//! Nothing in `new` or `old` is removed but the files of a model, by name.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use super::{Destination, ModelError, files_of_model};
use crate::disk::{self, Operation};

/// How names of folders and files begin that are not finished.
pub(super) const PREFIX: &str = ".lookalike-unfinished-";
const LOCK: &str = "lock";
const WRITING: &str = "writing";
const NEW: &str = "new";
const OLD: &str = "old";
/// How often others may come between.
const TRIES: usize = 9;

/// A folder of ours while a directory is written; removed if that fails.
#[derive(Debug)]
pub(super) struct Aside {
    folder: tempfile::TempDir,
    lock: File,
    destination: Destination,
}

impl Aside {
    /// Makes the folder, with an empty one to write to.
    pub(super) fn new(destination: Destination) -> Result<Self, ModelError> {
        let parent = &destination.parent;
        let make = || {
            disk::may(Operation::Create, parent, 0)?;
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            let lock = File::create(folder.path().join(LOCK))?;
            // Where nothing can be locked, nobody else can take the lock either.
            let _ = lock.lock();
            fs::create_dir(folder.path().join(WRITING))?;
            Ok((folder, lock))
        };
        // Until it is locked, others may take it for a dead one's and remove it.
        let is_gone =
            |made: &io::Result<_>| made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let mut tries = (0..TRIES).map(|_| make());
        let made = tries.find(|made| !is_gone(made)).unwrap_or_else(make);
        let (folder, lock) = made.map_err(ModelError::io(parent))?;
        Ok(Self { folder, lock, destination })
    }

    /// Where it is to go.
    pub(super) fn destination(&self) -> &Destination {
        &self.destination
    }

    /// The folder to write to.
    pub(super) fn writing(&self) -> PathBuf {
        writing_in(self.folder.path())
    }

    /// Its name, of letters and digits.
    pub(super) fn name(&self) -> String {
        self.folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// What a file is like that the user makes, by umask.
    pub(super) fn usual_file(&self) -> Option<Metadata> {
        self.lock.metadata().ok()
    }

    /// Exchanges what was written for what is at the destination, and moves what
    /// was not ours there into it.
    pub(super) fn put_in_place(self, replaces: bool) -> Result<(), ModelError> {
        let (writing, path) = (self.writing(), self.destination.path());
        let Self { folder, lock, destination } = self;
        let new = folder.path().join(NEW).join(&destination.name);
        fs::create_dir(folder.path().join(NEW))
            .and_then(|()| disk::rename(&writing, &new))
            .map_err(ModelError::io(&path))?;
        // From here on it may hold what is not ours.
        let folder = folder.keep();
        // What it is made of must be on the disk before others can see it.
        let placed = disk::sync_folder(&folder.join(NEW)).and_then(|()| match replaces {
            true => exchange(&new, &path, &folder),
            false => disk::rename(&new, &path),
        });
        if let Err(source) = placed {
            return Err(keep_beside(&folder, &new, path, source));
        }
        disk::sync_folder(&destination.parent).map_err(ModelError::io(&destination.parent))?;
        tidy(&folder, &path)?;
        drop(lock);
        Ok(())
    }
}

/// The folder to write to, of such a folder.
pub(super) fn writing_in(folder: &Path) -> PathBuf {
    folder.join(WRITING)
}

/// A trained model is not thrown away because the last step failed.
fn keep_beside(folder: &Path, new: &Path, directory: PathBuf, source: io::Error) -> ModelError {
    let beside = free_name(&directory, "new");
    if fs::rename(new, &beside).is_err() {
        return ModelError::NotInPlace { directory, kept: new.into(), source };
    }
    if directory.exists() {
        let _ = tidy(folder, &directory);
    }
    ModelError::NotInPlace { directory, kept: beside, source }
}

/// Finishes or removes what dead processes left beside a directory. A model is
/// put in its place only if it is the one that `destination` asks for: others may
/// have been removed on purpose.
pub(super) fn put_right(destination: &Destination) {
    let Ok(entries) = fs::read_dir(&destination.parent) else { return };
    let is_unfinished = |name: &OsString| name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
    for entry in entries.flatten().filter(|entry| is_unfinished(&entry.file_name())) {
        let folder = entry.path();
        // Succeeds only if it is empty: nothing is lost, and a living owner makes another.
        let _ = fs::remove_dir(&folder);
        let Some(_lock) = lock_of_the_dead(&folder) else { continue };
        // What fails here is tried again at the next save, and is no failure of this one.
        let Some(name) = name_within(&folder) else {
            let _ = tidy(&folder, &destination.path());
            continue;
        };
        let place = destination.parent.join(&name);
        if name == destination.name && !place.exists() {
            let left = [NEW, OLD].map(|part| folder.join(part).join(&name));
            let _ = left.iter().find(|left| left.exists()).map(|left| fs::rename(left, &place));
        }
        if files_of_model(&place).is_some() {
            let _ = tidy(&folder, &place);
        }
    }
}

/// Names of the directories that are in folders aside.
pub(super) fn left_in(parent: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let is_unfinished = |name: &OsString| name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
    let unfinished = entries.filter(|entry| is_unfinished(&entry.file_name()));
    // A folder without a directory is removed whoever asks.
    unfinished.map(|entry| name_within(&entry.path()).unwrap_or_default()).collect()
}

/// Whether a living process is about to put a directory into this place.
pub(super) fn is_on_its_way(destination: &Destination) -> bool {
    let Ok(mut entries) = fs::read_dir(&destination.parent) else { return false };
    entries.any(|entry| {
        entry.is_ok_and(|entry| {
            entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
                && entry.path().join(NEW).join(&destination.name).exists()
        })
    })
}

/// The lock of a folder whose owner is dead.
fn lock_of_the_dead(folder: &Path) -> Option<File> {
    let lock = File::options().write(true).open(folder.join(LOCK)).ok()?;
    lock.try_lock().ok().map(|()| lock)
}

/// The name of the directory that `new` or `old` holds.
fn name_within(folder: &Path) -> Option<OsString> {
    let first = |part| fs::read_dir(folder.join(part)).ok()?.flatten().next();
    [NEW, OLD].into_iter().find_map(first).map(|entry| entry.file_name())
}

/// Moves what is not ours into `place` and removes the folder. What can't be
/// removed is tried again at the next save.
fn tidy(folder: &Path, place: &Path) -> Result<(), ModelError> {
    let _ = fs::remove_dir_all(folder.join(WRITING));
    for part in [NEW, OLD].map(|part| folder.join(part)) {
        if let Some(name) = place.file_name() {
            empty(&part.join(name), place)?;
        }
        let _ = fs::remove_dir(&part);
    }
    let _ = fs::remove_file(folder.join(LOCK));
    let _ = fs::remove_dir(folder);
    Ok(())
}

/// Moves what is not ours of a directory into `place`, removes what is, then the
/// directory. `config.json` goes last: without it nothing is known to be ours.
fn empty(directory: &Path, place: &Path) -> Result<(), ModelError> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    let ours = files_of_model(directory).unwrap_or_default();
    let is_folder = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let is_foreign = |path: &PathBuf| !ours.contains(path) || is_folder(path);
    let place_of = |path: &Path| place.join(path.file_name().unwrap_or_default());
    let mut foreign: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_foreign).collect();
    // First those that keep their names.
    foreign.sort_by_key(|path| place_of(path).exists());
    for from in foreign {
        let to = free_name(&place_of(&from), "old");
        fs::rename(&from, &to).map_err(|source| ModelError::LeftAside { from, to, source })?;
    }
    disk::sync_folder(place).map_err(ModelError::io(place))?;
    for file in &ours {
        let _ = fs::remove_file(file);
    }
    let _ = fs::remove_dir(directory);
    Ok(())
}

/// `path`, or with an ending and a number if something is there.
pub(super) fn free_name(path: &Path, ending: &str) -> PathBuf {
    let with = |number: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{ending}"));
        if number > 1 {
            name.push(format!("-{number}"));
        }
        PathBuf::from(name)
    };
    let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
    let names = std::iter::once(path.to_owned()).chain((1..).map(with));
    names.into_iter().find(is_free).expect("a folder does not hold all numbers")
}

#[cfg(target_os = "linux")]
fn exchange(new: &Path, old: &Path, folder: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    disk::may(Operation::Rename, old, 0)?;
    match renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        // Some file systems can't exchange.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => exchange_in_two_steps(new, old, folder),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn exchange(new: &Path, old: &Path, folder: &Path) -> io::Result<()> {
    exchange_in_two_steps(new, old, folder)
}

/// Between the two steps nothing is in the old one's place. Who then looks for a
/// model there, or saves one, puts the new one in place: see [`put_right`].
pub(super) fn exchange_in_two_steps(new: &Path, old: &Path, folder: &Path) -> io::Result<()> {
    let moved = folder.join(OLD).join(old.file_name().unwrap_or_default());
    fs::create_dir(folder.join(OLD))?;
    disk::rename(old, &moved)?;
    disk::rename(new, old).inspect_err(|_| {
        let _ = fs::rename(&moved, old);
    })
}
