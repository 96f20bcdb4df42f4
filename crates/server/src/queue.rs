//! Where requests wait, and the thread that answers them in batches.
//!
//! A batch is whatever waits when the one before is done: alone, a request starts at
//! once; under load batches grow by themselves, up to a limit. The line is bounded by
//! time, not by length: what an example has cost of late says how long the newest
//! request would wait, and if that is too long it is turned away at once. So answers
//! that are given come soon however many are asked for, and memory stays bounded.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use rayon::ThreadPool;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::answer::{Outcome, Query, answer_all};
use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::served::Models;
use crate::settings::QueueSettings;

/// How much the newest batch counts in what an example costs.
const NEWEST: f64 = 0.1;
/// A batch counts as no more than so many times what was expected: a thread that the
/// system let wait once says little about the next.
const SURPRISE_MAX: f64 = 4.0;

/// So many examples may always wait: what is slow alone is quicker in company, and only
/// a batch can show it.
const COMPANY: usize = 8;

/// A request that waits.
pub(crate) struct Job {
    pub(crate) query: Query,
    pub(crate) reply: oneshot::Sender<Reply>,
    /// Room for its body, given back when it is answered or given up.
    pub(crate) room: Option<OwnedSemaphorePermit>,
    pub(crate) arrived: Instant,
}

/// What came of it.
pub(crate) struct Reply {
    pub(crate) outcome: Outcome,
    /// From arrival to the start of its batch.
    pub(crate) waited: Duration,
    /// The batch's time.
    pub(crate) worked: Duration,
}

pub(crate) struct Queue {
    settings: QueueSettings,
    line: Mutex<Line>,
    changed: Condvar,
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    /// Examples of all of them.
    items: usize,
    /// What an example costs in seconds, a running mean.
    item_seconds: f64,
    closed: bool,
}

impl Queue {
    pub(crate) fn new(settings: QueueSettings) -> Self {
        Self { settings, line: Mutex::default(), changed: Condvar::new() }
    }

    /// Whether a request that came now would wait too long.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        self.admits(&self.lock())
    }

    /// Puts a request into the line, or says why not.
    pub(crate) fn put(&self, job: Job) -> Result<(), ApiError> {
        let mut line = self.lock();
        self.admits(&line)?;
        line.items += job.query.items();
        line.jobs.push_back(job);
        drop(line);
        self.changed.notify_one();
        Ok(())
    }

    /// Examples that wait.
    pub(crate) fn items(&self) -> usize {
        self.lock().items
    }

    /// No further request is taken; those that wait are answered.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn admits(&self, line: &Line) -> Result<(), ApiError> {
        if line.closed {
            return Err(ApiError::stopping());
        }
        let wait = line.items as f64 * line.item_seconds;
        let is_long = line.items >= COMPANY && wait > self.settings.wait_max.as_secs_f64();
        if is_long || line.jobs.len() >= self.settings.requests {
            let message = format!("{} requests are waiting already; ask again later", line.jobs.len());
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message));
        }
        Ok(())
    }

    /// The next batch, as soon as there is one; none when the line is closed and empty.
    fn take(&self) -> Option<Vec<Job>> {
        let mut line = self.lock();
        while line.jobs.is_empty() {
            if line.closed {
                return None;
            }
            line = self.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        let until = Instant::now() + self.settings.gather;
        while line.items < self.settings.batch_items && !line.closed {
            let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
            else {
                break;
            };
            line = self.changed.wait_timeout(line, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(line.take(self.settings.batch_items))
    }

    /// Answers until the line is closed and empty.
    pub(crate) fn work(&self, models: &Models, pool: &ThreadPool, metrics: &Metrics) {
        while let Some(mut batch) = self.take() {
            // Who went away wants no answer.
            batch.retain(|job| !job.reply.is_closed());
            if batch.is_empty() {
                continue;
            }
            let started = Instant::now();
            let mut waiting = Vec::with_capacity(batch.len());
            let mut queries = Vec::with_capacity(batch.len());
            for Job { query, reply, room, arrived } in batch {
                waiting.push((reply, room, started.duration_since(arrived)));
                queries.push(query);
            }
            let items: usize = queries.iter().map(Query::items).sum();
            let outcomes = answer_or_apologise(models, pool, &queries);
            let worked = started.elapsed();
            self.learn(items, worked);
            metrics.batch(items, worked);
            drop(queries);
            for (outcome, (reply, room, waited)) in outcomes.into_iter().zip(waiting) {
                // First, so that who has an answer and asks again finds room.
                drop(room);
                // Nobody may be there any more.
                let _ = reply.send(Reply { outcome, waited, worked });
            }
        }
    }

    fn learn(&self, items: usize, worked: Duration) {
        let seconds = worked.as_secs_f64() / items.max(1) as f64;
        let mut line = self.lock();
        let expected = line.item_seconds;
        line.item_seconds = match expected {
            0.0 => seconds,
            _ => expected + NEWEST * (seconds.min(SURPRISE_MAX * expected) - expected),
        };
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// The first requests, with so many examples at most or one request.
    fn take(&mut self, items_max: usize) -> Vec<Job> {
        let mut batch = Vec::new();
        let mut items = 0;
        while let Some(job) = self.jobs.front() {
            let more = job.query.items();
            if !batch.is_empty() && items + more > items_max {
                break;
            }
            items += more;
            batch.extend(self.jobs.pop_front());
        }
        self.items -= items;
        batch
    }
}

/// A panic is a mistake of ours in one request; the others are tried again without it.
fn answer_or_apologise(models: &Models, pool: &ThreadPool, queries: &[Query]) -> Vec<Outcome> {
    let served = models.current();
    let answer = |queries: &[Query]| {
        catch_unwind(AssertUnwindSafe(|| pool.install(|| answer_all(&served, queries)))).ok()
    };
    answer(queries).unwrap_or_else(|| {
        let alone = |query| answer(std::slice::from_ref(query)).and_then(|mut all| all.pop());
        queries.iter().map(|query| alone(query).unwrap_or_else(|| Err(ApiError::internal()))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(items: usize) -> (Job, oneshot::Receiver<Reply>) {
        let (reply, receiver) = oneshot::channel();
        let body = format!("{{\"items\":[{}]}}", vec!["{\"text\":\"a\"}"; items].join(","));
        let question = crate::question::Question::parse(body.as_bytes(), &crate::settings::Limits::default());
        let query = Query::Predict(question.unwrap());
        (Job { query, reply, room: None, arrived: Instant::now() }, receiver)
    }

    fn queue(settings: QueueSettings) -> Queue {
        Queue::new(settings)
    }

    #[test]
    fn batches_keep_the_order_and_the_limit() {
        let queue = queue(QueueSettings { batch_items: 5, ..QueueSettings::default() });
        for items in [2, 3, 1, 9, 1] {
            queue.put(job(items).0).unwrap();
        }
        assert_eq!(queue.items(), 16);
        let mut sizes = Vec::new();
        for _ in 0..4 {
            let batch = queue.take().unwrap();
            sizes.push(batch.iter().map(|job| job.query.items()).collect::<Vec<_>>());
        }
        assert_eq!(sizes, [vec![2, 3], vec![1], vec![9], vec![1]]);
        assert_eq!(queue.items(), 0);
    }

    #[test]
    fn who_would_wait_too_long_is_turned_away() {
        let settings = QueueSettings { wait_max: Duration::from_millis(42), ..QueueSettings::default() };
        let queue = queue(settings);
        queue.learn(1, Duration::from_millis(4));
        // Before the last of these ten wait, that is 40 milliseconds; then 44.
        (0..11).for_each(|_| queue.put(job(1).0).unwrap());
        let error = queue.put(job(1).0).unwrap_err();
        assert_eq!((error.status.as_u16(), error.code), (429, "queue_full"));
        queue.take().unwrap();
        queue.put(job(1).0).unwrap();
    }

    #[test]
    fn a_few_may_wait_however_slow_the_model() {
        let queue = queue(QueueSettings::default());
        queue.learn(1, Duration::from_secs(1));
        (0..COMPANY).for_each(|_| queue.put(job(1).0).unwrap());
        assert_eq!(queue.put(job(1).0).unwrap_err().code, "queue_full");
    }

    #[test]
    fn one_slow_batch_closes_no_door() {
        let settings = QueueSettings { wait_max: Duration::from_millis(20), ..QueueSettings::default() };
        let queue = queue(settings);
        queue.learn(1, Duration::from_millis(1));
        queue.learn(1, Duration::from_secs(10));
        (0..10).for_each(|_| queue.put(job(1).0).unwrap());
        // If they are all slow, it does.
        (0..50).for_each(|_| queue.learn(1, Duration::from_secs(10)));
        assert_eq!(queue.put(job(1).0).unwrap_err().code, "queue_full");
    }

    #[test]
    fn a_short_line_is_full_whatever_the_work() {
        let queue = queue(QueueSettings { requests: 2, ..QueueSettings::default() });
        queue.put(job(1).0).unwrap();
        queue.put(job(1).0).unwrap();
        assert_eq!(queue.put(job(1).0).unwrap_err().code, "queue_full");
    }

    #[test]
    fn a_closed_line_is_finished_first() {
        let queue = queue(QueueSettings::default());
        queue.put(job(1).0).unwrap();
        queue.close();
        assert_eq!(queue.put(job(1).0).unwrap_err().code, "stopping");
        assert_eq!(queue.take().map(|batch| batch.len()), Some(1));
        assert!(queue.take().is_none());
    }

    #[test]
    fn company_is_waited_for_if_asked() {
        let settings =
            QueueSettings { gather: Duration::from_secs(60), batch_items: 2, ..QueueSettings::default() };
        let queue = queue(settings);
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| queue.take().unwrap().len());
            queue.put(job(1).0).unwrap();
            queue.put(job(1).0).unwrap();
            assert_eq!(taken.join().unwrap(), 2);
        });
    }
}
