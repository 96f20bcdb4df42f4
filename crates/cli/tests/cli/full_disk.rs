//! A disk that is really full: a small one in memory, which only root can mount.
#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::process::Command;

use crate::support::Folder;

/// A disk of two megabytes, until it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(place: PathBuf) -> Option<Self> {
        std::fs::create_dir(&place).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(&place).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(place)),
            Ok(output) => {
                println!("NOT RUN: no disk can be mounted: {}", String::from_utf8_lossy(&output.stderr));
                None
            }
            Err(error) => {
                println!("NOT RUN: no disk can be mounted: {error}");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_told_and_what_was_there_still_opens() {
    let folder = Folder::with_numbers();
    let Some(_disk) = SmallDisk::mount(folder.path("disk")) else { return };
    let train = "train made/train.txt --budget 12 -q";
    let checkpoint = "--checkpoint disk/steps --checkpoint-every 1epoch";
    folder.succeed(&format!("{train} --epochs 1 --hidden 8 --model disk/model {checkpoint}"));
    let before = folder.succeed("predict disk/model made/test.txt").out;
    let fails = |line: &str| {
        let done = folder.run(line);
        assert_eq!(done.code, Some(1), "{line}: {}", done.errors);
        assert!(done.errors.contains("No space left") && !done.errors.contains("damaged"), "{}", done.errors);
        assert!(done.errors.contains("disk/"), "{}", done.errors);
    };
    fails(&format!("{train} --epochs 1 --hidden 4096 --model disk/model --overwrite"));
    fails(&format!("{train} --epochs 1 --hidden 4096 --checkpoint disk/others --checkpoint-every 2steps"));
    fails("data synth --classes 80 --features 300 --train 60000 --test 100 --out disk/made");
    assert_eq!(folder.succeed("predict disk/model made/test.txt").out, before);
    folder.succeed(&format!("{train} --hidden 8 --epochs 2 --model disk/model {checkpoint} --resume"));
}
