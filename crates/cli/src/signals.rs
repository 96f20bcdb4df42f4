//! Ctrl-C: the first finishes the batch, the second ends at once.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::INTERRUPTED;

static INTERRUPT: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C asks for a clean end. May be called again.
pub(crate) fn catch() {
    let handler = || {
        if INTERRUPT.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(INTERRUPTED));
        }
        eprintln!("\nlookalike: finishing this batch; press Ctrl-C again to end at once");
    };
    // An error means a handler is installed already.
    let _ = ctrlc::set_handler(handler);
}

/// Whether the user asked to end.
pub(crate) fn interrupted() -> bool {
    INTERRUPT.load(Ordering::SeqCst)
}
