//! Python pickle writer (protocol 4): dicts, lists, tuples, strings, integers and booleans.
//!
//! The writer is memtrace's own, because no crate writes shared objects (memo references). These references keep a
//! snapshot at 57 bytes an entry instead of several hundred. The writer uses only the opcodes that PyTorch's
//! JavaScript viewer reads (no `MEMOIZE`):
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

use std::io::{self, Write};

use super::gathered::Gathered;

/// Memo numbers below this are for keys and other fixed strings. These occur in every entry, so their numbers fit
/// into one byte.
const FIRST_OTHER_MEMO: u32 = u64::BITS;
/// The most items of one APPENDS. The viewer passes all of them as arguments of a single call.
const BATCH: usize = 1000;

/// Memo number of a written object. A reference to it takes 2 or 5 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memo(u32);

pub(super) struct List {
    in_batch: usize,
}

pub(super) struct Pickler<'a> {
    out: Gathered<'a>,
    failed: Option<io::Error>,
    /// Fixed strings with constant memo numbers. An entry uses a dozen of them.
    words: &'static [&'static str],
    /// One bit for each of `words` that was already written.
    written: u64,
    next: u32,
}

impl<'a> Pickler<'a> {
    /// Begins a pickle. There may be at most 64 words.
    pub(super) fn begin(out: &'a mut dyn Write, words: &'static [&'static str]) -> Self {
        debug_assert!(words.len() <= FIRST_OTHER_MEMO as usize);
        let mut pickle = Self { out: Gathered::new(out), failed: None, words, written: 0, next: FIRST_OTHER_MEMO };
        pickle.put(&[0x80, 4]);
        pickle
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.put(b".");
        self.failed.map_or_else(|| self.out.finish(), Err)
    }

    /// True if the writer failed; the rest is not written.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Adds bytes to the buffer. It is written before list items (see [`next_item`](Self::next_item)) and at the
    /// end.
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.out.put(bytes);
        }
    }

    /// Writes a dict; `items` writes keys and values alternately.
    pub(super) fn dict(&mut self, items: impl FnOnce(&mut Self)) {
        self.put(b"}(");
        items(self);
        self.put(b"u");
    }

    pub(super) fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut item: impl FnMut(&mut Self, T)) {
        let mut list = self.begin_list();
        for value in items {
            self.next_item(&mut list);
            item(self, value);
        }
        self.end_list(list);
    }

    /// Begins a list. Its items follow, each after [`next_item`](Self::next_item).
    pub(super) fn begin_list(&mut self) -> List {
        self.put(b"]");
        List { in_batch: 0 }
    }

    #[inline]
    pub(super) fn next_item(&mut self, list: &mut List) {
        if list.in_batch == BATCH {
            self.put(b"e");
            list.in_batch = 0;
        }
        if list.in_batch == 0 {
            self.put(b"(");
        }
        list.in_batch += 1;
        if self.failed.is_none() {
            self.failed = self.out.settle().err();
        }
    }

    pub(super) fn end_list(&mut self, list: List) {
        if list.in_batch > 0 {
            self.put(b"e");
        }
    }

    #[inline]
    /// Writes one of the words, by its index.
    pub(super) fn word(&mut self, word: u32) {
        let known = self.written & (1 << word) != 0;
        if known { self.get(Memo(word)) } else { self.new_word(word) }
    }

    #[cold]
    fn new_word(&mut self, word: u32) {
        self.written |= 1 << word;
        self.text(self.words.get(word as usize).copied().unwrap_or_default());
        self.number(Memo(word));
    }

    /// Writes a word, as the key of a dict, and a number.
    #[inline]
    pub(super) fn int_of(&mut self, word: u32, value: u64) {
        self.word(word);
        self.int(value);
    }

    pub(super) fn text(&mut self, text: &str) {
        // Texts are shorter than 4 GiB.
        let text = text.get(..u32::MAX as usize).unwrap_or(text);
        match text.len() as u32 {
            length @ 0..=0xff => self.put(&[0x8c, length as u8]),
            length => {
                self.put(b"X");
                self.put(&length.to_le_bytes());
            }
        }
        self.put(text.as_bytes());
    }

    #[inline]
    pub(super) fn int(&mut self, value: u64) {
        let bytes = value.to_le_bytes();
        match value {
            0..=0xff => self.put(&[b'K', bytes[0]]),
            0x100..=0xffff => self.put(&[b'M', bytes[0], bytes[1]]),
            0x1_0000..=0x7fff_ffff => self.put(&[b'J', bytes[0], bytes[1], bytes[2], bytes[3]]),
            _ => self.long(value),
        }
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.put(if value { &[0x88] } else { &[0x89] });
    }

    pub(super) fn pair(&mut self, first: u64, second: u64) {
        self.int(first);
        self.int(second);
        self.put(&[0x86]);
    }

    /// Memoizes the object that was just written.
    pub(super) fn remember(&mut self) -> Memo {
        let memo = Memo(self.next);
        self.next += 1;
        self.number(memo);
        memo
    }

    /// Writes a reference to a memoized object.
    #[inline]
    pub(super) fn get(&mut self, memo: Memo) {
        self.numbered(b'h', b'j', memo);
    }

    fn number(&mut self, memo: Memo) {
        self.numbered(b'q', b'r', memo);
    }

    #[inline]
    fn numbered(&mut self, short: u8, long: u8, memo: Memo) {
        match memo.0.to_le_bytes() {
            [number, 0, 0, 0] => self.put(&[short, number]),
            [a, b, c, d] => self.put(&[long, a, b, c, d]),
        }
    }

    /// Writes LONG1: signed little-endian, in the fewest bytes that keep the sign bit clear.
    fn long(&mut self, value: u64) {
        let used = (u64::BITS - value.leading_zeros()) as usize / 8 + 1;
        let mut bytes = [0; 9];
        bytes[..8].copy_from_slice(&value.to_le_bytes());
        self.put(&[0x8a, used as u8]);
        self.put(&bytes[..used]);
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
                let mut pickle = Pickler::begin(&mut out, &[]);
                pickle.long(value);
                pickle.finish().unwrap();
                assert_eq!(out.pop(), Some(b'.'));
                let (length, bytes) = (out[3] as usize, &out[4..]);
                assert_eq!((out[2], length), (0x8a, bytes.len()));
                assert_eq!(read_long(bytes), i128::from(value), "{value:#x}");
                assert_eq!(length, (64 - value.leading_zeros() as usize) / 8 + 1, "{value:#x}");
            }
        }
    }
}
