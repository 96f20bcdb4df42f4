//! A model over HTTP.
//!
//! ```text
//! connection ── request ── question ── queue ── batch ── answer ── response
//! connections   api, guard  question   queue             answer    api
//! ```
//!
//! Two sides share a queue. Tokio reads and writes connections and computes nothing;
//! one thread takes batches from the queue and a thread pool of its own answers them
//! with the model of the moment (`served`). Whatever is unbounded outside (clients,
//! bodies, waiting) has a bound here, in `settings`.
//!
//! Architecture invariant: bad input is a 4xx with a stable code. A 5xx is an overload
//! (503) or a mistake in this repository (500).
//!
//! Architecture invariant: nothing of what clients ask is logged.
#![forbid(unsafe_code)]

/// The example of the crate's front page is run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct FrontPage;

mod answer;
mod api;
mod connections;
mod error;
mod guard;
mod log;
mod metrics;
mod openapi;
mod page;
mod question;
mod queue;
mod served;
mod settings;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::json;
use thiserror::Error;
use tokio::sync::{Semaphore, watch};

pub use log::Log;
pub use served::LoadError;
pub use settings::{ClientLimits, Limits, QueueSettings, Settings};

use metrics::Metrics;
use queue::Queue;
use served::Models;

/// Threads that read and write connections.
const IO_THREADS: usize = 2;

/// What all requests share.
pub(crate) struct SharedState {
    settings: Settings,
    models: Models,
    queue: Queue,
    /// Room for bodies, in units of `api::ROOM_UNIT` bytes.
    room: Arc<Semaphore>,
    metrics: Metrics,
    log: Log,
    openapi: String,
    stop: watch::Sender<bool>,
}

type Shared = Arc<SharedState>;

impl SharedState {
    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }
}

/// Why a service does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// No good model.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The system gives no threads or no network.
    #[error("cannot start the service: {0}")]
    System(#[from] std::io::Error),
}

/// A service that runs until it is stopped.
pub struct Server {
    address: SocketAddr,
    shared: Shared,
    connections: JoinHandle<()>,
    worker: JoinHandle<()>,
}

/// Stops and reloads a service from any thread.
#[derive(Clone)]
pub struct Handle(Shared);

impl Server {
    /// Loads a model and serves it to whoever connects to `listener`.
    pub fn start(
        listener: TcpListener,
        model: &Path,
        settings: Settings,
        log: Log,
    ) -> Result<Self, StartError> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(settings.threads)
            .thread_name(|number| format!("answer-{number}"))
            .build()
            .map_err(LoadError::from)?;
        let models = Models::load(model, (settings.cpu, settings.storage), &pool)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(IO_THREADS)
            .thread_name("connections")
            .enable_io()
            .enable_time()
            .build()?;
        let shared = Arc::new(SharedState {
            queue: Queue::new(settings.queue),
            room: Arc::new(Semaphore::new(settings.queue.bytes / api::ROOM_UNIT)),
            metrics: Metrics::new(),
            openapi: openapi::document(&settings),
            stop: watch::Sender::new(false),
            settings,
            models,
            log,
        });
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let worker = {
            let shared = shared.clone();
            let work = move || shared.queue.work(&shared.models, &pool, &shared.metrics);
            std::thread::Builder::new().name("batches".into()).spawn(work)?
        };
        let connections = {
            let (shared, stop) = (shared.clone(), shared.stop.subscribe());
            let serve = move || {
                let router = api::router(shared.clone());
                runtime.block_on(connections::serve(listener, router, shared, stop));
            };
            std::thread::Builder::new().name("listener".into()).spawn(serve)?
        };
        let loaded = shared.models.current();
        let fields = json!({
            "address": address.to_string(), "model": loaded.card["name"], "classes": loaded.card["classes"],
            "token": shared.settings.token.is_some(),
        });
        shared.log.event("info", "serving", fields);
        Ok(Self { address, shared, connections, worker })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Something to stop and reload it by.
    pub fn handle(&self) -> Handle {
        Handle(self.shared.clone())
    }

    /// Waits until it was stopped and all answers on their way are given.
    pub fn wait(self) {
        // A thread that panicked has ended as well.
        let _ = self.connections.join();
        self.shared.queue.close();
        let _ = self.worker.join();
        self.shared.log.event("info", "stopped", json!({}));
        self.shared.log.flush();
    }
}

impl Handle {
    /// No further connection is taken; requests that have come are answered.
    pub fn stop(&self) {
        if !self.0.stop.send_replace(true) {
            self.0.log.event("info", "stopping", json!({}));
        }
    }

    /// Loads the model's directory anew. If it is good it answers from now on,
    /// otherwise the model before stays. Gives how many were served before it.
    pub fn reload(&self) -> Result<u64, LoadError> {
        self.0.reload()
    }
}
