//! What every renderer must know about text that comes from data files: it may hold anything.

/// The text on one line, without characters that would steer a terminal, reorder the line or be
/// refused by an XML reader. Label names come from the user's data, so they are not trusted.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
            '\u{2028}' | '\u{2029}' => ' ',
            c if c.is_control() => ' ',
            c => c,
        })
        .collect()
}

/// The number of terminal columns a text takes: 2 for East Asian wide characters and emoji, 0 for
/// combining marks, 1 for the rest. Covers the common blocks, not every rule of Unicode.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

fn char_width(c: char) -> usize {
    match c as u32 {
        0x0300..=0x036f | 0x200b..=0x200f | 0x20d0..=0x20ff | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(clean("a\x1b[31mb\nc\u{202e}d"), "a [31mb c\u{fffd}d");
    }

    #[test]
    fn wide_and_combining_characters_are_counted() {
        assert_eq!(width("abc"), 3);
        assert_eq!(width("日本"), 4);
        assert_eq!(width("e\u{301}"), 1);
    }
}
