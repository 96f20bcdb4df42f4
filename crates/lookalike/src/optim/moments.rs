//! What Adam remembers of parameters, and rows that one thread owns for a while.
//!
//! Moments lie beside the weights, not in them: a model that only answers has
//! none. A row, its moments and its bias are split off together, so that each
//! thread owns the rows it updates: nothing races and nothing locks.

use lookalike_kernels::{Cpu, Element, bf16, prefetch, prefetch_row};
use lookalike_mapped::Buffer;

use super::{Adam, RowState, ScalarState};
use crate::model::{Hidden, Network, Numbers, Rows};

/// Moments of single weights, such as biases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScalarMoments {
    /// First moments.
    pub m: Vec<f32>,
    /// Second moments.
    pub v: Vec<f32>,
    /// When each was last touched; kept up by `exact` decay only.
    pub last: Vec<u32>,
}

impl ScalarMoments {
    /// Of weights that have not moved yet.
    pub fn zeroed(len: usize) -> Self {
        Self { m: vec![0.0; len], v: vec![0.0; len], last: vec![0; len] }
    }

    fn taken(&self, rows: &[u32], len: usize) -> Self {
        if self.m.is_empty() {
            return Self::default();
        }
        fn take<T: Copy + Default>(from: &[T], rows: &[u32], len: usize) -> Vec<T> {
            let mut taken: Vec<T> = rows.iter().map(|&row| from[row as usize]).collect();
            taken.resize(len, T::default());
            taken
        }
        Self { m: take(&self.m, rows, len), v: take(&self.v, rows, len), last: take(&self.last, rows, len) }
    }

    /// One Adam step of all weights.
    pub fn update_all(&mut self, weights: &mut [f32], adam: &Adam, grads: &[f32]) {
        let mut view = ScalarsMut::new(weights, self);
        for (i, &grad) in grads.iter().enumerate().take(view.w.len()) {
            view.update(i, adam, grad);
        }
    }
}

/// Moments of rows and of their biases.
#[derive(Clone, Debug)]
pub struct RowMoments {
    /// First moments, stored like the weights.
    pub m: Numbers,
    /// Second moments, stored like the weights.
    pub v: Numbers,
    /// When each row was last touched; kept up by `exact` decay only.
    pub last: Vec<u32>,
    /// Those of the biases.
    pub bias: ScalarMoments,
}

impl RowMoments {
    /// Of rows that have not moved yet.
    pub fn of(rows: &Rows) -> Self {
        let zeroed = || Numbers::zeroed(rows.weights.storage(), rows.weights.len());
        Self {
            m: zeroed(),
            v: zeroed(),
            last: vec![0; rows.len],
            bias: ScalarMoments::zeroed(rows.bias.len()),
        }
    }

    /// Those of some rows in the order given, and behind them those of rows that have
    /// not moved yet, until there are `len`.
    fn taken(&self, stride: usize, rows: &[u32], len: usize) -> Self {
        let mut last: Vec<u32> = rows.iter().map(|&row| self.last[row as usize]).collect();
        last.resize(len, 0);
        let (m, v) = (self.m.taken(stride, rows, len), self.v.taken(stride, rows, len));
        Self { m, v, last, bias: self.bias.taken(rows, len) }
    }
}

/// Moments of a small dense layer.
#[derive(Clone, Debug)]
pub struct HiddenMoments {
    /// First moments, padded like the weights.
    pub m: Buffer<f32>,
    /// Second moments.
    pub v: Buffer<f32>,
    /// Those of the biases.
    pub bias: ScalarMoments,
}

impl HiddenMoments {
    fn of(layer: &Hidden) -> Self {
        let zeroed = || Buffer::zeroed(layer.w.len());
        Self { m: zeroed(), v: zeroed(), bias: ScalarMoments::zeroed(layer.bias.len()) }
    }
}

/// Moments of a whole network.
#[derive(Clone, Debug)]
pub struct NetworkMoments {
    /// Of the rows of features.
    pub input: RowMoments,
    /// Of the biases of the first hidden layer.
    pub input_bias: ScalarMoments,
    /// Of the dense layers after the first.
    pub hidden: Vec<HiddenMoments>,
    /// Of the rows of classes.
    pub output: RowMoments,
}

impl NetworkMoments {
    /// Of a network that has not moved yet.
    pub fn of(network: &Network) -> Self {
        Self {
            input: RowMoments::of(&network.input),
            input_bias: ScalarMoments::zeroed(network.input_bias.len()),
            hidden: network.hidden.iter().map(HiddenMoments::of).collect(),
            output: RowMoments::of(&network.output),
        }
    }

    /// Makes room for the rows that a network has got behind the others.
    pub fn grow(&mut self, network: &Network) {
        for (moments, rows) in [(&mut self.input, &network.input), (&mut self.output, &network.output)] {
            let all: Vec<u32> = (0..moments.last.len() as u32).collect();
            if all.len() < rows.len {
                *moments = moments.taken(rows.stride, &all, rows.len);
            }
        }
    }

    /// Leaves the moments of some classes, of a network whose output layer has no others.
    pub fn keep_classes(&mut self, network: &Network, classes: &[u32]) {
        self.output = self.output.taken(network.output.stride, classes, classes.len());
    }
}

/// Single weights that one thread owns for a while.
#[derive(Debug)]
pub struct ScalarsMut<'a> {
    /// The weights.
    pub w: &'a mut [f32],
    m: &'a mut [f32],
    v: &'a mut [f32],
    last: &'a mut [u32],
}

impl<'a> ScalarsMut<'a> {
    /// All of them.
    pub fn new(w: &'a mut [f32], moments: &'a mut ScalarMoments) -> Self {
        Self { w, m: &mut moments.m, v: &mut moments.v, last: &mut moments.last }
    }

    /// One Adam step of weight `i`.
    pub fn update(&mut self, i: usize, adam: &Adam, grad: f32) {
        let state =
            ScalarState { w: &mut self.w[i], m: &mut self.m[i], v: &mut self.v[i], last: &mut self.last[i] };
        adam.update_scalar(state, grad);
    }

    /// Prefetches a weight and its moments.
    pub fn prefetch(&self, i: usize) {
        prefetch(self.w, i);
        prefetch(self.m, i);
        prefetch(self.v, i);
    }

    fn split_at(self, i: usize) -> (Self, Self) {
        // A layer without biases has empty slices on both sides.
        let i = i.min(self.w.len());
        let (w0, w1) = self.w.split_at_mut(i);
        let (m0, m1) = self.m.split_at_mut(i);
        let (v0, v1) = self.v.split_at_mut(i);
        let (last0, last1) = self.last.split_at_mut(i);
        (Self { w: w0, m: m0, v: v0, last: last0 }, Self { w: w1, m: m1, v: v1, last: last1 })
    }
}

/// Rows that one thread owns for a while, with their moments and biases.
#[derive(Debug)]
pub struct RowsMut<'a, T> {
    /// The weights.
    pub w: &'a mut [T],
    m: &'a mut [T],
    v: &'a mut [T],
    last: &'a mut [u32],
    /// The rows' biases.
    pub bias: ScalarsMut<'a>,
    /// Distance between rows.
    pub stride: usize,
}

/// All rows of a layer, in either storage.
#[derive(Debug)]
pub enum LayerMut<'a> {
    /// Single precision.
    F32(RowsMut<'a, f32>),
    /// Half precision.
    Bf16(RowsMut<'a, bf16>),
}

impl<'a> LayerMut<'a> {
    /// A layer with its moments.
    ///
    /// # Panics
    /// If the moments are those of rows of another storage.
    pub fn new(rows: &'a mut Rows, moments: &'a mut RowMoments) -> Self {
        let (last, stride) = (&mut moments.last[..], rows.stride);
        let bias = ScalarsMut::new(&mut rows.bias, &mut moments.bias);
        match (&mut rows.weights, &mut moments.m, &mut moments.v) {
            (Numbers::F32(w), Numbers::F32(m), Numbers::F32(v)) => {
                Self::F32(RowsMut { w, m, v, last, bias, stride })
            }
            (Numbers::Bf16(w), Numbers::Bf16(m), Numbers::Bf16(v)) => {
                Self::Bf16(RowsMut { w, m, v, last, bias, stride })
            }
            _ => panic!("moments are stored like their rows"),
        }
    }
}

/// Runs `$body` with `$rows` bound to the typed rows, whichever they are.
macro_rules! with_layer {
    ($layer:expr, $rows:ident => $body:expr) => {
        match $layer {
            $crate::optim::LayerMut::F32($rows) => $body,
            $crate::optim::LayerMut::Bf16($rows) => $body,
        }
    };
}
pub(crate) use with_layer;

impl<T: Element> RowsMut<'_, T> {
    /// The rows before and from `row`.
    pub fn split_at(self, row: usize) -> (Self, Self) {
        let (at, stride) = (row * self.stride, self.stride);
        let (w0, w1) = self.w.split_at_mut(at);
        let (m0, m1) = self.m.split_at_mut(at);
        let (v0, v1) = self.v.split_at_mut(at);
        let (last0, last1) = self.last.split_at_mut(row);
        let (bias0, bias1) = self.bias.split_at(row);
        (
            Self { w: w0, m: m0, v: v0, last: last0, bias: bias0, stride },
            Self { w: w1, m: m1, v: v1, last: last1, bias: bias1, stride },
        )
    }

    /// Prefetches a row and its moments.
    #[inline]
    pub fn prefetch(&self, row: usize) {
        let range = row * self.stride..(row + 1) * self.stride;
        prefetch_row(&self.w[range.clone()]);
        prefetch_row(&self.m[range.clone()]);
        prefetch_row(&self.v[range]);
    }

    /// One Adam step of a row.
    pub fn update(&mut self, cpu: Cpu, row: usize, adam: &Adam, grad: &[f32], noise: u64) {
        adam.update(cpu, self.state(row, None), grad, noise);
    }

    /// A row with its moments. A later row that will be needed soon may be told, so
    /// that it is prefetched meanwhile.
    pub fn state(&mut self, row: usize, soon: Option<usize>) -> RowState<'_, T> {
        let range = row * self.stride..(row + 1) * self.stride;
        RowState {
            w: &mut self.w[range.clone()],
            m: &mut self.m[range.clone()],
            v: &mut self.v[range],
            last: &mut self.last[row],
            ahead: soon.map_or(0, |soon| (soon - row) * self.stride),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Activation, Init, NetworkConfig, Normalise, Storage};

    fn network(num_features: usize, num_classes: usize) -> Network {
        let config = NetworkConfig {
            num_features,
            num_classes,
            hidden: vec![8],
            activation: Activation::Linear,
            normalise: Normalise::L2,
            storage: Storage::F32,
        };
        Network::random(config, Init::default(), 1)
    }

    /// Moments of a layer's rows and biases that say which row they belong to.
    fn number_rows(moments: &mut RowMoments, stride: usize) {
        let Numbers::F32(m) = &mut moments.m else { panic!("single precision here") };
        m.iter_mut().enumerate().for_each(|(at, x)| *x = (at / stride) as f32);
        moments.last.iter_mut().zip(0..).for_each(|(last, row)| *last = row);
        moments.bias.v.iter_mut().enumerate().for_each(|(row, v)| *v = row as f32);
    }

    fn numbers(moments: &RowMoments, stride: usize) -> (Vec<f32>, Vec<u32>, Vec<f32>) {
        let Numbers::F32(m) = &moments.m else { panic!("single precision here") };
        (m.chunks(stride).map(|row| row[0]).collect(), moments.last.clone(), moments.bias.v.clone())
    }

    #[test]
    fn a_row_comes_with_its_own_moments() {
        let mut network = network(3, 5);
        let stride = network.output.stride;
        let mut moments = NetworkMoments::of(&network);
        number_rows(&mut moments.output, stride);
        let Numbers::F32(weights) = &network.output.weights else { panic!("single precision here") };
        let own = weights[3 * stride..4 * stride].to_vec();
        let layer = LayerMut::new(&mut network.output, &mut moments.output);
        let LayerMut::F32(mut layer) = layer else { panic!("single precision here") };
        let row = layer.state(3, Some(4));
        assert_eq!((&*row.w, &*row.m), (&own[..], &vec![3.0; stride][..]));
        assert_eq!((*row.last, row.ahead), (3, stride));
    }

    #[test]
    fn classes_take_their_moments_along() {
        let (before, after) = (network(3, 5), network(3, 2));
        let stride = before.output.stride;
        let mut moments = NetworkMoments::of(&before);
        number_rows(&mut moments.output, stride);
        moments.keep_classes(&after, &[1, 4]);
        assert_eq!(numbers(&moments.output, stride), (vec![1.0, 4.0], vec![1, 4], vec![1.0, 4.0]));
        assert_eq!(moments.input.last.len(), 3);
    }

    #[test]
    fn new_rows_start_without_moments_behind_the_others() {
        let (before, after) = (network(2, 2), network(3, 4));
        let stride = before.output.stride;
        let mut moments = NetworkMoments::of(&before);
        number_rows(&mut moments.output, stride);
        moments.grow(&after);
        let expected = [0.0, 1.0, 0.0, 0.0];
        assert_eq!(
            numbers(&moments.output, stride),
            (expected.to_vec(), vec![0, 1, 0, 0], expected.to_vec())
        );
        assert_eq!(moments.input.last.len(), 3);
    }
}
