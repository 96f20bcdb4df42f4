//! Many runs on the same data, each kept as soon as it is finished.
//!
//! A run's record is a file named by a hash of everything that decides its
//! outcome: settings, data, evaluations, threads and instructions. A second
//! start finds the records of the first and does only what is missing; another
//! setting has another name, and old records are never taken for new ones.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::run::{Arena, CurvePoint, PlannedRun, RunRecord, train_run};
use super::{ExperimentError, Method};
use crate::data::{DataFingerprint, write::atomically};
use crate::metrics::MetricOptions;
use crate::train::{Every, StepReport, TrainConfig, Trainer};

/// Changes when records of earlier code must not be used any more.
const RECORD_VERSION: u32 = 1;

/// Who is told about a matrix, and may end it.
pub trait MatrixObserver: Send {
    /// A run begins.
    fn on_start(&mut self, _index: usize, _run: &PlannedRun) {}
    /// A step of the current run is done.
    fn on_step(&mut self, _: &Trainer<'_>, _: &StepReport) {}
    /// The current run was measured.
    fn on_evaluation(&mut self, _: &CurvePoint) {}
    /// A run is finished (or `was_there` from an earlier start); `all` holds
    /// every record so far, this one last.
    fn on_record(&mut self, _index: usize, _all: &[RunRecord], _was_there: bool) {}
    /// Asked after every step: whether to end here. The current run is lost.
    fn should_stop(&mut self) -> bool {
        false
    }
}

/// Everything that a key stands for.
#[derive(Serialize)]
struct KeyParts<'a> {
    version: u32,
    settings: &'a TrainConfig,
    train: DataFingerprint,
    test: DataFingerprint,
    every: Every,
    metrics: &'a MetricOptions,
    time_limit_seconds: Option<f64>,
    // The same settings give the same model on any machine, but not in the
    // same time.
    threads: usize,
    instructions: &'a str,
}

/// FNV-1a of the parts' JSON: 64 bits, for the few hundred records of a folder.
fn key_of(parts: &KeyParts<'_>) -> String {
    let text = serde_json::to_string(parts).expect("settings are plain data");
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Where records are kept.
#[derive(Clone, Debug)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// Makes the folder if it is not there.
    pub fn open(path: &Path) -> Result<Self, ExperimentError> {
        std::fs::create_dir_all(path)
            .map_err(|source| ExperimentError::Folder { path: path.display().to_string(), source })?;
        Ok(Self(path.into()))
    }

    fn file(&self, method: Method, seed: u64, key: &str) -> PathBuf {
        self.0.join(format!("{method}-seed{seed}-{key}.json"))
    }

    /// The record of a run, if it was finished before.
    fn find(&self, run: &PlannedRun, key: &str) -> Result<Option<RunRecord>, ExperimentError> {
        let path = self.file(run.method, run.settings.seed, key);
        let bad = |reason: String| ExperimentError::Record { path: path.display().to_string(), reason };
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(bad(error.to_string())),
        };
        let record: RunRecord = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if record.key != key {
            return Err(bad(format!("it holds the run {}", record.key)));
        }
        // Its words may be older than those of today's plan.
        Ok(Some(RunRecord { run: run.clone(), ..record }))
    }

    fn save(&self, record: &RunRecord) -> Result<(), ExperimentError> {
        let path = self.file(record.run.method, record.run.settings.seed, &record.key);
        Ok(atomically(&path, |out| Ok(serde_json::to_writer_pretty(out, record)?))?)
    }
}

/// Does the runs that `folder` does not have yet, in order. Gives the records
/// of all, or of those before a stop, and whether it was stopped.
pub fn run_matrix(
    runs: &[PlannedRun],
    arena: &Arena<'_>,
    folder: &RunFolder,
    observer: &mut dyn MatrixObserver,
) -> Result<(Vec<RunRecord>, bool), ExperimentError> {
    let (train, test) = (DataFingerprint::of(&arena.train), DataFingerprint::of(&arena.test));
    let key = |run: &PlannedRun| {
        key_of(&KeyParts {
            version: RECORD_VERSION,
            settings: &run.settings,
            train: train.clone(),
            test: test.clone(),
            every: arena.every,
            metrics: arena.metrics,
            time_limit_seconds: arena.time_limit_seconds,
            threads: rayon::current_num_threads(),
            instructions: arena.cpu.name(),
        })
    };
    let mut records = Vec::with_capacity(runs.len());
    for (index, run) in runs.iter().enumerate() {
        let key = key(run);
        let found = folder.find(run, &key)?;
        let was_there = found.is_some();
        let record = match found {
            Some(record) => record,
            None => {
                observer.on_start(index, run);
                let Some(record) = train_run(run, key, arena, observer)? else {
                    return Ok((records, true));
                };
                folder.save(&record)?;
                record
            }
        };
        records.push(record);
        observer.on_record(index, &records, was_there);
    }
    Ok((records, false))
}

#[cfg(test)]
mod tests {
    use lookalike_kernels::Cpu;

    use super::*;
    use crate::data::synth::{SynthOptions, synth};

    /// Counts what happened, and stops a run if it is told to.
    #[derive(Default)]
    struct Watch {
        started: Vec<usize>,
        found: Vec<usize>,
        stop_in_run: Option<usize>,
    }

    impl MatrixObserver for Watch {
        fn on_start(&mut self, index: usize, _: &PlannedRun) {
            self.started.push(index);
        }
        fn on_record(&mut self, index: usize, all: &[RunRecord], was_there: bool) {
            assert_eq!(all.len(), index + 1);
            if was_there {
                self.found.push(index);
            }
        }
        fn should_stop(&mut self) -> bool {
            self.stop_in_run.is_some_and(|run| self.started.last() == Some(&run))
        }
    }

    #[test]
    fn an_interrupted_matrix_goes_on_where_it_stopped() {
        let options = SynthOptions {
            classes: 64,
            features: 300,
            train: 400,
            test: 100,
            classes_per_cluster: 8,
            ..SynthOptions::default()
        };
        let (train, test) = synth(&options).unwrap();
        let metrics = MetricOptions::default();
        let arena = Arena {
            cpu: Cpu::detect(),
            train: train.view(),
            test: test.view(),
            unknown_labels: &|_| 0,
            every: Every::Epochs(0.5),
            metrics: &metrics,
            time_limit_seconds: None,
        };
        let base = TrainConfig {
            hidden: vec![16],
            batch: 50,
            epochs: 2,
            budget: Some(10),
            ..TrainConfig::default()
        };
        let methods = ["full", "uniform", "nce"].map(|name| name.parse::<Method>().unwrap());
        let runs: Vec<PlannedRun> = [1, 2]
            .into_iter()
            .flat_map(|seed| methods.map(|m| PlannedRun::of_method(m, &base, seed)))
            .collect();
        let home = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(&home.path().join("runs")).unwrap();

        let mut first = Watch { stop_in_run: Some(2), ..Watch::default() };
        let (records, stopped) = run_matrix(&runs, &arena, &folder, &mut first).unwrap();
        assert!(stopped && records.len() == 2 && first.started == [0, 1, 2] && first.found.is_empty());

        let mut second = Watch::default();
        let (records, stopped) = run_matrix(&runs, &arena, &folder, &mut second).unwrap();
        assert!(!stopped && records.len() == 6);
        assert_eq!((second.found.as_slice(), second.started.as_slice()), (&[0, 1][..], &[2, 3, 4, 5][..]));
        for (record, run) in records.iter().zip(&runs) {
            assert_eq!(&record.run, run);
            let epochs: Vec<f64> = record.curve.iter().map(|point| point.epoch).collect();
            assert_eq!(epochs, [0.5, 1.0, 1.5, 2.0]);
            assert!(record.curve.iter().all(|point| point.metrics.contains_key("P@1")));
        }

        // Everything is there now, and what was read is what was written.
        let mut third = Watch::default();
        let (again, _) = run_matrix(&runs, &arena, &folder, &mut third).unwrap();
        assert!(third.started.is_empty());
        for (a, b) in again.iter().zip(&records) {
            assert_eq!((&a.key, a.curve.len()), (&b.key, b.curve.len()));
            assert_eq!(a.curve.last().unwrap().metrics["P@1"], b.curve.last().unwrap().metrics["P@1"]);
        }

        // Other settings, other evaluations or other data are other runs.
        let other = [PlannedRun::of_method(Method::FULL, &TrainConfig { lr: 2e-3, ..base.clone() }, 1)];
        let mut watch = Watch::default();
        run_matrix(&other, &arena, &folder, &mut watch).unwrap();
        assert_eq!(watch.started, [0]);
        let often = Arena { every: Every::Iterations(3), ..arena };
        run_matrix(&runs[..1], &often, &folder, &mut watch).unwrap();
        assert_eq!(watch.started, [0, 0]);
        let swapped = Arena { train: test.view(), test: train.view(), ..arena };
        run_matrix(&runs[..1], &swapped, &folder, &mut watch).unwrap();
        assert_eq!(watch.started, [0, 0, 0]);
    }

    #[test]
    fn a_damaged_record_is_named() {
        let home = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(home.path()).unwrap();
        let run = PlannedRun::of_method(Method::Nce, &TrainConfig::default(), 7);
        let path = folder.file(run.method, 7, "0123");
        std::fs::write(&path, "{\"key\": ").unwrap();
        let error = folder.find(&run, "0123").unwrap_err().to_string();
        assert!(error.contains("nce-seed7-0123.json") && error.contains("delete it"), "{error}");
    }
}
