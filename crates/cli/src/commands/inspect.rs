//! `lookalike inspect`

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use lookalike::artifact::{self, SavedModel};
use lookalike::hashing::{Choice, Occupancy};
use lookalike::model::Model;
use lookalike::predict::Predictor;
use lookalike_kernels::Cpu;
use lookalike_report::human;
use serde_json::json;

use super::MachineArguments;
use crate::exit::usage;

mod text;

/// Prints a model's shape, sizes and hash tables, what lies near a class, or why
/// it answers a text as it does.
#[derive(Args)]
#[command(after_help = "Examples:
  lookalike inspect model
  lookalike inspect model --json
  lookalike inspect model --class 17
  lookalike inspect model --class Munich
  lookalike inspect model --text Muenchen

--text prints the prediction, then how much each feature added to the winner's lead,
its score minus the mean score of all classes: the feature's value times the slope of
the lead (gradient times input). In a network of ReLU or linear units these
contributions and a constant add up to the lead exactly. Last come the negatives that
the model's sampler would propose if the prediction were the truth, with the model's
seed, step and class vectors.")]
pub(crate) struct InspectArguments {
    /// The model's directory
    model: PathBuf,
    /// Print the classes whose vectors are most like this one's: a name, the
    /// beginning of a name, or a number where classes have no names
    #[arg(long, value_name = "CLASS", conflicts_with = "text")]
    class: Option<String>,
    /// Print prediction, features and negatives of a text
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// How many classes and features to print
    #[arg(long, default_value_t = 10, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    top_k: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    machine: MachineArguments,
}

pub(crate) fn run(arguments: InspectArguments) -> anyhow::Result<()> {
    let cpu = arguments.machine.cpu()?;
    let saved = artifact::load(&arguments.model)?;
    arguments.machine.install(|| match (&arguments.class, &arguments.text) {
        (Some(class), _) => print_neighbours(&saved.model, class, &arguments, cpu),
        (None, Some(text)) => text::print(&saved, text, arguments.top_k as usize, arguments.json, cpu),
        (None, None) => print_summary(&saved, &arguments, cpu),
    })?
}

fn print_summary(saved: &SavedModel, arguments: &InspectArguments, cpu: Cpu) -> anyhow::Result<()> {
    let SavedModel { model, record } = saved;
    let (shape, training) = (&model.network.config, &record.config);
    let tables = occupancy(saved, cpu)?;
    let bytes: u64 = std::fs::read_dir(&arguments.model)
        .with_context(|| format!("cannot look into {}", arguments.model.display()))?
        .flatten()
        .filter_map(|f| f.metadata().ok())
        .map(|m| m.len())
        .sum();
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let tables = tables.map(|(choice, occupancy)| {
            json!({ "k": choice.k, "l": choice.l, "expected-per-table": choice.expected_per_table,
                    "occupancy": occupancy })
        });
        let sparse = model.sparse.as_ref();
        let sparse = sparse.map(|part| json!({ "entries": part.num_entries(), "blend": part.blend() }));
        let neighbours = model.neighbours.as_ref();
        let neighbours =
            neighbours.map(|part| json!({ "examples": part.num_examples(), "weight": part.weight() }));
        let search = model.search.as_ref();
        let search = search.map(|index| json!({ "effort": index.effort, "recall": index.recall }));
        let summary = json!({
            "network": shape, "training": training, "progress": record.progress, "tables": tables,
            "sparse": sparse, "neighbours": neighbours, "search": search,
            "parameters": model.num_parameters(), "bytes-on-disk": bytes,
            "reads-text": model.text.is_some(), "has-label-names": model.label_names().is_some(),
        });
        writeln!(out, "{summary}")?;
        return Ok(());
    }
    let count = |n: usize| human::count(n as u64);
    let reads = if model.text.is_some() { ", n-grams of text" } else { "" };
    let named = if model.label_names().is_some() { ", with names" } else { "" };
    writeln!(out, "features    {}{reads}", count(shape.num_features))?;
    writeln!(out, "hidden      {:?}, {:?}", shape.hidden, shape.activation)?;
    writeln!(out, "classes     {}{named}", count(shape.num_classes))?;
    writeln!(out, "parameters  {} ({:?})", count(model.num_parameters()), shape.storage)?;
    if let Some(sparse) = &model.sparse {
        let (entries, blend) = (sparse.num_entries(), sparse.blend());
        let per_class = human::number(entries as f64 / shape.num_classes.max(1) as f64);
        writeln!(
            out,
            "sparse      {} weights of classes on features, {per_class} a class; they count {blend} times",
            count(entries)
        )?;
    }
    if let Some(neighbours) = &model.neighbours {
        let (examples, weight) = (neighbours.num_examples(), human::number(f64::from(neighbours.weight())));
        writeln!(out, "neighbours  {} training examples; the nearest count {weight} times", count(examples))?;
    }
    if let Some(index) = &model.search {
        let (effort, found) = (count(index.effort), 100.0 * index.recall);
        writeln!(out, "search      looks at {effort} classes to find {found:.1}% of the best five")?;
    }
    writeln!(out, "on disk     {}", human::bytes(bytes as f64))?;
    let progress = record.progress;
    writeln!(
        out,
        "trained     {} epochs, {} steps, {} with {}",
        progress.epoch,
        human::count(progress.iteration),
        human::seconds(progress.train_seconds),
        training.sampler
    )?;
    if let Some((choice, occupancy)) = tables {
        writeln!(out, "tables      {choice}")?;
        print_occupancy(&mut out, &occupancy)?;
    }
    Ok(())
}

/// The hash tables as training would build them from the model's class vectors.
fn occupancy(saved: &SavedModel, cpu: Cpu) -> anyhow::Result<Option<(Choice, Occupancy)>> {
    let (model, training) = (&saved.model, &saved.record.config);
    if !training.sampler.uses_tables() {
        return Ok(None);
    }
    let (classes, dim) = (model.network.output.len, model.network.output.dim);
    let choice = training.lsh.choose(training.retrieve_for(classes), classes, dim)?;
    let mut tables = training.lsh.tables(&choice, classes, dim, training.seed)?;
    tables.rebuild(cpu, model.network.output.view());
    Ok(Some((choice, tables.occupancy())))
}

/// A sentence and a histogram: how many buckets hold how many classes.
fn print_occupancy(out: &mut impl Write, occupancy: &Occupancy) -> std::io::Result<()> {
    writeln!(
        out,
        "buckets     {} in each of {} tables; {} classes in one on average, {} in the one that a class \
         meets, {} at most",
        human::count(occupancy.buckets as u64),
        occupancy.tables,
        human::number(occupancy.mean),
        human::number(occupancy.mean_met),
        human::count(occupancy.max as u64),
    )?;
    const BAR: f64 = 40.0;
    let all = occupancy.histogram.iter().sum::<u64>().max(1) as f64;
    for (slot, &buckets) in occupancy.histogram.iter().enumerate() {
        let classes = match slot {
            0 => "empty".into(),
            1 => "1".into(),
            _ => format!("{}-{}", 1u64 << (slot - 1), (1u64 << slot) - 1),
        };
        let share = buckets as f64 / all;
        let bar = "█".repeat((share * BAR).round() as usize);
        writeln!(out, "{:12}{classes:>11} {:>6.2}%  {bar}", "", 100.0 * share)?;
    }
    Ok(())
}

/// The class of a name, or of the only name that begins like this.
fn find_class(model: &Model, wanted: &str) -> anyhow::Result<u32> {
    if let Some(id) = model.class_id(wanted) {
        return Ok(id);
    }
    let begins = |name: &&str| name.to_lowercase().starts_with(&wanted.to_lowercase());
    let close: Vec<&str> = model.label_names().into_iter().flat_map(|n| n.iter()).filter(begins).collect();
    match close[..] {
        [name] => Ok(model.class_id(name).unwrap_or_default()),
        [] => {
            let classes = human::count(model.network.output.len as u64);
            let names = model.label_names().into_iter().flat_map(|names| names.iter());
            let meant =
                nearest(wanted, names).map_or(String::new(), |name| format!("; did you mean {name:?}?"));
            Err(usage(format!("the model has no class {wanted:?} among its {classes} classes{meant}")))
        }
        _ => {
            const SHOWN: usize = 10;
            let more = if close.len() > SHOWN { " and others" } else { "" };
            let names =
                close.iter().take(SHOWN).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
            Err(usage(format!("no class is called {wanted:?}, but {names}{more} begin so: name one of them")))
        }
    }
}

/// The name that most trigrams are shared with, if it is a good part of them.
fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let trigrams = |text: &str| -> HashSet<[char; 3]> {
        let padded: Vec<char> = format!("  {} ", text.to_lowercase()).chars().collect();
        padded.windows(3).map(|window| [window[0], window[1], window[2]]).collect()
    };
    let own = trigrams(wanted);
    let alike = |name: &'a str| {
        let other = trigrams(name);
        let shared = own.intersection(&other).count() as f64;
        (shared / (own.len() + other.len()).max(1) as f64, name)
    };
    let best = names.map(alike).max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(a.1)));
    best.filter(|&(share, _)| share > 0.2).map(|(_, name)| name)
}

fn print_neighbours(
    model: &Model,
    wanted: &str,
    arguments: &InspectArguments,
    cpu: Cpu,
) -> anyhow::Result<()> {
    let class = find_class(model, wanted)?;
    let neighbours = Predictor::new(model, cpu).lookalikes(class, arguments.top_k as usize);
    let name = model.class_name(class);
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let list: Vec<_> = neighbours
            .iter()
            .map(|&(cosine, other)| json!({ "class": model.class_name(other), "cosine": cosine }))
            .collect();
        writeln!(out, "{}", json!({ "class": name, "neighbours": list }))?;
        return Ok(());
    }
    let by = if model.sparse.is_some() { "vectors and sparse weights" } else { "vectors" };
    writeln!(out, "classes most like {name:?}, by the cosine of their {by}")?;
    for (cosine, other) in neighbours {
        writeln!(out, "{cosine:8.3}  {}", model.class_name(other))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_recognised_and_nonsense_is_not() {
        let names = ["Munich", "Vienna", "München-Gladbach", "Zürich"];
        assert_eq!(nearest("Munnich", names.into_iter()), Some("Munich"));
        assert_eq!(nearest("vienna,", names.into_iter()), Some("Vienna"));
        assert_eq!(nearest("qqqq", names.into_iter()), None);
        assert_eq!(nearest("", std::iter::empty()), None);
    }
}
