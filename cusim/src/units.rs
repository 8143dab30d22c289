//! Parser of sizes and durations with units.

use std::time::Duration;

/// Parses a number of bytes with an optional unit `B`, `KiB`, `MiB`, `GiB` or `TiB`.
///
/// ```
/// assert_eq!(memtrace_cusim::bytes("80GiB"), Some(80 << 30));
/// assert_eq!(memtrace_cusim::bytes("1.5 MiB"), Some(3 << 19));
/// assert_eq!(memtrace_cusim::bytes("80GB"), None);
/// ```
#[must_use]
pub fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    scaled(number, 1 << shift)
}

/// Parses a duration with the unit `us`, `ms` or `s`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let nanos = match unit {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    scaled(number, nanos).map(Duration::from_nanos)
}

fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    (!number.is_empty()).then_some((number, unit.trim()))
}

/// Multiplies a number by its unit. `None` if the result is no whole number, as for `1.5 B`.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    if !number.contains('.') {
        return number.parse::<u64>().ok()?.checked_mul(unit);
    }
    #[expect(clippy::cast_precision_loss, reason = "units are powers that f64 holds exactly")]
    let product = number.parse::<f64>().ok()? * unit as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: whole, positive, small")]
    (product.fract() == 0.0 && product < 9e15).then_some(product as u64)
}
