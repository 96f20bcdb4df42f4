//! Where the vectors of classes that come later start: in the middle of their examples.
//!
//! The network knows already where it puts their examples. A new class starts with the mean
//! of these embeddings, less the mean of all: as long as the vectors of the old classes are
//! on average, and with the bias that makes it score like them where nothing speaks for
//! it. So it is found before the first step, and a smaller learning rate, which forgets
//! less, is enough for it.
//!
//! Cost: a forward pass over the new examples.

use lookalike_kernels::Cpu;

use crate::data::Examples;
use crate::model::{Activations, Network};

/// Examples embedded at a time.
const BATCH: usize = 1024;

/// Gives the classes from `first` on, as far as they are labels of the examples `chosen`,
/// the vectors that they start from.
pub(super) fn start_new_classes(
    cpu: Cpu,
    network: &mut Network,
    examples: &Examples<'_>,
    chosen: &[u32],
    first: usize,
) {
    let means = Means::of(cpu, network, examples, chosen, first);
    let (dim, mut row) = (network.output.dim, vec![0.0; network.output.stride]);
    let (mut length, mut level) = (0.0, 0.0);
    for class in 0..first {
        network.output.view().copy_row(class, &mut row);
        length += norm(row[..dim].iter().map(|&x| f64::from(x)));
        level += dot(&row, &means.all) + f64::from(network.output.bias[class]);
    }
    let (length, level) = (length / first as f64, level / first as f64);
    let mut starts = Vec::with_capacity((network.output.len - first) * dim);
    for class in first..network.output.len {
        network.output.view().copy_row(class, &mut row);
        if let Some(from_mean) = means.of_class(class - first) {
            let scale = length / norm(from_mean.iter().copied());
            if scale.is_finite() && scale > 0.0 {
                row.iter_mut().zip(&from_mean).for_each(|(x, &mean)| *x = (scale * mean) as f32);
                network.output.bias[class] = (level - dot(&row, &means.all)) as f32;
            }
        }
        starts.extend_from_slice(&row[..dim]);
    }
    network
        .output
        .fill_from(first, |class, row| row.copy_from_slice(&starts[(class - first) * dim..][..dim]));
}

/// Mean embeddings.
struct Means {
    all: Vec<f64>,
    /// Sums over the examples of each new class, and how many they are.
    of_classes: Vec<f64>,
    counts: Vec<usize>,
}

impl Means {
    fn of(cpu: Cpu, network: &Network, examples: &Examples<'_>, chosen: &[u32], first: usize) -> Self {
        let (dim, classes) = (network.output.dim, network.output.len - first);
        let mut means =
            Self { all: vec![0.0; dim], of_classes: vec![0.0; classes * dim], counts: vec![0; classes] };
        let mut activations = Activations::default();
        for batch in chosen.chunks(BATCH) {
            network.embed(cpu, examples, batch, &mut activations);
            for (place, &example) in batch.iter().enumerate() {
                let embedding = activations.embeddings().row(place);
                add(&mut means.all, embedding);
                let new = examples.labels(example as usize).iter().map(|&class| class as usize);
                for class in new.filter(|&class| class >= first).map(|class| class - first) {
                    add(&mut means.of_classes[class * dim..][..dim], embedding);
                    means.counts[class] += 1;
                }
            }
        }
        means.all.iter_mut().for_each(|x| *x /= chosen.len().max(1) as f64);
        means
    }

    /// What the mean of a new class has more than the mean of all; none without examples.
    fn of_class(&self, class: usize) -> Option<Vec<f64>> {
        let (dim, count) = (self.all.len(), self.counts[class]);
        let sums = &self.of_classes[class * dim..][..dim];
        let difference = |(&sum, &all): (&f64, &f64)| sum / count as f64 - all;
        (count > 0).then(|| sums.iter().zip(&self.all).map(difference).collect())
    }
}

fn add(sum: &mut [f64], row: &[f32]) {
    sum.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
}

fn dot(row: &[f32], other: &[f64]) -> f64 {
    row.iter().zip(other).map(|(&x, &y)| f64::from(x) * y).sum()
}

fn norm(row: impl Iterator<Item = f64>) -> f64 {
    row.map(|x| x * x).sum::<f64>().sqrt()
}
