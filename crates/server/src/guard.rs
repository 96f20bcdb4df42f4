//! Who may ask.

use std::hint::black_box;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::Shared;
use crate::error::ApiError;

/// Open to everybody: whoever watches over services has no token.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Lets a request through if it carries the token, or none is needed.
pub(crate) async fn guard(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let is_open = OPEN.contains(&request.uri().path());
    if is_foreign(request.method(), request.headers()) {
        let message = "another site's page asks in a browser; only pages of this service may";
        return ApiError::new(StatusCode::FORBIDDEN, "cross_site", message).into_response();
    }
    match &shared.settings.token {
        Some(token) if !is_open && !carries(request.headers(), token) => refuse(),
        _ => next.run(request).await,
    }
}

fn refuse() -> Response {
    let message = "the token is missing or wrong: send Authorization: Bearer TOKEN";
    let mut response = ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message).into_response();
    // Basic besides, so that a browser asks for the token by itself (any user name).
    let basic = HeaderValue::from_static("Basic realm=\"lookalike\", charset=\"UTF-8\"");
    response.headers_mut().append(header::WWW_AUTHENTICATE, basic);
    response
}

/// A page of another site that makes the user's browser ask.
fn is_foreign(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::POST && headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site")
}

fn carries(headers: &HeaderMap, token: &str) -> bool {
    let Some(given) = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let (scheme, given) = given.split_once(' ').unwrap_or_default();
    let given = given.trim();
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => is_same(given.as_bytes(), token.as_bytes()),
        "basic" => from_base64(given).is_some_and(|pair| {
            let colon = pair.iter().position(|&byte| byte == b':');
            colon.is_some_and(|colon| is_same(&pair[colon + 1..], token.as_bytes()))
        }),
        _ => false,
    }
}

/// Takes as long wherever the two differ, so that nobody learns a token byte by byte.
/// Its length is no secret.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    let differs = given.iter().zip(token).fold(0, |differs, (a, b)| black_box(differs | (a ^ b)));
    given.len() == token.len() && black_box(differs) == 0
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for quad in text.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for &letter in quad {
            let value = match letter {
                b'A'..=b'Z' => letter - b'A',
                b'a'..=b'z' => letter - b'a' + 26,
                b'0'..=b'9' => letter - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        let whole = bits << (6 * (4 - quad.len()));
        bytes.extend_from_slice(&whole.to_be_bytes()[1..quad.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn only_the_token_opens() {
        for good in ["Bearer s3cret", "bearer  s3cret ", "Basic OnMzY3JldA==", "Basic YW55Ym9keTpzM2NyZXQ"] {
            assert!(carries(&with(good), "s3cret"), "{good}");
        }
        for bad in [
            "Bearer s3cre",
            "Bearer s3cret2",
            "Bearer",
            "s3cret",
            "Bearer x3cret",
            "Basic s3cret",
            "Basic §",
            "",
        ] {
            assert!(!carries(&with(bad), "s3cret"), "{bad}");
        }
        assert!(!carries(&HeaderMap::new(), "s3cret"));
    }

    #[test]
    fn base64_as_in_its_standard() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg", "foob")] {
            assert_eq!(from_base64(text).as_deref(), Some(bytes.as_bytes()));
        }
    }
}
