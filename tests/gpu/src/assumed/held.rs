//! Resources that a row holds, and releases however it ends.

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUmemoryPool, CUpointer_attribute, CUresult};

use super::{code, size};
use crate::gpu::pointer_attribute;
use crate::raw::{self, LEGACY, Outcome, Stream};
use crate::{calls, graphs};

/// A block.
pub(super) struct Held {
    pub(super) address: u64,
    free: fn(u64) -> Outcome<()>,
    is_freed: bool,
}

fn free_in_order(address: u64) -> Outcome<()> {
    raw::free_async(address, LEGACY)
}

impl Held {
    fn new(address: Outcome<u64>, free: fn(u64) -> Outcome<()>) -> Outcome<Self> {
        Ok(Self { address: address?, free, is_freed: false })
    }

    /// Allocates from the device's pool.
    pub(super) fn pool(size: usize) -> Outcome<Self> {
        Self::new(raw::alloc_async(size, LEGACY), free_in_order)
    }

    pub(super) fn of_pool(size: usize, pool: CUmemoryPool) -> Outcome<Self> {
        Self::new(raw::alloc_from_pool(size, pool, LEGACY), free_in_order)
    }

    pub(super) fn classic(size: usize) -> Outcome<Self> {
        Self::new(raw::alloc(size), raw::free)
    }

    pub(super) fn managed(size: usize) -> Outcome<Self> {
        Self::new(raw::managed(size, 1), raw::free)
    }

    pub(super) fn physical(size: usize) -> Outcome<Self> {
        Self::new(raw::physical(size, 0), raw::release_physical)
    }

    /// Frees the block by the function that belongs to its allocation.
    pub(super) fn free(self) -> Outcome<()> {
        let free = self.free;
        self.freed_by(free)
    }

    /// The function that frees the block.
    pub(super) fn way(&self) -> fn(u64) -> Outcome<()> {
        self.free
    }

    /// Frees the block by another function.
    pub(super) fn freed_by(mut self, free: impl FnOnce(u64) -> Outcome<()>) -> Outcome<()> {
        let freed = free(self.address);
        self.is_freed = freed.is_ok();
        freed
    }

    /// An attribute of the block: a size, or the result code.
    pub(super) fn size_of(&self, attribute: CUpointer_attribute) -> String {
        size_at(self.address, attribute)
    }

    pub(super) fn word(&self, attribute: CUpointer_attribute) -> Outcome<u64> {
        word_at(self.address, attribute)
    }
}

pub(super) fn word_at(address: u64, attribute: CUpointer_attribute) -> Outcome<u64> {
    match pointer_attribute(address, attribute) {
        (CUresult::CUDA_SUCCESS, value) => Ok(value),
        (code, _) => Err(code),
    }
}

pub(super) fn size_at(address: u64, attribute: CUpointer_attribute) -> String {
    word_at(address, attribute).map_or_else(|refused| code(Err::<(), _>(refused)), size)
}

/// The result code of a query for memory at an address.
pub(super) fn known(address: u64) -> String {
    code(word_at(address, CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE))
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_freed {
            let _ = (self.free)(self.address);
        }
    }
}

/// A pool that the program created.
pub(super) struct OwnPool(pub(super) CUmemoryPool);

impl OwnPool {
    pub(super) fn new() -> Outcome<Self> {
        calls::own_pool().map(Self)
    }
}

impl Drop for OwnPool {
    fn drop(&mut self) {
        let _ = raw::synchronise(LEGACY);
        let _ = raw::pool_destroy(self.0);
    }
}

/// A graph with one allocation.
pub(super) struct Program {
    pub(super) graph: CUgraph,
    pub(super) program: CUgraphExec,
    pub(super) address: u64,
}

impl Program {
    pub(super) fn new(size: u64, flags: u64) -> Outcome<Self> {
        let graph = raw::graph_create(0)?;
        let (_, address) = calls::alloc_node(graph, size, &[])?;
        let (graph, program) = graphs::ready(graph, flags)?;
        Ok(Self { graph, program, address })
    }

    pub(super) fn launched(size: u64, flags: u64) -> Outcome<Self> {
        let program = Self::new(size, flags)?;
        raw::launch(program.program, LEGACY)?;
        Ok(program)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The driver refuses this if the graph was never launched.
        let _ = raw::free_async(self.address, LEGACY);
        let _ = graphs::done(self.graph, self.program, LEGACY);
    }
}

/// A stream.
pub(super) struct Made(pub(super) Stream);

impl Made {
    /// `flags` decides whether it synchronizes with the default stream.
    pub(super) const BLOCKING: u32 = 0;
    pub(super) const APART: u32 = 1;

    pub(super) fn new(flags: u32) -> Outcome<Self> {
        calls::stream(flags).map(Self)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = calls::stream_destroy(self.0);
    }
}
