//! Where the time of a whole run went, by the clock.

use std::time::Instant;

use lookalike_report::human;

/// What a run does, one after the other; nothing is left out, so the parts add up to
/// the time by the clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part {
    Reading,
    Training,
    Evaluation,
    Saving,
}

const PARTS: [(Part, &str); 4] = [
    (Part::Reading, "reading"),
    (Part::Training, "training"),
    (Part::Evaluation, "evaluation"),
    (Part::Saving, "saving"),
];

/// A stopwatch that always runs for one part.
pub(super) struct Times {
    started: Instant,
    part: Part,
    since: Instant,
    seconds: [f64; PARTS.len()],
}

impl Times {
    pub(super) fn start() -> Self {
        let now = Instant::now();
        Self { started: now, part: Part::Reading, since: now, seconds: [0.0; PARTS.len()] }
    }

    /// From here on it is another part's time; gives what the part before took just now.
    pub(super) fn enter(&mut self, part: Part) -> f64 {
        let seconds = self.since.elapsed().as_secs_f64();
        self.seconds[self.part as usize] += seconds;
        (self.part, self.since) = (part, Instant::now());
        seconds
    }

    /// Time that was measured elsewhere goes from one part to another.
    pub(super) fn moved(&mut self, from: Part, to: Part, seconds: f64) {
        self.seconds[from as usize] -= seconds;
        self.seconds[to as usize] += seconds;
    }

    /// Everything in a line.
    pub(super) fn end(mut self) -> String {
        self.enter(self.part);
        let part = |&(part, name): &(Part, &str)| {
            let seconds = self.seconds[part as usize].max(0.0);
            (seconds >= 0.05).then(|| format!("{name} {}", human::seconds(seconds)))
        };
        let parts: Vec<String> = PARTS.iter().filter_map(part).collect();
        let total = human::seconds(self.started.elapsed().as_secs_f64());
        format!(
            "{total} in all: {}",
            if parts.is_empty() { "next to nothing".into() } else { parts.join(", ") }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_in_order_and_moved_time_counts_once() {
        let mut times = Times::start();
        times.seconds = [60.0, 120.0, 0.0, 0.0];
        times.moved(Part::Training, Part::Evaluation, 30.0);
        let line = times.end();
        assert!(line.ends_with("in all: reading 1.0 min, training 1.5 min, evaluation 30.0 s"), "{line}");
    }
}
