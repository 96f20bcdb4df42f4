//! Files made to hurt: small ones that become large, sizes that nobody has, devices.
#![cfg(target_os = "linux")]

use crate::support::Folder;

/// Four gigabytes, in the units of `ulimit`.
const MEMORY: usize = 4 << 20;

/// Forty small rows.
fn rows() -> String {
    (0..40).map(|i| format!("{} {}:1 {}:0.5\n", i % 5, i % 7, 7 + i % 3)).collect()
}

/// Text, and behind it five gigabytes of line ends in a few kilobytes.
fn with_line_ends(text: &str, after: &str) -> Vec<u8> {
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let line_ends = zstd(&vec![b'\n'; 64 << 20]).repeat(80);
    [zstd(text.as_bytes()), line_ends, zstd(after.as_bytes())].concat()
}

#[test]
fn line_ends_without_end_are_not_kept_in_memory() {
    let folder = Folder::new();
    folder.write("bomb", with_line_ends(&format!("40 10 5\n{}", rows()), ""));
    assert!(folder.read("bomb").len() < 1 << 20);
    let train = "train bomb --model m --overwrite --epochs 1 --hidden 4 --budget 3 -q";
    let done = folder.run_with_little_memory(train, MEMORY);
    assert_eq!(done.code, Some(0), "{}", done.errors);
    // A row too many behind them all.
    folder.write("bomb", with_line_ends(&format!("40 10 5\n{}", rows()), "1 2:3\n"));
    let done = folder.run_with_little_memory(train, MEMORY);
    assert!(
        done.code == Some(2) && done.errors.contains("expected 40 as the header declares"),
        "{}",
        done.errors
    );
    // Without a header each may be an example: more than memory holds.
    folder.write("bomb", with_line_ends(&rows(), "1 2:3\n"));
    let done = folder.run_with_little_memory(train, MEMORY);
    assert!(
        matches!(done.code, Some(1 | 2)) && done.errors.contains("memory"),
        "{:?} {}",
        done.code,
        done.errors
    );
}

#[test]
fn sizes_that_no_memory_holds_are_refused() {
    let folder = Folder::new();
    for header in ["40 10 4294967295", "40 4294967295 5"] {
        folder.write("data", format!("{header}\n{}", rows()));
        let done = folder.run_with_little_memory("train data --model m --epochs 1 -q", MEMORY);
        assert!(done.code == Some(2) && done.errors.contains("header"), "{:?} {}", done.code, done.errors);
    }
    assert_eq!(folder.names(), ["data"]);
}

#[test]
fn devices_are_no_text() {
    let folder = Folder::new();
    std::os::unix::fs::symlink("/dev/zero", folder.path("link")).unwrap();
    let message = folder.refuse("data stats link");
    assert!(message.contains("this is no text"), "{message}");
}
