use super::*;

fn small() -> Chart {
    Chart::new("Small", Axis::linear("x"), Axis::linear("y"))
        .series(Series::line("a", [(0.0, 0.0, 0.0, 1.0), (10.0, 5.0, 4.0, 6.0)]))
        .series(Series::scatter("b", [(5.0, 2.0)]))
}

/// The text between `start` and the next `end`.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let from = text.find(start).expect("start is there") + start.len();
    &text[from..from + text[from..].find(end).expect("end is there")]
}

#[test]
fn each_series_has_its_own_group_and_path() {
    let svg = small().to_svg();
    assert_eq!(svg.matches("class=\"series ").count(), 2);
    assert_eq!(svg.matches("class=\"line\"").count(), 1);
    assert_eq!(svg.matches("class=\"band\"").count(), 1);
    assert_eq!(svg, small().to_svg());
}

#[test]
fn a_line_runs_from_corner_to_corner() {
    let chart = Chart::new("", Axis::linear("").range(0.0, 1.0), Axis::linear("").range(0.0, 1.0))
        .series(Series::line("a", [(0.0, 0.0), (1.0, 1.0)]));
    let svg = chart.to_svg();
    let path = between(&svg, "<path class=\"line\" d=\"", "\"");
    let axis = between(&svg, "<path class=\"ground\"", "></path>");
    let axis = between(axis, "d=\"", "\"");
    // The axis is "M left bottom H right"; the line starts at its left end and ends above its right.
    let (start, right) = axis.split_once('H').expect("a horizontal line");
    assert!(path.starts_with(&format!("{start}L{right} ")), "{path} on {axis}");
}

#[test]
fn gaps_split_a_line_and_lone_points_are_seen() {
    let chart = Chart::new("", Axis::linear(""), Axis::linear(""))
        .series(Series::line("a", [(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 3.0)]));
    let svg = chart.to_svg();
    let path = between(&svg, "<path class=\"line\" d=\"", "\"");
    assert_eq!(path.matches('M').count(), 2);
    assert_eq!(svg.matches("<circle").count(), 1);
}

#[test]
fn a_log_axis_leaves_out_what_is_not_positive() {
    let chart = Chart::new("", Axis::log(""), Axis::log(""))
        .series(Series::line("a", [(0.0, 1.0), (1.0, 10.0), (10.0, 100.0), (100.0, -1.0)]));
    let svg = chart.to_svg();
    let path = between(&svg, "<path class=\"line\" d=\"", "\"");
    assert_eq!(path.matches('L').count(), 1);
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn odd_data_is_drawn_without_nonsense() {
    let axes = [Axis::linear("x"), Axis::log("x"), Axis::categories("x", ["one"])];
    let odd = [0.0, -1.0, 1e300, 1e-300, f64::NAN, f64::INFINITY, 1e99, 7.0];
    for x in &axes {
        for y in &axes[..2] {
            for value in odd {
                let svg = Chart::new("t", x.clone(), y.clone())
                    .series(Series::line("l", [(value, value, f64::NAN, value), (1.0, value, 0.0, 0.0)]))
                    .series(Series::scatter("s", [(value, 1.0)]))
                    .series(Series::bars("b", [Bar { from: value, to: 1.0, value }]))
                    .series(Series::bars_by_category("c", [value, value]))
                    .to_svg();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{value}: {svg}");
            }
        }
    }
    let empty = Chart::new("t", Axis::log("x"), Axis::linear("y")).to_svg();
    assert!(empty.contains("No data"));
}

#[test]
fn seeds_become_a_mean_and_a_band() {
    let runs = [vec![(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)], vec![(3.0, 14.0), (4.0, 22.0)]];
    let Marks::Line(points) = Series::over_seeds("a", &runs).marks else {
        panic!("a line");
    };
    let expected: [Point; 2] = [(2.0, 12.0, 10.0, 14.0).into(), (3.0, 21.0, 20.0, 22.0).into()];
    assert_eq!(points, expected);
    let Marks::Line(none) = Series::over_seeds("a", &[]).marks else {
        panic!("a line");
    };
    assert!(none.is_empty());
}

#[test]
fn label_counts_fall_into_doubling_bins() {
    let series = Series::frequency_histogram("labels", [0, 1, 1, 2, 3, 4, 7, 8, u64::MAX]);
    let Marks::Bars(bars) = series.marks else {
        panic!("bars");
    };
    let heights: Vec<(f64, f64)> = bars.iter().map(|bar| (bar.from, bar.value)).collect();
    let last = 2f64.powi(63);
    assert_eq!(heights, [(1.0, 2.0), (2.0, 2.0), (4.0, 2.0), (8.0, 1.0), (last, 1.0)]);
}

#[test]
fn a_curve_over_many_labels_stays_small() {
    let points = (1..=670_091u32).map(|rank| (f64::from(rank), 1e6 / f64::from(rank)));
    let chart =
        Chart::new("", Axis::log("rank"), Axis::log("examples")).series(Series::line("labels", points));
    assert!(chart.to_svg().len() < 40_000);
}

#[test]
fn what_a_fixed_range_cuts_off_does_not_answer() {
    let chart = Chart::new("", Axis::linear("").range(0.0, 1.0), Axis::linear("").range(0.0, 1.0))
        .series(Series::line("a", [(0.5, 0.5), (0.6, 7.0), (3.0, 0.5)]));
    let (_, hover) = embedded(&chart, Size::WIDE, "id");
    let json = serde_json::to_string(&hover).expect("plain data");
    assert_eq!(json.matches("\"0.5\",\"0.5\"").count(), 1);
    assert!(!json.contains("\"7\"") && !json.contains("\"3\""));
}

#[test]
fn hostile_names_stay_text() {
    let hostile = "</svg><script>alert(1)</script>\u{1}\"&";
    let svg = Chart::new(hostile, Axis::categories(hostile, [hostile]), Axis::linear(hostile))
        .series(Series::bars_by_category(hostile, [1.0]))
        .series(Series::bars_by_category(hostile, [2.0]))
        .to_svg();
    assert!(!svg.contains("<script") && !svg.contains('\u{1}'));
    assert_eq!(svg.matches("</svg>").count(), 1);
}

#[test]
fn the_numbers_of_a_chart_can_be_had_as_a_table() {
    assert_eq!(small().to_table().to_csv(), "series,x,y,low,high\na,0,0,0,1\na,10,5,4,6\nb,5,2,,\n");
}

#[test]
fn the_drawing_is_the_one_we_looked_at() {
    let golden = include_str!("golden.svg");
    assert_eq!(small().to_svg(), golden.trim_end());
}
