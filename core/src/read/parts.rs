//! Reads the parts of a stream with a budget, which are files in one folder, while a program may be writing and
//! deleting them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::capture::{self, StreamPart, part_path};
use crate::error::Error;
use crate::input::open_regular;

/// This many bytes at the beginning of a file say which part the file is.
const HEAD: u64 = 64;

/// How often the parts are listed at most, if some disappear while they are read. A writer deletes a few parts in a
/// second.
const MOST_LISTINGS: usize = 100;

/// Time between two listings.
const BETWEEN_LISTINGS: Duration = Duration::from_millis(1);

/// A stream that consists of parts.
#[derive(Debug)]
pub(super) struct PartedStream {
    /// The path of the file that names the stream.
    path: PathBuf,
    run: u64,
}

impl PartedStream {
    /// The stream that a file names or is part of. A part that was renamed is read by itself.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let part = part_at(path)?;
        let path = if part.number == 0 { path.to_owned() } else { stream_of(path, part.number)? };
        Some(Self { path, run: part.run })
    }

    /// The numbers of the files whose names are those of parts, the newest first.
    fn listed(&self) -> Vec<u64> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let names = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.file_name()));
        let of_name = |name: std::ffi::OsString| number_in(&self.path, &name.to_string_lossy());
        let mut numbers: Vec<u64> = names.filter_map(of_name).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        numbers
    }

    /// The numbers of the stream's parts, the newest first: of the listed files, those whose content belongs to the
    /// stream.
    fn numbers(&self) -> Vec<u64> {
        let has = |number: &u64| part_at(&self.part(*number)) == Some(self.id(*number));
        self.listed().into_iter().filter(has).collect()
    }

    fn id(&self, number: u64) -> StreamPart {
        StreamPart { run: self.run, number }
    }

    fn part(&self, number: u64) -> PathBuf {
        part_path(&self.path, number)
    }

    /// The newest part that has a commit, and the numbers of the older parts, the newest of them first.
    ///
    /// A part is final once the next one has a commit. So the result is the stream as it was at one moment, whatever is
    /// written or deleted during the reading. If every listed part was deleted, there are newer ones, and the parts are
    /// listed again.
    pub(super) fn read(
        &self,
        mut read: impl FnMut(&Path) -> Result<Vec<u8>, Error>,
    ) -> Result<(Vec<u8>, Vec<u64>), Error> {
        let mut before = None;
        for _ in 0..MOST_LISTINGS {
            let listed = self.listed();
            let mut has_vanished = false;
            for (at, number) in listed.iter().enumerate() {
                match read(&self.part(*number)) {
                    Ok(newest) if self.is_part(*number, &newest) && capture::is_committed(&newest) => {
                        return Ok((newest, listed[at + 1..].to_vec()));
                    }
                    Ok(_) => {}
                    Err(_) => has_vanished = true,
                }
            }
            // A listing that is read while files are created and deleted may lack every part. So it counts only if the
            // next listing is the same.
            if !has_vanished && before.replace(listed.clone()) == Some(listed) {
                break;
            }
            std::thread::sleep(BETWEEN_LISTINGS);
        }
        let reason = "its stream has no part with a commit".to_owned();
        let next = "its parts lie beside it, unless the program has just begun";
        Err(Error::parse("a memtrace capture", reason, next))
    }

    fn is_part(&self, number: u64, bytes: &[u8]) -> bool {
        capture::part_of(bytes) == Some(self.id(number))
    }

    /// The parts with these numbers. Ends at a part that was deleted, because then all parts before it were deleted as
    /// well.
    pub(super) fn older(
        &self,
        numbers: Vec<u64>,
        mut read: impl FnMut(&Path) -> Result<Vec<u8>, Error>,
    ) -> impl Iterator<Item = Vec<u8>> {
        let parts = numbers.into_iter().map_while(move |number| Some((number, read(&self.part(number)).ok()?)));
        parts.filter(|(number, bytes)| self.is_part(*number, bytes)).map(|(_, bytes)| bytes)
    }
}

/// The parts of the stream that a file names or is part of, oldest first. Empty if the file is neither.
#[doc(hidden)]
pub fn parts_of(path: &Path) -> Vec<PathBuf> {
    let Some(stream) = PartedStream::of(path) else { return Vec::new() };
    stream.numbers().into_iter().rev().map(|number| stream.part(number)).collect()
}

/// Whether a file is a part of a stream that another file in its folder represents: the file that names the stream, or
/// otherwise its newest part.
#[doc(hidden)]
pub fn is_one_of_several(path: &Path) -> bool {
    let Some(part) = part_at(path).filter(|part| part.number > 0) else { return false };
    let Some(stream) = PartedStream::of(path) else { return false };
    let is_named = part_at(&stream.path) == Some(stream.id(0));
    is_named || stream.numbers().first().is_some_and(|newest| *newest != part.number)
}

fn part_at(path: &Path) -> Option<StreamPart> {
    let mut head = Vec::new();
    open_regular(path).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
    capture::part_of(&head)
}

/// `run.memtrace` for `run.3.memtrace`, part 3.
fn stream_of(part: &Path, number: u64) -> Option<PathBuf> {
    let (stem, extension) = (part.file_stem()?.to_str()?, part.extension().unwrap_or_default());
    let (stem, extension) = match stem.strip_suffix(&format!(".{number}")) {
        Some(stem) => (stem.to_owned(), extension.to_str()?),
        None => (stem.to_owned(), ""),
    };
    let name = if extension.is_empty() { stem } else { format!("{stem}.{extension}") };
    let stream = part.with_file_name(name);
    (part_path(&stream, number) == part).then_some(stream)
}

/// The number of a part of this stream, taken from a file's name.
fn number_in(stream: &Path, name: &str) -> Option<u64> {
    let (stem, extension) = (stream.file_stem()?.to_str()?, stream.extension().unwrap_or_default().to_str()?);
    let rest = name.strip_prefix(stem)?.strip_prefix('.')?;
    let number = if extension.is_empty() { rest } else { rest.strip_suffix(extension)?.strip_suffix('.')? };
    number.parse().ok().filter(|parsed: &u64| parsed.to_string() == number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{Commit, Encoder};

    /// A kill may leave a part whose first commit was not written, after one that is complete.
    #[test]
    fn a_part_without_a_commit_is_not_the_newest() {
        let folder = tempfile::tempdir().unwrap();
        let stream = folder.path().join("run.memtrace");
        std::fs::write(&stream, capture::stream_name(9).unwrap()).unwrap();
        let part = |number, is_committed| {
            let mut file = Encoder::begin(Vec::new()).unwrap();
            file.part(StreamPart { run: 9, number }).unwrap();
            if is_committed {
                file.commit(&Commit { duration_ns: number, ..Commit::default() }).unwrap();
            }
            std::fs::write(part_path(&stream, number), file.out()).unwrap();
        };
        part(1, true);
        part(2, true);
        part(3, false);
        assert_eq!(crate::open(&stream).unwrap().process.duration_ns, 2);
        part(3, true);
        assert_eq!(crate::open(&stream).unwrap().process.duration_ns, 3);
    }

    #[test]
    fn names_of_parts_lead_to_the_stream_and_back() {
        for stream in ["/d.x/a.memtrace", "a.b.memtrace", "/x/a", "a.7.memtrace"].map(Path::new) {
            let part = part_path(stream, 7);
            assert_eq!(stream_of(&part, 7).as_deref(), Some(stream), "{}", part.display());
            let name = part.file_name().unwrap().to_str().unwrap();
            assert_eq!(number_in(stream, name), Some(7));
            assert_eq!(stream_of(&part, 8), None);
        }
        for other in ["a.memtrace", "a.x.memtrace", "a.07.memtrace", "b.7.memtrace", "a.7.memtrace.gz", "a.+7.memtrace"]
        {
            assert_eq!(number_in(Path::new("/d/a.memtrace"), other), None, "{other}");
        }
    }
}
