//! A model directory as it is at one moment, whoever replaces it meanwhile.
//!
//! A directory is exchanged as a whole and its files are never changed, only
//! removed. So its files belong together if all were opened through one and the
//! same open directory; what is open can't be taken away any more. Should a file
//! be gone because another save came between, the directory that is there now is
//! opened instead. Nothing is mapped: a file that is cut by others is an error.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::directory::{self, CONFIG_BYTES_MAX, Listing, escapes};
use super::{CONFIG_FILE, FORMAT_NAME, ModelError};
use crate::disk;

/// Others may come between so often.
const TRIES: usize = 1000;

/// The open files of a model directory.
#[derive(Debug)]
pub(super) struct Snapshot {
    directory: PathBuf,
    config: Vec<u8>,
    files: Vec<(String, io::Result<File>)>,
}

impl Snapshot {
    pub(super) fn open(directory: &Path) -> Result<Self, ModelError> {
        for _ in 0..TRIES {
            if let Some(snapshot) = Self::try_open(directory)? {
                return Ok(snapshot);
            }
            std::thread::yield_now();
        }
        let source = io::Error::other("others save to it all the time");
        Err(ModelError::Io { path: directory.into(), source })
    }

    /// None if the directory was replaced while it was opened.
    fn try_open(directory: &Path) -> Result<Option<Self>, ModelError> {
        let not_a_model = || ModelError::NotAModel { directory: directory.into() };
        let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let folder = match Folder::open(directory) {
            Err(error) if is_missing(&error) => {
                if directory::restore(directory) {
                    return Ok(None);
                }
                return Err(not_a_model());
            }
            folder => folder.map_err(ModelError::io(directory))?,
        };
        let path = directory.join(CONFIG_FILE);
        let config = match folder.file(CONFIG_FILE).and_then(|file| read_whole(&file, CONFIG_BYTES_MAX)) {
            Err(error) if is_missing(&error) => {
                return if folder.is_at(directory) { Err(not_a_model()) } else { Ok(None) };
            }
            config => config.map_err(ModelError::io(&path))?,
        };
        let listing: Listing = serde_json::from_slice(&config)
            .map_err(|source| ModelError::Config { path: path.clone(), source })?;
        if listing.format != FORMAT_NAME {
            return Err(not_a_model());
        }
        let names = listing.files.into_iter().map(|entry| entry.name).filter(|name| !escapes(name));
        let files: Vec<_> = names.map(|name| (folder.file(&name), name)).map(|(f, n)| (n, f)).collect();
        let is_whole = !files.iter().any(|(_, file)| file.as_ref().is_err_and(is_missing));
        // A file that is missing where nobody replaced anything is told when it is needed.
        Ok((is_whole || folder.is_at(directory)).then(|| Self { directory: directory.into(), config, files }))
    }

    /// Where it was.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// What `config.json` holds.
    pub(super) fn config(&self) -> &[u8] {
        &self.config
    }

    /// Where a file was, for messages.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A file that `config.json` lists.
    pub(super) fn file(&self, name: &str) -> Result<&File, ModelError> {
        let path = self.path(name);
        match self.files.iter().find(|(found, _)| found == name) {
            Some((_, Ok(file))) => Ok(file),
            Some((_, Err(error))) => Err(ModelError::Io { path, source: copy_of(error) }),
            None => Err(ModelError::Damaged {
                path: self.path(CONFIG_FILE),
                expected: format!("{name} among its files"),
                found: "none".into(),
            }),
        }
    }

    /// The bytes of a file, for readers that name it by its path.
    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let name = path.file_name().unwrap_or_default();
        match self.files.iter().find(|(found, _)| name == found.as_str()) {
            Some((_, Ok(file))) => read_whole(file, u64::MAX),
            Some((_, Err(error))) => Err(copy_of(error)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

fn read_whole(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    if length > most {
        return Err(io::Error::other(format!("{length} bytes, where at most {most} are expected")));
    }
    let mut bytes = vec![0; length as usize];
    disk::read_at(file, &mut bytes, 0)?;
    Ok(bytes)
}

/// An open directory.
struct Folder {
    #[cfg(unix)]
    file: File,
    #[cfg(not(unix))]
    path: PathBuf,
}

#[cfg(unix)]
impl Folder {
    fn open(path: &Path) -> io::Result<Self> {
        use rustix::fs::{CWD, Mode, OFlags, openat};
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { file: openat(CWD, path, flags, Mode::empty())?.into() })
    }

    /// Opens a file in it. Whoever put a pipe or a device there does not make us wait.
    fn file(&self, name: &str) -> io::Result<File> {
        use rustix::fs::{Mode, OFlags, openat};
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: File = openat(&self.file, name, flags, Mode::empty())?.into();
        regular(file)
    }

    /// Whether it is what the path leads to now.
    fn is_at(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let place = |found: std::fs::Metadata| (found.dev(), found.ino());
        let (own, there) = (self.file.metadata().map(place), std::fs::metadata(path).map(place));
        own.is_ok_and(|own| there.is_ok_and(|there| own == there))
    }
}

#[cfg(not(unix))]
impl Folder {
    fn open(path: &Path) -> io::Result<Self> {
        std::fs::metadata(path).map(|_| Self { path: path.into() })
    }

    fn file(&self, name: &str) -> io::Result<File> {
        regular(File::open(self.path.join(name))?)
    }

    fn is_at(&self, _: &Path) -> bool {
        true
    }
}

fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a file, but a folder, a pipe or a device")),
    }
}
