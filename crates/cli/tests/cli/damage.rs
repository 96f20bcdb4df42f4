//! Damaged model directories: an error that says so, never a panic.

use crate::support::Folder;

const COMMANDS: [&str; 4] = [
    "predict model names.tsv",
    "evaluate model names.tsv",
    "inspect model --text Wien",
    "train names.tsv --model model --resume --epochs 61 -q",
];

#[test]
fn damaged_files_are_refused() {
    let folder = Folder::with_name_model();
    let files = ["config.json", "model.safetensors", "training.safetensors", "vectoriser.json", "labels.txt"];
    for file in files {
        let name = format!("model/{file}");
        let whole = folder.read(&name);
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 0x20;
        let damages: [Option<&[u8]>; 4] = [None, Some(&[]), Some(&whole[..whole.len() / 2]), Some(&flipped)];
        for damage in damages {
            match damage {
                Some(content) => _ = folder.write(&name, content),
                None => std::fs::remove_file(folder.path(&name)).unwrap(),
            }
            for command in COMMANDS {
                // Only going on reads the moments.
                let may_pass = file == "training.safetensors" && !command.contains("--resume");
                let done = folder.run(command);
                let is_refused = done.code == Some(2) && done.errors.starts_with("lookalike: ");
                assert!(is_refused || may_pass, "{command} with {name}: {:?} {}", done.code, done.errors);
            }
            folder.write(&name, &whole);
        }
    }
    for command in COMMANDS {
        folder.succeed(command);
    }
}

/// The settings as versions up to 4 had them: without a checksum.
fn unchecked_settings(folder: &Folder) -> serde_json::Value {
    let mut config: serde_json::Value = serde_json::from_slice(&folder.read("model/config.json")).unwrap();
    config.as_object_mut().unwrap().remove("checksum").unwrap();
    config["format-version"] = 4.into();
    config
}

/// The settings of early versions are not checksummed: any byte may be anything.
#[test]
fn no_byte_of_the_settings_makes_the_program_panic() {
    let folder = Folder::with_name_model();
    let whole = serde_json::to_vec_pretty(&unchecked_settings(&folder)).unwrap();
    for i in 0..60 {
        let mut changed = whole.clone();
        let at = i * 7919 % whole.len();
        changed[at] = b"0917-x\"}"[i % 8];
        folder.write("model/config.json", &changed);
        let done = folder.run(COMMANDS[i % 3]);
        assert!(matches!(done.code, Some(0..=2)), "{at}: {:?} {}", done.code, done.errors);
    }
}

#[test]
fn absurd_sizes_in_the_settings_reserve_no_memory() {
    let folder = Folder::with_name_model();
    let config = unchecked_settings(&folder);
    folder.write("model/config.json", config.to_string());
    folder.succeed("predict model names.tsv");
    for (pointer, value) in [
        ("/network/num-classes", serde_json::json!(4_000_000_000u64)),
        ("/network/num-features", serde_json::json!(4_000_000_000u64)),
        ("/network/num-classes", serde_json::json!(0)),
        ("/network/hidden", serde_json::json!([])),
        ("/network/hidden", serde_json::json!([0])),
        ("/network/hidden", serde_json::json!([1_000_000, 1_000_000])),
        ("/format-version", serde_json::json!(99)),
        ("/format", serde_json::json!("other")),
    ] {
        let mut changed = config.clone();
        *changed.pointer_mut(pointer).unwrap() = value.clone();
        folder.write("model/config.json", changed.to_string());
        let message = folder.refuse("predict model names.tsv");
        assert!(message.contains("model"), "{pointer} {value}: {message}");
    }
}
