//! A run's figures as tables for the terminal.

use std::fmt::Write;

use lookalike::model::Storage;
use lookalike_report::{Cell, Column, Format, Table, human};

use super::figures::{BenchReport, ContenderFigures, Ratio, StageFigures};
use super::machine::{Limits, Machine};
use super::shape::Sizes;

pub(crate) fn text(report: &BenchReport) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}", machine(&report.machine).to_text());
    let _ = writeln!(out, "{}", sizes(&report.sizes));
    for figures in &report.contenders {
        let _ = writeln!(out, "\n{}", stages(figures).to_text());
        let _ = writeln!(out, "{}", summary(figures));
    }
    if let Some(bytes) = report.peak_memory_bytes {
        let _ = writeln!(out, "peak memory {}", human::bytes(bytes as f64));
    }
    if !report.ratios.is_empty() {
        let _ = write!(out, "\n{}", ratios(&report.ratios, &report.contenders[0]).to_text());
    }
    out
}

pub(crate) fn threads(count: usize) -> String {
    if count == 1 { "1 thread".into() } else { format!("{count} threads") }
}

fn storage_name(storage: Storage) -> &'static str {
    match storage {
        Storage::F32 => "f32",
        Storage::Bf16 => "bf16",
    }
}

fn machine(machine: &Machine) -> Table {
    let title = format!(
        "This machine: {}, memory measured on {}",
        machine.cpu,
        human::bytes(machine.buffer_bytes as f64)
    );
    let (one, all) = (&machine.one_thread, &machine.all_threads);
    let measured = if all.threads == 1 { vec![one] } else { vec![one, all] };
    let row = |name: &str, of: fn(&Limits) -> f64| -> Vec<Cell> {
        let rates = measured.iter().map(|limits| (of(limits) / 1e9).into());
        std::iter::once(name.into()).chain(rates).collect()
    };
    let start = Table::new(title).column(Column::text("limit"));
    let columns = measured
        .iter()
        .fold(start, |table, limits| table.column(Column::number(threads(limits.threads), Format::Fixed(1))));
    columns
        .row(row("multiply-adds, GFLOP/s", |limits| limits.flops))
        .row(row("reading in order, GB/s", |limits| limits.streamed_bytes))
        .row(row("rows of 512 bytes at random, GB/s", |limits| limits.random_bytes))
}

fn sizes(sizes: &Sizes) -> String {
    let count = |n: usize| human::count(n as u64);
    format!(
        "{} classes, {} features; {:.1} features and {:.2} labels an example; batch {}, budget {}, \
         hidden {:?}, {:?}",
        count(sizes.classes),
        count(sizes.features),
        sizes.nonzeros_per_example,
        sizes.labels_per_example,
        count(sizes.batch),
        count(sizes.budget),
        sizes.hidden,
        sizes.storage,
    )
}

fn stages(figures: &ContenderFigures) -> Table {
    let title =
        format!("{}, {}, {}", figures.sampler, storage_name(figures.storage), threads(figures.threads));
    let mut table = Table::new(title)
        .column(Column::text("stage"))
        .column(Column::number("time", Format::Seconds))
        .column(Column::number("from", Format::Seconds))
        .column(Column::number("to", Format::Seconds))
        .column(Column::number("of step", Format::Percent(1)))
        .column(Column::number("GFLOP/s", Format::Fixed(1)))
        .column(Column::number("GB/s", Format::Fixed(1)))
        .column(Column::text("limit"))
        .column(Column::number("of limit", Format::Percent(0)));
    let step = figures.step_seconds;
    let row = |stage: &StageFigures, of_step: Option<f64>| -> [Cell; 9] {
        [
            stage.name.as_str().into(),
            stage.seconds.median.into(),
            stage.seconds.low.into(),
            stage.seconds.high.into(),
            of_step.into(),
            stage.gigaflops_per_second.into(),
            stage.gigabytes_per_second.into(),
            stage.limit.as_deref().into(),
            stage.share_of_limit.into(),
        ]
    };
    for stage in &figures.stages {
        table.push_row(row(stage, Some(stage.seconds.median / step.median)));
    }
    let whole = StageFigures {
        name: "whole step".into(),
        seconds: step,
        gigaflops_per_second: Some(figures.step_gigaflops_per_second),
        gigabytes_per_second: None,
        limit: Some("arithmetic".into()),
        share_of_limit: Some(figures.step_share_of_peak),
    };
    table.push_row(row(&whole, Some(1.0)));
    if let Some(refresh) = &figures.refresh {
        table.push_row(row(refresh, None));
    }
    table
}

fn summary(figures: &ContenderFigures) -> String {
    format!(
        "{}\n{} candidates an example, {} different classes and {} different features a batch; an epoch \
         takes {}",
        figures.description,
        human::number(figures.candidates_per_example.round()),
        human::count(figures.distinct_classes.round() as u64),
        human::count(figures.distinct_features.round() as u64),
        human::seconds(figures.epoch_seconds),
    )
}

fn ratios(ratios: &[Ratio], first: &ContenderFigures) -> Table {
    let title = format!(
        "Times divided by those of {}, {}, on {}",
        first.sampler,
        storage_name(first.storage),
        threads(first.threads)
    );
    let mut table = Table::new(title)
        .column(Column::text("sampler"))
        .column(Column::text("storage"))
        .column(Column::number("threads", Format::Count))
        .column(Column::number("step", Format::Fixed(2)))
        .column(Column::number("from", Format::Fixed(2)))
        .column(Column::number("to", Format::Fixed(2)))
        .column(Column::number("epoch", Format::Fixed(2)));
    for ratio in ratios {
        table.push_row([
            ratio.sampler.as_str().into(),
            storage_name(ratio.storage).into(),
            ratio.threads.into(),
            ratio.step.median.into(),
            ratio.step.low.into(),
            ratio.step.high.into(),
            ratio.epoch.median.into(),
        ]);
    }
    table
}
