//! Kinds of memory, by the allocator or driver function that provided them.

use super::words::words;

words! {
    /// The allocator or driver function that provided a block.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum MemoryKind {
        /// The heap, through the global allocator.
        #[default]
        Heap = "heap",
        /// A stream-ordered pool (`cuMemAllocAsync`, `cuMemAllocFromPoolAsync`).
        Pool = "pool",
        /// `cuMemAlloc`, `cuMemAllocPitch`.
        Classic = "classic",
        /// `cuMemAllocManaged`.
        Managed = "managed",
        /// Pinned (page-locked) host memory (`cuMemAllocHost`, `cuMemHostAlloc`).
        Pinned = "pinned",
        /// The program's own memory, pinned later (`cuMemHostRegister`).
        Registered = "registered",
        /// Physical memory that the program mapped (`cuMemCreate`), as PyTorch's expandable segments do. It has no
        /// address of its own; memtrace assigns one of at least 2⁵².
        Virtual = "virtual",
        /// A CUDA array, plain or mipmapped. memtrace assigns its address as well.
        Array = "array",
        /// Memory allocated by a launched CUDA graph.
        Graph = "graph",
        /// Memory of another process or of a graphics library, mapped into this process.
        Imported = "imported",
    }
}

/// The lowest address that memtrace assigns; no device has memory there.
pub const MADE_UP: u64 = 1 << 52;
