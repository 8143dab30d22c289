//! What the physical memory of the process consists of, from `/proc/self/smaps` and from what is known about its
//! addresses.
//!
//! When that file is read, the kernel counts the pages of each mapping, which takes time. So memtrace reads it only
//! when resident memory has grown.

mod known;
mod smaps;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use memtrace_core::snapshot::{LoadedObject, Mapping, MappingKind, Mappings, StackId};

use self::known::Known;
use self::smaps::Vma;
use super::apart;
use crate::record::untraced;

/// The least growth of resident memory, in bytes, after which mappings are read again.
const LEAST: u64 = 1 << 20;
/// The expected size of `smaps` in bytes, for some thousand mappings.
const ROOM: usize = 4 << 20;
/// At most this many regions, the largest ones, have rows of their own. The others share rows.
const MOST_REGIONS: usize = 1024;

/// Decides when to read again.
#[derive(Debug)]
pub(super) struct MappingsReader {
    min_size: u64,
    /// Resident bytes at the last reading.
    read_at: u64,
}

impl MappingsReader {
    /// `min_size` is the heap's threshold.
    pub(super) fn new(min_size: u64) -> Self {
        Self { min_size, read_at: 0 }
    }

    /// The mappings, if resident memory has grown by a tenth since the last reading.
    pub(super) fn grown(&mut self, resident: u64, objects: &[LoadedObject], time_ns: u64) -> Option<Mappings> {
        if !self.has_grown(resident) {
            return None;
        }
        self.read_at = resident;
        self.read(objects, time_ns)
    }

    pub(super) fn has_grown(&self, resident: u64) -> bool {
        resident >= self.read_at + (self.read_at / 10).max(LEAST)
    }

    /// `None` where there is no `/proc`.
    fn read(&self, objects: &[LoadedObject], time_ns: u64) -> Option<Mappings> {
        let below_threshold = untraced::below(self.min_size);
        let own = u64::try_from(untraced::own()).unwrap_or(0);
        let rows = |smaps: &str| {
            let vmas = smaps::parse(smaps);
            Some(rows(&vmas, &known::all(&vmas, objects), known::resident))
        };
        Some(Mappings { time_ns, below_threshold, own, rows: apart::read("/proc/self/smaps", ROOM, rows)? })
    }
}

/// The ranges in `known` are sorted and do not overlap. `resident` counts the bytes of a range that are in physical
/// memory.
fn rows(vmas: &[Vma<'_>], known: &[Known], resident: impl Fn(&Range<usize>) -> u64) -> Vec<Mapping> {
    let code: HashSet<&str> = vmas.iter().filter(|vma| vma.is_executable()).map(|vma| vma.path).collect();
    let mut rows = Rows::default();
    for vma in vmas {
        let size = vma.at.len() as u64;
        match vma.path {
            "[stack]" => rows.add(MappingKind::Stack, "", StackId::NONE, size, vma.resident),
            "[vdso]" | "[vvar]" | "[vsyscall]" => rows.add(MappingKind::Code, "", StackId::NONE, size, vma.resident),
            path if !path.starts_with('/') => cut(vma, known, &resident, &mut rows),
            path if code.contains(path) => rows.add(MappingKind::Code, "", StackId::NONE, size, vma.resident),
            path => rows.add(MappingKind::File, path, stack_at(known, vma.at.start), size, vma.resident),
        }
    }
    rows.finish()
}

fn stack_at(known: &[Known], address: usize) -> StackId {
    known.iter().find(|known| known.at.contains(&address)).map_or(StackId::NONE, |known| known.stack)
}

/// Divides memory without a file among its known owners. The rest is one or more regions.
fn cut(vma: &Vma<'_>, known: &[Known], resident: &impl Fn(&Range<usize>) -> u64, rows: &mut Rows) {
    let mut parts = Vec::new();
    let mut at = vma.at.start;
    let first = known.partition_point(|known| known.at.end <= vma.at.start);
    for known in known.iter().skip(first).take_while(|known| known.at.start < vma.at.end) {
        let within = known.at.start.max(vma.at.start)..known.at.end.min(vma.at.end);
        parts.push((at..within.start, MappingKind::Region, StackId::NONE));
        at = within.end;
        parts.push((within, known.kind, known.stack));
    }
    parts.push((at..vma.at.end, MappingKind::Region, StackId::NONE));
    parts.retain(|(range, ..)| !range.is_empty());
    // The sum of the parts must be the kernel's. So the largest part is not counted page by page, but gets what the
    // others leave.
    let largest = (0..parts.len()).max_by_key(|part| parts[*part].0.len()).unwrap_or(0);
    let mut left = vma.resident;
    let mut counts: Vec<u64> = Vec::with_capacity(parts.len());
    for (number, (range, ..)) in parts.iter().enumerate() {
        let count = if number == largest || left == 0 { 0 } else { resident(range).min(left) };
        left -= count;
        counts.push(count);
    }
    for (number, ((range, kind, stack), count)) in parts.into_iter().zip(counts).enumerate() {
        let count = if number == largest { left } else { count };
        rows.add_part(vma, &range, kind, stack, count);
    }
}

/// The rows so far.
#[derive(Default)]
struct Rows {
    /// One row for each kind, file and stack.
    shared: HashMap<(MappingKind, String, StackId), Mapping>,
    /// Rows with addresses, because blocks may lie in them.
    regions: Vec<Mapping>,
}

impl Rows {
    fn add(&mut self, kind: MappingKind, path: &str, stack: StackId, size: u64, resident: u64) {
        let new = || Mapping { kind, path: path.to_owned(), stack, ..Mapping::default() };
        let row = self.shared.entry((kind, path.to_owned(), stack)).or_insert_with(new);
        row.size += size;
        row.resident += resident;
        row.count += 1;
    }

    fn add_part(&mut self, vma: &Vma<'_>, at: &Range<usize>, kind: MappingKind, stack: StackId, resident: u64) {
        let size = at.len() as u64;
        match kind {
            MappingKind::Region | MappingKind::Anonymous => {
                let (path, start) = (vma.path.to_owned(), at.start as u64);
                self.regions.push(Mapping { kind, path, start, stack, size, resident, count: 1 });
            }
            kind => self.add(kind, "", StackId::NONE, size, resident),
        }
    }

    fn finish(mut self) -> Vec<Mapping> {
        self.regions.retain(|region| region.resident > 0);
        self.regions.sort_by_key(|region| Reverse(region.resident));
        for rest in self.regions.split_off(self.regions.len().min(MOST_REGIONS)) {
            self.add(rest.kind, "", rest.stack, rest.size, rest.resident);
        }
        let mut rows = self.regions;
        rows.extend(self.shared.into_values().filter(|row| row.resident > 0));
        rows.sort_by(|a, b| b.resident.cmp(&a.resident).then_with(|| (a.start, &a.path).cmp(&(b.start, &b.path))));
        rows
    }
}

#[cfg(all(test, target_os = "linux"))]
#[expect(unsafe_code, reason = "maps memory")]
mod tests {
    use std::fs;

    use super::*;

    const SMAPS: &str = "\
1000-2000 r-xp 00000000 08:01 11                         /usr/bin/app
Rss:                   4 kB
2000-3000 rw-p 00000000 08:01 11                         /usr/bin/app
Rss:                   4 kB
3000-9000 rw-p 00000000 00:00 0 
Rss:                  20 kB
a000-b000 r--s 00000000 08:01 12                         /models/my model.safetensors
Rss:                   4 kB
b000-c000 r--s 00000000 08:01 12                         /models/my model.safetensors
Rss:                   4 kB
d000-e000 r--p 00000000 08:01 13                         /never/touched
Rss:                   0 kB
f000-11000 rw-p 00000000 00:00 0                         [heap]
Rss:                   8 kB
12000-13000 rw-p 00000000 00:00 0                        [stack]
Rss:                   4 kB
";

    fn known(at: Range<usize>, kind: MappingKind, stack: u32) -> Known {
        Known { at, kind, stack: StackId(stack) }
    }

    #[test]
    fn memory_without_a_file_is_divided_and_every_page_counts_once() {
        let vmas = smaps::parse(SMAPS);
        let known = [
            known(0x2800..0x4000, MappingKind::Code, 0),
            known(0x5000..0x6000, MappingKind::Own, 0),
            known(0x6000..0x7000, MappingKind::Anonymous, 5),
            known(0xa000..0xb000, MappingKind::Anonymous, 7),
        ];
        // All pages but the one at 0x4000 are resident.
        let found = rows(&vmas, &known, |at| (at.len() - usize::from(at.contains(&0x4000)) * 4096) as u64);
        assert_eq!(found.iter().map(|row| row.resident).sum::<u64>(), 48 << 10);
        let has = |kind, path: &str, start, stack| {
            let is = |row: &&Mapping| (row.kind, &*row.path, row.start, row.stack.0) == (kind, path, start, stack);
            found.iter().find(is).map_or(0, |row| row.resident)
        };
        assert_eq!(has(MappingKind::Code, "", 0, 0), 12 << 10);
        assert_eq!(has(MappingKind::Own, "", 0, 0), 4 << 10);
        assert_eq!(has(MappingKind::Anonymous, "", 0x6000, 5), 4 << 10);
        assert_eq!(has(MappingKind::Region, "", 0x4000, 0), 0);
        assert_eq!(has(MappingKind::Region, "", 0x7000, 0), 8 << 10);
        assert_eq!(has(MappingKind::Region, "[heap]", 0xf000, 0), 8 << 10);
        assert_eq!(has(MappingKind::Stack, "", 0, 0), 4 << 10);
        let model = "/models/my model.safetensors";
        assert_eq!((has(MappingKind::File, model, 0, 7), has(MappingKind::File, model, 0, 0)), (4 << 10, 4 << 10));
        assert!(!found.iter().any(|row| row.path == "/never/touched"));
    }

    #[test]
    fn regions_without_a_row_of_their_own_are_one_row() {
        let line = |number: usize| {
            let start = (number + 1) << 20;
            format!("{:x}-{:x} rw-p 00000000 00:00 0 \nRss: {} kB\n", start, start + 0x100000, 4 + number % 2)
        };
        let smaps: String = (0..MOST_REGIONS + 10).map(line).collect();
        let found = rows(&smaps::parse(&smaps), &[], |_| 0);
        assert_eq!(found.len(), MOST_REGIONS + 1);
        let rest = found.iter().find(|row| row.start == 0).unwrap();
        assert_eq!((rest.count, rest.resident, rest.size), (10, 40 << 10, 10 << 20));
    }

    fn read_now() -> Mappings {
        MappingsReader::new(0).read(&[], 5).unwrap()
    }

    #[test]
    fn a_file_and_a_threads_stack_are_found_with_what_was_touched() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), vec![7u8; 8 << 20]).unwrap();
        // SAFETY: nobody changes the file.
        let map = unsafe { memmap2::Mmap::map(file.as_file()) }.unwrap();
        let touched: u64 = map[..2 << 20].iter().map(|byte| u64::from(*byte)).sum();
        let stacks = |found: &Mappings| found.of(MappingKind::Stack).map(|row| row.resident).sum::<u64>();
        let path = file.path().to_str().unwrap();
        let before = read_now();
        let row = before.of(MappingKind::File).find(|row| row.path == path).unwrap();
        // The kernel maps pages around those that are read.
        assert!(row.size == 8 << 20 && (2 << 20..=8 << 20).contains(&row.resident), "{touched} {row:?}");
        let thread = std::thread::Builder::new().stack_size(16 << 20).spawn(move || {
            crate::record::thread::number();
            let used = std::hint::black_box([1u8; 4 << 20]);
            (read_now(), used[4000])
        });
        let (after, _) = thread.unwrap().join().unwrap();
        assert!(stacks(&after) >= stacks(&before) + (4 << 20), "{before:?} {after:?}");
        assert!(stacks(&after) <= stacks(&before) + (12 << 20), "{before:?} {after:?}");
    }

    #[test]
    fn what_has_not_grown_is_not_read_again() {
        let mut reader = MappingsReader::new(0);
        let mut is_read = |resident| {
            let before = reader.read_at;
            reader.grown(resident, &[], 0);
            before != reader.read_at
        };
        let grown = [0, 1 << 20, 1 << 21, 50 << 20, 54 << 20, 55 << 20, 20 << 20].map(&mut is_read);
        assert_eq!(grown, [false, true, true, true, false, true, false]);
    }
}
