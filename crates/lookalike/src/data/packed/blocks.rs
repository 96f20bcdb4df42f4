//! A packed file made of blocks of examples, as they come.
//!
//! Where a section begins follows from the counts of all examples, which nobody knows
//! before the last one. So each section first grows in a file of its own: without a name, so
//! that a crash leaves nothing, and in the folder of the file to be. At the end they are
//! copied behind the header. The bytes are those of [`to_packed`](super::to_packed).
//!
//! Memory: the block that is added and a buffer, whatever the number of examples. Disk: the
//! packed file twice, until it is there.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::{PackedCounts, hasher, padding};
use crate::data::write::{Writer, atomically, scratch_file};
use crate::data::{DataError, Examples};

/// Bytes that are shifted or copied at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// A packed file that grows block by block and appears when it is finished.
#[derive(Debug)]
pub struct PackedWriter {
    path: PathBuf,
    counts: PackedCounts,
    sections: [Section; 5],
}

/// A section as far as it is known.
#[derive(Debug)]
struct Section {
    file: File,
    bytes: u64,
    checksum: crc32fast::Hasher,
}

impl PackedWriter {
    /// Begins a file. Nothing is to be seen of it at `path` until it is finished.
    pub fn new(path: &Path) -> Result<Self, DataError> {
        let section = || -> Result<Section, DataError> {
            let file = scratch_file(path)?;
            Ok(Section { file, bytes: 0, checksum: crc32fast::Hasher::new() })
        };
        let sections = [section()?, section()?, section()?, section()?, section()?];
        let mut writer = Self { path: path.into(), counts: PackedCounts::default(), sections };
        writer.append(0, &[0; 8])?;
        writer.append(3, &[0; 8])?;
        Ok(writer)
    }

    /// Adds examples behind the others. The file has the sizes of the largest block.
    pub fn push(&mut self, examples: Examples<'_>) -> Result<(), DataError> {
        self.append_offsets(0, examples.feature_offsets, self.counts.feature_entries)?;
        self.append(1, bytemuck::cast_slice(examples.feature_ids))?;
        self.append(2, bytemuck::cast_slice(examples.feature_values))?;
        self.append_offsets(3, examples.label_offsets, self.counts.label_entries)?;
        self.append(4, bytemuck::cast_slice(examples.label_ids))?;
        let counts = &mut self.counts;
        counts.examples += examples.len() as u64;
        counts.feature_entries += examples.feature_ids.len() as u64;
        counts.label_entries += examples.label_ids.len() as u64;
        counts.features = counts.features.max(examples.num_features as u64);
        counts.classes = counts.classes.max(examples.num_classes as u64);
        Ok(())
    }

    /// Examples so far.
    pub fn num_examples(&self) -> u64 {
        self.counts.examples
    }

    /// The numbers of features and classes so far.
    pub fn sizes(&self) -> (u64, u64) {
        (self.counts.features, self.counts.classes)
    }

    /// Puts the file into its place, atomically.
    pub fn finish(self) -> Result<(), DataError> {
        let Self { path, counts, mut sections } = self;
        let checksums = sections.each_ref().map(|section| section.checksum.clone().finalize());
        atomically(&path, |out| {
            out.write_all(bytemuck::cast_slice(&counts.header(checksums)))?;
            sections.iter_mut().try_for_each(|section| section.copy_to(out))
        })
    }

    /// Offsets behind `entries` entries; the first one is the last of the block before.
    fn append_offsets(&mut self, section: usize, offsets: &[u64], entries: u64) -> Result<(), DataError> {
        let Some((_, offsets)) = offsets.split_first() else { return Ok(()) };
        offsets.chunks(BUFFER_BYTES / 8).try_for_each(|offsets| {
            let shifted: Vec<u64> = offsets.iter().map(|offset| entries + offset).collect();
            self.append(section, bytemuck::cast_slice(&shifted))
        })
    }

    fn append(&mut self, section: usize, bytes: &[u8]) -> Result<(), DataError> {
        let Section { file, bytes: length, checksum } = &mut self.sections[section];
        let written = Writer::new(file, &self.path).write_all(bytes);
        written.map_err(|reason| DataError::Unwritable { file: self.path.display().to_string(), reason })?;
        *length += bytes.len() as u64;
        checksum.combine(&hasher(bytes));
        Ok(())
    }
}

impl Section {
    fn copy_to(&mut self, out: &mut BufWriter<Writer<'_>>) -> io::Result<()> {
        self.file.rewind()?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut left = self.bytes;
        while left > 0 {
            let piece = &mut buffer[..left.min(BUFFER_BYTES as u64) as usize];
            self.file.read_exact(piece)?;
            out.write_all(piece)?;
            left -= piece.len() as u64;
        }
        out.write_all(padding(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::packed::to_packed;
    use crate::data::{Dataset, Packed};
    use crate::disk::Operation;
    use crate::disk::faults::{Fault, Injected};

    /// Examples of every shape; the numbers of features and classes grow.
    fn blocks() -> Vec<Dataset> {
        let block = |first: u32, count: u32| {
            let mut block = Dataset::empty(first as usize + 40, first as usize / 2 + 9);
            for i in first..first + count {
                let features = (0..i % 5).map(|f| (i % 7 + f * 3, i as f32 - 0.5));
                let labels: &[u32] = if i % 3 == 0 { &[] } else { &[1, 4] };
                block.push(features, labels);
            }
            block
        };
        vec![block(0, 0), block(0, 1), block(1, 300), block(301, 0), block(301, 17)]
    }

    fn write(path: &Path) -> Result<(), DataError> {
        let mut writer = PackedWriter::new(path)?;
        blocks().iter().try_for_each(|block| writer.push(block.view()))?;
        writer.finish()
    }

    #[test]
    fn blocks_give_the_bytes_of_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.lkp");
        for count in 0..=blocks().len() {
            let blocks = &blocks()[..count];
            let mut writer = PackedWriter::new(&path).unwrap();
            blocks.iter().for_each(|block| writer.push(block.view()).unwrap());
            let whole = Dataset::concat(blocks);
            assert_eq!(writer.num_examples(), whole.view().len() as u64);
            writer.finish().unwrap();
            let mut expected = Vec::new();
            to_packed(whole.view(), &mut expected).unwrap();
            assert!(std::fs::read(&path).unwrap() == expected, "{count} blocks");
        }
        assert_eq!(Packed::open(&path).unwrap().view().len(), 318);
    }

    /// Whatever step fails, the old file is there, whole, and nothing else.
    #[test]
    fn a_failing_disk_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.lkp");
        let mut struck = 0;
        for operation in [Operation::Create, Operation::Write, Operation::Sync, Operation::Rename] {
            for fault in [Fault::Short, Fault::Full, Fault::Broken] {
                for left in 0.. {
                    std::fs::write(&path, "old").unwrap();
                    let fault = Injected::new(folder.path(), operation, fault, left);
                    let written = write(&path);
                    if !fault.has_struck() {
                        break;
                    }
                    struck += 1;
                    drop(fault);
                    match written {
                        Ok(()) => drop(Packed::open(&path).unwrap()),
                        Err(error) => {
                            assert!(error.to_string().contains("data.lkp"), "{error}");
                            // A folder that can't be synced has the new name already.
                            let is_old = std::fs::read(&path).unwrap() == b"old";
                            assert!(is_old || Packed::open(&path).is_ok());
                        }
                    }
                    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
                }
            }
        }
        assert!(struck > 60, "{struck}");
    }
}
