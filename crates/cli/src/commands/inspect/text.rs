//! `lookalike inspect --text`: what the model makes of a text, and why.

use std::io::Write;

use lookalike::artifact::Model;
use lookalike::data::Dataset;
use lookalike::model::Activations;
use lookalike::predict::{Contributions, Ranker, contributions};
use lookalike::sampling::{self, Candidates, Counts, Request, SamplerKind, Setup};
use lookalike::text::Scratch;
use lookalike_kernels::Cpu;
use serde_json::json;

use crate::exit::usage;

/// A class with its score.
struct Scored {
    class: u32,
    score: f32,
}

/// All there is to say about a text.
struct Explanation {
    /// The best classes, with their probabilities.
    predictions: Vec<(Scored, f32)>,
    /// The lead of the first over the mean of all classes, taken apart.
    carried: Contributions,
    /// What the example's features stand for.
    features: Vec<String>,
    negatives: Option<(Counts, Vec<Scored>)>,
}

pub(super) fn print(model: &Model, text: &str, top_k: usize, json: bool, cpu: Cpu) -> anyhow::Result<()> {
    let explanation = explain(model, text, top_k, cpu)?;
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", explanation.to_json(model, text))?;
    } else {
        explanation.write(&mut out, model, top_k)?;
    }
    Ok(())
}

fn explain(model: &Model, text: &str, top_k: usize, cpu: Cpu) -> anyhow::Result<Explanation> {
    let pipeline = model.text.as_ref();
    let pipeline = pipeline
        .ok_or_else(|| usage("the model was trained from numbers, so no text has features for it"))?;
    let mut scratch = Scratch::default();
    let (ids, values) = pipeline.vectoriser.transform(text, &mut scratch);
    let features = ids.iter().map(|&id| pipeline.vectoriser.feature_name(id)).collect();

    let mut data = Dataset::empty(model.network.config.num_features, model.network.config.num_classes);
    data.push(ids.iter().copied().zip(values.iter().copied()), &[]);
    let mut ranker = Ranker::new(top_k).with_log_sum_exp();
    let best = ranker.rank(cpu, &model.network, &data.view(), &[0]);
    let (ranked, sum) = (best.example(0), best.log_sum_exp(0).unwrap_or(f32::NAN));
    let predictions: Vec<(Scored, f32)> = (ranked.classes.iter().zip(ranked.scores))
        .map(|(&class, &score)| (Scored { class, score }, (score - sum).exp()))
        .collect();
    let Some(winner) = predictions.first().map(|(first, _)| first.class) else {
        return Err(usage("no class has a score for this text: the model's numbers are not finite"));
    };

    // The sampler is asked as if the prediction were the truth.
    data.label_ids.push(winner);
    data.label_offsets[1] = 1;
    Ok(Explanation {
        carried: contributions(cpu, &model.network, &data.view(), 0, winner),
        negatives: negatives(model, &data, cpu)?,
        predictions,
        features,
    })
}

/// What the sampler would propose for the only example, highest scores first;
/// none where every class is scored.
fn negatives(model: &Model, data: &Dataset, cpu: Cpu) -> anyhow::Result<Option<(Counts, Vec<Scored>)>> {
    let (training, output) = (&model.training, &model.network.output);
    if training.sampler == SamplerKind::Full {
        return Ok(None);
    }
    let setup = Setup {
        seed: training.seed,
        budget: training.budget_for(output.len),
        dim: output.dim,
        label_counts: &model.class_counts,
        lsh: &training.lsh,
        mixed: &training.mixed,
    };
    let mut sampler = sampling::build(training.sampler, &setup).map_err(|error| usage(error.to_string()))?;
    sampler.refresh(cpu, output.view(), None);
    let mut activations = Activations::default();
    model.network.embed(cpu, &data.view(), &[0], &mut activations);
    let request = Request {
        seed: training.seed,
        iteration: model.progress.iteration,
        cpu,
        examples: data.view(),
        batch: &[0],
        embeddings: activations.embeddings(),
        class_vectors: output.view(),
        class_bias: &output.bias.w,
        near: None,
    };
    let mut candidates = Candidates::new();
    sampler.propose(&request, &mut candidates);

    let mut embedding = vec![0.0; output.stride];
    activations.embeddings().copy_row(0, &mut embedding);
    let mut row = vec![0.0; output.stride];
    let score = |&class: &u32| {
        output.view().copy_row(class as usize, &mut row);
        let product: f32 = row.iter().zip(&embedding).map(|(x, y)| x * y).sum();
        Scored { class, score: product + output.bias.w[class as usize] }
    };
    let counts = candidates.counts(0);
    let mut negatives: Vec<Scored> = candidates.of(0)[counts.truths as usize..].iter().map(score).collect();
    negatives.sort_by(|a, b| b.score.total_cmp(&a.score));
    Ok(Some((counts, negatives)))
}

impl Explanation {
    /// Features and what they add, the largest first.
    fn by_contribution(&self) -> Vec<(f32, &str)> {
        let mut all: Vec<(f32, &str)> =
            self.carried.of_features.iter().copied().zip(self.features.iter().map(String::as_str)).collect();
        all.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
        all
    }

    fn write(&self, out: &mut impl Write, model: &Model, top_k: usize) -> std::io::Result<()> {
        let winner = model.class_name(self.predictions[0].0.class);
        if self.features.is_empty() {
            writeln!(
                out,
                "no known feature: the prediction is the prior, the model's answer to an empty text\n"
            )?;
        }
        writeln!(out, "prediction: score, probability")?;
        for (Scored { class, score }, probability) in &self.predictions {
            writeln!(out, "{score:9.3} {probability:7.3}  {}", model.class_name(*class))?;
        }
        writeln!(out, "\nwhat carried {winner:?}: contributions to its lead over the mean class")?;
        let features = self.by_contribution();
        let (shown, others) = features.split_at(top_k.min(features.len()));
        for (contribution, feature) in shown {
            writeln!(out, "{contribution:+9.3}  {feature}")?;
        }
        if !others.is_empty() {
            let rest: f32 = others.iter().map(|(contribution, _)| contribution).sum();
            writeln!(out, "{rest:+9.3}  ({} other features)", others.len())?;
        }
        if self.carried.neighbours != 0.0 {
            writeln!(out, "{:+9.3}  (the nearest training examples)", self.carried.neighbours)?;
        }
        writeln!(out, "{:+9.3}  (constant: the biases)", self.carried.constant)?;
        let Some((counts, negatives)) = &self.negatives else {
            return writeln!(out, "\nnegatives: all classes, since the model was trained with full softmax");
        };
        writeln!(
            out,
            "\nnegatives that {} would propose if {winner:?} were true: {} found, {} drawn; by score",
            model.training.sampler, counts.found, counts.drawn
        )?;
        for Scored { class, score } in negatives.iter().take(top_k) {
            writeln!(out, "{score:9.3}  {}", model.class_name(*class))?;
        }
        Ok(())
    }

    fn to_json(&self, model: &Model, text: &str) -> serde_json::Value {
        let name = |class: u32| model.class_name(class);
        let predictions: Vec<_> = (self.predictions.iter())
            .map(|(s, probability)| {
                json!({ "class": name(s.class), "score": s.score, "probability": probability })
            })
            .collect();
        let features: Vec<_> = (self.by_contribution().iter())
            .map(|(contribution, feature)| json!({ "feature": feature, "contribution": contribution }))
            .collect();
        let negatives = self.negatives.as_ref().map(|(counts, list)| {
            let list: Vec<_> =
                list.iter().map(|s| json!({ "class": name(s.class), "score": s.score })).collect();
            json!({ "found": counts.found, "drawn": counts.drawn, "classes": list })
        });
        json!({
            "text": text, "prior": self.features.is_empty(), "predictions": predictions,
            "features": features, "neighbours": self.carried.neighbours,
            "constant": self.carried.constant, "lead": self.carried.lead,
            "sampler": model.training.sampler, "negatives": negatives,
        })
    }
}
