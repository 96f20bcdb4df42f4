//! Training: from batches to a model.

pub mod tensorboard;
