//! Where the bytes come from, and how they are cut into chunks of whole records.
//!
//! Cutting is sequential and cheap (one `memchr` over the bytes); parsing and
//! vectorising, which are not, happen in parallel on the chunks.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::PathBuf;
use std::sync::Arc;

use memchr::{memchr, memchr_iter, memchr2, memrchr};

use super::TextError;
use crate::data::compression::Plain;

/// The size of a chunk. Never a function of the number of threads.
const CHUNK_BYTES: usize = 128 << 10;
/// Chunks worked on together; also bounds the memory in flight.
const GROUP_CHUNKS: usize = 64;
/// No record is longer; past this a quote was left open or the file is not text.
pub(super) const RECORD_BYTES_MAX: usize = 16 << 20;

/// What some editors put in front of UTF-8.
pub(super) const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// Bytes that can be read from the start as often as needed.
#[derive(Clone, Debug)]
pub(super) enum Rereadable {
    Path(PathBuf),
    Memory { name: String, bytes: Arc<[u8]> },
}

impl Rereadable {
    /// The name used in messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Path(path) => path.display().to_string(),
            Self::Memory { name, .. } => name.clone(),
        }
    }

    /// The plain bytes from the start, decompressed and without a byte-order mark.
    pub(super) fn open(&self) -> Result<Box<dyn Read + Send>, TextError> {
        let failed = |e| TextError::io(self.name(), e);
        let plain = match self {
            Self::Path(path) => Plain::of(File::open(path).map_err(failed)?),
            Self::Memory { bytes, .. } => Plain::of(Cursor::new(Arc::clone(bytes))),
        };
        let mut plain = plain.map_err(failed)?.reader;
        let mut start = Vec::with_capacity(BYTE_ORDER_MARK.len());
        plain.by_ref().take(BYTE_ORDER_MARK.len() as u64).read_to_end(&mut start).map_err(failed)?;
        if start == BYTE_ORDER_MARK {
            return Ok(plain);
        }
        Ok(Box::new(Cursor::new(start).chain(plain)))
    }
}

/// Whole records, in the order of the file.
#[derive(Debug)]
pub(super) struct RecordChunk {
    pub(super) bytes: Vec<u8>,
    /// The line on which the chunk begins.
    pub(super) line: u64,
}

/// How records end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Framing {
    /// At every line's end.
    Lines,
    /// At a line's end outside quotes; fields are separated by this byte.
    Quoted { delimiter: u8 },
}

/// Cuts a reader's bytes into [`RecordChunk`]s.
pub(super) struct Chunks {
    reader: Box<dyn Read + Send>,
    file: String,
    framing: Framing,
    /// Bytes read but not yet handed out: the start of a record.
    rest: Vec<u8>,
    line: u64,
    at_end: bool,
}

impl Chunks {
    pub(super) fn new(source: &Rereadable, framing: Framing) -> Result<Self, TextError> {
        let reader = source.open()?;
        Ok(Self { reader, file: source.name(), framing, rest: Vec::new(), line: 1, at_end: false })
    }

    /// The next chunks, as many as are worked on together; none at the end.
    pub(super) fn next_group(&mut self) -> Result<Vec<RecordChunk>, TextError> {
        let mut group = Vec::with_capacity(GROUP_CHUNKS);
        while group.len() < GROUP_CHUNKS {
            match self.next_chunk()? {
                Some(chunk) => group.push(chunk),
                None => break,
            }
        }
        Ok(group)
    }

    /// The next chunk, none at the end of the file.
    pub(super) fn next_chunk(&mut self) -> Result<Option<RecordChunk>, TextError> {
        let mut bytes = std::mem::take(&mut self.rest);
        let mut wanted = CHUNK_BYTES;
        loop {
            self.fill(&mut bytes, wanted)?;
            let (end, open_quote) = last_record_end(&bytes, self.framing);
            let end = if self.at_end { bytes.len() } else { end };
            if end > 0 || self.at_end {
                self.rest = bytes.split_off(end);
                break;
            }
            if bytes.len() > RECORD_BYTES_MAX {
                let Some(quote) = open_quote else {
                    let (file, line) = (self.file.clone(), self.line);
                    return Err(TextError::TooLong { file, line, limit_bytes: RECORD_BYTES_MAX });
                };
                // Nobody closes it: the reader of the row says so, and the next line is a new row.
                let end = memchr(b'\n', &bytes[quote..]).map_or(bytes.len(), |length| quote + length + 1);
                self.rest = bytes.split_off(end);
                break;
            }
            wanted = bytes.len() * 2;
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let line = self.line;
        self.line += memchr_iter(b'\n', &bytes).count() as u64;
        Ok(Some(RecordChunk { bytes, line }))
    }

    fn fill(&mut self, bytes: &mut Vec<u8>, wanted: usize) -> Result<(), TextError> {
        let missing = wanted.saturating_sub(bytes.len()) as u64;
        let read = self.reader.by_ref().take(missing).read_to_end(bytes);
        let read = read.map_err(|e| TextError::io(self.file.as_str(), e))?;
        self.at_end = (read as u64) < missing;
        Ok(())
    }
}

/// Just past the first record of `bytes`: all of them if it does not end.
pub(super) fn first_record_end(bytes: &[u8], framing: Framing) -> usize {
    let mut at = 0;
    loop {
        let delimiter = match framing {
            Framing::Lines => b'\n',
            Framing::Quoted { delimiter } => {
                if bytes.get(at) == Some(&b'"') {
                    let Some(close) = closing_quote(bytes, at) else { return bytes.len() };
                    at = close + 1;
                }
                delimiter
            }
        };
        match memchr2(delimiter, b'\n', &bytes[at..]) {
            Some(length) => at += length + 1,
            None => return bytes.len(),
        }
        if bytes[at - 1] == b'\n' {
            return at;
        }
    }
}

/// Just past the last record that ends within `bytes` (0 if none does), and the
/// quote, if any, that is open where they stop.
fn last_record_end(bytes: &[u8], framing: Framing) -> (usize, Option<usize>) {
    let Framing::Quoted { delimiter } = framing else {
        return (memrchr(b'\n', bytes).map_or(0, |at| at + 1), None);
    };
    let (mut end, mut at) = (0, 0);
    while at < bytes.len() {
        // Here a field begins.
        if bytes[at] == b'"' {
            match closing_quote(bytes, at) {
                Some(close) => at = close + 1,
                None => return (end, Some(at)),
            }
        }
        match memchr2(delimiter, b'\n', &bytes[at..]) {
            Some(length) => at += length + 1,
            None => break,
        }
        if bytes[at - 1] == b'\n' {
            end = at;
        }
    }
    (end, None)
}

/// The quote that closes the one at `open`; doubled quotes do not.
pub(super) fn closing_quote(bytes: &[u8], open: usize) -> Option<usize> {
    let mut at = open + 1;
    loop {
        at += memchr(b'"', &bytes[at..])?;
        if bytes.get(at + 1) != Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

/// Line and column (in characters) of a byte, `first_line` being that of the
/// first byte. A column of bytes that are not UTF-8 counts each as it can.
pub(super) fn position(bytes: &[u8], at: usize, first_line: u64) -> (u64, u64) {
    let line = first_line + memchr_iter(b'\n', &bytes[..at]).count() as u64;
    let start = memrchr(b'\n', &bytes[..at]).map_or(0, |newline| newline + 1);
    let column = String::from_utf8_lossy(&bytes[start..at]).chars().count() as u64 + 1;
    (line, column)
}

impl RecordChunk {
    /// The chunk with what is not UTF-8 replaced.
    pub(super) fn lossy(self) -> Self {
        let bytes = String::from_utf8_lossy(&self.bytes).into_owned().into_bytes();
        Self { bytes, ..self }
    }

    /// The chunk as text, or where it is not UTF-8.
    pub(super) fn text(&self, file: &str) -> Result<&str, TextError> {
        std::str::from_utf8(&self.bytes).map_err(|e| {
            let at = e.valid_up_to();
            let (line, column) = position(&self.bytes, at, self.line);
            TextError::InvalidUtf8 { file: file.into(), line, column, found: self.bytes[at] }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn memory(bytes: &[u8]) -> Rereadable {
        Rereadable::Memory { name: "memory".into(), bytes: bytes.into() }
    }

    fn all(source: &Rereadable, framing: Framing) -> Vec<RecordChunk> {
        let mut chunks = Chunks::new(source, framing).unwrap();
        std::iter::from_fn(|| chunks.next_chunk().unwrap()).collect()
    }

    #[test]
    fn chunks_hold_whole_records_and_lose_no_byte() {
        let mut text = Vec::new();
        for i in 0..40_000 {
            writeln!(text, "\"row {i}\nsecond line\",x").unwrap();
        }
        let chunks = all(&memory(&text), Framing::Quoted { delimiter: b',' });
        assert!(chunks.len() > 3);
        let mut line = 1;
        for chunk in &chunks {
            assert!(chunk.bytes.starts_with(b"\"row ") && chunk.bytes.ends_with(b",x\n"));
            assert_eq!(chunk.line, line);
            line += memchr_iter(b'\n', &chunk.bytes).count() as u64;
        }
        assert_eq!(chunks.into_iter().flat_map(|c| c.bytes).collect::<Vec<_>>(), text);
    }

    #[test]
    fn a_record_longer_than_a_chunk_is_kept_whole() {
        let text = [vec![b'a'; 3 * CHUNK_BYTES], b"\nb".to_vec()].concat();
        let chunks = all(&memory(&text), Framing::Lines);
        assert_eq!(chunks.into_iter().flat_map(|c| c.bytes).collect::<Vec<_>>(), text);
    }

    #[test]
    fn an_endless_quote_is_found_without_reading_everything() {
        let (first, open) =
            (b"a,b\n", [b"c,\"d".to_vec(), vec![b'x'; RECORD_BYTES_MAX], b"\n".to_vec()].concat());
        let text = [first.to_vec(), open.clone(), b"e,f\n".repeat(RECORD_BYTES_MAX)].concat();
        let mut chunks = Chunks::new(&memory(&text), Framing::Quoted { delimiter: b',' }).unwrap();
        let mut next = || chunks.next_chunk().unwrap().unwrap();
        assert_eq!(next().bytes, first);
        // To the end of its line.
        let found = next();
        assert!(found.line == 2 && found.bytes == open, "{} bytes", found.bytes.len());
        assert!(next().bytes.starts_with(b"e,f\n"));
    }

    #[test]
    fn the_first_record_ends_outside_quotes() {
        let quoted = Framing::Quoted { delimiter: b',' };
        for (bytes, framing, end) in [
            ("a,b\nc", Framing::Lines, 4),
            ("\"a\nb\",c\nd", Framing::Lines, 3),
            ("\"a\nb\",c\nd", quoted, 8),
            ("a,\"b\n\"\"\"\nc", quoted, 9),
            ("a,\"b\nc", quoted, 6),
            ("a", quoted, 1),
        ] {
            assert_eq!(first_record_end(bytes.as_bytes(), framing), end, "{bytes:?} {framing:?}");
        }
    }

    #[test]
    fn compression_and_byte_order_marks_are_told_by_content() {
        let plain = b"\xef\xbb\xbfM\xc3\xbcnchen\tMunich\n";
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(plain).unwrap();
        let zst = zstd::encode_all(&plain[..], 1).unwrap();
        for packed in [plain.to_vec(), gz.finish().unwrap(), zst] {
            let mut read = Vec::new();
            memory(&packed).open().unwrap().read_to_end(&mut read).unwrap();
            assert_eq!(read, &plain[3..]);
        }
        for short in [&b""[..], b"a", b"\x1f"] {
            let mut read = Vec::new();
            memory(short).open().unwrap().read_to_end(&mut read).unwrap();
            assert_eq!(read, short);
        }
    }
}
