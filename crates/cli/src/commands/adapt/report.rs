//! The report on adaptivity: the paper's picture, and the numbers behind it.

use lookalike::data::DataFingerprint;
use lookalike::experiment::Method;
use lookalike::experiment::adapt::{AdaptOptions, Adaptivity, Moment};
use lookalike::train::TrainConfig;
use lookalike_report::{Axis, Chart, Column, Format, Page, Section, Series, Table, human};
use serde::Serialize;

use crate::commands::experiment::output::{Origin, Output, settings_section};

/// The look of the true distribution; samplers look as in a comparison.
const TRUTH_STYLE: usize = 0;

/// Everything a report is made from, and what `results.json` holds.
#[derive(Serialize)]
pub(super) struct Adaptation<'a> {
    pub(super) name: String,
    pub(super) data: DataFingerprint,
    pub(super) origin: Origin,
    pub(super) settings: &'a TrainConfig,
    pub(super) options: &'a AdaptOptions,
    pub(super) snapshots: &'a [Moment],
}

impl Adaptation<'_> {
    /// Writes the whole folder.
    pub(super) fn write(&self, output: &Output) -> anyhow::Result<()> {
        let table = self.table();
        let data = format!("{}, {} training examples", self.name, human::count(self.data.examples as u64));
        let note = self.origin.markdown(&data, &[self.settings.seed]);
        output.write_tables(&[("adaptivity", &table)])?;
        output.write("tables.md", &format!("{}\n{note}", table.to_markdown()))?;
        output.write_json("results.json", self)?;
        let pictures = self.pictures();
        for (picture, name) in pictures.iter().zip(["distribution-start", "distribution-later"]) {
            output.write_charts(&[(name, picture)])?;
        }
        let trends = self.trends();
        for (name, chart) in &trends {
            output.write_charts(&[(name, chart)])?;
        }
        output.write("report.html", &self.page(table, pictures, trends).to_html())
    }

    fn page(&self, table: Table, pictures: Vec<Chart>, trends: Vec<(&str, Chart)>) -> Page {
        let count = |n: usize| human::count(n as u64);
        let budget = self.snapshots.first().map_or(0, |snapshot| snapshot.budget);
        let mut page = Page::new(format!("Do samplers follow the model on {}?", self.name));
        if let Some(sentence) = self.answer() {
            page = page.lead(sentence);
        }
        page = page
            .fact("Classes", count(self.data.classes))
            .fact("Negatives a draw", count(budget))
            .fact("Examples looked at", count(self.options.inputs))
            .fact("Draws for each", count(self.options.draws));
        let picture = Section::new("The picture")
            .prose(
                "The classes of each example are ranked by their true probability as negatives; the \
                 line `true softmax` is that probability, the others are the share of a sampler's \
                 draws that goes to a class of that rank, all averaged over examples. A sampler that \
                 follows the model bends with it; a fixed one stays as it is.",
            )
            .charts(pictures);
        let mut numbers = Section::new("The numbers").prose(
            "Mass covered: the true probability of all negatives of a draw that are trained on, \
             together. Rank correlation: Spearman's, between a class's true probability and how \
             often it is among them.",
        );
        let mut trends = trends.into_iter().map(|(_, chart)| chart);
        if let Some(mass) = trends.next() {
            numbers = numbers.chart(mass);
        }
        page = page
            .section(picture)
            .section(numbers.charts(trends).table(table))
            .section(settings_section(self.settings, &[]));
        self.origin.foot(page)
    }

    /// One sentence: the best hashing sampler against the best fixed one, at the end.
    fn answer(&self) -> Option<String> {
        let last = self.snapshots.last()?;
        let best = |wanted: &dyn Fn(&Adaptivity) -> bool| {
            let some = last.samplers.iter().filter(|one| wanted(one));
            some.max_by(|a, b| a.mass_covered.total_cmp(&b.mass_covered))
        };
        let hashed = best(&|one| one.sampler.uses_tables())?;
        let fixed = best(&|one| !one.sampler.uses_tables() && one.sampler.name() != "top-k")?;
        let percent = |value: f64| Format::Percent(1).write(value);
        Some(format!(
            "After {} iterations, the negatives of {} cover {} of the true probability, those of {}, \
             the best fixed distribution, {}.",
            human::count(last.iteration),
            title(hashed),
            percent(hashed.mass_covered),
            title(fixed),
            percent(fixed.mass_covered)
        ))
    }

    pub(super) fn table(&self) -> Table {
        let mut table = Table::new("Samplers against the true distribution of negatives")
            .column(Column::number("iteration", Format::Count))
            .column(Column::text("Sampler"))
            .column(Column::number("mass covered", Format::Percent(1)))
            .column(Column::number("rank correlation", Format::Fixed(3)))
            .column(
                Column::number("negatives", Format::Fixed(1)).hint("negatives of a draw that are trained on"),
            );
        for snapshot in self.snapshots {
            for one in &snapshot.samplers {
                table.push_row([
                    snapshot.iteration.into(),
                    title(one).into(),
                    one.mass_covered.into(),
                    one.rank_correlation.into(),
                    one.negatives_mean.into(),
                ]);
            }
        }
        table
    }

    /// The first snapshot and the last, on the same axes.
    fn pictures(&self) -> Vec<Chart> {
        let (Some(first), Some(last)) = (self.snapshots.first(), self.snapshots.last()) else {
            return Vec::new();
        };
        let shown = if first == last { vec![first] } else { vec![first, last] };
        let values = shown.iter().flat_map(|snapshot| {
            let samplers = snapshot.samplers.iter().flat_map(|one| &one.by_rank);
            snapshot.truth_by_rank.iter().chain(samplers)
        });
        let positive = values.copied().filter(|&x| x > 0.0);
        let (low, high) = positive.fold((1.0, 1e-12), |(l, h): (f64, f64), x| (l.min(x), h.max(x)));
        // Far below what a uniform draw gives, lines only show their noise.
        let low = low.max(1e-3 / self.data.classes as f64);
        let draw = |snapshot: &Moment| {
            let title = match snapshot.iteration {
                0 => "Before training".into(),
                iteration => format!("After {} iterations", human::count(iteration)),
            };
            let mut chart = Chart::new(
                title,
                Axis::log("rank of the class by true probability").format(Format::Count),
                Axis::log("share of a class").range(low / 1.5, high * 1.5),
            );
            let line = |values: &[f64]| -> Vec<(f64, f64)> {
                let middle = |place: usize| {
                    let range = snapshot.ranks[place];
                    ((range.first * range.last) as f64).sqrt()
                };
                let seen = values.iter().enumerate().filter(|(_, value)| **value > 0.0);
                seen.map(|(place, &value)| (middle(place), value)).collect()
            };
            chart.push(Series::line("true softmax", line(&snapshot.truth_by_rank)).style(TRUTH_STYLE));
            for one in &snapshot.samplers {
                chart.push(Series::line(self::title(one), line(&one.by_rank)).style(style(one)));
            }
            chart
        };
        shown.into_iter().map(draw).collect()
    }

    /// Each number against iterations.
    fn trends(&self) -> Vec<(&'static str, Chart)> {
        type Value = fn(&Adaptivity) -> Option<f64>;
        let wanted: [(&str, &str, Format, Value); 2] = [
            ("mass-covered", "Probability mass covered", Format::Percent(1), |one| Some(one.mass_covered)),
            ("rank-correlation", "Rank correlation", Format::Fixed(2), |one| one.rank_correlation),
        ];
        let chart = |(name, title, format, value): (&'static str, &str, Format, Value)| {
            let x = Axis::linear("iterations").format(Format::Count);
            let mut chart = Chart::new(title, x, Axis::linear(title.to_lowercase()).format(format));
            for (place, sampler) in self.options.samplers.iter().enumerate() {
                let points = self.snapshots.iter().filter_map(|snapshot| {
                    Some((snapshot.iteration as f64, value(&snapshot.samplers[place])?))
                });
                let method = Method::Sampler(*sampler);
                chart.push(Series::line(method.title(), points.collect::<Vec<_>>()).style(method.place()));
            }
            (name, chart)
        };
        wanted.into_iter().map(chart).collect()
    }
}

fn title(one: &Adaptivity) -> &'static str {
    Method::Sampler(one.sampler).title()
}

fn style(one: &Adaptivity) -> usize {
    Method::Sampler(one.sampler).place()
}
