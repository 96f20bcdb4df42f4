//! Several processes that `mpirun` started to train one model together.
//!
//! Whoever fails ends all: the others would wait for it for ever. They print what is
//! wrong with the number of their rank.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lookalike::collective::{Alone, Collective};

use crate::arguments::Command;
use crate::exit::{self, usage};

/// How long a rank with an error waits for the first one, which may have the same.
const FIRST_SPEAKS: Duration = Duration::from_secs(1);

/// Seconds after which a rank that says nothing is lost, where nothing else is said.
pub(crate) const DEFAULT_SILENCE: u64 = 120;

static RANKS: OnceLock<Arc<dyn Collective>> = OnceLock::new();

/// All ranks; this process alone if nobody started several.
pub(crate) fn all() -> Arc<dyn Collective> {
    RANKS.get().cloned().unwrap_or_else(|| Arc::new(Alone))
}

/// Whether this rank speaks to the user and writes files for all.
pub(crate) fn is_first() -> bool {
    all().rank() == 0
}

/// Threads for this rank where nothing is said: the machine's, shared by the ranks that
/// run on it; 0, for all of them, if there are no others.
pub(crate) fn threads() -> usize {
    let here = number_of(&["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"]).unwrap_or(1);
    if all().size() == 1 || here <= 1 {
        return 0;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / here).max(1)
}

/// How many processes a launcher says it has started.
fn launched() -> Option<usize> {
    number_of(&["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
}

fn number_of(variables: &[&str]) -> Option<usize> {
    variables.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// The ranks while the program runs.
pub(crate) struct Session {
    #[cfg(feature = "mpi")]
    mpi: Option<lookalike_mpi::Session>,
}

/// Joins the other ranks, if there are any, for a command that shares its work among them.
pub(crate) fn join(command: &Command) -> anyhow::Result<Session> {
    let others = launched().filter(|&size| size > 1);
    let silence_max = match command {
        Command::Train(arguments) => arguments.rank_timeout,
        _ => DEFAULT_SILENCE,
    };
    let is_shared = matches!(command, Command::Train(_) | Command::Evaluate(_) | Command::Predict(_));
    if let (Some(size), false) = (others, is_shared) {
        return Err(usage(format!(
            "{size} processes were started, and only `train`, `evaluate` and `predict` share their work among \
             several: start one"
        )));
    }
    start(others, Duration::from_secs(silence_max))
}

#[cfg(not(feature = "mpi"))]
fn start(others: Option<usize>, _: Duration) -> anyhow::Result<Session> {
    match others {
        None => Ok(Session {}),
        Some(size) => Err(usage(format!(
            "{size} processes were started, but this program was built without MPI and each would train by \
             itself: build it with `cargo build --release --features mpi`"
        ))),
    }
}

#[cfg(feature = "mpi")]
fn start(others: Option<usize>, silence_max: Duration) -> anyhow::Result<Session> {
    if others.is_none() {
        return Ok(Session { mpi: None });
    }
    let mpi = lookalike_mpi::Session::start(silence_max, end_without)?;
    let _ = RANKS.set(mpi.collective());
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        lookalike_mpi::Session::abort(exit::PANICKED);
    }));
    Ok(Session { mpi: Some(mpi) })
}

/// Ends all ranks because some are lost.
#[cfg(feature = "mpi")]
fn end_without(lost: &[usize], silence: Duration, is_speaker: bool) {
    if is_speaker {
        let (ranks, verb) = match lost {
            [one] => (format!("rank {one}"), "is"),
            many => (format!("ranks {many:?}"), "are"),
        };
        crate::output::inform!(
            "error: nothing was heard of {ranks} for {} seconds (--rank-timeout): {ranks} {verb} stopped, or the \
             machine or network is gone; all ranks end, and the last checkpoint is as it was",
            silence.as_secs()
        );
    }
    lookalike_mpi::Session::abort(exit::FAILED);
}

impl Session {
    /// Tells of an error and ends, all ranks together.
    pub(crate) fn fail(self, error: &anyhow::Error) -> ExitCode {
        if !is_first() {
            std::thread::sleep(FIRST_SPEAKS);
        }
        let code = exit::report(error);
        #[cfg(feature = "mpi")]
        if self.mpi.is_some() {
            lookalike_mpi::Session::abort(code);
        }
        ExitCode::from(code)
    }
}
