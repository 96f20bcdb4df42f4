//! Class vectors in a byte a number, beside those that are trained: what selects.
//!
//! Which of an example's classes score highest need not be known to the last digit. So
//! the training step keeps a copy of the class vectors, a quarter of their size, and scores
//! what was retrieved by it: 128 bytes a class instead of 512, and a batch's embeddings, as
//! bytes too, nearly fit the nearest cache. A number of a row is within half a step of 127
//! from zero to the largest, one of an embedding within half a step of 63; what this takes
//! from a score is about a hundredth of how far the scores of an example are apart.
//!
//! The copy is a function of the class vectors: a row is coded again whenever it has moved.
//! So a run that goes on from a checkpoint selects what the unbroken one does, and since
//! whole numbers have no rounding, so does every level of instructions.

use lookalike_kernels::{
    CODE_VECTOR, CodedQueries, CodedRow, CodedRows, Cpu, Element, code_query, code_row, prefetch,
};
use lookalike_mapped::Buffer;
use rayon::prelude::*;

use super::super::by_key::SplitRows;
use crate::scratch::grow;

/// The copy, kept while a process trains.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CodedClasses {
    /// Row after row, padded.
    codes: Buffer<i8>,
    rows: Vec<CodedRow>,
}

impl CodedClasses {
    /// Makes the copy, if there is none yet.
    pub(super) fn prepare<T: Element>(&mut self, cpu: Cpu, rows: &[T], stride: usize) {
        let (len, code_stride) = (rows.len() / stride, stride_of(stride));
        if self.rows.len() == len {
            return;
        }
        self.codes = Buffer::zeroed(len * code_stride);
        self.rows = vec![CodedRow::default(); len];
        let codes = self.codes.par_chunks_exact_mut(code_stride);
        let coded = rows.par_chunks_exact(stride).zip(codes).zip(&mut self.rows);
        coded.for_each(|((row, codes), coded)| *coded = code_row(cpu, row, codes));
    }

    /// All rows, to be coded again where they have moved.
    pub(super) fn as_mut(&mut self) -> CodedClassesMut<'_> {
        let stride = self.stride();
        CodedClassesMut { codes: &mut self.codes, rows: &mut self.rows, stride }
    }

    /// The rows of a part, and what is added to the scores of all classes.
    pub(super) fn from<'a>(&'a self, first: usize, shifts: &'a [f32]) -> CodedRows<'a> {
        let stride = self.stride();
        let (codes, coded) = (&self.codes[first * stride..], &self.rows[first..]);
        CodedRows { codes, stride, coded, shifts: &shifts[first..] }
    }

    fn stride(&self) -> usize {
        self.codes.len() / self.rows.len().max(1)
    }
}

/// Rows of the copy that one thread owns for a while.
#[derive(Debug)]
pub(super) struct CodedClassesMut<'a> {
    codes: &'a mut [i8],
    rows: &'a mut [CodedRow],
    stride: usize,
}

impl CodedClassesMut<'_> {
    /// Codes a row that has moved.
    pub(super) fn set<T: Element>(&mut self, cpu: Cpu, row: usize, numbers: &[T]) {
        self.rows[row] = code_row(cpu, numbers, &mut self.codes[row * self.stride..][..self.stride]);
    }

    /// Prefetches a row.
    pub(super) fn prefetch(&self, row: usize) {
        prefetch(self.rows, row);
        (0..self.stride).step_by(CODE_VECTOR).for_each(|line| prefetch(self.codes, row * self.stride + line));
    }
}

impl SplitRows for CodedClassesMut<'_> {
    fn split_at(self, row: usize) -> (Self, Self) {
        let (codes0, codes1) = self.codes.split_at_mut(row * self.stride);
        let (rows0, rows1) = self.rows.split_at_mut(row);
        let stride = self.stride;
        (Self { codes: codes0, rows: rows0, stride }, Self { codes: codes1, rows: rows1, stride })
    }
}

/// A batch's embeddings in a byte a number.
#[derive(Debug, Default)]
pub(super) struct CodedEmbeddings {
    /// Row after row, padded.
    codes: Buffer<i8>,
    /// What each row's codes are multiplied with.
    scales: Vec<f32>,
}

impl CodedEmbeddings {
    /// Codes the embeddings of a batch.
    pub(super) fn set<T: Element>(&mut self, cpu: Cpu, embeddings: &[T], stride: usize, batch: usize) {
        let code_stride = stride_of(stride);
        if self.codes.len() < batch * code_stride {
            self.codes = Buffer::zeroed(batch * code_stride);
        }
        grow(&mut self.scales, batch);
        let codes = self.codes.par_chunks_exact_mut(code_stride);
        let rows = embeddings.par_chunks_exact(stride).zip(codes).zip(&mut self.scales);
        rows.for_each(|((row, codes), scale)| *scale = code_query(cpu, row, codes));
    }

    pub(super) fn view(&self) -> CodedQueries<'_> {
        CodedQueries { codes: &self.codes, scales: &self.scales }
    }
}

/// The distance between coded rows.
fn stride_of(stride: usize) -> usize {
    stride.next_multiple_of(CODE_VECTOR)
}
