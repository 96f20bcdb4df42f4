//! An evaluation as a page: what was measured, and whether probabilities are true.

use lookalike::metrics::Reliability;
use lookalike::predict::Evaluation;
use lookalike_report::{Axis, Chart, Column, Format, Page, Section, Series, Table, human};

/// The whole page, of a model's name and a test file's.
pub(super) fn page(evaluation: &Evaluation, model: &str, test: &str) -> Page {
    let mut page = Page::new(format!("How good is {model} on {test}?"))
        .fact("Examples", human::count(evaluation.examples))
        .section(Section::new("Rankings").table(rankings(evaluation)));
    for (name, value) in evaluation.reliability.iter().filter_map(Reliability::values).flatten() {
        page = page.fact(name, Format::Fixed(4).write(value));
    }
    if let Some(reliability) = &evaluation.reliability {
        page = page.section(
            Section::new("Probabilities")
                .prose(
                    "First answers by the probability they were given: a point on the diagonal is true to its \
                     word. Below it answers are right less often than they say, above it more often.",
                )
                .chart(chart(reliability))
                .table(bins(reliability)),
        );
    }
    page
}

fn rankings(evaluation: &Evaluation) -> Table {
    let mut table =
        Table::new("").column(Column::text("Metric")).column(Column::number("Percent", Format::Fixed(2)));
    for (name, value) in evaluation.values.iter() {
        table.push_row([name.into(), value.into()]);
    }
    table
}

fn chart(reliability: &Reliability) -> Chart {
    let axis = |label: &str| Axis::linear(label).range(0.0, 1.0).format(Format::Fixed(2));
    let answers = reliability.bins().iter().filter(|bin| bin.answers > 0);
    let points = answers.map(|bin| (bin.probability(), bin.share_right()));
    Chart::new("Reliability", axis("Probability of the first answer"), axis("Share that is right"))
        .series(Series::line("As it should be", [(0.0, 0.0), (1.0, 1.0)]))
        .series(Series::line("Measured", points))
}

fn bins(reliability: &Reliability) -> Table {
    let mut table = Table::new("")
        .column(Column::number("Answers", Format::Count))
        .column(Column::number("Mean probability", Format::Fixed(3)))
        .column(Column::number("Share right", Format::Fixed(3)));
    for bin in reliability.bins().iter().filter(|bin| bin.answers > 0) {
        table.push_row([bin.answers.into(), bin.probability().into(), bin.share_right().into()]);
    }
    table
}
