//! Reads and writes variable-length integers (LEB128), zigzag deltas and texts of a capture's chunks.

use std::num::NonZeroU64;

use super::Damage;

/// A value with one encoding.
pub(super) trait Coded: Sized {
    fn put(&self, p: &mut Payload);
    fn get(r: &mut Reader<'_>) -> Result<Self, Damage>;
}

/// The largest number that a reader accepts in fields that are added up, so that sums of a few do not overflow.
pub(super) const LARGEST: u64 = (1 << 62) - 1;

/// Declares the fields that are written as steps from their previous value in the chunk.
macro_rules! steps {
    ($($name:ident)*) => {
        #[derive(Clone, Copy, Debug, Default)]
        struct Previous {
            $($name: u64,)*
        }

        impl Payload {
            $(pub(super) fn $name(&mut self, value: u64) {
                self.step(self.previous.$name, value);
                self.previous.$name = value;
            })*
        }

        impl Reader<'_> {
            $(pub(super) fn $name(&mut self) -> Result<u64, Damage> {
                self.previous.$name = self.step(self.previous.$name).and_then(in_range)?;
                Ok(self.previous.$name)
            })*
        }
    };
}

steps! { time address raw_seq position }

/// The payload of a chunk under construction.
#[derive(Debug, Default)]
pub(super) struct Payload {
    pub(super) bytes: Vec<u8>,
    previous: Previous,
}

impl Payload {
    pub(super) fn put(&mut self, value: &impl Coded) {
        value.put(self);
    }

    pub(super) fn list<T: Coded>(&mut self, items: &[T]) {
        self.count(items.len());
        items.iter().for_each(|item| item.put(self));
    }

    /// Writes a number as LEB128: groups of seven bits, the lowest first. The top bit says that another group follows.
    pub(super) fn raw(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    pub(super) fn count(&mut self, value: usize) {
        self.raw(value as u64);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Writes a signed difference, zigzag-encoded, so that small steps in either direction are small numbers.
    pub(super) fn step(&mut self, from: u64, to: u64) {
        let step = to.wrapping_sub(from) as i64;
        self.raw((step << 1 ^ step >> 63) as u64);
    }

    pub(super) fn seq(&mut self, seq: Option<NonZeroU64>) {
        self.raw_seq(seq.map_or(0, NonZeroU64::get));
    }

    pub(super) fn block(&mut self, seq: NonZeroU64) {
        self.raw_seq(seq.get());
    }

    pub(super) fn at(&mut self, position: usize) {
        self.position(position as u64);
    }
}

/// The number of stacks and contexts that the file has so far, including the empty ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ids {
    pub(super) stacks: usize,
    pub(super) contexts: usize,
}

/// The unread rest of a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
    pub(super) ids: Ids,
    previous: Previous,
}

impl<'a> Reader<'a> {
    pub(super) fn new(payload: &'a [u8], ids: Ids) -> Self {
        Self { rest: payload, ids, previous: Previous::default() }
    }

    pub(super) fn get<T: Coded>(&mut self) -> Result<T, Damage> {
        T::get(self)
    }

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
        Err(Damage("a number that does not end"))
    }

    /// The number of items that follow. Each takes at least one byte, so there cannot be more items than bytes.
    pub(super) fn count(&mut self) -> Result<usize, Damage> {
        let count = self.raw()?;
        if count > self.rest.len() as u64 {
            return Err(Damage("a count larger than its chunk"));
        }
        Ok(count as usize)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Damage> {
        let length = self.count()?;
        let (text, rest) = self.rest.split_at_checked(length).ok_or(Damage("a text beyond its chunk"))?;
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| Damage("a text that is not UTF-8"))
    }

    pub(super) fn step(&mut self, from: u64) -> Result<u64, Damage> {
        let zigzag = self.raw()?;
        let step = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        Ok(from.wrapping_add(step as u64))
    }

    pub(super) fn seq(&mut self) -> Result<Option<NonZeroU64>, Damage> {
        Ok(NonZeroU64::new(self.raw_seq()?))
    }

    pub(super) fn block(&mut self) -> Result<NonZeroU64, Damage> {
        self.seq()?.ok_or(Damage("a name without a block"))
    }

    pub(super) fn at(&mut self) -> Result<usize, Damage> {
        Ok(self.position()? as usize)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Damage> {
        let (&byte, rest) = self.rest.split_first().ok_or(Damage("a chunk that ends too early"))?;
        self.rest = rest;
        Ok(byte)
    }

    pub(super) fn end(self) -> Result<(), Damage> {
        if self.rest.is_empty() { Ok(()) } else { Err(Damage("extra bytes at the end of a chunk")) }
    }
}

pub(super) fn in_range(value: u64) -> Result<u64, Damage> {
    if value <= LARGEST { Ok(value) } else { Err(Damage("a number beyond any memory")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &[u8]) -> Reader<'_> {
        Reader::new(bytes, Ids::default())
    }

    #[test]
    fn numbers_and_steps_come_back() {
        let numbers = [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX];
        let mut payload = Payload::default();
        numbers.iter().for_each(|&n| payload.raw(n));
        numbers.windows(2).for_each(|pair| payload.step(pair[0], pair[1]));
        numbers.windows(2).for_each(|pair| payload.step(pair[1], pair[0]));
        let mut reader = self::reader(&payload.bytes);
        numbers.iter().for_each(|&n| assert_eq!(reader.raw(), Ok(n)));
        numbers.windows(2).for_each(|pair| assert_eq!(reader.step(pair[0]), Ok(pair[1])));
        numbers.windows(2).for_each(|pair| assert_eq!(reader.step(pair[1]), Ok(pair[0])));
        assert_eq!(reader.end(), Ok(()));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(reader(&[0x80; 11]).raw().is_err());
        assert!(reader(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).raw().is_err());
        assert!(reader(&[0x80]).raw().is_err());
        assert!(reader(&[5, b'a']).text().is_err());
        assert!(reader(&[1, 0xff]).text().is_err());
        assert!(reader(&[1]).end().is_err());
        assert!(in_range(LARGEST + 1).is_err());
    }
}
