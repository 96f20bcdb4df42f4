//! A borrowed view of a matrix of parameter rows, in either storage.

use lookalike_kernels::bf16;

/// The elements of a [`RowsView`].
#[derive(Clone, Copy, Debug)]
pub enum RowData<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half the memory, 8 bits of precision.
    Bf16(&'a [bf16]),
}

/// Rows of `dim` numbers, each padded with zeroes to `stride`.
#[derive(Clone, Copy, Debug)]
pub struct RowsView<'a> {
    /// The elements, row after row.
    pub data: RowData<'a>,
    /// Numbers in a row.
    pub dim: usize,
    /// Distance between rows: `dim` padded to whole registers.
    pub stride: usize,
}

impl<'a> RowsView<'a> {
    /// A view of f32 rows, padded as the kernels want them.
    pub fn f32(data: &'a [f32], dim: usize) -> Self {
        Self { data: RowData::F32(data), dim, stride: lookalike_kernels::padded(dim) }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        let elements = match self.data {
            RowData::F32(data) => data.len(),
            RowData::Bf16(data) => data.len(),
        };
        elements.checked_div(self.stride).unwrap_or(0)
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds row `row` to `sum`, which has `dim` numbers.
    pub fn add_row(&self, row: usize, sum: &mut [f32]) {
        let range = row * self.stride..row * self.stride + self.dim;
        match self.data {
            RowData::F32(data) => sum.iter_mut().zip(&data[range]).for_each(|(sum, x)| *sum += x),
            RowData::Bf16(data) => sum.iter_mut().zip(&data[range]).for_each(|(sum, x)| *sum += x.to_f32()),
        }
    }

    /// Copies row `row` into the first `stride` elements of `out`.
    pub fn copy_row(&self, row: usize, out: &mut [f32]) {
        let range = row * self.stride..(row + 1) * self.stride;
        match self.data {
            RowData::F32(data) => out[..self.stride].copy_from_slice(&data[range]),
            RowData::Bf16(data) => {
                for (out, x) in out.iter_mut().zip(&data[range]) {
                    *out = x.to_f32();
                }
            }
        }
    }
}
