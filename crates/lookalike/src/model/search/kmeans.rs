//! k-means, the same for any number of threads.
//!
//! Points are class vectors with the bias as one more coordinate, so that classes that
//! score alike whatever the example come together. Everything is summed in the order of
//! points.

use lookalike_kernels::{Cpu, dot_rows};
use rayon::prelude::*;

use crate::model::RowsView;
use crate::random::{Stream, mix};

/// Points whose products with the centres are taken together.
const BLOCK: usize = 128;

/// Class vectors with their biases.
#[derive(Clone, Copy)]
pub(super) struct Points<'a> {
    pub(super) vectors: RowsView<'a>,
    pub(super) bias: &'a [f32],
}

/// Centres: a row each, its bias, and how far points are from it.
#[derive(Clone, Debug, Default)]
pub(super) struct Centres {
    pub(super) rows: Vec<f32>,
    pub(super) bias: Vec<f32>,
}

impl Centres {
    pub(super) fn len(&self) -> usize {
        self.bias.len()
    }
}

/// The centres of `count` groups of some classes after a few rounds.
pub(super) fn centres(cpu: Cpu, points: Points<'_>, classes: &[u32], count: usize, rounds: usize) -> Centres {
    let mut shuffled: Vec<(u64, u32)> =
        classes.iter().map(|&class| (mix(0, Stream::Search, 0, u64::from(class)), class)).collect();
    shuffled.sort_unstable();
    let start: Vec<u32> = shuffled.iter().take(count).map(|&(_, class)| class).collect();
    let mut centres = means(points, &start, &(0..start.len() as u32).collect::<Vec<_>>(), start.len());
    for _ in 0..rounds {
        let nearest = nearest(cpu, points, classes, &centres);
        let moved = means(points, classes, &nearest, centres.len());
        keep_moved(&mut centres, moved, &nearest);
    }
    centres
}

/// A centre without a point stays where it was.
fn keep_moved(centres: &mut Centres, moved: Centres, nearest: &[u32]) {
    let stride = centres.rows.len() / centres.len().max(1);
    let mut has_points = vec![false; centres.len()];
    nearest.iter().for_each(|&centre| has_points[centre as usize] = true);
    for centre in (0..centres.len()).filter(|&centre| has_points[centre]) {
        let range = centre * stride..(centre + 1) * stride;
        centres.rows[range.clone()].copy_from_slice(&moved.rows[range]);
        centres.bias[centre] = moved.bias[centre];
    }
}

/// For each of some classes the nearest centre.
pub(super) fn nearest(cpu: Cpu, points: Points<'_>, classes: &[u32], centres: &Centres) -> Vec<u32> {
    let stride = points.vectors.stride;
    let half_squares: Vec<f32> = (0..centres.len())
        .map(|centre| {
            let row = &centres.rows[centre * stride..][..stride];
            let bias = centres.bias[centre];
            -0.5 * (row.iter().map(|x| x * x).sum::<f32>() + bias * bias)
        })
        .collect();
    let block = |classes: &[u32]| {
        let mut rows = vec![0.0; classes.len() * stride];
        let mut products = vec![0.0; classes.len() * centres.len()];
        for (&class, row) in classes.iter().zip(rows.chunks_exact_mut(stride)) {
            points.vectors.copy_row(class as usize, row);
        }
        dot_rows(cpu, stride, &rows, &centres.rows, &half_squares, &mut products, centres.len());
        let nearest = |(&class, products): (&u32, &[f32])| {
            let bias = points.bias[class as usize];
            let mut best = (f32::NEG_INFINITY, 0);
            for (centre, (product, centre_bias)) in (0..).zip(products.iter().zip(&centres.bias)) {
                let closeness = product + bias * centre_bias;
                if closeness > best.0 {
                    best = (closeness, centre);
                }
            }
            best.1
        };
        classes.iter().zip(products.chunks_exact(centres.len())).map(nearest).collect::<Vec<u32>>()
    };
    classes.par_chunks(BLOCK).flat_map_iter(block).collect()
}

/// The mean of the classes that belong to each centre.
pub(super) fn means(points: Points<'_>, classes: &[u32], centre_of: &[u32], count: usize) -> Centres {
    let stride = points.vectors.stride;
    let mut centres = Centres { rows: vec![0.0; count * stride], bias: vec![0.0; count] };
    let mut members = vec![0u32; count];
    let mut row = vec![0.0; stride];
    for (&class, &centre) in classes.iter().zip(centre_of) {
        let centre = centre as usize;
        points.vectors.copy_row(class as usize, &mut row);
        let sums = &mut centres.rows[centre * stride..][..stride];
        sums.iter_mut().zip(&row).for_each(|(sum, x)| *sum += x);
        centres.bias[centre] += points.bias[class as usize];
        members[centre] += 1;
    }
    for ((row, bias), &members) in centres.rows.chunks_exact_mut(stride).zip(&mut centres.bias).zip(&members)
    {
        let scale = 1.0 / members.max(1) as f32;
        row.iter_mut().for_each(|x| *x *= scale);
        *bias *= scale;
    }
    centres
}
