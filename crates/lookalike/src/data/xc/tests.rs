use super::*;

fn read(text: &str) -> Result<Dataset, DataError> {
    let (data, report) = parse("f", text.as_bytes(), &ReadOptions::default())?;
    assert_eq!(report.bad_rows, 0);
    assert_eq!(data.view().check_law(), Ok(()));
    Ok(data)
}

fn message(text: &str) -> String {
    read(text).expect_err(text).to_string()
}

/// Labels and feature ids of each example.
fn rows(data: &Dataset) -> Vec<(Vec<u32>, Vec<u32>)> {
    let view = data.view();
    (0..view.len()).map(|i| (view.labels(i).to_vec(), view.features(i).0.to_vec())).collect()
}

#[test]
fn with_and_without_header_line_ends_and_byte_order_mark() {
    let body = "1,3 0:0.5 4:1\n 2:1\n3\n";
    let without = read(body).unwrap();
    assert_eq!((without.num_features, without.num_classes), (5, 4));
    let with = read(&format!("3 10 20\n{body}")).unwrap();
    assert_eq!((with.num_features, with.num_classes), (10, 20));
    assert_eq!(rows(&with), rows(&without));
    assert_eq!(rows(&with), [(vec![1, 3], vec![0, 4]), (vec![], vec![2]), (vec![3], vec![])]);
    for variant in [
        format!("3 10 20\r\n{}", body.replace('\n', "\r\n")),
        format!("\u{FEFF}3 10 20\n{body}"),
        format!("3 10 20 \n{}", body.trim_end()),
        format!("3 10 20\n{body}\n\r\n\n"),
        format!("3\t10  20\n{body}"),
    ] {
        assert_eq!(read(&variant).unwrap(), with, "{variant:?}");
    }
}

#[test]
fn empty_lines_are_examples_as_far_as_the_header_asks() {
    assert_eq!(rows(&read("1 0:1\n\n2 0:1\n\n\n").unwrap()).len(), 3);
    assert_eq!(rows(&read("4 1 3\n1 0:1\n\n2 0:1\n\n\n").unwrap()).len(), 4);
    assert_eq!(rows(&read("2 1 3\n\n\n").unwrap()).len(), 2);
    assert_eq!(rows(&read("0 1 3\n").unwrap()).len(), 0);
    assert_eq!(rows(&read("0 1 3").unwrap()).len(), 0);
    assert_eq!(rows(&read("1 1 3\n \n").unwrap()), [(vec![], vec![])]);
}

#[test]
fn messages_carry_place_finding_and_expectation() {
    for (text, wanted) in [
        ("", "f, line 1, column 1: the file is empty"),
        ("\n\r\n", "the file is empty"),
        ("1 0:1\n1 0:abc\n", "f, line 2, column 5: found `abc`; expected a decimal number"),
        ("1 0:1\r\n1 0:1 zwölf\r\n", "f, line 2, column 7: found `zwölf`; expected `feature:value`"),
        ("1 0:1\n1,x 0:1\n", "f, line 2, column 3: found `x`; expected a label"),
        ("1 0:1\n1 0:nan\n", "line 2, column 5: found `nan`; expected a finite number"),
        ("1 0:1\n1 0:-inf\n", "line 2, column 5: found `-inf`; expected a finite number"),
        ("1 0:1\n-1 0:1\n", "line 2, column 1: found `-1`; expected a label from 0"),
        ("1 0:1\n1 -2:1\n", "line 2, column 3: found `-2:1`; expected a feature from 0"),
        (
            "1 5 5\n5 0:1\n",
            "line 2, column 1: found `5`; expected a label below 5, because the header declares 5 classes",
        ),
        ("1 5 9\n5 5:1\n", "line 2, column 3: found `5:1`; expected a feature below 5, because the header"),
        (
            "4294967295 0:1\n",
            "found `4294967295`; expected a label below 4294967295, because ids have 32 bits",
        ),
        ("1 1:1 0:1 1:2\n", "line 1, column 11: found `1:2`; the second time in this row"),
        ("1 4: 2\n", "column 5: found a space; expected a decimal number"),
        ("1 4:\n", "column 5: found the end of the line; expected a decimal number"),
        ("2 5 5\n1 0:1\n", "f, line 3, column 1: found the end of the file after 1 examples, expected 2"),
        ("1 5 5\n1 0:1\n2 0:1\n3 0:1", "f, line 3, column 1: found example 2 of 3, expected 1"),
        ("3 99999999999 5\n1 0:1\n", "f, line 1, column 1: found a header of `3 99999999999 5`"),
        ("12 34\n", "line 1, column 4: found `34`; expected `feature:value`"),
        ("\0\u{1}binary", "found `\\0\\u{1}binary`; expected a label"),
    ] {
        let found = message(text);
        assert!(found.contains(wanted), "{text:?} gave {found:?}, expected {wanted:?}");
    }
}

#[test]
fn a_long_word_is_shown_in_part() {
    let found = message(&format!("1 0:{}\n", "y".repeat(1000)));
    assert!(found.contains(&format!("`{}…`", "y".repeat(40))) && found.len() < 200, "{found}");
}

#[test]
fn a_line_past_the_limit_is_refused_or_skipped() {
    let mut text = b"1 0:1\n2".to_vec();
    text.resize(LINE_BYTES_MAX + 10, b' ');
    text.extend_from_slice(b"\n3 0:1\n");
    let error = parse("f", &text, &ReadOptions::default()).unwrap_err().to_string();
    assert!(
        error.starts_with("f, line 2, column 67108865: found no line end; expected a line end within 64 MiB"),
        "{error}"
    );
    let skip = ReadOptions { skip_bad_rows: true, ..Default::default() };
    let (data, report) = parse("f", &text, &skip).unwrap();
    assert_eq!((rows(&data).len(), report.bad_rows), (2, 1));
}

#[test]
fn bad_rows_are_skipped_counted_and_shown() {
    let text: String =
        (0..100).map(|i| if i % 10 == 3 { "oops\n".into() } else { format!("{i} {i}:1\n") }).collect();
    let skip = ReadOptions { skip_bad_rows: true, ..Default::default() };
    let (data, report) = parse("f", format!("100 100 100\n{text}").as_bytes(), &skip).unwrap();
    assert_eq!(data.view().len(), 90);
    assert_eq!(report.bad_rows, 10);
    assert!(report.notes.is_empty());
    assert_eq!(report.first_errors.len(), FIRST_ERRORS_MAX);
    let lines: Vec<String> = report.first_errors.iter().map(|e| e.to_string()).collect();
    assert!(
        lines[0].starts_with("f, line 5, column 1: found `oops`") && lines[4].contains("line 45"),
        "{lines:?}"
    );
    let (_, report) = parse("f", format!("7 100 100\n{text}").as_bytes(), &skip).unwrap();
    assert!(report.notes[0].contains("found example 8 of 100, expected 7"), "{:?}", report.notes);
}

#[test]
fn the_model_sets_sizes_and_limits() {
    let model = ReadOptions { num_features: Some(4), num_classes: Some(3), ..Default::default() };
    let (data, report) = parse("f", b"1 9 9\n2 3:1\n", &model).unwrap();
    assert_eq!((data.num_features, data.num_classes, report.notes.len()), (4, 3, 2));
    let (data, report) = parse("f", b"1 2 2\n1 1:1\n", &model).unwrap();
    assert_eq!((data.num_features, data.num_classes, report.notes.len()), (4, 3, 0));
    let error = |text: &[u8]| parse("f", text, &model).unwrap_err().to_string();
    assert!(error(b"1 9 9\n2 4:1\n").contains(
        "line 2, column 3: found `4:1`; expected a feature below 4, because the model has 4 features"
    ));
    assert!(error(b"3 1:1\n").contains("expected a label below 3, because the model has 3 classes"));
    assert!(error(b"1 2 2\n1 3:1\n").contains("because the header declares 2 features"));
}

#[test]
fn pieces_join_to_the_same_whole_and_the_first_error_wins() {
    // Several pieces, with rows longer than a piece among them.
    let mut text = String::new();
    let mut expected = Vec::new();
    for i in 0..60_000u32 {
        text.push_str(&format!("{} {}:0.25 {}:1.5\n", i % 977, i, i + 1));
        expected.push((vec![i % 977], vec![i, i + 1]));
        if i % 20_000 == 7 {
            let ids: Vec<u32> = (0..200_000).collect();
            text.push(' ');
            text.extend(ids.iter().map(|id| format!("{id}:1 ")));
            text.push('\n');
            expected.push((vec![], ids));
        }
    }
    assert!(text.len() > 5 * PIECE_BYTES);
    let data = read(&text).unwrap();
    assert!(rows(&data) == expected);
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert!(pool.install(|| read(&text)).unwrap() == data);
        let broken = text.replace("59999:0.25", "59999:?").replace("30123:0.25", "30123:!");
        let error = pool.install(|| message(&broken));
        assert!(error.contains("found `!`") && error.contains("line 30126"), "{error}");
    }
}
