//! `lookalike inspect --text`: what the model makes of a text, and why.

use std::io::Write;

use lookalike::artifact::SavedModel;
use lookalike::predict::{Ask, Contributions, NamedClass, Predictor, contributions};
use lookalike::train::ProposedNegatives;
use lookalike_kernels::Cpu;
use serde_json::json;

use crate::exit::usage;

/// All there is to say about a text.
struct Explanation {
    /// The best classes, with their scores.
    predictions: Vec<NamedClass>,
    /// The probability of each.
    probabilities: Vec<f32>,
    /// The lead of the first over the mean of all classes, taken apart.
    carried: Contributions,
    /// What the example's features stand for.
    features: Vec<String>,
    negatives: Option<ProposedNegatives>,
}

pub(super) fn print(
    saved: &SavedModel,
    text: &str,
    top_k: usize,
    json: bool,
    cpu: Cpu,
) -> anyhow::Result<()> {
    let explanation = explain(saved, text, top_k, cpu)?;
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", explanation.to_json(saved, text))?;
    } else {
        explanation.write(&mut out, saved, top_k)?;
    }
    Ok(())
}

fn explain(saved: &SavedModel, text: &str, top_k: usize, cpu: Cpu) -> anyhow::Result<Explanation> {
    let SavedModel { model, record } = saved;
    let predictor = Predictor::new(model, cpu);
    let (Some(mut data), Some(pipeline)) = (predictor.example_of_text(text), &model.text) else {
        return Err(usage("the model was trained from numbers, so no text has features for it"));
    };
    let name = |&id: &u32| pipeline.vectoriser.feature_name(id);
    let features = data.feature_ids.iter().map(name).collect();
    let ranking = predictor.rank(&data.view(), &[0], Ask { probabilities: true, ..Ask::best(top_k) });
    let probabilities: Vec<f32> = ranking.values(0).collect();
    let mut predictions = predictor.named(&ranking, 0);
    predictions.iter_mut().zip(ranking.example(0).scores).for_each(|(class, &score)| class.score = score);
    let Some(winner) = predictions.first().map(|first| first.class) else {
        return Err(usage("no class has a score for this text: the model's numbers are not finite"));
    };

    // The sampler is asked as if the prediction were the truth.
    data.label_ids.push(winner);
    data.label_offsets[1] = 1;
    let negatives = record.negatives(model, &data.view(), 0, cpu);
    Ok(Explanation {
        carried: contributions(cpu, model, &data.view(), 0, winner),
        negatives: negatives.map_err(|error| usage(error.to_string()))?,
        predictions,
        probabilities,
        features,
    })
}

impl Explanation {
    /// Features and what they add, the largest first.
    fn by_contribution(&self) -> Vec<(f32, &str)> {
        let mut all: Vec<(f32, &str)> =
            self.carried.of_features.iter().copied().zip(self.features.iter().map(String::as_str)).collect();
        all.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
        all
    }

    fn write(&self, out: &mut impl Write, saved: &SavedModel, top_k: usize) -> std::io::Result<()> {
        let winner = &self.predictions[0].name;
        if self.features.is_empty() {
            writeln!(
                out,
                "no known feature: the prediction is the prior, the model's answer to an empty text\n"
            )?;
        }
        writeln!(out, "prediction: score, probability")?;
        for (NamedClass { name, score, .. }, probability) in self.predictions.iter().zip(&self.probabilities)
        {
            writeln!(out, "{score:9.3} {probability:7.3}  {name}")?;
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
        let Some(ProposedNegatives { found, drawn, classes }) = &self.negatives else {
            return writeln!(out, "\nnegatives: all classes, since the model was trained with full softmax");
        };
        writeln!(
            out,
            "\nnegatives that {} would propose if {winner:?} were true: {found} found, {drawn} drawn; by score",
            saved.record.config.sampler
        )?;
        for &(class, score) in classes.iter().take(top_k) {
            writeln!(out, "{score:9.3}  {}", saved.model.class_name(class))?;
        }
        Ok(())
    }

    fn to_json(&self, saved: &SavedModel, text: &str) -> serde_json::Value {
        let predictions: Vec<_> = (self.predictions.iter().zip(&self.probabilities))
            .map(|(class, probability)| {
                json!({ "class": class.name, "score": class.score, "probability": probability })
            })
            .collect();
        let features: Vec<_> = (self.by_contribution().iter())
            .map(|(contribution, feature)| json!({ "feature": feature, "contribution": contribution }))
            .collect();
        let negatives = self.negatives.as_ref().map(|ProposedNegatives { found, drawn, classes }| {
            let named = |&(class, score): &(u32, f32)| json!({ "class": saved.model.class_name(class), "score": score });
            json!({ "found": found, "drawn": drawn, "classes": classes.iter().map(named).collect::<Vec<_>>() })
        });
        json!({
            "text": text, "prior": self.features.is_empty(), "predictions": predictions,
            "features": features, "neighbours": self.carried.neighbours,
            "constant": self.carried.constant, "lead": self.carried.lead,
            "sampler": saved.record.config.sampler, "negatives": negatives,
        })
    }
}
