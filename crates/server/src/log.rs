//! Log lines as JSON objects, one a line.
//!
//! What clients ask is not in them: no text, no class, no query string, only the
//! route's pattern. A thread of its own writes, so a log that nobody takes holds up
//! no answer; lines that it has no room for are counted and left out.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// Lines that may wait to be written.
const WAITING_LINES: usize = 1024;

/// Where a service tells what it does. Cheap to clone.
#[derive(Clone)]
pub struct Log {
    lines: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

enum Message {
    Line(String),
    /// All lines before it are written: say so.
    Flush(SyncSender<()>),
}

impl Log {
    /// To a writer, which gets one whole line at a time.
    pub fn new(mut out: impl Write + Send + 'static) -> Self {
        let (lines, waiting) = sync_channel(WAITING_LINES);
        std::thread::spawn(move || {
            for message in waiting {
                // A log that can't be written, or is not waited for any more, must not
                // end the service.
                let _ = match message {
                    Message::Line(line) => out.write_all(line.as_bytes()).map_err(drop),
                    Message::Flush(done) => out.flush().map_err(drop).and(done.send(()).map_err(drop)),
                };
            }
        });
        Self { lines, lost: Arc::default() }
    }

    /// To nobody.
    pub fn silent() -> Self {
        Self::new(std::io::sink())
    }

    /// Waits until all is written.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.lines.send(Message::Flush(done)).is_ok() {
            let _ = wait.recv();
        }
    }

    /// Something happened; `fields` is an object.
    pub(crate) fn event(&self, level: &str, event: &str, mut fields: Value) {
        fields["time"] = timestamp(SystemTime::now()).into();
        fields["level"] = level.into();
        fields["event"] = event.into();
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            fields["lines_lost"] = lost.into();
        }
        if self.lines.try_send(Message::Line(format!("{fields}\n"))).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

/// `2026-01-31T12:34:56.789Z`
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// The date so many days after 1970-01-01. Years are counted from March, so that the
/// leap day is the last of a year; 400 years have 146,097 days.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds: u64| timestamp(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 7));
        assert_eq!(at(0), "1970-01-01T00:00:00.007Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56.007Z");
        assert_eq!(at(1_798_761_599), "2026-12-31T23:59:59.007Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.007Z");
    }
}
