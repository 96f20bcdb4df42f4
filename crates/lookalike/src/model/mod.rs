//! The network: sparse input, hidden layers, a huge output layer.
//!
//! `E_x = act(b + Σ v_f W1[f])`, optionally more dense layers, and a score
//! `w_i · E_x + b_i` for each class. Input and output layer are rows (a feature
//! each, a class each) of which a batch touches few; hidden layers in between
//! are small and dense. A class may own a sparse row besides ([`SparsePart`]), and
//! the model may keep the examples it was trained on ([`Neighbours`]).

mod examples_of_class;
mod hidden;
mod lists;
mod neighbours;
mod network;
mod rows;
mod sparse;
mod view;

pub use hidden::Hidden;
pub use neighbours::{NeighbourScratch, Neighbours};
pub use network::{Activation, Activations, Init, Network, NetworkConfig, Normalise};
pub(crate) use rows::with_store;
pub use rows::{Biases, BiasesMut, Rows, RowsMut, Storage, Store, Stored};
pub use sparse::{MeanRows, Postings, SparsePart, SparseStart};
pub use view::{RowData, RowsView};
