//! Examples to text, and the one way any file here is written: to a temporary
//! name in the same folder, synced, then renamed. Whoever looks sees the old
//! file or the whole new one, never a part.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use rayon::prelude::*;

use super::{DataError, Examples};

/// Writes a file atomically; nothing is left behind if `fill` fails.
pub fn atomically(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<(), DataError> {
    let unwritable = |reason| DataError::Unwritable { file: path.display().to_string(), reason };
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".lookalike-");
    #[cfg(unix)]
    {
        // Temporary files are private by default; this one becomes a file like
        // any other, subject to the user's umask.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let temporary = builder.tempfile_in(folder).map_err(unwritable)?;
    let mut writer = BufWriter::with_capacity(1 << 20, temporary.as_file());
    fill(&mut writer).and_then(|()| writer.flush()).map_err(unwritable)?;
    drop(writer);
    temporary.as_file().sync_all().map_err(unwritable)?;
    temporary.persist(path).map_err(|e| unwritable(e.error))?;
    // The rename itself reaches the disk with the folder. Some file systems
    // cannot sync a folder; the file is complete either way.
    #[cfg(unix)]
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
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
    writeln!(out, "{} {} {}", examples.len(), examples.num_features, examples.num_classes)?;
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
}
