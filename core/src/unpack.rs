//! Gzip decompression of untrusted files: stops at decompression bombs and at content of another format.

/// Bytes that are decompressed whatever their ratio.
#[cfg(feature = "gzip")]
const FREE: u64 = 32 << 20;

/// The most decompressed bytes for a compressed one, beyond [`FREE`]. A capture of one line that allocates in a loop has
/// eleven, a bomb has a thousand.
#[cfg(feature = "gzip")]
const MOST_FOR_ONE: u64 = 100;

/// Bytes that are decompressed at a time.
#[cfg(feature = "gzip")]
const PORTION: u64 = 1 << 20;

/// The content of a file that may be compressed: at most `most` bytes, and they must start with one of `begins`. The error is a reason.
pub(crate) fn unpacked(bytes: Vec<u8>, begins: &[&[u8]], most: u64) -> Result<Vec<u8>, String> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    #[cfg(feature = "gzip")]
    return unpack(&bytes, begins, most, FREE);
    #[cfg(not(feature = "gzip"))]
    {
        let _ = (begins, most);
        Err("it is compressed; build memtrace with its feature `gzip`".to_owned())
    }
}

#[cfg(feature = "gzip")]
fn unpack(packed: &[u8], begins: &[&[u8]], most: u64, free: u64) -> Result<Vec<u8>, String> {
    use std::io::Read;

    use flate2::bufread::MultiGzDecoder;

    let mut decoder = MultiGzDecoder::new(packed);
    let mut unpacked = Vec::new();
    let longest = begins.iter().map(|begin| begin.len() as u64).max().unwrap_or(0);
    loop {
        let portion = if unpacked.is_empty() { longest } else { PORTION };
        let read = decoder.by_ref().take(portion).read_to_end(&mut unpacked);
        let read = read.map_err(|error| format!("it cannot be decompressed: {error}"))?;
        if !begins.iter().any(|begin| unpacked.starts_with(begin)) {
            let begins: Vec<String> = begins.iter().map(|begin| format!("`{}`", begin.escape_ascii())).collect();
            return Err(format!("its compressed content does not begin with {}", begins.join(" or ")));
        }
        let used = (packed.len() - decoder.get_ref().len()) as u64;
        if unpacked.len() as u64 > most.min(free.max(used.saturating_mul(MOST_FOR_ONE))) {
            return Err("its compressed content is too large".to_owned());
        }
        if read == 0 {
            return Ok(unpacked);
        }
    }
}

#[cfg(test)]
#[cfg(feature = "gzip")]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn says(result: Result<Vec<u8>, String>, words: &str) -> bool {
        result.is_err_and(|reason| reason.contains(words))
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_file_of_several_gzip_members_is_unpacked_whole() {
        let text: Vec<u8> = (0..3 << 20).map(|n: u32| (n.wrapping_mul(n) >> 7) as u8).collect();
        let bytes = [packed(&text[..100]), packed(&text[100..])].concat();
        assert_eq!(unpacked(bytes, &[&text[..5]], text.len() as u64).unwrap(), text);
        assert_eq!(unpacked(b"plain".to_vec(), &[b"x"], 1).unwrap(), b"plain");
        assert!(says(unpacked(packed(&text), &[&text[..5]], text.len() as u64 - 1), "too large"));
        assert!(says(
            unpacked(packed(&text)[..1000].to_vec(), &[&text[..5]], text.len() as u64),
            "cannot be decompressed"
        ));
        assert!(says(unpacked(packed(b""), &[b"x"], 1), "does not begin with"));
    }

    #[test]
    fn other_content_is_refused_by_its_beginning() {
        // Nobody reads as far as the missing end.
        let bomb = packed(&vec![0; 1 << 20]);
        assert!(says(unpacked(bomb[..bomb.len() / 2].to_vec(), &[b"memtrace"], u64::MAX), "does not begin with"));
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let bomb = packed(&[b"memtrace".to_vec(), vec![0; 8 << 20]].concat());
        let early = &bomb[..bomb.len() / 2];
        assert!(says(unpack(early, &[b"memtrace"], u64::MAX, 1 << 20), "too large"));
        assert!(matches!(unpack(&bomb, &[b"memtrace"], u64::MAX, 9 << 20), Ok(bytes) if bytes.len() == (8 << 20) + 8));
    }
}
