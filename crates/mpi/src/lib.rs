//! Ranks that are processes, on one machine or many: the
//! [`Collective`](lookalike::collective::Collective) over MPI.
//!
//! Empty without the feature `link`, which needs an MPI library and libclang to build
//! (Debian: `libopenmpi-dev libclang-dev`).
//!
//! Bytes are moved by `MPI_Allgather`, `MPI_Alltoall` and `MPI_Bcast`, and
//! joined by the library, because the order in which `MPI_Allreduce` sums is left open.
#![forbid(unsafe_code)]

#[cfg(feature = "link")]
mod session;
#[cfg(feature = "link")]
mod watchdog;
#[cfg(feature = "link")]
mod world;

#[cfg(feature = "link")]
pub use session::{Session, StartError};
#[cfg(feature = "link")]
pub use watchdog::OnLost;
#[cfg(feature = "link")]
pub use world::World;
