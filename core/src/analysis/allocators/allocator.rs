//! What the models of allocators have in common.

/// An allocator that decides where blocks lie, in addresses of its own. It has no memory.
pub trait Allocator {
    /// Places a block; in all, at most `limit` bytes may be reserved. Returns its address; `None` if memory runs out, and then all
    /// that can be released has been.
    fn alloc(&mut self, size: u64, stream: u32, limit: u64) -> Option<u64>;

    /// Frees the block at an address that [`alloc`](Self::alloc) returned.
    fn free(&mut self, address: u64);

    /// The program waits for the GPU.
    fn synchronise(&mut self) {}

    /// Releases what no block needs.
    fn trim(&mut self);

    /// Bytes in segments.
    fn reserved(&self) -> u64;

    /// Bytes of live blocks with what they are rounded up by.
    fn used(&self) -> u64;

    /// Number of segments.
    fn segments(&self) -> usize;

    /// The largest free piece of a segment.
    fn largest_gap(&self) -> u64;
}
