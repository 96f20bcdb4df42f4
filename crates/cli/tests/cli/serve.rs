//! `serve` and `predict --server`: two programs that talk.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use crate::support::Folder;

/// A running service; killed if a test fails before it is stopped.
struct Service {
    child: Child,
    url: String,
}

impl Service {
    fn new(folder: &Folder, line: &str) -> Self {
        let mut command = folder.command(&format!("serve {line} --listen 127.0.0.1:0 --max-wait 60000"));
        command.env_remove("LOOKALIKE_TOKEN").stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned() }
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// The body of what is there.
    fn get(&self, path: &str) -> String {
        let mut stream =
            TcpStream::connect(self.url.trim_start_matches("http://").trim_end_matches('/')).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: t\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Asks it to end, and gives its exit code and its log.
    #[cfg(unix)]
    fn stop(mut self) -> (Option<i32>, String) {
        self.signal(rustix::process::Signal::TERM);
        let code = self.child.wait().unwrap().code();
        let mut log = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut log).unwrap();
        (code, log)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(unix)]
#[test]
fn answers_elsewhere_are_those_from_here() {
    let folder = Folder::with_name_model();
    folder.write("new.txt", "Muenchen\nPrag\n\nWenen\n").write("some.txt", "Tokyo\nPrague\n");
    let service = Service::new(&folder, "model --max-items 2");
    for flags in
        ["", "--top-k 2 --format jsonl --probabilities", "--only some.txt --threshold -100", "--search fast"]
    {
        let here = folder.succeed(&format!("predict model new.txt {flags}")).out;
        let there = folder.succeed(&format!("predict --server {} new.txt {flags}", service.url)).out;
        assert_eq!(here, there, "{flags}");
        assert_eq!(here.lines().count(), 4);
    }
    let refusal = folder.refuse(&format!("predict --server {} new.txt --top-k 1001", service.url));
    assert!(refusal.contains("k: found 1001"), "{refusal}");
    let (code, log) = service.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("\"event\":\"stopped\"") && !log.contains("Prag"), "{log}");
}

#[cfg(unix)]
#[test]
fn rows_of_numbers_go_to_a_service_too() {
    let folder = Folder::with_number_model();
    folder.write("t0k", "s3cret\n");
    let service = Service::new(&folder, "model --token-file t0k");
    let here = folder.succeed("predict model made/test.txt").out;
    let line = format!("predict --server {} made/test.txt", service.url);
    let mut command = folder.command(&line);
    let there = command.env("LOOKALIKE_TOKEN", "s3cret").output().unwrap();
    assert_eq!(String::from_utf8(there.stdout).unwrap(), here);
    let refusal = folder.refuse(&line);
    assert!(refusal.contains("401") && refusal.contains("token"), "{refusal}");
}

#[cfg(unix)]
#[test]
fn a_hangup_loads_the_model_anew() {
    let folder = Folder::with_number_model();
    let service = Service::new(&folder, "model");
    assert!(service.get("/v1/model").contains("\"generation\":0"));
    service.signal(rustix::process::Signal::HUP);
    // The test fails by its own end if this never comes.
    while !service.get("/v1/model").contains("\"generation\":1") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::fs::remove_file(folder.path("model/config.json")).unwrap();
    service.signal(rustix::process::Signal::HUP);
    while !service.get("/metrics").contains("lookalike_reloads_failed_total 1\n") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(service.get("/v1/model").contains("\"generation\":1"));
    let (code, log) = service.stop();
    assert_eq!(code, Some(0));
    assert!(log.contains("\"event\":\"reload_failed\"") && log.contains("config.json"), "{log}");
}

#[test]
fn bad_starts_are_refused() {
    let folder = Folder::with_number_model();
    folder.write("empty", "");
    for (line, words) in [
        ("serve nowhere --listen 127.0.0.1:0", "nowhere"),
        ("serve model --listen 0.0.0.0:0", "--public"),
        ("serve model --listen 127.0.0.1:0 --token-file empty", "token"),
        ("serve model --listen 127.0.0.1:0 --timeout 0", "--timeout"),
        ("serve model --listen 127.0.0.1:0 --gather 4000000", "--gather"),
        ("predict --server 127.0.0.1:1 made/test.txt", "http://"),
        ("predict --server https://localhost made/test.txt", "TLS"),
    ] {
        let message = folder.refuse(line);
        assert!(message.contains(words), "{line}: {message}");
    }
    assert_eq!(folder.run("predict --server http://127.0.0.1:9 made/test.txt").code, Some(1));
}
