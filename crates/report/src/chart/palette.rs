//! Colours and dashes of the series.
//!
//! After Okabe and Ito's set, which people with any common colour blindness can tell apart, with
//! the pale members darkened to be seen on white. Dashes tell the lines apart without any colour,
//! on a black-and-white print.

/// Colours on white, then on a dark page.
pub(crate) const COLOURS: [(&str, &str); 8] = [
    ("#0072b2", "#56b4f0"),
    ("#d55e00", "#ff8a47"),
    ("#009e73", "#2fcb9d"),
    ("#b5518f", "#e69ac6"),
    ("#d68f00", "#f3b63f"),
    ("#4b4b4b", "#d4d4d4"),
    ("#2fa3d9", "#a5dcff"),
    ("#8a6d3b", "#cbb07c"),
];

const DASHES: [&str; 7] = ["none", "7 4", "2 3", "10 3 2 3", "14 4", "5 2", "9 3 2 3 2 3"];

/// A series' place in the palette. Any number is a place; the first 56 all look different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style(pub(crate) usize);

impl Style {
    /// Which of the [`COLOURS`].
    pub(crate) fn colour(self) -> usize {
        self.0 % COLOURS.len()
    }

    /// The SVG dash pattern. Eight colours and seven dashes share no factor, so that the pairs
    /// repeat only after 56 series.
    pub(crate) fn dash(self) -> &'static str {
        DASHES[self.0 % DASHES.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn fifty_six_series_look_different() {
        let looks: HashSet<_> = (0..56).map(|place| (Style(place).colour(), Style(place).dash())).collect();
        assert_eq!(looks.len(), 56);
    }
}
