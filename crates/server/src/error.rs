//! What a client is told when a request fails: a status, a code that stays the same
//! for ever, and a sentence for people.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Why a request failed. The codes are part of the interface: see docs/serving.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    /// A request that is well formed and can't be answered.
    pub(crate) fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    pub(crate) fn unknown_class(status: StatusCode, name: &str, classes: usize) -> Self {
        Self::new(status, "unknown_class", format!("the model has no class {name:?} among its {classes}"))
    }

    pub(crate) fn stopping() -> Self {
        let message = "the service is stopping; ask another one, or this one later";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", message)
    }

    pub(crate) fn timeout() -> Self {
        let message = "no answer within the time limit; ask for less, or later";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", message)
    }

    /// A mistake of ours, not of the client.
    pub(crate) fn internal() -> Self {
        let message = "the service made a mistake with this request and goes on; please report it";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    fn may_be_repeated(&self) -> bool {
        matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    }
}

/// The code of a failed request, beside its response: for the log.
#[derive(Clone, Copy)]
pub(crate) struct ErrorCode(pub(crate) &'static str);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "code": self.code, "message": self.message } }).to_string();
        let mut response = (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if self.may_be_repeated() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response.extensions_mut().insert(ErrorCode(self.code));
        response
    }
}
