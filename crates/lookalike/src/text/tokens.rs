//! From a text to its n-grams of words and of characters.
//!
//! **Normal form.** Unicode NFKC, then lower case (as Python's `str.lower`, so
//! `ß` stays `ß`). Nearly all text is in NFKC already; a table of the characters
//! below U+10000 tells so and lowers them in one step (see `characters`).
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
//! **No allocation an n-gram.** Every n-gram is a part of one buffer. For n-grams
//! of characters, words stand there with one space between, before and after, so
//! the space is shared: `" new york "`. For those of words each word begins with a
//! tab: `"\tnew\tyork"`. Since no n-gram of characters can hold a tab, the two
//! kinds never meet, though both live in one vocabulary.
//! O(text · number of sizes).

use unicode_normalization::UnicodeNormalization;

use super::characters::{self, is_space, is_word};
use super::interner::Keyed;
use super::{Sizes, TextOptions};

/// Begins every word in n-grams of words.
pub(super) const WORD_MARK: u8 = b'\t';

/// Buffers used again for each text.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens {
    normal: String,
    /// `" new york "`, then `"\tnew\tyork"`, then padding.
    buffer: Vec<u8>,
    /// Where each character of the first part of the buffer begins and the last
    /// one ends; then the same for each word of the second part.
    starts: Vec<usize>,
    rows: Vec<Sequence>,
}

/// Characters or words in a row, of which neighbours make n-grams.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    /// They are these elements of `starts`, the last being the end.
    first: usize,
    last: usize,
    sizes: Sizes,
}

impl Tokens {
    /// Lays out a text for [`Self::for_each_ngram`].
    pub(super) fn lay_out(&mut self, text: &str, options: &TextOptions) {
        self.normalise(text);
        self.buffer.clear();
        self.starts.clear();
        self.rows.clear();
        if let Some(sizes) = options.characters {
            self.lay_out_characters(sizes);
        }
        if let Some(sizes) = options.words {
            self.lay_out_words(sizes, options.word_length_min);
        }
        self.buffer.extend([0; Keyed::PADDING]);
    }

    /// Calls `take` with every n-gram of the text laid out, repetitions included.
    #[inline(always)]
    pub(super) fn for_each_ngram(&self, mut take: impl FnMut(Keyed<'_>)) {
        for &Sequence { first, last, sizes: Sizes { min, max } } in &self.rows {
            let starts = &self.starts[first..=last];
            for at in 0..starts.len().saturating_sub(min) {
                let ends = &starts[at + min..starts.len().min(at + max + 1)];
                for &end in ends {
                    take(Keyed::within(&self.buffer, starts[at], end));
                }
            }
        }
    }

    fn normalise(&mut self, text: &str) {
        self.normal.clear();
        if text.is_ascii() {
            self.normal.push_str(text);
            self.normal.make_ascii_lowercase();
        } else if !characters::push_lower_if_normal(text, &mut self.normal) {
            self.normal.clear();
            let normal: String = text.nfkc().collect();
            self.normal.push_str(&normal.to_lowercase());
        }
    }

    fn lay_out_characters(&mut self, sizes: Sizes) {
        let is_ascii = self.normal.is_ascii();
        for word in self.normal.split(is_space).filter(|word| !word.is_empty()) {
            let first = self.starts.len();
            self.starts.push(self.buffer.len());
            self.buffer.push(b' ');
            let base = self.buffer.len();
            if is_ascii {
                self.starts.extend(base..base + word.len());
            } else {
                self.starts.extend(word.char_indices().map(|(at, _)| base + at));
            }
            self.buffer.extend_from_slice(word.as_bytes());
            // The space after the word is the next word's space before.
            let last = self.starts.len() + 1;
            // A word shorter than the shortest n-gram is one.
            let min = sizes.min.min(last - first);
            self.rows.push(Sequence { first, last, sizes: Sizes { min, ..sizes } });
        }
        self.starts.extend([self.buffer.len(), self.buffer.len() + 1]);
        self.buffer.push(b' ');
    }

    fn lay_out_words(&mut self, sizes: Sizes, length_min: usize) {
        let first = self.starts.len();
        for word in self.normal.split(|c| !is_word(c)).filter(|word| !word.is_empty()) {
            if length_min <= 1 || word.chars().nth(length_min - 1).is_some() {
                self.starts.push(self.buffer.len());
                self.buffer.push(WORD_MARK);
                self.buffer.extend_from_slice(word.as_bytes());
            }
        }
        let last = self.starts.len();
        self.starts.push(self.buffer.len());
        self.rows.push(Sequence { first, last, sizes });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sorted, as their order is nobody's concern.
    fn ngrams(text: &str, options: &TextOptions) -> Vec<String> {
        let mut tokens = Tokens::default();
        let mut found = Vec::new();
        tokens.lay_out(text, options);
        tokens.for_each_ngram(|ngram| {
            found.push(String::from_utf8(ngram.bytes().to_vec()).unwrap());
        });
        found.sort();
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
        assert_eq!(ngrams("Ab  c\t", &characters(3, 3)), [" ab", " c ", "ab "]);
        assert_eq!(ngrams("ab", &characters(2, 4)), [" a", " ab", " ab ", "ab", "ab ", "b "]);
        // Shorter than the shortest: whole, once.
        assert_eq!(ngrams("a bcd", &characters(5, 6)), [" a ", " bcd "]);
        assert_eq!(ngrams("Ü ß", &characters(2, 2)), [" ß", " ü", "ß ", "ü "]);
        assert!(ngrams(" \n ", &characters(1, 3)).is_empty());
    }

    #[test]
    fn words_are_runs_of_letters_digits_and_marks() {
        assert_eq!(ngrams("New-York, a 2b!", &words(1, 1, 2)), ["\t2b", "\tnew", "\tyork"]);
        assert_eq!(ngrams("a bc d", &words(1, 2, 1)), ["\ta", "\ta\tbc", "\tbc", "\tbc\td", "\td"]);
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
        found.sort();
        found
    }

    proptest! {
        #[test]
        fn characters_as_defined(text in "\\PC{0,12}[ \t\u{a0}a-cÄΣ]{0,12}\\PC{0,5}", min in 1usize..5, more in 0usize..3) {
            prop_assert_eq!(ngrams(&text, &characters(min, min + more)), naive(&text, min, min + more));
        }
    }
}
