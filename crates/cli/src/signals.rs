//! Ctrl-C and other wishes to end (SIGTERM, SIGHUP): the first finishes the batch
//! and saves, the second ends at once.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::INTERRUPTED;
use crate::output::inform;
use crate::ranks;

static INTERRUPT: AtomicBool = AtomicBool::new(false);

/// From now on a signal asks for a clean end. May be called again.
pub(crate) fn catch() {
    static CAUGHT: Once = Once::new();
    CAUGHT.call_once(listen);
}

/// Whether the user asked to end.
pub(crate) fn interrupted() -> bool {
    INTERRUPT.load(Ordering::SeqCst)
}

fn asked_to_end() {
    if INTERRUPT.swap(true, Ordering::SeqCst) {
        std::process::exit(i32::from(INTERRUPTED));
    }
    // All ranks are asked; one answers.
    if ranks::is_first() {
        inform!("\nlookalike: finishing this batch; press Ctrl-C again to end at once");
    }
}

#[cfg(unix)]
fn listen() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut wanted = vec![SIGINT, SIGTERM];
    wanted.extend((!ignores_hangup()).then_some(SIGHUP));
    // Without handlers the signals end the program, as they do by themselves.
    if let Ok(mut signals) = signal_hook::iterator::Signals::new(wanted) {
        std::thread::spawn(move || signals.forever().for_each(|_| asked_to_end()));
    }
}

/// Whether the program was started by `nohup` and means to outlive its terminal.
/// Where that can't be told, hanging up is left as it is.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let signals = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    // The lowest bit is signal 1, SIGHUP.
    signals.is_none_or(|signals| signals & 1 == 1)
}

#[cfg(not(unix))]
fn listen() {
    use signal_hook::consts::SIGINT;
    let asked = std::sync::Arc::new(AtomicBool::new(false));
    if signal_hook::flag::register(SIGINT, asked.clone()).is_ok() {
        std::thread::spawn(move || {
            loop {
                if asked.swap(false, Ordering::SeqCst) {
                    asked_to_end();
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        });
    }
}
