//! The one layer under everything that is written or read by position.
//!
//! Whoever makes a file, writes to it, syncs or renames does it here, so that
//! tests can let any of these steps fail: see `faults`. Outside of tests it is a
//! call of the standard library and nothing more.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// What can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Write,
    Sync,
    Rename,
}

/// A file that is written to.
#[derive(Debug)]
pub struct Writer<'a> {
    file: &'a File,
    /// Where it is, for the tests' faults.
    path: &'a Path,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(file: &'a File, path: &'a Path) -> Self {
        Self { file, path }
    }
}

impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..may(Operation::Write, self.path, bytes.len())?];
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Makes an empty file, in the place of one that is there.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    may(Operation::Create, path, 0)?;
    File::create(path)
}

/// Makes a file with this content.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = create(path)?;
    Writer::new(&file, path).write_all(bytes)
}

/// Waits until a file is on the disk.
pub(crate) fn sync(file: &File, path: &Path) -> io::Result<()> {
    may(Operation::Sync, path, 0)?;
    file.sync_all()
}

/// Makes the names in a folder durable. Not every system can; the files themselves
/// are safe there, and nothing more can be had.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    may(Operation::Sync, folder, 0)?;
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error) if [InvalidInput, PermissionDenied, Unsupported].contains(&error.kind()) => Ok(()),
        done => done,
    }
}

/// Gives a file or folder another name.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    may(Operation::Rename, to, 0)?;
    std::fs::rename(from, to)
}

/// Whether an operation may go on, and with how many of `bytes` bytes.
#[cfg(not(test))]
#[inline]
pub(crate) fn may(_: Operation, _: &Path, bytes: usize) -> io::Result<usize> {
    Ok(bytes)
}

#[cfg(test)]
pub(crate) use faults::may;

/// Fills `bytes` from a place of a file, whatever others read of it.
pub(crate) fn read_at(file: &File, bytes: &mut [u8], place: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, bytes, place);
    #[cfg(not(unix))]
    {
        use std::io::{Read, Seek, SeekFrom};
        // A file has one place to read from, and threads read pieces of it.
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut file = file;
        file.seek(SeekFrom::Start(place))?;
        file.read_exact(bytes)
    }
}

/// Faults that tests inject.
#[cfg(test)]
pub(crate) mod faults {
    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;

    use super::Operation;

    /// What happens instead.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fault {
        /// A write takes only the first half; no error.
        Short,
        /// The first half, then no space: all later writes fail too.
        Full,
        /// The device fails once.
        Broken,
    }

    #[derive(Debug)]
    struct Plan {
        folder: PathBuf,
        operation: Operation,
        fault: Fault,
        /// Operations that still go well.
        left: usize,
        struck: usize,
    }

    static PLANS: Mutex<Vec<Plan>> = Mutex::new(Vec::new());

    /// A fault below a folder, until it is dropped. Tests run side by side, each in a
    /// folder of its own.
    pub(crate) struct Injected(PathBuf);

    impl Injected {
        /// Lets the operation number `left` (from 0) below `folder` fail.
        pub(crate) fn new(folder: &Path, operation: Operation, fault: Fault, left: usize) -> Self {
            let plan = Plan { folder: folder.into(), operation, fault, left, struck: 0 };
            PLANS.lock().unwrap().push(plan);
            Self(folder.into())
        }

        /// Whether it came to it.
        pub(crate) fn has_struck(&self) -> bool {
            PLANS.lock().unwrap().iter().any(|plan| plan.folder == self.0 && plan.struck > 0)
        }
    }

    impl Drop for Injected {
        fn drop(&mut self) {
            PLANS.lock().unwrap().retain(|plan| plan.folder != self.0);
        }
    }

    pub(crate) fn may(operation: Operation, path: &Path, bytes: usize) -> io::Result<usize> {
        let mut plans = PLANS.lock().unwrap();
        let concerns = |plan: &&mut Plan| plan.operation == operation && path.starts_with(&plan.folder);
        let Some(plan) = plans.iter_mut().find(concerns) else { return Ok(bytes) };
        if plan.left > 0 {
            plan.left -= 1;
            return Ok(bytes);
        }
        plan.struck += 1;
        match (plan.fault, plan.struck) {
            (Fault::Short | Fault::Full, 1) if bytes > 1 => Ok(bytes / 2),
            (Fault::Full, _) => Err(io::Error::from_raw_os_error(28)),
            (Fault::Broken, 1) => Err(io::Error::from_raw_os_error(5)),
            _ => Ok(bytes),
        }
    }
}
