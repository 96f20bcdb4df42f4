//! From a path to bytes: plain files are mapped, pipes and compressed files
//! are read whole.

use std::io::{self, Read};
use std::path::Path;

use lookalike_mapped::MappedFile;

use super::compression::{Compression, Plain};
use super::error::{DataError, ENDLESS_BYTES, LINE_BYTES_MAX, Place};
use super::xc::SizesLine;

/// The path that means standard input.
pub const STDIN: &str = "-";

/// What a path held.
#[derive(Debug)]
pub struct Input {
    /// The path as the user wrote it, or `<stdin>`.
    pub name: String,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    Mapped(MappedFile),
    Read(Vec<u8>),
}

impl Input {
    /// Opens `path`, or standard input for `-`, and decompresses it if need be.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let name = display_name(path);
        if is_plain_file(path) {
            let map = MappedFile::open(path)
                .map_err(|reason| DataError::Unreadable { file: name.clone(), reason })?;
            if Compression::of(map.bytes()).is_none() {
                return Ok(Self { name, content: Content::Mapped(map) });
            }
        }
        let bytes = ByteStream::open(path)?.read_to_end()?;
        Ok(Self { name, content: Content::Read(bytes) })
    }

    /// Reads what was opened already to its end.
    pub fn of(name: String, plain: Plain) -> Result<Self, DataError> {
        let bytes = ByteStream::of(name.clone(), plain).read_to_end()?;
        Ok(Self { name, content: Content::Read(bytes) })
    }

    /// The decompressed bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Mapped(map) => map.bytes(),
            Content::Read(bytes) => bytes,
        }
    }
}

/// What a path is called in messages.
pub fn display_name(path: &Path) -> String {
    if path == Path::new(STDIN) { "<stdin>".to_owned() } else { path.display().to_string() }
}

fn is_plain_file(path: &Path) -> bool {
    path != Path::new(STDIN) && path.metadata().is_ok_and(|m| m.is_file())
}

/// Decompressed bytes, as they come.
pub(crate) struct ByteStream {
    pub(crate) name: String,
    compression: Option<Compression>,
    reader: Box<dyn Read + Send>,
    block: Vec<u8>,
    /// Line ends so far, for the place of an error.
    lines: u64,
    /// Bytes since the last line end.
    line_bytes: usize,
}

impl ByteStream {
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let name = display_name(path);
        let unreadable = |reason| DataError::Unreadable { file: name.clone(), reason };
        let plain = Plain::open(path).map_err(unreadable)?;
        Ok(Self::of(name, plain))
    }

    pub(crate) fn of(name: String, Plain { compression, reader }: Plain) -> Self {
        Self { name, compression, reader, block: vec![0; 1 << 20], lines: 0, line_bytes: 0 }
    }

    /// Appends what one read gives to `text`; false at the end. Of a line that
    /// is too long only the beginning is kept: the rest could be without end,
    /// and the parser refuses the line anyway.
    pub(crate) fn read_more(&mut self, text: &mut Vec<u8>) -> Result<bool, DataError> {
        let length = loop {
            match self.reader.read(&mut self.block) {
                Ok(length) => break length,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(reason) => return Err(self.failed(reason)),
            }
        };
        let mut news = &self.block[..length];
        if self.line_bytes > LINE_BYTES_MAX {
            let end = memchr::memchr(b'\n', news).unwrap_or(news.len());
            news = &news[end..];
        }
        if text.try_reserve(news.len()).is_err() {
            let reason =
                io::Error::new(io::ErrorKind::OutOfMemory, "there is not enough memory for its text");
            return Err(DataError::Unreadable { file: self.name.clone(), reason });
        }
        text.extend_from_slice(news);
        self.lines += memchr::memchr_iter(b'\n', news).count() as u64;
        match memchr::memrchr(b'\n', news) {
            Some(end) => self.line_bytes = news.len() - end - 1,
            None => self.line_bytes += length,
        }
        if self.line_bytes > ENDLESS_BYTES {
            let place = Place { file: self.name.clone(), line: self.lines + 1, column: 1 };
            return Err(DataError::Endless(place));
        }
        Ok(length > 0)
    }

    fn read_to_end(mut self) -> Result<Vec<u8>, DataError> {
        let mut text = Vec::new();
        let mut declared = None;
        loop {
            let before = text.len();
            if !self.read_more(&mut text)? {
                return Ok(text);
            }
            if declared.is_none() && self.lines > 0 {
                // What is wrong with it is for the parser to say.
                let header = SizesLine::detect(&self.name, super::xc::without_byte_order_mark(&text));
                declared = Some(header.ok().flatten().map_or(u64::MAX, |header| header.examples));
            }
            // A few bytes may stand for any number of empty lines. Behind the last example
            // that the header declares they are none, and need not be in memory.
            if declared.is_some_and(|rows| self.lines > rows.saturating_add(2)) {
                let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
                if text[before.saturating_sub(1)..].iter().all(is_end) {
                    text.truncate(before);
                }
            }
        }
    }

    fn failed(&self, reason: io::Error) -> DataError {
        let file = self.name.clone();
        match self.compression {
            None => DataError::Unreadable { file, reason },
            Some(compression) => DataError::Damaged {
                place: Place { file, line: self.lines + 1, column: self.line_bytes as u64 + 1 },
                format: compression.name(),
                reason,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn open_bytes(bytes: &[u8]) -> Result<Vec<u8>, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a name that says nothing");
        std::fs::write(&path, bytes).unwrap();
        Input::open(&path).map(|input| input.bytes().to_vec())
    }

    #[test]
    fn compression_is_told_by_content_and_parts_are_joined() {
        let skippable =
            [&[0x50, 0x2A, 0x4D, 0x18, 2, 0, 0, 0, 9, 9][..], &zstd::encode_all(&b"one\n"[..], 1).unwrap()]
                .concat();
        let two_members = [gzip(b"one\n"), gzip(b"two\n")].concat();
        let two_frames =
            [zstd::encode_all(&b"one\n"[..], 1).unwrap(), zstd::encode_all(&b"two\n"[..], 1).unwrap()]
                .concat();
        assert_eq!(open_bytes(b"one\n").unwrap(), b"one\n");
        assert_eq!(open_bytes(&two_members).unwrap(), b"one\ntwo\n");
        assert_eq!(open_bytes(&two_frames).unwrap(), b"one\ntwo\n");
        assert_eq!(open_bytes(&skippable).unwrap(), b"one\n");
        assert_eq!(open_bytes(b"").unwrap(), b"");
    }

    #[test]
    fn every_cut_of_compressed_data_is_an_error_with_a_place() {
        let text: Vec<u8> =
            (0..2000u32).flat_map(|i| format!("{i} {}:1\n", i * 7919 % 1000).into_bytes()).collect();
        for (format, whole) in [("gzip", gzip(&text)), ("zstd", zstd::encode_all(&text[..], 1).unwrap())] {
            for cut in [5, whole.len() / 2, whole.len() - 1] {
                match open_bytes(&whole[..cut]) {
                    Err(DataError::Damaged { format: found, place, .. }) => {
                        assert_eq!(found, format);
                        assert!(place.line >= 1 && place.line <= 2001);
                    }
                    other => panic!("{format} cut at {cut}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_missing_file_and_a_folder_are_unreadable() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_path_buf(), folder.path().join("absent")] {
            let error = Input::open(&path).unwrap_err();
            assert!(matches!(error, DataError::Unreadable { .. }), "{error}");
            assert!(error.to_string().starts_with(&path.display().to_string()));
        }
    }

    #[test]
    fn a_line_without_end_is_cut_but_the_next_is_kept() {
        let mut long = vec![b'7'; LINE_BYTES_MAX + (3 << 20)];
        long.extend_from_slice(b"\n1 2:3\n");
        let read = open_bytes(&zstd::encode_all(&long[..], 1).unwrap()).unwrap();
        assert!(read.len() > LINE_BYTES_MAX && read.len() < LINE_BYTES_MAX + (2 << 20));
        assert!(read.ends_with(b"7\n1 2:3\n"));
    }
}
