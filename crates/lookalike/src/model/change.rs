//! A model whose classes and features change: rows that come, go and get other names.
//!
//! Whoever has a model with other rows got it here. Growing keeps every row where it
//! is and puts new ones behind; what a class that was there scores does not change by a
//! bit. Removing takes the rows of a class out of every part; what the others score
//! does not change either, but for nearest examples: where some go, others are nearest. Training state that goes with a model changes likewise
//! ([`crate::optim::NetworkMoments`]).

use super::{Init, Model, Network};
use crate::text::LabelNames;

/// How large a model shall be, and what new rows start from.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// Features, at least as many as there are.
    pub num_features: usize,
    /// Classes, at least as many as there are.
    pub num_classes: usize,
    /// Spread of the new rows.
    pub init: Init,
    /// Bias of the new classes.
    pub bias: f32,
    /// New rows are those that a new network of this seed has in their places.
    pub seed: u64,
}

/// Classes that can't be changed as asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// A class that is not there.
    #[error("the model has no class {name:?}; `lookalike classes list` shows those it has")]
    Unknown {
        /// What it was called.
        name: String,
    },
    /// A name for two classes.
    #[error("{name:?} would be the name of two classes: choose another name")]
    Taken {
        /// The name.
        name: String,
    },
    /// A name of no character.
    #[error("a class can't have an empty name")]
    Empty,
    /// A classifier needs two answers.
    #[error("of {classes} classes {removed} are to be removed, but at least two must be left")]
    TooFewLeft {
        /// How many there are.
        classes: usize,
        /// How many shall go.
        removed: usize,
    },
}

impl Network {
    /// Makes room for more features and classes.
    fn grow(&mut self, to: &Growth) {
        let (features, classes) = (self.input.len, self.output.len);
        let all = |len: usize| (0..len as u32).collect::<Vec<_>>();
        self.input = self.input.taken(&all(features), to.num_features);
        self.output = self.output.taken(&all(classes), to.num_classes);
        self.output.bias[classes..].fill(to.bias);
        (self.config.num_features, self.config.num_classes) = (to.num_features, to.num_classes);
        self.features = 0..to.num_features;
        self.fill_input(to.init, to.seed, features);
        self.fill_output(to.init, to.seed, classes, 0);
    }
}

impl Model {
    /// Makes room for more features and classes. Names are for the caller to give.
    pub fn grow(&mut self, to: &Growth) {
        let (num_features, num_classes) =
            (to.num_features.max(self.num_features()), to.num_classes.max(self.num_classes()));
        if (num_features, num_classes) == (self.num_features(), self.num_classes()) {
            return;
        }
        self.network.grow(&Growth { num_features, num_classes, ..*to });
        // It is made of rows that are no longer all there are.
        self.search = None;
        let counts = &mut self.frequencies.examples_of_class;
        counts.resize(num_classes, 0);
        self.sparse = self.sparse.take().map(|part| part.grown(counts));
        self.neighbours = self.neighbours.take().map(|part| part.grown(num_features, num_classes));
    }

    /// Adds classes of these names, which have no example yet.
    pub fn add_classes(&mut self, names: &[String], fresh: &Growth) -> Result<(), ChangeError> {
        let mut all: Vec<String> =
            (0..self.num_classes() as u32).map(|class| self.class_name(class)).collect();
        all.extend_from_slice(names);
        let names = self.label_names().is_some().then(|| named(&all)).transpose()?;
        self.grow(&Growth { num_classes: all.len(), num_features: self.num_features(), ..*fresh });
        if let Some(names) = names {
            self.set_names(names);
        }
        Ok(())
    }

    /// Removes classes. The others keep their order and move up; in a model without names
    /// their numbers become their names, so that they are still called what they were.
    /// Gives which class each of the remaining ones was.
    pub fn remove_classes(&mut self, removed: &[u32]) -> Result<Vec<u32>, ChangeError> {
        let classes = self.num_classes();
        let mut is_removed = vec![false; classes];
        for &class in removed {
            let unknown = ChangeError::Unknown { name: class.to_string() };
            *is_removed.get_mut(class as usize).ok_or(unknown)? = true;
        }
        let kept: Vec<u32> = (0..classes as u32).filter(|&class| !is_removed[class as usize]).collect();
        if kept.len() < 2 {
            return Err(ChangeError::TooFewLeft { classes, removed: classes - kept.len() });
        }
        if kept.len() == classes {
            return Ok(kept);
        }
        let names: Vec<String> = kept.iter().map(|&class| self.class_name(class)).collect();
        self.set_names(named(&names)?);
        self.search = None;
        self.network.output = self.network.output.taken(&kept, kept.len());
        self.network.config.num_classes = kept.len();
        let counts = &mut self.frequencies.examples_of_class;
        *counts = kept.iter().map(|&class| counts[class as usize]).collect();
        self.sparse = self.sparse.take().map(|part| part.of_classes(&kept, counts));
        let num_features = self.num_features();
        self.neighbours = self.neighbours.take().map(|part| part.of_classes(num_features, &kept));
        Ok(kept)
    }

    /// Gives classes other names, all at once, so that two may exchange theirs. Classes
    /// that had no names get their numbers.
    pub fn rename_classes(&mut self, renamed: &[(u32, String)]) -> Result<(), ChangeError> {
        let mut names: Vec<String> =
            (0..self.num_classes() as u32).map(|class| self.class_name(class)).collect();
        for (class, name) in renamed {
            let unknown = ChangeError::Unknown { name: class.to_string() };
            *names.get_mut(*class as usize).ok_or(unknown)? = name.clone();
        }
        self.set_names(named(&names)?);
        Ok(())
    }

    fn set_names(&mut self, names: LabelNames) {
        match &mut self.text {
            Some(text) => text.names = names,
            None => self.names = Some(names),
        }
    }
}

fn named(names: &[String]) -> Result<LabelNames, ChangeError> {
    if names.iter().any(String::is_empty) {
        return Err(ChangeError::Empty);
    }
    let mut seen = std::collections::BTreeSet::new();
    if let Some(name) = names.iter().find(|name| !seen.insert(name.as_str())) {
        return Err(ChangeError::Taken { name: name.clone() });
    }
    // Nothing else can be wrong with them, but that they are more than ids can number.
    LabelNames::in_order(names.iter().map(String::as_str))
        .map_err(|_| ChangeError::Taken { name: String::new() })
}
