//! The result of an evaluation: names and percentages, in a fixed order.

use serde::{Serialize, Serializer};

/// Metrics by name, in percent. It serializes as a map in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricValues(Vec<(String, Option<f64>)>);

impl MetricValues {
    /// Appends `100 · sum / count`, or nothing to say where `count` is 0.
    pub(super) fn push(&mut self, name: String, sum: f64, count: f64) {
        self.0.push((name, (count > 0.0).then(|| sum / count * 100.0)));
    }

    /// A metric in percent: none if it was not measured, or if there was
    /// nothing to measure it on.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(n, _)| n == name).and_then(|(_, value)| *value)
    }

    /// Names and percentages in order; no percentage where there was nothing to
    /// measure it on (`null` in JSON).
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, Option<f64>)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

impl Serialize for MetricValues {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}
