//! From curves to the numbers of the paper's tables.
//!
//! Definitions, for a metric in percent (P@1 unless said otherwise):
//!
//! - *final value*: that of the last evaluation. A run that diverged has none.
//! - *reference*: the mean final value of full softmax over its seeds; without
//!   full softmax, that of the method with the highest one.
//! - *epochs (time) to s%*: epochs (seconds) done at the first evaluation whose
//!   value is at least s% of the reference; *Fail* if there is none. It is
//!   therefore never earlier than the truth, and later by less than the distance
//!   of two evaluations.
//! - *value at a time*: that of the last evaluation within the time, without
//!   interpolation: what one would have had. A finished run keeps its final
//!   value; before the first evaluation there is none.
//! - *time an epoch*: all training time divided by all epochs done.
//!
//! Over seeds, values are given as mean and sample standard deviation. A method
//! fails if it fails with any seed.

use super::{CurvePoint, Method, RunRecord};

/// The metric that decides.
pub const MAIN_METRIC: &str = "P@1";

impl CurvePoint {
    /// A metric in percent.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).copied()
    }
}

impl RunRecord {
    /// The value at the end.
    pub fn final_value(&self, metric: &str) -> Option<f64> {
        match self.diverged {
            Some(_) => None,
            None => self.curve.last()?.metric(metric),
        }
    }

    /// The first evaluation with at least this value.
    pub fn first_reaching(&self, metric: &str, value: f64) -> Option<&CurvePoint> {
        // 90% of 40 must be reached by 36, whatever the last bit says.
        let reaches = |point: &&CurvePoint| point.metric(metric).is_some_and(|x| x >= value - 1e-9);
        self.curve.iter().find(reaches)
    }

    /// The value of the last evaluation within `seconds` of training.
    pub fn value_at_time(&self, metric: &str, seconds: f64) -> Option<f64> {
        self.curve.iter().take_while(|point| point.train_seconds <= seconds).last()?.metric(metric)
    }

    /// All training time.
    pub fn total_seconds(&self) -> Option<f64> {
        Some(self.curve.last()?.train_seconds)
    }

    /// Training time an epoch.
    pub fn seconds_per_epoch(&self) -> Option<f64> {
        let last = self.curve.last().filter(|point| point.epoch > 0.0)?;
        Some(last.train_seconds / last.epoch)
    }
}

/// Mean and sample standard deviation (0 of a single value).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The deviation.
    pub deviation: f64,
    /// How many values.
    pub count: usize,
}

impl Spread {
    /// Of values, all of which must be there; none if one is missing or there
    /// are none.
    pub fn of(values: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect::<Option<_>>()?;
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
        let deviation = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 };
        Some(Self { mean, deviation, count })
    }
}

/// Whether and when a method got somewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reached {
    /// With every seed.
    Always(Spread),
    /// Not with every seed.
    Fail {
        /// Seeds that did not.
        failed: usize,
        /// Seeds in all.
        of: usize,
    },
}

impl Reached {
    /// When, if it did.
    pub fn when(self) -> Option<Spread> {
        match self {
            Self::Always(spread) => Some(spread),
            Self::Fail { .. } => None,
        }
    }
}

/// The runs that differ only in their seed.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// What they are compared as.
    pub name: &'a str,
    /// Their method.
    pub method: Method,
    /// What a sweep set, by name.
    pub varied: &'a [(String, f64)],
    /// Their records.
    pub records: Vec<&'a RunRecord>,
}

impl Group<'_> {
    /// The value at the end; none if a run diverged.
    pub fn final_value(&self, metric: &str) -> Option<Spread> {
        self.over(|record| record.final_value(metric))
    }

    /// Training time an epoch.
    pub fn seconds_per_epoch(&self) -> Option<Spread> {
        self.over(RunRecord::seconds_per_epoch)
    }

    /// All training time of a run.
    pub fn total_seconds(&self) -> Option<Spread> {
        self.over(RunRecord::total_seconds)
    }

    /// The value after so many seconds; none if a run has none by then.
    pub fn value_at_time(&self, metric: &str, seconds: f64) -> Option<Spread> {
        self.over(|record| record.value_at_time(metric, seconds))
    }

    /// Epochs until a value is reached.
    pub fn epochs_to(&self, metric: &str, value: f64) -> Reached {
        self.reached(metric, value, |point| point.epoch)
    }

    /// Seconds of training until a value is reached.
    pub fn seconds_to(&self, metric: &str, value: f64) -> Reached {
        self.reached(metric, value, |point| point.train_seconds)
    }

    fn over(&self, value: impl Fn(&RunRecord) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.records.iter().map(|record| value(record)))
    }

    fn reached(&self, metric: &str, value: f64, when: impl Fn(&CurvePoint) -> f64) -> Reached {
        let times: Vec<Option<f64>> =
            self.records.iter().map(|record| record.first_reaching(metric, value).map(&when)).collect();
        let failed = times.iter().filter(|time| time.is_none()).count();
        let of = times.len();
        Spread::of(times).map_or(Reached::Fail { failed, of }, Reached::Always)
    }
}

/// Records by name, in the order of first appearance.
pub fn groups(records: &[RunRecord]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for record in records {
        let run = &record.run;
        match groups.iter_mut().find(|group| group.name == run.name) {
            Some(group) => group.records.push(record),
            None => groups.push(Group {
                name: &run.name,
                method: run.method,
                varied: &run.varied,
                records: vec![record],
            }),
        }
    }
    groups
}

/// What the others are measured against.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Full softmax, or the best method where it is missing.
    pub name: String,
    /// Its mean final value.
    pub final_value: f64,
    /// Its mean time an epoch.
    pub seconds_per_epoch: f64,
    /// Its mean time in all.
    pub total_seconds: f64,
}

/// Chooses the reference; none if no method has a final value.
pub fn reference(groups: &[Group<'_>], metric: &str) -> Option<Reference> {
    let made = |group: &Group<'_>| {
        Some(Reference {
            name: group.name.to_owned(),
            final_value: group.final_value(metric)?.mean,
            seconds_per_epoch: group.seconds_per_epoch()?.mean,
            total_seconds: group.total_seconds()?.mean,
        })
    };
    let full = groups.iter().filter(|group| group.method == Method::FULL).find_map(made);
    let best = || groups.iter().filter_map(made).max_by(|a, b| a.final_value.total_cmp(&b.final_value));
    full.or_else(best)
}

/// Times at which methods are compared where none are given: 1/16, 1/8, 1/4,
/// 1/2 and all of the slowest method's training time.
pub fn default_time_budgets(groups: &[Group<'_>]) -> Vec<f64> {
    let totals = groups.iter().filter_map(|group| Some(group.total_seconds()?.mean));
    match totals.fold(0.0, f64::max) {
        slowest if slowest > 0.0 => [16.0, 8.0, 4.0, 2.0, 1.0].map(|part| slowest / part).into(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::PlannedRun;
    use crate::train::TrainConfig;

    /// A run whose n-th evaluation is after n epochs and `n · seconds`.
    fn record(name: &str, seed: u64, seconds: f64, values: &[f64]) -> RunRecord {
        let method: Method = name.parse().unwrap();
        let point = |(place, &value): (usize, &f64)| CurvePoint {
            iteration: 10 * (place as u64 + 1),
            epoch: place as f64 + 1.0,
            train_seconds: seconds * (place as f64 + 1.0),
            loss: 1.0,
            metrics: [("P@1".to_owned(), value)].into(),
        };
        RunRecord {
            key: String::new(),
            run: PlannedRun::of_method(method, &TrainConfig::default(), seed),
            curve: values.iter().enumerate().map(point).collect(),
            negatives_given_share: None,
            diverged: None,
            wall_seconds: 0.0,
        }
    }

    fn made() -> Vec<RunRecord> {
        vec![
            record("full", 1, 100.0, &[10.0, 30.0, 38.0, 40.0]),
            record("lsh-embedding", 1, 10.0, &[8.0, 20.0, 36.0, 37.0]),
            record("nce", 1, 5.0, &[5.0, 21.0, 25.0, 24.0]),
            record("full", 2, 120.0, &[12.0, 31.0, 37.0, 40.0]),
            record("lsh-embedding", 2, 12.0, &[9.0, 25.0, 35.0, 39.0]),
            record("nce", 2, 5.0, &[5.0, 15.0, 18.0, 19.0]),
        ]
    }

    #[test]
    fn epochs_and_times_to_a_share_of_full_softmax() {
        let records = made();
        let groups = groups(&records);
        let reference = reference(&groups, MAIN_METRIC).unwrap();
        assert_eq!((reference.name.as_str(), reference.final_value), ("Full softmax", 40.0));
        assert_eq!((reference.seconds_per_epoch, reference.total_seconds), (110.0, 440.0));

        let (half, most) = (0.5 * reference.final_value, 0.9 * reference.final_value);
        let [full, lsh, nce] = &groups[..] else { panic!("three methods") };
        let mean = |reached: Reached| reached.when().map(|spread| spread.mean);
        assert_eq!(
            (mean(full.epochs_to("P@1", half)), mean(full.epochs_to("P@1", most))),
            (Some(2.0), Some(3.0))
        );
        // Exactly 36 with the first seed counts as reached; the second needs one more.
        assert_eq!(mean(lsh.epochs_to("P@1", half)), Some(2.0));
        let most_of_lsh = lsh.epochs_to("P@1", most).when().unwrap();
        assert_eq!((most_of_lsh.mean, most_of_lsh.count), (3.5, 2));
        assert!((most_of_lsh.deviation - 0.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(mean(lsh.seconds_to("P@1", most)), Some((30.0 + 48.0) / 2.0));
        // One seed of two gets to half, none to 90%: that is a failure.
        assert_eq!(nce.epochs_to("P@1", half), Reached::Fail { failed: 1, of: 2 });
        assert_eq!(nce.epochs_to("P@1", most), Reached::Fail { failed: 2, of: 2 });
        // The final value is the last, not the best.
        assert_eq!(nce.final_value("P@1").unwrap().mean, 21.5);
    }

    #[test]
    fn values_at_equal_times() {
        let records = made();
        let groups = groups(&records);
        let at =
            |place: usize, seconds| groups[place].value_at_time("P@1", seconds).map(|spread| spread.mean);
        assert_eq!(at(0, 99.0), None, "no evaluation yet with either seed");
        assert_eq!(at(0, 110.0), None, "none yet with the second seed");
        assert_eq!(at(0, 120.0), Some(11.0));
        assert_eq!(at(1, 24.5), Some(22.5), "the latest, not an interpolation");
        assert_eq!(at(1, 1e9), Some(38.0), "a finished run keeps its final value");
        assert_eq!(default_time_budgets(&groups), [27.5, 55.0, 110.0, 220.0, 440.0]);
        assert_eq!(default_time_budgets(&[]), [0.0; 0]);
    }

    #[test]
    fn without_full_softmax_the_best_is_the_reference() {
        let mut records = made();
        records.retain(|record| record.run.method != Method::FULL);
        assert_eq!(reference(&groups(&records), "P@1").unwrap().name, "LSH Embedding");
        assert_eq!(reference(&[], "P@1"), None);
        assert_eq!(reference(&groups(&records), "P@9"), None);
    }

    #[test]
    fn a_diverged_run_has_no_final_value() {
        let mut records = made();
        records[1].diverged = Some("the loss became NaN".into());
        let groups = groups(&records);
        assert_eq!(groups[1].final_value("P@1"), None);
        // What it reached before, it reached.
        assert!(groups[1].epochs_to("P@1", 20.0).when().is_some());
        records[1].curve.clear();
        assert_eq!(records[1].seconds_per_epoch(), None);
    }
}
