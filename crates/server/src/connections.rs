//! Connections: how many, for how long, and how they end.
//!
//! A client that sends no request, or its head too slowly, or takes no answer, is let
//! go after a while. When all places are taken, a newcomer gets the place of the
//! connection that has been idle for longest; only if every one is busy it is refused.
//! So any number of idle connections keeps nobody out.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

use crate::Shared;

/// A head with more bytes is refused.
const HEAD_BYTES: usize = 64 << 10;
/// What a connection is told for which there is no place.
const REFUSAL: &str =
    "{\"error\":{\"code\":\"busy\",\"message\":\"all connections are taken; ask again in a moment\"}}";

/// Takes connections until `stop` is true, then waits for answers on their way.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    shared: Shared,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Places::default());
    let mut open = JoinSet::new();
    let limits = shared.settings.clients;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|&stop| stop) => break,
        };
        while open.try_join_next().is_some() {}
        let stream = match accepted {
            Ok((stream, _)) => stream,
            // Too many open files, or a client that is gone already.
            Err(_) => {
                sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let Some(place) = places.take(limits.connections, &shared) else {
            shared.metrics.connections_refused.fetch_add(1, Ordering::Relaxed);
            open.spawn(refuse(stream));
            continue;
        };
        // Answers are whole when they are written: nothing to wait for.
        let _ = stream.set_nodelay(true);
        open.spawn(converse(stream, router.clone(), place, shared.clone(), stop.clone()));
    }
    drop(listener);
    let _ = timeout(limits.grace, async { while open.join_next().await.is_some() {} }).await;
}

async fn refuse(mut stream: TcpStream) {
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{REFUSAL}",
        REFUSAL.len()
    );
    let talk = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // What was asked is taken and thrown away: closing on it would take the answer back.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    let _ = timeout(Duration::from_secs(1), talk).await;
}

/// Serves one connection to its end.
async fn converse(
    stream: TcpStream,
    router: Router,
    place: Place,
    shared: Shared,
    mut stop: watch::Receiver<bool>,
) {
    let limits = shared.settings.clients;
    let slot = place.slot.clone();
    let service = TowerToHyperService::new(router);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (service, slot) = (service.clone(), slot.clone());
        async move {
            slot.begin();
            let response = hyper::service::Service::call(&service, request.map(Body::new)).await;
            slot.end();
            Ok::<_, Infallible>(match response {
                Ok(response) => response,
                Err(never) => match never {},
            })
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Impatient::new(stream, limits.stalled)), service);
    let mut connection = pin!(connection);
    let mut stopping = false;
    loop {
        tokio::select! {
            // An error is the client's way of going away.
            _ = connection.as_mut() => break,
            () = place.slot.evicted.notified() => break,
            _ = stop.wait_for(|&stop| stop), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The places of open connections.
#[derive(Default)]
struct Places {
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    slots: BTreeMap<u64, Arc<Slot>>,
    next: u64,
}

/// A connection's place, until it is dropped.
struct Place {
    number: u64,
    slot: Arc<Slot>,
    places: Arc<Places>,
    shared: Shared,
}

/// What others may know of a connection.
struct Slot {
    /// Since when it is idle; none while a request is answered.
    idle_since: Mutex<Option<Instant>>,
    evicted: Notify,
}

impl Slot {
    fn begin(&self) {
        *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn end(&self) {
        *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn idle_since(&self) -> Option<Instant> {
        *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    /// A free place, or that of the longest idle connection; none if all are busy.
    fn take(self: &Arc<Self>, limit: usize, shared: &Shared) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.slots.len() >= limit {
            let idle = taken.slots.iter().filter_map(|(&number, slot)| Some((slot.idle_since()?, number)));
            let (_, longest) = idle.min()?;
            if let Some(slot) = taken.slots.remove(&longest) {
                slot.evicted.notify_one();
                shared.metrics.connections_evicted.fetch_add(1, Ordering::Relaxed);
            }
        }
        let slot = Arc::new(Slot { idle_since: Mutex::new(Some(Instant::now())), evicted: Notify::new() });
        let number = taken.next;
        taken.next += 1;
        taken.slots.insert(number, slot.clone());
        shared.metrics.connections.fetch_add(1, Ordering::Relaxed);
        Some(Place { number, slot, places: self.clone(), shared: shared.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken.lock().unwrap_or_else(PoisonError::into_inner).slots.remove(&self.number);
        self.shared.metrics.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that fails when the other side takes nothing for too long.
struct Impatient {
    stream: TcpStream,
    patience: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, patience, waiting: None }
    }

    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<std::io::Result<T>>,
    ) -> Poll<std::io::Result<T>> {
        if result.is_ready() {
            self.waiting = None;
            return result;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(std::io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.watch(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
