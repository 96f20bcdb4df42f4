//! One training at a time into one directory.
//!
//! Directories are exchanged as wholes, so the lock is a file beside:
//! `.lookalike-lock-NAME`, locked by the process whose number it holds. The system
//! releases it when that process ends, however it ends; what is left then is a file
//! that the next one takes over.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::ModelError;
use super::directory::Destination;

/// Held while training writes to a directory.
#[derive(Debug)]
pub struct DirectoryLock {
    path: PathBuf,
    file: File,
}

impl DirectoryLock {
    /// Takes the lock of a directory, which need not be there yet. Refused while
    /// another process has it. Where files can't be locked at all nobody is refused.
    pub fn take(directory: &Path) -> Result<Self, ModelError> {
        let destination = Destination::of(directory)?;
        fs::create_dir_all(&destination.parent).map_err(ModelError::io(&destination.parent))?;
        let path = lock_of(&destination);
        let failed = |source| ModelError::Io { path: path.clone(), source };
        loop {
            let options = File::options().read(true).write(true).create(true).truncate(false).open(&path);
            let mut file = options.map_err(failed)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let mut holder = String::new();
                    let _ = file.take(100).read_to_string(&mut holder);
                    let directory = directory.into();
                    return Err(ModelError::InUse { directory, holder: holder.trim().into() });
                }
                Err(TryLockError::Error(_)) | Ok(()) => {}
            }
            // Who had it may have removed the file after we opened it.
            if is_same(&file, &path) {
                let written = file.set_len(0).and_then(|()| writeln!(file, "process {}", std::process::id()));
                written.map_err(failed)?;
                return Ok(Self { path, file });
            }
        }
    }
}

impl DirectoryLock {
    /// Whether the lock's file is there, which whoever has taken it sees; so do all ranks
    /// that share a file system with it.
    pub fn is_taken(directory: &Path) -> bool {
        Destination::of(directory).is_ok_and(|destination| lock_of(&destination).exists())
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Still locked: whoever opens the file now finds it gone and makes another.
        if is_same(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn lock_of(destination: &Destination) -> PathBuf {
    destination.beside(".lookalike-lock-")
}

#[cfg(unix)]
fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |found: fs::Metadata| (found.dev(), found.ino());
    let there: io::Result<_> = fs::metadata(path).map(place);
    file.metadata().map(place).is_ok_and(|own| there.is_ok_and(|there| own == there))
}

#[cfg(not(unix))]
fn is_same(_: &File, _: &Path) -> bool {
    true
}
