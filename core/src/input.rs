//! Reads files that a user names, with care: only regular files whose first bytes match the expected format. Files may
//! be compressed, and their length is limited.
//!
//! The reasons: a device or a pipe may have no end, or no writer. A file of another format may be larger than memory. A
//! compressed file may be a decompression bomb.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use crate::error::Error;

/// Up to this many decompressed bytes, any compression ratio is accepted.
#[cfg(feature = "gzip")]
const FREE: u64 = 32 << 20;

/// The most decompressed bytes per compressed byte, in files with more than [`FREE`] decompressed bytes. If a program
/// allocates at one line in a loop, its capture has a ratio of 11; a decompression bomb has one of 1000.
#[cfg(feature = "gzip")]
const MOST_FOR_ONE: u64 = 100;

/// Bytes that are decompressed at a time.
#[cfg(feature = "gzip")]
const PORTION: u64 = 1 << 20;

/// Bytes that are read before the kind of a file is known.
const BEGINNING: u64 = 64;

/// What a reader wants from a file.
pub(crate) struct Wanted {
    /// Whether a file of the format begins with these bytes.
    pub(crate) begins: fn(&[u8]) -> bool,
    /// The most bytes of a file that is not compressed.
    pub(crate) most: u64,
    /// The most decompressed bytes of a compressed file.
    #[cfg_attr(not(feature = "gzip"), expect(dead_code, reason = "nothing is decompressed"))]
    pub(crate) most_unpacked: u64,
    /// Makes the format's error from a reason.
    pub(crate) refused: fn(String) -> Error,
}

/// The content of a file, decompressed.
pub(crate) struct FileContent {
    /// Only the beginning, if the file does not begin like the format.
    pub(crate) bytes: Vec<u8>,
    /// The length of the file as it is stored, in bytes.
    pub(crate) stored: usize,
}

impl Wanted {
    /// Reads a file. If it does not begin like the format, only its beginning is read, and the parser reports what is
    /// wrong.
    pub(crate) fn read(&self, path: &Path) -> Result<FileContent, Error> {
        let unreadable = |error| Error::input(path, error);
        let mut file = open_regular(path).map_err(unreadable)?;
        // Reads no further than the present length, because a capture may grow while it is read.
        let stored = file.metadata().map_err(unreadable)?.len();
        let mut bytes = Vec::new();
        file.by_ref().take(BEGINNING.min(stored)).read_to_end(&mut bytes).map_err(unreadable)?;
        let is_packed = bytes.starts_with(&[0x1f, 0x8b]);
        if !is_packed && !(self.begins)(&bytes) {
            return Ok(FileContent { bytes, stored: stored as usize });
        }
        let mut rest = file.take(stored.saturating_sub(BEGINNING));
        if is_packed {
            bytes = self.unpacked(io::Cursor::new(bytes).chain(rest)).map_err(|why| (self.refused)(why).at(path))?;
        } else if stored > self.most {
            return Err((self.refused)("it is too large".to_owned()).at(path));
        } else {
            bytes.try_reserve_exact(stored as usize).map_err(|_| unreadable(io::ErrorKind::OutOfMemory.into()))?;
            rest.read_to_end(&mut bytes).map_err(unreadable)?;
        }
        Ok(FileContent { bytes, stored: stored as usize })
    }

    #[cfg(not(feature = "gzip"))]
    fn unpacked(&self, _: impl Read) -> Result<Vec<u8>, String> {
        Err("it is compressed; build memtrace with its feature `gzip`".to_owned())
    }

    #[cfg(feature = "gzip")]
    fn unpacked(&self, packed: impl Read) -> Result<Vec<u8>, String> {
        self.unpack(packed, FREE)
    }

    #[cfg(feature = "gzip")]
    fn unpack(&self, packed: impl Read, free: u64) -> Result<Vec<u8>, String> {
        // `take` limits nothing here: it counts the compressed bytes that were read.
        let mut decoder = flate2::read::MultiGzDecoder::new(packed.take(u64::MAX));
        let mut unpacked = Vec::new();
        loop {
            let portion = if unpacked.is_empty() { BEGINNING } else { PORTION };
            let read = decoder.by_ref().take(portion).read_to_end(&mut unpacked);
            let read = read.map_err(|error| format!("it cannot be decompressed: {error}"))?;
            if !(self.begins)(&unpacked) {
                return Err("its compressed content is something else".to_owned());
            }
            let used = u64::MAX - decoder.get_ref().limit();
            if unpacked.len() as u64 > self.most_unpacked.min(free.max(used.saturating_mul(MOST_FOR_ONE))) {
                return Err("its compressed content is too large".to_owned());
            }
            if read == 0 {
                return Ok(unpacked);
            }
        }
    }
}

/// The kind of a file that a user may take for a recording, found by its first bytes.
pub(crate) fn kind_of(bytes: &[u8]) -> Option<&'static str> {
    const KINDS: [(&[u8], &str); 7] = [
        (b"memtrace: ", "it is a report as text, made from a recording"),
        (b"\x1b[1mmemtrace: ", "it is a report as text, made from a recording"),
        (b"{", "it is JSON"),
        (b"<!doctype html", "it is a page"),
        (b"<?xml", "it is XML, as pictures are"),
        (b"\x7fELF", "it is a program or a library"),
        (b"PAR1", "it is a table in Parquet"),
    ];
    let begins = |with: &[u8]| bytes.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with));
    KINDS.into_iter().find(|(with, _)| begins(with)).map(|(_, what)| what)
}

/// Opens a regular file. Other files are refused before they are opened, because opening a pipe waits for its writer.
///
/// # Errors
/// If it is not a regular file, or cannot be opened.
#[doc(hidden)]
pub fn open_regular(path: &Path) -> io::Result<File> {
    match fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// The content of a regular file of at most `most` bytes.
///
/// # Errors
/// If the file is not regular, is larger, or cannot be read.
#[doc(hidden)]
pub fn bytes_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if open_regular(path)?.take(most + 1).read_to_end(&mut bytes)? as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {most} bytes")));
    }
    Ok(bytes)
}

/// [`bytes_of`] as text.
///
/// # Errors
/// Those of [`bytes_of`], and if the content is not UTF-8.
#[doc(hidden)]
pub fn text_of(path: &Path, most: u64) -> io::Result<String> {
    let invalid = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
    String::from_utf8(bytes_of(path, most)?).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(begins: fn(&[u8]) -> bool, most: u64) -> Wanted {
        Wanted { begins, most, most_unpacked: most, refused }
    }

    fn refused(reason: String) -> Error {
        Error::parse("a test", reason, "next")
    }

    fn is_x(bytes: &[u8]) -> bool {
        bytes.starts_with(b"x")
    }

    fn read(wanted: &Wanted, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, bytes).unwrap();
        wanted.read(&path).map(|content| content.bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_of_another_kind_is_not_read_beyond_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let content = wanted(is_x, u64::MAX).read(&path).unwrap();
        assert_eq!((content.bytes.len(), content.stored), (BEGINNING as usize, 1 << 40));
        assert_eq!(read(&wanted(is_x, 5), b"xyz"), Ok(b"xyz".to_vec()));
        assert_eq!(read(&wanted(is_x, 5), b""), Ok(Vec::new()));
        assert!(read(&wanted(is_x, 5), b"xyzxyz").is_err_and(|why| why.contains("too large")));
        let long = [b"x".to_vec(), vec![7; 1000]].concat();
        assert_eq!(read(&wanted(is_x, 5000), &long), Ok(long));
    }

    #[cfg(unix)]
    #[test]
    fn what_has_no_end_is_refused_before_it_is_opened() {
        for path in ["/dev/zero", "/dev/tty", "/"] {
            assert!(open_regular(Path::new(path)).is_err(), "{path}");
        }
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link.memtrace");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        let error = wanted(is_x, u64::MAX).read(&link).err().unwrap().to_string();
        assert!(error.contains("it is not a regular file") && error.contains("link.memtrace"), "{error}");
        assert!(text_of(&link, 100).is_err());
    }

    #[test]
    fn a_text_has_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(&path, "12345").unwrap();
        assert_eq!(text_of(&path, 5).unwrap(), "12345");
        assert!(text_of(&path, 4).unwrap_err().to_string().contains("larger than 4 bytes"));
    }

    #[cfg(feature = "gzip")]
    mod gzip {
        use std::io::Write;

        use flate2::Compression;
        use flate2::write::GzEncoder;

        use super::*;

        fn packed(bytes: &[u8]) -> Vec<u8> {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }

        fn is_zero(bytes: &[u8]) -> bool {
            bytes.starts_with(&[0, 0])
        }

        fn says(result: Result<Vec<u8>, String>, words: &str) -> bool {
            result.is_err_and(|reason| reason.contains(words))
        }

        #[test]
        fn a_file_of_several_gzip_members_is_unpacked_whole() {
            let text: Vec<u8> = (0..3 << 20).map(|n: u32| (n.wrapping_mul(n) >> 7) as u8).collect();
            let bytes = [packed(&text[..100]), packed(&text[100..])].concat();
            assert_eq!(read(&wanted(is_zero, text.len() as u64), &bytes).unwrap(), text);
            assert!(says(read(&wanted(is_zero, text.len() as u64 - 1), &packed(&text)), "too large"));
            let half = packed(&text)[..1000].to_vec();
            assert!(says(read(&wanted(is_zero, u64::MAX), &half), "cannot be decompressed"));
            assert!(says(read(&wanted(is_x, 1), &packed(b"")), "something else"));
        }

        #[test]
        fn other_content_is_refused_by_its_beginning() {
            // The reader stops before it reaches the missing end.
            let bomb = packed(&vec![0; 1 << 20]);
            assert!(says(read(&wanted(is_x, u64::MAX), &bomb[..bomb.len() / 2]), "something else"));
        }

        #[test]
        fn a_bomb_is_refused_before_it_is_unpacked() {
            let bomb = packed(&[b"x".to_vec(), vec![0; 8 << 20]].concat());
            let any = wanted(is_x, u64::MAX);
            assert!(says(any.unpack(&bomb[..bomb.len() / 2], 1 << 20), "too large"));
            assert!(matches!(any.unpack(&*bomb, 9 << 20), Ok(bytes) if bytes.len() == (8 << 20) + 1));
        }
    }
}
