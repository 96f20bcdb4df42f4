//! Bad questions: each gets a 4xx with its code, and the service goes on.

use std::io::Write;

use crate::support::{Answer, NUMBERS, Running, TEXT, request};

#[track_caller]
fn refuses(service: &Running, body: impl AsRef<[u8]>, status: u16, code: &str) {
    let answer = service.predict(body.as_ref());
    assert_eq!(answer.error(), (status, code.into()), "{:?}", String::from_utf8_lossy(body.as_ref()));
}

#[test]
fn what_is_no_json() {
    let service = Running::new(TEXT);
    for body in
        ["", "{", "{\"text\": \"a\"", "{\"text\": \"a\"} x", "{'text': 1}", "{\"text\": \"\\ud800\"}", "NaN"]
    {
        refuses(&service, body, 400, "malformed_json");
    }
    refuses(&service, b"{\"text\": \"\xff\xfe\"}", 400, "malformed_json");
    refuses(&service, "[".repeat(100_000), 422, "invalid_field");
    refuses(&service, "{\"only\":".to_owned() + &"[".repeat(100_000), 422, "invalid_field");
    refuses(&service, "{\"text\": \"a\", \"threshold\": NaN}", 400, "malformed_json");
    assert_eq!(service.predict("{\"text\": \"a\"}").status, 200);
}

#[test]
fn json_that_says_something_else() {
    let service = Running::new(TEXT);
    for body in [
        "[]",
        "[\"a\"]",
        "null",
        "{\"text\": 7}",
        "{\"txt\": \"a\"}",
        "{\"text\": \"a\", \"text\": \"b\"}",
        "{\"text\": \"a\", \"k\": -1}",
        "{\"text\": \"a\", \"k\": 1.5}",
        "{\"text\": \"a\", \"k\": null}",
        "{\"text\": \"a\", \"probabilities\": 1}",
        "{\"text\": \"a\", \"search\": \"psychic\"}",
        "{\"text\": \"a\", \"only\": [3]}",
        "{\"items\": [\"a\"]}",
        "{\"items\": [{}]}",
        "{\"items\": [[\"a\"]]}",
        "{\"items\": [{\"txt\": \"a\"}]}",
        "{\"items\": [{\"text\": \"a\", \"vector\": []}]}",
        "{\"features\": {\"x\": 1}}",
        "{\"features\": {\"-1\": 1}}",
        "{\"features\": {\"99999999999\": 1}}",
        "{\"features\": [[1]]}",
        "{\"features\": [[1, 2, 3]]}",
        "{\"features\": [1, 2]}",
        "{\"features\": 1}",
    ] {
        refuses(&service, body, 422, "invalid_field");
    }
    let unknown = service.predict("{\"txt\": \"a\"}").json()["error"]["message"].to_string();
    assert!(unknown.contains("`txt`") && unknown.contains("`text`"), "{unknown}");
    for body in
        ["{}", "{\"k\": 3}", "{\"text\": \"a\", \"items\": []}", "{\"text\": \"a\", \"features\": []}"]
    {
        refuses(&service, body, 422, "one_of");
    }
    refuses(&service, "{\"items\": []}", 422, "no_items");
    refuses(&service, "{\"text\": \"a\", \"only\": []}", 422, "no_classes");
    refuses(&service, "{\"text\": \"a\", \"only\": [\"Atlantis\"]}", 422, "unknown_class");
    refuses(&service, "{\"vector\": [1]}", 422, "no_vector_model");
    refuses(&service, "{\"text\": \"a\", \"effort\": 9}", 422, "invalid_effort");
    refuses(&service, "{\"text\": \"a\", \"search\": \"fast\", \"effort\": 0}", 422, "invalid_effort");
    assert_eq!(service.predict("{\"text\": \"a\"}").status, 200);
}

#[test]
fn numbers_out_of_their_range() {
    let service = Running::new(NUMBERS);
    let features = service.get("/v1/model").good()["features"].as_u64().unwrap();
    for k in ["0", "1001", "18446744073709551615"] {
        refuses(&service, format!("{{\"features\": [], \"k\": {k}}}"), 422, "k_out_of_range");
    }
    refuses(&service, format!("{{\"features\": [[{features}, 1]]}}"), 422, "feature_out_of_range");
    refuses(&service, "{\"features\": [[1, 1], [0, 1], [1, 2]]}", 422, "duplicate_feature");
    refuses(&service, "{\"features\": {\"1\": 1e39}}", 422, "not_finite");
    refuses(&service, "{\"features\": {\"1\": 1e999}}", 400, "malformed_json");
    refuses(&service, "{\"features\": [], \"threshold\": -1e39}", 422, "not_finite");
    refuses(&service, "{\"text\": \"a\"}", 422, "no_text_model");
    refuses(&service, "{\"items\": [{\"features\": []}, {\"text\": \"a\"}]}", 422, "no_text_model");
    refuses(&service, "{\"features\": [], \"k\": 101, \"explain\": true}", 422, "too_many_classes");
    let second = service.predict("{\"items\": [{\"features\": []}, {\"features\": [[1, 1], [1, 2]]}]}");
    assert!(second.body.contains("item 1: "), "{second:?}");
    assert_eq!(service.predict("{\"features\": []}").status, 200);
}

#[test]
fn other_places_methods_and_kinds() {
    let service = Running::new(TEXT);
    assert_eq!(service.get("/v1/nothing").error(), (404, "not_found".into()));
    let wrong = service.get("/v1/predict");
    assert_eq!((wrong.error(), wrong.header("allow")), ((405, "wrong_method".into()), Some("POST")));
    for headers in ["", "Content-Type: text/plain\r\n", "Content-Type: application/jsonx\r\n"] {
        let answer = service.send("POST", "/v1/predict", headers, b"{\"text\": \"a\"}");
        assert_eq!(answer.error(), (415, "not_json".into()));
    }
    let charset = "Content-Type: Application/JSON; charset=utf-8\r\n";
    assert_eq!(service.send("POST", "/v1/predict", charset, b"{\"text\": \"a\"}").status, 200);
    let foreign = "Content-Type: application/json\r\nSec-Fetch-Site: cross-site\r\n";
    assert_eq!(service.send("POST", "/v1/predict", foreign, b"{}").error(), (403, "cross_site".into()));
}

/// Not even HTTP.
#[test]
fn noise_on_the_wire() {
    let service = Running::new(TEXT);
    for noise in [&b"\x16\x03\x01\x02\x00"[..], b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", &[0xff; 4096]] {
        let mut stream = service.connect();
        stream.write_all(noise).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = std::io::Read::read_to_end(&mut stream, &mut rest);
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4") || rest.starts_with(b"HTTP/1.1 505"));
    }
    let mut stream = service.connect();
    stream.write_all(&request("GET", "/healthz", &format!("X: {}\r\n", "x".repeat(200_000)), b"")).unwrap();
    assert_eq!(Answer::read(&mut stream).status, 431);
    assert_eq!(service.predict("{\"text\": \"a\"}").status, 200);
}
