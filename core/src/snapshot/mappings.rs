//! The memory mappings of the recorded process, which show what its physical memory consists of.

use super::ids::StackId;
use super::words::words;

/// The mappings at one reading: the reading with the most resident memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings {
    /// When they were read, in nanoseconds since the recording began.
    pub time_ns: u64,
    /// Live bytes at that time in blocks of the heap that are smaller than the threshold.
    pub below_threshold: u64,
    /// memtrace's own bytes among the program's blocks at that time.
    pub own: u64,
    /// The rows, largest physical memory first.
    pub rows: Vec<Mapping>,
}

/// Mappings that are reported as one row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// What the mappings are for.
    pub kind: MappingKind,
    /// The address of a region; 0 in rows of other kinds.
    pub start: u64,
    /// Bytes of the address space.
    pub size: u64,
    /// The part of `size` that was in physical memory. Other processes may share it.
    pub resident: u64,
    /// Number of mappings.
    pub count: u64,
    /// The file, as the kernel names it; empty for kinds without a file.
    pub path: String,
    /// Where the program mapped it, if that was seen.
    pub stack: StackId,
}

words! {
    /// What a mapping is for.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum MappingKind {
        /// A data file, such as safetensors. Shared memory counts too, because for the kernel it is a file.
        File = "file",
        /// The program and its libraries, including their static variables.
        Code = "code",
        /// Stacks of threads.
        Stack = "stack",
        /// memtrace's own tables.
        Own = "memtrace",
        /// Memory that the program mapped itself, without a file.
        Anonymous = "anonymous",
        /// Other memory without a file. If blocks lie in it, it belongs to an allocator.
        #[default]
        Region = "region",
    }
}

impl Mappings {
    /// Bytes in physical memory.
    pub fn resident(&self) -> u64 {
        self.rows.iter().fold(0, |sum, row| sum.saturating_add(row.resident))
    }

    /// The rows of a kind.
    pub fn of(&self, kind: MappingKind) -> impl Iterator<Item = &Mapping> {
        self.rows.iter().filter(move |row| row.kind == kind)
    }

    /// Returns this reading or the earlier one, whichever has more resident memory.
    #[must_use]
    pub fn after(self, earlier: Option<Self>) -> Self {
        match earlier {
            Some(earlier) if earlier.resident() > self.resident() => earlier,
            _ => self,
        }
    }
}
