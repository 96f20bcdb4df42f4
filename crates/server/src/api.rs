//! What there is to ask, route by route.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{MatchedPath, Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

use crate::Shared;
use crate::answer::Query;
use crate::error::{ApiError, ErrorCode};
use crate::guard::guard;
use crate::metrics::Now;
use crate::page;
use crate::question::{Question, checked_k};
use crate::queue::{Job, Reply};

const JSON: &str = "application/json";
/// Bytes that are accounted for at a time.
pub(crate) const ROOM_UNIT: usize = 1024;
/// Look-alikes that are listed unless asked otherwise.
const LOOKALIKES: u64 = 10;

/// All routes, watched and guarded.
pub(crate) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/v1/predict", post(predict))
        .route("/v1/classes/{name}/lookalikes", get(lookalikes))
        .route("/v1/model", get(model))
        .route("/v1/reload", post(reload))
        .route("/healthz", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(openapi))
        .route("/", get(page::index))
        .route("/page.css", get(page::style))
        .route("/page.js", get(page::script))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(shared.clone(), guard))
        .layer(from_fn_with_state(shared.clone(), watch))
        .with_state(shared)
}

async fn predict(State(shared): State<Shared>, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let is_json =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|value| {
            value.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(JSON))
        });
    if !is_json {
        let message = "the body must be JSON: send Content-Type: application/json";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message));
    }
    shared.queue.check()?;
    let (room, bytes) = read_body(&shared, &headers, body, arrived).await?;
    let question = Question::parse(&bytes, &shared.settings.limits)?;
    drop(bytes);
    ask(&shared, Query::Predict(question), Some(room), arrived).await
}

async fn lookalikes(
    State(shared): State<Shared>,
    name: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let not_text = |_| {
        let message = "the class's name is not UTF-8 in percent-encoding";
        ApiError::new(StatusCode::BAD_REQUEST, "malformed_path", message)
    };
    let Path(class) = name.map_err(not_text)?;
    let mut k = LOOKALIKES;
    for parameter in uri.query().unwrap_or_default().split('&').filter(|parameter| !parameter.is_empty()) {
        let Some(value) = parameter.strip_prefix("k=") else {
            return Err(ApiError::invalid("unknown_parameter", "the query may have k alone, as in ?k=10"));
        };
        k = value.parse().map_err(|_| {
            let message =
                format!("k: found something else than a number, expected 1 to {}", shared.settings.limits.k);
            ApiError::invalid("k_out_of_range", message)
        })?;
    }
    let k = checked_k(k, &shared.settings.limits)?;
    ask(&shared, Query::Lookalikes { class, k }, None, arrived).await
}

/// Puts a question into the line and waits for its answer.
async fn ask(
    shared: &Shared,
    query: Query,
    room: Option<OwnedSemaphorePermit>,
    arrived: Instant,
) -> Result<Response, ApiError> {
    let items = query.items();
    let (reply, answer) = oneshot::channel();
    shared.queue.put(Job { query, reply, room, arrived: Instant::now() })?;
    let left = shared.settings.clients.request.saturating_sub(arrived.elapsed());
    let Reply { outcome, waited, worked } = match timeout(left, answer).await {
        Ok(answer) => answer.map_err(|_| ApiError::internal())?,
        Err(_) => return Err(ApiError::timeout()),
    };
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let timing = format!("wait;dur={:.3}, work;dur={:.3}", milliseconds(waited), milliseconds(worked));
    let headers = [(header::CONTENT_TYPE, JSON), (HeaderName::from_static("server-timing"), &timing)];
    let mut response = (headers, outcome?).into_response();
    response.extensions_mut().insert(Items(items));
    Ok(response)
}

/// The examples of an answered request, beside its response: for the log.
#[derive(Clone, Copy)]
struct Items(usize);

/// Reads a body once there is room for it, within the request's time.
async fn read_body(
    shared: &Shared,
    headers: &HeaderMap,
    body: Body,
    arrived: Instant,
) -> Result<(OwnedSemaphorePermit, axum::body::Bytes), ApiError> {
    let most = shared.settings.limits.body_bytes;
    let too_large = || {
        let message = format!("the body may have {most} bytes; send several requests");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    };
    let told = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let expected: usize = told.unwrap_or(most);
    if expected > most {
        return Err(too_large());
    }
    let units = expected.div_ceil(ROOM_UNIT).max(1) as u32;
    let Ok(room) = shared.room.clone().try_acquire_many_owned(units) else {
        let message = "too many bytes are being read; ask again later";
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message));
    };
    let left = shared.settings.clients.request.saturating_sub(arrived.elapsed());
    match timeout(left, axum::body::to_bytes(body, expected)).await {
        Ok(Ok(bytes)) => Ok((room, bytes)),
        Ok(Err(_)) if told.is_none() => Err(too_large()),
        Ok(Err(_)) => {
            let message = "the body ended before its Content-Length";
            Err(ApiError::new(StatusCode::BAD_REQUEST, "body_cut_short", message))
        }
        Err(_) => {
            let message = "the body did not come within the time limit";
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "slow_body", message))
        }
    }
}

async fn model(State(shared): State<Shared>) -> Response {
    let mut card = shared.models.current().card.clone();
    let limits = shared.settings.limits;
    card["limits"] = json!({
        "body_bytes": limits.body_bytes, "items": limits.items, "k": limits.k, "classes": limits.classes,
        "explained": limits.explained,
    });
    card["version"] = env!("CARGO_PKG_VERSION").into();
    ([(header::CONTENT_TYPE, JSON)], card.to_string()).into_response()
}

async fn reload(State(shared): State<Shared>) -> Result<Response, ApiError> {
    if shared.settings.token.is_none() {
        let message =
            "reloading over HTTP takes a service with a token: start it with --token, or send it SIGHUP";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "no_token", message));
    }
    let work = shared.clone();
    let loaded =
        tokio::task::spawn_blocking(move || work.reload()).await.map_err(|_| ApiError::internal())?;
    match loaded {
        Ok(generation) => {
            let body = json!({ "generation": generation }).to_string();
            Ok(([(header::CONTENT_TYPE, JSON)], body).into_response())
        }
        Err(error) => {
            let message = format!("the model before stays: {error}");
            Err(ApiError::new(StatusCode::CONFLICT, "bad_model", message))
        }
    }
}

async fn ready(State(shared): State<Shared>) -> Result<&'static str, ApiError> {
    if shared.is_stopping() { Err(ApiError::stopping()) } else { Ok("ready\n") }
}

async fn metrics(State(shared): State<Shared>) -> Response {
    let generation = shared.models.current().generation;
    let text = shared.metrics.text(&Now { queue_items: shared.queue.items(), generation });
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn openapi(State(shared): State<Shared>) -> Response {
    ([(header::CONTENT_TYPE, JSON)], shared.openapi.clone()).into_response()
}

async fn not_found() -> ApiError {
    let message = "there is nothing here; GET /openapi.json says what there is";
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

async fn wrong_method() -> ApiError {
    let message = "this is asked with another method; GET /openapi.json says with which";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
}

/// Counts and logs every request, and says how browsers should treat what they get.
async fn watch(
    State(shared): State<Shared>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let mut response = next.run(request).await;
    let (took, status) = (started.elapsed(), response.status());
    let route = route.as_ref().map_or("other", MatchedPath::as_str);
    shared.metrics.request(route, status.as_u16(), took);
    if shared.settings.log_requests || status == StatusCode::INTERNAL_SERVER_ERROR {
        let level = if status.is_server_error() { "error" } else { "info" };
        let extensions = response.extensions();
        shared.log.event(
            level,
            "request",
            json!({
                "method": method.as_str(), "route": route, "status": status.as_u16(),
                "ms": (took.as_secs_f64() * 1e6).round() / 1e3,
                "items": extensions.get::<Items>().map(|items| items.0),
                "code": extensions.get::<ErrorCode>().map(|code| code.0),
            }),
        );
    }
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static("default-src 'none'"));
    response
}

impl crate::SharedState {
    /// Exchanges the model if what is on the disk is good.
    pub(crate) fn reload(&self) -> Result<u64, crate::LoadError> {
        let started = Instant::now();
        let loaded = self.models.reload();
        let seconds = started.elapsed().as_secs_f64();
        match &loaded {
            Ok(served) => {
                self.metrics.reloads.fetch_add(1, Ordering::Relaxed);
                let fields = json!({ "generation": served.generation, "seconds": seconds });
                self.log.event("info", "reloaded", fields);
            }
            Err(error) => {
                self.metrics.reloads_failed.fetch_add(1, Ordering::Relaxed);
                let fields = json!({ "reason": error.to_string(), "seconds": seconds });
                self.log.event("error", "reload_failed", fields);
            }
        }
        loaded.map(|served| served.generation)
    }
}
