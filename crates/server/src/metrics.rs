//! Counts for Prometheus, in its text format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of what a request may take, in seconds.
const SECONDS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Upper bounds of how many examples a batch may have.
const ITEMS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// What the service has done so far.
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(String, u16), u64>>,
    seconds: Mutex<BTreeMap<String, Histogram>>,
    batch_items: Mutex<Histogram>,
    batch_seconds: Mutex<Histogram>,
    pub(crate) connections: AtomicI64,
    pub(crate) connections_evicted: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) reloads: AtomicU64,
    pub(crate) reloads_failed: AtomicU64,
}

/// What is true at the moment and known elsewhere.
pub(crate) struct Now {
    pub(crate) queue_items: usize,
    pub(crate) generation: u64,
}

#[derive(Clone)]
struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len()], sum: 0.0, count: 0 }
    }

    fn add(&mut self, value: f64) {
        if let Some(bound) = self.bounds.iter().position(|&bound| value <= bound) {
            self.counts[bound] += 1;
        }
        self.sum += value;
        self.count += 1;
    }

    /// `labels` end in a comma, or there are none.
    fn write(&self, out: &mut String, name: &str, labels: &str) {
        let mut up_to = 0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            up_to += count;
            line(out, format_args!("{name}_bucket{{{labels}le=\"{bound}\"}} {up_to}"));
        }
        line(out, format_args!("{name}_bucket{{{labels}le=\"+Inf\"}} {}", self.count));
        let own = labels.trim_end_matches(',');
        line(out, format_args!("{name}_sum{{{own}}} {}", self.sum));
        line(out, format_args!("{name}_count{{{own}}} {}", self.count));
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            requests: Mutex::default(),
            seconds: Mutex::default(),
            batch_items: Mutex::new(Histogram::new(&ITEMS)),
            batch_seconds: Mutex::new(Histogram::new(&SECONDS)),
            connections: AtomicI64::new(0),
            connections_evicted: AtomicU64::new(0),
            connections_refused: AtomicU64::new(0),
            reloads: AtomicU64::new(0),
            reloads_failed: AtomicU64::new(0),
        }
    }

    /// A request is answered. Routes are those of the program, so there are few.
    pub(crate) fn request(&self, route: &str, status: u16, took: Duration) {
        *lock(&self.requests).entry((route.to_owned(), status)).or_default() += 1;
        let mut seconds = lock(&self.seconds);
        let histogram = seconds.entry(route.to_owned()).or_insert_with(|| Histogram::new(&SECONDS));
        histogram.add(took.as_secs_f64());
    }

    /// A batch is answered.
    pub(crate) fn batch(&self, items: usize, worked: Duration) {
        lock(&self.batch_items).add(items as f64);
        lock(&self.batch_seconds).add(worked.as_secs_f64());
    }

    /// Everything, as Prometheus reads it.
    pub(crate) fn text(&self, now: &Now) -> String {
        let mut out = String::new();
        head(&mut out, "lookalike_http_requests_total", "counter", "Requests answered, by route and status.");
        for ((route, status), count) in &*lock(&self.requests) {
            let labels = format_args!("{{route=\"{route}\",status=\"{status}\"}}");
            line(&mut out, format_args!("lookalike_http_requests_total{labels} {count}"));
        }
        let name = "lookalike_http_request_seconds";
        head(&mut out, name, "histogram", "From a request's head to its answer, by route.");
        for (route, histogram) in &*lock(&self.seconds) {
            histogram.write(&mut out, name, &format!("route=\"{route}\","));
        }
        let name = "lookalike_batch_items";
        head(&mut out, name, "histogram", "Examples answered together.");
        lock(&self.batch_items).write(&mut out, name, "");
        let name = "lookalike_batch_seconds";
        head(&mut out, name, "histogram", "Time of a batch in the thread pool.");
        lock(&self.batch_seconds).write(&mut out, name, "");
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as i64;
        let singles = [
            ("lookalike_queue_items", "gauge", "Examples that wait.", now.queue_items as i64),
            ("lookalike_connections", "gauge", "Open connections.", self.connections.load(Ordering::Relaxed)),
            (
                "lookalike_connections_evicted_total",
                "counter",
                "Idle connections closed to make room.",
                read(&self.connections_evicted),
            ),
            (
                "lookalike_connections_refused_total",
                "counter",
                "Connections refused while all others were busy.",
                read(&self.connections_refused),
            ),
            ("lookalike_reloads_total", "counter", "Models exchanged.", read(&self.reloads)),
            (
                "lookalike_reloads_failed_total",
                "counter",
                "Models that were not good enough to be exchanged.",
                read(&self.reloads_failed),
            ),
            ("lookalike_model_generation", "gauge", "Models served before this one.", now.generation as i64),
        ];
        for (name, kind, help, value) in singles {
            head(&mut out, name, kind, help);
            line(&mut out, format_args!("{name} {value}"));
        }
        if let Some(bytes) = resident_bytes() {
            head(&mut out, "process_resident_memory_bytes", "gauge", "Memory in use.");
            line(&mut out, format_args!("process_resident_memory_bytes {bytes}"));
        }
        out
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

fn line(out: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "{content}");
}

/// Where the system tells.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(kilobytes.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_histograms_as_prometheus_reads_them() {
        let metrics = Metrics::new();
        metrics.request("/v1/predict", 200, Duration::from_micros(300));
        metrics.request("/v1/predict", 200, Duration::from_millis(30));
        metrics.request("/v1/predict", 429, Duration::from_secs(60));
        metrics.batch(3, Duration::from_millis(1));
        let text = metrics.text(&Now { queue_items: 7, generation: 2 });
        for expected in [
            "# TYPE lookalike_http_requests_total counter",
            "lookalike_http_requests_total{route=\"/v1/predict\",status=\"200\"} 2",
            "lookalike_http_requests_total{route=\"/v1/predict\",status=\"429\"} 1",
            "lookalike_http_request_seconds_bucket{route=\"/v1/predict\",le=\"0.00025\"} 0",
            "lookalike_http_request_seconds_bucket{route=\"/v1/predict\",le=\"0.0005\"} 1",
            "lookalike_http_request_seconds_bucket{route=\"/v1/predict\",le=\"0.05\"} 2",
            "lookalike_http_request_seconds_bucket{route=\"/v1/predict\",le=\"10\"} 2",
            "lookalike_http_request_seconds_bucket{route=\"/v1/predict\",le=\"+Inf\"} 3",
            "lookalike_http_request_seconds_count{route=\"/v1/predict\"} 3",
            "lookalike_batch_items_bucket{le=\"2\"} 0",
            "lookalike_batch_items_bucket{le=\"4\"} 1",
            "lookalike_batch_items_sum{} 3",
            "lookalike_queue_items 7",
            "lookalike_model_generation 2",
        ] {
            assert!(text.lines().any(|line| line == expected), "{expected}\n{text}");
        }
    }
}
