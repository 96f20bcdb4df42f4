//! Ranks that do not run the same thing must not run together.

use super::Collective;

/// What all ranks must have in common: named values, each a line of text.
#[derive(Clone, Debug, Default)]
pub struct Agreement(Vec<(&'static str, String)>);

/// A rank differs from the first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "rank {rank} has {what} {found}, but rank 0 has {expected}: all ranks must run the same program with the same data and settings"
)]
pub struct Disagreement {
    /// The first rank that differs.
    pub rank: usize,
    /// In what.
    pub what: String,
    /// What it has.
    pub found: String,
    /// What rank 0 has.
    pub expected: String,
}

/// Longer values are named by their checksum.
const SHOWN_MAX: usize = 80;

impl Agreement {
    /// Nothing to agree on yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// And this.
    #[must_use]
    pub fn on(mut self, what: &'static str, value: impl ToString) -> Self {
        self.0.push((what, value.to_string()));
        self
    }

    /// Asks all ranks; they all get the same answer.
    pub fn check(&self, collective: &dyn Collective) -> Result<(), Disagreement> {
        let lines: Vec<String> =
            self.0.iter().map(|(what, value)| format!("{what}\t{}", value.replace('\n', " "))).collect();
        let all = collective.gather_texts(lines.join("\n").as_bytes());
        let texts: Vec<String> = all.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
        for (rank, text) in texts.iter().enumerate() {
            if let Some(difference) = difference(rank, text, &texts[0]) {
                return Err(difference);
            }
        }
        Ok(())
    }
}

fn difference(rank: usize, text: &str, first: &str) -> Option<Disagreement> {
    let mut found = text.lines();
    for expected in first.lines() {
        let (what, expected) = expected.split_once('\t').unwrap_or((expected, ""));
        let value = found.next().and_then(|line| line.split_once('\t')).map_or("", |(_, value)| value);
        if value != expected {
            let (found, expected) = (shown(value), shown(expected));
            return Some(Disagreement { rank, what: what.into(), found, expected });
        }
    }
    None
}

fn shown(value: &str) -> String {
    match value.len() {
        0 => "none".into(),
        len if len <= SHOWN_MAX => value.into(),
        _ => format!("(checksum) {:08x}", crc32fast::hash(value.as_bytes())),
    }
}
