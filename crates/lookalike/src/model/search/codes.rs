//! Rows in a byte a number: rough scores at a quarter of the memory.
//!
//! A row `w` is kept as `scale · c` with whole numbers `c` between -127 and 127, so each
//! number is within half of `scale`, which is the largest of them over 127. A query is
//! taken in eleven bits. What is left of the score of a class is some thousandths of the
//! lengths of both: enough to say which classes are worth a look, never to answer with.

use std::ops::Range;

use lookalike_kernels::{Cpu, dot_codes, prefetch};
use lookalike_mapped::Buffer;
use rayon::prelude::*;

/// The largest number of a row.
const CODE_MAX: f32 = 127.0;
/// The largest number of a query, where rows are not so long that sums would overflow.
const QUERY_MAX: usize = 2047;

/// Rows that lie anywhere are asked for so many ahead.
const ROWS_AHEAD: usize = 8;
/// Cache lines that memory is asked for ahead at most.
const LINES_AHEAD: usize = 48;

/// Rows, each with what it is multiplied with and a bias.
#[derive(Clone, Debug, Default)]
pub struct CodedRows {
    /// Whole numbers, row after row, padded as class vectors are.
    pub codes: Buffer<i8>,
    /// What a row's numbers are multiplied with.
    pub scale: Vec<f32>,
    /// What is added to a row's product.
    pub bias: Vec<f32>,
}

/// An embedding in whole numbers.
#[derive(Debug, Default)]
pub(super) struct CodedQuery {
    values: Vec<i16>,
    scale: f32,
}

impl CodedQuery {
    pub(super) fn set(&mut self, embedding: &[f32]) {
        let most = QUERY_MAX.min(i32::MAX as usize / (CODE_MAX as usize * embedding.len().max(1))) as f32;
        let largest = embedding.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
        let inverse = if largest > 0.0 { most / largest } else { 0.0 };
        self.scale = largest / most;
        self.values.clear();
        self.values.extend(embedding.iter().map(|x| (x * inverse).round() as i16));
    }
}

impl CodedRows {
    /// `count` rows of `stride` numbers; `row` fills in one and gives its bias.
    pub(super) fn build(count: usize, stride: usize, row: impl Fn(usize, &mut [f32]) -> f32 + Sync) -> Self {
        let mut codes = Buffer::zeroed(count * stride);
        let scale_and_bias: Vec<(f32, f32)> = codes
            .par_chunks_exact_mut(stride)
            .enumerate()
            .map_init(
                || vec![0.0; stride],
                |numbers, (i, codes)| {
                    let bias = row(i, numbers);
                    (code(numbers, codes), bias)
                },
            )
            .collect();
        let (scale, bias) = scale_and_bias.into_iter().unzip();
        Self { codes, scale, bias }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.bias.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.bias.is_empty()
    }

    /// Prefetches some rows: they lie anywhere, and are scored soon.
    pub(super) fn ask_for(&self, query: &CodedQuery, range: Range<usize>) {
        let stride = query.values.len();
        let bytes = range.start * stride..range.end * stride;
        bytes.step_by(64).take(LINES_AHEAD).for_each(|line| prefetch(&self.codes, line));
    }

    /// What some rows score, about; `sums` is working memory.
    pub(super) fn score(
        &self,
        cpu: Cpu,
        query: &CodedQuery,
        range: Range<usize>,
        sums: &mut Vec<i32>,
        scores: &mut Vec<f32>,
    ) {
        let stride = query.values.len();
        sums.resize(range.len(), 0);
        dot_codes(cpu, &query.values, &self.codes[range.start * stride..range.end * stride], sums);
        let rows = self.scale[range.clone()].iter().zip(&self.bias[range]);
        scores.clear();
        scores.extend(
            sums.iter().zip(rows).map(|(&sum, (scale, bias))| sum as f32 * (scale * query.scale) + bias),
        );
    }

    /// Adds to `scores` what rows that lie anywhere score, about.
    pub(super) fn score_each(
        &self,
        cpu: Cpu,
        query: &CodedQuery,
        rows: impl ExactSizeIterator<Item = usize> + Clone,
        scores: &mut Vec<f32>,
    ) {
        let stride = query.values.len();
        rows.clone().take(ROWS_AHEAD).for_each(|row| self.ask_for(query, row..row + 1));
        let mut ahead = rows.clone().skip(ROWS_AHEAD);
        scores.extend(rows.map(|row| {
            if let Some(row) = ahead.next() {
                self.ask_for(query, row..row + 1);
            }
            let mut sum = [0];
            dot_codes(cpu, &query.values, &self.codes[row * stride..][..stride], &mut sum);
            sum[0] as f32 * (self.scale[row] * query.scale) + self.bias[row]
        }));
    }
}

/// Writes a row as whole numbers and gives what they are to be multiplied with.
fn code(row: &[f32], codes: &mut [i8]) -> f32 {
    let largest = row.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    let inverse = if largest > 0.0 { CODE_MAX / largest } else { 0.0 };
    codes.iter_mut().zip(row).for_each(|(code, x)| *code = (x * inverse).round() as i8);
    largest / CODE_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Stream, mix};

    #[test]
    fn scores_are_within_what_rounding_takes() {
        let number = |row: usize, place: usize| {
            (mix(1, Stream::Data, row as u64, place as u64) % 2001) as f32 / 1000.0 - 1.0
        };
        let (stride, rows) = (48, 40);
        // The first row is zero.
        let vector = |row: usize| (0..stride).map(move |place| row as f32 * number(row, place));
        let codes = CodedRows::build(rows, stride, |row, numbers| {
            numbers.iter_mut().zip(vector(row)).for_each(|(to, x)| *to = x);
            row as f32
        });
        let embedding: Vec<f32> = (0..stride).map(|place| 3.0 * number(1000, place)).collect();
        let (mut query, mut sums, mut scores) = (CodedQuery::default(), vec![], vec![]);
        query.set(&embedding);
        codes.score(Cpu::detect(), &query, 0..rows, &mut sums, &mut scores);
        let size: f32 = embedding.iter().map(|x| x.abs()).sum();
        for (row, score) in scores.iter().enumerate() {
            let exact: f32 = vector(row).zip(&embedding).map(|(x, e)| x * e).sum::<f32>() + row as f32;
            let longest = vector(row).fold(0.0, |most: f32, x| most.max(x.abs()));
            // Half a step of the row, half a step of the query.
            let bound = longest * (size / 254.0 + stride as f32 * 3.0 / 4094.0) + 1e-4;
            assert!((score - exact).abs() <= bound, "{row}: {score} {exact} {bound}");
        }
        // A query of zeroes leaves the bias.
        query.set(&vec![0.0; stride]);
        codes.score(Cpu::detect(), &query, 2..5, &mut sums, &mut scores);
        assert_eq!(scores, [2.0, 3.0, 4.0]);
    }
}
