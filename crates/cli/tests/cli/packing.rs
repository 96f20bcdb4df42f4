//! `data pack` and `data vectorise`: the same bytes whatever the way in, and memory that does
//! not grow with the file.

use std::fs::File;
use std::io::{BufWriter, Write};

use lookalike::data::{ReadOptions, Source, write_packed};
use lookalike::text::{TextFile, TextOptions, fit_dataset};

use crate::support::Folder;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Packs a file in every way in which it can come, and compares.
#[track_caller]
fn pack_every_way(folder: &Folder, name: &str, expected: &[u8]) {
    let plain = folder.read(name);
    folder.write("in.gz", gzip(&plain)).write("in.zst", zstd::encode_all(&plain[..], 1).unwrap());
    for input in [name, "in.gz", "in.zst"] {
        folder.succeed(&format!("data pack {input} --out packed"));
        assert!(folder.read("packed") == expected, "{input}");
        let done = folder.run_with_input("data pack - --out piped", &folder.read(input));
        assert_eq!(done.code, Some(0), "{input}: {}", done.errors);
        assert!(folder.read("piped") == expected, "{input} through a pipe");
    }
}

#[test]
fn rows_of_numbers_are_packed_as_they_were_in_memory() {
    let folder = Folder::with_numbers();
    let with_header = String::from_utf8(folder.read("made/train.txt")).unwrap();
    let (_, without) = with_header.split_once('\n').unwrap();
    // Several blocks, and sizes that only the last one knows.
    let long = without.repeat(9_000_000 / without.len()) + "\n\n81 400:1\n\n";
    for content in [with_header.as_str(), without, long.as_str()] {
        folder.write("in", content);
        let (source, _) = Source::load(&folder.path("in"), &ReadOptions::default()).unwrap();
        write_packed(&folder.path("whole"), source.view()).unwrap();
        pack_every_way(&folder, "in", &folder.read("whole"));
    }
    // What is packed already is packed again.
    folder.succeed("data pack packed --out again");
    assert!(folder.read("again") == folder.read("packed"));
    let refused = folder.refuse("data pack made --out x");
    assert!(refused.contains("made"), "{refused}");
    folder.write("bad", long + "1 x:1\n");
    let refused = folder.refuse("data pack bad --out x");
    let line = folder.read("bad").iter().filter(|&&byte| byte == b'\n').count();
    assert!(refused.contains(&format!("bad, line {line}, column 3: found `x:1`")), "{refused}");
}

#[test]
fn texts_are_packed_and_vectorised_as_they_were_in_memory() {
    let folder = Folder::new();
    let text: String = (0..120_000u32)
        .map(|i| format!("wort{} Straße{} 北京{}\tl{}|m{}\n", i % 977, i % 31, i % 7, i % 101, i % 13))
        .collect();
    folder.write("in", text);
    let file = TextFile::open(folder.path("in"), &lookalike::text::ReadOptions::default()).unwrap();
    let fitted = fit_dataset(&file, &TextOptions::default()).unwrap();
    write_packed(&folder.path("whole"), fitted.dataset.view()).unwrap();
    pack_every_way(&folder, "in", &folder.read("whole"));
    folder.succeed("data vectorise in --out numbers");
    lookalike::data::write_text(&folder.path("expected"), fitted.dataset.view()).unwrap();
    assert!(folder.read("numbers/train.txt") == folder.read("expected"));
    std::fs::create_dir(folder.path("again")).unwrap();
    fitted.vectoriser.save(&folder.path("again")).unwrap();
    assert!(folder.read("numbers/vocabulary.txt") == folder.read("again/vocabulary.txt"));
    let refused = folder.run_with_input("data pack - --out x", b"one\tx\ntwo\n");
    assert!(refused.code == Some(2) && refused.errors.contains("<stdin>:2"), "{}", refused.errors);
}

/// Rows whose arrays take 50 MB, in 80 of heap and stacks: held whole, which takes them twice,
/// they could not be packed.
#[cfg(target_os = "linux")]
#[test]
fn packing_takes_less_memory_than_the_packed_file() {
    let folder = Folder::new();
    let mut out = BufWriter::new(File::create(folder.path("in")).unwrap());
    let features: String = (0..50).map(|feature| format!(" {feature}:1")).collect();
    for i in 0..120_000u32 {
        writeln!(out, "{}{features}", i % 97).unwrap();
    }
    out.flush().unwrap();
    let done = folder.run_with_little_data("data pack in --out packed", 80_000);
    assert_eq!(done.code, Some(0), "{}", done.errors);
    assert!(std::fs::metadata(folder.path("packed")).unwrap().len() > 49_000_000);
}
