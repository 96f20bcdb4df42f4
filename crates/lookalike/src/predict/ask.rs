//! What is asked of a ranking.

/// What an answer should hold, and how it is found.
///
/// [`Ask::best`] asks for the best classes and their scores; everything else is a
/// field beside it: `Ask { probabilities: true, ..Ask::best(5) }`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ask<'a> {
    /// The best so many classes, at least 1.
    pub k: usize,
    /// Probabilities instead of scores.
    pub probabilities: bool,
    /// How classes are found.
    pub search: Search,
    /// Only these classes, in any order; none stands for all classes. They are all
    /// scored, whatever `search` says.
    pub only: Option<&'a [u32]>,
    /// Only classes whose value is at least this: the probability where probabilities
    /// are asked for, else the score.
    pub threshold: Option<f32>,
}

/// How the best classes are found. However that is, a class that is found has the same
/// score, to the bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// Every class is scored.
    #[default]
    Exact,
    /// Each part of the model proposes classes in time that hardly grows with their
    /// number, and only those are scored. Of a model without a search index, every
    /// class.
    Fast {
        /// How many classes are looked at, about; as many as there are find what
        /// [`Search::Exact`] finds. None: what was chosen when the model was trained.
        effort: Option<usize>,
    },
}

impl Search {
    /// With the effort that was chosen when the model was trained.
    pub const FAST: Self = Self::Fast { effort: None };
}

impl Ask<'_> {
    /// The best `k` classes and their scores, exactly.
    pub const fn best(k: usize) -> Self {
        Self { k, probabilities: false, search: Search::Exact, only: None, threshold: None }
    }
}
