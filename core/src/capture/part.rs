//! Parts of a stream with a budget: their chunks and their file names.

use std::io;
use std::path::{Path, PathBuf};

use super::bytes::Payload;
use super::{MAGIC, NAME_VERSION, Tag, chunk_head};

/// Identifies the stream and the part that a file is.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamPart {
    /// A number that is the same in all parts of a stream, and different in other streams.
    pub run: u64,
    /// The number of the part, from 1; 0 is the file that names the stream.
    pub number: u64,
}

/// Where a device's log begins in a part: after how many marks of the run, and when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogStart {
    pub(super) marks: u64,
    pub(super) time_ns: u64,
}

/// The content of the file that names a stream.
#[doc(hidden)]
pub fn stream_name(run: u64) -> io::Result<Vec<u8>> {
    let mut payload = Payload::default();
    payload.put(&StreamPart { run, number: 0 });
    let head = chunk_head(Tag::Part as u8, &payload.bytes);
    Ok([&MAGIC[..], &NAME_VERSION.to_le_bytes(), &head, &payload.bytes].concat())
}

/// The chunk that marks the end of a capture.
#[doc(hidden)]
pub fn end_mark() -> Vec<u8> {
    chunk_head(Tag::End as u8, &[]).to_vec()
}

/// `run.3.memtrace` for part 3 of the stream `run.memtrace`.
#[doc(hidden)]
pub fn part_path(stream: &Path, number: u64) -> PathBuf {
    let mut name = stream.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{number}"));
    if let Some(extension) = stream.extension() {
        name.push(".");
        name.push(extension);
    }
    stream.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{Encoder, part_of};

    #[test]
    fn a_file_says_which_part_it_is() {
        let part = StreamPart { run: u64::MAX, number: 7 };
        let mut encoder = Encoder::begin(Vec::new()).unwrap();
        encoder.part(part).unwrap();
        assert_eq!(part_of(encoder.out()), Some(part));
        let name = stream_name(5).unwrap();
        assert_eq!(part_of(&name), Some(StreamPart { run: 5, number: 0 }));
        assert_eq!(part_of(&name[..name.len() - 1]), None);
        assert_eq!(part_of(Encoder::begin(Vec::new()).unwrap().out()), None);
    }

    #[test]
    fn a_part_has_the_streams_name_with_its_number() {
        let named = |stream: &str| part_path(Path::new(stream), 12).display().to_string();
        assert_eq!(
            ["/d.x/a.memtrace", "a.b.memtrace", "a"].map(named),
            ["/d.x/a.12.memtrace", "a.b.12.memtrace", "a.12"]
        );
    }
}
