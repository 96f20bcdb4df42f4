//! A whole file: from records to a [`Dataset`], with what was learnt on the way.

use super::fit::{self, Fit};
use super::{
    LabelNames, Record, Scratch, SkippedRows, TextError, TextFile, TextOptions, TextPipeline, Vectoriser,
};
use crate::data::Dataset;

/// What a file held that its owner may want to know. Lines are those of the
/// first case of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Examples.
    pub examples: u64,
    /// Distinct labels that the names know.
    pub labels: usize,
    /// Texts without any character but white space.
    pub empty_texts: u64,
    /// The first of them.
    pub empty_text_line: Option<u64>,
    /// Texts of which no feature is known, the empty ones included.
    pub featureless_texts: u64,
    /// The first of them.
    pub featureless_text_line: Option<u64>,
    /// Examples without a label.
    pub unlabelled: u64,
    /// The first of them.
    pub unlabelled_line: Option<u64>,
    /// For each example, how many of its labels the names do not know. They
    /// can never be predicted, but count among its true labels.
    pub unseen_labels: Vec<u32>,
    /// The first example with such a label.
    pub unseen_label_line: Option<u64>,
    /// N-grams in at most so many texts were forgotten to save memory; 0: none.
    pub forgotten_documents: u32,
    /// Rows that could not be read and were left out.
    pub skipped: SkippedRows,
}

impl Report {
    /// How many labels, in all, the names do not know.
    pub fn unseen_labels_total(&self) -> u64 {
        self.unseen_labels.iter().copied().map(u64::from).sum()
    }

    /// What is worth a word to the user, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |count: u64, line: Option<u64>, what: &str| {
            if let (1.., Some(line)) = (count, line) {
                warnings.push(format!("{count} {what} (the first on line {line})"));
            }
        };
        warn(self.empty_texts, self.empty_text_line, "texts are empty");
        warn(
            self.featureless_texts - self.empty_texts,
            self.featureless_text_line,
            "texts have no known feature, so all of them get the same prediction",
        );
        warn(self.unlabelled, self.unlabelled_line, "examples have no label");
        warn(
            self.unseen_labels_total(),
            self.unseen_label_line,
            "labels were never seen in training and cannot be predicted",
        );
        if self.labels == 1 {
            warnings.push("there is one label in all, so every prediction is that one".into());
        }
        if self.forgotten_documents > 0 {
            warnings.push(format!(
                "more distinct n-grams than `table_limit`: those in {} or fewer texts were \
                 forgotten while counting, and other counts may be too low by as many",
                self.forgotten_documents
            ));
        }
        warnings
    }

    /// Adds the report of the records that follow.
    fn append(&mut self, next: Report) {
        self.examples += next.examples;
        self.empty_texts += next.empty_texts;
        self.featureless_texts += next.featureless_texts;
        self.unlabelled += next.unlabelled;
        self.unseen_labels.extend(next.unseen_labels);
        for (line, next) in [
            (&mut self.empty_text_line, next.empty_text_line),
            (&mut self.featureless_text_line, next.featureless_text_line),
            (&mut self.unlabelled_line, next.unlabelled_line),
            (&mut self.unseen_label_line, next.unseen_label_line),
        ] {
            *line = line.or(next);
        }
    }

    /// Notes an example: how many labels it has, known or not, and how many of
    /// them are unknown.
    pub(super) fn note_labels(&mut self, labels: usize, unseen: u32, line: u64) {
        self.examples += 1;
        self.unseen_labels.push(unseen);
        if labels == 0 {
            self.unlabelled += 1;
            self.unlabelled_line.get_or_insert(line);
        }
        if unseen > 0 {
            self.unseen_label_line.get_or_insert(line);
        }
    }

    fn note_text(&mut self, text: &str, features: usize, line: u64) {
        if features == 0 {
            self.featureless_texts += 1;
            if text.trim().is_empty() {
                self.empty_texts += 1;
                self.empty_text_line.get_or_insert(line);
            } else {
                self.featureless_text_line.get_or_insert(line);
            }
        }
    }
}

/// A file as examples, and what is needed to read others the same way.
#[derive(Clone, Debug)]
pub struct TextDataset {
    /// The examples, in the order of the file.
    pub dataset: Dataset,
    /// Turns further texts into features.
    pub vectoriser: Vectoriser,
    /// Turns label ids into names and back.
    pub names: LabelNames,
    /// What the file held.
    pub report: Report,
}

/// What was learnt from a file: how its texts become features, and the names of its labels.
#[derive(Clone, Debug)]
pub struct Learnt {
    /// Both ends of a model.
    pub pipeline: TextPipeline,
    /// See [`Report::forgotten_documents`].
    pub forgotten_documents: u32,
}

impl Learnt {
    /// The first pass: learns vocabulary and label names. `tell` hears after every group of
    /// texts how many have been counted.
    ///
    /// Memory: a group of chunks, the distinct n-grams met (about
    /// [`table_limit`](TextOptions::table_limit) of them at most) and the distinct labels.
    pub fn of(file: &TextFile, options: &TextOptions, mut tell: impl FnMut(u64)) -> Result<Self, TextError> {
        let mut fit = Fit::new(options)?;
        let mut labels = std::collections::BTreeSet::new();
        file.for_each_group(
            |records| {
                let counts = fit::count(&records, options);
                let mut labels: Vec<String> = records.into_iter().flat_map(|r| r.labels).collect();
                labels.sort_unstable();
                labels.dedup();
                (counts, labels)
            },
            |group| {
                let (counts, names): (Vec<_>, Vec<_>) = group.into_iter().unzip();
                fit.add(&counts);
                for name in names.into_iter().flatten() {
                    labels.insert(name);
                }
                tell(fit.documents());
                Ok::<(), TextError>(())
            },
        )?;
        let forgotten_documents = fit.forgotten();
        let vectoriser = fit.finish()?;
        let names = LabelNames::new(labels.iter().map(String::as_str))?;
        Ok(Self { pipeline: TextPipeline { vectoriser, names }, forgotten_documents })
    }

    /// The second pass over the same file: gives its examples to `take`, a block at a time.
    /// Memory: a group of chunks and its examples.
    pub fn for_each_block<E: From<TextError>>(
        &self,
        file: &TextFile,
        mut take: impl FnMut(Dataset) -> Result<(), E>,
    ) -> Result<Report, E> {
        let TextPipeline { vectoriser, names } = &self.pipeline;
        let mut unseen_labels = 0;
        let mut report = transform_blocks(file, vectoriser, names, |block, noted| {
            unseen_labels += noted.unseen_labels_total();
            // One a text: what nobody asks for must not grow with the file.
            noted.unseen_labels.clear();
            take(block)
        })?;
        if unseen_labels > 0 || report.examples != vectoriser.num_documents() {
            return Err(TextError::Changed { file: file.name() }.into());
        }
        report.forgotten_documents = self.forgotten_documents;
        Ok(report)
    }
}

/// Learns vocabulary and label names from a file, and turns it into examples.
/// Reads the file twice.
pub fn fit_dataset(file: &TextFile, options: &TextOptions) -> Result<TextDataset, TextError> {
    let Learnt { pipeline: TextPipeline { vectoriser, names }, forgotten_documents } =
        Learnt::of(file, options, |_| ())?;
    let (dataset, report) = transform_dataset(file, &vectoriser, &names)?;
    let report = Report { forgotten_documents, ..report };
    Ok(TextDataset { dataset, vectoriser, names, report })
}

/// Turns a file into examples with a vectoriser and names learnt before. Labels
/// that the names do not know are left out of the examples and counted in the
/// report, example by example.
pub fn transform_dataset(
    file: &TextFile,
    vectoriser: &Vectoriser,
    names: &LabelNames,
) -> Result<(Dataset, Report), TextError> {
    let mut dataset = Dataset::empty(vectoriser.num_features(), names.len());
    let report = transform_blocks(file, vectoriser, names, |part, _| {
        append(&mut dataset, part);
        Ok::<(), TextError>(())
    })?;
    Ok((dataset, report))
}

/// Gives the examples of a file to `take`, a block at a time, each with its own report,
/// which is then added to that of the whole.
fn transform_blocks<E: From<TextError>>(
    file: &TextFile,
    vectoriser: &Vectoriser,
    names: &LabelNames,
    mut take: impl FnMut(Dataset, &mut Report) -> Result<(), E>,
) -> Result<Report, E> {
    let empty = || Dataset::empty(vectoriser.num_features(), names.len());
    let mut report = Report { labels: names.len(), ..Default::default() };
    let work =
        |records: Vec<Record>| transform_records(&records, vectoriser, names, (empty(), file.has_weights()));
    let skipped = file.for_each_group(work, |group| -> Result<(), E> {
        for (part, mut noted) in group {
            take(part, &mut noted)?;
            report.append(noted);
        }
        Ok(())
    })?;
    report.skipped = skipped;
    if report.examples == 0 {
        if let Some(first) = report.skipped.first_errors.first() {
            let (file, rows) = (file.name(), report.skipped.rows);
            let message = format!("{file}: none of its {rows} rows can be read; the first: {first}");
            return Err(TextError::Options(message).into());
        }
        return Err(TextError::NoRecord { file: file.name() }.into());
    }
    Ok(report)
}

fn transform_records(
    records: &[Record],
    vectoriser: &Vectoriser,
    names: &LabelNames,
    (mut part, has_weights): (Dataset, bool),
) -> (Dataset, Report) {
    let mut report = Report::default();
    let mut scratch = Scratch::default();
    for record in records {
        let (ids, values) = vectoriser.transform(&record.text, &mut scratch);
        let (labels, unseen) = label_ids(&record.labels, names);
        part.push(ids.iter().copied().zip(values.iter().copied()), &labels);
        if has_weights {
            part.weights.push(record.weight.unwrap_or(1.0));
        }
        report.note_labels(record.labels.len(), unseen, record.line);
        report.note_text(&record.text, ids.len(), record.line);
    }
    (part, report)
}

/// The ids of some label names, ascending and distinct, and how many distinct
/// names have none.
pub(super) fn label_ids(labels: &[String], names: &LabelNames) -> (Vec<u32>, u32) {
    let mut ids: Vec<u32> = labels.iter().filter_map(|name| names.id(name)).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut unknown: Vec<&String> = labels.iter().filter(|n| names.id(n).is_none()).collect();
    unknown.sort_unstable();
    unknown.dedup();
    (ids, unknown.len() as u32)
}

fn append(dataset: &mut Dataset, part: Dataset) {
    let shift = |offsets: &mut Vec<u64>, more: Vec<u64>| {
        let base = offsets.last().copied().unwrap_or(0);
        offsets.extend(more.into_iter().skip(1).map(|offset| base + offset));
    };
    shift(&mut dataset.feature_offsets, part.feature_offsets);
    shift(&mut dataset.label_offsets, part.label_offsets);
    dataset.feature_ids.extend(part.feature_ids);
    dataset.feature_values.extend(part.feature_values);
    dataset.label_ids.extend(part.label_ids);
    dataset.weights.extend(part.weights);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{ReadOptions, Sizes};

    fn file(content: &str) -> TextFile {
        TextFile::from_bytes("memory", content.as_bytes(), &ReadOptions::default()).unwrap()
    }

    fn words() -> TextOptions {
        TextOptions { characters: None, min_documents: 1, ..Default::default() }
    }

    /// Worked out by hand: three texts, `red` in two of them, the others in one.
    #[test]
    fn values_are_those_of_the_definition() {
        let options = TextOptions { sublinear: false, ..words() };
        let fitted = fit_dataset(&file("red red blue\tx\nred\ty\ngreen\tx\n"), &options).unwrap();
        let names: Vec<_> = (0..3).map(|id| fitted.vectoriser.feature_name(id)).collect();
        assert_eq!(names, ["blue", "green", "red"]);
        let (blue, red) = (2f64.ln() + 1.0, (4f64 / 3.0).ln() + 1.0);
        let length = (blue * blue + 4.0 * red * red).sqrt();
        let (ids, values) = fitted.dataset.view().features(0);
        assert_eq!(ids, [0, 2]);
        for (value, expected) in values.iter().zip([blue / length, 2.0 * red / length]) {
            assert!((f64::from(*value) - expected).abs() < 1e-6, "{value} {expected}");
        }
        assert_eq!(fitted.dataset.view().features(1), (&[2][..], &[1.0][..]));

        let sublinear = fit_dataset(&file("red red blue\tx\nred\ty\ngreen\tx\n"), &words()).unwrap();
        let (_, values) = sublinear.dataset.view().features(0);
        let ratio = f64::from(values[1] / values[0]);
        assert!((ratio - (1.0 + 2f64.ln()) * red / blue).abs() < 1e-5);
    }

    #[test]
    fn rare_and_surplus_ngrams_are_left_out() {
        let content = "a1 a1 a1 b1\tx\nc1 b1\tx\nc1 d1\tx\n";
        let vocabulary = |options: &TextOptions| {
            let vectoriser = fit_dataset(&file(content), options).unwrap().vectoriser;
            (0..vectoriser.num_features() as u32).map(|id| vectoriser.feature_name(id)).collect::<Vec<_>>()
        };
        assert_eq!(vocabulary(&TextOptions { min_documents: 2, ..words() }), ["b1", "c1"]);
        // Most frequent over all texts; of equals the first.
        assert_eq!(vocabulary(&TextOptions { max_features: Some(2), ..words() }), ["a1", "b1"]);
    }

    #[test]
    fn what_is_odd_is_counted_with_its_line() {
        let train = "red\tx|y|x\n\"\"\ty\nred blue\t\nred\tz\n";
        let fitted = fit_dataset(&file(train), &TextOptions { min_documents: 2, ..words() }).unwrap();
        let report = &fitted.report;
        assert_eq!((report.examples, report.labels), (4, 3));
        assert_eq!((report.empty_texts, report.empty_text_line), (1, Some(2)));
        assert_eq!((report.unlabelled, report.unlabelled_line), (1, Some(3)));
        assert_eq!(report.unseen_labels, [0; 4]);
        assert_eq!(fitted.dataset.view().labels(0), [0, 1]);

        let test = "red\tx|new|newer|new\nviolet\tz\n\tz\n";
        let (dataset, report) = transform_dataset(&file(test), &fitted.vectoriser, &fitted.names).unwrap();
        assert_eq!(report.unseen_labels, [2, 0, 0]);
        assert_eq!((report.unseen_labels_total(), report.unseen_label_line), (2, Some(1)));
        assert_eq!((report.featureless_texts, report.featureless_text_line), (2, Some(2)));
        assert_eq!(dataset.view().labels(0), [0]);
        assert_eq!(report.warnings().len(), 3);

        let single = fit_dataset(&file("red\tx\nblue\tx\n"), &words()).unwrap();
        assert!(single.report.warnings().iter().any(|w| w.contains("one label in all")));
        assert!(matches!(fit_dataset(&file("text\tlabels\n"), &words()), Err(TextError::NoRecord { .. })));
    }

    #[test]
    fn weights_come_from_a_column_or_field() {
        let named = |name: &str| ReadOptions { weight: Some(name.parse().unwrap()), ..Default::default() };
        for (content, options) in [
            ("text\tlabels\tw\nred\tx\t2\nred\ty\t\nred\tx\t0.25\n", named("w")),
            ("red\tx\t2\nred\ty\t\nred\tx\t0.25\n", named("3")),
            (
                "{\"text\":\"red\",\"label\":\"x\",\"w\":2}\n{\"text\":\"red\",\"label\":\"y\"}\n\
                 {\"text\":\"red\",\"label\":\"x\",\"w\":0.25}\n",
                named("w"),
            ),
        ] {
            let file = TextFile::from_bytes("m", content.as_bytes(), &options).unwrap();
            let fitted = fit_dataset(&file, &words()).unwrap();
            assert_eq!(fitted.dataset.weights, [2.0, 1.0, 0.25], "{content}");
        }
        for bad in ["-1", "nan", "inf", "much"] {
            let content = format!("red\tx\t1\nred\ty\t{bad}\n");
            let file = TextFile::from_bytes("m", content.as_bytes(), &named("3")).unwrap();
            let error = fit_dataset(&file, &words()).unwrap_err().to_string();
            assert!(error.contains("m:2") && error.contains(bad), "{error}");
        }
        assert!(TextFile::from_bytes("m", b"red\tx\n", &named("w")).is_err());
        let error = TextFile::from_bytes("m", b"__label__x red\n", &named("w")).unwrap_err().to_string();
        assert!(error.contains("no column of weights"), "{error}");
    }

    /// Many chunks, so that shards and groups all have work.
    fn generated() -> TextFile {
        let content: String = (0..60_000u32)
            .map(|i| format!("wort{} Straße{} 北京{}\tl{}|m{}\n", i % 977, i % 31, i % 7, i % 101, i % 13))
            .collect();
        file(&content)
    }

    #[test]
    fn threads_do_not_show() {
        let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for options in [
            TextOptions::default(),
            TextOptions { hash_bits: Some(10), ..Default::default() },
            TextOptions { table_limit: 1000, ..Default::default() },
        ] {
            let file = generated();
            let one = pool(1).install(|| fit_dataset(&file, &options)).unwrap();
            let four = pool(4).install(|| fit_dataset(&file, &options)).unwrap();
            assert_eq!(one.dataset, four.dataset);
            assert_eq!(one.report, four.report);
            assert_eq!(one.report.forgotten_documents > 0, options.table_limit == 1000);
        }
    }

    /// The second pass must give what a text gives alone.
    #[test]
    fn a_row_of_the_data_set_is_the_text_transformed() {
        let file = generated();
        let fitted = fit_dataset(&file, &TextOptions::default()).unwrap();
        let mut scratch = Scratch::default();
        for (record, row) in file.records().unwrap().zip(0..).step_by(997) {
            let row = fitted.dataset.view().features(row);
            assert_eq!(fitted.vectoriser.transform(&record.unwrap().text, &mut scratch), row);
            assert!(row.0.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn hashed_features_stay_below_their_number() {
        let options =
            TextOptions { hash_bits: Some(6), characters: Some(Sizes::new(1, 5)), ..Default::default() };
        let fitted = fit_dataset(&generated(), &options).unwrap();
        assert_eq!(fitted.vectoriser.num_features(), 64);
        assert!(fitted.dataset.feature_ids.iter().all(|&id| id < 64));
        assert_eq!(fitted.vectoriser.feature_name(63), "bucket 63");
        assert_eq!(fitted.vectoriser.feature(64), None);
    }

    #[test]
    fn senseless_options_are_refused() {
        for options in [
            TextOptions { words: None, characters: None, ..Default::default() },
            TextOptions { words: Some(Sizes::new(2, 1)), ..Default::default() },
            TextOptions { characters: Some(Sizes::new(0, 1)), ..Default::default() },
            TextOptions { hash_bits: Some(40), ..Default::default() },
            TextOptions { max_features: Some(0), ..Default::default() },
        ] {
            assert!(matches!(fit_dataset(&generated(), &options), Err(TextError::Options(_))));
        }
    }
}
