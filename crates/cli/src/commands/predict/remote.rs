//! `lookalike predict --server`: the same input and output, answered elsewhere.

use std::io::{BufWriter, Write};
use std::time::Duration;

use anyhow::{Context, bail};
use lookalike::predict::{NamedClass, Search};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{PredictArguments, names_in, write_answer};
use crate::commands::serve::TOKEN_VARIABLE;
use crate::exit::usage;
use crate::input;

/// A request that is not answered in this time has failed.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How often a busy service is asked again.
const ATTEMPTS: usize = 30;
/// The longest that a service may ask us to wait.
const WAIT_MAX_SECONDS: u64 = 30;
/// No answer is larger.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Of a model's card, what a client needs.
#[derive(Deserialize)]
struct Card {
    reads: String,
    features: usize,
    classes: usize,
    limits: Limits,
}

#[derive(Deserialize)]
struct Limits {
    body_bytes: usize,
    items: usize,
    classes: usize,
}

#[derive(Deserialize)]
struct Answers {
    answers: Vec<ItemAnswer>,
}

#[derive(Deserialize)]
struct ItemAnswer {
    classes: Vec<ClassAnswer>,
    prior: bool,
}

#[derive(Deserialize)]
struct ClassAnswer {
    name: String,
    id: u32,
    score: f32,
}

pub(super) fn run(url: &str, arguments: &PredictArguments) -> anyhow::Result<()> {
    let service = Service::new(url)?;
    let card: Card = service.ask("/v1/model", None)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let wish = wish(arguments)?;
    let most = card.limits.items.min(card.limits.classes / arguments.top_k as usize).max(1);
    let mut answer = |items: Vec<Value>| -> anyhow::Result<()> {
        for part in parts(&items, most, card.limits.body_bytes / 2) {
            let mut question = wish.clone();
            question["items"] = part.into();
            let Answers { answers } = service.ask("/v1/predict", Some(&question))?;
            for ItemAnswer { classes, prior } in answers {
                let named = |ClassAnswer { name, id, score }| NamedClass { class: id, name, score };
                let classes: Vec<NamedClass> = classes.into_iter().map(named).collect();
                write_answer(&mut out, arguments.format, &classes, prior)?;
            }
        }
        Ok(out.flush()?)
    };
    if card.reads == "text" {
        return input::stream_records(&arguments.input, &arguments.read, |records| {
            answer(records.into_iter().map(|record| json!({ "text": record.text })).collect())
        });
    }
    let shape = (card.features, card.classes);
    input::stream_rows(&arguments.input, shape, &arguments.read, |examples| {
        let features = |i| {
            let (ids, values) = examples.features(i);
            json!({ "features": ids.iter().zip(values).collect::<Vec<_>>() })
        };
        answer((0..examples.len()).map(features).collect())
    })
}

/// What is asked of every example.
fn wish(arguments: &PredictArguments) -> anyhow::Result<Value> {
    let mut wish = json!({ "k": arguments.top_k, "probabilities": arguments.probabilities });
    if let Search::Fast { effort } = arguments.search.search() {
        wish["search"] = "fast".into();
        wish["effort"] = effort.into();
    }
    if let Some(threshold) = arguments.threshold {
        wish["threshold"] = threshold.into();
    }
    if let Some(path) = &arguments.only {
        let names: Vec<String> = names_in(path)?.into_iter().map(|(_, name)| name).collect();
        wish["only"] = names.into();
    }
    Ok(wish)
}

/// Items in parts of so many at most, and of so many bytes unless one alone has more.
fn parts(items: &[Value], count_max: usize, bytes_max: usize) -> Vec<Vec<Value>> {
    let mut parts: Vec<Vec<Value>> = Vec::new();
    let mut bytes = 0;
    for item in items {
        let size = item.to_string().len();
        match parts.last_mut() {
            Some(part) if part.len() < count_max && bytes + size <= bytes_max => {
                bytes += size;
                part.push(item.clone());
            }
            _ => {
                bytes = size;
                parts.push(vec![item.clone()]);
            }
        }
    }
    parts
}

/// A service that is asked.
struct Service {
    agent: ureq::Agent,
    url: String,
    authorization: Option<String>,
}

impl Service {
    fn new(url: &str) -> anyhow::Result<Self> {
        if !url.starts_with("http://") {
            let message =
                "expected a URL such as http://127.0.0.1:7300; TLS is not spoken here, a proxy can do it";
            return Err(usage(format!("--server: found {url:?}, {message}")));
        }
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        let token = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
        Ok(Self {
            agent: config.into(),
            url: url.trim_end_matches('/').to_owned(),
            authorization: token.map(|token| format!("Bearer {token}")),
        })
    }

    /// The answer to a question, or to none; a busy service is asked again.
    fn ask<T: DeserializeOwned>(&self, path: &str, question: Option<&Value>) -> anyhow::Result<T> {
        for attempt in 1.. {
            let (status, wait, body) =
                self.send(path, question).with_context(|| format!("no answer from {}", self.url))?;
            match status {
                200 => {
                    return serde_json::from_slice(&body)
                        .with_context(|| format!("{} is no lookalike service", self.url));
                }
                429 | 503 if attempt < ATTEMPTS => std::thread::sleep(wait),
                _ => return Err(refusal(&self.url, status, &body)),
            }
        }
        bail!("{} is busy", self.url)
    }

    /// Status, the time that a busy service asks us to wait, and the body.
    fn send(&self, path: &str, question: Option<&Value>) -> Result<(u16, Duration, Vec<u8>), ureq::Error> {
        let url = format!("{}{path}", self.url);
        let authorization = self.authorization.as_deref();
        let mut response = match question {
            None => {
                let request = self.agent.get(&url);
                authorization
                    .into_iter()
                    .fold(request, |request, value| request.header("Authorization", value))
                    .call()
            }
            Some(question) => {
                let request = self.agent.post(&url).content_type("application/json");
                let request = authorization
                    .into_iter()
                    .fold(request, |request, value| request.header("Authorization", value));
                request.send(question.to_string())
            }
        }?;
        let seconds =
            response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let wait = Duration::from_secs(seconds.unwrap_or(1).min(WAIT_MAX_SECONDS));
        let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok((response.status().as_u16(), wait, body))
    }
}

/// What a service says against a question.
fn refusal(url: &str, status: u16, body: &[u8]) -> anyhow::Error {
    let error = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let message = error["error"]["message"].as_str().unwrap_or("it does not say why");
    let message = format!("{url} refuses with status {status}: {message}");
    if (400..500).contains(&status) { usage(message) } else { anyhow::anyhow!(message) }
}
