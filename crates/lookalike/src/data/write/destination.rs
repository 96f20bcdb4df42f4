//! Where output goes: what a path leads to, what must stay as it is there, and
//! whether it can be written at all.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use super::super::DataError;

/// Whether a file can be written, found out without changing anything: to be
/// asked before long work, not after it.
pub fn check_file(path: &Path) -> Result<(), DataError> {
    let check = || {
        if is_stream(path) {
            return Ok(());
        }
        let real = follow_links(path)?;
        match File::options().append(true).open(&real) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => probe(folder_of(&real)),
            opened => opened.map(drop),
        }
    };
    check().map_err(unwritable(path))
}

/// Whether files can be written to a folder, which is made if need be; see
/// [`check_file`].
pub fn check_folder(path: &Path) -> Result<(), DataError> {
    follow_links(path).and_then(|real| probe_nearest(&real)).map_err(unwritable(path))
}

pub(super) fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> DataError + '_ {
    |reason| DataError::Unwritable { file: path.display().to_string(), reason }
}

/// Only trying tells whether a file can be made in a folder. It has no name, so that
/// whoever is killed here leaves nothing.
fn probe(folder: &Path) -> io::Result<()> {
    tempfile::tempfile_in(folder).map(drop)
}

/// Whether a file can be made in a folder, or the folder in the nearest one above
/// it that is there.
pub(crate) fn probe_nearest(folder: &Path) -> io::Result<()> {
    let is_there = |folder: &&Path| fs::symlink_metadata(folder).is_ok();
    probe(folder.ancestors().map(or_here).find(is_there).unwrap_or(Path::new(".")))
}

/// The folder that a file is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    or_here(path.parent().unwrap_or(Path::new("")))
}

/// The parent of a bare name is the current folder.
pub(crate) fn or_here(parent: &Path) -> &Path {
    if parent.as_os_str().is_empty() { Path::new(".") } else { parent }
}

/// Whether something takes bytes there that is no file to be replaced: a device,
/// a pipe, or what this process was given as its output.
pub(super) fn is_stream(path: &Path) -> bool {
    let own = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc/self/fd"];
    own.iter().any(|own| path.starts_with(own))
        || fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Where a path leads if it is a link, even to what is not there yet.
pub(crate) fn follow_links(path: &Path) -> io::Result<PathBuf> {
    /// As many as Linux follows.
    const LINKS_MAX: usize = 40;
    // A slash at the end would stand for what the link leads to.
    let mut path: PathBuf = path.components().collect();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else { return Ok(path) };
        path = path.parent().unwrap_or(Path::new("")).join(target).components().collect();
    }
    Err(io::Error::other("too many symbolic links follow each other"))
}

/// Gives a file or folder the mode of another, and its owner where this process
/// may. Who may not write as another still writes.
pub(crate) fn make_like(other: &Metadata, path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let _ = std::os::unix::fs::chown(path, Some(other.uid()), Some(other.gid()));
    }
    let _ = fs::set_permissions(path, other.permissions());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_says_what_writing_would_say_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "old").unwrap();
        for good in ["file", "new"] {
            check_file(&at(good)).unwrap();
        }
        for good in ["", "new", "a/b/c"] {
            check_folder(&at(good)).unwrap();
        }
        for bad in ["", "no folder/file", "file/file"] {
            assert!(matches!(check_file(&at(bad)), Err(DataError::Unwritable { .. })), "{bad}");
        }
        for bad in ["file", "file/folder", "file/a/b"] {
            assert!(matches!(check_folder(&at(bad)), Err(DataError::Unwritable { .. })), "{bad}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(fs::read(at("file")).unwrap(), b"old");
    }
}
