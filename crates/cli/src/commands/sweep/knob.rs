//! The settings that can be varied.

use std::str::FromStr;

use lookalike::train::TrainConfig;

/// A setting that takes several values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knob {
    Budget,
    Sparsity,
    Tables,
    Functions,
    Refresh,
    RefreshGrowth,
    HashedShare,
    LearningRate,
    Batch,
    Hidden,
}

/// One value of each varied setting.
pub(super) type Point = Vec<(Knob, f64)>;

impl Knob {
    const ALL: [Self; 10] = [
        Self::Budget,
        Self::Sparsity,
        Self::Tables,
        Self::Functions,
        Self::Refresh,
        Self::RefreshGrowth,
        Self::HashedShare,
        Self::LearningRate,
        Self::Batch,
        Self::Hidden,
    ];

    /// The name of the flag that sets it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::Sparsity => "sparsity",
            Self::Tables => "tables",
            Self::Functions => "functions",
            Self::Refresh => "refresh",
            Self::RefreshGrowth => "refresh-growth",
            Self::HashedShare => "hashed-share",
            Self::LearningRate => "lr",
            Self::Batch => "batch",
            Self::Hidden => "hidden",
        }
    }

    fn is_whole(self) -> bool {
        !matches!(self, Self::Sparsity | Self::RefreshGrowth | Self::HashedShare | Self::LearningRate)
    }

    /// Sets it; whether the value makes sense is checked with the other settings.
    pub(super) fn set(self, config: &mut TrainConfig, value: f64) {
        let whole = value as usize;
        match self {
            Self::Budget => (config.budget, config.sparsity) = (Some(whole), None),
            Self::Sparsity => (config.budget, config.sparsity) = (None, Some(value)),
            Self::Tables => config.lsh.l = Some(whole),
            Self::Functions => config.lsh.k = Some(whole),
            Self::Refresh => config.lsh.refresh_first = whole as u64,
            Self::RefreshGrowth => config.lsh.refresh_growth = value,
            Self::HashedShare => config.mixed.hashed_share = value,
            Self::LearningRate => config.lr = value as f32,
            Self::Batch => config.batch = whole,
            Self::Hidden => {
                if let Some(last) = config.hidden.last_mut() {
                    *last = whole;
                }
            }
        }
    }
}

/// A setting and the values it takes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Varied {
    pub(super) knob: Knob,
    values: Vec<f64>,
}

impl FromStr for Varied {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, values) = text.split_once('=').ok_or("expected NAME=VALUE,…, as in budget=100,200")?;
        let known = || Knob::ALL.map(Knob::name).join(", ");
        let knob = Knob::ALL.into_iter().find(|knob| knob.name() == name);
        let knob = knob.ok_or_else(|| format!("{name:?} cannot be varied; what can is {}", known()))?;
        let values = values.split(',').map(|value| knob.read(value)).collect::<Result<_, _>>()?;
        Ok(Self { knob, values })
    }
}

impl Knob {
    fn read(self, text: &str) -> Result<f64, String> {
        let value = text.trim().parse::<f64>().ok().filter(|x| x.is_finite() && *x >= 0.0);
        let value = value.filter(|x| !self.is_whole() || x.fract() == 0.0);
        let kind = if self.is_whole() { "a whole number" } else { "a number" };
        value.ok_or_else(|| format!("{}: found {text:?}, expected {kind} of 0 or more", self.name()))
    }
}

/// All combinations of the values, or one setting after the other.
pub(super) fn points(varied: &[Varied], one_at_a_time: bool) -> Vec<Point> {
    let single = |varied: &Varied| -> Vec<Point> {
        varied.values.iter().map(|&value| vec![(varied.knob, value)]).collect()
    };
    if one_at_a_time {
        return varied.iter().flat_map(single).collect();
    }
    varied.iter().fold(vec![Point::new()], |points, varied| {
        let with = |point: &Point| -> Vec<Point> {
            single(varied).into_iter().map(|one| point.iter().copied().chain(one).collect()).collect()
        };
        points.iter().flat_map(with).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_varied_together_or_one_after_the_other() {
        let varied: Vec<Varied> = ["budget=10,20", "tables=5,6,7"].map(|text| text.parse().unwrap()).into();
        let grid = points(&varied, false);
        assert_eq!(grid.len(), 6);
        assert_eq!(grid[1], [(Knob::Budget, 10.0), (Knob::Tables, 6.0)]);
        let list = points(&varied, true);
        assert_eq!(list.len(), 5);
        assert_eq!(list[4], [(Knob::Tables, 7.0)]);
    }

    #[test]
    fn every_setting_reaches_the_configuration() {
        for knob in Knob::ALL {
            let mut config = TrainConfig::default();
            knob.set(&mut config, if knob.is_whole() { 3.0 } else { 0.125 });
            assert_ne!(config, TrainConfig::default(), "{}", knob.name());
            assert_eq!(format!("{}=1", knob.name()).parse::<Varied>().unwrap().knob, knob);
        }
    }

    #[test]
    fn bad_values_are_named() {
        for (text, expected) in [
            ("budget", "NAME=VALUE"),
            ("depth=3", "refresh-growth"),
            ("tables=4.5", "a whole number"),
            ("lr=fast", "\"fast\""),
            ("budget=-1", "0 or more"),
        ] {
            let error = text.parse::<Varied>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
