//! What clients ask, as they write it.
//!
//! One item stands in the request itself (`text`, `features` or `vector`), several
//! stand in `items`. Unknown fields are errors: a misspelt `treshold` that is ignored
//! gives wrong answers for months.

use std::fmt;

use axum::http::StatusCode;
use lookalike::predict::Search;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::error::ApiError;
use crate::settings::Limits;

/// The body of `POST /v1/predict`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct PredictBody {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    features: Option<Features>,
    #[serde(default)]
    vector: Option<Vec<Number>>,
    #[serde(default)]
    items: Option<Vec<Item>>,
    #[serde(default = "five")]
    k: u64,
    #[serde(default)]
    threshold: Option<Number>,
    #[serde(default)]
    only: Option<Vec<String>>,
    #[serde(default)]
    probabilities: bool,
    #[serde(default)]
    search: SearchName,
    #[serde(default)]
    effort: Option<u32>,
    #[serde(default)]
    explain: bool,
}

fn five() -> u64 {
    5
}

#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum SearchName {
    #[default]
    Exact,
    Fast,
}

/// One example: `{"text": …}`, `{"features": …}` or `{"vector": …}`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item {
    /// For a model that was trained from text.
    Text(String),
    /// Ids and values.
    Features(Features),
    /// A value for each of the model's features.
    Vector(Vec<f32>),
}

impl Item {
    fn of_numbers(numbers: Vec<Number>) -> Self {
        Self::Vector(numbers.into_iter().map(|Number(number)| number).collect())
    }
}

/// A number of any size: one beyond what f32 holds becomes infinite, and is refused as
/// such by whoever checks it. (Read as f32, it would be no JSON.)
#[derive(Clone, Copy, Debug)]
struct Number(f32);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(|number| Self(number as f32))
    }
}

/// `{"17": 0.5}` or `[[17, 0.5]]`, in any order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Features(pub(crate) Vec<(u32, f32)>);

/// A checked request for predictions; what depends on the model is not checked yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    pub(crate) items: Vec<Item>,
    pub(crate) explain: bool,
    pub(crate) wish: Wish,
}

/// What an answer should hold: requests that wish the same are answered together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wish {
    pub(crate) k: usize,
    pub(crate) probabilities: bool,
    pub(crate) threshold: Option<f32>,
    pub(crate) only: Option<Vec<String>>,
    pub(crate) search: Search,
}

impl Question {
    /// Reads and checks a body.
    pub(crate) fn parse(body: &[u8], limits: &Limits) -> Result<Self, ApiError> {
        let is_object = body.trim_ascii_start().starts_with(b"{");
        let body: PredictBody = serde_json::from_slice(body).map_err(|error| of_json(body, &error))?;
        // A list of fields in the right order would do for serde.
        if !is_object {
            return Err(ApiError::invalid("invalid_field", "found a list, expected an object"));
        }
        let wish = Wish {
            k: checked_k(body.k, limits)?,
            probabilities: body.probabilities,
            threshold: body.threshold.map(|Number(threshold)| threshold),
            only: body.only,
            search: search(body.search, body.effort)?,
        };
        if wish.threshold.is_some_and(|threshold| !threshold.is_finite()) {
            return Err(ApiError::invalid("not_finite", "threshold: found a number too large to be one"));
        }
        let one =
            [body.text.map(Item::Text), body.features.map(Item::Features), body.vector.map(Item::of_numbers)];
        let mut one: Vec<Item> = one.into_iter().flatten().collect();
        let items = match (one.len(), body.items) {
            (1, None) => one.split_off(0),
            (0, Some(items)) => items,
            _ => {
                return Err(ApiError::invalid(
                    "one_of",
                    "give exactly one of text, features, vector and items",
                ));
            }
        };
        let question = Self { items, explain: body.explain, wish };
        question.check_sizes(limits)?;
        Ok(question)
    }

    fn check_sizes(&self, limits: &Limits) -> Result<(), ApiError> {
        let (items, k) = (self.items.len(), self.wish.k);
        if self.wish.only.as_ref().is_some_and(Vec::is_empty) {
            return Err(ApiError::invalid("no_classes", "only: found no class, expected at least one"));
        }
        if items == 0 {
            return Err(ApiError::invalid("no_items", "items: found none, expected at least one"));
        }
        if items > limits.items {
            let message =
                format!("items: found {items}, expected at most {}; send several requests", limits.items);
            return Err(ApiError::invalid("too_many_items", message));
        }
        let most = if self.explain { limits.explained } else { limits.classes };
        if items.saturating_mul(k) > most {
            let explained = if self.explain { " with explanations" } else { "" };
            let message = format!(
                "{items} items with k = {k} make {} classes, expected at most {most}{explained}",
                items.saturating_mul(k)
            );
            return Err(ApiError::invalid("too_many_classes", message));
        }
        Ok(())
    }
}

fn search(name: SearchName, effort: Option<u32>) -> Result<Search, ApiError> {
    match (name, effort) {
        (SearchName::Exact, None) => Ok(Search::Exact),
        (SearchName::Fast, None) => Ok(Search::FAST),
        (SearchName::Fast, Some(effort)) if effort > 0 => Ok(Search::Fast { effort: Some(effort as usize) }),
        _ => Err(ApiError::invalid("invalid_effort", "effort: expected at least 1, and search to be fast")),
    }
}

/// The number of classes asked for, if it may be.
pub(crate) fn checked_k(k: u64, limits: &Limits) -> Result<usize, ApiError> {
    match usize::try_from(k) {
        Ok(k) if (1..=limits.k).contains(&k) => Ok(k),
        _ => Err(ApiError::invalid("k_out_of_range", format!("k: found {k}, expected 1 to {}", limits.k))),
    }
}

/// Bytes that are no JSON are a bad request; JSON that says something else than
/// expected can't be processed. (Where a list is longer than expected, the reader speaks of
/// syntax: so the whole is looked at again.)
fn of_json(body: &[u8], error: &serde_json::Error) -> ApiError {
    match error.is_data() || serde_json::from_slice::<serde_json::Value>(body).is_ok() {
        true => ApiError::invalid("invalid_field", error.to_string()),
        false => ApiError::new(StatusCode::BAD_REQUEST, "malformed_json", error.to_string()),
    }
}

/// By hand: serde would take a list for an object, and call another key a mistake of
/// syntax.
impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(field_identifier, rename_all = "lowercase")]
        enum Kind {
            Text,
            Features,
            Vector,
        }

        struct ItemVisitor;

        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = Item;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with exactly one of text, features and vector")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Item, A::Error> {
                let item = match map.next_key()? {
                    None => return Err(de::Error::invalid_length(0, &self)),
                    Some(Kind::Text) => Item::Text(map.next_value()?),
                    Some(Kind::Features) => Item::Features(map.next_value()?),
                    Some(Kind::Vector) => Item::of_numbers(map.next_value()?),
                };
                match map.next_key::<de::IgnoredAny>()? {
                    None => Ok(item),
                    Some(_) => Err(de::Error::invalid_length(2, &self)),
                }
            }
        }

        deserializer.deserialize_map(ItemVisitor)
    }
}

impl<'de> Deserialize<'de> for Features {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FeaturesVisitor;

        impl<'de> Visitor<'de> for FeaturesVisitor {
            type Value = Features;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of ids and values, or a list of pairs")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Features, A::Error> {
                let mut all = Vec::new();
                while let Some((id, value)) = map.next_entry::<String, Number>()? {
                    let id = id.parse().map_err(|_| {
                        de::Error::invalid_value(de::Unexpected::Str(&id), &"the number of a feature")
                    })?;
                    all.push((id, value.0));
                }
                Ok(Features(all))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Features, A::Error> {
                let mut all = Vec::new();
                while let Some(pair) = list.next_element::<(u32, Number)>()? {
                    all.push((pair.0, pair.1.0));
                }
                Ok(Features(all))
            }
        }

        deserializer.deserialize_any(FeaturesVisitor)
    }
}
