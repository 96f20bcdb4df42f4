//! A pipeline that goes on: new labels, and perhaps new n-grams.

use super::corpus::{TextDataset, transform_dataset};
use super::fit::{self, ChunkCounts, Fit};
use super::{LabelNames, Record, Report, TextError, TextFile, TextPipeline};

/// What happens to the n-grams of new texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Vocabulary {
    /// They are counted with those of the texts before: new ones that occur in enough of
    /// the new texts become features, and the idf of old ones moves.
    #[default]
    Grow,
    /// Features and their idf stay as they are.
    Keep,
}

/// Turns a file into examples for a pipeline learnt before, which learns from it too:
/// labels never seen get ids behind the others, in the order they are met. Reads the file
/// twice.
pub fn extend_dataset(
    file: &TextFile,
    pipeline: &TextPipeline,
    vocabulary: Vocabulary,
) -> Result<TextDataset, TextError> {
    let options = pipeline.vectoriser.options();
    let mut fit = Fit::new(options)?;
    let mut unseen: Vec<String> = Vec::new();
    let mut met = std::collections::BTreeSet::new();
    let grows = vocabulary == Vocabulary::Grow;
    file.for_each_group(
        |records| {
            let counts = grows.then(|| fit::count(&records, options));
            (counts, unseen_labels(records, &pipeline.names))
        },
        |group| {
            let (counts, names): (Vec<Option<ChunkCounts>>, Vec<Vec<String>>) = group.into_iter().unzip();
            fit.add(&counts.into_iter().flatten().collect::<Vec<_>>());
            for name in names.into_iter().flatten() {
                if met.insert(name.clone()) {
                    unseen.push(name);
                }
            }
            Ok::<(), TextError>(())
        },
    )?;
    let forgotten_documents = fit.forgotten();
    let vectoriser = if grows { fit.extend(&pipeline.vectoriser)? } else { pipeline.vectoriser.clone() };
    let names = LabelNames::in_order(pipeline.names.iter().chain(unseen.iter().map(String::as_str)))?;
    let (dataset, report) = transform_dataset(file, &vectoriser, &names)?;
    let report = Report { forgotten_documents, ..report };
    Ok(TextDataset { dataset, vectoriser, names, report })
}

/// Labels that the names do not know, each once, in the order they are met.
fn unseen_labels(records: Vec<Record>, names: &LabelNames) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    let labels = records.into_iter().flat_map(|record| record.labels);
    labels.filter(|name| names.id(name).is_none() && seen.insert(name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::corpus::fit_dataset;
    use super::*;
    use crate::text::{ReadOptions, TextOptions, Vectoriser};

    fn file(content: &str) -> TextFile {
        TextFile::from_bytes("memory", content.as_bytes(), &ReadOptions::default()).unwrap()
    }

    fn pipeline(content: &str, options: &TextOptions) -> TextPipeline {
        let TextDataset { vectoriser, names, .. } = fit_dataset(&file(content), options).unwrap();
        TextPipeline { vectoriser, names }
    }

    fn words() -> TextOptions {
        TextOptions { characters: None, min_documents: 1, ..Default::default() }
    }

    const OLD: &str = "red green\tzebra\nred\tant\n";
    const NEW: &str = "blue red\tyak|ant|bee\nazure\tbee|cat\n";

    fn names(grown: &TextDataset) -> Vec<&str> {
        grown.names.iter().collect()
    }

    #[test]
    fn new_labels_and_ngrams_stand_behind_the_old_ones() {
        let old = pipeline(OLD, &words());
        let grown = extend_dataset(&file(NEW), &old, Vocabulary::Grow).unwrap();
        assert_eq!(names(&grown), ["ant", "zebra", "yak", "bee", "cat"]);
        let features: Vec<String> =
            (0..grown.vectoriser.num_features() as u32).map(|id| grown.vectoriser.feature_name(id)).collect();
        assert_eq!(features, ["green", "red", "azure", "blue"]);
        assert_eq!(grown.vectoriser.num_documents(), 4);
        // As if all had been counted at once: "red" is in three of four texts.
        assert_eq!(grown.vectoriser.document_counts, [1, 3, 1, 1]);
        assert_eq!(grown.dataset.view().labels(0), [0, 2, 3]);
        assert_eq!(grown.dataset.view().features(0).0, [1, 3]);
        assert_eq!(grown.dataset.view().check_law(), Ok(()));
    }

    #[test]
    fn a_vocabulary_that_is_kept_does_not_move() {
        let old = pipeline(OLD, &words());
        let kept = extend_dataset(&file(NEW), &old, Vocabulary::Keep).unwrap();
        assert_eq!(names(&kept), ["ant", "zebra", "yak", "bee", "cat"]);
        assert_eq!(kept.vectoriser.document_counts, old.vectoriser.document_counts);
        assert_eq!(kept.vectoriser.num_documents(), 2);
        assert_eq!(kept.report.featureless_texts, 1);
    }

    #[test]
    fn limits_hold_for_old_and_new_together() {
        let options = TextOptions { max_features: Some(3), ..words() };
        let grown = extend_dataset(&file(NEW), &pipeline(OLD, &options), Vocabulary::Grow).unwrap();
        assert_eq!(grown.vectoriser.num_features(), 3);
        let options = TextOptions { min_documents: 2, ..words() };
        let grown = extend_dataset(&file(NEW), &pipeline(OLD, &options), Vocabulary::Grow).unwrap();
        assert_eq!(grown.vectoriser.num_features(), 1);
    }

    #[test]
    fn buckets_of_hashed_ngrams_count_on() {
        let options = TextOptions { hash_bits: Some(4), ..words() };
        let all = pipeline(&[OLD, NEW].concat(), &options);
        let grown = extend_dataset(&file(NEW), &pipeline(OLD, &options), Vocabulary::Grow).unwrap();
        assert_eq!(grown.vectoriser.document_counts, all.vectoriser.document_counts);
    }

    #[test]
    fn a_grown_pipeline_survives_the_disk() {
        let grown = extend_dataset(&file(NEW), &pipeline(OLD, &words()), Vocabulary::Grow).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let TextDataset { vectoriser, names, dataset, .. } = grown;
        TextPipeline { vectoriser, names }.save(folder.path()).unwrap();
        let vectoriser = Vectoriser::load(folder.path()).unwrap();
        let names = LabelNames::load(folder.path()).unwrap();
        let (again, _) = transform_dataset(&file(NEW), &vectoriser, &names).unwrap();
        assert_eq!(again, dataset);
    }
}
