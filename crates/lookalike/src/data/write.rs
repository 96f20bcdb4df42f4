//! Examples to text, and the one way any file here is written: to a temporary
//! name in the same folder, synced, then renamed. Whoever looks sees the old
//! file or the whole new one, never a part. A new file has the mode of the one
//! it replaces, a link stays a link, and a device or pipe is written to.

mod destination;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use rayon::prelude::*;

use super::{DataError, Examples};
pub use crate::disk::Writer;
use crate::disk::{self, Operation};
pub use destination::{check_file, check_folder};
use destination::{folder_of, is_stream, unwritable};
pub(crate) use destination::{follow_links, make_like, or_here, probe_nearest};

/// Writes a file atomically; nothing is left behind if `fill` fails.
pub fn atomically(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<Writer<'_>>) -> io::Result<()>,
) -> Result<(), DataError> {
    let written = if is_stream(path) { directly(path, fill) } else { by_renaming(path, fill) };
    written.map_err(unwritable(path))
}

fn by_renaming(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<Writer<'_>>) -> io::Result<()>,
) -> io::Result<()> {
    let path = &follow_links(path)?;
    let folder = folder_of(path);
    let mut builder = tempfile::Builder::new();
    builder.prefix(".lookalike-");
    #[cfg(unix)]
    {
        // Temporary files are private by default; this one becomes a file like
        // any other, subject to the user's umask.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    disk::may(Operation::Create, path, 0)?;
    let temporary = builder.tempfile_in(folder)?;
    let mut writer = BufWriter::with_capacity(1 << 20, Writer::new(temporary.as_file(), path));
    fill(&mut writer).and_then(|()| writer.flush())?;
    drop(writer);
    if let Ok(old) = fs::metadata(path) {
        make_like(&old, temporary.path());
    }
    disk::sync(temporary.as_file(), path)?;
    disk::may(Operation::Rename, path, 0)?;
    temporary.persist(path).map_err(|e| e.error)?;
    // The rename itself reaches the disk with the folder.
    disk::sync_folder(folder)
}

/// A file without a name, to grow what will be at `path`: on the same disk, or where what
/// is there takes bytes as they come, in the system's folder for such files.
pub(super) fn scratch_file(path: &Path) -> Result<File, DataError> {
    let make = || {
        if is_stream(path) {
            return tempfile::tempfile();
        }
        let path = &follow_links(path)?;
        disk::may(Operation::Create, path, 0)?;
        tempfile::tempfile_in(folder_of(path))
    };
    make().map_err(unwritable(path))
}

fn directly(path: &Path, fill: impl FnOnce(&mut BufWriter<Writer<'_>>) -> io::Result<()>) -> io::Result<()> {
    // At the end, where standard output goes to a file.
    let file = File::options().append(true).open(path)?;
    let mut writer = BufWriter::with_capacity(1 << 20, Writer::new(&file, path));
    fill(&mut writer)?;
    writer.flush()
}

/// Examples that one task turns into text.
const BLOCK: usize = 1024;
/// Blocks in memory at a time: what bounds the memory of writing.
const BLOCKS_AT_ONCE: usize = 64;

/// Writes examples in the Extreme Classification format, with a header. Values
/// have the fewest digits that read back as the same f32.
pub fn write_text(path: &Path, examples: Examples<'_>) -> Result<(), DataError> {
    atomically(path, |out| to_text(examples, out))
}

/// The text of [`write_text`], to any writer.
pub fn to_text(examples: Examples<'_>, out: &mut impl Write) -> io::Result<()> {
    text_header(examples.len() as u64, (examples.num_features, examples.num_classes), out)?;
    text_rows(examples, out)
}

/// The first line of a file of so many examples, of these numbers of features and classes.
pub fn text_header(
    examples: u64,
    (features, classes): (usize, usize),
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{examples} {features} {classes}")
}

/// The lines of some examples.
pub fn text_rows(examples: Examples<'_>, out: &mut impl Write) -> io::Result<()> {
    let starts: Vec<usize> = (0..examples.len()).step_by(BLOCK).collect();
    for starts in starts.chunks(BLOCKS_AT_ONCE) {
        let blocks: Vec<Vec<u8>> = starts
            .par_iter()
            .map(|&start| {
                let mut text = Vec::new();
                for example in start..(start + BLOCK).min(examples.len()) {
                    push_row(&mut text, examples, example);
                }
                text
            })
            .collect();
        for block in blocks {
            out.write_all(&block)?;
        }
    }
    Ok(())
}

/// A row without labels starts with a space, as the format wants it.
fn push_row(text: &mut Vec<u8>, examples: Examples<'_>, example: usize) {
    let labels = examples.labels(example);
    for (i, &label) in labels.iter().enumerate() {
        if i > 0 {
            text.push(b',');
        }
        push_number(text, label);
    }
    if labels.is_empty() {
        text.push(b' ');
    }
    let (ids, values) = examples.features(example);
    for (i, (&id, &value)) in ids.iter().zip(values).enumerate() {
        if i > 0 || !labels.is_empty() {
            text.push(b' ');
        }
        push_number(text, id);
        text.push(b':');
        // Display of f32 is the shortest decimal that reads back the same.
        write!(text, "{value}").expect("memory takes everything");
    }
    text.push(b'\n');
}

fn push_number(text: &mut Vec<u8>, mut number: u32) {
    let mut digits = [0; 10];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;

    fn text_of(data: &Dataset) -> String {
        let mut out = Vec::new();
        to_text(data.view(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_of_every_shape_are_spelled_as_the_format_wants() {
        let mut data = Dataset::empty(4_294_967_295, 9);
        data.push([(0, 0.1), (7, -2.0), (4_294_967_294, 1e-7)], &[0, 8]);
        data.push([(3, 1.0)], &[]);
        data.push([], &[2]);
        data.push([], &[]);
        assert_eq!(text_of(&data), "4 4294967295 9\n0,8 0:0.1 7:-2 4294967294:0.0000001\n 3:1\n2\n \n");
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.txt");
        std::fs::write(&path, "old").unwrap();
        let failed = atomically(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("no space"))
        });
        assert!(failed.unwrap_err().to_string().contains("cannot be written: no space"));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        atomically(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        let absent = folder.path().join("no folder").join("data.txt");
        assert!(matches!(atomically(&absent, |_| Ok(())), Err(DataError::Unwritable { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_links_and_modes_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let [file, link, later] = ["file", "link", "later"].map(|name| folder.path().join(name));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("link-to-link", &link).unwrap();
        symlink("file", folder.path().join("link-to-link")).unwrap();
        atomically(&link, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("link-to-link"));
        assert!(fs::symlink_metadata(&file).unwrap().is_file());
        assert_eq!((fs::read(&file).unwrap(), mode(&file)), (b"new".to_vec(), 0o640));
        // What is not there yet.
        symlink("later", folder.path().join("early")).unwrap();
        atomically(&folder.path().join("early"), |out| out.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&later).unwrap().is_file());
        // A new file is as readable as any.
        fs::write(folder.path().join("usual"), "").unwrap();
        assert_eq!(mode(&later), mode(&folder.path().join("usual")));
        // For ever in a circle.
        symlink("circle", folder.path().join("circle")).unwrap();
        let failed = atomically(&folder.path().join("circle"), |_| Ok(()));
        assert!(failed.unwrap_err().to_string().contains("links"));
    }

    #[cfg(unix)]
    #[test]
    fn pipes_and_devices_are_written_to_and_stay() {
        use std::os::unix::fs::FileTypeExt;
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        atomically(&pipe, |out| out.write_all(b"through")).unwrap();
        // First: who replaces pipes must not get at the machine's devices below.
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(reader.join().unwrap(), b"through");
        let failed = atomically(Path::new("/dev/full"), |out| out.write_all(b"too much")).unwrap_err();
        assert!(failed.to_string().contains("No space left"), "{failed}");
        atomically(Path::new("/dev/null"), |out| out.write_all(b"gone")).unwrap();
        for device in ["/dev/full", "/dev/null"] {
            assert!(fs::metadata(device).unwrap().file_type().is_char_device());
        }
    }
}
