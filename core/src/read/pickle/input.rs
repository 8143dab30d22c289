//! Byte cursor over a pickle, with the arguments of opcodes.

use std::borrow::Cow;

use super::limits::Refusal;

/// The bytes and the position in them.
pub(super) struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn offset(&self) -> usize {
        self.at
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Refusal> {
        let byte = *self.bytes.get(self.at).ok_or_else(ends)?;
        self.at += 1;
        Ok(byte)
    }

    /// The next `length` bytes; refused if the input is shorter.
    #[inline]
    pub(super) fn take(&mut self, length: u64) -> Result<&'a [u8], Refusal> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = usize::try_from(length).ok().and_then(|length| rest.get(..length)).ok_or_else(ends)?;
        self.at += taken.len();
        Ok(taken)
    }

    /// A little-endian number of at most eight bytes.
    #[inline]
    pub(super) fn number(&mut self, bytes: u64) -> Result<u64, Refusal> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// The rest of the line, without its end.
    pub(super) fn line(&mut self) -> Result<&'a [u8], Refusal> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| *byte == b'\n').ok_or_else(ends)?;
        self.at += length + 1;
        Ok(rest.get(..length).unwrap_or_default())
    }

    /// The rest of the line without `suffix`, parsed as a number or another type.
    pub(super) fn parsed<T: std::str::FromStr>(&mut self, suffix: &str) -> Result<T, Refusal> {
        let line = std::str::from_utf8(self.line()?).unwrap_or_default();
        let text = line.strip_suffix(suffix).unwrap_or(line);
        text.parse().map_err(|_| Refusal::new("a number that cannot be read, or is too large"))
    }
}

fn ends() -> Refusal {
    Refusal::new("the pickle ends in the middle")
}

/// A signed little-endian number of at most 16 bytes.
pub(super) fn long(bytes: &[u8]) -> Result<i128, Refusal> {
    if bytes.len() > 16 {
        return Err(Refusal::new("an integer of more than 128 bits"));
    }
    let fill = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
    let mut whole = [fill; 16];
    whole.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    Ok(i128::from_le_bytes(whole))
}

/// Decodes UTF-8. Lone surrogates, which Python's strings may contain, become replacement characters.
pub(super) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Decodes Python's `raw-unicode-escape`: Latin-1 with `\uXXXX` and `\UXXXXXXXX`.
pub(super) fn raw_unicode(line: &[u8]) -> String {
    let (mut text, mut rest) = (String::with_capacity(line.len()), line);
    while let [first, after @ ..] = rest {
        let digits = match after {
            [b'u', ..] if *first == b'\\' => after.get(1..5),
            [b'U', ..] if *first == b'\\' => after.get(1..9),
            _ => None,
        };
        let code = digits.and_then(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match (digits, code) {
            (Some(digits), Some(code)) => {
                text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                rest = after.get(1 + digits.len()..).unwrap_or_default();
            }
            _ => {
                text.push(char::from(*first));
                rest = after;
            }
        }
    }
    text
}
