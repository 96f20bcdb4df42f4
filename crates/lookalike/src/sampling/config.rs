//! Samplers by name, their options with defaults, and how one is made.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Sampler;
use super::frequency::Frequency;
use super::log_uniform::LogUniform;
use super::lsh::{LshSampler, Plan, Query, Walk};
use super::mixed::mixed;
use super::static_sampler::{Distribution, StaticSampler};
use super::top_k::TopKSampler;
use super::uniform::Uniform;
use crate::hashing::{
    Choice, Codes, Family, FamilyShape, HashError, HashTables, Incremental, RefreshSchedule, Wanted,
};

/// The samplers by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SamplerKind {
    /// Hash tables asked with the embedding (paper).
    LshEmbedding,
    /// Hash tables asked with a true label's vector (paper).
    LshLabel,
    /// Hashed negatives and a uniform share, corrected.
    Mixed,
    /// Every class.
    Full,
    /// The classes with the highest scores.
    TopK,
    /// Sampled softmax.
    LogUniform,
    /// In proportion to training frequency.
    Frequency,
    /// Every class as likely as any other.
    Uniform,
}

/// What there is to know of a sampler by name: the one table of them. A new sampler
/// is a variant of [`SamplerKind`] and a row here.
struct Entry {
    kind: SamplerKind,
    /// The name used in options and files.
    name: &'static str,
    /// The name that a reader of the paper knows.
    title: &'static str,
    /// Whether it looks candidates up in hash tables.
    uses_tables: bool,
    /// Negatives an example by default, if these are only the best of the classes it found
    /// (docs/notes/selection.md).
    selected_by_default: Option<usize>,
    /// Whether it knows how likely each of its negatives was.
    knows_noise: bool,
    /// Whether scores are corrected by `ln q` unless told otherwise.
    corrects_log_q: bool,
    /// Makes it; nothing where every class is scored without a sampler.
    make: Option<Make>,
}

type Make = fn(&Setup<'_>) -> Result<Box<dyn Sampler>, SamplerError>;

/// In the order of the documentation.
const ENTRIES: [Entry; 8] = [
    Entry {
        kind: SamplerKind::LshEmbedding,
        name: "lsh-embedding",
        title: "LSH Embedding",
        uses_tables: true,
        selected_by_default: Some(100),
        knows_noise: false,
        corrects_log_q: false,
        make: Some(|setup| hashed(Plan::of(setup, Query::Embedding), setup)),
    },
    Entry {
        kind: SamplerKind::LshLabel,
        name: "lsh-label",
        title: "LSH Label",
        uses_tables: true,
        selected_by_default: Some(50),
        knows_noise: false,
        corrects_log_q: false,
        make: Some(|setup| hashed(Plan::of(setup, Query::Label), setup)),
    },
    Entry {
        kind: SamplerKind::Mixed,
        name: "mixed",
        title: "Mixed",
        uses_tables: true,
        selected_by_default: None,
        knows_noise: false,
        corrects_log_q: true,
        make: Some(|setup| hashed(mixed(setup)?, setup)),
    },
    Entry {
        kind: SamplerKind::Full,
        name: "full",
        title: "Full softmax",
        uses_tables: false,
        selected_by_default: None,
        knows_noise: false,
        corrects_log_q: false,
        make: None,
    },
    Entry {
        kind: SamplerKind::TopK,
        name: "top-k",
        title: "Top-k softmax",
        uses_tables: false,
        selected_by_default: None,
        knows_noise: false,
        corrects_log_q: false,
        make: Some(|setup| Ok(Box::new(TopKSampler::new(setup.budget)))),
    },
    Entry {
        kind: SamplerKind::LogUniform,
        name: "log-uniform",
        title: "Sampled softmax",
        uses_tables: false,
        selected_by_default: None,
        knows_noise: true,
        corrects_log_q: true,
        make: Some(|setup| drawn(LogUniform::new(setup.label_counts), setup)),
    },
    Entry {
        kind: SamplerKind::Frequency,
        name: "frequency",
        title: "Frequency softmax",
        uses_tables: false,
        selected_by_default: None,
        knows_noise: true,
        corrects_log_q: true,
        make: Some(|setup| drawn(Frequency::new(setup.label_counts), setup)),
    },
    Entry {
        kind: SamplerKind::Uniform,
        name: "uniform",
        title: "Uniform softmax",
        uses_tables: false,
        selected_by_default: None,
        knows_noise: true,
        corrects_log_q: true,
        make: Some(|setup| drawn(Uniform::new(setup.label_counts.len()), setup)),
    },
];

fn hashed(plan: Plan, setup: &Setup<'_>) -> Result<Box<dyn Sampler>, SamplerError> {
    Ok(Box::new(LshSampler::with(setup.tables(setup.label_counts.len())?, plan)))
}

fn drawn(
    distribution: impl Distribution + 'static,
    setup: &Setup<'_>,
) -> Result<Box<dyn Sampler>, SamplerError> {
    Ok(Box::new(StaticSampler::new(distribution, setup.budget)))
}

impl SamplerKind {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; ENTRIES.len()] = {
        let mut all = [Self::Full; ENTRIES.len()];
        let mut place = 0;
        while place < ENTRIES.len() {
            all[place] = ENTRIES[place].kind;
            place += 1;
        }
        all
    };

    fn entry(self) -> &'static Entry {
        const { &ENTRIES }.iter().find(|entry| entry.kind == self).expect("every kind is in the table")
    }

    /// The name used in options and files.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// The name that a reader of the paper knows.
    pub fn title(self) -> &'static str {
        self.entry().title
    }

    /// Whether it looks candidates up in hash tables.
    pub fn uses_tables(self) -> bool {
        self.entry().uses_tables
    }

    /// Whether only the best of the classes it found may be trained on.
    pub fn can_select(self) -> bool {
        self.uses_tables()
    }

    /// Negatives an example by default where they are the best of many.
    pub fn selected_by_default(self) -> Option<usize> {
        self.entry().selected_by_default
    }

    /// Whether it knows how likely each of its negatives was.
    pub fn knows_noise(self) -> bool {
        self.entry().knows_noise
    }

    /// Whether scores are corrected by `ln q` unless told otherwise: static
    /// samplers are (as in TensorFlow), so is the mixed one; the paper's two are not.
    pub fn corrects_log_q(self) -> bool {
        self.entry().corrects_log_q
    }
}

impl fmt::Display for SamplerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SamplerKind {
    type Err = SamplerError;

    fn from_str(name: &str) -> Result<Self, SamplerError> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| SamplerError::Unknown { name: name.to_owned() })
    }
}

/// Options of the hash tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LshConfig {
    /// The hash family.
    pub family: Family,
    /// K, functions a table; chosen for the budget if absent.
    pub k: Option<usize>,
    /// L, tables; chosen for the budget if absent.
    pub l: Option<usize>,
    /// Dimensions in a bin (winner-take-all).
    pub bin: usize,
    /// How codes are put together (winner-take-all).
    pub codes: Codes,
    /// Iterations until the first refresh.
    pub refresh_first: u64,
    /// Each further period is this much longer.
    pub refresh_growth: f64,
    /// Whether a refresh may re-hash only what changed.
    pub incremental: Incremental,
    /// Whether uniform draws make up for what the tables do not give.
    pub fill: bool,
    /// How a query goes through the tables; unset, widening where the best of many are
    /// selected, else once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walk: Option<Walk>,
    /// Whether class vectors are hashed less their mean.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub centre: bool,
}

impl Default for LshConfig {
    fn default() -> Self {
        Self {
            family: Family::default(),
            k: None,
            l: None,
            bin: 8,
            codes: Codes::default(),
            refresh_first: RefreshSchedule::FIRST,
            refresh_growth: RefreshSchedule::GROWTH,
            incremental: Incremental::default(),
            fill: false,
            walk: None,
            centre: false,
        }
    }
}

impl LshConfig {
    /// When to refresh.
    pub fn schedule(&self) -> RefreshSchedule {
        RefreshSchedule::new(self.refresh_first, self.refresh_growth)
    }

    /// K and L, given or chosen for `budget`, and what to expect of them.
    pub fn choose(&self, budget: usize, classes: usize, dim: usize) -> Result<Choice, HashError> {
        Choice::make(&self.shape(dim), &Wanted { budget, classes, k: self.k, l: self.l })
    }

    /// Draws a family with the chosen K and L and makes its tables, still empty.
    pub fn tables(
        &self,
        choice: &Choice,
        classes: usize,
        dim: usize,
        seed: u64,
    ) -> Result<HashTables, HashError> {
        let shape = FamilyShape { k: choice.k, l: choice.l, ..self.shape(dim) };
        let tables = HashTables::new(shape.draw(seed)?, classes, self.incremental);
        Ok(if self.centre { tables.centred() } else { tables })
    }

    fn shape(&self, dim: usize) -> FamilyShape {
        let Self { family, bin, codes, .. } = *self;
        FamilyShape { family, dim, k: 1, l: 1, bin, codes }
    }
}

/// Options of the mixed sampler, besides those of its tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct MixedConfig {
    /// The share of the budget that is looked up, from 0 to 1.
    pub hashed_share: f64,
    /// What the tables are asked with.
    pub query: MixedQuery,
}

impl Default for MixedConfig {
    fn default() -> Self {
        Self { hashed_share: 0.5, query: MixedQuery::default() }
    }
}

impl MixedConfig {
    /// How many of the negatives are looked up.
    pub fn hashed(&self, budget: usize) -> usize {
        (budget as f64 * self.hashed_share).round() as usize
    }
}

/// What the mixed sampler asks its tables with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MixedQuery {
    /// The embedding.
    Embedding,
    /// A true label's vector.
    Label,
    /// Half of the hashed share each.
    #[default]
    Both,
}

/// What a sampler is made for.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The run's seed.
    pub seed: u64,
    /// Negatives an example that are trained on, at most.
    pub budget: usize,
    /// Classes that hash tables may give an example, where the best of them are
    /// trained on; at least `budget`.
    pub retrieve: usize,
    /// Numbers in a class vector.
    pub dim: usize,
    /// How often each class is a label in the training data; its length is the
    /// number of classes. See [`crate::data::Examples::label_counts`].
    pub label_counts: &'a [u32],
    /// Options of the hash tables.
    pub lsh: &'a LshConfig,
    /// Options of the mixed sampler.
    pub mixed: &'a MixedConfig,
}

/// A sampler that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SamplerError {
    /// No such name.
    #[error("unknown sampler {name:?}; expected one of {}", SamplerKind::ALL.map(SamplerKind::name).join(", "))]
    Unknown {
        /// What was given.
        name: String,
    },
    /// It is no sampler.
    #[error("{kind} scores every class and needs no sampler")]
    ScoresEveryClass {
        /// What was asked for.
        kind: SamplerKind,
    },
    /// Nothing to sample, or nothing to sample from.
    #[error(
        "a sampler needs a budget of at least 1 and from 1 to {} classes, but got budget {budget} and {classes} classes",
        u32::MAX
    )]
    Size {
        /// Negatives an example.
        budget: usize,
        /// Classes.
        classes: usize,
    },
    /// The share is no share.
    #[error("the hashed share of the mixed sampler must lie between 0 and 1, but is {found}")]
    HashedShare {
        /// What was given.
        found: String,
    },
    /// Hash tables of this shape cannot be made.
    #[error(transparent)]
    Hash(#[from] HashError),
}

impl Setup<'_> {
    /// Hash tables for the budget, still empty, with room for `classes` of all classes.
    pub(super) fn tables(&self, classes: usize) -> Result<HashTables, HashError> {
        let choice = self.lsh.choose(self.retrieve, self.label_counts.len(), self.dim)?;
        self.lsh.tables(&choice, classes, self.dim, self.seed)
    }

    /// How queries go through the tables: where the best of many are selected, they get
    /// as many as they ask for; else they find what K functions find, as in the paper.
    pub(super) fn walk(&self) -> Walk {
        let selects = self.retrieve > self.budget;
        self.lsh.walk.unwrap_or(if selects { Walk::Widening } else { Walk::Once })
    }

    /// Within what the classes allow, or an error.
    pub(super) fn checked(&self) -> Result<Self, SamplerError> {
        let &Self { budget, label_counts, .. } = self;
        let classes = label_counts.len();
        if budget == 0 || classes == 0 || classes > u32::MAX as usize {
            return Err(SamplerError::Size { budget, classes });
        }
        // More negatives than classes would only be room that stays empty.
        let budget = budget.min(classes);
        Ok(Self { budget, retrieve: self.retrieve.clamp(budget, classes), ..*self })
    }
}

/// Makes a sampler. One that uses tables has to be refreshed before it proposes.
pub fn build(kind: SamplerKind, setup: &Setup<'_>) -> Result<Box<dyn Sampler>, SamplerError> {
    let setup = setup.checked()?;
    kind.entry().make.ok_or(SamplerError::ScoresEveryClass { kind })?(&setup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in SamplerKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        let error = "lsh".parse::<SamplerKind>().unwrap_err().to_string();
        assert!(error.contains("\"lsh\"") && error.contains("lsh-embedding, lsh-label"), "{error}");
    }

    #[test]
    fn options_have_defaults_and_refuse_misspellings() {
        let config: LshConfig = serde_json::from_str(r#"{"k": 5, "codes": "overlapped"}"#).unwrap();
        let expected = LshConfig { k: Some(5), codes: Codes::Overlapped, ..LshConfig::default() };
        assert_eq!(config, expected);
        assert!(serde_json::from_str::<LshConfig>(r#"{"tables": 5}"#).is_err());
    }

    #[test]
    fn impossible_samplers_are_refused() {
        let (lsh, mixed) = (LshConfig::default(), MixedConfig::default());
        let setup = Setup {
            seed: 0,
            budget: 3,
            retrieve: 3,
            dim: 8,
            label_counts: &[1; 9],
            lsh: &lsh,
            mixed: &mixed,
        };
        let error = |kind, setup: Setup<'_>| build(kind, &setup).unwrap_err();
        assert_eq!(
            error(SamplerKind::Full, setup),
            SamplerError::ScoresEveryClass { kind: SamplerKind::Full }
        );
        assert_eq!(
            error(SamplerKind::Uniform, Setup { budget: 0, ..setup }),
            SamplerError::Size { budget: 0, classes: 9 }
        );
        assert!(matches!(
            error(SamplerKind::LshLabel, Setup { dim: 0, ..setup }),
            SamplerError::Hash(HashError::Size { .. })
        ));
        let mixed = MixedConfig { hashed_share: f64::NAN, ..MixedConfig::default() };
        assert!(matches!(
            error(SamplerKind::Mixed, Setup { mixed: &mixed, ..setup }),
            SamplerError::HashedShare { .. }
        ));
    }
}
