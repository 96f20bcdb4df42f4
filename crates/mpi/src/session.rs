//! From `MPI_Init` to `MPI_Finalize`.

use std::sync::Arc;
use std::time::Duration;

use lookalike::collective::Collective;
use mpi::Threading;
use mpi::environment::Universe;
use mpi::topology::{Communicator, SimpleCommunicator};

use super::World;
use super::watchdog::{OnLost, Watchdog};

/// MPI can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It was started before.
    #[error("MPI is running already")]
    Running,
    /// The thread that trains is not the one that started MPI.
    #[error(
        "this MPI library can't be called from another thread than the first (it lacks MPI_THREAD_SERIALIZED)"
    )]
    Threads,
    /// The watchdog can't be started.
    #[error("cannot start a thread: {0}")]
    Watchdog(#[from] std::io::Error),
}

/// MPI from its start to its end: dropped, it waits for all ranks to come to their end.
pub struct Session {
    // Before MPI ends.
    _watchdog: Option<Watchdog>,
    _universe: Universe,
    world: Arc<World>,
}

impl Session {
    /// Starts MPI in this process. A rank of which nothing is heard for so long is lost;
    /// an MPI library that can't be called by several threads leaves that to the network.
    pub fn start(silence_max: Duration, on_lost: OnLost) -> Result<Self, StartError> {
        let (universe, threading) =
            mpi::initialize_with_threading(Threading::Multiple).ok_or(StartError::Running)?;
        if threading < Threading::Serialized {
            return Err(StartError::Threads);
        }
        let watchdog = (threading == Threading::Multiple).then(|| Watchdog::start(silence_max, on_lost));
        Ok(Self { _watchdog: watchdog.transpose()?, _universe: universe, world: Arc::new(World::new()) })
    }

    /// All processes that were started together.
    pub fn collective(&self) -> Arc<dyn Collective> {
        self.world.clone()
    }

    /// Ends all ranks at once: whoever waits for this one would wait for ever.
    pub fn abort(code: u8) -> ! {
        SimpleCommunicator::world().abort(i32::from(code))
    }
}
