//! What a trace is written into: bytes on their way to a file, or nothing but their number.
//!
//! Both take the same pieces from the same code, so what is counted is what would be written, to the byte; and
//! to count costs a tenth of writing.

use std::io::{self, Write};

use crate::export::budget::Count;
use crate::export::gathered::Gathered;

/// Takes JSON, piece by piece.
pub(super) trait Sink {
    /// JSON as it stands.
    fn json(&mut self, json: &str);

    /// A number in decimal digits.
    fn number(&mut self, number: u64);

    /// A text, quoted and escaped.
    fn text(&mut self, text: &str);

    /// Called after each event.
    ///
    /// # Errors
    /// If what was taken so far cannot be written, or is too much.
    fn settle(&mut self) -> io::Result<()>;

    /// Called at the end.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    fn finish(&mut self) -> io::Result<()> {
        self.settle()
    }
}

impl<W: Write> Sink for Gathered<W> {
    #[inline]
    fn json(&mut self, json: &str) {
        self.put(json.as_bytes());
    }

    #[inline]
    fn number(&mut self, number: u64) {
        self.put(digits(number, &mut [0; 20]));
    }

    fn text(&mut self, text: &str) {
        self.put(quoted(text).as_bytes());
    }

    #[inline]
    fn settle(&mut self) -> io::Result<()> {
        Gathered::settle(self)
    }

    fn finish(&mut self) -> io::Result<()> {
        Gathered::finish(self)
    }
}

impl Sink for &mut Count {
    #[inline]
    fn json(&mut self, json: &str) {
        self.take(json.len());
    }

    #[inline]
    fn number(&mut self, number: u64) {
        self.take(number.checked_ilog10().unwrap_or(0) as usize + 1);
    }

    fn text(&mut self, text: &str) {
        self.take(quoted(text).len());
    }

    fn settle(&mut self) -> io::Result<()> {
        self.check()
    }
}

/// A text as JSON: in quotes, escaped.
pub(super) fn quoted(text: &str) -> String {
    // Texts can always be written.
    serde_json::to_string(text).unwrap_or_default()
}

/// Two digits for each number below a hundred.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// Decimal digits, two at a time: the standard formatting takes several times as long, and a record has ten numbers.
#[inline]
fn digits(mut number: u64, room: &mut [u8; 20]) -> &[u8] {
    let mut at = room.len();
    while number >= 100 {
        at -= 2;
        room[at..at + 2].copy_from_slice(&PAIRS[(number % 100) as usize]);
        number /= 100;
    }
    let [tens, ones] = PAIRS[number as usize];
    at -= 1;
    room[at] = ones;
    if number >= 10 {
        at -= 1;
        room[at] = tens;
    }
    &room[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(fill: impl Fn(&mut Gathered<&mut Vec<u8>>)) -> String {
        let mut out = Vec::new();
        let mut gathered = Gathered::new(&mut out);
        fill(&mut gathered);
        Sink::finish(&mut gathered).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_of_every_length_are_written_and_counted_as_they_are() {
        let powers = (0..20).map(|power| 10u64.pow(power));
        let around = powers.flat_map(|power| [power - 1, power, power + 1, power.saturating_mul(7)]);
        for number in around.chain([u64::MAX, u64::MAX - 1]) {
            assert_eq!(written(|sink| sink.number(number)), number.to_string());
            let mut count = Count::default();
            (&mut count).number(number);
            assert_eq!(count.taken(), number.to_string().len() as u64, "{number}");
        }
    }

    #[test]
    fn texts_are_counted_as_they_are_escaped() {
        for text in ["", "plain", "say \"hi\"\\\n\u{1}\u{1f980}"] {
            let json = written(|sink| sink.text(text));
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
            let mut count = Count::default();
            (&mut count).text(text);
            assert_eq!(count.taken(), json.len() as u64);
        }
    }
}
