//! Decimal numbers from bytes, fast and exactly rounded.
//!
//! Most of a file of examples is short runs of digits, so their lengths are
//! what a branch predictor cannot guess. Up to eight digits are therefore read
//! as one 64-bit word, without a loop.

/// The value and the end of the run of digits that starts at `at`. A value
/// past 64 bits is held at `u64::MAX`.
#[inline(always)]
pub(crate) fn digits(text: &[u8], at: usize) -> (u64, usize) {
    let (value, length) = up_to_eight_digits(text, at);
    if length < 8 { (value, at + length) } else { more_digits(text, at + 8, value) }
}

#[cold]
fn more_digits(text: &[u8], mut end: usize, mut value: u64) -> (u64, usize) {
    loop {
        let (more, length) = up_to_eight_digits(text, end);
        value = value.saturating_mul(TENS_U64[length]).saturating_add(more);
        end += length;
        if length < 8 {
            return (value, end);
        }
    }
}

#[inline(always)]
fn up_to_eight_digits(text: &[u8], at: usize) -> (u64, usize) {
    // A digit becomes 0 to 9; any other byte has its high bit set in `others`.
    // The sum may carry out of a byte that is no digit into a later one, but
    // only the first of them counts.
    let word = eight_bytes(text, at) ^ 0x3030_3030_3030_3030;
    let others = (word.wrapping_add(0x7676_7676_7676_7676) | word) & 0x8080_8080_8080_8080;
    let length = (others.trailing_zeros() / 8) as usize;
    if length == 0 {
        return (0, 0);
    }
    // Shifted to the end of the word, the digits have zeroes in front.
    let word = word << (64 - 8 * length);
    let pairs = word.wrapping_mul(10).wrapping_add(word >> 8);
    const MASK: u64 = 0x0000_00FF_0000_00FF;
    let high = (pairs & MASK).wrapping_mul(100 + (1_000_000 << 32));
    let low = ((pairs >> 16) & MASK).wrapping_mul(1 + (10_000 << 32));
    (high.wrapping_add(low) >> 32, length)
}

#[inline(always)]
fn eight_bytes(text: &[u8], at: usize) -> u64 {
    match text.get(at..at + 8) {
        Some(bytes) => u64::from_le_bytes(bytes.try_into().expect("eight bytes")),
        None => {
            let mut bytes = [0; 8];
            let rest = text.get(at..).unwrap_or(&[]);
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(bytes)
        }
    }
}

/// Why there is no usable number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotANumber {
    /// Other text.
    Text,
    /// NaN, infinity, or a number that rounds to infinity.
    NotFinite,
}

/// The number that stands in `text[at..]` up to white space or `end`, rounded
/// to the nearest f32 exactly as the standard library rounds.
#[inline(always)]
pub(crate) fn number(text: &[u8], at: usize, end: usize) -> Result<(f32, usize), NotANumber> {
    let start = at + usize::from(text.get(at) == Some(&b'-'));
    let (mut mantissa, mut next) = match text.get(start..start + 2) {
        // Nearly every value starts like this, and a branch that is always
        // right costs less than reading a word.
        Some(b"0.") => (0, start + 1),
        _ => digits(text, start),
    };
    let mut digit_count = next - start;
    let mut decimals = 0;
    if next < end && text[next] == b'.' {
        let (fraction, after) = digits(text, next + 1);
        decimals = after - next - 1;
        digit_count += decimals;
        if digit_count < TENS_U64.len() {
            mantissa = mantissa * TENS_U64[decimals] + fraction;
        }
        next = after;
    }
    let ended = next >= end || matches!(text[next], b' ' | b'\t');
    if ended
        && digit_count > 0
        && digit_count < TENS_U64.len()
        && let Some(value) = exact_quotient(mantissa, decimals)
    {
        return Ok((if start > at { -value } else { value }, next));
    }
    slow_number(text, at, end)
}

/// `mantissa / 10^decimals`, if one division and one rounding are sure to give
/// the nearest f32.
///
/// Both operands are exact in f64, so the quotient is the f64 nearest to the
/// true value. Rounding it again to f32 errs only if it lies half-way between
/// two neighbours in f32: such a point is itself an f64, so a true value on
/// one side of it never rounds to the other side, only onto it.
#[inline(always)]
fn exact_quotient(mantissa: u64, decimals: usize) -> Option<f32> {
    if mantissa > 1 << f64::MANTISSA_DIGITS {
        return None;
    }
    let quotient = mantissa as f64 / TENS_F64[decimals];
    let below_f32 = quotient.to_bits() & ((1 << 29) - 1);
    let half_way = below_f32 == 1 << 28;
    // Below the normal range f32 has fewer digits, and other half-way points.
    let normal = quotient >= f64::from(f32::MIN_POSITIVE) || mantissa == 0;
    (normal && !half_way).then_some(quotient as f32)
}

#[cold]
fn slow_number(text: &[u8], at: usize, end: usize) -> Result<(f32, usize), NotANumber> {
    let token = &text[at.min(end)..end];
    let length = token.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(token.len());
    let words = std::str::from_utf8(&token[..length]).map_err(|_| NotANumber::Text)?;
    let value: f32 = words.parse().map_err(|_| NotANumber::Text)?;
    if value.is_finite() { Ok((value, at + length)) } else { Err(NotANumber::NotFinite) }
}

const TENS_U64: [u64; 20] = {
    let mut tens = [1; 20];
    let mut i = 1;
    while i < tens.len() {
        tens[i] = tens[i - 1] * 10;
        i += 1;
    }
    tens
};

/// Powers of ten up to 10^22 are exact in f64; 10^19 is the last one needed.
const TENS_F64: [f64; 20] = {
    let mut tens = [1.0; 20];
    let mut i = 1;
    while i < tens.len() {
        tens[i] = tens[i - 1] * 10.0;
        i += 1;
    }
    tens
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Stream, mix};

    /// The twin: whatever the standard library says of the whole string.
    fn assert_like_std(words: &str) {
        let ours = number(words.as_bytes(), 0, words.len());
        match words.parse::<f32>() {
            Ok(value) if value.is_finite() => {
                let (found, end) = ours.unwrap_or_else(|e| panic!("{words}: {e:?}"));
                assert_eq!(found.to_bits(), value.to_bits(), "{words}: {found} is not {value}");
                assert_eq!(end, words.len());
            }
            Ok(_) => assert_eq!(ours, Err(NotANumber::NotFinite), "{words}"),
            Err(_) => assert_eq!(ours, Err(NotANumber::Text), "{words}"),
        }
    }

    #[test]
    fn digits_equal_the_standard_parser_at_every_length_and_place() {
        for i in 0..20_000u64 {
            let value = mix(1, Stream::Data, i, 0) >> (i % 64);
            let words = format!("x{value}:");
            for text in [&words[..], &words[..words.len() - 1]] {
                assert_eq!(digits(text.as_bytes(), 1), (value, 1 + value.to_string().len()));
            }
        }
        assert_eq!(digits(b"99999999999999999999999", 0), (u64::MAX, 23));
        assert_eq!(digits(b"", 0), (0, 0));
        assert_eq!(digits(b"/", 0), (0, 0));
        assert_eq!(digits(b"12:\xFF\xFF\xFF\xFF\xFF", 0), (12, 2));
    }

    #[test]
    fn random_decimals_round_like_the_standard_library() {
        for i in 0..1_000_000u64 {
            let random = mix(2, Stream::Data, i, 0);
            let mantissa = mix(2, Stream::Data, i, 1) >> (random % 64);
            let decimals = ((random >> 8) % 24) as usize;
            let sign = if random >> 63 == 0 { "" } else { "-" };
            let padded = format!("{mantissa:0width$}", width = decimals + 1);
            let (whole, fraction) = padded.split_at(padded.len() - decimals);
            assert_like_std(&format!("{sign}{whole}.{fraction}"));
        }
    }

    #[test]
    fn points_between_two_floats_round_like_the_standard_library() {
        // Half-way points, and their neighbours in the last decimal, are where
        // rounding twice would go wrong.
        for i in 0..200_000u64 {
            let bits = (mix(3, Stream::Data, i, 0) as u32 % 0x3000_0000) + 0x2000_0000;
            let (low, high) = (f64::from(f32::from_bits(bits)), f64::from(f32::from_bits(bits + 1)));
            let middle = (low + high) / 2.0;
            for decimals in [9, 12, 15, 30] {
                assert_like_std(&format!("{middle:.decimals$}"));
            }
            assert_like_std(&format!("{}", f32::from_bits(bits)));
        }
    }

    #[test]
    fn odd_spellings_mean_what_the_standard_library_says() {
        for words in [
            "0",
            "-0",
            "0.0",
            "-0.0",
            "1.",
            ".5",
            "-.5",
            ".",
            "-",
            "",
            "+1",
            "--1",
            "1e3",
            "1E-3",
            "1e400",
            "-1e400",
            "1e-400",
            "nan",
            "NaN",
            "inf",
            "-inf",
            "infinity",
            "1.5.2",
            "0x10",
            "1,5",
            "1e",
            "16777217",
            "16777217.0",
            "9007199254740993",
            "00000000000000000000001",
            "0.00000000000000000000000000000000000000000000001",
            "340282350000000000000000000000000000000",
            "340282360000000000000000000000000000000",
            "1e-45",
            "7e-46",
            "0.000000000000000000000000000000000000011754944",
            "ä",
            "1 ",
            "12345678.12345678",
            "1234567890123456789",
        ] {
            let words = words.trim();
            assert_like_std(words);
        }
    }
}
