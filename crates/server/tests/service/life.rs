//! Tokens, reloads, stops and logs.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::support::{Answer, NUMBERS, Running, TEXT, copy_of, fixture};

const QUESTION: &str = "{\"text\": \"Wien\"}";

#[test]
fn a_token_guards_everything_but_health() {
    let service = Running::with(&fixture(TEXT), |settings| settings.token = Some("s3cret".into()));
    for path in
        ["/", "/page.js", "/v1/model", "/metrics", "/openapi.json", "/v1/classes/x/lookalikes", "/nothing"]
    {
        let answer = service.get(path);
        assert_eq!(answer.error(), (401, "unauthorized".into()), "{path}");
        assert!(answer.header("www-authenticate").unwrap().starts_with("Basic"));
        assert_ne!(service.send("GET", path, "Authorization: Bearer s3cret\r\n", b"").status, 401);
    }
    assert_eq!(service.predict(QUESTION).status, 401);
    assert_eq!(service.send("POST", "/v1/reload", "Authorization: Bearer s3cre\r\n", b"").status, 401);
    assert_eq!(service.get("/healthz").status, 200);
    assert_eq!(service.get("/readyz").status, 200);
    // A browser asks its user: any name, and the token as the password.
    assert_eq!(service.send("GET", "/", "Authorization: Basic bWU6czNjcmV0\r\n", b"").status, 200);
}

#[test]
fn reloading_over_http_takes_a_token() {
    let service = Running::new(TEXT);
    assert_eq!(service.send("POST", "/v1/reload", "", b"").error(), (403, "no_token".into()));
}

#[test]
fn a_reload_serves_the_new_model_or_keeps_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    copy_of(TEXT, &model);
    let service = Running::with(&model, |settings| settings.token = Some("t".into()));
    let headers = "Authorization: Bearer t\r\nContent-Type: application/json\r\n";
    let reload = || service.send("POST", "/v1/reload", headers, b"");
    let ask = || service.send("POST", "/v1/predict", headers, QUESTION.as_bytes());
    let before = ask().good();
    assert_eq!(before["model"]["generation"], 0);
    assert_eq!(reload().good(), json!({ "generation": 1 }));
    assert_eq!(ask().good()["answers"], before["answers"]);

    let weights = model.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, &bytes).unwrap();
    let refused = reload();
    assert_eq!(refused.error(), (409, "bad_model".into()));
    assert!(refused.body.contains("model.safetensors"), "{refused:?}");
    let after = ask().good();
    assert_eq!((&after["answers"], &after["model"]["generation"]), (&before["answers"], &json!(1)));

    // Another kind of model altogether.
    std::fs::remove_dir_all(&model).unwrap();
    copy_of(NUMBERS, &model);
    assert_eq!(service.handle().reload().unwrap(), 2);
    assert_eq!(ask().error().1, "no_text_model");
    let metrics = service.send("GET", "/metrics", headers, b"").body;
    assert!(metrics.contains("lookalike_reloads_total 2\n"));
    assert!(metrics.contains("lookalike_reloads_failed_total 1\n"));
}

#[test]
fn no_request_is_lost_while_models_are_exchanged() {
    let service = Running::new(TEXT);
    let done = AtomicBool::new(false);
    let expected = service.predict(QUESTION).good()["answers"].clone();
    std::thread::scope(|scope| {
        let askers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut asked = 0;
                    while !done.load(Ordering::SeqCst) {
                        assert_eq!(service.predict(QUESTION).good()["answers"], expected);
                        asked += 1;
                    }
                    asked
                })
            })
            .collect();
        for generation in 1..=10 {
            assert_eq!(service.handle().reload().unwrap(), generation);
        }
        done.store(true, Ordering::SeqCst);
        assert!(askers.into_iter().all(|asker| asker.join().unwrap() > 0));
    });
}

#[test]
fn a_stop_answers_what_has_come() {
    let service = Running::new(TEXT);
    let (mut begun, rest) = service.begin(QUESTION);
    let idle = service.connect();
    service.handle().stop();
    begun.write_all(rest.as_bytes()).unwrap();
    assert_eq!(Answer::read(&mut begun).status, 200);
    let address = service.address;
    let log = service.stop();
    assert!(std::net::TcpStream::connect(address).is_err());
    let events: Vec<&str> = log.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["serving", "stopping", "stopped"]);
    drop(idle);
}

#[test]
fn the_log_tells_of_requests_and_not_what_they_ask() {
    let service = Running::with(&fixture(TEXT), |settings| settings.log_requests = true);
    service.predict("{\"items\": [{\"text\": \"a hidden word\"}, {\"text\": \"b\"}]}").good();
    service.get("/v1/classes/hidden/lookalikes?k=3");
    service.get("/hidden");
    service.predict("{\"hidden\": 1}");
    let log = service.stop();
    let lines: Vec<String> = log.iter().map(ToString::to_string).collect();
    assert!(lines.iter().all(|line| !line.contains("hidden")), "{lines:?}");
    let told = |place: usize| {
        let line = &log[place];
        (line["route"].as_str().unwrap(), line["status"].as_u64().unwrap(), line["code"].as_str())
    };
    assert_eq!(told(1), ("/v1/predict", 200, None));
    assert_eq!(log[1]["items"], 2);
    assert_eq!(told(2), ("/v1/classes/{name}/lookalikes", 404, Some("unknown_class")));
    assert_eq!(told(3), ("other", 404, Some("not_found")));
    assert_eq!(told(4), ("/v1/predict", 422, Some("invalid_field")));
    assert!(log[1]["ms"].as_f64().unwrap() > 0.0 && log[1]["time"].as_str().unwrap().ends_with('Z'));
}
