//! What answers: a network over sparse input, and what may stand beside it.
//!
//! `E_x = act(b + Σ v_f W1[f])`, optionally more dense layers, and a score
//! `w_i · E_x + b_i` for each class. Input and output layer are rows (a feature
//! each, a class each) of which a batch touches few; hidden layers in between
//! are small and dense. A class may own a sparse row besides ([`SparsePart`]), and
//! the model may keep the examples it was trained on ([`Neighbours`]). What its scores
//! mean as probabilities, its [`Calibration`] says.
//!
//! Architecture invariant: nothing here is needed for training alone. Moments,
//! progress and settings belong to [`crate::train::TrainingState`].

mod calibration;
mod change;
pub(crate) mod columns;
mod embeddings;
mod examples_of_class;
mod hidden;
mod lists;
mod nearest;
mod neighbours;
mod network;
mod rows;
mod search;
mod sparse;
mod view;

pub(crate) use calibration::{CLASS_TERMS, EXAMPLE_TERMS, ExampleTerm, class_terms, example_terms};
pub use calibration::{Calibration, LabelsPerExample, Probabilities, RANKS};
pub use change::{ChangeError, Growth};
pub use embeddings::Embeddings;
pub(crate) use examples_of_class::ExamplesOfClass;
pub(crate) use hidden::EXAMPLES_PER_BLOCK;
pub use hidden::Hidden;
pub(crate) use lists::offsets;
pub use nearest::{Near, NeighbourScratch};
pub use neighbours::Neighbours;
pub use network::{Activation, Activations, Init, Network, NetworkConfig, Normalise};
pub(crate) use rows::with_numbers;
pub use rows::{Numbers, Rows, Storage};
pub use search::{ClusterScratch, Clusters, CodedRows, Level, SearchIndex, StrongClasses, StrongScratch};
pub use sparse::{FrequentRows, MeanRows, Postings, SparsePart, SparseStart, WeightedRow};
pub use view::{RowData, RowsView};

use crate::data::Examples;
use crate::text::{LabelNames, TextPipeline};

/// Everything that an answer needs, and nothing else.
#[derive(Clone, Debug)]
pub struct Model {
    /// The network's parameters.
    pub network: Network,
    /// Weights of classes on features, beside the network.
    pub sparse: Option<SparsePart>,
    /// Training examples that classes are also scored by.
    pub neighbours: Option<Neighbours>,
    /// What finds classes without scoring all.
    pub search: Option<SearchIndex>,
    /// How often each class occurred in training.
    pub frequencies: ClassFrequencies,
    /// How scores become probabilities; without it they are a softmax over all classes,
    /// which is surer than it should be.
    pub calibration: Option<Calibration>,
    /// How text becomes features and classes become names, if trained from text.
    pub text: Option<TextPipeline>,
    /// The classes' names, if they have names without being trained from text.
    pub names: Option<LabelNames>,
}

/// How often classes occurred among the training examples. Examples held out
/// from training to choose settings count too: they are training data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassFrequencies {
    /// How many training examples each class had.
    pub examples_of_class: Vec<u32>,
    /// Training examples that have a label and a weight.
    pub num_examples: usize,
}

impl ClassFrequencies {
    /// Of some examples.
    pub fn of(examples: &Examples<'_>) -> Self {
        let num_examples = (0..examples.len()).filter(|&i| examples.teaches(i)).count();
        Self { examples_of_class: examples.label_counts(), num_examples }
    }

    /// Counts further examples of the same classes.
    pub fn add(&mut self, more: &Self) {
        for (count, more) in self.examples_of_class.iter_mut().zip(&more.examples_of_class) {
            *count = count.saturating_add(*more);
        }
        self.num_examples += more.num_examples;
    }

    /// How many labels an example has.
    pub fn labels_per_example(&self) -> LabelsPerExample {
        match self.num_labels() == self.num_examples as u64 {
            true => LabelsPerExample::One,
            false => LabelsPerExample::Several,
        }
    }

    /// The same as a mean, at least 1.
    pub fn labels_mean(&self) -> f64 {
        (self.num_labels() as f64 / self.num_examples.max(1) as f64).max(1.0)
    }

    fn num_labels(&self) -> u64 {
        self.examples_of_class.iter().map(|&count| u64::from(count)).sum()
    }

    /// The share of training examples that have a class.
    pub fn share(&self, class: u32) -> f32 {
        let count = self.examples_of_class.get(class as usize).copied().unwrap_or(0);
        (f64::from(count) / self.num_examples.max(1) as f64) as f32
    }
}

impl Model {
    /// A network alone.
    pub fn new(network: Network, frequencies: ClassFrequencies) -> Self {
        Self {
            network,
            sparse: None,
            neighbours: None,
            search: None,
            frequencies,
            calibration: None,
            text: None,
            names: None,
        }
    }

    /// The number of classes.
    pub fn num_classes(&self) -> usize {
        self.network.config.num_classes
    }

    /// The number of features.
    pub fn num_features(&self) -> usize {
        self.network.config.num_features
    }

    /// The number of parameters.
    pub fn num_parameters(&self) -> usize {
        self.network.num_parameters() + self.sparse.as_ref().map_or(0, SparsePart::num_entries)
    }

    /// Keeps the class vectors in another storage from here on, for answers alone. In bf16
    /// each number is within 2^-8 of what it was, relatively, so no score of an embedding
    /// `E` changes by more than `2^-8 · Σ |w_i · E_i|`.
    pub fn store_classes(&mut self, storage: Storage) {
        let weights = &mut self.network.output.weights;
        *weights = std::mem::replace(weights, Numbers::zeroed(storage, 0)).stored_as(storage);
    }

    /// Makes what parts of the model make on first use. To be called where nothing else
    /// runs in parallel: it is made in parallel, and whoever helped could ask for it.
    pub fn prepare(&self) {
        if let Some(neighbours) = &self.neighbours {
            neighbours.prepare();
        }
    }

    /// What a class scores whatever the example: its bias and, of the sparse part,
    /// what its frequency adds.
    pub fn class_bias(&self) -> Vec<f32> {
        let bias = &self.network.output.bias;
        match self.sparse.as_ref().filter(|sparse| sparse.blend() != 0.0) {
            Some(sparse) => {
                let blended = |(bias, prior): (&f32, &f32)| bias + sparse.blend() * prior;
                bias.iter().zip(sparse.priors()).map(blended).collect()
            }
            None => bias.clone(),
        }
    }

    /// The classes' names, if they have names.
    pub fn label_names(&self) -> Option<&LabelNames> {
        self.text.as_ref().map(|text| &text.names).or(self.names.as_ref())
    }

    /// A class's name: its own where it has one, else its number.
    pub fn class_name(&self, class: u32) -> String {
        let name = self.label_names().and_then(|names| names.name(class));
        name.map_or_else(|| class.to_string(), str::to_owned)
    }

    /// The class of a name, or of a number where classes have no names.
    pub fn class_id(&self, name: &str) -> Option<u32> {
        match self.label_names() {
            Some(names) => names.id(name),
            None => name.parse().ok().filter(|&id: &u32| (id as usize) < self.num_classes()),
        }
    }
}
