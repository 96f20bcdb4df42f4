//! Bucket codes of all classes: what tables are sorted by, and all that is needed to make
//! them again.

use rayon::prelude::*;

use super::HashTables;
use super::fill::counting_sort;

/// Codes by chunk of classes, in it by table, in it by class.
#[derive(Debug)]
pub(super) enum CodeBuffer {
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

/// The bucket of every class in every table, table after table: all that tables are
/// made of, in half their size or less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableCodes {
    /// Up to 65,536 buckets.
    Narrow(Vec<u16>),
    /// More.
    Wide(Vec<u32>),
}

/// A stored code.
pub(super) trait Code: Copy + Default + Send + Sync {
    fn store(code: u32) -> Self;
    fn index(self) -> usize;
}

impl Code for u16 {
    fn store(code: u32) -> Self {
        code as u16
    }
    fn index(self) -> usize {
        usize::from(self)
    }
}

impl Code for u32 {
    fn store(code: u32) -> Self {
        code
    }
    fn index(self) -> usize {
        self as usize
    }
}

impl HashTables {
    /// The bucket of every class in every table, as the last refresh left them.
    pub fn codes(&self) -> TableCodes {
        match self.codes {
            CodeBuffer::Narrow(_) => TableCodes::Narrow(self.collect_codes()),
            CodeBuffer::Wide(_) => TableCodes::Wide(self.collect_codes()),
        }
    }

    fn collect_codes<C: Code>(&self) -> Vec<C> {
        let mut codes = vec![C::default(); self.ids.len()];
        if self.classes > 0 {
            let tables = codes.par_chunks_exact_mut(self.classes).enumerate();
            tables.for_each(|(table, codes)| {
                for code in 0..self.family.buckets() as u32 {
                    for &class in self.bucket(table, code) {
                        codes[class as usize] = C::store(code);
                    }
                }
            });
        }
        codes
    }

    /// The mean that class vectors were hashed less at the last refresh; empty if none.
    pub fn mean(&self) -> &[f32] {
        self.mean.as_ref().map_or(&[], |mean| &mean.mean)
    }

    /// Makes the tables what they were when [`codes`](Self::codes) and [`mean`](Self::mean)
    /// were taken of them. False, and nothing is changed, if these are not of such tables.
    pub fn restore(&mut self, codes: &TableCodes, mean: &[f32]) -> bool {
        let expected = if self.mean.is_some() { self.family.dim() } else { 0 };
        let is_restored = mean.len() == expected
            && match (codes, &self.codes) {
                (TableCodes::Narrow(codes), CodeBuffer::Narrow(_)) => self.restore_from(codes),
                (TableCodes::Wide(codes), CodeBuffer::Wide(_)) => self.restore_from(codes),
                _ => false,
            };
        if let Some(own) = self.mean.as_mut().filter(|_| is_restored) {
            own.mean = mean.to_vec();
        }
        is_restored
    }

    fn restore_from<C: Code>(&mut self, codes: &[C]) -> bool {
        let buckets = self.family.buckets();
        let fits = codes.len() == self.ids.len() && self.classes > 0;
        if !fits || codes.par_iter().any(|code| code.index() >= buckets) {
            return false;
        }
        let tables =
            self.offsets.par_chunks_exact_mut(buckets + 1).zip(self.ids.par_chunks_exact_mut(self.classes));
        tables.zip(codes.par_chunks_exact(self.classes)).for_each(|((offsets, ids), codes)| {
            counting_sort(std::iter::once(codes), offsets, ids);
        });
        self.codes_are_current = false;
        true
    }
}
