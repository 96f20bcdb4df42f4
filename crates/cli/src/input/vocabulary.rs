//! How text becomes features: flags, and the `[text]` part of a settings file.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use lookalike::text::{Sizes, TextOptions};
use serde::{Deserialize, Serialize};

/// Flags that override the settings; none has a default of its own.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Text")]
pub(crate) struct TextArguments {
    /// Lengths of word n-grams, as 1 or 1-2, or none [default: 1]
    #[arg(long, value_name = "SIZES")]
    words: Option<Lengths>,
    /// A word has at least so many characters [default: 2]
    #[arg(long, value_name = "N")]
    word_length: Option<usize>,
    /// Lengths of character n-grams within words, as 3 or 2-4, or none [default: 2-4]
    #[arg(long, value_name = "SIZES")]
    characters: Option<Lengths>,
    /// Whether an n-gram met c times counts 1 + ln c, not c: true or false [default: true]
    #[arg(long, value_name = "BOOL")]
    sublinear: Option<bool>,
    /// An n-gram must occur in so many texts [default: 2]
    #[arg(long, value_name = "N")]
    min_documents: Option<u32>,
    /// The most frequent n-grams are kept, at most so many; 0 for all [default: 1048576]
    #[arg(long, value_name = "N")]
    max_features: Option<usize>,
    /// Hash n-grams to 2^BITS features instead of keeping a vocabulary
    #[arg(long, value_name = "BITS")]
    hash_bits: Option<u32>,
    /// While counting, about so many distinct n-grams are in memory; beyond, the rarest are
    /// forgotten [default: 33554432]
    #[arg(long, value_name = "N")]
    table_limit: Option<usize>,
}

/// Lengths of n-grams as a person writes them: `1`, `2-4` or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Lengths(Option<Sizes>);

impl FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let (min, max) = text.split_once('-').unwrap_or((text, text));
        match (min.parse(), max.parse()) {
            (Ok(min), Ok(max)) => Ok(Self(Some(Sizes::new(min, max)))),
            _ => Err(format!("found {text:?}, expected a length as 3, two as 2-4, or none")),
        }
    }
}

impl TryFrom<String> for Lengths {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Lengths> for String {
    fn from(lengths: Lengths) -> Self {
        lengths.to_string()
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some(Sizes { min, max }) if min == max => write!(f, "{min}"),
            Some(Sizes { min, max }) => write!(f, "{min}-{max}"),
        }
    }
}

/// [`TextOptions`] as they stand in a settings file: TOML has no word for an
/// absent value, so `none` and 0 stand for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TextSettings {
    words: Lengths,
    word_length: usize,
    characters: Lengths,
    sublinear: bool,
    min_documents: u32,
    /// 0: no limit.
    max_features: usize,
    /// 0: a vocabulary.
    hash_bits: u32,
    table_limit: usize,
}

impl Default for TextSettings {
    fn default() -> Self {
        Self::from(&TextOptions::default())
    }
}

impl From<&TextOptions> for TextSettings {
    fn from(options: &TextOptions) -> Self {
        Self {
            words: Lengths(options.words),
            word_length: options.word_length_min,
            characters: Lengths(options.characters),
            sublinear: options.sublinear,
            min_documents: options.min_documents,
            max_features: options.max_features.unwrap_or(0),
            hash_bits: options.hash_bits.unwrap_or(0),
            table_limit: options.table_limit,
        }
    }
}

impl TextSettings {
    /// What the library is told.
    pub(crate) fn options(&self) -> TextOptions {
        TextOptions {
            words: self.words.0,
            word_length_min: self.word_length,
            characters: self.characters.0,
            sublinear: self.sublinear,
            min_documents: self.min_documents,
            max_features: Some(self.max_features).filter(|&limit| limit > 0),
            hash_bits: Some(self.hash_bits).filter(|&bits| bits > 0),
            table_limit: self.table_limit,
        }
    }
}

impl TextArguments {
    /// Overrides what was given.
    pub(crate) fn apply(&self, settings: &mut TextSettings) {
        fn set<T: Copy>(slot: &mut T, value: Option<T>) {
            *slot = value.unwrap_or(*slot);
        }
        set(&mut settings.words, self.words);
        set(&mut settings.word_length, self.word_length);
        set(&mut settings.characters, self.characters);
        set(&mut settings.sublinear, self.sublinear);
        set(&mut settings.min_documents, self.min_documents);
        set(&mut settings.max_features, self.max_features);
        set(&mut settings.hash_bits, self.hash_bits);
        set(&mut settings.table_limit, self.table_limit);
    }

    /// Whether any flag was given.
    pub(crate) fn any(&self) -> bool {
        let mut changed = TextSettings::default();
        self.apply(&mut changed);
        changed != TextSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_they_are_written() {
        for (text, sizes) in [("none", None), ("3", Some((3, 3))), ("2-4", Some((2, 4)))] {
            let lengths: Lengths = text.parse().unwrap();
            assert_eq!(lengths, Lengths(sizes.map(|(min, max)| Sizes::new(min, max))));
            assert_eq!(lengths.to_string(), text);
        }
        for bad in ["", "-", "2-", "a", "1-2-3", "None"] {
            assert!(bad.parse::<Lengths>().is_err(), "{bad}");
        }
    }

    #[test]
    fn defaults_are_the_library_s() {
        assert_eq!(TextSettings::default().options(), TextOptions::default());
    }
}
