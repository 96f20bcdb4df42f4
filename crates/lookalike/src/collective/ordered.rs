//! Sums and maxima over ranks, joined as a tree of ranks.
//!
//! Each rank joins one slice of the numbers: the others send it their share of
//! that slice, and it sends back what came out. So a rank sends 2·(R - 1)/R times the
//! numbers whatever R is, as the best ring does, and the order of a sum does not depend
//! on who came first. Few numbers, where the two ways would cost more than the bytes,
//! go to everybody at once, and everybody joins them alike.

use bytemuck::{NoUninit, Pod, Zeroable};

use super::{Collective, join_in_tree};

/// Everybody sends everything to everybody as long as nobody gets more bytes than this.
const SMALL_BYTES: usize = 16 << 10;

impl dyn Collective + '_ {
    /// Element by element, the sum over all ranks.
    pub fn sum_f32(&self, values: &mut [f32]) {
        reduce(self, values, |a, b| a + b);
    }

    /// Element by element, the sum over all ranks.
    pub fn sum_f64(&self, values: &mut [f64]) {
        reduce(self, values, |a, b| a + b);
    }

    /// Element by element, the sum over all ranks.
    pub fn sum_u32(&self, values: &mut [u32]) {
        reduce(self, values, |a, b| a + b);
    }

    /// Element by element, the largest value of all ranks.
    pub fn max_f32(&self, values: &mut [f32]) {
        reduce(self, values, f32::max);
    }

    /// Whether any rank says so.
    pub fn any(&self, wish: bool) -> bool {
        let mut wishes = [u32::from(wish)];
        self.sum_u32(&mut wishes);
        wishes[0] > 0
    }

    /// The values of all ranks, in their order; all have as many.
    pub fn gather<T: Pod>(&self, values: &[T]) -> Vec<T> {
        // Of nothing everybody has as much, and MPI calls it an error.
        if self.size() == 1 || values.is_empty() {
            return values.to_vec();
        }
        let mut all = vec![T::zeroed(); values.len() * self.size()];
        self.gather_bytes(bytemuck::cast_slice(values), bytemuck::cast_slice_mut(&mut all));
        all
    }

    /// The bytes of each rank, however many they are.
    pub fn gather_texts(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        let lens = self.gather(&[mine.len() as u64]);
        let longest = lens.iter().copied().max().unwrap_or(0) as usize;
        let mut padded = mine.to_vec();
        padded.resize(longest, 0);
        let all = self.gather(&padded);
        let texts = lens.iter().enumerate().map(|(rank, &len)| &all[rank * longest..][..len as usize]);
        texts.map(<[u8]>::to_vec).collect()
    }
}

/// Joins the values of all ranks, element by element.
fn reduce<T: NoUninit + Pod + Zeroable>(
    collective: &dyn Collective,
    values: &mut [T],
    join: impl Fn(T, T) -> T,
) {
    let size = collective.size();
    if size == 1 || values.is_empty() {
        return;
    }
    if size_of_val(values) * size <= SMALL_BYTES {
        let mut all = collective.gather(values);
        join_in_tree(&mut all, values.len(), join);
        return values.copy_from_slice(&all[..values.len()]);
    }
    // The slices are equally long, so that the last may reach beyond the values.
    let slice = values.len().div_ceil(size);
    let mut mine = values.to_vec();
    mine.resize(slice * size, T::zeroed());
    let mut theirs = vec![T::zeroed(); slice * size];
    collective.exchange_bytes(bytemuck::cast_slice(&mine), bytemuck::cast_slice_mut(&mut theirs));
    join_in_tree(&mut theirs, slice, join);
    collective.gather_bytes(bytemuck::cast_slice(&theirs[..slice]), bytemuck::cast_slice_mut(&mut mine));
    values.copy_from_slice(&mine[..values.len()]);
}
