//! What the demo prints and writes.

use std::path::Path;

use lookalike_report::{Axis, Cell, Chart, Column, Format, Page, Section, Series, Table, human};

use super::{Answer, Cities, Run};

/// The share of full softmax's last P@1 that counts as "there".
const GOAL: f64 = 0.9;

/// Full softmax's last P@1, times [`GOAL`].
fn goal(runs: &[Run]) -> f64 {
    runs.last().map_or(0.0, |full| GOAL * full.last().p1)
}

/// What a person must know to read the table.
pub(super) const TABLE_NOTE: &str = "\
P@1: percent of names whose first prediction is right. P@5: percent of five predictions that
are right; a name of one city can give 20 at most. Times are training alone.";

/// One line a method.
pub(super) fn table(runs: &[Run]) -> Table {
    let goal = goal(runs);
    let mut table = Table::new(format!(
        "Held-out names, after {} epochs",
        runs.last().map_or(0, |run| run.record.progress.epoch)
    ))
    .column(Column::text("Method"))
    .column(
        Column::number("P@1", Format::Fixed(1))
            .highest_is_best()
            .hint("Of all names, those whose first prediction is right, in percent."),
    )
    .column(Column::number("P@5", Format::Fixed(1)).highest_is_best().hint(
        "Of five predictions, those that are right; most names have one city, so 20 is about the most.",
    ))
    .column(
        Column::number("90% of full softmax", Format::Seconds)
            .lowest_is_best()
            .hint(format!("Training time until P@1 is {goal:.1}, 90% of full softmax's last.")),
    )
    .column(
        Column::number("an epoch", Format::Seconds)
            .lowest_is_best()
            .hint("Training time; evaluation is not counted."),
    );
    for run in runs {
        let until = run.seconds_until(goal).map_or(Cell::from("not reached"), Cell::from);
        let last = run.last();
        table.push_row([run.name.into(), last.p1.into(), last.p5.into(), until, run.epoch_seconds().into()]);
    }
    table
}

/// Held-out names with their predictions.
pub(super) fn answers_table(run: &Run, answers: &[Answer]) -> Table {
    let mut table = Table::new(format!("Five names that {} never saw", run.name))
        .column(Column::text("Name"))
        .column(Column::text("City"))
        .column(Column::text("Predicted (probability)"))
        .column(Column::text(""));
    for answer in answers {
        let predictions: Vec<String> =
            answer.predictions.iter().map(|(city, p)| format!("{city} ({p:.2})")).collect();
        let verdict = if answer.is_right() { "right" } else { "wrong" };
        let city = answer.truth.join(" | ");
        table.push_row([
            answer.name.as_str().into(),
            city.into(),
            predictions.join("; ").into(),
            verdict.into(),
        ]);
    }
    table
}

/// The report.
pub(super) fn page(runs: &[Run], best: usize, answers: &[Answer], cities: &Cities) -> Page {
    let config = &runs[best].record.config;
    let train = cities.train.dataset.view();
    let mut chart = Chart::new(
        "P@1 against training time",
        Axis::linear("training time").format(Format::Seconds),
        Axis::linear("P@1 on held-out names, %").format(Format::Fixed(1)),
    )
    .caption("A point an evaluation. Time spent on evaluation is not counted.");
    for run in runs {
        let start = [(0.0, 0.0)].into_iter();
        chart.push(Series::line(run.name, start.chain(run.curve.iter().map(|p| (p.train_seconds, p.p1)))));
    }
    Page::new("Which city is it?")
        .lead(
            "Names of cities in all languages and scripts, learnt in four ways. All four train the same \
             network with the same batches; they differ in the cities that a name is told apart from: all \
             of them (full softmax), some drawn by frequency (sampled softmax), or those that the model \
             takes for alike at the moment, found in hash tables (LSH Embedding and LSH Label).",
        )
        .fact("Cities", human::count(train.num_classes as u64))
        .fact("Names to learn from", human::count(train.len() as u64))
        .fact("Held-out names", human::count(cities.test_names.len() as u64))
        .fact("Features", human::count(train.num_features as u64))
        .fact("Negatives a name", human::count(config.budget.unwrap_or(0) as u64))
        .section(Section::new("Accuracy and time").chart(chart).table(table(runs)))
        .section(Section::new("Names it never saw").table(answers_table(&runs[best], answers)))
        .foot("Command", "`lookalike demo`")
        .foot("Version", format!("lookalike {}", env!("CARGO_PKG_VERSION")))
        .foot(
            "Settings",
            format!(
                "hidden {:?}, batch {}, learning rate {} falling to zero, {} epochs, seed {}",
                config.hidden, config.batch, config.lr, config.epochs, config.seed
            ),
        )
        .foot(
            "Data",
            "GeoNames (geonames.org), licensed under CC BY 4.0; cities selected, names normalised and split",
        )
}

/// Commands that work now.
pub(super) fn what_next(model: &Path) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "lookalike".into());
    let model = model.display();
    format!(
        "
What to type next:
  echo Muenchen | {program} predict {model} - --probabilities
  {program} inspect {model} --class Munich
  {program} inspect {model} --text Muenchen
"
    )
}
