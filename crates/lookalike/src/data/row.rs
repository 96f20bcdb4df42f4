//! One row of the Extreme Classification format: `label,label,… feature:value feature:value …`.
//!
//! - Labels and features are whole numbers from 0.
//! - A row that starts with white space, or whose first word holds a colon, has
//!   no labels. An empty row has neither labels nor features.
//! - Features may stand in any order and are sorted; one that stands twice is
//!   an error, because nobody can say which value was meant.
//! - A label that stands twice counts once: it says nothing new.

use super::Dataset;
use super::error::{LimitOf, RowProblem};
use super::numbers::{NotANumber, digits, number};

/// The first id that is too large, and who says so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) below: u64,
    pub(crate) of: LimitOf,
}

/// The limits of both kinds of ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdLimits {
    pub(crate) features: Limit,
    pub(crate) classes: Limit,
}

/// What is wrong and at which byte. Small, because words are only made of it
/// when it reaches a person.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) problem: RowProblem,
}

impl Fault {
    /// The bytes that end the word a person should see.
    pub(crate) fn is_end_of_word(self, byte: u8) -> bool {
        let labels = matches!(
            self.problem,
            RowProblem::Label | RowProblem::NegativeLabel | RowProblem::LabelBeyond(..)
        );
        matches!(byte, b' ' | b'\t' | b'\n' | b'\r') || (labels && byte == b',')
    }
}

pub(crate) fn is_space(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Appends the row `text[start..end]` to `out`. The text must not go on with a
/// digit at `end`. After a fault `out` is as it was before.
pub(crate) fn parse_row(
    text: &[u8],
    start: usize,
    end: usize,
    limits: &IdLimits,
    out: &mut Dataset,
) -> Result<(), Fault> {
    let (first_feature, first_label) = (out.feature_ids.len(), out.label_ids.len());
    let result = parse_labels(text, start, end, limits.classes, &mut out.label_ids)
        .and_then(|at| parse_features(text, at, end, limits.features, out));
    if result.is_err() {
        out.feature_ids.truncate(first_feature);
        out.feature_values.truncate(first_feature);
        out.label_ids.truncate(first_label);
        return result;
    }
    out.feature_offsets.push(out.feature_ids.len() as u64);
    out.label_offsets.push(out.label_ids.len() as u64);
    Ok(())
}

/// Reads the labels; returns where the features start.
fn parse_labels(
    text: &[u8],
    start: usize,
    end: usize,
    limit: Limit,
    ids: &mut Vec<u32>,
) -> Result<usize, Fault> {
    if start == end || is_space(text[start]) {
        return Ok(start);
    }
    let first = ids.len();
    let mut at = start;
    let mut ascending = true;
    loop {
        let (label, next) = digits(text, at);
        let delimiter = if next < end { text[next] } else { b' ' };
        if delimiter == b':' && at == start {
            return Ok(start);
        }
        if next == at || !(delimiter == b',' || is_space(delimiter)) {
            let negative = at < end && text[at] == b'-' && digits(text, at + 1).1 > at + 1;
            let problem = if negative { RowProblem::NegativeLabel } else { RowProblem::Label };
            return Err(Fault { at, problem });
        }
        if label >= limit.below {
            return Err(Fault { at, problem: RowProblem::LabelBeyond(limit.below, limit.of) });
        }
        let label = label as u32;
        ascending &= ids.len() == first || ids[ids.len() - 1] < label;
        ids.push(label);
        if delimiter != b',' {
            if !ascending {
                sort_labels(ids, first);
            }
            return Ok(next);
        }
        at = next + 1;
    }
}

fn sort_labels(ids: &mut Vec<u32>, first: usize) {
    let mut row = ids.split_off(first);
    row.sort_unstable();
    row.dedup();
    ids.append(&mut row);
}

fn parse_features(
    text: &[u8],
    start: usize,
    end: usize,
    limit: Limit,
    out: &mut Dataset,
) -> Result<(), Fault> {
    let first = out.feature_ids.len();
    let mut at = start;
    let mut ascending = true;
    let mut least = 0;
    loop {
        while at < end && is_space(text[at]) {
            at += 1;
        }
        if at >= end {
            break;
        }
        let (feature, colon) = digits(text, at);
        if colon == at || colon >= end || text[colon] != b':' {
            return Err(feature_fault(text, at, end));
        }
        if feature >= limit.below {
            return Err(Fault { at, problem: RowProblem::FeatureBeyond(limit.below, limit.of) });
        }
        let (value, next) = number(text, colon + 1, end).map_err(|reason| Fault {
            at: colon + 1,
            problem: match reason {
                NotANumber::Text => RowProblem::Value,
                NotANumber::NotFinite => RowProblem::NotFinite,
            },
        })?;
        ascending &= feature >= least;
        least = feature + 1;
        out.feature_ids.push(feature as u32);
        out.feature_values.push(value);
        at = next;
    }
    if ascending { Ok(()) } else { sort_features(text, start, end, first, out) }
}

fn feature_fault(text: &[u8], at: usize, end: usize) -> Fault {
    let colon = digits(text, at + 1).1;
    let negative = text[at] == b'-' && colon > at + 1 && colon < end && text[colon] == b':';
    let problem = if negative { RowProblem::NegativeFeature } else { RowProblem::Feature };
    Fault { at, problem }
}

#[cold]
fn sort_features(
    text: &[u8],
    start: usize,
    end: usize,
    first: usize,
    out: &mut Dataset,
) -> Result<(), Fault> {
    let ids = &mut out.feature_ids[first..];
    let values = &mut out.feature_values[first..];
    let mut pairs: Vec<(u32, f32)> = ids.iter().copied().zip(values.iter().copied()).collect();
    pairs.sort_by_key(|pair| pair.0);
    if pairs.windows(2).any(|w| w[0].0 == w[1].0) {
        return Err(Fault { at: first_repetition(text, start, end), problem: RowProblem::DuplicateFeature });
    }
    for (i, (id, value)) in pairs.into_iter().enumerate() {
        (ids[i], values[i]) = (id, value);
    }
    Ok(())
}

/// Where the first feature stands that stood before in a row known to be well
/// formed.
fn first_repetition(text: &[u8], start: usize, end: usize) -> usize {
    let mut seen = std::collections::HashSet::new();
    let mut at = start;
    while at < end {
        if is_space(text[at]) {
            at += 1;
            continue;
        }
        if !seen.insert(digits(text, at).0) {
            return at;
        }
        while at < end && !is_space(text[at]) {
            at += 1;
        }
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: IdLimits = IdLimits {
        features: Limit { below: 100, of: LimitOf::Header },
        classes: Limit { below: 50, of: LimitOf::Model },
    };

    /// Features and labels of one row, or the column (from 1) of its fault.
    type Row = (Vec<(u32, f32)>, Vec<u32>);
    fn parse(row: &str) -> Result<Row, (usize, RowProblem)> {
        let mut out = Dataset::empty(100, 50);
        match parse_row(row.as_bytes(), 0, row.len(), &LIMITS, &mut out) {
            Ok(()) => {
                assert_eq!(out.view().check_law(), Ok(()), "{row}");
                let (ids, values) = out.view().features(0);
                let pairs = ids.iter().copied().zip(values.iter().copied()).collect();
                Ok((pairs, out.label_ids))
            }
            Err(fault) => {
                assert_eq!(out, Dataset::empty(100, 50), "{row}");
                Err((fault.at + 1, fault.problem))
            }
        }
    }

    #[test]
    fn rows_of_every_shape() {
        let both = Ok((vec![(4, 0.5), (7, -1.0)], vec![1, 3]));
        for row in ["1,3 4:0.5 7:-1", "3,1  7:-1.0\t4:5e-1 ", "3,1,3,1 4:.5 7:-1."] {
            assert_eq!(parse(row), both, "{row}");
        }
        for row in [" 4:2", "4:2", "\t4:2"] {
            assert_eq!(parse(row), Ok((vec![(4, 2.0)], vec![])), "{row}");
        }
        for row in ["3", "3 ", "3   "] {
            assert_eq!(parse(row), Ok((vec![], vec![3])), "{row}");
        }
        for row in ["", " ", "   "] {
            assert_eq!(parse(row), Ok((vec![], vec![])), "{row}");
        }
    }

    #[test]
    fn faults_name_their_column() {
        use RowProblem::*;
        for (row, column, problem) in [
            ("x 1:2", 1, Label),
            ("1,x 1:2", 3, Label),
            ("1, 1:2", 3, Label),
            ("1,,2 1:2", 3, Label),
            ("1,2,", 5, Label),
            ("1.0 1:2", 1, Label),
            ("1,2:3", 3, Label),
            ("-1 1:2", 1, NegativeLabel),
            ("1,50 1:2", 3, LabelBeyond(50, LimitOf::Model)),
            ("99999999999999999999999 1:2", 1, LabelBeyond(50, LimitOf::Model)),
            ("1 x:2", 3, Feature),
            ("1 2", 3, Feature),
            ("1 1:2 3", 7, Feature),
            ("1 -4:2", 3, NegativeFeature),
            ("1 100:2", 3, FeatureBeyond(100, LimitOf::Header)),
            ("1 4:", 5, Value),
            ("1 4: 2", 5, Value),
            ("1 4:x", 5, Value),
            ("1 4:1:2", 5, Value),
            ("1 4:nan", 5, NotFinite),
            ("1 4:-inf", 5, NotFinite),
            ("1 4:1e39", 5, NotFinite),
            ("1 4:1 5:1 4:2", 11, DuplicateFeature),
            ("1 4:1 4:1", 7, DuplicateFeature),
            ("1 9:1 4:1 5:1 4:1", 15, DuplicateFeature),
        ] {
            assert_eq!(parse(row), Err((column, problem)), "{row}");
        }
    }
}
