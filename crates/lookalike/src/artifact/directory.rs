//! Writing a whole directory in one step, and checking what is in it.
//!
//! The new directory is made in a folder [`aside`], synced, and exchanged for the
//! old one, so that whoever looks, at any moment and after any crash, finds the
//! old model or the new one. Of the old directory only what a model's
//! `config.json` lists is removed, by name; all else is the user's and is moved
//! into the new one. The cost is that of writing the files and reading them once.

mod aside;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Deserialize;

use super::snapshot::Snapshot;
use super::{CONFIG_FILE, FORMAT_NAME, FileEntry, ModelError};
use crate::data::write::{follow_links, make_like, or_here, probe_nearest};
use crate::disk;
use aside::Aside;

/// Whether a model can be saved to `directory`, found out without changing
/// anything: to be asked before training, not after it.
pub fn check_destination(directory: &Path) -> Result<(), ModelError> {
    let destination = Destination::of(directory)?;
    let path = destination.path();
    if destination.old()?.is_some() {
        // Protected from changes means protected from us.
        probe_nearest(&path).map_err(ModelError::io(&path))?;
    }
    probe_nearest(&destination.parent).map_err(ModelError::io(&path))
}

/// A directory that is being written, beside the one it replaces. What is there must
/// be a model of ours or an empty folder; its mode stays, and so do files in it that
/// are not ours. If anything fails it is left as it was.
#[derive(Debug)]
pub(super) struct Replacement {
    aside: Aside,
    old: Option<Metadata>,
}

impl Replacement {
    pub(super) fn begin(directory: &Path) -> Result<Self, ModelError> {
        let destination = Destination::of(directory)?;
        fs::create_dir_all(&destination.parent).map_err(ModelError::io(&destination.parent))?;
        aside::put_right(&destination);
        let old = destination.old()?;
        Ok(Self { aside: Aside::new(destination)?, old })
    }

    /// The folder to write to.
    pub(super) fn folder(&self) -> PathBuf {
        self.aside.writing()
    }

    /// What other ranks find that folder by: see [`folder_of`].
    pub(super) fn name(&self) -> String {
        self.aside.name()
    }

    /// Waits until all is on the disk, and puts it in place.
    pub(super) fn finish(self) -> Result<(), ModelError> {
        let Self { aside, old } = self;
        settle(&aside, old.as_ref())?;
        aside.put_in_place(old.is_some())
    }
}

/// The folder to write to that a rank has made for this directory.
pub(super) fn folder_of(directory: &Path, name: &str) -> Result<PathBuf, ModelError> {
    Ok(aside::writing_in(&Destination::of(directory)?.parent.join(name)))
}

/// Puts a model in its place that a dying process left beside it. False if none is
/// there then, nor on its way by a living one.
pub(super) fn restore(directory: &Path) -> bool {
    let Ok(destination) = Destination::of(directory) else { return false };
    aside::put_right(&destination);
    destination.path().exists() || aside::is_on_its_way(&destination)
}

/// Puts in their places, or removes, all directories that dead processes left in a folder.
pub(super) fn restore_all(folder: &Path) {
    for name in aside::left_in(folder) {
        aside::put_right(&Destination { parent: folder.into(), name });
    }
}

/// Where a directory goes: links are followed, so that a link stays one.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) parent: PathBuf,
    name: OsString,
}

impl Destination {
    pub(super) fn of(directory: &Path) -> Result<Self, ModelError> {
        let real = follow_links(directory).map_err(ModelError::io(directory))?;
        match (real.parent(), real.file_name()) {
            (Some(parent), Some(name)) => Ok(Self { parent: or_here(parent).into(), name: name.into() }),
            _ => Err(unsuitable(directory, "it is exchanged as a whole, and this is no name")),
        }
    }

    fn path(&self) -> PathBuf {
        // Messages name it as the user did.
        if self.parent == Path::new(".") { (&self.name).into() } else { self.parent.join(&self.name) }
    }

    /// A name beside it that begins so.
    pub(super) fn beside(&self, prefix: &str) -> PathBuf {
        let mut name = OsString::from(prefix);
        name.push(&self.name);
        self.parent.join(name)
    }

    /// Its own name with an ending, and a number if that is taken.
    pub(super) fn free_name(&self, ending: &str) -> PathBuf {
        aside::free_name(&self.path(), ending)
    }

    /// What is there, if it may be replaced.
    fn old(&self) -> Result<Option<Metadata>, ModelError> {
        let path = self.path();
        let old = match fs::metadata(&path) {
            Ok(old) => old,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ModelError::io(&path)(error)),
        };
        if !old.is_dir() {
            return Err(unsuitable(&path, "it is no folder"));
        }
        if is_mount_point(&old, &self.parent) {
            return Err(unsuitable(&path, "a disk is mounted there"));
        }
        let mut entries = fs::read_dir(&path).map_err(ModelError::io(&path))?;
        if entries.next().is_some() && files_of_model(&path).is_none() {
            return Err(ModelError::WouldOverwrite { directory: path });
        }
        Ok(Some(old))
    }
}

fn unsuitable(directory: &Path, why: &'static str) -> ModelError {
    ModelError::Unsuitable { directory: directory.into(), why }
}

#[cfg(unix)]
fn is_mount_point(directory: &Metadata, parent: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(parent).is_ok_and(|parent| parent.dev() != directory.dev())
}

#[cfg(not(unix))]
fn is_mount_point(_: &Metadata, _: &Path) -> bool {
    false
}

/// A folder may hold anyone's `config.json`, of any size.
pub(super) const CONFIG_BYTES_MAX: u64 = 64 << 20;

/// Just enough of `config.json` to know the files.
#[derive(Deserialize)]
pub(super) struct Listing {
    pub(super) format: String,
    #[serde(default)]
    pub(super) files: Vec<FileEntry>,
}

/// The files that are ours in a model directory, `config.json` last; none if it
/// is no model directory of ours.
pub(super) fn files_of_model(directory: &Path) -> Option<Vec<PathBuf>> {
    let path = directory.join(CONFIG_FILE);
    if !fs::metadata(&path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    fs::File::open(&path).ok()?.take(CONFIG_BYTES_MAX).read_to_string(&mut text).ok()?;
    let listing: Listing = serde_json::from_str(&text).ok().filter(|l: &Listing| l.format == FORMAT_NAME)?;
    let within = listing.files.into_iter().filter(|file| !escapes(&file.name));
    Some(within.map(|file| directory.join(file.name)).chain([path]).collect())
}

/// Whether a name in `config.json` leads out of the directory.
pub(super) fn escapes(name: &str) -> bool {
    Path::new(name).file_name() != Some(name.as_ref())
}

/// Gives new files the mode and owner of those they replace, or else what the
/// user's files have, and waits until all is on the disk.
fn settle(aside: &Aside, old: Option<&Metadata>) -> Result<(), ModelError> {
    let (folder, usual, directory) = (aside.writing(), aside.usual_file(), aside.destination().path());
    for entry in fs::read_dir(&folder).map_err(ModelError::io(&folder))? {
        let path = entry.map_err(ModelError::io(&folder))?.path();
        let replaced = path.file_name().and_then(|name| fs::metadata(directory.join(name)).ok());
        if let Some(like) = replaced.as_ref().filter(|replaced| replaced.is_file()).or(usual.as_ref()) {
            make_like(like, &path);
        }
        let file = fs::File::open(&path).map_err(ModelError::io(&path))?;
        disk::sync(&file, &path).map_err(ModelError::io(&path))?;
    }
    if let Some(old) = old {
        make_like(old, &folder);
    }
    disk::sync_folder(&folder).map_err(ModelError::io(&folder))
}

/// Length and checksum of every file in a folder, by name; those of some are known.
pub(super) fn checksums(folder: &Path, known: Vec<FileEntry>) -> Result<Vec<FileEntry>, ModelError> {
    let mut entries = known;
    for entry in fs::read_dir(folder).map_err(ModelError::io(folder))? {
        let path = entry.map_err(ModelError::io(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if entries.iter().all(|known| known.name != name) {
            let file = fs::File::open(&path).map_err(ModelError::io(&path))?;
            entries.push(measure(&file, name).map_err(ModelError::io(&path))?);
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Length and checksum of a file that was written, when it is on the disk.
pub(super) fn measured_and_synced(path: &Path) -> Result<FileEntry, ModelError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let file = fs::File::open(path).map_err(ModelError::io(path))?;
    disk::sync(&file, path).and_then(|()| measure(&file, name)).map_err(ModelError::io(path))
}

/// Compares a file with its entry.
pub(super) fn check(snapshot: &Snapshot, expected: &FileEntry) -> Result<(), ModelError> {
    let path = snapshot.path(&expected.name);
    let found = match escapes(&expected.name) {
        true => None,
        false => {
            let file = snapshot.file(&expected.name)?;
            Some(measure(file, expected.name.clone()).map_err(ModelError::io(&path))?)
        }
    };
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

/// Bytes that one thread sums up at a time.
const PIECE: u64 = 1 << 20;

fn measure(file: &fs::File, name: String) -> std::io::Result<FileEntry> {
    let bytes = file.metadata()?.len();
    let sum = |buffer: &mut Vec<u8>, piece: u64| {
        let part = &mut buffer[..(bytes - piece * PIECE).min(PIECE) as usize];
        disk::read_at(file, part, piece * PIECE)?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(part);
        Ok(hasher)
    };
    let pieces = (0..bytes.div_ceil(PIECE)).into_par_iter();
    let sums = pieces.map_init(|| vec![0; PIECE as usize], sum).collect::<std::io::Result<Vec<_>>>()?;
    let mut all = crc32fast::Hasher::new();
    sums.iter().for_each(|sum| all.combine(sum));
    Ok(FileEntry { name, bytes, crc32: all.finalize() })
}
