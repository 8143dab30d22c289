//! The capture's numbers and texts, written and read.

use super::Damage;

/// The largest number that a reader accepts where it will be added to others, so that no sum of
/// a few overflows.
pub(super) const LARGEST: u64 = (1 << 62) - 1;

/// The payload of a chunk in the making.
#[derive(Debug, Default)]
pub(super) struct Payload(pub(super) Vec<u8>);

impl Payload {
    /// A number in groups of seven bits, the lowest first; the top bit says that another follows.
    pub(super) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(super) fn count(&mut self, value: usize) {
        self.number(value as u64);
    }

    /// The step from one number to the next: small steps in either direction are small numbers.
    pub(super) fn step(&mut self, from: u64, to: u64) {
        let step = to.wrapping_sub(from) as i64;
        self.number((step << 1 ^ step >> 63) as u64);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }
}

/// What is left to read of a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// Any number of 64 bits.
    pub(super) fn raw(&mut self) -> Result<u64, Damage> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Damage("a number of more than 64 bits"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Damage("a number without an end"))
    }

    /// A number that can be added to another.
    pub(super) fn number(&mut self) -> Result<u64, Damage> {
        self.raw().and_then(in_range)
    }

    pub(super) fn small(&mut self) -> Result<u32, Damage> {
        self.raw()?.try_into().map_err(|_| Damage("a number of more than 32 bits"))
    }

    /// How many things follow; each of them takes at least one byte, so it cannot be more than are left.
    pub(super) fn count(&mut self) -> Result<usize, Damage> {
        let count = self.raw()?;
        if count > self.0.len() as u64 {
            return Err(Damage("a count larger than its chunk"));
        }
        Ok(count as usize)
    }

    pub(super) fn step(&mut self, from: u64) -> Result<u64, Damage> {
        let zigzag = self.raw()?;
        let step = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        Ok(from.wrapping_add(step as u64))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Damage> {
        let length = self.count()?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Damage("a text beyond its chunk"))?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Damage> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Damage("a text that is no UTF-8"))
    }

    /// Nothing may be left.
    pub(super) fn end(self) -> Result<(), Damage> {
        if self.0.is_empty() { Ok(()) } else { Err(Damage("bytes behind the last value of a chunk")) }
    }

    fn byte(&mut self) -> Result<u8, Damage> {
        let (&byte, rest) = self.0.split_first().ok_or(Damage("a chunk that ends too early"))?;
        self.0 = rest;
        Ok(byte)
    }
}

pub(super) fn in_range(value: u64) -> Result<u64, Damage> {
    if value <= LARGEST { Ok(value) } else { Err(Damage("a number beyond any memory")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_steps_come_back() {
        let numbers = [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX];
        let mut payload = Payload::default();
        numbers.iter().for_each(|&n| payload.number(n));
        numbers.windows(2).for_each(|pair| payload.step(pair[0], pair[1]));
        numbers.windows(2).for_each(|pair| payload.step(pair[1], pair[0]));
        let mut reader = Reader(&payload.0);
        numbers.iter().for_each(|&n| assert_eq!(reader.raw(), Ok(n)));
        numbers.windows(2).for_each(|pair| assert_eq!(reader.step(pair[0]), Ok(pair[1])));
        numbers.windows(2).for_each(|pair| assert_eq!(reader.step(pair[1]), Ok(pair[0])));
        assert_eq!(reader.end(), Ok(()));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(Reader(&[0x80; 11]).raw().is_err());
        assert!(Reader(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).raw().is_err());
        assert!(Reader(&[0x80]).raw().is_err());
        assert!(Reader(&[5, b'a']).bytes().is_err());
        assert!(Reader(&[1, 0xff]).text().is_err());
        assert!(Reader(&[1]).end().is_err());
        assert!(in_range(LARGEST + 1).is_err());
    }
}
