//! The page for people: three files inside the binary, nothing from elsewhere.

use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};

/// Own files and own questions; no inline script or style, no frame, no form.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) async fn index() -> Response {
    file("text/html; charset=utf-8", include_str!("../assets/page.html"))
}

pub(crate) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("../assets/page.css"))
}

pub(crate) async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("../assets/page.js"))
}

fn file(kind: &'static str, content: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    (headers, content).into_response()
}
