//! From a text to its n-grams of words and of characters.
//!
//! **Normal form.** Unicode NFKC, then lower case (as Python's `str.lower`, so
//! `ß` stays `ß`). ASCII text skips the first step, and text that is already in
//! NFKC by the quick check skips the rewriting.
//!
//! **Characters** are those of scikit-learn's `char_wb`: each word (a run
//! without white space) gets a space before and after, n-grams do not cross
//! words, and a word shorter than the shortest n-gram is taken whole, once.
//!
//! **Words** are runs of letters, digits, underscores and combining marks of at
//! least `word_length_min` characters; an n-gram is n of them in a row. This is
//! scikit-learn's `(?u)\b\w\w+\b` but for the marks: Python's `\w` leaves them
//! out, which cuts Hindi or Thai words at every vowel sign.
//!
//! **No allocation an n-gram.** Every n-gram is a piece of one of two buffers.
//! In the buffer of characters, words stand with one space between, before and
//! after, so the space is shared: `" new york "`. In the buffer of words each
//! word begins with a tab: `"\tnew\tyork"`. Since no n-gram of characters can
//! hold a tab, the two kinds never meet, though both live in one vocabulary.
//! O(text · number of sizes).

use unicode_normalization::char::is_combining_mark;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfkc_quick};

use super::TextOptions;
use super::interner::Keyed;

/// Begins every word in n-grams of words.
pub(super) const WORD_MARK: u8 = b'\t';

/// Buffers used again for each text.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens {
    normal: String,
    /// `" new york "`, then padding.
    characters: Vec<u8>,
    /// Where each character of `characters` begins, and the end; unused if ASCII.
    starts: Vec<usize>,
    /// Which characters are the spaces between words.
    spaces: Vec<usize>,
    /// `"\tnew\tyork"`, then padding.
    words: Vec<u8>,
    /// Where each word of `words` begins, and the end.
    word_starts: Vec<usize>,
}

/// White space as Python's `str.split` sees it: Unicode's, and four control
/// characters.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || is_combining_mark(c)
}

impl Tokens {
    /// Calls `take` with every n-gram of the text, repetitions included.
    #[inline]
    pub(super) fn for_each_ngram(
        &mut self,
        text: &str,
        options: &TextOptions,
        mut take: impl FnMut(Keyed<'_>),
    ) {
        self.normalise(text);
        if let Some(sizes) = options.characters {
            let sizes = (sizes.min, sizes.max);
            if self.normal.is_ascii() {
                self.cut_ascii();
                character_ngrams(&self.characters, &self.spaces, |i| i, sizes, &mut take);
            } else {
                self.cut_unicode();
                let starts = &self.starts;
                character_ngrams(&self.characters, &self.spaces, |i| starts[i], sizes, &mut take);
            }
        }
        if let Some(sizes) = options.words {
            self.cut_words(options.word_length_min);
            let count = self.word_starts.len() - 1;
            for size in sizes.min..=sizes.max.min(count) {
                for first in 0..=count - size {
                    let (start, end) = (self.word_starts[first], self.word_starts[first + size]);
                    take(Keyed::within(&self.words, start, end));
                }
            }
        }
    }

    fn normalise(&mut self, text: &str) {
        self.normal.clear();
        if text.is_ascii() {
            self.normal.push_str(text);
            self.normal.make_ascii_lowercase();
        } else if is_nfkc_quick(text.chars()) == IsNormalized::Yes {
            self.push_lower(text);
        } else {
            let normal: String = text.nfkc().collect();
            self.push_lower(&normal);
        }
    }

    fn push_lower(&mut self, text: &str) {
        // The one letter whose lower case depends on its neighbours.
        if text.contains('Σ') {
            self.normal.push_str(&text.to_lowercase());
        } else {
            self.normal.extend(text.chars().flat_map(char::to_lowercase));
        }
    }

    fn cut_ascii(&mut self) {
        self.characters.clear();
        self.spaces.clear();
        for word in self.normal.as_bytes().split(|&b| is_space(char::from(b))) {
            if !word.is_empty() {
                self.spaces.push(self.characters.len());
                self.characters.push(b' ');
                self.characters.extend_from_slice(word);
            }
        }
        self.spaces.push(self.characters.len());
        self.characters.push(b' ');
        self.characters.extend([0; Keyed::PADDING]);
    }

    fn cut_unicode(&mut self) {
        self.characters.clear();
        self.spaces.clear();
        self.starts.clear();
        for word in self.normal.split(is_space).filter(|word| !word.is_empty()) {
            self.spaces.push(self.starts.len());
            self.starts.push(self.characters.len());
            self.characters.push(b' ');
            let base = self.characters.len();
            self.starts.extend(word.char_indices().map(|(at, _)| base + at));
            self.characters.extend_from_slice(word.as_bytes());
        }
        self.spaces.push(self.starts.len());
        self.starts.extend([self.characters.len(), self.characters.len() + 1]);
        self.characters.push(b' ');
        self.characters.extend([0; Keyed::PADDING]);
    }

    fn cut_words(&mut self, length_min: usize) {
        self.words.clear();
        self.word_starts.clear();
        for word in self.normal.split(|c| !is_word(c)).filter(|word| !word.is_empty()) {
            if length_min <= 1 || word.chars().nth(length_min - 1).is_some() {
                self.word_starts.push(self.words.len());
                self.words.push(WORD_MARK);
                self.words.extend_from_slice(word.as_bytes());
            }
        }
        self.word_starts.push(self.words.len());
        self.words.extend([0; Keyed::PADDING]);
    }
}

/// N-grams within words; `start` leads from a character to its first byte.
#[inline(always)]
fn character_ngrams(
    buffer: &[u8],
    spaces: &[usize],
    start: impl Fn(usize) -> usize,
    (min, max): (usize, usize),
    take: &mut impl FnMut(Keyed<'_>),
) {
    for word in spaces.windows(2) {
        let (first, end) = (word[0], word[1] + 1);
        let length = end - first;
        if length < min {
            take(Keyed::within(buffer, start(first), start(end)));
        }
        for size in min..=max.min(length) {
            for at in first..=end - size {
                take(Keyed::within(buffer, start(at), start(at + size)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::Sizes;

    fn ngrams(text: &str, options: &TextOptions) -> Vec<String> {
        let mut found = Vec::new();
        Tokens::default().for_each_ngram(text, options, |ngram| {
            found.push(String::from_utf8(ngram.bytes().to_vec()).unwrap());
        });
        found
    }

    fn characters(min: usize, max: usize) -> TextOptions {
        let characters = Some(Sizes::new(min, max));
        TextOptions { words: None, characters, ..Default::default() }
    }

    fn words(min: usize, max: usize, word_length_min: usize) -> TextOptions {
        let words = Some(Sizes::new(min, max));
        TextOptions { words, characters: None, word_length_min, ..Default::default() }
    }

    #[test]
    fn characters_stay_within_words() {
        assert_eq!(ngrams("Ab  c\t", &characters(3, 3)), [" ab", "ab ", " c "]);
        assert_eq!(ngrams("ab", &characters(2, 4)), [" a", "ab", "b ", " ab", "ab ", " ab "]);
        // Shorter than the shortest: whole, once.
        assert_eq!(ngrams("a bcd", &characters(5, 6)), [" a ", " bcd "]);
        assert_eq!(ngrams("Ü ß", &characters(2, 2)), [" ü", "ü ", " ß", "ß "]);
        assert!(ngrams(" \n ", &characters(1, 3)).is_empty());
    }

    #[test]
    fn words_are_runs_of_letters_digits_and_marks() {
        assert_eq!(ngrams("New-York, a 2b!", &words(1, 1, 2)), ["\tnew", "\tyork", "\t2b"]);
        assert_eq!(ngrams("a bc d", &words(1, 2, 1)), ["\ta", "\tbc", "\td", "\ta\tbc", "\tbc\td"]);
        assert_eq!(ngrams("दिल्ली", &words(1, 1, 2)), ["\tदिल्ली"]);
        assert!(ngrams("? !", &words(1, 3, 1)).is_empty());
    }

    #[test]
    fn normal_form_is_nfkc_in_lower_case() {
        for (text, normal) in [
            ("ＭÜＮ", "\tmün"),
            ("Mu\u{308}n", "\tmün"),
            ("ﬁn", "\tfin"),
            ("ΟΔΟΣ", "\tοδος"),
            ("STRAßE", "\tstraße"),
            ("İst", "\ti\u{307}st"),
        ] {
            assert_eq!(ngrams(text, &words(1, 1, 1)), [normal]);
        }
    }

    /// The definition, word by word, with strings.
    fn naive(text: &str, min: usize, max: usize) -> Vec<String> {
        let text = text.nfkc().collect::<String>().to_lowercase();
        let mut found = Vec::new();
        for word in text.split(is_space).filter(|word| !word.is_empty()) {
            let word: Vec<char> = format!(" {word} ").chars().collect();
            if word.len() < min {
                found.push(word.iter().collect());
            }
            for size in min..=max {
                found.extend(word.windows(size).map(|part| part.iter().collect::<String>()));
            }
        }
        found
    }

    proptest! {
        #[test]
        fn characters_as_defined(text in "\\PC{0,12}[ \t\u{a0}a-cÄΣ]{0,12}\\PC{0,5}", min in 1usize..5, more in 0usize..3) {
            prop_assert_eq!(ngrams(&text, &characters(min, min + more)), naive(&text, min, min + more));
        }
    }
}
