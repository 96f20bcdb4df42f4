//! What the vectoriser asks of a single character, from a table.
//!
//! Unicode's own tables answer such questions by search or hashing, at 5 to 20 ns
//! each, several a character: more than all the rest of vectorising. The answers
//! for the characters below U+10000 are therefore gathered once into 256 kB, of
//! which a text in one script touches a few lines.

use std::sync::LazyLock;

use unicode_normalization::char::{canonical_combining_class, is_combining_mark};
use unicode_normalization::{IsNormalized, is_nfkc_quick};

/// The low half of an entry is the character in lower case, if this bit is set:
/// it is then one character below U+10000 whatever stands around it, and text of
/// such characters is in NFKC unless two marks follow each other.
const SIMPLE: u32 = 1 << 16;
/// The character has a combining class: its order among others matters.
const MARK: u32 = 1 << 17;
const WORD: u32 = 1 << 18;
const SPACE: u32 = 1 << 19;

static TABLE: LazyLock<Vec<u32>> =
    LazyLock::new(|| (0..=0xffff).map(|code| char::from_u32(code).map_or(0, entry)).collect());

fn entry(c: char) -> u32 {
    let mut lower = c.to_lowercase();
    let simple = match (lower.next(), lower.next()) {
        // A capital sigma is lowered by what stands around it.
        (Some(one), None) if c != 'Σ' && is_nfkc_quick([c].into_iter()) == IsNormalized::Yes => {
            u16::try_from(u32::from(one)).map_or(0, |one| SIMPLE | u32::from(one))
        }
        _ => 0,
    };
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    simple | flag(canonical_combining_class(c) != 0, MARK) | flag(word(c), WORD) | flag(space(c), SPACE)
}

/// Letters, digits, the underscore and combining marks.
fn word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || is_combining_mark(c)
}

/// White space as Python's `str.split` sees it: Unicode's, and four control
/// characters.
fn space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Whether words are made of such characters.
pub(super) fn is_word(c: char) -> bool {
    TABLE.get(c as usize).map_or_else(|| word(c), |entry| entry & WORD != 0)
}

/// Whether such characters separate words.
pub(super) fn is_space(c: char) -> bool {
    // No white space lies beyond the table.
    TABLE.get(c as usize).is_some_and(|entry| entry & SPACE != 0)
}

/// Appends the text in lower case if the table shows that it is in NFKC and how
/// it is lowered. If not, returns false, and `lower` holds some of it.
pub(super) fn push_lower_if_normal(text: &str, lower: &mut String) -> bool {
    let table = &*TABLE;
    let mut after_mark = false;
    for c in text.chars() {
        let entry = table.get(c as usize).copied().unwrap_or(0);
        let is_mark = entry & MARK != 0;
        if entry & SIMPLE == 0 || (is_mark && after_mark) {
            return false;
        }
        after_mark = is_mark;
        lower.push(char::from_u32(entry & 0xffff).unwrap_or(c));
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unicode_normalization::UnicodeNormalization;

    use super::*;

    fn agrees(text: &str) -> bool {
        let mut lower = String::new();
        !push_lower_if_normal(text, &mut lower) || lower == text.nfkc().collect::<String>().to_lowercase()
    }

    #[test]
    fn the_table_agrees_with_unicode_on_every_character() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            assert_eq!((is_word(c), is_space(c)), (word(c), space(c)), "{c:?}");
            assert!(agrees(&c.to_string()) && agrees(&format!("a{c}b")), "{c:?}");
        }
    }

    proptest! {
        /// Marks, Hangul parts and letters that combine or change with their
        /// neighbours among them.
        #[test]
        fn what_the_table_lowers_is_the_normal_form(
            text in "([a-zA-ZΣσßİ \u{300}-\u{345}\u{5b0}-\u{5bc}\u{64b}-\u{655}\u{93c}\u{94d}क-हᄀ-ᇿ가-갛]|\\PC){0,12}",
        ) {
            prop_assert!(agrees(&text), "{:?}", text);
        }
    }

    #[test]
    fn common_text_takes_the_short_way() {
        for text in ["MÜNCHEN", "Москва", "北京", "दिल्ली", "서울", "القاهرة", "Αθήνα"]
        {
            assert!(push_lower_if_normal(text, &mut String::new()), "{text}");
        }
        assert!(!push_lower_if_normal("Mu\u{308}nchen", &mut String::new()));
    }
}
