//! Classes that have names, in files whose labels are numbers: there a class's name is
//! its number, written out.

use super::{LabelNames, TextError};
use crate::data::{Dataset, Examples};

/// The examples with class ids for labels, and how many labels of each have no name.
/// Those are left out.
pub fn by_name(examples: Examples<'_>, names: &LabelNames) -> (Dataset, Vec<u32>) {
    let all: Vec<usize> = (0..examples.len()).collect();
    let mut data =
        Dataset { label_ids: Vec::new(), label_offsets: vec![0], ..Dataset::select(examples, &all) };
    let ids = ids_of(&examples, names);
    let mut unknown = Vec::with_capacity(all.len());
    for example in all {
        let numbers = examples.labels(example);
        let mut labels: Vec<u32> = numbers.iter().filter_map(|&number| ids[number as usize]).collect();
        labels.sort_unstable();
        unknown.push((numbers.len() - labels.len()) as u32);
        data.label_ids.extend(labels);
        data.label_offsets.push(data.label_ids.len() as u64);
    }
    data.num_classes = names.len();
    (data, unknown)
}

/// The same with names for all: new ones stand behind the others, in the order their
/// labels are met.
pub fn by_name_growing(
    examples: Examples<'_>,
    names: &LabelNames,
) -> Result<(Dataset, LabelNames), TextError> {
    let ids = ids_of(&examples, names);
    let mut is_met = vec![false; examples.num_classes];
    let mut unseen = Vec::new();
    for &number in examples.label_ids {
        if ids[number as usize].is_none() && !std::mem::replace(&mut is_met[number as usize], true) {
            unseen.push(number.to_string());
        }
    }
    let names = LabelNames::in_order(names.iter().chain(unseen.iter().map(String::as_str)))?;
    Ok((by_name(examples, &names).0, names))
}

fn ids_of(examples: &Examples<'_>, names: &LabelNames) -> Vec<Option<u32>> {
    (0..examples.num_classes).map(|number| names.id(&number.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_names() {
        let names = LabelNames::in_order(["7", "cat", "2"]).unwrap();
        let mut data = Dataset::empty(1, 9);
        data.push([(0, 1.0)], &[2, 5, 7]);
        data.push([], &[8]);
        let (known, unknown) = by_name(data.view(), &names);
        assert_eq!((known.view().labels(0), known.view().labels(1)), (&[0, 2][..], &[][..]));
        assert_eq!(unknown, [1, 1]);
        assert_eq!(known.view().features(0), data.view().features(0));
        let (all, grown) = by_name_growing(data.view(), &names).unwrap();
        assert_eq!(grown.iter().collect::<Vec<_>>(), ["7", "cat", "2", "5", "8"]);
        assert_eq!((all.view().labels(0), all.view().labels(1)), (&[0, 2, 3][..], &[4][..]));
        assert_eq!(all.view().check_law(), Ok(()));
    }
}
