//! All processes that were started together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lookalike::collective::{Collective, sent_bytes};
use mpi::topology::{Communicator, SimpleCommunicator};
use mpi::traits::{CommunicatorCollectives, Root};

/// The processes of `MPI_COMM_WORLD`, seen from one of them.
#[derive(Debug)]
pub struct World {
    rank: usize,
    size: usize,
    sent: AtomicU64,
    waited_ns: AtomicU64,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = SimpleCommunicator::world();
        let (sent, waited_ns) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { rank: world.rank() as usize, size: world.size() as usize, sent, waited_ns }
    }

    /// Counts what a call sends and how long it takes.
    fn call(&self, bytes: u64, work: impl FnOnce(SimpleCommunicator)) {
        let start = Instant::now();
        work(SimpleCommunicator::world());
        self.sent.fetch_add(bytes, Ordering::Relaxed);
        self.waited_ns.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Collective for World {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn gather_bytes(&self, mine: &[u8], all: &mut [u8]) {
        self.call(sent_bytes(self.size, mine.len()), |world| world.all_gather_into(mine, all));
    }

    fn exchange_bytes(&self, mine: &[u8], theirs: &mut [u8]) {
        let block = mine.len() / self.size;
        self.call(sent_bytes(self.size, block), |world| world.all_to_all_into(mine, theirs));
    }

    fn broadcast_bytes(&self, root: usize, bytes: &mut [u8]) {
        let sent = if self.rank == root { sent_bytes(self.size, bytes.len()) } else { 0 };
        self.call(sent, |world| world.process_at_rank(root as i32).broadcast_into(bytes));
    }

    fn barrier(&self) {
        self.call(0, |world| world.barrier());
    }

    fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn seconds_waited(&self) -> f64 {
        self.waited_ns.load(Ordering::Relaxed) as f64 * 1e-9
    }
}
