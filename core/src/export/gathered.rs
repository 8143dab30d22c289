//! Write buffer for pickles and JSON, which combines many small pieces to few large writes.

use std::io::{self, Write};

use crate::visible;

/// The buffer is written once it has this many bytes.
const MANY: usize = 1 << 16;

/// A text as JSON.
pub(super) fn quoted(text: &str) -> String {
    // Serializing a text cannot fail.
    visible::json(serde_json::to_string(text).unwrap_or_default())
}

/// A write buffer. Unlike [`BufWriter`](std::io::BufWriter), it adds pieces without a check for errors. Its users call
/// `settle` after each entry, which checks.
pub(super) struct Gathered<'a> {
    out: &'a mut dyn Write,
    bytes: Vec<u8>,
}

impl<'a> Gathered<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        // Room for the pieces between two calls of `settle`.
        Self { out, bytes: Vec::with_capacity(2 * MANY) }
    }

    #[inline]
    pub(super) fn put(&mut self, piece: impl AsRef<[u8]>) {
        self.bytes.extend_from_slice(piece.as_ref());
    }

    /// Writes a number as JSON. std's formatting takes several times as long.
    #[inline]
    pub(super) fn number(&mut self, number: u64) {
        // Serializing a number or a text to a vector cannot fail.
        let _ = serde_json::to_writer(&mut self.bytes, &number);
    }

    /// Writes numbers separated by commas.
    pub(super) fn numbers(&mut self, numbers: impl Iterator<Item = u64>) {
        for (at, number) in numbers.enumerate() {
            if at > 0 {
                self.put(",");
            }
            self.number(number);
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        if text.is_ascii() && !text.contains('\u{7f}') {
            let _ = serde_json::to_writer(&mut self.bytes, text);
        } else {
            self.put(quoted(text));
        }
    }

    /// Writes the buffer if it is full.
    #[inline]
    pub(super) fn settle(&mut self) -> io::Result<()> {
        if self.bytes.len() < MANY { Ok(()) } else { self.pass_on() }
    }

    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.pass_on()?;
        self.out.flush()
    }

    #[cold]
    fn pass_on(&mut self) -> io::Result<()> {
        let written = self.out.write_all(&self.bytes);
        self.bytes.clear();
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts writes.
    struct Writes<'a>(&'a mut Vec<usize>);

    impl Write for Writes<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn numbers_and_texts_are_json() {
        let mut out = Vec::new();
        let mut gathered = Gathered::new(&mut out);
        gathered.number(u64::MAX);
        gathered.text("say \"hi\"\n\u{1f980}");
        gathered.finish().unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "18446744073709551615\"say \\\"hi\\\"\\n\u{1f980}\"");
    }

    #[test]
    fn pieces_arrive_whole_in_few_writes_and_little_is_kept() {
        let mut writes = Vec::new();
        let mut out = Writes(&mut writes);
        let mut gathered = Gathered::new(&mut out);
        for _ in 0..MANY {
            gathered.put(b"abc");
            gathered.settle().unwrap();
            assert_eq!(gathered.bytes.capacity(), 2 * MANY);
        }
        gathered.finish().unwrap();
        assert_eq!(writes.iter().sum::<usize>(), 3 * MANY);
        assert!(writes.len() <= 4, "{writes:?}");
    }
}
