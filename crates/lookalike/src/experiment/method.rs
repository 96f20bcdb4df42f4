//! The methods that are compared: a sampler and the loss that goes with it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::loss::Loss;
use crate::sampling::SamplerKind;
use crate::train::TrainConfig;

/// A sampler with the softmax loss, or noise-contrastive estimation, which is a
/// sampler with a loss of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Method {
    /// Softmax over the candidates of a sampler.
    Sampler(SamplerKind),
    /// Logistic loss against noise of a known distribution.
    Nce,
}

impl Method {
    /// The methods of the paper's tables, in their order.
    pub const PAPER: [Self; 7] = [
        Self::Sampler(SamplerKind::Full),
        Self::Sampler(SamplerKind::LshEmbedding),
        Self::Sampler(SamplerKind::LshLabel),
        Self::Sampler(SamplerKind::TopK),
        Self::Sampler(SamplerKind::Frequency),
        Self::Sampler(SamplerKind::LogUniform),
        Self::Nce,
    ];

    /// All methods: the paper's, then the other samplers.
    pub fn all() -> Vec<Self> {
        let others = SamplerKind::ALL.into_iter().map(Self::Sampler);
        let others = others.filter(|method| !Self::PAPER.contains(method));
        Self::PAPER.into_iter().chain(others).collect()
    }

    /// Full softmax, which the others are measured against.
    pub const FULL: Self = Self::PAPER[0];

    /// The name in options and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sampler(kind) => kind.name(),
            Self::Nce => "nce",
        }
    }

    /// The name that a reader of the paper knows.
    pub fn title(self) -> &'static str {
        match self {
            Self::Nce => "NCE",
            Self::Sampler(kind) => kind.title(),
        }
    }

    /// Its place in [`Self::all`], so that it looks the same in every chart.
    pub fn place(self) -> usize {
        let all = Self::all();
        all.iter().position(|&method| method == self).unwrap_or(all.len())
    }

    /// What a configuration trains with.
    pub fn of(config: &TrainConfig) -> Self {
        match config.loss() {
            Loss::Nce => Self::Nce,
            _ => Self::Sampler(config.sampler),
        }
    }

    /// Makes a configuration train with this method. NCE keeps frequency noise
    /// where it is configured, and takes the log-uniform noise of the paper's
    /// baseline otherwise.
    pub fn apply(self, config: &mut TrainConfig) {
        match self {
            Self::Sampler(kind) => {
                config.sampler = kind;
                config.loss = config.loss.filter(|&loss| loss != Loss::Nce);
            }
            Self::Nce => {
                config.loss = Some(Loss::Nce);
                if config.sampler != SamplerKind::Frequency {
                    config.sampler = SamplerKind::LogUniform;
                }
            }
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is none of a method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown sampler {name:?}; expected one of {}", Method::all().into_iter().map(Method::name).collect::<Vec<_>>().join(", "))]
pub struct UnknownMethod {
    name: String,
}

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        Self::all()
            .into_iter()
            .find(|method| method.name() == name)
            .ok_or_else(|| UnknownMethod { name: name.into() })
    }
}

impl TryFrom<String> for Method {
    type Error = UnknownMethod;

    fn try_from(name: String) -> Result<Self, UnknownMethod> {
        name.parse()
    }
}

impl From<Method> for String {
    fn from(method: Method) -> Self {
        method.name().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_places_are_distinct() {
        for (place, method) in Method::all().into_iter().enumerate() {
            assert_eq!(method.name().parse::<Method>().unwrap(), method);
            let json = serde_json::to_string(&method).unwrap();
            assert_eq!(json, format!("\"{method}\""));
            assert_eq!(serde_json::from_str::<Method>(&json).unwrap(), method);
            assert_eq!(method.place(), place);
        }
        let error = "lsh".parse::<Method>().unwrap_err().to_string();
        assert!(
            error.contains("\"lsh\"") && error.contains("lsh-embedding") && error.contains("nce"),
            "{error}"
        );
    }

    #[test]
    fn a_method_decides_sampler_and_loss_whatever_stood_there() {
        let mut config = TrainConfig::default();
        for method in Method::all() {
            method.apply(&mut config);
            assert_eq!(Method::of(&config), method);
        }
        let mut noise = TrainConfig { sampler: SamplerKind::Frequency, ..TrainConfig::default() };
        Method::Nce.apply(&mut noise);
        assert_eq!((noise.sampler, noise.loss()), (SamplerKind::Frequency, Loss::Nce));
    }
}
