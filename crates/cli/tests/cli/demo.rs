//! The demo, as a new user runs it.

use std::process::Command;

use crate::support::Folder;

#[test]
fn the_demo_compares_saves_and_says_what_to_type_next() {
    let folder = Folder::new();
    let done = folder.succeed("demo --epochs 1");
    for part in ["LSH Embedding", "LSH Label", "Sampled softmax", "Full softmax", "P@1", "P@5", "an epoch"] {
        assert!(done.out.contains(part), "{part}: {}", done.out);
    }
    assert_eq!(folder.names(), ["lookalike-demo"]);
    let report = String::from_utf8(folder.read("lookalike-demo/report.html")).unwrap();
    assert!(report.contains("<svg") && report.contains("GeoNames") && report.contains("CC BY 4.0"));

    let commands: Vec<&str> =
        done.out.lines().filter(|line| line.contains("lookalike-demo/model ")).collect();
    let commands = &commands[commands.len() - 3..];
    for command in commands {
        let output = Command::new("sh").arg("-c").arg(command).current_dir(folder.path("")).output().unwrap();
        let (out, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out.lines().next().is_some(), "{command}: {errors}");
    }
    // It can be run again.
    let metrics = folder.succeed("inspect lookalike-demo/model --json").json();
    assert_eq!(metrics["network"]["num-classes"], 6000);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_demo_and_saves_nothing() {
    use std::io::{BufRead, BufReader};

    let folder = Folder::new();
    let mut child = folder.spawn("demo");
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("names of 6,000 cities"), "{line}");
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let rest: Vec<String> = errors.lines().map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(folder.names().is_empty());
}
