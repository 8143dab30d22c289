//! Files that may be packed: what is packed small may be anything, so it is looked at before there is much of it.

use std::io;

/// Unpacked in any case, if it begins as it should.
const FREE: u64 = 64 << 20;

/// Beyond that, no more bytes than so many for each packed one. A capture of one line that allocates over and over has
/// eleven, a bomb has a thousand.
#[cfg(feature = "gzip")]
const MOST_FOR_ONE: u64 = 100;

/// Unpacked at a time.
#[cfg(feature = "gzip")]
const PORTION: u64 = 1 << 20;

/// What is wrong with a packed file.
#[derive(Debug)]
#[cfg_attr(not(feature = "gzip"), expect(dead_code, reason = "nothing is unpacked"))]
pub(crate) enum Wrong {
    /// It holds something else.
    Begins,
    TooLarge,
    Read(io::Error),
    /// This was built without what unpacks it.
    #[cfg(not(feature = "gzip"))]
    Packed,
}

impl Wrong {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Begins => "it is packed and does not begin like one".to_owned(),
            Self::TooLarge => "it is packed and too large".to_owned(),
            Self::Read(error) => format!("it cannot be unpacked: {error}"),
            #[cfg(not(feature = "gzip"))]
            Self::Packed => "it is packed; build memtrace with its feature `gzip`".to_owned(),
        }
    }
}

/// What a file holds, which may be packed: at most so many bytes, and only if they begin as they should.
pub(crate) fn unpacked(bytes: Vec<u8>, begin: &[u8], most: u64) -> Result<Vec<u8>, Wrong> {
    if bytes.starts_with(&[0x1f, 0x8b]) { unpack(&bytes, begin, most, FREE) } else { Ok(bytes) }
}

#[cfg(not(feature = "gzip"))]
fn unpack(_packed: &[u8], _begin: &[u8], _most: u64, _free: u64) -> Result<Vec<u8>, Wrong> {
    Err(Wrong::Packed)
}

#[cfg(feature = "gzip")]
fn unpack(packed: &[u8], begin: &[u8], most: u64, free: u64) -> Result<Vec<u8>, Wrong> {
    use std::io::Read;

    use flate2::bufread::MultiGzDecoder;

    let mut decoder = MultiGzDecoder::new(packed);
    let mut unpacked = Vec::new();
    loop {
        let portion = if unpacked.is_empty() { begin.len() as u64 } else { PORTION };
        let read = decoder.by_ref().take(portion).read_to_end(&mut unpacked).map_err(Wrong::Read)?;
        if !unpacked.starts_with(begin) {
            return Err(Wrong::Begins);
        }
        let used = (packed.len() - decoder.get_ref().len()) as u64;
        if unpacked.len() as u64 > most.min(free.max(used.saturating_mul(MOST_FOR_ONE))) {
            return Err(Wrong::TooLarge);
        }
        if read == 0 {
            return Ok(unpacked);
        }
    }
}

#[cfg(all(test, feature = "gzip"))]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_is_packed_is_what_was_packed_also_in_several_pieces() {
        let text: Vec<u8> = (0..3 << 20).map(|n: u32| (n.wrapping_mul(n) >> 7) as u8).collect();
        let bytes = [packed(&text[..100]), packed(&text[100..])].concat();
        assert_eq!(unpacked(bytes, &text[..5], text.len() as u64).unwrap(), text);
        assert_eq!(unpacked(b"plain".to_vec(), b"x", 1).unwrap(), b"plain");
        assert!(matches!(unpacked(packed(&text), &text[..5], text.len() as u64 - 1), Err(Wrong::TooLarge)));
        assert!(matches!(unpacked(packed(&text)[..1000].to_vec(), &text[..5], text.len() as u64), Err(Wrong::Read(_))));
        assert!(matches!(unpacked(packed(b""), b"x", 1), Err(Wrong::Begins)));
    }

    #[test]
    fn what_begins_otherwise_is_unpacked_no_further() {
        // Its end is missing, which nobody comes to see.
        let bomb = packed(&vec![0; 1 << 20]);
        assert!(matches!(unpacked(bomb[..bomb.len() / 2].to_vec(), b"memtrace", u64::MAX), Err(Wrong::Begins)));
    }

    #[test]
    fn more_than_anything_honest_holds_is_too_large_before_it_is_all_there() {
        let bomb = packed(&[b"memtrace".to_vec(), vec![0; 8 << 20]].concat());
        let early = &bomb[..bomb.len() / 2];
        assert!(matches!(unpack(early, b"memtrace", u64::MAX, 1 << 20), Err(Wrong::TooLarge)));
        assert!(matches!(unpack(&bomb, b"memtrace", u64::MAX, 9 << 20), Ok(bytes) if bytes.len() == (8 << 20) + 8));
    }
}
