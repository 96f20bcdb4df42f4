//! A committee in one network: members, each with a loss of its own.
//!
//! The mean of several networks answers better than any of them, as what each has wrong by
//! chance is evened out; but it takes as many trainings, and is as many times as large. Here
//! the numbers of an embedding are divided among members. Member m of M has its M-th part of
//! every embedding and class vector, and scores a class by `M · w_m · E_m + b`. Each member
//! has its own loss over the same candidates and never hears of the others, so they stay
//! different. The mean of their scores is `w · E + b`, which is what the model answers with:
//! nothing but the step knows of members, and a model that is saved does not.
//!
//! Cost: as many losses a pair as members; products and updates are those of one network,
//! in shorter pieces. The embeddings of a batch and their gradient are copied once.

use lookalike_kernels::{AlignedVec, Element};
use rayon::prelude::*;

/// The embeddings of a batch, member by member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divided<'a, T> {
    rows: &'a [T],
    members: usize,
    /// Numbers of a member's rows, all and each: a step asks class by class, and a division
    /// would take as long as a part of the products.
    len: usize,
    width: usize,
}

impl<'a, T: Element> Divided<'a, T> {
    /// As they are: one member has all.
    pub(crate) fn whole(rows: &'a [T], stride: usize) -> Self {
        Self { rows, members: 1, len: rows.len(), width: stride }
    }

    /// Copies the rows of a batch, `stride` apart, into `buffer`, each member's part of them
    /// times the number of members.
    pub(crate) fn among(members: usize, rows: &[f32], stride: usize, buffer: &'a mut AlignedVec<T>) -> Self {
        if buffer.len() < rows.len() {
            *buffer = AlignedVec::zeroed(rows.len());
        }
        let (width, factor) = (stride / members, members as f32);
        let buffer = &mut buffer[..rows.len()];
        let of_member = buffer.par_chunks_exact_mut((rows.len() / members).max(1));
        of_member.enumerate().for_each(|(member, out)| {
            for (out, row) in out.chunks_exact_mut(width).zip(rows.chunks_exact(stride)) {
                let part = &row[member * width..][..width];
                out.iter_mut().zip(part).for_each(|(out, &x)| *out = T::from_f32(factor * x));
            }
        });
        Self { rows: buffer, members, len: buffer.len() / members, width }
    }

    /// How many members there are.
    pub(crate) fn members(&self) -> usize {
        self.members
    }

    /// How many numbers of an embedding and of a class vector a member has.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// One member's rows.
    pub(crate) fn of(&self, member: usize) -> &'a [T] {
        &self.rows[self.places(member)]
    }

    /// Where they are, and where their gradients belong.
    pub(crate) fn places(&self, member: usize) -> std::ops::Range<usize> {
        member * self.len..(member + 1) * self.len
    }
}

/// The gradient of rows `stride` apart, from those of the members' parts.
pub(crate) fn join_gradients(of_members: &[f32], members: usize, stride: usize, out: &mut [f32]) {
    let (width, factor) = (stride / members, members as f32);
    let len = out.len() / members;
    out.par_chunks_exact_mut(stride).enumerate().for_each(|(example, out)| {
        for (member, out) in out.chunks_exact_mut(width).enumerate() {
            let part = &of_members[member * len + example * width..][..width];
            out.iter_mut().zip(part).for_each(|(out, &x)| *out = factor * x);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_where_they_were() {
        let rows: Vec<f32> = (0..3 * 64).map(|i| i as f32).collect();
        let mut buffer = AlignedVec::default();
        let divided = Divided::<f32>::among(4, &rows, 64, &mut buffer);
        assert_eq!(divided.of(2)[16..18], [4.0 * (64.0 + 32.0), 4.0 * (64.0 + 33.0)]);
        let mut joined = vec![0.0; rows.len()];
        let all: Vec<f32> = (0..4).flat_map(|member| divided.of(member).to_vec()).collect();
        join_gradients(&all, 4, 64, &mut joined);
        let expected: Vec<f32> = rows.iter().map(|x| 16.0 * x).collect();
        assert_eq!(joined, expected);
    }

    #[test]
    fn one_member_has_all() {
        let rows: Vec<f32> = (0..32).map(|i| i as f32).collect();
        let mut buffer = AlignedVec::default();
        assert_eq!(Divided::<f32>::among(1, &rows, 16, &mut buffer).of(0), rows);
        assert_eq!(Divided::whole(&rows[..], 16).of(0), rows);
    }
}
