//! Byte strings numbered 0, 1, 2, ...: the table behind vocabulary, counts and
//! label names.
//!
//! All strings stand one after the other in one buffer. An open-addressing
//! table leads from a string to its number; a slot holds the string's *key*,
//! which for strings of at most 8 bytes (nearly all n-grams of characters) is
//! the string itself. Such a lookup therefore touches one cache line; longer
//! strings have a hash for a key and are compared with the buffer. O(1) a
//! lookup, 16 bytes a slot, at most two thirds of the slots full.

/// Bytes with their key, so that the key is computed once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keyed<'a> {
    bytes: &'a [u8],
    key: u64,
}

/// An odd constant without pattern (the golden ratio's fraction).
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Both halves of a product, folded: every bit of `x` moves every bit.
fn fold(x: u64) -> u64 {
    let product = u128::from(x) * u128::from(MULTIPLIER);
    (product as u64) ^ (product >> 64) as u64
}

impl<'a> Keyed<'a> {
    /// Zero bytes that must follow the strings of a buffer given to [`Self::within`].
    pub(super) const PADDING: usize = 8;

    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let key = if bytes.len() <= 8 { little_endian(bytes) } else { long_key(bytes) };
        Self { bytes, key }
    }

    /// The same for a part of a buffer that goes on for at least
    /// [`Self::PADDING`] bytes after it: a single load and mask.
    #[inline(always)]
    pub(super) fn within(buffer: &'a [u8], start: usize, end: usize) -> Self {
        let bytes = &buffer[start..end];
        let length = end - start;
        let key = match buffer[start..].first_chunk::<8>() {
            Some(word) if (1..=8).contains(&length) => {
                u64::from_le_bytes(*word) & (u64::MAX >> (64 - 8 * length))
            }
            _ => Self::new(bytes).key,
        };
        Self { bytes, key }
    }

    /// The string.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// 64 bits that depend on all bytes. Saved models with hashed features rely
    /// on it: it must never change.
    #[inline(always)]
    pub(super) fn hash(&self) -> u64 {
        spread(self.key, self.bytes.len() as u32)
    }
}

#[inline(always)]
fn spread(key: u64, length: u32) -> u64 {
    fold(key ^ u64::from(length).wrapping_mul(0xD6E8_FEB8_6659_FD93))
}

fn little_endian(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn long_key(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(MULTIPLIER, |state, part| fold(state.rotate_left(23) ^ little_endian(part)))
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    /// The string's number, or [`EMPTY`].
    id: u32,
    length: u32,
}

const EMPTY: u32 = u32::MAX;
const EMPTY_SLOT: Slot = Slot { key: 0, id: EMPTY, length: 0 };

/// Distinct byte strings and their numbers, in the order of insertion.
#[derive(Clone, Debug)]
pub(super) struct Interner {
    bytes: Vec<u8>,
    /// Where each string ends; it begins where the one before ends.
    ends: Vec<u64>,
    /// A power of two of them.
    slots: Vec<Slot>,
}

impl Default for Interner {
    fn default() -> Self {
        Self { bytes: Vec::new(), ends: Vec::new(), slots: vec![EMPTY_SLOT; 16] }
    }
}

impl Interner {
    /// The most strings it can number.
    pub(super) const LIMIT: usize = EMPTY as usize;

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
    pub(super) fn find(&self, string: Keyed) -> Option<u32> {
        let slot = self.slots[self.place(string)];
        (slot.id != EMPTY).then_some(slot.id)
    }

    /// The string's number and whether it is new. The caller keeps the number
    /// of strings below [`Self::LIMIT`].
    #[inline(always)]
    pub(super) fn insert(&mut self, string: Keyed) -> (u32, bool) {
        let place = self.place(string);
        let slot = self.slots[place];
        if slot.id != EMPTY { (slot.id, false) } else { (self.add(place, string), true) }
    }

    fn add(&mut self, place: usize, string: Keyed) -> u32 {
        assert!(self.len() < Self::LIMIT, "more strings than ids");
        let id = self.len() as u32;
        self.slots[place] = Slot { key: string.key, id, length: string.bytes.len() as u32 };
        self.bytes.extend_from_slice(string.bytes);
        self.ends.push(self.bytes.len() as u64);
        if self.len() * 3 > self.slots.len() * 2 {
            self.grow();
        }
        id
    }

    /// The slot of a string, or the empty slot where it belongs.
    #[inline(always)]
    fn place(&self, string: Keyed) -> usize {
        let mask = self.slots.len() - 1;
        let length = string.bytes.len() as u32;
        let mut place = (string.hash() >> 32) as usize & mask;
        loop {
            let slot = &self.slots[place];
            let same = slot.key == string.key && slot.length == length;
            if slot.id == EMPTY || (same && (length <= 8 || self.get(slot.id) == string.bytes)) {
                return place;
            }
            place = (place + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let old = std::mem::replace(&mut self.slots, vec![EMPTY_SLOT; mask + 1]);
        for slot in old.into_iter().filter(|slot| slot.id != EMPTY) {
            let mut place = (spread(slot.key, slot.length) >> 32) as usize & mask;
            while self.slots[place].id != EMPTY {
                place = (place + 1) & mask;
            }
            self.slots[place] = slot;
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
            for (string, id) in twin {
                prop_assert_eq!(interner.get(id), string);
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
            prop_assert_eq!(Keyed::within(&buffer, start, end).key, Keyed::new(&copy).key);
        }
    }

    /// Saved models depend on these values.
    #[test]
    fn the_hash_never_changes() {
        let hashes = ["", "a", " mün", "\tmünchen"].map(|s| Keyed::new(s.as_bytes()).hash());
        let expected: [u64; 4] = [0, 9759873100903476559, 10380137703224419748, 10029798649457910122];
        assert_eq!(hashes, expected);
    }
}
