//! Reserved address ranges. They take host memory only where they are touched, and released parts take none.

use crate::config::Fill;
use crate::own::{PAGE, map};

/// An address range. It is accessible where there is a segment.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) base: u64,
    pub(crate) length: u64,
}

impl Span {
    /// Reserves at least `length` addresses; `None` if the process does not have enough. `align` is a power of two or
    /// 0.
    pub(crate) fn reserve(length: u64, align: u64) -> Option<Self> {
        let align = usize::try_from(align).ok()?.max(ALIGN);
        let length = usize::try_from(length).ok()?.checked_next_multiple_of(ALIGN)?;
        let start = map(length.checked_add(align)?, libc::PROT_NONE)?.as_ptr() as usize;
        let base = start.next_multiple_of(align);
        unmap(start, base - start);
        unmap(base + length, start + align - base);
        // Without huge pages, one touched byte takes 4 KiB of host memory, not 2 MiB.
        // SAFETY: the mapping was made just now.
        unsafe { libc::madvise(base as *mut _, length, libc::MADV_NOHUGEPAGE) };
        Some(Self { base: base as u64, length: length as u64 })
    }

    /// Unmaps the range, which must be unused.
    pub(crate) fn release(&self) {
        unmap(self.base as usize, self.length as usize);
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        address >= self.base && address - self.base < self.length
    }

    /// Makes pages accessible; they read as zero. False on failure.
    pub(crate) fn open(address: u64, length: u64) -> bool {
        // SAFETY: `address` is a page of a span; nothing else changes its protection.
        unsafe { libc::mprotect(address as *mut _, length as usize, libc::PROT_READ | libc::PROT_WRITE) == 0 }
    }

    /// Discards pages and makes them inaccessible.
    pub(crate) fn close(address: u64, length: u64) {
        discard(address, length);
        // SAFETY: as in `open`.
        unsafe { libc::mprotect(address as *mut _, length as usize, libc::PROT_NONE) };
    }

    /// Zeroes a range, and discards the whole pages in it.
    pub(crate) fn zero(address: u64, length: u64) {
        let page = PAGE as u64;
        let end = address + length;
        let (first, last) = (address.next_multiple_of(page), end / page * page);
        if first >= last {
            return write(address, length, 0);
        }
        write(address, first - address, 0);
        discard(first, last - first);
        write(last, end - last, 0);
    }

    /// Writes the initial contents of a block.
    pub(crate) fn fill(address: u64, length: u64, fill: Fill, seed: u64) {
        match fill {
            Fill::Zeros => {}
            Fill::Ones => write(address, length, 0xFF),
            Fill::Random => scramble(address, length, seed),
        }
    }
}

/// Segments start at multiples of 2 MiB.
const ALIGN: usize = 2 << 20;

fn unmap(start: usize, length: usize) {
    if length > 0 {
        // SAFETY: the callers pass whole, unused pages of the simulator's mappings.
        unsafe { libc::munmap(start as *mut _, length) };
    }
}

fn discard(address: u64, length: u64) {
    // SAFETY: the callers pass whole pages of a private mapping, without live blocks.
    unsafe { libc::madvise(address as *mut _, length as usize, libc::MADV_DONTNEED) };
}

fn write(address: u64, length: u64, byte: u8) {
    // SAFETY: the callers pass a range within an accessible segment.
    unsafe { std::ptr::write_bytes(address as *mut u8, byte, length as usize) };
}

/// Writes pseudorandom words; the length of a block is a multiple of 8.
fn scramble(address: u64, length: u64, seed: u64) {
    let mut state = seed | 1;
    for at in (address..address + length / 8 * 8).step_by(8) {
        state = state.wrapping_mul(0x2545_F491_4F6C_DD1D).rotate_left(17);
        // SAFETY: the address is within an accessible segment. It is aligned, because blocks start at multiples of 256.
        unsafe { (at as *mut u64).write(state) };
    }
}
