//! `lookalike serve`

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use lookalike_server::{Handle, LoadError, Log, Server, Settings, StartError};

use super::MachineArguments;
use super::search::StorageArguments;
use crate::exit::usage;
use crate::output::inform;

/// Where the token is if no flag gives it.
pub(crate) const TOKEN_VARIABLE: &str = "LOOKALIKE_TOKEN";

/// Answers questions over HTTP, with a page for people at /.
///
/// Prints its address, then works until SIGTERM or Ctrl-C; requests that have come are
/// answered first, a second signal ends at once. SIGHUP loads the model's directory
/// anew without losing a request: a bad model is not taken and the old one stays.
/// Standard error gets a JSON object a line, without what was asked.
#[derive(Args)]
#[command(after_help = "Examples:
  lookalike serve model
  curl -s localhost:7300/v1/predict -H 'Content-Type: application/json' -d '{\"text\": \"Muenchen\"}'
  lookalike serve model --listen 127.0.0.1:0 --log-requests
  LOOKALIKE_TOKEN=… lookalike serve model --listen 0.0.0.0:7300 --public

Without a token everybody who can connect may ask, so without --public only this
machine can. There is no TLS: put a proxy that has it before a public service.
GET /openapi.json describes all there is to ask.")]
pub(crate) struct ServeArguments {
    /// The model's directory
    model: PathBuf,
    /// Where to listen; port 0 chooses a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7300")]
    listen: SocketAddr,
    /// Listen on an address that other machines can reach
    #[arg(long)]
    public: bool,
    /// Answer only requests with `Authorization: Bearer TOKEN`, health apart. Other users of
    /// this machine can see a flag: --token-file and the variable LOOKALIKE_TOKEN are safer
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<String>,
    /// Read the token from the first line of a file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Classes that an answer may have
    #[arg(long, value_name = "K", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    max_k: u32,
    /// Examples that a request may have
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    max_items: u32,
    /// Kilobytes that a request's body may have
    #[arg(long, value_name = "KB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    max_body: u32,
    /// Connections that may be open
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Milliseconds that a request may wait for its turn; who would wait longer is turned
    /// away with 429 at once
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    max_wait: u32,
    /// Milliseconds that a batch waits for company. With 0 a request that is alone starts at
    /// once, and batches are what came while the one before was answered
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    gather: f64,
    /// Seconds that a request may take in all, the reading of its body included
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    timeout: f64,
    #[command(flatten)]
    storage: StorageArguments,
    /// Log every request, without what was asked
    #[arg(long)]
    log_requests: bool,
    #[command(flatten)]
    machine: MachineArguments,
}

pub(crate) fn run(arguments: ServeArguments) -> anyhow::Result<()> {
    let settings = settings(&arguments)?;
    let address = arguments.listen;
    if !arguments.public && !address.ip().is_loopback() {
        return Err(usage(format!("other machines can reach {address}: say --public if that is meant")));
    }
    if arguments.public && settings.token.is_none() {
        inform!("lookalike: without a token everybody who can reach {address} may ask");
    }
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    let server = Server::start(listener, &arguments.model, settings, Log::new(std::io::stderr()));
    let server = server.map_err(|error| match error {
        // As other commands tell of it, with their exit codes.
        StartError::Load(LoadError::Model(error)) => anyhow::Error::from(error),
        error => anyhow::Error::from(error),
    })?;
    obey_signals(server.handle())?;
    let mut out = std::io::stdout().lock();
    // A script that reads the address need not wait; one that reads nothing harms nobody.
    let _ = writeln!(out, "http://{}/", server.address()).and_then(|()| out.flush());
    drop(out);
    server.wait();
    Ok(())
}

fn settings(arguments: &ServeArguments) -> anyhow::Result<Settings> {
    let mut settings = Settings::new(arguments.machine.cpu()?);
    settings.threads = arguments.machine.threads.map_or(0, usize::from);
    settings.storage = arguments.storage.storage();
    settings.token = token(arguments)?;
    settings.limits.k = arguments.max_k as usize;
    settings.limits.items = arguments.max_items as usize;
    settings.limits.body_bytes = arguments.max_body as usize * 1024;
    settings.limits.classes = settings.limits.classes.max(settings.limits.k).max(settings.limits.items);
    settings.queue.wait_max = Duration::from_millis(arguments.max_wait.into());
    settings.queue.gather = time("--gather", arguments.gather / 1e3, 0.0)?;
    settings.clients.request = time("--timeout", arguments.timeout, 1e-3)?;
    settings.clients.connections = arguments.max_connections as usize;
    settings.log_requests = arguments.log_requests;
    Ok(settings)
}

/// A duration below an hour.
fn time(flag: &str, seconds: f64, least: f64) -> anyhow::Result<Duration> {
    const MOST: f64 = 3600.0;
    if !(least..=MOST).contains(&seconds) {
        return Err(usage(format!("{flag}: found {seconds} s, expected {least} to {MOST} s")));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn token(arguments: &ServeArguments) -> anyhow::Result<Option<String>> {
    let token = match (&arguments.token, &arguments.token_file) {
        (Some(token), _) => Some(token.clone()),
        (None, Some(path)) => Some(first_line(path)?),
        (None, None) => std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()),
    };
    let is_sendable = |token: &String| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.as_ref().is_some_and(|token| !is_sendable(token)) {
        return Err(usage("the token must be visible ASCII characters without spaces, one at least"));
    }
    Ok(token)
}

fn first_line(path: &Path) -> anyhow::Result<String> {
    let content = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(content.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(unix)]
fn obey_signals(service: Handle) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            match signal {
                // What came of it is in the log.
                SIGHUP => drop(service.reload()),
                _ if stopping => std::process::exit(i32::from(crate::exit::INTERRUPTED)),
                _ => {
                    stopping = true;
                    service.stop();
                }
            }
        }
    });
    Ok(())
}

#[cfg(not(unix))]
fn obey_signals(service: Handle) -> anyhow::Result<()> {
    crate::signals::catch();
    std::thread::spawn(move || {
        while !crate::signals::interrupted() {
            std::thread::sleep(Duration::from_millis(50));
        }
        service.stop();
    });
    Ok(())
}
