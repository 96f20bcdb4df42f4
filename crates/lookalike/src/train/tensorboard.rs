//! Training curves as a TensorBoard event file, without TensorFlow.
//!
//! An event file is a sequence of TFRecords (a length, the data, and a masked
//! CRC-32C of each); the data of each is a protobuf `Event`. Of that message we
//! write six fields, so forty lines do what two code generators would:
//!
//! ```text
//! Event   { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
//! Summary { repeated Value value = 1; }      Value { string tag = 1; float simple_value = 2; }
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// An event file could not be made or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the TensorBoard events to {}: {source}", path.display())]
pub struct TensorboardError {
    /// The file or directory in question.
    pub path: PathBuf,
    /// What the operating system said.
    pub source: io::Error,
}

/// Writes scalars to one event file.
///
/// Events reach the file at [`EventWriter::flush`] and when the writer is
/// dropped; flush at every evaluation, so that the curves can be watched.
#[derive(Debug)]
pub struct EventWriter {
    file: BufWriter<File>,
    path: PathBuf,
}

impl EventWriter {
    /// Starts a new event file in `directory`, which is made if need be.
    /// Existing files are never touched: TensorBoard shows them as one run.
    pub fn create(directory: &Path) -> Result<Self, TensorboardError> {
        let fail = |path: &Path, source| TensorboardError { path: path.to_owned(), source };
        std::fs::create_dir_all(directory).map_err(|e| fail(directory, e))?;
        let now = seconds_since_epoch();
        // TensorBoard looks for "tfevents" in the name and reads a run's files
        // in the order of their names, hence the time first.
        let stem = format!("events.out.tfevents.{:010}.{}", now as u64, std::process::id());
        for number in 0.. {
            let path = directory.join(format!("{stem}.{number}"));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    let mut writer = Self { file: BufWriter::new(file), path };
                    writer.record(&version_event(now))?;
                    writer.flush()?;
                    return Ok(writer);
                }
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(fail(&path, e)),
            }
        }
        unreachable!("a directory holds fewer files than there are numbers")
    }

    /// The file that is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the values that belong to one step, as of now.
    pub fn scalars(&mut self, step: u64, values: &[(&str, f32)]) -> Result<(), TensorboardError> {
        self.record(&scalar_event(seconds_since_epoch(), step, values))
    }

    /// Hands everything written so far to the operating system.
    pub fn flush(&mut self) -> Result<(), TensorboardError> {
        self.file.flush().map_err(|source| self.error(source))
    }

    fn record(&mut self, event: &[u8]) -> Result<(), TensorboardError> {
        write_record(&mut self.file, event).map_err(|source| self.error(source))
    }

    fn error(&self, source: io::Error) -> TensorboardError {
        TensorboardError { path: self.path.clone(), source }
    }
}

/// Times only label the events; nothing that is computed depends on them.
fn seconds_since_epoch() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// TensorBoard takes a file without this first event for one of an old format.
fn version_event(wall_time: f64) -> Vec<u8> {
    let mut event = Vec::new();
    put_double(&mut event, 1, wall_time);
    put_bytes(&mut event, 3, b"brain.Event:2");
    event
}

fn scalar_event(wall_time: f64, step: u64, values: &[(&str, f32)]) -> Vec<u8> {
    let mut summary = Vec::new();
    for (tag, value) in values {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, tag.as_bytes());
        put_float(&mut message, 2, *value);
        put_bytes(&mut summary, 1, &message);
    }
    let mut event = Vec::new();
    put_double(&mut event, 1, wall_time);
    put_key(&mut event, 2, WIRE_VARINT);
    put_varint(&mut event, step);
    put_bytes(&mut event, 5, &summary);
    event
}

const WIRE_VARINT: u64 = 0;
const WIRE_64_BITS: u64 = 1;
const WIRE_BYTES: u64 = 2;
const WIRE_32_BITS: u64 = 5;

fn put_varint(out: &mut Vec<u8>, mut x: u64) {
    while x >= 0x80 {
        out.push(x as u8 | 0x80);
        x >>= 7;
    }
    out.push(x as u8);
}

fn put_key(out: &mut Vec<u8>, field: u64, wire: u64) {
    put_varint(out, field << 3 | wire);
}

fn put_double(out: &mut Vec<u8>, field: u64, x: f64) {
    put_key(out, field, WIRE_64_BITS);
    out.extend_from_slice(&x.to_le_bytes());
}

fn put_float(out: &mut Vec<u8>, field: u64, x: f32) {
    put_key(out, field, WIRE_32_BITS);
    out.extend_from_slice(&x.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_key(out, field, WIRE_BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn write_record(out: &mut impl Write, data: &[u8]) -> io::Result<()> {
    let length = (data.len() as u64).to_le_bytes();
    out.write_all(&length)?;
    out.write_all(&masked_crc32c(&length).to_le_bytes())?;
    out.write_all(data)?;
    out.write_all(&masked_crc32c(data).to_le_bytes())
}

/// TFRecords mask their checksums, because the CRC of data that contains its
/// own CRC is a constant.
fn masked_crc32c(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// The Castagnoli polynomial, bit-reversed.
const CASTAGNOLI: u32 = 0x82F6_3B78;

const CRC_OF_BYTE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ CASTAGNOLI } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// A byte at a time: events are tens of bytes, a few a second.
fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(!0, |crc, &byte| CRC_OF_BYTE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 3720, appendix B.4, and the usual check value.
    #[test]
    fn crc32c_agrees_with_the_published_vectors() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(&ascending), 0x46DD_794E);
        assert_eq!(crc32c(&descending), 0x113F_DB5C);
    }

    /// A decoder that shares nothing with the encoder: checksums bit by bit,
    /// fields by a generic walk over the wire format.
    mod decoder {
        pub(super) enum Field {
            Varint(u64),
            Bits64(u64),
            Bytes(Vec<u8>),
            Bits32(u32),
        }

        fn crc(data: &[u8]) -> u32 {
            let mut register = u32::MAX;
            for &byte in data {
                for bit in 0..8 {
                    let feedback = (register ^ u32::from(byte >> bit)) & 1;
                    register = (register >> 1) ^ (feedback * 0x82F6_3B78);
                }
            }
            register ^ u32::MAX
        }

        fn unmask(masked: u32) -> u32 {
            let rotated = masked.wrapping_sub(0xA282_EAD8);
            rotated.rotate_left(15)
        }

        fn take<const N: usize>(data: &mut &[u8]) -> [u8; N] {
            let (head, rest) = data.split_first_chunk::<N>().expect("the file is not cut");
            *data = rest;
            *head
        }

        pub(super) fn records(mut file: &[u8]) -> Vec<Vec<u8>> {
            let mut records = Vec::new();
            while !file.is_empty() {
                let length = take::<8>(&mut file);
                assert_eq!(crc(&length), unmask(u32::from_le_bytes(take(&mut file))));
                let (data, rest) = file.split_at(u64::from_le_bytes(length) as usize);
                file = rest;
                assert_eq!(crc(data), unmask(u32::from_le_bytes(take(&mut file))));
                records.push(data.to_vec());
            }
            records
        }

        fn varint(data: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..64).step_by(7) {
                let [byte] = take(data);
                value |= u64::from(byte & 0x7F) << shift;
                if byte < 0x80 {
                    return value;
                }
            }
            panic!("a varint of more than ten bytes")
        }

        pub(super) fn fields(mut message: &[u8]) -> Vec<(u64, Field)> {
            let mut fields = Vec::new();
            while !message.is_empty() {
                let key = varint(&mut message);
                let field = match key & 7 {
                    0 => Field::Varint(varint(&mut message)),
                    1 => Field::Bits64(u64::from_le_bytes(take(&mut message))),
                    2 => {
                        let length = varint(&mut message) as usize;
                        let (bytes, rest) = message.split_at(length);
                        message = rest;
                        Field::Bytes(bytes.to_vec())
                    }
                    5 => Field::Bits32(u32::from_le_bytes(take(&mut message))),
                    wire => panic!("wire type {wire}"),
                };
                fields.push((key >> 3, field));
            }
            fields
        }
    }

    use decoder::Field;

    #[derive(Debug, Default, PartialEq)]
    struct Event {
        wall_time: f64,
        step: u64,
        version: String,
        values: Vec<(String, f32)>,
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    fn value(message: &[u8]) -> (String, f32) {
        let mut value = (String::new(), f32::NAN);
        for field in decoder::fields(message) {
            match field {
                (1, Field::Bytes(tag)) => value.0 = text(tag),
                (2, Field::Bits32(bits)) => value.1 = f32::from_bits(bits),
                (other, _) => panic!("field {other} in a value"),
            }
        }
        value
    }

    fn event(record: &[u8]) -> Event {
        let mut event = Event::default();
        for field in decoder::fields(record) {
            match field {
                (1, Field::Bits64(bits)) => event.wall_time = f64::from_bits(bits),
                (2, Field::Varint(step)) => event.step = step,
                (3, Field::Bytes(version)) => event.version = text(version),
                (5, Field::Bytes(summary)) => {
                    for (field, message) in decoder::fields(&summary) {
                        let Field::Bytes(message) = message else { panic!("not a message") };
                        assert_eq!(field, 1);
                        event.values.push(value(&message));
                    }
                }
                (other, _) => panic!("field {other} in an event"),
            }
        }
        event
    }

    #[test]
    fn what_is_written_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let nested = directory.path().join("runs").join("first");
        let mut writer = EventWriter::create(&nested).unwrap();
        let long_tag = "x".repeat(300);
        writer.scalars(1, &[("loss", 2.5), ("P@1", 0.0)]).unwrap();
        writer.scalars(u64::from(u32::MAX) + 7, &[(&long_tag, -1e-30)]).unwrap();
        writer.scalars(3, &[]).unwrap();
        writer.flush().unwrap();
        assert!(writer.path().to_str().unwrap().contains("tfevents"));

        let file = std::fs::read(writer.path()).unwrap();
        let events: Vec<Event> = decoder::records(&file).iter().map(|r| event(r)).collect();
        assert_eq!(events.len(), 4);
        assert_eq!(events[0].version, "brain.Event:2");
        assert_eq!(events[0].values, []);
        assert_eq!(events[1].step, 1);
        assert_eq!(events[1].values, [("loss".to_owned(), 2.5), ("P@1".to_owned(), 0.0)]);
        assert_eq!(events[2].step, (1 << 32) + 6);
        assert_eq!(events[2].values, [(long_tag, -1e-30)]);
        assert_eq!(events[3].values, []);
        // After this was written and before the sun goes out.
        assert!(events.iter().all(|e| e.wall_time > 1.7e9 && e.wall_time < 1e17));
        assert!(events.is_sorted_by_key(|e| e.wall_time));
    }

    #[test]
    fn a_second_writer_takes_a_second_file() {
        let directory = tempfile::tempdir().unwrap();
        let first = EventWriter::create(directory.path()).unwrap();
        let second = EventWriter::create(directory.path()).unwrap();
        assert_ne!(first.path(), second.path());
        drop((first, second));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn an_impossible_directory_is_named_in_the_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a-file");
        std::fs::write(&file, b"").unwrap();
        let error = EventWriter::create(&file.join("inside")).unwrap_err();
        assert!(error.to_string().contains("a-file"), "{error}");
    }
}
