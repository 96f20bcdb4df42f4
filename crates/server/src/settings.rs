//! What a service allows.

use std::time::Duration;

use lookalike::model::Storage;
use lookalike_kernels::Cpu;

/// How a service works and what it refuses.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The instructions that answers are computed with.
    pub cpu: Cpu,
    /// Threads that compute answers; 0 is a thread a core.
    pub threads: usize,
    /// How class vectors are kept in memory; none: as the model was trained.
    pub storage: Option<Storage>,
    /// Who knows it may ask; without one everybody may, but nobody may reload.
    pub token: Option<String>,
    /// What a request may ask for.
    pub limits: Limits,
    /// How requests wait and are gathered.
    pub queue: QueueSettings,
    /// How long clients may take, and how many there may be.
    pub clients: ClientLimits,
    /// Whether every request is logged, or only what happens to the service.
    pub log_requests: bool,
}

/// What a request may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Examples of a request.
    pub items: usize,
    /// Classes of an answer.
    pub k: usize,
    /// Classes of all answers to a request.
    pub classes: usize,
    /// Classes of all answers to a request that asks for explanations.
    pub explained: usize,
}

/// How requests wait and are gathered.
#[derive(Clone, Copy, Debug)]
pub struct QueueSettings {
    /// Examples that are answered together, unless one request has more.
    pub batch_items: usize,
    /// How long a batch waits for company. With 0 it starts as soon as the one before
    /// is done, with all that came meanwhile.
    pub gather: Duration,
    /// A request that would wait longer than this is turned away at once.
    pub wait_max: Duration,
    /// Requests that wait, whatever they ask for.
    pub requests: usize,
    /// Bytes of all request bodies that are being read, wait or are answered.
    pub bytes: usize,
}

/// How long clients may take, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Open connections. One more, and the connection that has been idle for longest
    /// is closed.
    pub connections: usize,
    /// From the beginning of a request to its answer, the reading of its body included.
    pub request: Duration,
    /// Until a request's head is there: also how long a connection may be idle.
    pub idle: Duration,
    /// How long a client may leave an answer untaken.
    pub stalled: Duration,
    /// How long a stop waits for answers that are on their way.
    pub grace: Duration,
}

impl Settings {
    /// The defaults.
    pub fn new(cpu: Cpu) -> Self {
        Self {
            cpu,
            threads: 0,
            storage: None,
            token: None,
            limits: Limits::default(),
            queue: QueueSettings::default(),
            clients: ClientLimits::default(),
            log_requests: false,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { body_bytes: 1 << 20, items: 256, k: 1000, classes: 25_600, explained: 100 }
    }
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            batch_items: 256,
            gather: Duration::ZERO,
            wait_max: Duration::from_millis(20),
            requests: 4096,
            bytes: 64 << 20,
        }
    }
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connections: 512,
            request: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            stalled: Duration::from_secs(10),
            grace: Duration::from_secs(30),
        }
    }
}
