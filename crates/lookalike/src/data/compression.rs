//! Gzip and zstd, told by the first bytes of a stream, never by its name.
//!
//! Gzip members and zstd frames may follow one another, as `cat a.gz b.gz` and
//! parallel compressors leave them.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use super::open::STDIN;

/// A way in which bytes were made fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// One or more gzip members.
    Gzip,
    /// One or more zstd frames.
    Zstd,
}

impl Compression {
    /// Bytes that tell.
    const HEAD_BYTES: u64 = 4;

    /// That of a stream that begins so.
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x1F, 0x8B, ..] => Some(Self::Gzip),
            // A frame, or a skippable frame as parallel compressors put first.
            [0x28, 0xB5, 0x2F, 0xFD, ..] | [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// Bytes after decompression, and what they were compressed with.
pub struct Plain {
    /// None if they were as they are.
    pub compression: Option<Compression>,
    /// The bytes.
    pub reader: Box<dyn Read + Send>,
}

impl Plain {
    /// Opens a file, or standard input for `-`.
    pub fn open(path: &Path) -> io::Result<Self> {
        match path == Path::new(STDIN) {
            true => Self::of(io::stdin()),
            false => Self::of(File::open(path)?),
        }
    }

    /// Looks at the beginning of a stream and decompresses it if need be.
    pub fn of(mut raw: impl Read + Send + 'static) -> io::Result<Self> {
        // A pipe may give its first bytes one by one, so they are read until
        // there are enough and put back in front.
        let mut head = Vec::new();
        raw.by_ref().take(Compression::HEAD_BYTES).read_to_end(&mut head)?;
        let compression = Compression::of(&head);
        let raw = BufReader::with_capacity(1 << 16, Cursor::new(head).chain(raw));
        let reader: Box<dyn Read + Send> = match compression {
            None => Box::new(raw),
            Some(Compression::Gzip) => Box::new(flate2::bufread::MultiGzDecoder::new(raw)),
            Some(Compression::Zstd) => Box::new(zstd::Decoder::with_buffer(raw)?),
        };
        Ok(Self { compression, reader })
    }
}
