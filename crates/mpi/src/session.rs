//! From `MPI_Init` to `MPI_Finalize`.

use std::sync::Arc;

use lookalike::collective::Collective;
use mpi::Threading;
use mpi::environment::Universe;
use mpi::topology::{Communicator, SimpleCommunicator};

use super::World;

/// MPI can't be used.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum StartError {
    /// It was started before.
    #[error("MPI is running already")]
    Running,
    /// The thread that trains is not the one that started MPI.
    #[error(
        "this MPI library can't be called from another thread than the first (it lacks MPI_THREAD_SERIALIZED)"
    )]
    Threads,
}

/// MPI from its start to its end: dropped, it waits for all ranks to come to their end.
pub struct Session {
    _universe: Universe,
    world: Arc<World>,
}

impl Session {
    /// Starts MPI in this process.
    pub fn start() -> Result<Self, StartError> {
        let (universe, threading) =
            mpi::initialize_with_threading(Threading::Serialized).ok_or(StartError::Running)?;
        if threading < Threading::Serialized {
            return Err(StartError::Threads);
        }
        Ok(Self { _universe: universe, world: Arc::new(World::new()) })
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
