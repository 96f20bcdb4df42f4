//! Kills at random moments of training and of writing checkpoints: a run that goes on
//! after each of them ends with the bytes of the run that nobody disturbed, and loses no
//! file. `LOOKALIKE_CRASHES=200 cargo test --release -p lookalike-cli --test cli crash`
//! kills more often.
#![cfg(unix)]

use std::time::{Duration, Instant};

use crate::support::Folder;

/// Two evaluations and six checkpoints an epoch, refreshes between them.
const TRAIN: &str = "train made/train.txt --valid made/test.txt --eval-iterations 7 --checkpoint-every 3steps \
                     --epochs 4 --hidden 16 --batch 32 --budget 12 --refresh 5 --sampler mixed --sparse true \
                     --lr 0.02 -q --resume";

fn crashes() -> u64 {
    std::env::var("LOOKALIKE_CRASHES").ok().and_then(|n| n.parse().ok()).unwrap_or(20)
}

/// All bytes of a model; of the settings what does not depend on the clock.
fn content(folder: &Folder, model: &str) -> (Vec<u8>, Vec<u8>, serde_json::Value) {
    let mut config: serde_json::Value =
        serde_json::from_slice(&folder.read(&format!("{model}/config.json"))).unwrap();
    config.as_object_mut().unwrap().remove("checksum");
    config["progress"].as_object_mut().unwrap().remove("train-seconds");
    let file = |name: &str| folder.read(&format!("{model}/{name}"));
    (file("model.safetensors"), file("training.safetensors"), config)
}

#[test]
fn kills_at_random_moments_change_no_byte() {
    let folder = Folder::with_numbers();
    let start = Instant::now();
    folder.succeed(&format!("{TRAIN} --model undisturbed --checkpoint undisturbed-steps"));
    let whole = start.elapsed();
    let expected = content(&folder, "undisturbed");
    let (mut kills, mut runs) = (0, 0);
    while kills < crashes() {
        runs += 1;
        let (model, steps) = (format!("model-{runs}"), format!("steps-{runs}"));
        let line = format!("{TRAIN} --model {model} --checkpoint {steps}");
        loop {
            let mut child = folder.spawn(&line);
            // Moments of all lengths, most of them before its end.
            let random = lookalike::random::mix(7, lookalike::random::Stream::Data, kills, runs);
            let wait = whole.as_micros() as u64 * (random % 1000) / 1000;
            let end = Instant::now() + Duration::from_micros(wait);
            let mut ended = None;
            while ended.is_none() && Instant::now() < end {
                std::thread::sleep(Duration::from_micros(200));
                ended = child.try_wait().unwrap();
            }
            if let Some(status) = ended {
                let errors = child.wait_with_output().unwrap().stderr;
                assert!(status.success(), "{}", String::from_utf8_lossy(&errors));
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
            if folder.path(&model).exists() {
                folder.succeed(&format!("evaluate {model} made/test.txt"));
            }
        }
        let found = content(&folder, &model);
        assert!(found.0 == expected.0, "weights differ in run {runs} after {kills} kills");
        assert!(found.1 == expected.1, "the state differs in run {runs} after {kills} kills");
        assert_eq!(found.2, expected.2);
        let names = |name: &str| {
            let entries = std::fs::read_dir(folder.path(name)).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let within: Vec<_> =
            names(&steps).iter().map(|name| names(&format!("{steps}/{}", name.display()))).collect();
        assert_eq!(names(&steps), names("undisturbed-steps"), "{within:?}");
    }
    println!("{kills} kills in {runs} runs");
    let hidden = folder.names().into_iter().filter(|name| name.starts_with('.'));
    assert_eq!(hidden.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn two_trainings_into_one_directory_are_refused_until_the_first_dies() {
    let folder = Folder::with_numbers();
    let endless =
        "train made/train.txt --model model --log log.jsonl --epochs 1000000 --hidden 16 --budget 12 -q";
    let mut first = folder.spawn(endless);
    let patience = Instant::now() + Duration::from_secs(120);
    while !folder.path("log.jsonl").exists() {
        assert!(Instant::now() < patience);
        std::thread::sleep(Duration::from_millis(10));
    }
    let second = "train made/train.txt --model model --epochs 1 --hidden 16 --budget 12 -q";
    let message = folder.refuse(second);
    assert!(message.contains(&format!("process {}", first.id())), "{message}");
    first.kill().unwrap();
    first.wait().unwrap();
    folder.succeed(second);
    assert_eq!(folder.names(), ["log.jsonl", "made", "model"]);
}

#[test]
fn checkpoints_of_another_run_are_not_overwritten() {
    let folder = Folder::with_numbers();
    let line = "train made/train.txt --checkpoint steps --checkpoint-every 1epoch --hidden 8 --budget 9 -q";
    folder.succeed(&format!("{line} --epochs 2"));
    assert!(folder.refuse(&format!("{line} --epochs 2")).contains("--resume"));
    folder.succeed(&format!("{line} --resume --epochs 3"));
    // As if it had been killed before it saved the model.
    folder.succeed(&format!("{line} --resume --epochs 3 --model model"));
    folder.succeed("evaluate model made/test.txt");
    for bad in ["0steps", "x", "3", "1.5steps", "1day"] {
        let done = folder.run(&format!("train made/train.txt --checkpoint new --checkpoint-every {bad}"));
        assert!(done.code == Some(2) && done.errors.contains("--checkpoint-every"), "{bad}: {}", done.errors);
    }
}
