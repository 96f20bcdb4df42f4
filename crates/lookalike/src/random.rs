//! Randomness without state: every use names its stream and its place, so a
//! run's numbers depend on its seed and never on the order of threads.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

/// What a stream of random numbers is for. Two uses never share one.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub enum Stream {
    /// Initial weights.
    Init = 1,
    /// The order of examples in an epoch.
    Shuffle = 2,
    /// Negatives of an example.
    Sample = 3,
    /// Hash functions.
    Hash = 4,
    /// Generated and split data.
    Data = 5,
    /// Stochastic rounding.
    Round = 6,
    /// Which of an example's true labels asks the hash tables.
    Label = 7,
    /// Examples held out from training.
    HoldOut = 8,
    /// Where the clusters of the search index start, and the examples that judge it.
    Search = 9,
    /// Earlier examples that are trained on again.
    Rehearse = 10,
    /// Found classes that stay whether or not they are among the best.
    Spare = 11,
    /// Inputs that an experiment looks at.
    Experiment = 16,
}

/// The generator used everywhere; its output never changes between releases.
pub type Rng = Xoshiro256PlusPlus;

/// A generator for one place: for example `(seed, Sample, iteration, example)`.
pub fn rng(seed: u64, stream: Stream, a: u64, b: u64) -> Rng {
    Rng::seed_from_u64(mix(seed, stream, a, b))
}

/// 64 random bits for one place.
pub fn mix(seed: u64, stream: Stream, a: u64, b: u64) -> u64 {
    [stream as u64, a, b]
        .iter()
        .fold(scramble(seed), |state, &x| scramble(state ^ x.wrapping_add(0x9E37_79B9_7F4A_7C15)))
}

/// The finaliser of SplitMix64.
fn scramble(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A number below `bound` (at least 1), by multiply-shift: the bias is below
/// `bound / 2^32`, which no test here could see.
pub fn below(random: u64, bound: u32) -> u32 {
    (((random >> 32) * u64::from(bound)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_coordinate_changes_the_numbers() {
        let base = mix(1, Stream::Sample, 2, 3);
        for other in [
            mix(2, Stream::Sample, 2, 3),
            mix(1, Stream::Hash, 2, 3),
            mix(1, Stream::Sample, 3, 2),
            mix(1, Stream::Sample, 2, 4),
        ] {
            assert_ne!(base, other);
        }
        assert_eq!(base, mix(1, Stream::Sample, 2, 3));
    }

    #[test]
    fn below_covers_its_range_evenly() {
        let mut counts = [0u32; 7];
        for i in 0..70_000 {
            counts[below(mix(0, Stream::Data, i, 0), 7) as usize] += 1;
        }
        // 10,000 expected, standard deviation 93: six of them.
        assert!(counts.iter().all(|&c| c.abs_diff(10_000) < 560), "{counts:?}");
    }
}
