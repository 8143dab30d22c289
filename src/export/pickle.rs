//! Writes Python pickles of dicts, lists, tuples, strings, integers and booleans.
//!
//! Only opcodes that PyTorch's JavaScript viewer reads (protocol 4 without its memoizing opcodes):
//! ```text
//! 80 04           PROTO 4           71 n            BINPUT (memo 0-255)
//! 7d / 5d / 29    empty dict/list/tuple
//! 72 nnnn         LONG_BINPUT       68 n / 6a nnnn  BINGET / LONG_BINGET
//! 28              MARK              75 / 65         SETITEMS / APPENDS (since the MARK)
//! 4b n, 4d nn, 4a nnnn, 8a len …    integers: 1 byte, 2 bytes, signed 4 bytes, LONG1
//! 8c len …, 58 nnnn …               strings, UTF-8
//! 86              TUPLE2            88 / 89         true / false
//! 2e              STOP
//! ```

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

use foldhash::fast::FixedState;

/// Keys and other fixed strings stand in every entry: the first memo numbers, which one byte can
/// name, are theirs.
const FIRST_OTHER_MEMO: u32 = 64;
/// The viewer passes the items of one APPENDS as arguments of one call.
const BATCH: usize = 1000;

/// An object that was written before and can be named again in 2 or 5 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memo(u32);

pub(super) struct Pickle<W: Write> {
    /// Most writes are of a few bytes.
    out: BufWriter<W>,
    /// Looked up a dozen times an entry: a quick hash, and nobody else's words.
    words: HashMap<&'static str, Memo, FixedState>,
    next: u32,
}

impl<W: Write> Pickle<W> {
    pub(super) fn begin(out: W) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        out.write_all(&[0x80, 4])?;
        Ok(Self { out, words: HashMap::default(), next: FIRST_OTHER_MEMO })
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(b".")?;
        self.out.flush()
    }

    /// A dict; `items` writes keys and values in turn.
    pub(super) fn dict(&mut self, items: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.out.write_all(b"}(")?;
        items(self)?;
        self.out.write_all(b"u")
    }

    /// A list of what `item` writes for each of `items`.
    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.write_all(b"]")?;
        let mut in_batch = 0;
        for value in items {
            if in_batch == 0 {
                self.out.write_all(b"(")?;
            }
            item(self, value)?;
            in_batch += 1;
            if in_batch == BATCH {
                self.out.write_all(b"e")?;
                in_batch = 0;
            }
        }
        if in_batch > 0 { self.out.write_all(b"e") } else { Ok(()) }
    }

    /// A string that occurs over and over: keys, actions.
    pub(super) fn word(&mut self, word: &'static str) -> io::Result<()> {
        if let Some(&memo) = self.words.get(word) {
            return self.get(memo);
        }
        self.text(word)?;
        let number = self.words.len() as u32;
        let memo = if number < FIRST_OTHER_MEMO { Memo(number) } else { self.next_memo() };
        self.words.insert(word, memo);
        self.put(memo)
    }

    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        match u8::try_from(text.len()) {
            Ok(length) => self.out.write_all(&[0x8c, length])?,
            Err(_) => {
                let length = u32::try_from(text.len()).map_err(io::Error::other)?;
                self.out.write_all(b"X")?;
                self.out.write_all(&length.to_le_bytes())?;
            }
        }
        self.out.write_all(text.as_bytes())
    }

    pub(super) fn int(&mut self, value: u64) -> io::Result<()> {
        let bytes = value.to_le_bytes();
        match value {
            0..=0xff => self.out.write_all(&[b'K', bytes[0]]),
            0x100..=0xffff => self.out.write_all(&[b'M', bytes[0], bytes[1]]),
            0x1_0000..=0x7fff_ffff => self.out.write_all(&[b'J', bytes[0], bytes[1], bytes[2], bytes[3]]),
            _ => self.long(value),
        }
    }

    pub(super) fn bool(&mut self, value: bool) -> io::Result<()> {
        self.out.write_all(if value { &[0x88] } else { &[0x89] })
    }

    pub(super) fn pair(&mut self, first: u64, second: u64) -> io::Result<()> {
        self.int(first)?;
        self.int(second)?;
        self.out.write_all(&[0x86])
    }

    /// Remembers the object that was just written.
    pub(super) fn remember(&mut self) -> io::Result<Memo> {
        let memo = self.next_memo();
        self.put(memo)?;
        Ok(memo)
    }

    /// A remembered object again.
    pub(super) fn get(&mut self, memo: Memo) -> io::Result<()> {
        match u8::try_from(memo.0) {
            Ok(short) => self.out.write_all(&[b'h', short]),
            Err(_) => {
                self.out.write_all(b"j")?;
                self.out.write_all(&memo.0.to_le_bytes())
            }
        }
    }

    fn put(&mut self, memo: Memo) -> io::Result<()> {
        match u8::try_from(memo.0) {
            Ok(short) => self.out.write_all(&[b'q', short]),
            Err(_) => {
                self.out.write_all(b"r")?;
                self.out.write_all(&memo.0.to_le_bytes())
            }
        }
    }

    fn next_memo(&mut self) -> Memo {
        let memo = Memo(self.next);
        self.next += 1;
        memo
    }

    /// LONG1: signed, little-endian, as few bytes as keep the sign bit clear.
    fn long(&mut self, value: u64) -> io::Result<()> {
        let used = (u64::BITS - value.leading_zeros()) as usize / 8 + 1;
        let mut bytes = [0; 9];
        bytes[..8].copy_from_slice(&value.to_le_bytes());
        self.out.write_all(&[0x8a, used as u8])?;
        self.out.write_all(&bytes[..used])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a LONG1 as Python does.
    fn read_long(bytes: &[u8]) -> i128 {
        let mut value = 0i128;
        for (i, byte) in bytes.iter().enumerate() {
            value |= i128::from(*byte) << (8 * i);
        }
        let sign = bytes.last().is_some_and(|b| b & 0x80 != 0);
        if sign { value - (1i128 << (8 * bytes.len())) } else { value }
    }

    #[test]
    fn long_integers_keep_their_value_and_sign_in_as_few_bytes_as_python() {
        for bit in 31..64 {
            for value in [1u64 << bit, (1u64 << bit) + 1, (1u64 << bit) - 1 + (1 << bit)] {
                let mut out = Vec::new();
                Pickle::begin(&mut out).unwrap().long(value).unwrap();
                let (length, bytes) = (out[3] as usize, &out[4..]);
                assert_eq!((out[2], length), (0x8a, bytes.len()));
                assert_eq!(read_long(bytes), i128::from(value), "{value:#x}");
                assert_eq!(length, (64 - value.leading_zeros() as usize) / 8 + 1, "{value:#x}");
            }
        }
    }
}
