//! The network: sparse input, hidden layers, a huge output layer.

mod view;

pub use view::{RowData, RowsView};
