//! Writes a page with invented but realistic numbers, for the browser tests and for looking at:
//!
//! ```sh
//! cargo run -p lookalike-report --example sample_page -- sample.html
//! ```
//!
//! A second argument names a file for the first chart's SVG.

use lookalike_report::{Axis, Cell, Chart, Column, Format, Page, Section, Series, Table, human};

/// A method as it might come out: final P@1, seconds an epoch, how fast it learns, steps it needs.
struct Method {
    name: &'static str,
    final_precision: f64,
    epoch_seconds: f64,
    epochs_to_half: f64,
    epochs_to_most: Option<f64>,
}

const METHODS: [Method; 7] = [
    method("Full softmax", 37.5, 2310.0, 2.0, Some(6.0)),
    method("LSH Embedding", 36.1, 210.0, 2.0, Some(6.0)),
    method("LSH Label", 35.5, 224.0, 2.0, Some(8.0)),
    method("Top-k softmax", 37.2, 2100.0, 2.0, Some(5.0)),
    method("Frequency softmax", 34.0, 125.5, 5.0, Some(41.0)),
    method("Sampled softmax", 32.4, 110.0, 8.0, None),
    method("NCE", 31.8, 112.7, 5.0, None),
];

const fn method(
    name: &'static str,
    final_precision: f64,
    epoch_seconds: f64,
    epochs_to_half: f64,
    epochs_to_most: Option<f64>,
) -> Method {
    Method { name, final_precision, epoch_seconds, epochs_to_half, epochs_to_most }
}

impl Method {
    /// P@1 after some epochs: rises as a saturating curve, a little differently for every seed.
    fn precision(&self, epochs: f64, seed: u32) -> f64 {
        let wobble = (f64::from(seed) * 2.1 + epochs * 0.37 + self.epoch_seconds).sin();
        let rise = 1.0 - (-(epochs / self.epochs_to_half * 0.55).powf(0.85)).exp();
        self.final_precision * rise * (1.0 + 0.022 * wobble)
    }

    fn runs(&self, x_per_epoch: f64) -> Vec<Vec<(f64, f64)>> {
        let run = |seed| {
            let speed = 1.0 + 0.02 * f64::from(seed);
            let evaluations = (1..=24).map(move |step| 0.25 * 1.25f64.powi(step));
            evaluations
                .map(|epochs| (epochs * x_per_epoch * speed, self.precision(epochs, seed).max(0.0)))
                .collect()
        };
        (0..3).map(run).collect()
    }
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "sample.html".into());
    if let Some(svg) = arguments.next() {
        std::fs::write(svg, precision_over_time().to_svg())?;
    }
    std::fs::write(&path, page().to_html())?;
    println!("{}", epochs_table().to_text());
    println!("written: {path}");
    Ok(())
}

fn page() -> Page {
    Page::new("Which sampler for amazon-670k?")
        .lead(
            "`LSH Embedding` reaches 90% of full softmax's final P@1 eleven times sooner, and ends \
             1.4 points below it. The static samplers are faster still in each epoch, but stop \
             learning earlier: two of them never get to 90%.",
        )
        .fact("Classes", human::count(670_091))
        .fact("Training examples", human::count(490_449))
        .fact("Features", human::count(135_909))
        .fact("Seeds", "3")
        .fact("Training time, all runs", human::seconds(131_400.0))
        .section(
            Section::new("Accuracy and time")
                .prose(
                    "Every method trains the same network with the same batches; only the choice \
                     of negative classes differs. Time spent on evaluation is not counted.",
                )
                .chart(precision_over_time())
                .charts([precision_over_iterations(), time_per_epoch()]),
        )
        .section(
            Section::new("Epochs until it is good")
                .prose("The paper's Table 2, for this data.")
                .table(epochs_table()),
        )
        .section(
            Section::new("Time per epoch")
                .prose("The paper's Table 3, and beside it what the paper leaves out.")
                .table(time_table()),
        )
        .section(
            Section::new("The data")
                .prose(
                    "Few labels are common and most are rare. Sampling negatives by frequency fits \
                     such data; where labels are uniform it has nothing to go by.",
                )
                .charts([label_frequency(), label_rank()]),
        )
        .foot("Command", "`lookalike compare amazon-670k.txt --seeds 3 --time-budget 2h`")
        .foot("Machine", "2 cores, x86-64 with AVX-512, 8 GB")
        .foot("Version", "lookalike 0.1.0")
        .foot("Date", "1 March 2021, 12:00 UTC")
}

fn precision_over_time() -> Chart {
    METHODS.iter().fold(
        Chart::new(
            "P@1 against training time",
            Axis::log("training time, evaluation not counted").format(Format::Seconds),
            Axis::linear("P@1, %").format(Format::Fixed(1)),
        )
        .caption("Mean of three seeds; the bands reach from the lowest seed to the highest."),
        |chart, method| chart.series(Series::over_seeds(method.name, &method.runs(method.epoch_seconds))),
    )
}

fn precision_over_iterations() -> Chart {
    METHODS.iter().fold(
        Chart::new(
            "P@1 against iterations",
            Axis::linear("iterations").format(Format::Count),
            Axis::linear("P@1, %").format(Format::Fixed(1)),
        ),
        |chart, method| chart.series(Series::over_seeds(method.name, &method.runs(1916.0))),
    )
}

fn time_per_epoch() -> Chart {
    Chart::new(
        "Time per epoch",
        Axis::categories("", METHODS.map(|method| method.name)),
        Axis::linear("average time").format(Format::Seconds),
    )
    .series(Series::bars_by_category("time per epoch", METHODS.map(|method| method.epoch_seconds)))
}

fn epochs_table() -> Table {
    let mut table = Table::new("Epochs to a share of full softmax's final P@1")
        .column(Column::text("Method"))
        .column(Column::number("to 50%", Format::Count).lowest_is_best())
        .column(
            Column::number("to 90%", Format::Count)
                .lowest_is_best()
                .hint("Fail where it was not reached within 50 epochs"),
        )
        .column(Column::number("final P@1,\u{a0}%", Format::Fixed(1)).highest_is_best());
    for (place, method) in METHODS.iter().enumerate() {
        let mean = method.final_precision;
        let deviation = 0.1 + 0.05 * place as f64;
        table.push_row([
            method.name.into(),
            method.epochs_to_half.into(),
            method.epochs_to_most.map_or("Fail".into(), Cell::from),
            Cell::Spread { mean, deviation },
        ]);
    }
    table
}

fn time_table() -> Table {
    let mut table =
        Table::new("Speed, precision and what they buy")
            .column(Column::text("Method"))
            .column(Column::number("Time per epoch", Format::Seconds).lowest_is_best())
            .column(
                Column::number("Faster by", Format::Times)
                    .highest_is_best()
                    .hint("average time of an epoch of full softmax, divided by the method's"),
            )
            .column(Column::number("P@1,\u{a0}%", Format::Fixed(1)).highest_is_best())
            .column(
                Column::number("P@5,\u{a0}%", Format::Fixed(1))
                    .highest_is_best()
                    .hint("hits among the first five, divided by five"),
            )
            .column(Column::number("P@5 capped,\u{a0}%", Format::Fixed(1)).highest_is_best().hint(
                "divided by five or the number of true labels, whichever is less; the paper's definition",
            ))
            .column(Column::number("Time to 90%", Format::Seconds).lowest_is_best())
            .column(Column::number("P@1 after 30 min", Format::Fixed(1)).highest_is_best());
    for method in &METHODS {
        table.push_row([
            method.name.into(),
            method.epoch_seconds.into(),
            (METHODS[0].epoch_seconds / method.epoch_seconds).into(),
            method.final_precision.into(),
            (method.final_precision * 0.86).into(),
            (method.final_precision * 0.9).into(),
            method.epochs_to_most.map_or("Fail".into(), |epochs| (epochs * method.epoch_seconds).into()),
            method.precision(1800.0 / method.epoch_seconds, 0).into(),
        ]);
    }
    table
}

/// How often the label of each rank is seen: a power law, as in most data of this kind.
fn label_counts() -> impl Iterator<Item = u64> {
    (1..=670_091u32).map(|rank| (1826.0 / f64::from(rank).powf(0.52)).floor().max(1.0) as u64)
}

fn label_frequency() -> Chart {
    Chart::new(
        "How many labels are how common",
        Axis::log("examples of a label").format(Format::Count),
        Axis::log("labels").format(Format::Count),
    )
    .series(Series::frequency_histogram("labels", label_counts()))
}

fn label_rank() -> Chart {
    let ranked = label_counts().enumerate();
    Chart::new(
        "Examples of each label, most common first",
        Axis::log("rank of the label").format(Format::Count),
        Axis::log("examples").format(Format::Count),
    )
    .series(Series::line("labels", ranked.map(|(rank, count)| (rank as f64 + 1.0, count as f64))))
    .series(Series::scatter("labels of the examples", [(100.0, 167.0), (10_000.0, 16.0)]))
}
