//! The commands `compare`, `sweep` and `adapt` as a user runs them, on small
//! generated data.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use lookalike::data::synth::{SynthOptions, synth};
use lookalike::data::write_text;
use serde_json::Value;

/// A folder with data, thrown away after the test.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shape = SynthOptions {
            classes: 200,
            features: 1000,
            train: 1200,
            test: 300,
            classes_per_cluster: 8,
            ..SynthOptions::default()
        };
        let (train, test) = synth(&shape).unwrap();
        let data = folder.path().join("small");
        std::fs::create_dir(&data).unwrap();
        write_text(&data.join("train.txt"), train.view()).unwrap();
        write_text(&data.join("test.txt"), test.view()).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lookalike"));
        let shared = "--hidden 16 --batch 100 --budget 20 --lr 0.01 --threads 2";
        command.current_dir(self.folder.path());
        command.args(arguments.split_whitespace()).args(shared.split_whitespace());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed; gives what it printed.
    fn succeed(&self, arguments: &str) -> (String, String) {
        let output = self.run(arguments);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (out, error) = (text(output.stdout), text(output.stderr));
        assert!(output.status.success(), "{arguments}\n{out}\n{error}");
        (out, error)
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.path(name)).unwrap()).unwrap()
    }
}

fn files(folder: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn compare_writes_everything_and_does_finished_runs_only_once() {
    let place = Place::new();
    let (_, told) = place.succeed("compare small --out out --epochs 2 --methods full,uniform");
    assert!(told.contains("2 runs") && !told.contains("earlier start"), "{told}");
    let before = files(&place.path("out/runs"));
    let read = |name: &String| std::fs::read(place.path("out/runs").join(name)).unwrap();
    let contents: Vec<Vec<u8>> = before.iter().map(read).collect();
    assert_eq!(before.len(), 2);

    let more = "compare small --out out --epochs 2 --methods full,lsh-embedding,uniform --seeds 2";
    let (printed, told) = place.succeed(more);
    assert_eq!(told.matches("from an earlier start").count(), 2, "{told}");
    let after = files(&place.path("out/runs"));
    assert!(after.len() == 6 && after.is_superset(&before), "{after:?}");
    assert_eq!(before.iter().map(read).collect::<Vec<_>>(), contents, "records are not written again");

    for title in ["Epochs to reach the P@1 of Full softmax", "Training time", "P@1 at equal training times"] {
        assert!(printed.contains(title), "{printed}");
    }
    assert!(printed.contains("LSH Embedding") && printed.contains('±'), "{printed}");
    let written = files(&place.path("out"));
    for name in
        ["report.html", "results.json", "tables.md", "epochs.csv", "time.csv", "equal-time.csv", "curves.csv"]
    {
        assert!(written.contains(name), "{name} is not among {written:?}");
    }
    for name in ["precision-over-time", "precision-over-iterations", "epoch-time", "label-frequency"] {
        assert!(written.contains(&format!("{name}.svg")) && written.contains(&format!("{name}.csv")));
    }
    let page = std::fs::read_to_string(place.path("out/report.html")).unwrap();
    assert!(page.contains("Which sampler for small?") && page.contains(more), "title and command");
    assert_eq!(page.matches("<figure").count(), 5);

    let results = place.json("out/results.json");
    let runs = results["runs"].as_array().unwrap();
    assert_eq!((runs.len(), number(&results["planned-runs"])), (6, 6.0));
    assert_eq!(number(&results["settings"]["lr"]), 0.01, "as it was typed");
    for run in runs {
        let curve = run["curve"].as_array().unwrap();
        assert_eq!(curve.len(), 4, "two epochs, evaluated every half");
        assert!(curve.is_sorted_by_key(|point| number(&point["train-seconds"])));
        assert_eq!(number(&curve[3]["epoch"]), 2.0);
        assert!(curve[3]["metrics"]["P@5"].is_number() && curve[3]["metrics"]["capped-P@5"].is_number());
    }
    // The same seed and method give the same model: only time differs.
    let rows = std::fs::read_to_string(place.path("out/curves.csv")).unwrap();
    assert_eq!(rows.lines().count(), 1 + 6 * 4);
}

#[test]
fn an_interrupted_matrix_keeps_its_finished_runs() {
    let place = Place::new();
    // A thousand runs of 0.2 s: it cannot be through before it is interrupted.
    let limits = "--epochs 100000 --time-limit 0.2 --eval-iterations 1000000";
    let many = format!("compare small --out out {limits} --methods uniform --seeds 1000");
    let mut child = place.command(&many).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let records = || files(&place.path("out/runs")).into_iter().filter(|name| name.ends_with(".json"));
    while records().next().is_none() {
        assert!(Instant::now() < deadline, "no run was finished in a minute");
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    let signal = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signal.success());
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.contains("start again with the same arguments"), "{told}");
    assert!(place.path("out/report.html").exists(), "what is finished is reported");
    let page = std::fs::read_to_string(place.path("out/report.html")).unwrap();
    assert!(page.contains("of 1000 runs are still to be done"));

    let (_, told) = place.succeed(&format!("compare small --out out {limits} --methods uniform --seeds 1"));
    assert!(told.contains("from an earlier start"), "{told}");
}

#[test]
fn sweep_varies_settings_together_or_one_at_a_time() {
    let place = Place::new();
    let vary = "--vary tables=5,20 --vary budget=10,40";
    let (printed, _) =
        place.succeed(&format!("sweep small --methods lsh-embedding --out grid --epochs 1 {vary}"));
    assert_eq!(printed.matches("LSH Embedding").count(), 4, "{printed}");
    let results = place.json("grid/results.json");
    let settings: BTreeSet<(u64, u64)> = (results["runs"].as_array().unwrap().iter())
        .map(|run| &run["run"]["settings"])
        .map(|settings| (number(&settings["lsh"]["l"]) as u64, number(&settings["budget"]) as u64))
        .collect();
    assert_eq!(settings, [(5, 10), (5, 40), (20, 10), (20, 40)].into());
    let written = files(&place.path("grid"));
    for name in ["precision-by-tables.svg", "epoch-time-by-budget.svg", "sweep.csv", "report.html"] {
        assert!(written.contains(name), "{written:?}");
    }

    // A list, with another method: the tables' number means nothing to it, the budget does.
    let list =
        format!("sweep small --out list --epochs 1 {vary} --one-at-a-time --methods uniform,lsh-label");
    let (printed, _) = place.succeed(&list);
    assert_eq!(printed.matches("LSH Label").count(), 4, "{printed}");
    assert_eq!(printed.matches("Uniform softmax").count(), 4, "{printed}");
}

#[test]
fn adapt_measures_at_the_iterations_asked_for() {
    let place = Place::new();
    let command = "adapt small --out out --epochs 8 --sampler full --at 96,0 --inputs 12 --draws 40 --activation relu \
         --class-start random";
    let (printed, _) = place.succeed(command);
    assert!(printed.contains("mass covered") && printed.contains("LSH Label"), "{printed}");
    let results = place.json("out/results.json");
    let snapshots = results["snapshots"].as_array().unwrap();
    let iterations: Vec<f64> = snapshots.iter().map(|snapshot| number(&snapshot["iteration"])).collect();
    assert_eq!(iterations, [0.0, 96.0]);
    let mass = |place: usize, name: &str| {
        let samplers = snapshots[place]["samplers"].as_array().unwrap();
        let found = samplers.iter().find(|one| one["sampler"] == name).unwrap();
        number(&found["mass-covered"])
    };
    // Before training all classes are much alike; later only what follows the model covers much.
    for name in ["lsh-embedding", "frequency", "uniform"] {
        assert!(mass(0, name) < 0.2, "{snapshots:?}");
        assert!(mass(1, "top-k") > mass(1, name), "{snapshots:?}");
    }
    assert!(mass(1, "lsh-embedding") > 2.0 * mass(1, "uniform"), "{snapshots:?}");
    let written = files(&place.path("out"));
    for name in ["distribution-start.svg", "distribution-later.svg", "mass-covered.svg", "adaptivity.csv"] {
        assert!(written.contains(name), "{written:?}");
    }
    let page = std::fs::read_to_string(place.path("out/report.html")).unwrap();
    assert!(page.contains("Before training") && page.contains("After 96 iterations"));
}

#[test]
fn mistakes_are_explained_before_anything_is_trained() {
    let place = Place::new();
    std::fs::create_dir(place.path("empty")).unwrap();
    for (arguments, expected) in [
        ("compare", "give a folder with train.txt, or --train FILE"),
        ("compare nowhere", "nowhere is no folder of data"),
        ("compare empty", "found no train.txt"),
        ("compare --train small/train.txt", "no test data"),
        ("compare small --methods lsh", "unknown sampler \"lsh\""),
        ("compare small --epochs 0", "epochs is 0"),
        ("compare small --eval-every 0", "--eval-every is 0"),
        ("compare small --preset best", "there is no preset"),
        ("sweep small", "--vary"),
        ("sweep small --vary depth=3", "cannot be varied"),
        ("sweep small --vary budget=0", "budget is 0"),
        ("adapt small --samplers full", "draws nothing"),
        ("adapt small --epochs 1 --at 99999", "give more --epochs"),
    ] {
        let output = place.run(arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {told}");
        assert!(told.contains(expected), "{arguments}: {told}");
    }
    assert!(
        !place.path("compare-small/runs").exists() || files(&place.path("compare-small/runs")).is_empty()
    );
}

#[test]
fn a_part_of_the_test_examples_is_enough_if_asked_for() {
    let place = Place::new();
    place.succeed("compare small --epochs 1 --methods uniform --test-examples 50");
    let results = place.json("compare-small/results.json");
    assert_eq!(number(&results["data"]["test"]["examples"]), 50.0);
    let precision = number(&results["runs"][0]["curve"][0]["metrics"]["P@1"]);
    assert!((precision * 0.5 - (precision * 0.5).round()).abs() < 1e-9, "a multiple of 1/50: {precision}");
}
