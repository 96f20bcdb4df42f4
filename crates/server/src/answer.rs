//! From a batch of requests to the bodies of their answers.
//!
//! Requests that wish the same are ranked together, each class vector being read once
//! for all of them. The predictor gives an example the same bits whatever it is ranked
//! with, so gathering changes when an answer comes, never what it says.

use axum::http::StatusCode;
use lookalike::data::{Dataset, Examples};
use lookalike::predict::{Ask, NamedClass, TopK};
use rayon::prelude::*;
use serde::Serialize;

use crate::error::ApiError;
use crate::question::{Features, Item, Question, Wish};
use crate::served::Served;

/// Features of an explanation, the strongest ones.
const EXPLAINED_FEATURES: usize = 10;

/// The body of an answer, or what went wrong.
pub(crate) type Outcome = Result<Vec<u8>, ApiError>;

/// What a request wants to know.
#[derive(Debug)]
pub(crate) enum Query {
    Predict(Question),
    Lookalikes { class: String, k: usize },
}

impl Query {
    /// Examples to rank, or as much work.
    pub(crate) fn items(&self) -> usize {
        match self {
            Self::Predict(question) => question.items.len(),
            Self::Lookalikes { .. } => 1,
        }
    }
}

#[derive(Serialize)]
struct PredictAnswer<'a> {
    answers: Vec<ItemAnswer>,
    probabilities: bool,
    model: ModelRef<'a>,
}

#[derive(Serialize)]
struct ModelRef<'a> {
    name: &'a serde_json::Value,
    generation: u64,
}

#[derive(Serialize)]
struct ItemAnswer {
    classes: Vec<ClassAnswer>,
    /// Nothing of the item is known to the model: the answer is that to an empty one.
    prior: bool,
}

#[derive(Serialize)]
struct ClassAnswer {
    name: String,
    id: u32,
    score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
}

/// The lead of a class over the mean of all classes, taken apart.
#[derive(Serialize)]
struct Explanation {
    lead: f32,
    features: Vec<FeaturePart>,
    /// What the features add that are not listed.
    other_features: f32,
    nearest_examples: f32,
    constant: f32,
}

#[derive(Serialize)]
struct FeaturePart {
    id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    contribution: f32,
}

/// A request for predictions with its examples as the model reads them.
struct Prepared {
    place: usize,
    data: Dataset,
    only: Option<Vec<u32>>,
}

/// Answers a batch, in the order of its requests.
pub(crate) fn answer_all(served: &Served, batch: &[Query]) -> Vec<Outcome> {
    let mut outcomes: Vec<Option<Outcome>> = batch.iter().map(|_| None).collect();
    let prepared: Vec<Option<Result<Prepared, ApiError>>> = (batch.par_iter().enumerate())
        .map(|(place, query)| match query {
            Query::Predict(question) => Some(prepare(served, place, question)),
            Query::Lookalikes { .. } => None,
        })
        .collect();
    let mut groups: Vec<(&Wish, Vec<Prepared>)> = Vec::new();
    for (place, result) in prepared.into_iter().enumerate() {
        match (result, &batch[place]) {
            (Some(Ok(prepared)), Query::Predict(Question { wish, .. })) => {
                match groups.iter_mut().find(|(other, _)| *other == wish) {
                    Some((_, members)) => members.push(prepared),
                    None => groups.push((wish, vec![prepared])),
                }
            }
            (Some(Err(error)), _) => outcomes[place] = Some(Err(error)),
            (_, Query::Lookalikes { class, k }) => outcomes[place] = Some(lookalikes(served, class, *k)),
            (None, Query::Predict(_)) => {}
        }
    }
    let explains = |place: usize| matches!(&batch[place], Query::Predict(question) if question.explain);
    let answered: Vec<Vec<(usize, Outcome)>> = groups
        .into_par_iter()
        .map(|(wish, members)| answer_group(served, wish, members, &explains))
        .collect();
    for (place, outcome) in answered.into_iter().flatten() {
        outcomes[place] = Some(outcome);
    }
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(ApiError::internal()))).collect()
}

/// Ranks requests that wish the same, together.
fn answer_group(
    served: &Served,
    wish: &Wish,
    members: Vec<Prepared>,
    explains: &(dyn Fn(usize) -> bool + Sync),
) -> Vec<(usize, Outcome)> {
    let only = members[0].only.clone();
    let mut first = 0;
    let mut places = Vec::with_capacity(members.len());
    let mut parts = Vec::with_capacity(members.len());
    for Prepared { place, data, .. } in members {
        let count = data.view().len();
        places.push((place, first..first + count));
        parts.push(data);
        first += count;
    }
    let data = if parts.len() == 1 { parts.remove(0) } else { Dataset::concat(&parts) };
    let (examples, all) = (data.view(), (0..first as u32).collect::<Vec<_>>());
    let ask = Ask {
        k: wish.k,
        probabilities: wish.probabilities,
        search: wish.search,
        only: only.as_deref(),
        threshold: wish.threshold,
    };
    let ranking = served.predictor.rank(&examples, &all, ask);
    let body = |(place, range): (usize, std::ops::Range<usize>)| {
        let item = |example| item_answer(served, &examples, &ranking, example, explains(place));
        let body = PredictAnswer {
            answers: range.map(item).collect(),
            probabilities: wish.probabilities,
            model: ModelRef { name: &served.card["name"], generation: served.generation },
        };
        (place, to_json(&body))
    };
    places.into_par_iter().map(body).collect()
}

fn item_answer(
    served: &Served,
    examples: &Examples<'_>,
    ranking: &TopK,
    example: usize,
    explain: bool,
) -> ItemAnswer {
    let named = served.predictor.named(ranking, example);
    let class = |NamedClass { class, name, score }| {
        let explanation = explain.then(|| explain_class(served, examples, example, class));
        ClassAnswer { name, id: class, score, explanation }
    };
    ItemAnswer {
        classes: named.into_iter().map(class).collect(),
        prior: examples.features(example).0.is_empty(),
    }
}

fn explain_class(served: &Served, examples: &Examples<'_>, example: usize, class: u32) -> Explanation {
    let model = served.model();
    let found = served.explainer().contributions(served.cpu, model, examples, example as u32, class);
    let (ids, _) = examples.features(example);
    let mut all: Vec<(f32, u32)> = found.of_features.into_iter().zip(ids.iter().copied()).collect();
    all.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()).then(a.1.cmp(&b.1)));
    let others = all.split_off(EXPLAINED_FEATURES.min(all.len()));
    let name = |id| model.text.as_ref().map(|text| text.vectoriser.feature_name(id));
    let part = |(contribution, id)| FeaturePart { id, name: name(id), contribution };
    Explanation {
        lead: found.lead,
        features: all.into_iter().map(part).collect(),
        other_features: others.iter().map(|(contribution, _)| contribution).sum(),
        nearest_examples: found.neighbours,
        constant: found.constant,
    }
}

/// The examples of a request and the classes it names, if the model knows them.
fn prepare(served: &Served, place: usize, question: &Question) -> Result<Prepared, ApiError> {
    let model = served.model();
    let class = |name: &String| {
        let unknown = || ApiError::unknown_class(StatusCode::UNPROCESSABLE_ENTITY, name, model.num_classes());
        model.class_id(name).ok_or_else(unknown)
    };
    let only = question.wish.only.as_ref();
    let only = only.map(|names| names.iter().map(class).collect::<Result<Vec<u32>, _>>()).transpose()?;
    let mut data = Dataset::empty(model.num_features(), model.num_classes());
    for (number, item) in question.items.iter().enumerate() {
        push(served, item, &mut data).map_err(|mut error| {
            error.message = format!("item {number}: {}", error.message);
            error
        })?;
    }
    Ok(Prepared { place, data, only })
}

fn push(served: &Served, item: &Item, data: &mut Dataset) -> Result<(), ApiError> {
    match item {
        Item::Text(text) => {
            let Some(row) = served.predictor.example_of_text(text) else {
                let message =
                    "the model was trained from numbers and reads no text: give features or a vector";
                return Err(ApiError::invalid("no_text_model", message));
            };
            let (ids, values) = (row.feature_ids, row.feature_values);
            data.push(ids.into_iter().zip(values), &[]);
        }
        Item::Features(Features(features)) => {
            let mut sorted = features.clone();
            sorted.sort_unstable_by_key(|&(id, _)| id);
            check_features(&sorted, data.num_features)?;
            data.push(sorted, &[]);
        }
        Item::Vector(values) => {
            let expected = data.num_features;
            if served.model().text.is_some() {
                let message = "the model was trained from text and reads no vector: give a text or features";
                return Err(ApiError::invalid("no_vector_model", message));
            }
            if values.len() != expected {
                let message =
                    format!("vector: found {} values, expected the model's {expected}", values.len());
                return Err(ApiError::invalid("vector_length", message));
            }
            // As a matrix is read for training: zeros are left out.
            let features: Vec<(u32, f32)> =
                (0..).zip(values.iter().copied()).filter(|&(_, value)| value != 0.0).collect();
            check_features(&features, expected)?;
            data.push(features, &[]);
        }
    }
    Ok(())
}

/// The law of examples, for ascending ids.
fn check_features(features: &[(u32, f32)], limit: usize) -> Result<(), ApiError> {
    for (place, &(id, value)) in features.iter().enumerate() {
        if id as usize >= limit {
            let message = format!("found feature {id}, expected one below {limit}");
            return Err(ApiError::invalid("feature_out_of_range", message));
        }
        if place > 0 && features[place - 1].0 == id {
            return Err(ApiError::invalid(
                "duplicate_feature",
                format!("found feature {id} twice, expected it once"),
            ));
        }
        if !value.is_finite() {
            let message = format!("feature {id}: found a number too large for a value");
            return Err(ApiError::invalid("not_finite", message));
        }
    }
    Ok(())
}

fn lookalikes(served: &Served, name: &str, k: usize) -> Outcome {
    #[derive(Serialize)]
    struct Lookalike {
        name: String,
        id: u32,
        cosine: f32,
    }

    #[derive(Serialize)]
    struct LookalikesAnswer<'a> {
        class: &'a str,
        id: u32,
        examples: u32,
        lookalikes: Vec<Lookalike>,
    }

    let model = served.model();
    let unknown = || ApiError::unknown_class(StatusCode::NOT_FOUND, name, model.num_classes());
    let id = model.class_id(name).ok_or_else(unknown)?;
    let named = |(cosine, id)| Lookalike { name: model.class_name(id), id, cosine };
    to_json(&LookalikesAnswer {
        class: name,
        id,
        examples: model.frequencies.examples_of_class.get(id as usize).copied().unwrap_or(0),
        lookalikes: served.predictor.lookalikes(id, k).into_iter().map(named).collect(),
    })
}

fn to_json(body: &impl Serialize) -> Outcome {
    serde_json::to_vec(body).map_err(|_| ApiError::internal())
}
