//! Encodes columns of numbers: as little-endian byte planes (first the lowest byte of every value, then the next
//! one), with delta coding where it helps, deflated, in base64.

use std::fmt::Write;

/// The columns of the page as script elements, which the page finds by their names.
#[derive(Debug, Default)]
pub(super) struct ColumnStore {
    /// Script elements without code, one per column.
    pub(super) html: String,
    prefix: String,
}

/// How values are encoded as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// The values themselves.
    Plain,
    /// Differences from the previous value, zigzag-coded. They are small if neighbours are similar.
    Delta,
}

impl ColumnStore {
    /// A store without columns. The names of all its columns will begin with this prefix.
    pub(super) fn named(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..Self::default() }
    }

    pub(super) fn numbers(&mut self, name: &str, coding: Coding, values: impl Iterator<Item = u64>) {
        let values: Vec<u64> = match coding {
            Coding::Plain => values.collect(),
            Coding::Delta => deltas(values).collect(),
        };
        self.planes(name, if coding == Coding::Delta { "delta" } else { "plain" }, &values);
    }

    /// Values that may be negative.
    pub(super) fn signed(&mut self, name: &str, values: impl Iterator<Item = i64>) {
        self.planes(name, "signed", &values.map(zigzag).collect::<Vec<u64>>());
    }

    fn planes(&mut self, name: &str, coding: &str, values: &[u64]) {
        let width = width_of(values.iter().copied().max().unwrap_or(0));
        let planes: Vec<u8> =
            (0..width).flat_map(|byte| values.iter().map(move |value| (value >> (8 * byte)) as u8)).collect();
        self.put(name, &format!("data-coding=\"{coding}\" data-width=\"{width}\""), &planes);
    }

    pub(super) fn json(&mut self, name: &str, value: &serde_json::Value) {
        self.put(name, "data-coding=\"json\"", value.to_string().as_bytes());
    }

    fn put(&mut self, name: &str, attributes: &str, bytes: &[u8]) {
        let (packed, packing) = deflated(bytes);
        let prefix = &self.prefix;
        let _ = write!(
            self.html,
            "<script type=\"application/octet-stream\" id=\"{prefix}{name}\" {attributes} data-packing=\"{packing}\">"
        );
        base64(&packed, &mut self.html);
        self.html.push_str("</script>\n");
    }
}

fn deltas(values: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let mut before = 0u64;
    values.map(move |value| {
        let change = value.wrapping_sub(before).cast_signed();
        before = value;
        zigzag(change)
    })
}

/// Maps 0, -1, 1, -2, … to 0, 1, 2, 3, …
fn zigzag(change: i64) -> u64 {
    ((change << 1) ^ (change >> 63)).cast_unsigned()
}

fn width_of(largest: u64) -> u32 {
    match 64 - largest.leading_zeros() {
        0..=8 => 1,
        9..=16 => 2,
        17..=32 => 4,
        _ => 8,
    }
}

#[cfg(feature = "gzip")]
fn deflated(bytes: &[u8]) -> (Vec<u8>, &'static str) {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    // Writing to a vector cannot fail.
    let _ = std::io::Write::write_all(&mut encoder, bytes);
    (encoder.finish().unwrap_or_default(), "deflate")
}

#[cfg(not(feature = "gzip"))]
fn deflated(bytes: &[u8]) -> (Vec<u8>, &'static str) {
    (bytes.to_vec(), "stored")
}

fn base64(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.reserve(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let is_there = digit <= three.len();
            let value = DIGITS[(bits >> (18 - 6 * digit) & 63) as usize];
            out.push(if is_there { char::from(value) } else { '=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            let mut out = String::new();
            base64(bytes.as_bytes(), &mut out);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn differences_are_small_whatever_their_sign() {
        assert_eq!(deltas([5, 4, 4, 6].into_iter()).collect::<Vec<_>>(), [10, 1, 0, 4]);
        assert_eq!([0, -1, 1, i64::MIN].map(zigzag), [0, 1, 2, u64::MAX]);
        assert_eq!([0, 255, 256, 65536, 1 << 32].map(width_of), [1, 1, 2, 4, 8]);
    }
}
