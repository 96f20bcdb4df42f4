//! Memory that is more than a `Vec`: files mapped read-only, and zeroed
//! buffers on huge pages.
//!
//! This is the only crate besides the kernels that holds `unsafe` code, and it
//! holds exactly one block: mapping a file.

/// The example of the crate's front page is run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct FrontPage;

mod group;

use std::fs::File;
use std::io::{self, Read, Seek};
use std::marker::PhantomData;
use std::path::Path;

use bytemuck::{Pod, Zeroable};
use memmap2::{Mmap, MmapMut};

/// A file mapped read-only.
///
/// Whoever truncates the file while it is mapped ends this process with a bus
/// error; the formats we map are written to a temporary name and renamed into
/// place, never modified afterwards.
#[derive(Debug)]
pub struct MappedFile {
    map: Option<Mmap>,
    file: File,
}

impl MappedFile {
    /// Maps the file at `path`; an empty file maps to an empty slice.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(Self { map: None, file });
        }
        // SAFETY: the map is read-only, and every reader of it checks sizes and
        // values before use, so a concurrent writer can at worst make a
        // checksum fail. Truncation is documented above.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self { map: Some(map), file })
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }

    /// Reads the beginning of the file, not through the map: a file that was cut is an
    /// error here.
    pub fn read_into(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut file = &self.file;
        file.seek(io::SeekFrom::Start(0))?;
        file.read_exact(bytes)
    }
}

/// Whether so many bytes could be reserved now, and used, as far as the limit of the
/// process's control group says: to be asked before a size that somebody else chose is
/// reserved.
pub fn can_reserve(bytes: usize) -> bool {
    let is_allowed = group::memory_limit().is_none_or(|limit| bytes as u64 <= limit);
    bytes == 0 || (is_allowed && MmapMut::map_anon(bytes).is_ok())
}

/// A fixed-length buffer of zeroed elements, aligned to a page and advised to
/// sit on huge pages.
///
/// Parameter matrices of gigabytes are walked row by row in an order that no
/// translation cache can guess; 2 MiB pages cut its misses five-hundredfold.
#[derive(Debug)]
pub struct Buffer<T> {
    map: Option<MmapMut>,
    len: usize,
    element: PhantomData<T>,
}

const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Below this the rest of a huge page would be waste.
const HUGE_FROM_BYTES: usize = HUGE_PAGE_BYTES / 2;

impl<T: Pod + Zeroable> Buffer<T> {
    /// A buffer of `len` zeroes.
    ///
    /// # Panics
    /// If the operating system has no memory left to promise.
    pub fn zeroed(len: usize) -> Self {
        let bytes = len.checked_mul(size_of::<T>()).expect("a buffer's size in bytes fits in usize");
        let is_huge = bytes >= HUGE_FROM_BYTES;
        // Linux puts a map on a huge page's boundary if it is whole huge pages.
        let mapped_bytes = if is_huge { bytes.next_multiple_of(HUGE_PAGE_BYTES) } else { bytes };
        let map = (bytes > 0).then(|| {
            let map = MmapMut::map_anon(mapped_bytes)
                .unwrap_or_else(|e| panic!("cannot reserve {mapped_bytes} bytes of memory: {e}"));
            #[cfg(target_os = "linux")]
            if is_huge {
                // Only advice: a kernel without huge pages may decline it.
                let _ = map.advise(memmap2::Advice::HugePage);
            }
            map
        });
        Self { map, len, element: PhantomData }
    }

    /// A buffer that holds a copy of `values`.
    pub fn from_slice(values: &[T]) -> Self {
        let mut buffer = Self::zeroed(values.len());
        buffer.copy_from_slice(values);
        buffer
    }
}

impl<T: Pod> Default for Buffer<T> {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl<T: Pod> std::ops::Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match &self.map {
            Some(map) => bytemuck::cast_slice(&map[..self.len * size_of::<T>()]),
            None => &[],
        }
    }
}

impl<T: Pod> std::ops::DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.map {
            Some(map) => bytemuck::cast_slice_mut(&mut map[..self.len * size_of::<T>()]),
            None => &mut [],
        }
    }
}

impl<T: Pod + PartialEq> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Pod> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_starts_zeroed_and_keeps_what_is_written() {
        let mut buffer = Buffer::<f32>::zeroed(1000);
        assert!(buffer.iter().all(|&x| x == 0.0));
        assert_eq!(buffer.as_ptr() as usize % 64, 0);
        buffer[999] = 2.5;
        assert_eq!(buffer.clone()[999], 2.5);
        assert_eq!(Buffer::<u32>::zeroed(0).len(), 0);
    }

    #[test]
    fn what_no_machine_has_can_not_be_reserved() {
        assert!(can_reserve(0) && can_reserve(1 << 20));
        assert!(!can_reserve(usize::MAX / 2));
    }

    #[test]
    fn mapped_file_equals_the_file_and_an_empty_one_is_empty() {
        let path = std::env::temp_dir().join(format!("lookalike-mapped-{}", std::process::id()));
        std::fs::write(&path, b"hello").unwrap();
        assert_eq!(MappedFile::open(&path).unwrap().bytes(), b"hello");
        std::fs::write(&path, b"").unwrap();
        assert!(MappedFile::open(&path).unwrap().bytes().is_empty());
        std::fs::remove_file(&path).unwrap();
        assert!(MappedFile::open(&path).is_err());
    }
}
