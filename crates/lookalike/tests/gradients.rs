//! Gradients of every loss and sampler against finite differences in f64.
//!
//! One step of plain gradient descent at rate 1 moves each parameter by exactly
//! its gradient, so the gradient is read off as `before - after`. The loss is
//! computed again here, in f64 and example by example, with none of the
//! library's arithmetic, on the very candidates that the sampler proposed.

use lookalike::data::{Dataset, Examples};
use lookalike::loss::Loss;
use lookalike::model::{Activation, Init, Network, NetworkConfig, Normalise, Numbers, Storage};
use lookalike::optim::{Adam, NetworkMoments};
use lookalike::random::{Stream, below, mix};
use lookalike::sampling::{
    Candidates, LshConfig, MixedConfig, NearClasses, Request, SamplerKind, Setup, build,
};
use lookalike::train::{Proposer, Step, StepContext};
use lookalike_kernels::Cpu;

const FEATURES: usize = 40;
const CLASSES: usize = 120;
/// Some examples have more labels, some fewer.
const LABELS_COUNTED: usize = 2;

/// A few examples of different weights, among them one without labels, one without
/// features, one with 50 labels and one that weighs nothing.
fn examples() -> Dataset {
    let mut data = Dataset::empty(FEATURES, CLASSES);
    let random = |i: u64, j: u64, bound: u32| below(mix(5, Stream::Data, i, j), bound);
    for i in 0..12u64 {
        let mut features: Vec<u32> = (0..6).map(|j| random(i, j, FEATURES as u32)).collect();
        features.sort_unstable();
        features.dedup();
        let num_labels = match i {
            3 => 0,
            7 => 50,
            _ => 1 + u64::from(random(i, 77, 3)),
        };
        let mut labels: Vec<u32> = (0..).map(|j| random(i, 100 + j, CLASSES as u32)).take(200).collect();
        labels.dedup();
        let mut distinct = Vec::new();
        for label in labels {
            if distinct.len() < num_labels as usize && !distinct.contains(&label) {
                distinct.push(label);
            }
        }
        distinct.sort_unstable();
        assert_eq!(distinct.len(), num_labels as usize);
        if i == 9 {
            features.clear();
        }
        data.push(features.iter().map(|&f| (f, 0.5 + random(i, u64::from(f), 100) as f32 / 50.0)), &distinct);
        data.weights.push(if i == 5 { 0.0 } else { [1.0, 2.0, 0.25][i as usize % 3] });
    }
    data
}

/// The parameters in f64, as one flat list with named parts.
#[derive(Clone)]
struct Parameters {
    input: Vec<Vec<f64>>,
    input_bias: Vec<f64>,
    hidden: Vec<(Vec<Vec<f64>>, Vec<f64>)>,
    output: Vec<Vec<f64>>,
    output_bias: Vec<f64>,
}

impl Parameters {
    fn of(network: &Network) -> Self {
        let rows = |rows: &lookalike::model::Rows| -> Vec<Vec<f64>> {
            let Numbers::F32(weights) = &rows.weights else { panic!("f32 here") };
            let wide = |row: &[f32]| row[..rows.dim].iter().map(|&x| f64::from(x)).collect();
            weights.chunks_exact(rows.stride).map(wide).collect()
        };
        let wide = |values: &[f32]| values.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
        let hidden = network.hidden.iter().map(|layer| {
            let w = layer.w.chunks_exact(layer.stride).map(|row| wide(&row[..layer.outputs])).collect();
            (w, wide(&layer.bias))
        });
        Self {
            input: rows(&network.input),
            input_bias: wide(&network.input_bias),
            hidden: hidden.collect(),
            output: rows(&network.output),
            output_bias: wide(&network.output.bias),
        }
    }

    /// Every parameter, part after part.
    fn all(&mut self) -> Vec<&mut f64> {
        let hidden = self.hidden.iter_mut().flat_map(|(w, b)| w.iter_mut().flatten().chain(b));
        let below = self.input.iter_mut().flatten().chain(&mut self.input_bias).chain(hidden);
        below.chain(self.output.iter_mut().flatten()).chain(&mut self.output_bias).collect()
    }
}

/// What an example is scored against: (class, is true, ln q).
type Scored = Vec<(usize, bool, f64)>;

struct Case<'a> {
    examples: Examples<'a>,
    activation: Activation,
    loss: Loss,
    members: usize,
    scored: Vec<Scored>,
}

impl Case<'_> {
    fn embed(&self, parameters: &Parameters, example: usize) -> Vec<f64> {
        let act = |x: f64| if self.activation == Activation::Relu { x.max(0.0) } else { x };
        let (ids, values) = self.examples.features(example);
        let length = values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
        let mut layer = parameters.input_bias.clone();
        for (&id, &value) in ids.iter().zip(values) {
            for (sum, w) in layer.iter_mut().zip(&parameters.input[id as usize]) {
                *sum += f64::from(value) / length * w;
            }
        }
        layer.iter_mut().for_each(|x| *x = act(*x));
        for (w, bias) in &parameters.hidden {
            let mut next = bias.clone();
            for (x, row) in layer.iter().zip(w) {
                next.iter_mut().zip(row).for_each(|(sum, w)| *sum += x * w);
            }
            next.iter_mut().for_each(|x| *x = act(*x));
            layer = next;
        }
        layer
    }

    /// The mean loss of the batch, each example's times its weight.
    fn loss(&self, parameters: &Parameters) -> f64 {
        let counted = |e: usize| self.scored[e].iter().filter(|s| s.1).count().min(LABELS_COUNTED) as f64;
        let weight = |e: usize| f64::from(self.examples.weights[e]) * counted(e);
        let weighted = |e| weight(e) * self.example_loss(parameters, e);
        let total: f64 = (0..self.examples.len()).map(weighted).sum();
        total / self.examples.len() as f64
    }

    fn example_loss(&self, parameters: &Parameters, example: usize) -> f64 {
        let truths = self.scored[example].iter().filter(|s| s.1).count() as f64;
        if truths == 0.0 {
            return 0.0;
        }
        let embedding = self.embed(parameters, example);
        let of_member = |member| self.member_loss(parameters, (&embedding, example), member);
        (0..self.members).map(of_member).sum::<f64>() / self.members as f64
    }

    /// The loss of a member, who has a part of the embedding.
    fn member_loss(
        &self,
        parameters: &Parameters,
        (embedding, example): (&[f64], usize),
        member: usize,
    ) -> f64 {
        let truths = self.scored[example].iter().filter(|s| s.1).count() as f64;
        let width = embedding.len() / self.members;
        let part = member * width..(member + 1) * width;
        let score = |class: usize| -> f64 {
            let row = &parameters.output[class][part.clone()];
            let dot: f64 = embedding[part.clone()].iter().zip(row).map(|(a, b)| a * b).sum();
            self.members as f64 * dot + parameters.output_bias[class]
        };
        let scores: Vec<(f64, bool)> =
            self.scored[example].iter().map(|&(class, truth, log_q)| (score(class) - log_q, truth)).collect();
        match self.loss {
            Loss::Softmax => {
                let sum: f64 = scores.iter().map(|(s, _)| s.exp()).sum();
                scores.iter().filter(|s| s.1).map(|(s, _)| (sum.ln() - s) / truths).sum()
            }
            Loss::SoftmaxEach => {
                let negatives: f64 = scores.iter().filter(|s| !s.1).map(|(s, _)| s.exp()).sum();
                scores.iter().filter(|s| s.1).map(|(s, _)| ((negatives + s.exp()).ln() - s) / truths).sum()
            }
            Loss::Logistic | Loss::Nce => scores
                .iter()
                .map(|&(s, truth)| if truth { (-s).exp().ln_1p() / truths } else { s.exp().ln_1p() })
                .sum(),
        }
    }
}

struct Setting {
    sampler: SamplerKind,
    loss: Loss,
    corrects_log_q: bool,
    hidden: Vec<usize>,
    activation: Activation,
    members: usize,
}

fn check(setting: &Setting) {
    let data = examples();
    let view = data.view();
    let config = NetworkConfig {
        num_features: FEATURES,
        num_classes: CLASSES,
        hidden: setting.hidden.clone(),
        activation: setting.activation,
        normalise: Normalise::L2,
        storage: Storage::F32,
    };
    let mut network = Network::random(config, Init { input_scale: 3.0, output_scale: 2.0 }, 3);
    network.input_bias.iter_mut().for_each(|b| *b = 0.2);
    network.output.bias.iter_mut().enumerate().for_each(|(i, b)| *b = (i % 5) as f32 * 0.1);
    let mut moments = NetworkMoments::of(&network);

    let counts = view.label_counts();
    let lsh = LshConfig { k: Some(1), l: Some(6), ..LshConfig::default() };
    let mixed = MixedConfig::default();
    let dim = network.output.dim;
    let setup =
        Setup { seed: 1, budget: 30, retrieve: 30, dim, label_counts: &counts, lsh: &lsh, mixed: &mixed };
    let cpu = Cpu::detect();
    let mut proposer = match setting.sampler {
        SamplerKind::Full => Proposer::All,
        kind => Proposer::Sampler(build(kind, &setup).unwrap()),
    };
    let batch: Vec<u32> = (0..view.len() as u32).collect();
    let scored = scored(setting, &mut proposer, &network, view, &batch, cpu);
    let case = Case {
        examples: view,
        activation: setting.activation,
        loss: setting.loss,
        members: setting.members,
        scored,
    };

    let mut before = Parameters::of(&network);
    let context = StepContext {
        cpu,
        adam: Adam::gradient_descent(1.0),
        seed: 1,
        iteration: 0,
        loss: setting.loss,
        labels_counted: LABELS_COUNTED,
        members: setting.members,
        candidates: 10,
        corrects_log_q: setting.corrects_log_q,
        keep: None,
        clip: None,
        frozen_features: 0,
    };
    let mut step = Step::default();
    let no_one = None::<fn() -> &'static NearClasses>;
    let loss = step.run(&context, (&mut network, &mut moments), &mut proposer, no_one, &view, &batch);
    if setting.sampler != SamplerKind::Full {
        let pairs: usize = case.scored.iter().map(Vec::len).sum();
        assert_eq!(step.num_trained_pairs(), pairs, "all that was proposed is trained on");
    }
    assert!((loss - case.loss(&before)).abs() < 1e-4, "loss {loss} against {}", case.loss(&before));

    let mut after = Parameters::of(&network);
    let moved: Vec<f64> = after.all().into_iter().map(|x| *x).collect();
    let mut compared = 0;
    for (i, moved) in moved.iter().enumerate() {
        // Every seventh meets all parts, rows and columns.
        if i % 7 != 0 {
            continue;
        }
        let gradient = *before.all()[i] - moved;
        let slope = slope(&case, &mut before, i);
        let error = (gradient - slope).abs();
        assert!(
            error <= 2e-5 + 2e-3 * slope.abs(),
            "parameter {i}: gradient {gradient:e}, finite difference {slope:e} ({:?} {:?})",
            setting.sampler,
            setting.loss
        );
        compared += usize::from(slope.abs() > 1e-6);
    }
    assert!(compared > 100, "only {compared} gradients were not zero");
}

fn slope(case: &Case<'_>, parameters: &mut Parameters, i: usize) -> f64 {
    let h = 1e-6;
    let mut shifted = |by: f64| {
        *parameters.all()[i] += by;
        let loss = case.loss(parameters);
        *parameters.all()[i] -= by;
        loss
    };
    (shifted(h) - shifted(-h)) / (2.0 * h)
}

/// The classes that the step will score, with their corrections.
fn scored(
    setting: &Setting,
    proposer: &mut Proposer,
    network: &Network,
    examples: Examples<'_>,
    batch: &[u32],
    cpu: Cpu,
) -> Vec<Scored> {
    let Proposer::Sampler(sampler) = proposer else {
        let all = |e: &u32| {
            let labels = examples.labels(*e as usize);
            (0..CLASSES).map(|c| (c, labels.contains(&(c as u32)), 0.0)).collect()
        };
        return batch.iter().map(all).collect();
    };
    let mut activations = lookalike::model::Activations::default();
    network.embed(cpu, &examples, batch, &mut activations);
    sampler.refresh(cpu, network.output.view(), None);
    let request = Request {
        seed: 1,
        iteration: 0,
        cpu,
        examples,
        batch,
        embeddings: activations.embeddings(),
        class_vectors: network.output.view(),
        class_bias: &network.output.bias,
        near: None,
    };
    let mut candidates = Candidates::new();
    sampler.propose(&request, &mut candidates);
    let log_q = &|class: u32, drawn: bool, drawn_log_q: f32| {
        if !setting.corrects_log_q {
            return 0.0;
        }
        let own = sampler.class_log_q().map_or(0.0, |table| table[class as usize]);
        f64::from(own) + if drawn { f64::from(drawn_log_q) } else { 0.0 }
    };
    let set = |example: usize| {
        let counts = candidates.counts(example);
        let certain = (counts.truths + counts.found) as usize;
        let classes = candidates.of(example).iter().enumerate();
        classes.map(move |(i, &class)| {
            let truth = i < counts.truths as usize;
            (class as usize, truth, log_q(class, i >= certain, counts.drawn_log_q))
        })
    };
    (0..batch.len()).map(|example| set(example).collect()).collect()
}

#[test]
fn every_sampler_with_the_softmax_loss() {
    for sampler in SamplerKind::ALL {
        for corrects_log_q in [false, true] {
            let activation = if corrects_log_q { Activation::Linear } else { Activation::Relu };
            check(&Setting {
                sampler,
                loss: Loss::Softmax,
                corrects_log_q,
                hidden: vec![20],
                activation,
                members: 1,
            });
        }
    }
}

#[test]
fn noise_contrastive_estimation_with_both_noises() {
    for sampler in [SamplerKind::LogUniform, SamplerKind::Frequency] {
        let activation = Activation::Relu;
        check(&Setting {
            sampler,
            loss: Loss::Nce,
            corrects_log_q: true,
            hidden: vec![20],
            activation,
            members: 1,
        });
    }
}

#[test]
fn a_logistic_loss_over_whatever_is_proposed() {
    for sampler in [SamplerKind::LshEmbedding, SamplerKind::Mixed, SamplerKind::TopK] {
        let activation = Activation::Linear;
        check(&Setting {
            sampler,
            loss: Loss::Logistic,
            corrects_log_q: true,
            hidden: vec![20],
            activation,
            members: 1,
        });
    }
}

#[test]
fn each_label_against_the_negatives() {
    for sampler in SamplerKind::ALL.into_iter().filter(|&kind| kind != SamplerKind::Full) {
        let (loss, activation) = (Loss::SoftmaxEach, Activation::Linear);
        check(&Setting { sampler, loss, corrects_log_q: true, hidden: vec![20], activation, members: 1 });
    }
}

#[test]
fn several_hidden_layers() {
    for sampler in [SamplerKind::LshEmbedding, SamplerKind::Full] {
        let (loss, activation) = (Loss::Softmax, Activation::Relu);
        check(&Setting {
            sampler,
            loss,
            corrects_log_q: false,
            hidden: vec![24, 16, 20],
            activation,
            members: 1,
        });
    }
}

/// The loss of a committee is the mean of its members'.
#[test]
fn a_committee() {
    for (sampler, loss) in [
        (SamplerKind::LshEmbedding, Loss::Softmax),
        (SamplerKind::LshEmbedding, Loss::SoftmaxEach),
        (SamplerKind::Frequency, Loss::Nce),
        // What it drew is corrected for each member.
        (SamplerKind::Mixed, Loss::Softmax),
    ] {
        let (hidden, activation) = (vec![20, 48], Activation::Linear);
        check(&Setting { sampler, loss, corrects_log_q: true, hidden, activation, members: 3 });
    }
}
