//! The interface of all allocator models.

/// An allocator that decides where blocks lie. It uses addresses of its own and has no memory.
pub trait Allocator {
    /// Places a block and returns its address. In total, at most `limit` bytes may be reserved. `None` if memory runs
    /// out even after releasing everything that can be released.
    fn alloc(&mut self, size: u64, stream: u32, limit: u64) -> Option<u64>;

    /// Frees the block at an address that [`alloc`](Self::alloc) returned.
    fn free(&mut self, address: u64);

    /// The program waits for the GPU.
    fn synchronise(&mut self) {}

    /// The program calls `torch.cuda.empty_cache`.
    fn empty_cache(&mut self) {}

    /// Releases all memory that no block needs.
    fn trim(&mut self);

    /// Bytes in segments.
    fn reserved(&self) -> u64;

    /// Bytes of live blocks, including their rounding.
    fn used(&self) -> u64;

    /// Number of segments.
    fn segments(&self) -> usize;

    /// The largest free piece of a segment.
    fn largest_gap(&self) -> u64;
}
