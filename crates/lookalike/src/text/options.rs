//! What a user chooses about features, and the defaults.

use serde::{Deserialize, Serialize};

use super::TextError;

/// Lengths of n-grams, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// The shortest.
    pub min: usize,
    /// The longest.
    pub max: usize,
}

impl Sizes {
    /// Lengths from `min` to `max`.
    pub fn new(min: usize, max: usize) -> Self {
        Self { min, max }
    }
}

/// How texts become features.
///
/// The defaults serve short names and documents alike. Single words carry the
/// topic of a document; 2- to 4-grams of characters carry spelling, which is
/// all that a misspelt, inflected or transliterated name shares with the one
/// seen in training, and are the words of scripts that do not write spaces.
/// Sublinear tf keeps a word said fifty times from drowning the others, and an
/// n-gram seen in one text only cannot generalise, so `min_documents` is 2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextOptions {
    /// N-grams of words, if any.
    pub words: Option<Sizes>,
    /// A word needs at least so many characters.
    pub word_length_min: usize,
    /// N-grams of characters within words, if any.
    pub characters: Option<Sizes>,
    /// Whether an n-gram met `c` times in a text counts `1 + ln c`, not `c`.
    pub sublinear: bool,
    /// An n-gram must occur in at least so many texts. Ignored with `hash_bits`.
    pub min_documents: u32,
    /// At most so many n-grams: the most frequent ones; of equals, the first in
    /// the order of code points. Ignored with `hash_bits`.
    pub max_features: Option<usize>,
    /// Instead of a vocabulary, hash n-grams to `2^bits` features.
    pub hash_bits: Option<u32>,
    /// While counting, at most about so many distinct n-grams are in memory:
    /// when there are more, the rarest are forgotten and the report says so.
    pub table_limit: usize,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            words: Some(Sizes::new(1, 1)),
            word_length_min: 2,
            characters: Some(Sizes::new(2, 4)),
            sublinear: true,
            min_documents: 2,
            max_features: Some(1 << 20),
            hash_bits: None,
            table_limit: 32 << 20,
        }
    }
}

impl TextOptions {
    /// Whether the options make sense together.
    pub fn check(&self) -> Result<(), TextError> {
        const SIZE_MAX: usize = 64;
        const HASH_BITS_MAX: u32 = 31;
        let wrong = |message: String| Err(TextError::Options(message));
        if self.words.is_none() && self.characters.is_none() {
            return wrong("neither words nor characters are features; choose at least one".into());
        }
        for (what, sizes) in [("words", self.words), ("characters", self.characters)] {
            let Some(Sizes { min, max }) = sizes else {
                continue;
            };
            if min == 0 || min > max || max > SIZE_MAX {
                return wrong(format!(
                    "n-grams of {what}: found sizes {min} to {max}, expected 1 <= min <= max <= {SIZE_MAX}"
                ));
            }
        }
        match self.hash_bits {
            Some(bits) if !(1..=HASH_BITS_MAX).contains(&bits) => {
                wrong(format!("hash_bits is {bits}, expected 1 to {HASH_BITS_MAX}"))
            }
            _ if self.max_features == Some(0) => {
                wrong("max_features is 0, expected at least 1, or none for no limit".into())
            }
            _ => Ok(()),
        }
    }
}
