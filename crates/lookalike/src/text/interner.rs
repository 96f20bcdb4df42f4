//! Byte strings numbered 0, 1, 2, ...: the table behind vocabulary, counts and
//! label names.
//!
//! All strings stand one after the other in one buffer. A hash table leads from a
//! string to its number; it holds the string's *key*, which for strings of at
//! most 8 bytes (nearly all n-grams of characters) is the string itself, so that
//! these are found without a look at the buffer. Longer strings have a hash for
//! a key and are compared. Four places of the table share a bucket, which is one
//! cache line, and a full bucket flows over into the next: nearly every lookup
//! touches one line and none branches on where in the line it finds its string.
//! O(1) a lookup, 16 bytes a place, at most two thirds of the places taken.

/// A string with its key, so that the key is computed once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keyed<'a> {
    /// The string and what follows it in its buffer: cut only when needed.
    tail: &'a [u8],
    length: usize,
    key: u64,
}

/// An odd constant without pattern (the golden ratio's fraction).
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Both halves of a product, folded: every bit of `x` moves every bit.
#[inline(always)]
fn fold(x: u64) -> u64 {
    let product = u128::from(x) * u128::from(MULTIPLIER);
    (product as u64) ^ (product >> 64) as u64
}

impl<'a> Keyed<'a> {
    /// Zero bytes that must follow the strings of a buffer given to [`Self::within`].
    pub(super) const PADDING: usize = 8;

    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let key = if bytes.len() <= 8 { little_endian(bytes) } else { long_key(bytes) };
        Self { tail: bytes, length: bytes.len(), key }
    }

    /// The same for a part of a buffer that goes on for at least
    /// [`Self::PADDING`] bytes after it: a single load and mask.
    #[inline(always)]
    pub(super) fn within(buffer: &'a [u8], start: usize, end: usize) -> Self {
        let (tail, length) = (&buffer[start..], end - start);
        match tail.first_chunk::<8>() {
            // An n-gram is never empty; the mask would be wrong if it were.
            Some(word) if length.wrapping_sub(1) < 8 => {
                let mask = u64::MAX >> (64 - 8 * length);
                Self { tail, length, key: u64::from_le_bytes(*word) & mask }
            }
            _ => Self::new(&tail[..length]),
        }
    }

    /// The string.
    pub(super) fn bytes(&self) -> &'a [u8] {
        &self.tail[..self.length]
    }

    /// 64 bits that depend on all bytes (but zero bytes at the end of a short
    /// string, which leave two strings a hash to share). Saved models with hashed features rely
    /// on it: it must never change.
    #[inline(always)]
    pub(super) fn hash(&self) -> u64 {
        fold(self.key)
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn long_key(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(MULTIPLIER, |state, part| fold(state.rotate_left(23) ^ little_endian(part)))
}

const PLACES: usize = 4;
/// The length that marks a free place, and the number that no string has.
const FREE: u32 = u32::MAX;

/// Four places of the table, taken from the first on.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct FourPlaces {
    keys: [u64; PLACES],
    lengths: [u32; PLACES],
    ids: [u32; PLACES],
}

const EMPTY: FourPlaces = FourPlaces { keys: [0; PLACES], lengths: [FREE; PLACES], ids: [FREE; PLACES] };

impl FourPlaces {
    /// A bit for each place that holds this key.
    #[inline(always)]
    fn matches(&self, key: u64) -> u32 {
        let same = |i: usize| u32::from(self.keys[i] == key) << i;
        same(0) | same(1) | same(2) | same(3)
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.lengths[PLACES - 1] != FREE
    }

    /// Takes the first free place; the caller knows that there is one.
    fn put(&mut self, key: u64, length: u32, id: u32) {
        let free = self.lengths.iter().position(|&length| length == FREE).unwrap_or(PLACES - 1);
        (self.keys[free], self.lengths[free], self.ids[free]) = (key, length, id);
    }
}

/// Distinct byte strings and their numbers, in the order of insertion.
#[derive(Clone, Debug)]
pub(super) struct Interner {
    bytes: Vec<u8>,
    /// Where each string ends; it begins where the one before ends.
    ends: Vec<u64>,
    /// A power of two of them.
    buckets: Vec<FourPlaces>,
}

impl Default for Interner {
    fn default() -> Self {
        Self { bytes: Vec::new(), ends: Vec::new(), buckets: vec![EMPTY; 4] }
    }
}

impl Interner {
    /// The most strings it can number.
    pub(super) const LIMIT: usize = FREE as usize;

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..self.ends[id] as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|id| self.get(id as u32))
    }

    #[inline(always)]
    pub(super) fn find(&self, string: Keyed<'_>) -> Option<u32> {
        self.search(string).ok()
    }

    /// The string's number and whether it is new. The caller keeps the number
    /// of strings below [`Self::LIMIT`].
    #[inline(always)]
    pub(super) fn insert(&mut self, string: Keyed<'_>) -> (u32, bool) {
        match self.search(string) {
            Ok(id) => (id, false),
            Err(bucket) => (self.add(bucket, string), true),
        }
    }

    /// The string's number, or the bucket to put it in.
    #[inline(always)]
    fn search(&self, string: Keyed<'_>) -> Result<u32, usize> {
        let length = string.length as u32;
        let mask = self.buckets.len() - 1;
        let mut at = (string.hash() >> 32) as usize & mask;
        loop {
            let bucket = &self.buckets[at];
            let mut matches = bucket.matches(string.key);
            while matches != 0 {
                let place = matches.trailing_zeros() as usize % PLACES;
                let id = bucket.ids[place];
                let is_same = bucket.lengths[place] == length;
                if is_same && (length <= 8 || self.get(id) == string.bytes()) {
                    return Ok(id);
                }
                matches &= matches - 1;
            }
            if !bucket.is_full() {
                return Err(at);
            }
            at = (at + 1) & mask;
        }
    }

    fn add(&mut self, bucket: usize, string: Keyed<'_>) -> u32 {
        assert!(self.len() < Self::LIMIT, "more strings than ids");
        let id = self.len() as u32;
        self.buckets[bucket].put(string.key, string.length as u32, id);
        self.bytes.extend_from_slice(string.bytes());
        self.ends.push(self.bytes.len() as u64);
        if self.len() * 3 > self.buckets.len() * PLACES * 2 {
            self.grow();
        }
        id
    }

    fn grow(&mut self) {
        let mask = self.buckets.len() * 2 - 1;
        let old = std::mem::replace(&mut self.buckets, vec![EMPTY; mask + 1]);
        for bucket in old {
            for i in (0..PLACES).take_while(|&i| bucket.lengths[i] != FREE) {
                let (key, length) = (bucket.keys[i], bucket.lengths[i]);
                let mut at = (fold(key) >> 32) as usize & mask;
                while self.buckets[at].is_full() {
                    at = (at + 1) & mask;
                }
                self.buckets[at].put(key, length, bucket.ids[i]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against the standard map, on strings built to share prefixes,
        /// lengths around 8 and trailing zeros.
        #[test]
        fn numbers_strings_like_a_map(strings in vec(vec(0u8..3, 0..20), 0..400)) {
            let mut twin: HashMap<&[u8], u32> = HashMap::new();
            let mut interner = Interner::default();
            for string in &strings {
                prop_assert_eq!(interner.find(Keyed::new(string)), twin.get(&string[..]).copied());
                let next = twin.len() as u32;
                let is_new = !twin.contains_key(&string[..]);
                let id = *twin.entry(string).or_insert(next);
                prop_assert_eq!(interner.insert(Keyed::new(string)), (id, is_new));
            }
            prop_assert_eq!(interner.len(), twin.len());
            for (string, &id) in &twin {
                prop_assert_eq!(interner.get(id), *string);
            }
        }

        #[test]
        fn a_part_of_a_buffer_has_the_key_of_its_copy(
            mut buffer in vec(any::<u8>(), 0..40),
            start in 0usize..40,
            length in 0usize..20,
        ) {
            let start = start.min(buffer.len());
            let end = (start + length).min(buffer.len());
            buffer.extend([0; Keyed::PADDING]);
            let copy = buffer[start..end].to_vec();
            let part = Keyed::within(&buffer, start, end);
            prop_assert_eq!(part.key, Keyed::new(&copy).key);
            prop_assert_eq!(part.bytes(), copy);
        }
    }

    /// Saved models depend on these values, worked out apart from this code.
    #[test]
    fn the_hash_never_changes() {
        let hashes = ["", "a", " mün", "\tmünchen"].map(|s| Keyed::new(s.as_bytes()).hash());
        let expected: [u64; 4] = [0, 17511437125486707662, 687691750379921772, 7589504241319713364];
        assert_eq!(hashes, expected);
    }
}
