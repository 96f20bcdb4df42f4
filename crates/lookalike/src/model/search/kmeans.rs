//! k-means by direction, the same for any number of threads.
//!
//! Points are class vectors with the bias as one more coordinate. A point belongs to the
//! centre, of length 1, with which its product is largest, and a centre is the direction of
//! the sum of its points' directions. Were lengths to count, the short vectors of all places
//! would gather in a few large clusters in the middle, and a query would have to open those.
//! Centres start at points drawn at random; in the first rounds those with few points are
//! moved to where others have many. Everything is summed in the order of points. Products are
//! of whole numbers of a byte: which of two centres a point in the middle belongs to does not
//! matter, and products with all centres are what building an index takes time for.

use lookalike_kernels::{CodedQueries, Cpu, code_query, padded};
use rayon::prelude::*;

use crate::model::RowsView;
use crate::model::columns::Columns;
use crate::random::{Stream, mix};

/// How many times as many points as another a centre has where it is one too few.
const UNEVEN_TIMES: usize = 3;
/// Points whose products with the centres are taken together.
const BLOCK: usize = 16;

/// Class vectors with their biases.
#[derive(Clone, Copy)]
pub(super) struct Points<'a> {
    pub(super) vectors: RowsView<'a>,
    pub(super) bias: &'a [f32],
}

/// Directions, a row and a bias each, together of length 1.
#[derive(Clone, Debug)]
pub(super) struct Centres {
    rows: Vec<f32>,
    bias: Vec<f32>,
}

/// The centres of `count` groups of some classes after a few rounds.
pub(super) fn centres(cpu: Cpu, points: Points<'_>, classes: &[u32], count: usize, rounds: usize) -> Centres {
    let mut shuffled: Vec<(u64, u32)> =
        classes.iter().map(|&class| (mix(0, Stream::Search, 0, u64::from(class)), class)).collect();
    shuffled.sort_unstable();
    let start: Vec<u32> = shuffled.iter().take(count).map(|&(_, class)| class).collect();
    let mut centres =
        Centres { rows: vec![0.0; start.len() * points.vectors.stride], bias: vec![0.0; start.len()] };
    let own: Vec<u32> = (0..start.len() as u32).collect();
    centres.move_to(points, &start, &own);
    for round in 0..rounds {
        let nearest = nearest(cpu, points, classes, &centres);
        centres.move_to(points, classes, &nearest);
        if round < rounds / 2 {
            centres.even_out(points, classes, &nearest);
        }
    }
    centres
}

/// For each of some classes the nearest centre.
pub(super) fn nearest(cpu: Cpu, points: Points<'_>, classes: &[u32], centres: &Centres) -> Vec<u32> {
    let (columns, stride, count) = (centres.columns(cpu), points.vectors.stride, centres.bias.len());
    let (len, all) = (columns.len(), columns.count());
    let block = |classes: &[u32]| {
        let mut numbers = vec![0.0; len];
        let mut codes = vec![0; classes.len() * len];
        let code = |(&class, codes): (&u32, &mut [i8])| {
            points.vectors.copy_row(class as usize, &mut numbers);
            numbers[stride] = points.bias[class as usize];
            code_query(cpu, &numbers, codes)
        };
        let scales: Vec<f32> = classes.iter().zip(codes.chunks_exact_mut(len)).map(code).collect();
        let mut products = vec![0.0; classes.len() * all];
        columns.score(cpu, CodedQueries { codes: &codes, scales: &scales }, (0, all), &mut products, all);
        products.chunks_exact(all).map(|products| largest(&products[..count])).collect::<Vec<u32>>()
    };
    classes.par_chunks(BLOCK).flat_map_iter(block).collect()
}

/// The place of the largest number, the first of equals.
fn largest(numbers: &[f32]) -> u32 {
    // Sixteen at a time, as the compiler has instructions for.
    let (sixteens, rest) = numbers.as_chunks::<16>();
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut most = [f32::NEG_INFINITY; 16];
    for numbers in sixteens {
        most.iter_mut().zip(numbers).for_each(|(most, &number)| *most = larger(*most, number));
    }
    let most = most.iter().chain(rest).fold(f32::NEG_INFINITY, |most, &number| larger(most, number));
    numbers.iter().position(|&number| number == most).unwrap_or(0) as u32
}

impl Centres {
    /// In bytes, the bias as one more number.
    fn columns(&self, cpu: Cpu) -> Columns {
        let stride = self.rows.len() / self.bias.len().max(1);
        let row = |centre: usize, numbers: &mut [f32]| {
            numbers[..stride].copy_from_slice(&self.rows[centre * stride..][..stride]);
            numbers[stride] = self.bias[centre];
        };
        Columns::new(cpu, padded(stride + 1), &vec![0.0; self.bias.len()], row, |_| ())
    }

    /// Moves the centres with the fewest points to points of those with the most: started
    /// at random, some places have two centres and others share one, and there they stay.
    fn even_out(&mut self, points: Points<'_>, classes: &[u32], centre_of: &[u32]) {
        let mut members = vec![Vec::new(); self.bias.len()];
        for (&class, &centre) in classes.iter().zip(centre_of) {
            members[centre as usize].push(class);
        }
        let mut by_size: Vec<usize> = (0..members.len()).collect();
        by_size.sort_unstable_by_key(|&centre| (members[centre].len(), centre));
        let pairs = by_size.iter().zip(by_size.iter().rev()).take(members.len() / 2);
        for (&small, &large) in pairs {
            if members[large].len() < UNEVEN_TIMES * members[small].len().max(1) {
                break;
            }
            // Points are in the order of classes, which says nothing of where they are.
            let class = members[large][members[large].len() / 2];
            self.put(points, small, class);
        }
    }

    /// Puts a centre where a class is.
    fn put(&mut self, points: Points<'_>, centre: usize, class: u32) {
        let bias = points.bias[class as usize];
        let row = &mut self.rows[centre * points.vectors.stride..][..points.vectors.stride];
        points.vectors.copy_row(class as usize, row);
        let scale = inverse_length(row, bias);
        row.iter_mut().for_each(|x| *x *= scale);
        self.bias[centre] = scale * bias;
    }

    /// Moves each centre to the direction of the points that belong to it; one without a
    /// point stays where it is.
    fn move_to(&mut self, points: Points<'_>, classes: &[u32], centre_of: &[u32]) {
        let stride = points.vectors.stride;
        let (mut sums, mut bias_sums) = (vec![0.0; self.rows.len()], vec![0.0; self.bias.len()]);
        let mut row = vec![0.0; stride];
        for (&class, &centre) in classes.iter().zip(centre_of) {
            points.vectors.copy_row(class as usize, &mut row);
            let (bias, centre) = (points.bias[class as usize], centre as usize);
            let scale = inverse_length(&row, bias);
            let sum = &mut sums[centre * stride..][..stride];
            sum.iter_mut().zip(&row).for_each(|(sum, x)| *sum += scale * x);
            bias_sums[centre] += scale * bias;
        }
        for (centre, (sum, &bias_sum)) in sums.chunks_exact(stride).zip(&bias_sums).enumerate() {
            let scale = inverse_length(sum, bias_sum);
            if scale > 0.0 {
                let row = &mut self.rows[centre * stride..][..stride];
                row.iter_mut().zip(sum).for_each(|(x, sum)| *x = scale * sum);
                self.bias[centre] = scale * bias_sum;
            }
        }
    }
}

/// One over the length of a row with its bias, 0 for one that has none.
fn inverse_length(row: &[f32], bias: f32) -> f32 {
    let squares = row.iter().map(|x| x * x).sum::<f32>() + bias * bias;
    if squares > f32::MIN_POSITIVE && squares.is_finite() { 1.0 / squares.sqrt() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many centres as places, but started at random: a third of the places start
    /// without one.
    #[test]
    fn every_place_gets_a_centre_of_its_own() {
        let (places, of_each, width) = (60u64, 30u64, 32usize);
        let number = |a: u64, b: u64| (mix(5, Stream::Data, a, b) % 2001) as f32 / 1000.0 - 1.0;
        let class =
            |i: u64| (0..width as u64).map(move |j| number(i % places, j) + 0.1 * number(1000 + i, j));
        let vectors: Vec<f32> = (0..places * of_each).flat_map(class).collect();
        let bias = vec![0.0; (places * of_each) as usize];
        let points = Points { vectors: RowsView::f32(&vectors, width), bias: &bias };
        let all: Vec<u32> = (0..(places * of_each) as u32).collect();
        let cpu = Cpu::detect();
        let centres = centres(cpu, points, &all, places as usize, 6);
        let nearest = nearest(cpu, points, &all, &centres);
        let mut of_centre = vec![std::collections::BTreeSet::new(); places as usize];
        nearest.iter().zip(&all).for_each(|(&centre, &class)| {
            of_centre[centre as usize].insert(u64::from(class) % places);
        });
        let alone = of_centre.iter().filter(|places| places.len() == 1).count();
        assert!(alone >= 55, "{alone} of {places} places have a centre of their own");
    }

    #[test]
    fn the_first_of_equals_is_the_largest() {
        assert_eq!(largest(&[1.0, 3.0, 3.0, f32::NAN]), 1);
        assert_eq!(largest(&[-2.0]), 0);
    }
}
