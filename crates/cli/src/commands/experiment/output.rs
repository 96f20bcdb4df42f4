//! The folder that an experiment writes, and what stands at a report's foot.

use std::path::{Path, PathBuf};

use anyhow::Context;
use lookalike::data::Examples;
use lookalike::data::stats::label_frequencies;
use lookalike::experiment::summary::{Reached, Spread};
use lookalike::train::TrainConfig;
use lookalike_kernels::Cpu;
use lookalike_report::{Axis, Cell, Chart, Column, Format, Page, Section, Series, Table, human};
use serde::Serialize;

/// A folder of tables (CSV), charts (SVG and CSV), JSON and one page.
pub(crate) struct Output {
    folder: PathBuf,
}

impl Output {
    /// Makes the folder if it is not there.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        Ok(Self { folder: folder.into() })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file of the folder; whoever looks sees the old one or the whole new one.
    pub(crate) fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(name);
        Ok(lookalike::data::write::atomically(&path, |out| std::io::Write::write_all(out, text.as_bytes()))?)
    }

    pub(crate) fn write_json(&self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        self.write(name, &serde_json::to_string_pretty(value)?)
    }

    pub(crate) fn write_tables(&self, tables: &[(&str, &Table)]) -> anyhow::Result<()> {
        tables.iter().try_for_each(|(name, table)| self.write(&format!("{name}.csv"), &table.to_csv()))
    }

    pub(crate) fn write_charts(&self, charts: &[(&str, &Chart)]) -> anyhow::Result<()> {
        charts.iter().try_for_each(|(name, chart)| {
            self.write(&format!("{name}.svg"), &chart.to_svg())?;
            self.write(&format!("{name}.csv"), &chart.to_table().to_csv())
        })
    }
}

/// Who made a report, with what, when: its foot and the note under its tables.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Origin {
    pub(crate) command: String,
    pub(crate) machine: String,
    pub(crate) version: String,
    pub(crate) date: String,
}

impl Origin {
    /// Of this process. `cpu` and the threads are those in use.
    pub(crate) fn of_this_process(cpu: Cpu) -> Self {
        let words = std::env::args().skip(1).map(|word| quoted(&word));
        let command = std::iter::once("lookalike".to_owned()).chain(words).collect::<Vec<_>>().join(" ");
        let threads = rayon::current_num_threads();
        let threads = format!("{threads} thread{}", if threads == 1 { "" } else { "s" });
        let parts =
            [first_value("/proc/cpuinfo", "model name"), Some(threads), Some(cpu.name().into()), memory()];
        Self {
            command,
            machine: parts.into_iter().flatten().collect::<Vec<_>>().join(", "),
            version: concat!("lookalike ", env!("CARGO_PKG_VERSION")).into(),
            date: now(),
        }
    }

    /// Puts it at the foot of a page.
    pub(crate) fn foot(&self, page: Page) -> Page {
        page.foot("Command", format!("`{}`", self.command))
            .foot("Machine", &self.machine)
            .foot("Version", &self.version)
            .foot("Date", &self.date)
    }

    /// A note for Markdown: how to make the tables above again.
    pub(crate) fn markdown(&self, data: &str, seeds: &[u64]) -> String {
        let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
        format!(
            "```sh\n{}\n```\n\nData: {data}. Seeds: {}. Machine: {}. {}, {}.\n",
            self.command,
            seeds.join(", "),
            self.machine,
            self.version,
            self.date
        )
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./,=:+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The value of the first `name: value` line of a file, where there is one.
fn first_value(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory() -> Option<String> {
    let kilobytes: f64 = first_value("/proc/meminfo", "MemTotal")?.split(' ').next()?.parse().ok()?;
    Some(format!("{} of memory", human::bytes(kilobytes * 1024.0)))
}

fn now() -> String {
    let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let minutes = elapsed.as_secs() / 60;
    let (year, month, day) = civil_date((minutes / 1440) as i64);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60 % 24, minutes % 60)
}

/// Year, month and day of a number of days since 1 January 1970. Counts years
/// from March, so that the day of a leap comes last and months have a pattern.
fn civil_date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// A mean, with its deviation where there are several seeds.
pub(crate) fn spread(value: Option<Spread>) -> Cell {
    match value {
        None => "–".into(),
        Some(Spread { mean, count: 1, .. }) => mean.into(),
        Some(Spread { mean, deviation, .. }) => Cell::Spread { mean, deviation },
    }
}

/// When something was reached, or `Fail` as in the paper.
pub(crate) fn reached(value: Reached, write: impl Fn(f64) -> String) -> Cell {
    match value {
        Reached::Always(Spread { mean, deviation, count }) => {
            let text = match count {
                1 => write(mean),
                _ => format!("{} ± {}", write(mean), write(deviation)),
            };
            Cell::Shown { value: mean, text }
        }
        Reached::Fail { failed, of } if failed == of => "Fail".into(),
        Reached::Fail { failed, of } => format!("Fail ({failed} of {of})").into(),
    }
}

/// All settings, for who wants to know exactly, but those that runs differ in.
pub(crate) fn settings_section(settings: &TrainConfig, without: &[&str]) -> Section {
    let mut table = Table::new("").column(Column::text("Setting")).column(Column::text("Value"));
    // By way of text, which has the shortest digits of an f32; a value would
    // have those of the f64 nearest to it.
    let text = serde_json::to_string(settings).unwrap_or_default();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let mut push = |name: String, value: &serde_json::Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        table.push_row([name.into(), if value.is_null() { "chosen".into() } else { text.into() }]);
    };
    let settings = value.as_object().into_iter().flatten();
    for (name, value) in settings.filter(|(name, _)| !without.contains(&name.as_str())) {
        match value.as_object() {
            Some(inner) => inner.iter().for_each(|(key, value)| push(format!("{name}.{key}"), value)),
            None => push(name.clone(), value),
        }
    }
    Section::new("Settings").prose("What all runs have in common.").table(table)
}

/// How the labels of a data set are distributed, as charts.
pub(crate) struct LabelCharts {
    frequency: Chart,
    rank: Chart,
}

impl LabelCharts {
    pub(crate) fn of(examples: Examples<'_>) -> Self {
        let mut counts: Vec<u64> = label_frequencies(examples).into_iter().map(|(_, count)| count).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let count = Format::Count;
        let frequency = Chart::new(
            "How many labels are how common",
            Axis::log("training examples of a label").format(count),
            Axis::log("labels").format(count),
        );
        let rank = Chart::new(
            "Examples of each label, most common first",
            Axis::log("rank of the label").format(count),
            Axis::log("training examples").format(count),
        );
        // Ranks 2% apart: as good as all on a logarithmic axis.
        let ranks = std::iter::successors(Some(1usize), |&rank| Some((rank + rank / 50).max(rank + 1)));
        let line = ranks.take_while(|&rank| rank <= counts.len());
        let line: Vec<(f64, f64)> = line.map(|rank| (rank as f64, counts[rank - 1] as f64)).collect();
        Self {
            frequency: frequency.series(Series::frequency_histogram("labels", counts.iter().copied())),
            rank: rank.series(Series::line("labels", line)),
        }
    }

    pub(crate) fn named(&self) -> [(&'static str, &Chart); 2] {
        [("label-frequency", &self.frequency), ("label-rank", &self.rank)]
    }

    pub(crate) fn section(&self) -> Section {
        Section::new("The data")
            .prose(
                "Where a few labels are common and most are rare, negatives drawn by frequency are \
                 often hard ones. Where labels are near uniform, a fixed distribution has nothing \
                 to go by.",
            )
            .charts([self.frequency.clone(), self.rank.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(civil_date(0), (1970, 1, 1));
        assert_eq!(civil_date(59), (1970, 3, 1));
        assert_eq!(civil_date(11_016), (2000, 2, 29));
        assert_eq!(civil_date(18_687), (2021, 3, 1));
        assert_eq!(civil_date(20_453), (2025, 12, 31));
        assert_eq!(civil_date(-1), (1969, 12, 31));
    }

    #[test]
    fn commands_can_be_typed_again() {
        assert_eq!(quoted("--methods=full,nce"), "--methods=full,nce");
        assert_eq!(quoted("my data"), "'my data'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn failures_are_told_as_in_the_paper() {
        let fail = |failed| reached(Reached::Fail { failed, of: 3 }, |x| x.to_string());
        assert_eq!(fail(3), Cell::Text("Fail".into()));
        assert_eq!(fail(1), Cell::Text("Fail (1 of 3)".into()));
        assert_eq!(spread(None), Cell::Text("–".into()));
    }
}
