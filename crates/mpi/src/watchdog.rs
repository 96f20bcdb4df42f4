//! Who is no longer there? A thread of each rank tells all others every second that it
//! lives, and listens to them.
//!
//! A rank that is killed is noticed by whoever started it. One that is stopped, or whose
//! machine or network is gone without a word, would be waited for as long as the network is
//! patient. Here it is named after a time that is known before. A rank that computes for
//! long is not meant: its thread goes on telling.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mpi::Tag;
use mpi::topology::{Communicator, SimpleCommunicator};
use mpi::traits::{Destination, Source};

/// How often ranks tell each other.
const PERIOD: Duration = Duration::from_secs(1);
/// Nothing else is sent from one rank to another: all else is collective.
const TAG: Tag = 77;
const ALIVE: u8 = 1;
const LEAVING: u8 = 0;
/// How long the others wait before they end without a word.
const FIRST_SPEAKS: Duration = Duration::from_secs(2);

/// What is done about ranks that are lost: those, and how long nothing was heard of them.
pub type OnLost = fn(ranks: &[usize], silence: Duration, is_speaker: bool);

/// The thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// MPI must allow calls from several threads at once.
    pub(crate) fn start(limit: Duration, on_lost: OnLost) -> std::io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let watch = move || Watch::new(limit, on_lost).run(&ends);
        let thread = std::thread::Builder::new().name("ranks".into()).spawn(watch)?;
        Ok(Self { is_over, thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

struct Watch {
    limit: Duration,
    on_lost: OnLost,
    own: usize,
    /// When each rank was last heard of; none if it has left.
    heard: Vec<Option<Instant>>,
}

impl Watch {
    fn new(limit: Duration, on_lost: OnLost) -> Self {
        let world = SimpleCommunicator::world();
        let heard = vec![Some(Instant::now()); world.size() as usize];
        Self { limit, on_lost, own: world.rank() as usize, heard }
    }

    fn run(&mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            self.tell(ALIVE);
            std::thread::park_timeout(PERIOD);
            self.listen();
            self.judge();
        }
        self.tell(LEAVING);
    }

    fn tell(&self, word: u8) {
        let world = SimpleCommunicator::world();
        for rank in (0..self.heard.len()).filter(|&rank| rank != self.own && self.heard[rank].is_some()) {
            world.process_at_rank(rank as i32).send_with_tag(&word, TAG);
        }
    }

    fn listen(&mut self) {
        let world = SimpleCommunicator::world();
        while let Some((message, status)) = world.any_process().immediate_matched_probe_with_tag(TAG) {
            let (word, _) = message.matched_receive::<u8>();
            self.heard[status.source_rank() as usize] = (word == ALIVE).then(Instant::now);
        }
        self.heard[self.own] = Some(Instant::now());
    }

    fn judge(&self) {
        let silence = |heard: &Option<Instant>| heard.map_or(Duration::ZERO, |heard| heard.elapsed());
        let is_lost = |rank: &usize| silence(&self.heard[*rank]) > self.limit;
        let lost: Vec<usize> = (0..self.heard.len()).filter(is_lost).collect();
        if let Some(&first) = lost.first() {
            // All notice it; the first that is there speaks.
            let speaker = (0..).find(|rank| !lost.contains(rank));
            let is_speaker = speaker == Some(self.own);
            if !is_speaker {
                std::thread::sleep(FIRST_SPEAKS);
            }
            (self.on_lost)(&lost, silence(&self.heard[first]), is_speaker);
        }
    }
}
