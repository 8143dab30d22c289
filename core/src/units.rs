//! Byte sizes as text: formatted with IEC units, parsed with IEC and SI units.

use std::fmt;

use crate::error::Error;

/// The largest `stack_depth` of a recording, in frames.
pub const MAX_STACK_DEPTH: usize = 256;

/// A number of bytes that prints in IEC units with four significant digits: `915.7 MiB`.
///
/// ```
/// # use memtrace_core as memtrace;
/// assert_eq!(memtrace::Bytes(1536).to_string(), "1.500 KiB");
/// assert_eq!(memtrace::Bytes(999).to_string(), "999 B");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

const IEC: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unit = 0;
        let mut value = self.0 as f64;
        // 1023.95 would print as "1024", so it takes the next unit.
        while value >= 1023.95 && unit + 1 < IEC.len() {
            value /= 1024.0;
            unit += 1;
        }
        let decimals = match value {
            _ if unit == 0 => 0,
            v if v < 9.9995 => 3,
            v if v < 99.995 => 2,
            _ => 1,
        };
        f.pad(&format!("{value:.decimals$} {}", IEC[unit]))
    }
}

/// Formats a round size without decimals (`64 KiB`), other sizes like [`Bytes`].
pub fn round(bytes: u64) -> String {
    let unit = if bytes == 0 { 0 } else { (bytes.trailing_zeros() / 10) as usize };
    let whole = bytes >> (10 * unit);
    if whole < 1024 { format!("{whole} {}", IEC[unit]) } else { Bytes(bytes).to_string() }
}

/// Formats a size with a sign: `+1.500 KiB`, `-2.000 MiB`, `0 B`.
pub fn signed(bytes: i64) -> String {
    let plus = if bytes > 0 { "+" } else { "" };
    format!("{plus}{}", with_minus(bytes))
}

/// Formats a size with a sign only if it is negative: `1.500 KiB`, `-2.000 MiB`.
pub(crate) fn with_minus(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", Bytes(bytes.unsigned_abs()))
}

/// A number with a noun, which is in the plural unless the number is 1: `1 block`, `8 ranks`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(count))
}

/// Nanoseconds in seconds.
pub fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Formats a number with groups of three digits: `960,194,048`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Parses a size: `4096`, `64 KiB`, `1.5 GiB` (powers of 1024) or `500 MB`, `10 kB` (powers of 1000).
///
/// It refuses a unit without `B`, such as `512M`: half of the tools mean 10⁶ by `M`, the others 2²⁰. The parsers of
/// other libraries accept such units. A size with a fraction must be a whole number of bytes.
///
/// # Errors
/// If the text is not a size.
///
/// ```
/// # use memtrace_core as memtrace;
/// assert_eq!(memtrace::parse_bytes("1.5 KiB").unwrap(), 1536);
/// assert_eq!(memtrace::parse_bytes("2MB").unwrap(), 2_000_000);
/// assert!(memtrace::parse_bytes("512M").is_err());
/// ```
pub fn parse_bytes(text: &str) -> Result<u64, Error> {
    parse(text.trim()).ok_or_else(|| Error::size(text))
}

fn parse(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = factor(unit.trim_start())?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u128 = if whole.is_empty() { return None } else { digits(whole)? };
    if number.ends_with('.') || fraction.len() > 18 {
        return None;
    }
    let scale = 10u128.checked_pow(fraction.len() as u32)?;
    let scaled = digits(fraction)?.checked_mul(factor)?;
    if scaled % scale != 0 {
        return None;
    }
    whole.checked_mul(factor)?.checked_add(scaled / scale)?.try_into().ok()
}

fn digits(text: &str) -> Option<u128> {
    if text.is_empty() { Some(0) } else { text.parse().ok() }
}

fn factor(unit: &str) -> Option<u128> {
    Some(match unit {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    })
}

/// The text with its first letter in upper case.
pub(crate) fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_with_four_digits_and_never_as_1024() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.000 KiB"),
            (10_239, "9.999 KiB"),
            (10_240, "10.00 KiB"),
            (1_048_575, "1.000 MiB"),
            (960_194_048, "915.7 MiB"),
            (u64::MAX, "16.00 EiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>10}", Bytes(1024)), " 1.000 KiB");
    }

    #[test]
    fn sizes_are_read_strictly() {
        let good = [("0", 0), ("4096", 4096), ("64KiB", 65_536), (" 1.5 GiB ", 1_610_612_736), ("1000 B", 1000)];
        for (text, bytes) in good {
            assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
        }
        for text in [
            "",
            "MiB",
            "512M",
            "1k",
            "-1",
            "1.5",
            "0.3 KiB",
            "1..2 KiB",
            "1. KiB",
            ".",
            "_",
            "1_000",
            "99999999999 TiB",
            "1 mib",
        ] {
            let error = parse_bytes(text).unwrap_err().to_string();
            assert!(error.contains("512 MiB"), "{text}: {error}");
        }
    }

    #[test]
    fn round_sizes_have_no_decimals() {
        let cases = [(0, "0 B"), (1024, "1 KiB"), (65_536, "64 KiB"), (3 << 20, "3 MiB"), (1025, "1.001 KiB")];
        cases.iter().for_each(|(bytes, text)| assert_eq!(round(*bytes), *text));
    }

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!([0, 12, 123, 1234, 123_456, 1_234_567].map(grouped).join(" "), "0 12 123 1,234 123,456 1,234,567");
    }

    #[test]
    fn signed_sizes_carry_their_sign() {
        assert_eq!([0, 1024, -1024].map(signed).join(" "), "0 B +1.000 KiB -1.000 KiB");
    }
}
