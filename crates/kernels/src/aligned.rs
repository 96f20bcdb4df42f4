//! Memory that begins on a cache line.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::{Pod, Zeroable};

use crate::{CACHE_LINE_BYTES, Element};

/// A cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; CACHE_LINE_BYTES]);

/// Numbers of a fixed count, the first of them on a cache line's boundary.
///
/// With rows padded to whole registers, no register of an `f32` row then
/// straddles two lines. A straddling load costs two; rows out of L2 come in
/// less than half the speed.
#[derive(Clone)]
pub struct AlignedVec<T> {
    lines: Vec<Line>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element> AlignedVec<T> {
    /// `len` zeroes.
    pub fn zeroed(len: usize) -> Self {
        let lines = len.div_ceil(CACHE_LINE_BYTES / size_of::<T>());
        Self { lines: vec![Line::zeroed(); lines], len, element: PhantomData }
    }
}

impl<T: Element> From<&[T]> for AlignedVec<T> {
    fn from(values: &[T]) -> Self {
        let mut aligned = Self::zeroed(values.len());
        aligned.copy_from_slice(values);
        aligned
    }
}

impl<T: Element> Default for AlignedVec<T> {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl<T: Element> Deref for AlignedVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }
}

impl<T: Element> DerefMut for AlignedVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }
}

impl<T: Element> PartialEq for AlignedVec<T>
where
    [T]: PartialEq,
{
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Element> fmt::Debug for AlignedVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
