//! The files that a process has mapped, from `/proc/self/smaps`: those of data, not the program and its libraries.
//!
//! The kernel counts the pages of each mapping when that file is read, so it is read only when mapped files have grown.

use std::collections::HashMap;

use memtrace_core::snapshot::{MappedFile, MappedFiles};

use super::apart;

/// Less is what programs read at their start.
const LEAST: u64 = 1 << 20;
/// What the kernel writes of some thousand mappings.
const ROOM: usize = 4 << 20;
/// The largest are kept.
const MOST_FILES: usize = 64;

/// When to read again.
#[derive(Debug, Default)]
pub(super) struct MappedFilesReader {
    /// Bytes in mapped files, code among them, at the last reading.
    read_at: u64,
}

impl MappedFilesReader {
    /// The files, if they hold a tenth more than at the last reading. `held` is what the kernel counts of mapped files.
    pub(super) fn grown(&mut self, held: u64, time_ns: u64) -> Option<MappedFiles> {
        if !self.has_grown(held) {
            return None;
        }
        self.read_at = held;
        read(time_ns)
    }

    pub(super) fn has_grown(&self, held: u64) -> bool {
        held >= self.read_at + (self.read_at / 10).max(LEAST)
    }
}

/// `None` where there is no `/proc`, or nothing is mapped but code.
pub(super) fn read(time_ns: u64) -> Option<MappedFiles> {
    let files = files_of(&apart::read("/proc/self/smaps", ROOM)?);
    (!files.is_empty()).then_some(MappedFiles { time_ns, files })
}

/// A file's mappings so far.
#[derive(Default)]
struct Mappings {
    size: u64,
    resident: u64,
    is_code: bool,
}

fn files_of(smaps: &str) -> Vec<MappedFile> {
    let mut all: HashMap<&str, Mappings> = HashMap::new();
    let mut current = "";
    for line in smaps.lines() {
        if let Some((access, path)) = header(line) {
            current = path;
            all.entry(path).or_default().is_code |= access.contains('x');
        } else if let Some(file) = all.get_mut(current) {
            file.size += kib(line, "Size:").unwrap_or(0);
            file.resident += kib(line, "Rss:").unwrap_or(0);
            // Copies of pages that the program wrote to.
            file.resident = file.resident.saturating_sub(kib(line, "Anonymous:").unwrap_or(0));
        }
    }
    let held = all.into_iter().filter(|(path, file)| path.starts_with('/') && !file.is_code && file.resident > 0);
    let file =
        |(path, Mappings { size, resident, .. }): (&str, Mappings)| MappedFile { path: path.into(), size, resident };
    let mut files: Vec<MappedFile> = held.map(file).collect();
    files.sort_by(|a, b| b.resident.cmp(&a.resident).then_with(|| a.path.cmp(&b.path)));
    files.truncate(MOST_FILES);
    files
}

/// Access and path of a mapping: `7f0000000000-7f0000001000 r--p 00000000 08:01 1234    /a file`.
fn header(line: &str) -> Option<(&str, &str)> {
    let mut rest = line;
    let mut word = || {
        let (word, more) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = more.trim_start();
        word
    };
    let (range, access) = (word(), word());
    let is_range = range.split_once('-').is_some_and(|(from, to)| [from, to].iter().all(|at| is_hexadecimal(at)));
    (0..3).for_each(|_| _ = word());
    is_range.then_some((access, rest))
}

fn is_hexadecimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn kib(line: &str, name: &str) -> Option<u64> {
    let value = line.strip_prefix(name)?.trim().strip_suffix(" kB")?;
    value.parse::<u64>().ok()?.checked_mul(1 << 10)
}

#[cfg(all(test, target_os = "linux"))]
#[expect(unsafe_code, reason = "maps a file")]
mod tests {
    use std::fs;

    use super::*;

    const SMAPS: &str = "\
55d000-55e000 r-xp 00000000 08:01 11                         /usr/bin/app
Size:                 40 kB
Rss:                  40 kB
Anonymous:             0 kB
55e000-55f000 rw-p 00000000 08:01 11                         /usr/bin/app
Size:                 40 kB
Rss:                  40 kB
Anonymous:            40 kB
7f0000-7f1000 r--s 00000000 08:01 12                         /models/my model.safetensors
Size:                900 kB
Rss:                 600 kB
Anonymous:             0 kB
7f1000-7f2000 rw-p 00100000 08:01 12                         /models/my model.safetensors
Size:                100 kB
Rss:                  50 kB
Anonymous:            20 kB
VmFlags: rd mr mw me sd
7f2000-7f3000 rw-p 00000000 00:00 0 
Size:              99999 kB
Rss:               99999 kB
7f3000-7f4000 r--p 00000000 08:01 13                         /never/touched
Size:                 10 kB
Rss:                   0 kB
7f5000-7f6000 rw-p 00000000 00:00 0                          [heap]
Size:              99999 kB
Rss:               99999 kB
";

    #[test]
    fn mappings_of_a_file_are_one_row_without_code_and_copies() {
        let file = MappedFile { path: "/models/my model.safetensors".into(), size: 1000 << 10, resident: 630 << 10 };
        assert_eq!(files_of(SMAPS), [file]);
        let cut = (0..SMAPS.len()).map(|length| files_of(&SMAPS[..length]).len());
        assert!(cut.max() == Some(1));
    }

    #[test]
    fn a_file_that_this_process_maps_is_found_with_the_pages_it_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), vec![7u8; 8 << 20]).unwrap();
        // SAFETY: nobody changes the file.
        let map = unsafe { memmap2::Mmap::map(file.as_file()) }.unwrap();
        let touched: u64 = map[..2 << 20].iter().map(|byte| u64::from(*byte)).sum();
        let found = read(5).unwrap();
        let path = file.path().to_str().unwrap();
        let row = found.files.iter().find(|row| row.path == path).unwrap();
        // The kernel maps pages around those that are read.
        assert!(row.size == 8 << 20 && (2 << 20..=8 << 20).contains(&row.resident), "{touched} {row:?}");
        assert_eq!(found.time_ns, 5);
    }

    #[test]
    fn what_has_not_grown_is_not_read_again() {
        let mut reader = MappedFilesReader::default();
        let mut is_read = |held| {
            let before = reader.read_at;
            reader.grown(held, 0);
            before != reader.read_at
        };
        let grown = [0, 1 << 20, 1 << 21, 50 << 20, 54 << 20, 55 << 20, 20 << 20].map(&mut is_read);
        assert_eq!(grown, [false, true, true, true, false, true, false]);
    }
}
