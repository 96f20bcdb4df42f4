//! What is bounded: bodies, times, connections, the queue.

use std::io::{Read, Write};
use std::time::Duration;

use crate::support::{Answer, Running, TEXT, fixture};

const JSON: &str = "Content-Type: application/json\r\n";

#[test]
fn a_huge_body_is_not_read() {
    let service = Running::new(TEXT);
    let mut stream = service.connect();
    let head = format!("POST /v1/predict HTTP/1.1\r\nHost: t\r\n{JSON}Content-Length: 9000000000\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // Not a byte of it is sent, and the answer is there.
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 413");
    // One that is sent all the same; small enough to be on its way before the answer is.
    let service = Running::with(&fixture(TEXT), |settings| settings.limits.body_bytes = 5000);
    let body = format!("{{\"text\": \"{}\"}}", "a ".repeat(3000));
    assert_eq!(service.predict(&body).error(), (413, "body_too_large".into()));
}

#[test]
fn a_huge_body_without_a_length_is_cut_off() {
    let service = Running::with(&fixture(TEXT), |settings| settings.limits.body_bytes = 5000);
    let mut stream = service.connect();
    let head = format!(
        "POST /v1/predict HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("400\r\n{}\r\n", " ".repeat(1024));
    for _ in 0..8 {
        let _ = stream.write_all(chunk.as_bytes());
    }
    assert_eq!(Answer::read(&mut stream).error(), (413, "body_too_large".into()));
}

#[test]
fn a_body_that_does_not_come_is_given_up() {
    let service =
        Running::with(&fixture(TEXT), |settings| settings.clients.request = Duration::from_millis(50));
    let mut stream = service.connect();
    let head = format!("POST /v1/predict HTTP/1.1\r\nHost: t\r\n{JSON}Content-Length: 100\r\n\r\n{{");
    stream.write_all(head.as_bytes()).unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 408");
}

#[test]
fn a_head_that_does_not_come_is_given_up() {
    let service = Running::with(&fixture(TEXT), |settings| settings.clients.idle = Duration::from_millis(50));
    for beginning in ["", "GET /healthz HTTP/1.1\r\nHost:"] {
        let mut stream = service.connect();
        stream.write_all(beginning.as_bytes()).unwrap();
        let mut rest = Vec::new();
        // Ends although nothing was asked: otherwise this waits for a minute and fails.
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{rest:?}");
    }
}

#[test]
fn idle_connections_keep_nobody_out() {
    let service = Running::with(&fixture(TEXT), |settings| settings.clients.connections = 4);
    let idle: Vec<_> = (0..100).map(|_| service.connect()).collect();
    for _ in 0..10 {
        assert_eq!(service.predict("{\"text\": \"a\"}").status, 200);
    }
    let metrics = service.get("/metrics").body;
    let evicted =
        metrics.lines().find(|line| line.starts_with("lookalike_connections_evicted_total")).unwrap();
    assert!(evicted.rsplit(' ').next().unwrap().parse::<u32>().unwrap() >= 96, "{evicted}");
    drop(idle);
}

#[test]
fn busy_connections_are_left_alone() {
    let service = Running::with(&fixture(TEXT), |settings| settings.clients.connections = 2);
    let busy = [service.begin("{\"text\": \"Wien\"}"), service.begin("{\"text\": \"Prag\"}")];
    let refused = service.get("/healthz");
    assert_eq!((refused.error(), refused.header("retry-after")), ((503, "busy".into()), Some("1")));
    assert_eq!(refused.header("content-length"), Some(refused.body.len().to_string().as_str()));
    for (mut stream, rest) in busy {
        stream.write_all(rest.as_bytes()).unwrap();
        assert_eq!(Answer::read(&mut stream).status, 200);
    }
    // A place is free again as soon as its connection has ended.
    while service.get("/healthz").status != 200 {}
}

#[test]
fn too_much_at_once_is_turned_away() {
    let full = Running::with(&fixture(TEXT), |settings| settings.queue.requests = 0);
    let answer = full.predict("{\"text\": \"a\"}");
    assert_eq!((answer.error(), answer.header("retry-after")), ((429, "queue_full".into()), Some("1")));
    let no_room = Running::with(&fixture(TEXT), |settings| settings.queue.bytes = 4096);
    let answer = no_room.predict(format!("{{\"text\": \"{}\"}}", "a".repeat(5000)));
    assert_eq!((answer.error(), answer.header("retry-after")), ((503, "busy".into()), Some("1")));
    // Room is given back.
    for _ in 0..5 {
        assert_eq!(no_room.predict(format!("{{\"text\": \"{}\"}}", "a".repeat(3000))).status, 200);
    }
}

#[test]
fn many_items_and_classes_have_limits() {
    let service = Running::with(&fixture(TEXT), |settings| {
        settings.limits.items = 3;
        settings.limits.k = 8;
        settings.limits.classes = 12;
    });
    let ask = |items: usize, k: usize| {
        let items = vec!["{\"text\": \"a\"}"; items].join(",");
        service.predict(format!("{{\"items\": [{items}], \"k\": {k}}}"))
    };
    assert_eq!(ask(3, 4).good()["answers"].as_array().unwrap().len(), 3);
    assert_eq!(ask(4, 1).error(), (422, "too_many_items".into()));
    assert_eq!(ask(1, 9).error(), (422, "k_out_of_range".into()));
    assert_eq!(ask(3, 5).error(), (422, "too_many_classes".into()));
}
