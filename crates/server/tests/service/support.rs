//! A service in this process, and a client that can misbehave.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lookalike_kernels::Cpu;
use lookalike_server::{Log, Server, Settings};
use serde_json::Value;

/// A model that was saved by this version of the format or an earlier one.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lookalike/tests/fixtures/models").join(name).join("model")
}

/// A copy of a fixture that may be changed.
pub(crate) fn copy_of(name: &str, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

pub(crate) const TEXT: &str = "v4-text";
pub(crate) const NUMBERS: &str = "v4-plain";
pub(crate) const EMBEDDINGS: &str = "v1-embeddings";

/// A service that is stopped at the end.
pub(crate) struct Running {
    server: Option<Server>,
    pub(crate) address: SocketAddr,
    log: Written,
}

/// What a service logged.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Running {
    pub(crate) fn new(model: &str) -> Self {
        Self::with(&fixture(model), |_| {})
    }

    pub(crate) fn with(model: &Path, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::new(Cpu::from_env().unwrap());
        settings.threads = 2;
        // A machine that runs many tests at once is slow, not overloaded.
        settings.queue.wait_max = Duration::from_secs(60);
        change(&mut settings);
        let log = Written::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::start(listener, model, settings, Log::new(log.clone())).unwrap();
        Self { address: server.address(), server: Some(server), log }
    }

    pub(crate) fn handle(&self) -> lookalike_server::Handle {
        self.server.as_ref().unwrap().handle()
    }

    /// Stops it and gives what it logged, an object a line.
    pub(crate) fn stop(mut self) -> Vec<Value> {
        self.end();
        let written = self.log.0.lock().unwrap().clone();
        let lines = String::from_utf8(written).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn end(&mut self) {
        if let Some(server) = self.server.take() {
            server.handle().stop();
            server.wait();
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", b"")
    }

    /// A connection on which a question has begun, and what is still to be sent.
    pub(crate) fn begin(&self, question: &str) -> (TcpStream, String) {
        let headers = "Content-Type: application/json\r\nExpect: 100-continue\r\n";
        let head = request("POST", "/v1/predict", headers, question.as_bytes());
        let mut stream = self.connect();
        stream.write_all(&head[..head.len() - question.len()]).unwrap();
        // The service says so when it wants to read the body.
        let mut go_on = [0; 25];
        stream.read_exact(&mut go_on).unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        (stream, question.to_owned())
    }

    /// Asks for predictions.
    pub(crate) fn predict(&self, body: impl AsRef<[u8]>) -> Answer {
        self.send("POST", "/v1/predict", "Content-Type: application/json\r\n", body.as_ref())
    }

    /// `headers` end in line ends.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(&request(method, path, headers, body)).unwrap();
        Answer::read(&mut stream)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// A request that asks for the connection to be closed.
pub(crate) fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// Reads to the end of the connection.
    pub(crate) fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        // A connection that is closed while we write ends in an error behind the answer.
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body of a good answer.
    #[track_caller]
    pub(crate) fn good(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// Status and code of an error.
    #[track_caller]
    pub(crate) fn error(&self) -> (u16, String) {
        let json = self.json();
        assert!(!json["error"]["message"].as_str().unwrap().is_empty());
        (self.status, json["error"]["code"].as_str().unwrap().to_owned())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")));
        line.map(|line| line.split_once(':').unwrap().1.trim())
    }
}
