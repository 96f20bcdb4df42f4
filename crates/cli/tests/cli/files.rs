//! What the program does to files and folders that are there already.

use std::fs;
use std::io::Read;
use std::path::Path;

use crate::support::Folder;

const TRAIN: &str = "train made/train.txt --epochs 1 --hidden 16 --budget 12 -q";

#[test]
fn a_folder_that_is_no_model_is_refused_before_training() {
    let folder = Folder::with_numbers();
    fs::create_dir_all(folder.path("project/src")).unwrap();
    folder.write("project/config.json", "{}").write("project/src/thesis.tex", "my life's work");
    // The data is not even looked at.
    let message = folder.refuse("train absent.txt --model project");
    assert!(message.contains("project is not empty and not a model directory"), "{message}");
    assert_eq!(folder.read("project/src/thesis.tex"), b"my life's work");
    assert_eq!(folder.read("project/config.json"), b"{}");
    folder.write("file", "x");
    for target in ["file", ".", "/dev/null"] {
        let message = folder.refuse(&format!("train absent.txt --model {target}"));
        assert!(message.contains("--model"), "{message}");
    }
}

#[test]
fn files_beside_a_model_stay() {
    let folder = Folder::with_number_model();
    fs::create_dir(folder.path("model/src")).unwrap();
    folder.write("model/src/thesis.tex", "my life's work").write("model/notes.txt", "mine");
    let before = folder.read("model/model.safetensors");
    folder.succeed(&format!("{TRAIN} --model model"));
    assert!(before != folder.read("model/model.safetensors"));
    assert_eq!(folder.read("model/src/thesis.tex"), b"my life's work");
    assert_eq!(folder.read("model/notes.txt"), b"mine");
    // What a model had and this one has not is gone.
    folder.succeed(&format!("{TRAIN} --model model --without-training-state"));
    assert!(!folder.path("model/training.safetensors").exists());
    assert_eq!(folder.names(), ["made", "model"]);
    folder.succeed("evaluate model made/test.txt");
}

#[cfg(unix)]
#[test]
fn links_and_modes_of_outputs_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = Folder::with_numbers();
    let mode = |name: &str| fs::metadata(folder.path(name)).unwrap().permissions().mode() & 0o777;
    let private = |name: &str, mode| {
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    fs::create_dir(folder.path("real")).unwrap();
    folder.write("real.packed", "old");
    private("real", 0o700);
    private("real.packed", 0o600);
    symlink("real", folder.path("link")).unwrap();
    symlink("real.packed", folder.path("link.packed")).unwrap();
    folder.succeed(&format!("{TRAIN} --model link"));
    folder.succeed("data pack made/train.txt --out link.packed");
    assert_eq!(fs::read_link(folder.path("link")).unwrap(), Path::new("real"));
    assert_eq!(fs::read_link(folder.path("link.packed")).unwrap(), Path::new("real.packed"));
    assert_eq!((mode("real"), mode("real.packed")), (0o700, 0o600));
    folder.succeed("evaluate real made/test.txt");
    folder.succeed("data stats real.packed");
}

#[cfg(target_os = "linux")]
#[test]
fn devices_are_written_to_and_never_replaced() {
    use std::os::unix::fs::FileTypeExt;
    let folder = Folder::with_numbers();
    // A pipe first: who replaces it must not get at the machine's devices below.
    let pipe = folder.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let child = folder.spawn("data pack made/train.txt --out pipe");
    let mut received = Vec::new();
    fs::File::open(&pipe).unwrap().read_to_end(&mut received).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    folder.succeed("data pack made/train.txt --out packed");
    assert!(received == folder.read("packed"));

    let done = folder.run("data pack made/train.txt --out /dev/full");
    assert_eq!(done.code, Some(1), "{}", done.errors);
    assert!(done.errors.contains("No space left"), "{}", done.errors);
    folder.succeed("data pack made/train.txt --out /dev/null");
    for device in ["/dev/full", "/dev/null"] {
        assert!(fs::metadata(device).unwrap().file_type().is_char_device());
    }
    // Redirected to a file, which is not replaced under the hands of who reads it.
    let command = "exec \"$0\" data pack made/train.txt --out /dev/stdout >> appended";
    folder.write("appended", "before");
    let program = env!("CARGO_BIN_EXE_lookalike");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", command, program]).current_dir(folder.path(""));
    assert!(shell.stderr(std::process::Stdio::null()).status().unwrap().success());
    assert!(folder.read("appended") == [b"before", received.as_slice()].concat());
}
