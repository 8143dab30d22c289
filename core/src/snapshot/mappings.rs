//! The mappings of the recorded process: what its physical memory is made of.

use super::ids::StackId;
use super::words::words;

/// The mappings at one reading: at the one when most was resident.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings {
    /// When they were read, in nanoseconds since the recording began.
    pub time_ns: u64,
    /// Live bytes in blocks of the heap that are smaller than the threshold, then.
    pub below_threshold: u64,
    /// memtrace's own bytes among the program's blocks, then.
    pub own: u64,
    /// The rows, the one with most physical memory first.
    pub rows: Vec<Mapping>,
}

/// Mappings that belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// What is in them.
    pub kind: MappingKind,
    /// The address of a region; 0 in rows of other kinds.
    pub start: u64,
    /// Bytes of the address space.
    pub size: u64,
    /// The part of `size` that was in physical memory. Other processes may share it.
    pub resident: u64,
    /// How many they are.
    pub count: u64,
    /// The file, as the kernel names it; empty for other kinds.
    pub path: String,
    /// Where the program mapped it, if that was seen.
    pub stack: StackId,
}

words! {
    /// What a mapping is for.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum MappingKind {
        /// A file of data, such as safetensors; also shared memory, which is a file of the kernel's.
        File = "file",
        /// The program and its libraries, their variables included.
        Code = "code",
        /// Stacks of threads.
        Stack = "stack",
        /// memtrace's own tables.
        Own = "memtrace",
        /// Memory that the program mapped itself, without a file.
        Anonymous = "anonymous",
        /// Other memory without a file: an allocator's, if blocks lie in it.
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

    /// Of this reading and an earlier one, the one that counts.
    #[must_use]
    pub fn after(self, earlier: Option<Self>) -> Self {
        match earlier {
            Some(earlier) if earlier.resident() > self.resident() => earlier,
            _ => self,
        }
    }
}
