//! Which features carried a prediction.
//!
//! A softmax does not change if all scores shift alike, so what decides is a
//! class's *lead*: its score minus the mean score of all classes. With ReLU or
//! linear units the network is, around an example, a linear function of the
//! example's values, so the lead is exactly
//!
//! `lead = constant + Σ_f contribution_f`, `contribution_f = x_f · ∂lead/∂x_f`
//!
//! where `x_f` is the value after normalisation and the constant is what the
//! biases give. A contribution says how much of the lead the feature made with
//! the hidden units that the example switched on; taking the feature away could
//! switch others. O(classes · hidden) for the mean class vector, then one pass
//! back through the network: O(hidden² + features · hidden).

use lookalike_kernels::Cpu;

use crate::data::Examples;
use crate::model::{Activations, Model, NeighbourScratch, Neighbours};

/// The lead of a class over the mean of all classes, taken apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Contributions {
    /// What each feature of the example adds, in the order of its features.
    pub of_features: Vec<f32>,
    /// What the nearest training examples add, if the model keeps them; other
    /// classes' shares are not taken off, as in ranking they are mostly not known.
    pub neighbours: f32,
    /// What is left of the lead: the biases' part.
    pub constant: f32,
    /// The whole lead.
    pub lead: f32,
}

/// Takes leads apart. Holds the mean class, so that only the first explanation costs
/// O(classes · hidden).
#[derive(Clone, Debug)]
pub struct Explainer {
    mean_vector: Vec<f32>,
    mean_bias: f32,
    /// What each class scores whatever the example.
    bias: Vec<f32>,
}

/// Takes the lead of `class` for one example apart, once.
///
/// # Panics
/// If there is no such example or class.
pub fn contributions(
    cpu: Cpu,
    model: &Model,
    examples: &Examples<'_>,
    example: u32,
    class: u32,
) -> Contributions {
    Explainer::new(model).contributions(cpu, model, examples, example, class)
}

impl Explainer {
    /// For a model.
    pub fn new(model: &Model) -> Self {
        let (output, bias) = (&model.network.output, model.class_bias());
        let mut row = vec![0.0; output.stride];
        // In f64: millions of rows may be added.
        let mut mean = vec![0.0; output.stride];
        for class in 0..output.len {
            output.view().copy_row(class, &mut row);
            mean.iter_mut().zip(&row).for_each(|(sum, &x)| *sum += f64::from(x) / output.len as f64);
        }
        let mean_bias = bias.iter().map(|&b| f64::from(b)).sum::<f64>() / output.len as f64;
        let mean_vector = mean.iter().map(|&x| x as f32).collect();
        Self { mean_vector, mean_bias: mean_bias as f32, bias }
    }

    /// Takes the lead of `class` for one example apart; the model is the one that this
    /// was made for.
    ///
    /// # Panics
    /// If there is no such example or class.
    pub fn contributions(
        &self,
        cpu: Cpu,
        model: &Model,
        examples: &Examples<'_>,
        example: u32,
        class: u32,
    ) -> Contributions {
        let network = &model.network;
        let mut activations = Activations::default();
        network.embed(cpu, examples, &[example], &mut activations);
        let layers = &activations.layers;
        let activation = network.config.activation;

        let (mut gradient, bias) = self.above_the_mean(model, class);
        let lead = dot(&gradient, &layers[layers.len() - 1]) + bias;
        for (layer, outputs) in network.hidden.iter().zip(&layers[1..]).rev() {
            activation.backward(outputs, &mut gradient);
            gradient = layer.w.chunks_exact(layer.stride).map(|weights| dot(weights, &gradient)).collect();
        }
        activation.backward(&layers[0], &mut gradient);

        let (ids, values) = examples.features(example as usize);
        let factor = network.config.normalise.factor(values);
        let mut row = vec![0.0; network.input.stride];
        let contribution = |(&id, &value): (&u32, &f32)| {
            network.input.view().copy_row(id as usize, &mut row);
            factor * value * (dot(&row, &gradient) + sparse_above_the_mean(model, class, id))
        };
        let of_features: Vec<f32> = ids.iter().zip(values).map(contribution).collect();
        let sparse = |(&id, &value): (&u32, &f32)| factor * value * sparse_above_the_mean(model, class, id);
        let lead = lead + ids.iter().zip(values).map(sparse).sum::<f32>();
        let constant = lead - of_features.iter().sum::<f32>();
        let share =
            |part: &Neighbours| part.near((ids, values), &mut NeighbourScratch::default()).share(class);
        let neighbours = model.neighbours.as_ref().map_or(0.0, share);
        Contributions { constant, of_features, neighbours, lead: lead + neighbours }
    }

    /// A class's vector and bias, the frequency's part included, minus the means of all
    /// classes.
    fn above_the_mean(&self, model: &Model, class: u32) -> (Vec<f32>, f32) {
        let mut row = vec![0.0; self.mean_vector.len()];
        model.network.output.view().copy_row(class as usize, &mut row);
        row.iter_mut().zip(&self.mean_vector).for_each(|(x, mean)| *x -= mean);
        (row, self.bias[class as usize] - self.mean_bias)
    }
}

/// A class's blended sparse weight on a feature, minus the mean of all classes.
fn sparse_above_the_mean(model: &Model, class: u32, feature: u32) -> f32 {
    let Some(sparse) = &model.sparse else { return 0.0 };
    let (features, weights) = sparse.row(class as usize);
    let own = features.binary_search(&feature).map_or(0.0, |place| weights[place]);
    let all: f32 = sparse.postings(model.num_features()).of(feature).1.iter().sum();
    sparse.blend() * (own - all / sparse.num_classes() as f32)
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::model::{
        Activation, ClassFrequencies, Init, Network, NetworkConfig, Normalise, SparsePart, SparseStart,
        Storage,
    };
    use crate::predict::{Ask, Predictor};

    fn model(hidden: &[usize], normalise: Normalise) -> Model {
        let config = NetworkConfig {
            num_features: 20,
            num_classes: 7,
            hidden: hidden.to_vec(),
            activation: Activation::Relu,
            normalise,
            storage: Storage::F32,
        };
        let mut network = Network::random(config, Init::default(), 5);
        network.input_bias.iter_mut().zip(0..).for_each(|(b, i)| *b = 0.01 * (i % 5) as f32);
        network.output.bias.iter_mut().zip(0..).for_each(|(b, i)| *b = 0.1 * i as f32);
        Model::new(network, ClassFrequencies::default())
    }

    /// Two classes have no weights, and feature 4 none in any class.
    fn sparse_part(blend: f32) -> SparsePart {
        let features = vec![1, 9, 2, 16, 1, 3, 9, 16, 9];
        let weights = (0..9).map(|i| 0.7 - 0.3 * i as f32).collect();
        let lengths = [2, 0, 2, 4, 0, 1, 0];
        SparsePart::from_parts(
            &lengths,
            features,
            weights,
            (blend, SparseStart::Centroid),
            &[1, 9, 4, 2, 7, 1, 30],
        )
    }

    fn lead(model: &Model, features: &[(u32, f32)], class: u32) -> f32 {
        let mut data = Dataset::empty(20, 7);
        data.push(features.iter().copied(), &[]);
        let ask = Ask::best(7);
        let ranking = Predictor::new(model, Cpu::detect()).rank(&data.view(), &[0], ask);
        let ranked = ranking.example(0);
        let place = ranked.classes.iter().position(|&c| c == class).unwrap();
        ranked.scores[place] - ranked.scores.iter().sum::<f32>() / ranked.scores.len() as f32
    }

    /// Around an example the lead is linear, so a small change of a value moves
    /// it by that share of the feature's contribution.
    #[test]
    fn contributions_are_slopes_and_add_up_to_the_lead() {
        let features: Vec<(u32, f32)> = [1, 4, 9, 16].map(|id| (id, 0.2 + 0.1 * id as f32)).to_vec();
        let mut data = Dataset::empty(20, 7);
        data.push(features.iter().copied(), &[]);
        for (hidden, blend) in
            [(&[12][..], None), (&[12, 9, 18], None), (&[12], Some(0.5)), (&[12, 9], Some(0.0))]
        {
            let mut model = model(hidden, Normalise::None);
            model.sparse = blend.map(sparse_part);
            for class in 0..7 {
                let found = contributions(Cpu::detect(), &model, &data.view(), 0, class);
                let whole = lead(&model, &features, class);
                assert!((found.lead - whole).abs() < 1e-5);
                let sum = found.of_features.iter().sum::<f32>() + found.constant;
                assert!((sum - whole).abs() < 1e-5, "{sum} {whole}");
                for (i, contribution) in found.of_features.iter().enumerate() {
                    const STEP: f32 = 1e-2;
                    let mut moved = features.clone();
                    moved[i].1 *= 1.0 + STEP;
                    let slope = (lead(&model, &moved, class) - whole) / STEP;
                    assert!((slope - contribution).abs() < 2e-3, "{slope} {contribution}");
                }
            }
        }
    }

    /// With one hidden layer and no bias there is nothing but features.
    #[test]
    fn without_biases_nothing_is_constant() {
        let mut model = model(&[12], Normalise::L2);
        model.network.input_bias.fill(0.0);
        model.network.output.bias.fill(0.0);
        let mut data = Dataset::empty(20, 7);
        data.push([(3, 2.0), (5, 1.0)], &[]);
        let found = contributions(Cpu::detect(), &model, &data.view(), 0, 2);
        assert!(found.constant.abs() < 1e-6 && found.lead != 0.0, "{found:?}");
    }
}
