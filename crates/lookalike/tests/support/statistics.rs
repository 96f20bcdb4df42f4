//! Frequencies against theory.

/// Pearson's chi-square of counts against the chances they should have, which
/// add up to 1. Error level 1e-6: so often does it fail where nothing is wrong.
#[track_caller]
pub(crate) fn assert_follows(observed: &[u32], chance_of: impl Fn(usize) -> f64, case: &str) {
    let total: f64 = observed.iter().map(|&count| f64::from(count)).sum();
    let deviation = |(i, &count): (usize, &u32)| {
        let expected = chance_of(i) * total;
        (f64::from(count) - expected).powi(2) / expected
    };
    let statistic: f64 = observed.iter().enumerate().map(deviation).sum();
    // Wilson and Hilferty: the cube root of chi-square is nearly normal; 4.75
    // standard deviations are exceeded with chance 1e-6.
    let freedom = observed.len() as f64 - 1.0;
    let spread = 2.0 / (9.0 * freedom);
    let limit = freedom * f64::powi(1.0 - spread + 4.75 * spread.sqrt(), 3);
    assert!(statistic < limit, "{case}: {statistic:.1}, at most {limit:.1}: {observed:?}");
}
