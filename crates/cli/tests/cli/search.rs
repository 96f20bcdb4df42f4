//! How classes are found: `--search`, `--effort`, `--only`, `--threshold`.

use crate::support::Folder;

const CLASSES: usize = 2500;

/// A model with a search index, which small ones have not.
fn with_index() -> Folder {
    let folder = Folder::new();
    folder.succeed("data synth --classes 2500 --features 600 --train 5000 --test 60 --out made");
    folder.succeed("train made/train.txt --model model --epochs 1 --hidden 16 -q");
    folder
}

/// The answers of each example: classes and scores as they are printed.
fn answers(folder: &Folder, flags: &str) -> Vec<Vec<(String, String)>> {
    let out = folder.succeed(&format!("predict model made/test.txt {flags}")).out;
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('\t').filter(|cell| !cell.is_empty()).collect();
        cells.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
    };
    out.lines().map(row).collect()
}

#[test]
fn classes_that_are_found_have_their_scores() {
    let folder = with_index();
    let all = answers(&folder, &format!("--top-k {CLASSES}"));
    let exact = answers(&folder, "");
    assert!(all.iter().zip(&exact).all(|(all, exact)| all[..5] == exact[..]));
    assert_eq!(answers(&folder, "--search fast --effort 2500"), exact);
    for flags in ["--search fast", "--search fast --effort 100"] {
        for (found, all) in answers(&folder, flags).iter().zip(&all) {
            assert_eq!(found.len(), 5, "{flags}");
            assert!(found.iter().all(|answer| all.contains(answer)), "{flags}: {found:?}");
        }
    }
    let measured = folder.succeed("evaluate model made/test.txt --search fast --effort 100 --json").json();
    let recall = measured["recall-of-search"].as_f64().unwrap();
    assert!((50.0..=100.0).contains(&recall), "{recall}");
    let exact = folder.succeed("evaluate model made/test.txt --json").json();
    assert!(exact["recall-of-search"].is_null() && exact["P@1"].is_number());
    assert!(folder.succeed("inspect model").out.contains("of the best five"));
}

#[test]
fn answers_are_of_given_classes_and_at_least_so_good() {
    let folder = with_index();
    folder.write("some.txt", "7\n1200\n\n3\n");
    let all = answers(&folder, &format!("--top-k {CLASSES}"));
    for search in ["", "--search fast"] {
        for (found, all) in answers(&folder, &format!("--only some.txt {search}")).iter().zip(&all) {
            let wanted = all.iter().filter(|(class, _)| ["7", "1200", "3"].contains(&class.as_str()));
            assert_eq!(*found, wanted.cloned().collect::<Vec<_>>());
        }
    }
    let value = |answer: &(String, String)| answer.1.parse::<f32>().unwrap();
    let threshold = value(&all[0][1]);
    let found = answers(&folder, &format!("--top-k 50 --threshold {threshold}"));
    assert_eq!(found[0].len(), 2);
    for (found, all) in found.iter().zip(&all) {
        let wanted = all.iter().take(50).filter(|answer| value(answer) >= threshold);
        assert_eq!(*found, wanted.cloned().collect::<Vec<_>>());
    }
}

#[test]
fn what_can_not_be_searched_for_is_refused() {
    let folder = with_index();
    folder.write("some.txt", "7\n2500\n").write("none.txt", "\n");
    for (flags, said) in [
        ("--only some.txt", "2500"),
        ("--only none.txt", "none.txt"),
        ("--only missing.txt", "missing.txt"),
        ("--search psychic", "psychic"),
        ("--search fast --effort 0", "effort"),
        ("--threshold much", "much"),
    ] {
        let done = folder.run(&format!("predict model made/test.txt {flags}"));
        assert!(done.code.is_some_and(|code| code > 0), "{flags}");
        assert!(done.errors.contains(said) && done.out.is_empty(), "{flags}: {}", done.errors);
    }
}
