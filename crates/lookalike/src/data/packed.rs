//! The packed format: the arrays of [`Examples`] as they are in memory, so a
//! mapped file is ready at once.
//!
//! Little-endian throughout. A header of 16 words of 64 bits:
//!
//! | word | holds |
//! |---|---|
//! | 0 | the magic bytes `LOOKPACK` |
//! | 1 | the format version, 1 |
//! | 2, 3, 4 | examples, feature entries, label entries |
//! | 5, 6 | features, classes |
//! | 7 … 11 | CRC-32 of each section |
//! | 12, 13, 14 | zero |
//! | 15 | CRC-32 of words 0 … 14 |
//!
//! Then five sections, each at a multiple of 64 bytes with zeroes between:
//! feature offsets (u64), feature ids (u32), feature values (f32), label
//! offsets (u64), label ids (u32). Where a section lies follows from the counts
//! alone, so there are no stored offsets that could disagree with them.
//!
//! A file can come from anywhere. Opening checks the header's checksum, the
//! exact length, the whole law of [`Examples`] and the checksum of every section:
//! two passes at the speed of memory; nothing is ever allocated by a number in the
//! file. A file of up to [`READ_BYTES_MAX`], and of a quarter of the memory that the
//! process may have, is read into memory, so that others may do with it what they like; a
//! larger one is mapped, and must be left alone while it is used.

mod blocks;

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use lookalike_mapped::{Buffer, MappedFile, can_reserve};
use rayon::prelude::*;

use super::error::{DataError, ID_LIMIT, PackedProblem};
use super::write::atomically;
use super::{Examples, ReadOptions};
pub use blocks::PackedWriter;

/// The first bytes of every packed file.
pub const MAGIC: &[u8; 8] = b"LOOKPACK";
/// The version that this program writes and reads.
pub const VERSION: u64 = 1;

/// Larger files are used in place: they need not fit into memory.
pub const READ_BYTES_MAX: u64 = 1 << 30;

/// A file that is read leaves room for the model and all else: so many times its length
/// must be there.
const ROOM: usize = 4;

const HEADER_WORDS: usize = 16;
const HEADER_BYTES: usize = HEADER_WORDS * 8;
const ALIGNMENT: usize = 64;
const SECTIONS: [&str; 5] =
    ["feature offsets", "feature ids", "feature values", "label offsets", "label ids"];

// Sections are used in place, so the machine's order of bytes must be the file's.
const _: () = assert!(cfg!(target_endian = "little"), "packed files need a little-endian machine");

/// How many of everything: the part of the header that the rest follows from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PackedCounts {
    examples: u64,
    feature_entries: u64,
    label_entries: u64,
    features: u64,
    classes: u64,
}

impl PackedCounts {
    /// Where the sections lie, and the file's length; `None` if that is past
    /// what memory can address.
    fn layout(&self) -> Option<([Range<usize>; 5], usize)> {
        let offsets = self.examples.checked_add(1)?.checked_mul(8)?;
        let features = self.feature_entries.checked_mul(4)?;
        let labels = self.label_entries.checked_mul(4)?;
        let mut at = HEADER_BYTES;
        let mut sections = [const { 0..0 }; 5];
        for (section, bytes) in sections.iter_mut().zip([offsets, features, features, offsets, labels]) {
            let end = at.checked_add(usize::try_from(bytes).ok()?)?;
            *section = at..end;
            at = end.checked_next_multiple_of(ALIGNMENT)?;
        }
        Some((sections, at))
    }

    /// The first bytes of a file with these checksums of its sections.
    fn header(&self, checksums: [u32; 5]) -> [u64; HEADER_WORDS] {
        let mut header = [0u64; HEADER_WORDS];
        header[0] = u64::from_le_bytes(*MAGIC);
        header[1] = VERSION;
        let Self { examples, feature_entries, label_entries, features, classes } = *self;
        header[2..7].copy_from_slice(&[examples, feature_entries, label_entries, features, classes]);
        header[7..12].copy_from_slice(&checksums.map(u64::from));
        header[15] = crc32fast::hash(bytemuck::cast_slice(&header[..HEADER_WORDS - 1])).into();
        header
    }
}

/// A packed file, checked.
#[derive(Debug)]
pub struct Packed {
    file: String,
    bytes: Bytes,
    sections: [Range<usize>; 5],
    checksums: [u64; 5],
    num_features: usize,
    num_classes: usize,
}

/// Where the file's bytes are.
#[derive(Debug)]
enum Bytes {
    Read(Buffer<u8>),
    Mapped(MappedFile),
}

impl Bytes {
    /// Reads a small file; a large one stays mapped.
    fn of(map: MappedFile) -> io::Result<Self> {
        let length = map.bytes().len();
        let leaves_room = can_reserve(length.saturating_mul(ROOM));
        if length as u64 > READ_BYTES_MAX || !leaves_room {
            return Ok(Self::Mapped(map));
        }
        let mut bytes = Buffer::zeroed(length);
        map.read_into(&mut bytes)?;
        Ok(Self::Read(bytes))
    }

    fn all(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Mapped(map) => map.bytes(),
        }
    }
}

impl Packed {
    /// Opens the file and checks that its content obeys the law of [`Examples`].
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let file = path.display().to_string();
        let map =
            MappedFile::open(path).map_err(|reason| DataError::Unreadable { file: file.clone(), reason })?;
        Self::from_map(file, map, &ReadOptions::default())
    }

    pub(super) fn from_map(file: String, map: MappedFile, options: &ReadOptions) -> Result<Self, DataError> {
        let bytes = Bytes::of(map).map_err(|reason| DataError::Unreadable { file: file.clone(), reason })?;
        Self::check(&file, bytes, options).map_err(|problem| DataError::Packed { file, problem })
    }

    fn check(file: &str, all: Bytes, options: &ReadOptions) -> Result<Self, PackedProblem> {
        let bytes = all.all();
        let (counts, checksums) = read_header(bytes)?;
        let (sections, length) = counts.layout().ok_or(PackedProblem::Header)?;
        if bytes.len() != length {
            return Err(PackedProblem::Length { found: bytes.len() as u64, expected: length as u64 });
        }
        let mut packed = Self {
            file: file.to_owned(),
            bytes: all,
            sections,
            checksums,
            num_features: counts.features as usize,
            num_classes: counts.classes as usize,
        };
        packed.view().check_law()?;
        packed.check_sections()?;
        packed.fit_to_model(options)?;
        Ok(packed)
    }

    /// Gives the view the sizes of the model, which must be enough.
    fn fit_to_model(&mut self, options: &ReadOptions) -> Result<(), PackedProblem> {
        let num_features = options.num_features.unwrap_or(self.num_features);
        let num_classes = options.num_classes.unwrap_or(self.num_classes);
        let too_small = num_features < self.num_features || num_classes < self.num_classes;
        (self.num_features, self.num_classes) = (num_features, num_classes);
        if too_small {
            self.view().check_law().map_err(PackedProblem::BeyondModel)?;
        }
        Ok(())
    }

    /// The examples, where they are.
    pub fn view(&self) -> Examples<'_> {
        let bytes = self.bytes.all();
        let section = |i: usize| &bytes[self.sections[i].clone()];
        Examples {
            feature_offsets: bytemuck::cast_slice(section(0)),
            feature_ids: bytemuck::cast_slice(section(1)),
            feature_values: bytemuck::cast_slice(section(2)),
            label_offsets: bytemuck::cast_slice(section(3)),
            label_ids: bytemuck::cast_slice(section(4)),
            weights: &[],
            num_features: self.num_features,
            num_classes: self.num_classes,
        }
    }

    /// Checks the checksum of every section once more.
    pub fn verify(&self) -> Result<(), DataError> {
        self.check_sections().map_err(|problem| DataError::Packed { file: self.file.clone(), problem })
    }

    fn check_sections(&self) -> Result<(), PackedProblem> {
        let bytes = self.bytes.all();
        let mut end = HEADER_BYTES;
        for (i, section) in SECTIONS.iter().enumerate() {
            let range = self.sections[i].clone();
            let is_padded = bytes[end..range.start].iter().all(|&byte| byte == 0);
            if !is_padded || u64::from(checksum(&bytes[range.clone()])) != self.checksums[i] {
                return Err(PackedProblem::Section { section });
            }
            end = range.end;
        }
        match bytes[end..].iter().all(|&byte| byte == 0) {
            true => Ok(()),
            false => Err(PackedProblem::Section { section: SECTIONS[4] }),
        }
    }
}

/// CRC-32 of many bytes.
fn checksum(bytes: &[u8]) -> u32 {
    hasher(bytes).finalize()
}

/// The hasher that has seen these bytes, by pieces in parallel.
fn hasher(bytes: &[u8]) -> crc32fast::Hasher {
    const PIECE: usize = 4 << 20;
    let pieces: Vec<crc32fast::Hasher> = bytes
        .par_chunks(PIECE)
        .map(|piece| {
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(piece);
            hasher
        })
        .collect();
    let mut all = crc32fast::Hasher::new();
    pieces.iter().for_each(|piece| all.combine(piece));
    all
}

fn read_header(bytes: &[u8]) -> Result<(PackedCounts, [u64; 5]), PackedProblem> {
    if !bytes.starts_with(MAGIC) {
        return Err(PackedProblem::Magic);
    }
    let Some(header) = bytes.get(..HEADER_BYTES) else {
        return Err(PackedProblem::Length { found: bytes.len() as u64, expected: HEADER_BYTES as u64 });
    };
    let word = |i: usize| u64::from_le_bytes(header[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
    if word(1) != VERSION {
        return Err(PackedProblem::Version { found: word(1), expected: VERSION });
    }
    let counts = PackedCounts {
        examples: word(2),
        feature_entries: word(3),
        label_entries: word(4),
        features: word(5),
        classes: word(6),
    };
    let checksum = u64::from(crc32fast::hash(&header[..HEADER_BYTES - 8]));
    if word(15) != checksum
        || (12..15).any(|i| word(i) != 0)
        || counts.features > ID_LIMIT
        || counts.classes > ID_LIMIT
    {
        return Err(PackedProblem::Header);
    }
    Ok((counts, [word(7), word(8), word(9), word(10), word(11)]))
}

/// Writes examples in the packed format, atomically.
pub fn write_packed(path: &Path, examples: Examples<'_>) -> Result<(), DataError> {
    atomically(path, |out| to_packed(examples, out))
}

/// The bytes of [`write_packed`], to any writer.
pub fn to_packed(examples: Examples<'_>, out: &mut impl Write) -> io::Result<()> {
    let sections: [&[u8]; 5] = [
        bytemuck::cast_slice(examples.feature_offsets),
        bytemuck::cast_slice(examples.feature_ids),
        bytemuck::cast_slice(examples.feature_values),
        bytemuck::cast_slice(examples.label_offsets),
        bytemuck::cast_slice(examples.label_ids),
    ];
    let counts = PackedCounts {
        examples: examples.len() as u64,
        feature_entries: examples.feature_ids.len() as u64,
        label_entries: examples.label_ids.len() as u64,
        features: examples.num_features as u64,
        classes: examples.num_classes as u64,
    };
    out.write_all(bytemuck::cast_slice(&counts.header(sections.map(checksum))))?;
    for section in sections {
        out.write_all(section)?;
        out.write_all(padding(section.len() as u64))?;
    }
    Ok(())
}

/// The zeroes behind a section of this length.
fn padding(length: u64) -> &'static [u8] {
    const ZEROES: &[u8] = &[0; ALIGNMENT];
    let missing = length.next_multiple_of(ALIGNMENT as u64) - length;
    &ZEROES[..missing as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;

    fn sample() -> Dataset {
        let mut data = Dataset::empty(10, 5);
        data.push([(1, 0.5), (9, -1.0)], &[0, 4]);
        data.push([], &[]);
        data.push([(3, 2.0)], &[2]);
        data
    }

    fn bytes_of(data: &Dataset) -> Vec<u8> {
        let mut out = Vec::new();
        to_packed(data.view(), &mut out).unwrap();
        out
    }

    fn open(bytes: &[u8]) -> Result<Packed, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.lkp");
        std::fs::write(&path, bytes).unwrap();
        Packed::open(&path)
    }

    fn message(bytes: &[u8]) -> String {
        open(bytes).expect_err("a damaged file opened").to_string()
    }

    #[test]
    fn version_one_of_the_format_is_what_it_was() {
        // Files outlive programs: if this fails, raise VERSION and keep
        // reading version 1.
        let bytes = bytes_of(&sample());
        assert_eq!(bytes.len(), 128 + 5 * 64);
        assert_eq!(&bytes[..16], b"LOOKPACK\x01\0\0\0\0\0\0\0");
        assert_eq!(crc32fast::hash(&bytes), 2_002_360_410);
    }

    #[test]
    fn damage_that_keeps_the_law_is_found() {
        let mut bytes = bytes_of(&sample());
        assert!(open(&bytes).unwrap().verify().is_ok());
        let value = 128 + 64 + 64;
        bytes[value..value + 4].copy_from_slice(&0.75f32.to_le_bytes());
        assert!(message(&bytes).contains("section of feature values is damaged"));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_an_error() {
        let good = bytes_of(&sample());
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&bad).is_err(), "bit {bit}");
        }
        for cut in 0..good.len() {
            assert!(open(&good[..cut]).is_err(), "cut at {cut}");
        }
    }

    /// Who cuts or overwrites the file while it is used neither ends nor changes anything.
    #[test]
    fn what_others_do_to_the_file_is_not_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.lkp");
        let good = bytes_of(&sample());
        std::fs::write(&path, &good).unwrap();
        let packed = Packed::open(&path).unwrap();
        std::fs::write(&path, vec![0xff; good.len()]).unwrap();
        assert_eq!(packed.view().check_law(), Ok(()));
        std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        assert_eq!(packed.view().feature_ids, sample().view().feature_ids);
        packed.verify().unwrap();
    }

    #[test]
    fn a_checksum_by_pieces_is_that_of_the_whole() {
        let bytes: Vec<u8> = (0..9_000_001u32).map(|i| (i * 7) as u8).collect();
        assert_eq!(checksum(&bytes), crc32fast::hash(&bytes));
        assert_eq!(checksum(&[]), crc32fast::hash(&[]));
    }

    #[test]
    fn damage_is_named() {
        let good = bytes_of(&sample());
        assert!(message(b"1 2:3\n").contains("expected a packed file"));
        assert!(message(&good[..50]).contains("found 50 bytes, expected 128"));
        assert!(message(&good[..good.len() - 1]).contains("found 447 bytes, expected 448"));
        assert!(message(&[&good[..], b"x"].concat()).contains("found 449 bytes, expected 448"));
        let mut newer = good.clone();
        newer[8] = 2;
        assert!(message(&newer).contains("found format version 2, expected 1"));
        let mut header = good.clone();
        header[16] = 200;
        assert!(message(&header).contains("the header is damaged"));
        let mut order = good.clone();
        order[128 + 64] = 9;
        assert!(message(&order).contains("example 0: found feature 9 out of order"));
        let mut offsets = good;
        offsets[128 + 8] = 77;
        assert!(message(&offsets).contains("feature offset of example 1: found 2, expected at least 77"));
    }

    #[test]
    fn counts_past_all_memory_are_refused_not_allocated() {
        for word in 2..7 {
            let mut bytes = bytes_of(&sample());
            bytes[word * 8..word * 8 + 8].copy_from_slice(&(u64::MAX - 1).to_le_bytes());
            let checksum = u64::from(crc32fast::hash(&bytes[..120]));
            bytes[120..128].copy_from_slice(&checksum.to_le_bytes());
            assert!(message(&bytes).contains("the header is damaged"), "word {word}");
        }
    }
}
