//! Ranks that are threads of one process, who wait for each other at every call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};

use super::{Collective, sent_bytes};

/// One of several ranks in one process: for tests, which then need no MPI. Each rank
/// wants a thread pool of its own: one that waits must not hold another's thread.
#[derive(Debug)]
pub struct Threads {
    rank: usize,
    sent: AtomicU64,
    shared: Arc<Shared>,
}

/// Where ranks leave what the others come for.
#[derive(Debug)]
struct Shared {
    places: Vec<Mutex<Vec<u8>>>,
    barrier: Barrier,
}

impl Threads {
    /// So many ranks.
    pub fn new(size: usize) -> Vec<Self> {
        let places = (0..size).map(|_| Mutex::default()).collect();
        let shared = Arc::new(Shared { places, barrier: Barrier::new(size) });
        (0..size).map(|rank| Self { rank, sent: AtomicU64::new(0), shared: shared.clone() }).collect()
    }

    /// Runs `work` on so many ranks at once, each with a pool of one thread; gives what
    /// they give, in their order.
    pub fn run<R: Send>(size: usize, work: impl Fn(Arc<dyn Collective>) -> R + Sync) -> Vec<R> {
        std::thread::scope(|scope| {
            let ranks = Self::new(size).into_iter().map(|rank| {
                let work = &work;
                scope.spawn(move || {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
                    pool.expect("a thread can be started").install(|| work(Arc::new(rank)))
                })
            });
            let ranks: Vec<_> = ranks.collect();
            ranks.into_iter().map(|rank| rank.join().expect("a rank does not panic")).collect()
        })
    }

    /// Leaves `mine` for the others, then lets `take` see what rank i has left.
    fn meet(&self, mine: &[u8], mut take: impl FnMut(usize, &[u8])) {
        self.place(self.rank).extend_from_slice(mine);
        self.shared.barrier.wait();
        for rank in 0..self.size() {
            take(rank, &self.place(rank));
        }
        self.shared.barrier.wait();
        self.place(self.rank).clear();
    }

    fn place(&self, rank: usize) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.shared.places[rank].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Collective for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.places.len()
    }

    fn gather_bytes(&self, mine: &[u8], all: &mut [u8]) {
        assert!(!mine.is_empty(), "MPI calls a message of nothing an error");
        self.count(sent_bytes(self.size(), mine.len()));
        self.meet(mine, |rank, block| all[rank * mine.len()..][..mine.len()].copy_from_slice(block));
    }

    fn exchange_bytes(&self, mine: &[u8], theirs: &mut [u8]) {
        let block = mine.len() / self.size();
        self.count(sent_bytes(self.size(), block));
        self.meet(mine, |rank, all| {
            theirs[rank * block..][..block].copy_from_slice(&all[self.rank * block..][..block]);
        });
    }

    fn broadcast_bytes(&self, root: usize, bytes: &mut [u8]) {
        let is_root = self.rank == root;
        self.count(if is_root { sent_bytes(self.size(), bytes.len()) } else { 0 });
        let mine = if is_root { bytes.to_vec() } else { Vec::new() };
        self.meet(&mine, |rank, sent| {
            if rank == root {
                bytes.copy_from_slice(sent);
            }
        });
    }

    fn barrier(&self) {
        self.meet(&[], |_, _| {});
    }

    fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}
