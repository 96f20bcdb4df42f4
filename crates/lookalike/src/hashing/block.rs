//! Sixteen vectors laid side by side, the unit in which everything is hashed.

use lookalike_kernels::{Cpu, Element, LANES, transpose_rows};

use crate::model::{RowData, RowsView};

/// Up to [`LANES`] vectors, transposed: dimension `j` of vector `lane` is
/// `values()[j * LANES + lane]`, so one register holds one dimension of all.
#[derive(Clone, Debug, Default)]
pub struct Block {
    values: Vec<f32>,
}

impl Block {
    /// The transposed vectors.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Loads the rows `ids` (1 to [`LANES`] of them) of `rows`. Lanes beyond
    /// the last id repeat it: their codes are computed and ignored.
    pub fn load(&mut self, cpu: Cpu, rows: RowsView<'_>, ids: &[u32]) {
        self.values.resize(rows.dim * LANES, 0.0);
        match rows.data {
            RowData::F32(data) => self.transpose(cpu, data, rows, ids),
            RowData::Bf16(data) => self.transpose(cpu, data, rows, ids),
        }
    }

    fn transpose<T: Element>(&mut self, cpu: Cpu, data: &[T], rows: RowsView<'_>, ids: &[u32]) {
        let lanes: [&[T]; LANES] = std::array::from_fn(|lane| {
            let id = ids[lane.min(ids.len() - 1)] as usize;
            &data[id * rows.stride..(id + 1) * rows.stride]
        });
        transpose_rows(cpu, &lanes, rows.dim, &mut self.values);
    }

    /// Subtracts a vector from all of them.
    pub(super) fn subtract(&mut self, vector: &[f32]) {
        for (lanes, x) in self.values.chunks_exact_mut(LANES).zip(vector) {
            lanes.iter_mut().for_each(|value| *value -= x);
        }
    }

    /// Replaces one lane by row `id` of `rows`, which has the same dimension.
    pub fn set_lane(&mut self, lane: usize, rows: RowsView<'_>, id: usize) {
        let at = id * rows.stride;
        let lane_values = self.values[lane..].iter_mut().step_by(LANES);
        match rows.data {
            RowData::F32(data) => lane_values.zip(&data[at..]).for_each(|(to, x)| *to = *x),
            RowData::Bf16(data) => {
                lane_values.zip(&data[at..]).for_each(|(to, x)| *to = x.to_f32());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_hold_rows_and_can_be_replaced() {
        let data: Vec<f32> = (0..3 * 16).map(|x| x as f32).collect();
        let rows = RowsView::f32(&data, 5);
        let mut block = Block::default();
        block.load(Cpu::portable(), rows, &[2, 0]);
        block.set_lane(1, rows, 1);
        for j in 0..5 {
            assert_eq!(block.values()[j * LANES], (32 + j) as f32);
            assert_eq!(block.values()[j * LANES + 1], (16 + j) as f32);
            assert_eq!(block.values()[j * LANES + 7], j as f32, "repeats the last id");
        }
    }
}
