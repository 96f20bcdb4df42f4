//! Rows in a byte a number, sixteen side by side: for whoever scores all of them at once.

use lookalike_kernels::{
    COLUMN_BLOCK, CodedColumns, CodedQueries, Cpu, code_row, dot_coded_columns, lay_column,
};
use lookalike_mapped::Buffer;

/// Rows with a bias each, in bytes.
#[derive(Debug)]
pub(crate) struct Columns {
    /// Numbers of a row.
    len: usize,
    /// All rows, and some that there are not to make whole blocks.
    codes: Buffer<i8>,
    scales: Vec<f32>,
    starts: Vec<i32>,
    bias: Vec<f32>,
}

/// A row and what is left of it: number `i` is about `scale · codes[i]`.
pub(crate) struct Coded<'a> {
    pub(crate) numbers: &'a [f32],
    pub(crate) codes: &'a [i8],
    pub(crate) scale: f32,
}

impl Columns {
    /// One row for each bias, of `len` numbers, padded: `row` fills one in, and `look` sees
    /// what becomes of it. It starts no parallel work.
    pub(crate) fn new(
        cpu: Cpu,
        len: usize,
        bias: &[f32],
        row: impl Fn(usize, &mut [f32]),
        mut look: impl FnMut(Coded<'_>),
    ) -> Self {
        let padded = bias.len().next_multiple_of(COLUMN_BLOCK);
        let mut codes = Buffer::zeroed(padded * len);
        let (mut scales, mut starts) = (vec![0.0; padded], vec![0; padded]);
        let (mut numbers, mut of_row) = (vec![0.0; len], vec![0; len]);
        for i in 0..bias.len() {
            row(i, &mut numbers);
            let coded = code_row(cpu, &numbers, &mut of_row);
            (scales[i], starts[i]) = (coded.scale, coded.above.wrapping_neg());
            lay_column(&of_row, i, &mut codes);
            look(Coded { numbers: &numbers, codes: &of_row, scale: coded.scale });
        }
        let mut bias = bias.to_vec();
        bias.resize(padded, 0.0);
        Self { len, codes, scales, starts, bias }
    }

    /// Numbers of a row.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number of rows, with those that make whole blocks.
    pub(crate) fn count(&self) -> usize {
        self.bias.len()
    }

    /// About what queries score for `count` rows from `first` on, whole blocks; see
    /// [`dot_coded_columns`].
    pub(crate) fn score(
        &self,
        cpu: Cpu,
        queries: CodedQueries<'_>,
        (first, count): (usize, usize),
        out: &mut [f32],
        out_stride: usize,
    ) {
        let range = first..first + count;
        let columns = CodedColumns {
            codes: &self.codes[first * self.len..(first + count) * self.len],
            scales: &self.scales[range.clone()],
            starts: &self.starts[range.clone()],
            bias: &self.bias[range],
        };
        dot_coded_columns(cpu, self.len, queries, columns, out, out_stride);
    }
}
