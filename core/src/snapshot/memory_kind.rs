//! Kinds of memory, by the allocator or driver function that provided them.

use std::fmt;

/// The allocator or driver function that provided a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// The heap, through the global allocator.
    #[default]
    Heap,
    /// A stream-ordered pool (`cuMemAllocAsync`, `cuMemAllocFromPoolAsync`).
    Pool,
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Classic,
    /// `cuMemAllocManaged`.
    Managed,
    /// Pinned (page-locked) host memory (`cuMemAllocHost`, `cuMemHostAlloc`).
    Pinned,
    /// The program's own memory, pinned later (`cuMemHostRegister`).
    Registered,
    /// Physical memory mapped by the program (`cuMemCreate`), PyTorch's expandable segments. It has no address of its own;
    /// memtrace assigns one of at least 2⁵².
    Virtual,
    /// A CUDA array, plain or mipmapped; its address is assigned, too.
    Array,
    /// Memory allocated by a launched CUDA graph.
    Graph,
    /// Memory of another process or of a graphics library, mapped into this process.
    Imported,
}

/// Start of the addresses that memtrace assigns; no device has memory there.
pub const MADE_UP: u64 = 1 << 52;

impl MemoryKind {
    /// All kinds, in the order of their numbers in captures.
    pub const ALL: [Self; 10] = [
        Self::Heap,
        Self::Pool,
        Self::Classic,
        Self::Managed,
        Self::Pinned,
        Self::Registered,
        Self::Virtual,
        Self::Array,
        Self::Graph,
        Self::Imported,
    ];

    /// The kind as one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Pool => "pool",
            Self::Classic => "classic",
            Self::Managed => "managed",
            Self::Pinned => "pinned",
            Self::Registered => "registered",
            Self::Virtual => "virtual",
            Self::Array => "array",
            Self::Graph => "graph",
            Self::Imported => "imported",
        }
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_the_numbers() {
        assert!(MemoryKind::ALL.iter().enumerate().all(|(number, kind)| *kind as usize == number));
    }
}
