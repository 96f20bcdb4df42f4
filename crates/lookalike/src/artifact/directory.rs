//! Writing a whole directory in one step, and checking what is in it.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use super::{FileEntry, ModelError};

/// Calls `write` with an empty folder beside `directory`, then puts that folder
/// in its place. An existing directory is replaced only if it is empty or holds
/// `marker`; if anything fails it is left as it was.
pub fn replace_directory(
    directory: &Path,
    marker: &str,
    write: impl FnOnce(&Path) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let exists = directory.exists();
    if exists {
        let mut entries = fs::read_dir(directory).map_err(ModelError::io(directory))?;
        if entries.next().is_some() && !directory.join(marker).exists() {
            return Err(ModelError::WouldOverwrite { directory: directory.into() });
        }
    }
    let parent = match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(ModelError::io(parent))?;
    let folder = tempfile::Builder::new()
        .prefix(".lookalike-unfinished-")
        .tempdir_in(parent)
        .map_err(ModelError::io(parent))?;
    make_readable(folder.path(), 0o755);
    write(folder.path())?;
    if exists {
        // The temporary name now holds the old directory and is removed with it.
        exchange(folder.path(), directory).map_err(ModelError::io(directory))?;
    } else {
        let folder = folder.keep();
        fs::rename(&folder, directory).map_err(ModelError::io(directory))?;
    }
    // Makes the rename itself durable; not every system can, and the files are safe already.
    let _ = fs::File::open(parent).and_then(|parent| parent.sync_all());
    Ok(())
}

/// Temporary folders and files are private; a model is as readable as the
/// user's other files.
fn make_readable(path: &Path, mode: u32) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    }
    #[cfg(not(unix))]
    let _ = (path, mode);
}

/// Makes a file that others wrote readable, and waits until it is on the disk.
pub(super) fn settle(path: &Path) -> Result<(), ModelError> {
    make_readable(path, 0o644);
    let file = fs::File::open(path).map_err(ModelError::io(path))?;
    file.sync_all().map_err(ModelError::io(path))
}

#[cfg(target_os = "linux")]
fn exchange(a: &Path, b: &Path) -> std::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        // Some file systems cannot exchange.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => exchange_in_two_steps(a, b),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn exchange(a: &Path, b: &Path) -> std::io::Result<()> {
    exchange_in_two_steps(a, b)
}

/// Without an atomic exchange there is a moment in which `b` does not exist, but
/// none in which it is lost.
fn exchange_in_two_steps(a: &Path, b: &Path) -> std::io::Result<()> {
    let aside = a.with_extension("old");
    fs::rename(b, &aside)?;
    fs::rename(a, b)?;
    fs::rename(&aside, a)
}

/// Writes a file and waits until it is on the disk.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    let mut file = fs::File::create(path).map_err(ModelError::io(path))?;
    file.write_all(bytes).map_err(ModelError::io(path))?;
    file.sync_all().map_err(ModelError::io(path))
}

/// Length and checksum of every file in a folder, by name; they are on the disk
/// afterwards.
pub(super) fn checksums(folder: &Path) -> Result<Vec<FileEntry>, ModelError> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(ModelError::io(folder))? {
        let path = entry.map_err(ModelError::io(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        settle(&path)?;
        entries.push(measure(&path, name)?);
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Compares a file with its entry.
pub(super) fn check(folder: &Path, expected: &FileEntry) -> Result<(), ModelError> {
    let path = folder.join(&expected.name);
    let escapes = Path::new(&expected.name).components().count() != 1;
    let found = if escapes { None } else { Some(measure(&path, expected.name.clone())?) };
    if found.as_ref() == Some(expected) {
        return Ok(());
    }
    let say = |entry: &FileEntry| format!("{} bytes with checksum {:08x}", entry.bytes, entry.crc32);
    Err(ModelError::Damaged {
        path,
        expected: say(expected),
        found: found.as_ref().map_or("a name outside the directory".into(), say),
    })
}

fn measure(path: &Path, name: String) -> Result<FileEntry, ModelError> {
    let mut file = fs::File::open(path).map_err(ModelError::io(path))?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let n = file.read(&mut buffer).map_err(ModelError::io(path))?;
        if n == 0 {
            return Ok(FileEntry { name, bytes, crc32: hasher.finalize() });
        }
        hasher.update(&buffer[..n]);
        bytes += n as u64;
    }
}
