//! The threads that do the work.
//!
//! One pool is kept between calls, for the last number of threads asked for. A
//! child made by `fork` inherits the pool's memory but none of its threads, and
//! would wait for them for ever; so the pool remembers its process, and another
//! process builds its own.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

struct Owned {
    process: u32,
    threads: usize,
    pool: Arc<ThreadPool>,
}

static POOL: Mutex<Option<Owned>> = Mutex::new(None);

/// A pool of `threads` threads (all cores if not said), made by this process.
///
/// Asks for the `Python` token because `fork` is called with the interpreter's
/// lock held: whoever holds it knows that no other thread is in here.
pub(crate) fn pool(_: Python<'_>, threads: Option<usize>) -> PyResult<Arc<ThreadPool>> {
    if threads == Some(0) {
        return Err(PyValueError::new_err("threads is 0, but must be at least 1, or None for all cores"));
    }
    let threads = threads.unwrap_or(0);
    let process = std::process::id();
    let mut slot = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(owned) = &*slot
        && owned.process == process
        && owned.threads == threads
    {
        return Ok(Arc::clone(&owned.pool));
    }
    let built = ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = Arc::new(built.map_err(|error| {
        pyo3::exceptions::PyRuntimeError::new_err(format!("cannot start threads: {error}"))
    })?);
    let old = slot.replace(Owned { process, threads, pool: Arc::clone(&pool) });
    if let Some(old) = old
        && old.process != process
    {
        // Ending a pool talks to its threads, and these are in the parent.
        mem::forget(old);
    }
    Ok(pool)
}
