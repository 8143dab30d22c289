//! How a block was come by.

use std::fmt;

/// What was asked for a block. On a CUDA device it says from where in the driver the bytes come.
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
    /// Page-locked memory of the host (`cuMemAllocHost`, `cuMemHostAlloc`).
    Pinned,
    /// Memory of the program's own that was made page-locked (`cuMemHostRegister`).
    Registered,
    /// Physical memory that is mapped by hand (`cuMemCreate`). It has no address of its own; memtrace makes
    /// one up, of at least 2⁵².
    Virtual,
    /// A CUDA array, plain or mipmapped. Its address is made up, too.
    Array,
    /// Memory that a launched graph allocated.
    Graph,
    /// Memory of another process or of another library for graphics, mapped into this one.
    Imported,
}

/// Where made-up addresses begin: no device has memory there.
pub const MADE_UP: u64 = 1 << 52;

impl MemoryKind {
    /// All, by their numbers in captures.
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

    /// One word.
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
